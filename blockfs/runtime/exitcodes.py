"""Exit codes of the `blocksync` command. They are a contract: a code never changes its meaning."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a run ended with. Documented in docs/reference/exit-codes.md."""

    DONE = 0
    UNEXPECTED = 1  # a bug of ours: please report
    USAGE = 2  # the command line, or an argument's value, is not acceptable
    PARTLY_DONE = 3  # some items could not be done; each is named
    CONFLICT_COPY = 4  # done, and this run made at least one conflict copy
    NOT_FOUND = 10
    LOCKED = 11  # another process holds the volume or root
    AUTH = 12
    REMOTE_UNREACHABLE = 13
    FORMAT_TOO_NEW = 14
    CORRUPTION = 15
    SAFETY_STOP = 16
    NO_SPACE = 17
    ROOT_IDENTITY = 18
    CHANGES_LOST = 19  # the mount has ended; what had not been fsynced is lost
    PLAN_CHANGED = 20  # a saved plan does not hold any more; nothing was done
    INTERRUPTED = 130  # 128 + SIGINT
