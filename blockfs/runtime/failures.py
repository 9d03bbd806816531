"""What an error ends a command with, and what is said of it: errors of the host know an errno and no sentence."""

from __future__ import annotations

import errno
import os
from typing import Final

from blockfs.errors import FULL, ExpectedError
from blockfs.exitcodes import ExitCode
from blockfs.runtime.output import shown

HOST: Final = {
    **dict.fromkeys(FULL, ExitCode.NO_SPACE),
    errno.EROFS: ExitCode.USAGE,  # as of a read-only mount: the place is not acceptable
    errno.EACCES: ExitCode.AUTH,
    errno.EPERM: ExitCode.AUTH,
}
"""Errors of the host that have an exit code of their own, by errno."""


def code_of(error: BaseException) -> int:
    """The exit code of what ends a command."""
    if isinstance(error, ExpectedError):
        return error.exit_code
    if isinstance(error, OSError):
        return HOST.get(error.errno or 0, ExitCode.UNEXPECTED)
    return ExitCode.UNEXPECTED


def said(error: BaseException) -> str:
    """An error as a sentence for people: the file and what the host says of it, without the number, names as names."""
    if not isinstance(error, OSError) or not error.strerror:
        return shown(str(error).encode("utf-8", "surrogateescape"))
    names = [_name(name) for name in (error.filename, error.filename2) if name is not None]
    return f"{' -> '.join(names)}: {error.strerror}" if names else error.strerror


def _name(name: object) -> str:
    return shown(os.fsencode(name)) if isinstance(name, str | bytes | os.PathLike) else str(name)
