"""Looks at both sides, down to the bytes, and changes nothing."""
