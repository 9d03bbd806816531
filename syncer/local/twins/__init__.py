"""Twins: reflinked copies of large files as they were hashed last, by which the next look finds what has changed."""
