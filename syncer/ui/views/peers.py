"""Devices on the network, as `peers --json` prints them. Pure."""

from __future__ import annotations

import msgspec

from syncer.ui.words import counted, plain, size, span


class PeerView(msgspec.Struct, frozen=True, kw_only=True):
    """One device of one share.

    Attributes:
        peer: The beginning of its id.
        link: By which interface it was heard.
        address: Where it takes connections.
        heard: How long ago.
        rate: How fast blocks come from it; empty: none came.
        got: What came.
        is_connected: There is a connection to it.
    """

    peer: str
    link: str
    address: str
    heard: str
    rate: str
    got: str
    is_connected: bool


class BanView(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who sent a wrong block: its id whole, as the command takes it, its beginning, from where, how long."""

    who: str
    peer: str
    address: str
    left: str


class ShareView(msgspec.Struct, frozen=True, kw_only=True):
    """One root: its path, and why it takes no part; empty: it does."""

    root: str
    off: str


class PeersView(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon on the network.

    Attributes:
        off: Why it is not there; empty: it is.
        shares: Its roots.
        links: Interfaces in use; empty: none, or no root takes part.
        exchanged: What came and went, in words; empty: no root takes part.
        peers: Who is there.
        uploads: Who is given blocks, in words.
        bans: Who is kept out.
    """

    off: str
    shares: tuple[ShareView, ...]
    links: str
    exchanged: str
    peers: tuple[PeerView, ...]
    uploads: tuple[str, ...]
    bans: tuple[BanView, ...]


class _Share(msgspec.Struct):
    root: str
    off: str


class _Peer(msgspec.Struct):
    peer: str
    link: str
    addresses: list[str]
    heard_s: float
    is_connected: bool
    bytes_per_s: float | None
    blocks: int
    bytes: int


class _Ban(msgspec.Struct):
    peer: str
    address: str
    for_s: float


class _Upload(msgspec.Struct):
    peer: str
    address: str
    blocks: int
    bytes: int


class _Figures(msgspec.Struct):
    links: list[str]
    peers: list[_Peer]
    bans: list[_Ban]
    uploads: list[_Upload]
    blocks_from_peers: int
    bytes_from_peers: int
    blocks_to_peers: int
    bytes_to_peers: int


class _Peers(msgspec.Struct):
    off: str
    shares: list[_Share]
    figures: _Figures | None = None


def view_peers(line: bytes) -> PeersView:
    """What `peers --json` printed."""
    told = msgspec.json.decode(line, type=_Peers)
    figures = told.figures
    shares = tuple(ShareView(root=plain(each.root), off=plain(each.off)) for each in told.shares)
    if figures is None:
        return PeersView(off=plain(told.off), shares=shares, links="", exchanged="", peers=(), uploads=(), bans=())
    came = f"{_blocks(figures.blocks_from_peers, figures.bytes_from_peers)} from peers"
    went = f"{_blocks(figures.blocks_to_peers, figures.bytes_to_peers)} to peers"
    return PeersView(
        off=plain(told.off),
        shares=shares,
        links=plain(", ".join(figures.links)),
        exchanged=f"{came}, {went}",
        peers=tuple(_peer(each) for each in figures.peers),
        uploads=tuple(
            plain(f"{each.peer[:8]} {each.address}: {_blocks(each.blocks, each.bytes)}") for each in figures.uploads
        ),
        bans=tuple(
            BanView(who=each.peer, peer=plain(each.peer[:8]), address=plain(each.address), left=span(each.for_s))
            for each in figures.bans
        ),
    )


def _peer(each: _Peer) -> PeerView:
    return PeerView(
        peer=plain(each.peer[:8]),
        link=plain(each.link),
        address=plain(each.addresses[0]) if each.addresses else "",
        heard=f"{span(each.heard_s)} ago",
        rate="" if each.bytes_per_s is None else f"{size(each.bytes_per_s)}/s",
        got=_blocks(each.blocks, each.bytes) if each.blocks else "",
        is_connected=each.is_connected,
    )


def _blocks(count: int, size_bytes: int) -> str:
    return f"{counted(count, 'block', 'blocks')} ({size(size_bytes)})"
