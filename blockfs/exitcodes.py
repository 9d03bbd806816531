"""Exit codes of the `blocksync` command. They are a contract: a code never changes its meaning."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """What a run ended with.

    The man page has this table, and docs/reference/exit-codes.md, which a test compares.

    Attributes:
        meaning: For people.
    """

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        """A code and its meaning."""
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    DONE = 0, "done"
    UNEXPECTED = 1, "unexpected: a bug of ours, or an error of the host that has no code of its own"
    USAGE = 2, "the command line or a value is not acceptable"
    PARTLY_DONE = 3, "partly done; each item that could not be done is named"
    CONFLICT_COPY = 4, "done, and this run made a conflict copy, or ended what a run that was cut short had begun"
    NOT_FOUND = 10, "not found: no such volume, path, mount, root or object"
    LOCKED = 11, "locked: another process holds the volume or root"
    AUTH = 12, "not allowed"
    REMOTE_UNREACHABLE = 13, "the server can't be reached"
    FORMAT_TOO_NEW = 14, "made by a newer blocksync"
    CORRUPTION = 15, "corruption, or findings of fsck, scrub and verify"
    SAFETY_STOP = 16, "safety stop: the plan deletes much, and nobody has agreed to it; nothing was done"
    NO_SPACE = 17, "no space"
    ROOT_IDENTITY = 18, "the root or container is not the one that was linked"
    CHANGES_LOST = 19, "the mount has ended, and changes that were not fsynced are lost"
    PLAN_CHANGED = 20, "a saved plan does not hold any more: nothing was done"
    INTERRUPTED = 130, "interrupted"  # 128 + SIGINT
