"""Segments: the files that hold the payload of blocks; appending to them, reading them, making them of other files."""
