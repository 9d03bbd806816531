"""Values of the remote side that others keep or compare without knowing which remote it is."""

from __future__ import annotations

from typing import Literal

import msgspec

from blockfs.blocks.blocklist import BlockList
from syncer.core.model import RemoteTag


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """How contents are named in a share: every side of it speaks of blocks of this size.

    Attributes:
        block_size: Bytes of a block. Read from the remote, never assumed.
        block_hash: Name of the hash function, "sha256" (others are refused).
    """

    block_size: int
    block_hash: str


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a remote can, as far as it makes a difference to who uses it.

    Attributes:
        atomic: A condition holds with its write. False: what was overwritten unseen is found afterwards.
        moves_trees: Most objects of a directory that is moved, and told as moved, as one; 0: object by object.
        holds_back: Writes are seen by others only after a commit.
        keeps_versions: Older versions of an object can be read.
        waits: How a change is noticed, for `status`: the remote tells of it, it is asked now and then, or files are
            watched.
        orders: So many writes under way at once are of use.
        reads: So many contents of one block may come by one request; 1: each by its own.
        small_bytes: Contents up to this gain by company when they are written.
    """

    atomic: bool
    moves_trees: int
    holds_back: bool
    keeps_versions: bool
    waits: Literal["told", "polling", "files"]
    orders: int
    reads: int
    small_bytes: int


class RemoteInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a remote says of itself.

    Attributes:
        identity: UUID text of its life; None where there is none (plain Pithos).
        grid: Of the share.
        can: What it can.
        text: The same for a person, in a few words.
    """

    identity: str | None
    grid: Grid
    can: Capabilities
    text: str


class KnownList(msgspec.Struct, frozen=True, kw_only=True):
    """A block list that we have of an earlier version of an object: only what differs from it need travel.

    Attributes:
        tag: Which version's.
        blocks: The list. If it is not that version's, the transfer costs more, and no harm is done.
    """

    tag: RemoteTag
    blocks: BlockList
