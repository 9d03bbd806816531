"""What every kind of local root is opened with."""

from __future__ import annotations

import msgspec

from syncer.core.parts import NO_PARTS, Parts
from syncer.local.verbs.retention import KEEP_S
from syncer.ports.localvalues import Patterns, no_patterns
from syncer.ports.state import State


class RootOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a root is opened.

    Attributes:
        block_size: Bytes of a block of the share.
        lists: Folder for block lists of contents that both sides have: a cache.
        state: What is kept between cycles. Knows contents of files that are not in the base yet.
        patterns: What is ignored, beside `.blocksyncignore` files.
        parts: What of metadata is synced beyond the plain ones; the rest is neither looked at nor set, but kept.
        keep_trash_s: For how long displaced and deleted versions are kept.
        twin_bytes: Files of this size or more have a twin, where the filesystem has reflinks.
        only_looking: Nothing is changed or tidied up, because a cycle may be at work on the same root.
    """

    block_size: int
    lists: str
    state: State
    patterns: Patterns = no_patterns
    parts: Parts = NO_PARTS
    keep_trash_s: float = KEEP_S
    twin_bytes: int = 64 << 20  # hashing less takes a few hundredths of a second
    only_looking: bool = False
