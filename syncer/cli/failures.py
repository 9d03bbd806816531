"""Whether a failure was told already."""

from __future__ import annotations


class ToldError(Exception):
    """An error that standard output has already, as a JSON line; its cause is the error."""
