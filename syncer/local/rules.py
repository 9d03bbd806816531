"""Read `.blocksyncignore` files."""

from __future__ import annotations

import os
import stat
from typing import Final

from syncer.core.ignore import IGNORE_FILE, ignore_file_in
from syncer.core.model import RelPath
from syncer.errors import LongRulesError
from syncer.local.safe_open import FILE_FLAGS

_LONGEST: Final = 1 << 20  # a megabyte of patterns is no list that a person keeps


def read_rules(directory: int, folder: RelPath) -> bytes:
    """The text of a directory's file of rules; empty if there is none, or if it is no regular file (as for git).

    Args:
        directory: Descriptor of the directory.
        folder: Its path, for messages.

    Raises:
        LongRulesError: It is too large.
        OSError: It can't be read.
    """
    try:
        descriptor = os.open(IGNORE_FILE, FILE_FLAGS, dir_fd=directory)
    except FileNotFoundError:
        return b""
    except OSError:
        if not stat.S_ISREG(os.stat(IGNORE_FILE, dir_fd=directory, follow_symlinks=False).st_mode):
            return b""
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            text = file.read(_LONGEST + 1)
    finally:
        os.close(descriptor)
    if len(text) > _LONGEST:
        raise LongRulesError(ignore_file_in(folder), _LONGEST)
    return text
