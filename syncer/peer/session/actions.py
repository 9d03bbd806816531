"""What a session of LAN peers tells the shell to do, and what the shell tells it of links."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NewType, TypeAlias

import msgspec

from blockfs.blocks.ids import BlockId

LinkId = NewType("LinkId", str)
"""One way to send frames: an interface. By which carriers frames go on it is the shell's affair."""

PeerId = NewType("PeerId", bytes)
"""A peer's sender id, 16 bytes. It is another every ten minutes, in each process, and says nothing of the machine."""

Address: TypeAlias = Hashable
"""Where a frame came from or goes to on its link. Only the link reads it: a MAC, a socket address. No identity."""

Ticket = NewType("Ticket", int)
"""A question of somebody that the shell is looking up."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A link that is up.

    Attributes:
        id: Its name.
        bound: The longest body in bytes, see `frames.body_bound`. Less than 64: it is not used.
        wireless: Whether broadcasts are dear on it.
        answers: Whether questions that come by it are answered; False where what we send costs money.
        addresses: Where we take connections on this interface: 16 bytes each, the best first; three are told.
    """

    id: LinkId
    bound: int
    wireless: bool = False
    answers: bool = True
    addresses: tuple[bytes, ...] = ()


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """Send a frame; one that can't be sent is gone.

    Attributes:
        link: On which.
        to: None: to all.
        frame: 124 to 1500 bytes.
    """

    link: LinkId
    to: Address | None
    frame: bytes


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody of the share is there who was not, or not lately. Nothing to connect to."""

    share: str
    peer: PeerId
    link: LinkId


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody of the share said that it goes."""

    share: str
    peer: PeerId


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A peer answered a question of ours: the only reason to connect to anybody.

    Attributes:
        share: Of the question.
        peer: Who.
        ids: What it says it has of what is still wanted. Empty: it is there, and has none.
        addresses: Near ones, 16 bytes each, the best first; at least one.
        port: TCP, not 0.
        load: 0 idle to 255.
        link: By which link; link-local addresses are those of its interface.
    """

    share: str
    peer: PeerId
    ids: tuple[BlockId, ...]
    addresses: tuple[bytes, ...]
    port: int
    load: int
    link: LinkId


class LookUp(msgspec.Struct, frozen=True, kw_only=True):
    """Look these up in the index of this share, and of no other; then call `Session.looked_up` with the ticket.

    Attributes:
        tokens: First 8 bytes of block ids, 1 to 179.
    """

    ticket: Ticket
    share: str
    tokens: tuple[bytes, ...]


class AskConnected(msgspec.Struct, frozen=True, kw_only=True):
    """Too many wants for broadcasts: ask these peers over their connections (HAVEQ). `told` hears the answer."""

    share: str
    peers: tuple[PeerId, ...]
    ids: tuple[BlockId, ...]


Action: TypeAlias = Send | Heard | Left | Answered | LookUp | AskConnected
