"""What there is to tell of the exchange at one moment: for `blocksync peers`, the status, and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from syncer.peer.exchange.circle import ShareCircle
from syncer.peer.exchange.limits import Uploads
from syncer.peer.exchange.tcp import text
from syncer.peer.session.counters import LATENCY_S
from syncer.peer.session.session import Session
from syncer.peer.session.standing import Ban

_ID_DIGITS: Final = 4  # of an id that a person types, at least


class PeerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One peer of one share.

    Attributes:
        share: Of which share; roots with a key in common have the same name.
        peer: Its sender id in hex. It has another one every ten minutes.
        link: By which link it was heard last.
        addresses: Where it takes connections, as people write them; the one in use, if there is one.
        heard_s: So many seconds ago.
        is_connected: Whether we have a connection to it.
        bytes_per_s: How fast blocks come from it; None: none came yet.
        blocks: Blocks that came from it.
        bytes: Of these.
        wasted_bytes: Of blocks that were of no use any more.
        load: What it said of its load: 0 idle to 255.
    """

    share: str
    peer: str
    link: str
    addresses: tuple[str, ...]
    heard_s: float
    is_connected: bool
    bytes_per_s: float | None
    blocks: int
    bytes: int
    wasted_bytes: int
    load: int


class BanFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody from whom nothing is taken: it sent a wrong block.

    Attributes:
        peer: The sender id it had, in hex.
        address: From where.
        for_s: So many seconds more.
    """

    peer: str
    address: str
    for_s: float


class UploadFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who has a connection to us, on which it asks.

    Attributes:
        peer: The sender id it had when it came, in hex.
        address: From where.
        blocks: That went to it, by this connection.
        bytes: Of these.
    """

    peer: str
    address: str
    blocks: int
    bytes: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. Counts are since the exchange began.

    Attributes:
        port: TCP; 0: no connections are taken.
        links: Names of the interfaces in use.
        peers: Who is there.
        bans: Who is kept out.
        frames_in: Valid frames, by type.
        frames_out: By type.
        drops: Frames that were not taken, by reason.
        tokens_asked: Ids that were asked for by frames.
        tokens_answered: Of those still wanted, ids that peers said they have.
        latency: Answers by time, not cumulated; classes end at `latency_ends_s`, the last has no end.
        latency_ends_s: Seconds.
        latency_s: Sum of the times.
        blocks_from_peers: Blocks that came.
        bytes_from_peers: Of these.
        wasted_bytes: That came of what was of no use any more.
        blocks_to_peers: Blocks that went out.
        bytes_to_peers: Of these.
        busy: Requests that were told to come again.
        stalls: Peers that stalled.
        lacked: Blocks that a peer offered and did not have.
        broadcasts_held: Frames that waited for the budget of broadcasts.
        mismatches: Blocks that came from peers and were others.
        accused: Blocks that we sent, and of which peers said so.
        uploads: Who has a connection to us.
    """

    port: int
    links: tuple[str, ...]
    peers: tuple[PeerFigures, ...]
    bans: tuple[BanFigures, ...]
    frames_in: dict[str, int]
    frames_out: dict[str, int]
    drops: dict[str, int]
    tokens_asked: int
    tokens_answered: int
    latency: tuple[int, ...]
    latency_ends_s: tuple[float, ...]
    latency_s: float
    blocks_from_peers: int
    bytes_from_peers: int
    wasted_bytes: int
    blocks_to_peers: int
    bytes_to_peers: int
    busy: int
    stalls: int
    lacked: int
    broadcasts_held: int
    mismatches: int = 0
    accused: int = 0
    uploads: tuple[UploadFigures, ...] = ()


def is_called(ban: Ban, who: str) -> bool:
    """Whether a person means this one: by the beginning of its id, four digits or more, or by its address."""
    name = who.lower().partition("%")[0]
    return (len(name) >= _ID_DIGITS and ban.peer.hex().startswith(name)) or (
        bool(ban.address) and text(ban.address) == name
    )


def figures_of(
    session: Session, circles: Mapping[str, ShareCircle], uploads: Uploads, port: int, links: Sequence[str], now: float
) -> Figures:
    """The figures of an exchange at a time, monotonic seconds."""
    peers = tuple([each for circle in circles.values() for each in _peers(session, circle, now)])
    counters = session.counters
    bans = [
        BanFigures(peer=ban.peer.hex(), address=text(ban.address) if ban.address else "", for_s=ban.until_s - now)
        for ban in session.standing.bans(now)
    ]
    return Figures(
        port=port,
        links=tuple(links),
        peers=peers,
        bans=tuple(bans),
        frames_in={kind.name.lower(): number for kind, number in counters.frames_in.items()},
        frames_out={kind.name.lower(): number for kind, number in counters.frames_out.items()},
        drops={drop.value: number for drop, number in counters.drops.items()},
        tokens_asked=counters.tokens_asked,
        tokens_answered=counters.tokens_answered,
        latency=tuple(counters.latency),
        latency_ends_s=LATENCY_S,
        latency_s=counters.latency_s,
        blocks_from_peers=sum(circle.taken()[0] for circle in circles.values()),
        bytes_from_peers=sum(circle.taken()[1] for circle in circles.values()),
        wasted_bytes=sum(circle.taken()[2] for circle in circles.values()),
        blocks_to_peers=uploads.blocks,
        bytes_to_peers=uploads.bytes,
        busy=uploads.refused,
        stalls=sum(circle.stalls for circle in circles.values()),
        lacked=sum(circle.lacks for circle in circles.values()),
        broadcasts_held=counters.broadcasts_held,
        mismatches=sum(circle.mismatches for circle in circles.values()),
        accused=uploads.accused,
        uploads=tuple(
            [
                UploadFigures(peer=each.peer.hex(), address=text(each.address), blocks=each.blocks, bytes=each.bytes)
                for each in uploads.open
            ]
        ),
    )


def _peers(session: Session, circle: ShareCircle, now: float) -> list[PeerFigures]:
    told = []
    for each in session.neighbours(circle.share, now):
        contact = circle.contacts.get(each.peer)
        blocks, size, wasted = contact.figures() if contact is not None else (0, 0, 0)
        download = contact.download if contact is not None else None
        used = contact.address if contact is not None and download is not None else b""
        told.append(
            PeerFigures(
                share=circle.share,
                peer=each.peer.hex(),
                link=each.link,
                addresses=(text(used),) if used else tuple(map(text, each.addresses)),
                heard_s=now - each.heard_s,
                is_connected=download is not None,
                bytes_per_s=download.rate() if download is not None else None,
                blocks=blocks,
                bytes=size,
                wasted_bytes=wasted,
                load=each.load,
            )
        )
    return told
