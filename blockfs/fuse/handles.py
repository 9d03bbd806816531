"""What the kernel's handles of files stand for."""

from __future__ import annotations

import os

import msgspec


class OpenFile(msgspec.Struct, frozen=True):
    """What a file handle stands for.

    Attributes:
        ino: The inode.
        handle: The engine's.
        reading_is_access: Neither opened with O_NOATIME, nor for writing only: then the kernel reads to complete pages.
        is_writer: Opened for writing, so closing it may end a change.
    """

    ino: int
    handle: int
    reading_is_access: bool
    is_writer: bool


def reads_for_a_user(flags: int) -> bool:
    """Whether a file that is opened so is read by its user, not only by the kernel to complete pages."""
    return flags & os.O_ACCMODE != os.O_WRONLY and not flags & os.O_NOATIME
