"""What an error would make the command end with, and whether it was told already."""

from __future__ import annotations

from blockfs.errors import BlockfsError
from blockfs.runtime.exitcodes import ExitCode
from blockfs.runtime.failures import host_code
from syncer.errors import SyncerError


class ToldError(Exception):
    """An error that standard output has already, as a JSON line; its cause is the error."""


def code_of(error: Exception) -> int:
    """What an error would make the command end with."""
    if isinstance(error, SyncerError | BlockfsError):
        return error.exit_code
    return host_code(error) if isinstance(error, OSError) else int(ExitCode.UNEXPECTED)
