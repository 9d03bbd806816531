"""What a Pithos server says of a container, and what of that is told to those who don't know Pithos. Pure."""

from __future__ import annotations

import msgspec

from syncer.ports.remote import Capabilities, Grid, RemoteInfo
from syncer.protocol.extensions import bulk_read, subtree
from syncer.protocol.pithos import headers as wire


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
        can = Capabilities(
            atomic=self.atomic,
            moves_trees=subtree.MAX_OBJECTS if wire.EXTENSION_SUBTREES in self.extensions else 0,
            holds_back=False,
            keeps_versions=True,
            waits="told" if wire.EXTENSION_CHANGES in self.extensions else "polling",
            reads=bulk_read.MAX_OBJECTS if wire.EXTENSION_BULK_READ in self.extensions else 1,
        )
        return RemoteInfo(
            identity=self.identity,
            grid=Grid(block_size=self.block_size, block_hash=self.block_hash),
            can=can,
            text=", ".join(sorted(self.extensions)) or "plain Pithos",
        )
