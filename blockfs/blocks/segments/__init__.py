"""Segments: the files that hold the payload of blocks; appending to them, reading them, and giving their space back."""
