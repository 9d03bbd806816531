"""What an error says and ends a command with: one place for errors of the host, which know an errno and no sentence."""

from __future__ import annotations

import errno
import os
from typing import Final

from blockfs.runtime.exitcodes import ExitCode
from blockfs.runtime.output import shown

_CODES: Final = {
    errno.ENOSPC: ExitCode.NO_SPACE,
    errno.EDQUOT: ExitCode.NO_SPACE,
    errno.EROFS: ExitCode.USAGE,  # as of a read-only mount: the place is not acceptable
    errno.EACCES: ExitCode.AUTH,
    errno.EPERM: ExitCode.AUTH,
}


def said(error: BaseException) -> str:
    """An error as a sentence for people: the file and what the host says of it, without the number, names as names."""
    if not isinstance(error, OSError) or not error.strerror:
        return shown(str(error).encode("utf-8", "surrogateescape"))
    names = [_name(name) for name in (error.filename, error.filename2) if name is not None]
    return f"{' -> '.join(names)}: {error.strerror}" if names else error.strerror


def host_code(error: OSError) -> int:
    """The exit code of an error of the host; 1 where it has none of its own."""
    return int(_CODES.get(error.errno or 0, ExitCode.UNEXPECTED))


def _name(name: object) -> str:
    return shown(os.fsencode(name)) if isinstance(name, str | bytes | os.PathLike) else str(name)
