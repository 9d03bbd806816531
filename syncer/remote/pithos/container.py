"""What a Pithos server says of a container, and what of that is told to those who don't know Pithos. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from syncer.ports.remote import Capabilities, Grid, RemoteInfo
from syncer.protocol.extensions import bulk, bulk_read, subtree
from syncer.protocol.pithos import headers as wire

_ALONE_AT_ONCE: Final = 16  # small writes, each a request of its own: they wait for round trips most of the time
_ALONE_BYTES: Final = 256 << 10  # of a content whose request gains nothing from those of others


class ContainerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the server says about the container.

    Attributes:
        identity: UUID text of the container's life; None where the server has none (plain Pithos).
        block_size: Bytes of a block on this server. Read, never assumed.
        block_hash: Name of the hash function, "sha256" (others are refused).
        atomic: Conditions are atomic with the write. False: the client checks afterwards.
        extensions: What the server announced beyond Pithos, lower case.
    """

    identity: str | None
    block_size: int
    block_hash: str
    atomic: bool
    extensions: frozenset[str] = frozenset()

    @property
    def told(self) -> RemoteInfo:
        """The same in the words of all remotes."""
        bulk_writes = wire.EXTENSION_BULK in self.extensions
        can = Capabilities(
            atomic=self.atomic,
            moves_trees=subtree.MAX_OBJECTS if wire.EXTENSION_SUBTREES in self.extensions else 0,
            holds_back=False,
            keeps_versions=True,
            waits="told" if wire.EXTENSION_CHANGES in self.extensions else "polling",
            orders=bulk.MAX_OPERATIONS if bulk_writes else _ALONE_AT_ONCE,
            reads=bulk_read.MAX_OBJECTS if wire.EXTENSION_BULK_READ in self.extensions else 1,
            small_bytes=self.block_size if bulk_writes else min(self.block_size, _ALONE_BYTES),
        )
        return RemoteInfo(
            identity=self.identity,
            grid=Grid(block_size=self.block_size, block_hash=self.block_hash),
            can=can,
            text=", ".join(sorted(self.extensions)) or "plain Pithos",
        )
