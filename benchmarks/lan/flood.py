"""Frames of somebody without the key, 100,000 a second: what they cost a daemon, and a sync beside them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from benchmarks.lan.office import BLOCK, Daemon, Office, cpu_s, office, until_pulled
from benchmarks.lan.sizes import MIB, Sizes
from benchmarks.rows import Row, times
from tests.kit.flood import ETHERTYPE, LONG, SHORT, addressed, flooding, forged, heard_from, made_up, random_ones
from tests.kit.program import Machine, is_there

NOBODYS: Final = 0x88B6
SLOW_MBIT_S: Final = 100.0
MEMBERS: Final = 3
"""Neighbours that were heard, besides the daemon itself: with four ids all that may reach a cipher does."""

KINDS: Final[dict[str, Callable[[list[bytes]], list[bytes]]]] = {
    "random frames": lambda _: random_ones(),
    "frames of a made-up share": lambda _: made_up(),
    "frames that were heard, sent again": lambda heard: heard,
    "short forged frames": lambda heard: forged(heard, SHORT),
    "long forged frames": lambda heard: forged(heard, LONG),
}
"""What is sent, by what was heard, the cheapest to refuse first. Forged: right up to the tag; as short as a HELLO."""
DEAREST: Final = list(KINDS)[-1]


class _Street:
    """A daemon that has all, a node that pulls, and one from which it rains."""

    def __init__(self, here: Office, sizes: Sizes) -> None:
        self._here = here
        self._holding, self._pulling, self._flooding = here.lan.nodes[2:]
        here.publish(image=sizes.folder_bytes)
        holder: Machine = here.fresh(self._holding)
        self._daemon = Daemon(holder)
        until_pulled([self._daemon], 1)
        holder.until("peers", is_there)

    def pull(self) -> tuple[float, int]:
        """A new machine's first pull: seconds, and blocks from peers."""
        machine = self._here.fresh(self._pulling)
        told = machine.json("reconcile", machine.root)
        return float(told["seconds"]), int(told["blocks_from_peers"])

    def heard(self) -> list[bytes]:
        """What the daemon and its neighbours sent just now. A neighbour has another id each time."""
        frames = []
        for _ in range(MEMBERS):
            with self._here.lan.capture() as capture:
                self.pull()
                frames += heard_from(capture.frames(), self._holding, self._pulling)
        assert frames
        return frames

    def share(self, frames: list[bytes], seconds: float) -> tuple[float, float]:
        """The daemon's share of a core while it is sent these, and how many thousand of them a second."""
        to = bytes.fromhex(self._holding.mac.replace(":", ""))
        with flooding(self._flooding, addressed(frames, to)) as flood:
            time.sleep(1.0)  # until all is warm
            before_s, began_s = cpu_s(self._daemon.process), time.monotonic()
            time.sleep(seconds)
            share = (cpu_s(self._daemon.process) - before_s) / (time.monotonic() - began_s)
        return share, flood.per_s / 1000

    def pull_beside(self, frames: list[bytes], ethertype: int = ETHERTYPE) -> tuple[float, int]:
        """`pull` while everybody on the network is sent these."""
        with flooding(self._flooding, addressed(frames, ethertype=ethertype)):
            return self.pull()


class _Measured:
    """What one kind of flood did, one value per repetition."""

    def __init__(self) -> None:
        self.cores: list[float] = []
        self.rates: list[float] = []
        self.pulls: list[float] = []
        self.others: list[float] = []

    def add(self, street: _Street, frames: list[bytes], seconds: float) -> None:
        """Once more."""
        core, rate = street.share(frames, seconds)
        self.cores.append(core)
        self.rates.append(rate)
        self.others.append(street.pull_beside(frames, NOBODYS)[0])
        self.pulls.append(street.pull_beside(frames)[0])

    def rows(self, kind: str, pull: str, quiet: list[float]) -> list[Row]:
        """Who sends has a core of the two: beside the same frames of another protocol a pull shows what is ours."""
        other, still = "the same frames of another protocol, s", "on a quiet network, s"
        core = Row(
            part="flood", work=f"100,000 {kind}, a second: the daemon's share of a core", unit="core", limit=0.25,
            values=self.cores, beside="thousand frames a second sent", beside_values=self.rates,
        )  # fmt: skip
        return [
            core,
            times("flood", f"{kind}: {pull}", 1.2, self.pulls, other, self.others),
            times("flood", f"{kind}: the same, beside no flood", None, self.pulls, still, quiet),
        ]


def run(sizes: Sizes) -> list[Row]:
    """For each kind the daemon's share of a core, and a pull beside it, compared with one on a quiet network."""
    measured = {kind: _Measured() for kind in KINDS}
    quiet: list[float] = []
    slow: list[tuple[float, float, int]] = []
    with office(3) as here:
        street = _Street(here, sizes)
        for _ in range(sizes.repetitions):
            heard = street.heard()
            quiet.append(street.pull()[0])
            for kind, made in KINDS.items():
                measured[kind].add(street, made(heard), sizes.flood_s)
            here.lan.nodes[0].shape(SLOW_MBIT_S)
            seconds, blocks = street.pull_beside(KINDS[DEAREST](heard))
            slow.append((seconds, street.pull_beside(KINDS[DEAREST](heard), NOBODYS)[0], blocks))
            here.lan.nodes[0].shape(None)
    pull = f"a pull of {sizes.folder_bytes // MIB} MiB meanwhile"
    rows = [row for kind, each in measured.items() for row in each.rows(kind, pull, quiet)]
    work = f"the same frames: {pull}, server of {SLOW_MBIT_S:g} Mbit/s"
    ours, others = [one for one, _, _ in slow], [other for _, other, _ in slow]
    shares = [100 * blocks * BLOCK / sizes.folder_bytes for _, _, blocks in slow]
    return [
        *rows,
        times("flood", work, 1.2, ours, "of another protocol, s", others),
        Row(part="flood", work="the same: blocks that came from the peer", unit="%", values=shares),
    ]
