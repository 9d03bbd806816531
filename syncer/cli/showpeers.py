"""What `blocksync peers` prints: who is there, by which link, rates, blocks, bans."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from blockfs.runtime.output import json_line, tell
from blockfs.runtime.units import format_size
from syncer.cli import columns
from syncer.watch import control

if TYPE_CHECKING:
    from syncer.peer.exchange.figures import PeerFigures
    from syncer.watch.lan import PeersLive

_AGAIN_S: Final = 1.0
_HEADINGS: Final = ("peer", "link", "address", ">heard", ">per second", ">blocks", ">bytes", "connected")


def show(socket: str, *, as_json: bool, follow: bool) -> None:
    """Print how the daemon stands on the LAN.

    Args:
        socket: The daemon's.
        as_json: One line: type "peers".
        follow: Again every second, until the daemon ends.

    Raises:
        NotWatchingError: No daemon, or it has ended.
        OlderDaemonError: It knows no peers.
    """
    while True:
        live = control.peers(socket)
        if as_json:
            json_line("peers", msgspec.to_builtins(live))
        else:
            _tell(live)
        if not follow:
            return
        time.sleep(_AGAIN_S)


def _tell(live: PeersLive) -> None:
    if live.off:
        tell(f"off: {live.off}")
        return
    for share in live.shares:
        tell(f"{share.root}  {f'off: {share.off}' if share.off else 'on'}")
    figures = live.figures
    if figures is None:
        return
    tell(f"links: {', '.join(figures.links) or 'none'}; port {figures.port}")
    got = f"{figures.blocks_from_peers} blocks ({format_size(figures.bytes_from_peers)}) from peers"
    tell(f"{got}, {figures.blocks_to_peers} ({format_size(figures.bytes_to_peers)}) to peers")
    if figures.peers:
        columns.show("peers", _HEADINGS, [_row(peer) for peer in figures.peers])
    else:
        tell("nobody was heard in the last ten minutes")
    for ban in figures.bans:
        tell(f"banned for {ban.for_s / 60:.0f} min, it sent a wrong block: {ban.peer[:8]} {ban.address}".rstrip())


def _row(peer: PeerFigures) -> tuple[str, ...]:
    return (
        peer.peer[:8],
        peer.link,
        peer.addresses[0] if peer.addresses else "",
        f"{peer.heard_s:.0f} s ago",
        "" if peer.bytes_per_s is None else format_size(int(peer.bytes_per_s)),
        str(peer.blocks),
        format_size(peer.bytes),
        "yes" if peer.is_connected else "",
    )
