"""What `blocksync peers` prints: who is there, by which link, rates, blocks, bans; once, or whenever it changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from blockfs.runtime.output import json_line, printable, tell
from blockfs.runtime.units import counted, format_size
from syncer.cli.output import columns
from syncer.watch import control

if TYPE_CHECKING:
    from rich.console import RenderableType

    from syncer.peer.exchange.figures import Figures, PeerFigures
    from syncer.watch.lan import PeersLive

_AGAIN_S: Final = 0.5
_HEADINGS: Final = ("peer", "link", "address", ">heard", ">per second", ">blocks", ">bytes", "connected")


def show(socket: str, *, as_json: bool) -> None:
    """Print how the daemon stands on the LAN.

    Args:
        socket: The daemon's.
        as_json: One line: type "peers".

    Raises:
        NotWatchingError: There is no daemon.
        OlderDaemonError: It knows no peers.
    """
    live = control.peers(socket)
    if as_json:
        json_line("peers", msgspec.to_builtins(live))
        return
    for line in _above(live).values():
        tell(line)
    if live.figures is not None and live.figures.peers:
        columns.show("peers", _HEADINGS, [_row(peer) for peer in live.figures.peers])
    for line in _below(live).values():
        tell(line)


def follow(socket: str, *, as_json: bool) -> None:
    """Show it until the daemon ends: as a table that is drawn again, or where there is no terminal as lines of text.

    Args:
        socket: The daemon's.
        as_json: Instead, one line whenever something is another one than time that passes.

    Raises:
        NotWatchingError: There is no daemon, or it has ended.
        OlderDaemonError: It knows no peers.
    """
    if as_json:
        for live in _changes(socket):
            json_line("peers", msgspec.to_builtins(live))
        return
    from rich.console import Console  # noqa: PLC0415 - 50 ms, for who looks at it
    from rich.live import Live  # noqa: PLC0415 - likewise

    console = Console(file=sys.stdout, highlight=False, markup=False)
    if not console.is_terminal or console.is_dumb_terminal:
        _tell_lines(socket)
        return
    with Live(console=console, auto_refresh=False) as screen:
        for live in _looks(socket):
            screen.update(_drawn(live), refresh=True)


def _looks(socket: str) -> Iterator[PeersLive]:
    while True:
        yield control.peers(socket)
        time.sleep(_AGAIN_S)


def _changes(socket: str) -> Iterator[PeersLive]:
    """How it stands whenever that is another one, in what `_lasting` has."""
    told = None
    for live in _looks(socket):
        now = _lasting(live)
        if now != told:
            told = now
            yield live


def _lasting(live: PeersLive) -> object:
    """What is shown, without the times that pass and the counts of frames."""
    figures = live.figures
    if figures is None:
        return live
    peers = [msgspec.structs.replace(peer, heard_s=0.0, load=0) for peer in figures.peers]
    bans = [(ban.peer, ban.address) for ban in figures.bans]
    return live.off, live.shares, figures.port, figures.links, peers, figures.uploads, bans, _counts(figures)


def _counts(figures: Figures) -> str:
    came = f"{_blocks(figures.blocks_from_peers, figures.bytes_from_peers)} from peers"
    return f"{came}, {_blocks(figures.blocks_to_peers, figures.bytes_to_peers)} to peers"


def _blocks(count: int, size_bytes: int) -> str:
    return f"{counted(count, 'block', 'blocks')} ({format_size(size_bytes)})"


def _tell_lines(socket: str) -> None:
    """Each line once, and again when it is another one; out at once (`tell` flushes), so that whoever reads sees it."""
    told: dict[str, str] = {}
    for live in _changes(socket):
        peers = {} if live.figures is None else {peer.peer: peer for peer in live.figures.peers}
        lines = {**_above(live), **{name: _in_line(peer) for name, peer in peers.items()}, **_below(live)}
        for key, line in list(told.items()):
            if key not in lines:
                del told[key]
                if line.startswith("peer"):
                    tell(f"peer  {key[:8]}  is gone")
        for key, line in lines.items():
            if told.get(key) != line:
                told[key] = line
                tell(line)


def _in_line(peer: PeerFigures) -> str:
    rate = "" if peer.bytes_per_s is None else f"{format_size(int(peer.bytes_per_s))}/s"
    got = _blocks(peer.blocks, peer.bytes) if peer.blocks else ""
    cells = ("peer", peer.peer[:8], peer.link, *peer.addresses[:1], rate, got, "connected" if peer.is_connected else "")
    return "  ".join(cell for cell in cells if cell)


def _drawn(live: PeersLive) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415 - see above
    from rich.table import Table  # noqa: PLC0415 - see above
    from rich.text import Text  # noqa: PLC0415 - see above

    table = Table(box=None, pad_edge=False)
    for heading in _HEADINGS:
        table.add_column(heading.lstrip(">"), justify="right" if heading.startswith(">") else "left", overflow="fold")
    for peer in () if live.figures is None else live.figures.peers:
        table.add_row(*map(printable, _row(peer)))
    above, below = ([Text(printable(line)) for line in lines.values()] for lines in (_above(live), _below(live)))
    return Group(*above, *([table] if table.row_count else []), *below)


def _above(live: PeersLive) -> dict[str, str]:
    """Lines before the peers, by what they are about: which roots take part, by which links, what came and went."""
    lines = {"off": f"off: {live.off}"} if live.off else {}
    for share in live.shares:
        lines[share.uuid] = f"{share.root}  {f'off: {share.off}' if share.off else 'on'}"
    if live.figures is not None:
        lines["links"] = f"links: {', '.join(live.figures.links) or 'none'}; port {live.figures.port}"
        lines["counts"] = _counts(live.figures)
    return lines


def _below(live: PeersLive) -> dict[str, str]:
    """Lines after the peers: who has something from us, why there may be none, and who is banned."""
    lines: dict[str, str] = {}
    figures = live.figures
    if figures is None:
        return lines
    for each in figures.uploads:
        size = _blocks(each.blocks, each.bytes)
        lines[f"to {each.peer}"] = f"giving to {each.peer[:8]} {each.address}: {size}"
    if not figures.peers:
        lines["nobody"] = "nobody was heard in the last ten minutes"
        if figures.drops.get("epoch"):
            lines["why"] = "somebody's clock is more than ten minutes away from this one's; let NTP set both"
        elif figures.drops.get("hint"):
            lines["why"] = "somebody is there with another key: of other shares, or with another passphrase"
    for ban in figures.bans:
        text = f"banned for {ban.for_s / 60:.0f} min, it sent a wrong block: {ban.peer[:8]} {ban.address}"
        lines[f"ban {ban.peer}"] = text.rstrip()
    return lines


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
