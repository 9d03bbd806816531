"""What goes over the wire: who listens learns nothing, and nothing is said when nothing is wanted."""

from __future__ import annotations

import time
from collections.abc import Iterator

from syncer.cli.registry.roots import Registry
from syncer.peer.wire.frames import MAGIC
from syncer.watch import control
from tests.kit.flood import ETHERTYPE
from tests.kit.netns import Capture, Frame
from tests.kit.peering import name
from tests.kit.program import SHARE_BLOCK, Machine, has_peer, is_there
from tests.system.lan.trial import MIB, Ground, has, pulled, put

WINDOW = 8
IPV6, TCP = 0x86DD, 6
BURST, PER_S = 64, 200
COPIES = 3
"""A question may go by each carrier."""


def _between(capture: Capture, ground: Ground, *machines: Machine) -> list[Frame]:
    """What these sent to each other, or to all."""
    server, ports = bytes.fromhex(ground.server.mac.replace(":", "")), {machine.node.port for machine in machines}
    return [told for told in capture.frames() if told.port in ports and told.data[:6] != server]


def _windows(data: bytes, step: int) -> Iterator[int]:
    """Eight bytes each, beginning at every `step`th byte."""
    return (int.from_bytes(data[at : at + WINDOW], "little") for at in range(0, len(data) - WINDOW + 1, step))


def _shows(wire: bytes, secrets: set[int]) -> bool:
    """Whether eight bytes of the wire, wherever they begin, are among these."""
    for offset in range(WINDOW):
        end = offset + (len(wire) - offset) // WINDOW * WINDOW
        if not secrets.isdisjoint(memoryview(wire)[offset:end].cast("Q")):
            return True
    return False


def who_listens_learns_nothing(ground: Ground) -> None:
    """A whole pull: no id, no name and no content on the wire, in eight bytes anywhere; and few broadcasts."""
    one, two = ground.machines(2)
    files = put(one, **{"a-name-that-nobody-else-has.txt": 2 * MIB})
    one("reconcile", one.root)
    began = time.monotonic()
    with ground.village.lan.capture() as capture:
        one.watch()
        one.until("peers", is_there)
        ground.server.shape(8)
        pulled(two, files)
        frames = _between(capture, ground, one, two)
        took_s = time.monotonic() - began
    (file, data), *_ = files.items()
    wire = b"".join(told.data + bytes(WINDOW) for told in frames)
    assert len(wire) > len(data) // 2, "the blocks did not come by this way"
    blocks = [data[at : at + SHARE_BLOCK] for at in range(0, len(data), SHARE_BLOCK)]
    ids = b"".join(name(block.rstrip(b"\0")) for block in blocks)
    assert _shows(wire + bytes(64) + ids, set(_windows(ids, 1))), "this search finds nothing"
    assert not _shows(wire, set(_windows(ids, 1)))
    assert not _shows(wire, set(_windows(data, WINDOW)))
    for word in (file, ground.name, str(one.root), "lan-key", "blocksync"):
        assert word.encode() not in wire, word
    to_all = [told for told in frames if told.is_broadcast and MAGIC in told.data]
    assert 0 < len(to_all) <= COPIES * (BURST + PER_S * took_s)
    # Two HELLOs, some questions, a BYE, by three carriers each; and what is asked again, the longer it takes.
    assert len(to_all) < 30 + 3 * took_s


def nobody_says_anything_when_nothing_is_wanted(ground: Ground) -> None:
    """Three minutes by the daemons' own clocks, which run fast, after they have met: not one frame."""
    one, two = machines = ground.machines(2)
    files = put(one, image=MIB)
    one("reconcile", one.root)
    for machine in machines:
        machine.watch(crooked=["fast:60"])
        machine.until("peers", is_there)
    two.until("status", lambda live: has(two, files) and live["phase"] == "idle")
    one.until("peers", has_peer)
    for machine in machines:
        machine.until("peers", lambda told: not any(peer["is_connected"] for peer in told["figures"]["peers"]))
    with ground.village.lan.capture() as capture:
        beats = control.follow(Registry(two.node.environment).socket)
        for _ in range(4):  # it tells how it stands each minute, and once at the beginning
            next(beats)
        frames = _between(capture, ground, one, two)
    talk = [told for told in frames if told.ethertype == ETHERTYPE or MAGIC in told.data]
    macs = {bytes.fromhex(machine.node.mac.replace(":", "")) for machine in machines}
    talk += [told for told in frames if {told.data[:6], told.data[6:12]} == macs and told.data[20] == TCP]
    assert talk == []
