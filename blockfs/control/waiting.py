"""Messages with which the syncer waits for changes. Pure; parts of `protocol`."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from blockfs.control.message import Message as _Message
from blockfs.control.message import Size

MAX_WAIT_MS: Final = 600_000
"""Longest `Wait`; ask again after it."""


class Wait(_Message, frozen=True, kw_only=True):
    """Wait until users change something through the kernel, so that nobody has to ask again and again.

    It is a hint: the change may not be committed yet (syncfs, then `Flush`), and what the caller itself changes over
    this socket is no activity. A file that is written counts when it is closed.

    Attributes:
        seen: The `activity` of the last reply; None: answer at once.
        timeout_ms: Answer after this time at the latest.
    """

    seen: Size | None = None
    timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)] = 0


class WaitReply(_Message, frozen=True, kw_only=True):
    """Something happened, or the time is over.

    Attributes:
        activity: Compare for equality only; of this mount process only.
        writers: Handles that are open for writing now.
    """

    activity: Size
    writers: int = 0
