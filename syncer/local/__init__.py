"""The local side of a sync: an ordinary directory, or a mounted blockfs volume."""
