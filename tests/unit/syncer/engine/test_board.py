"""A pull's wants lie on one board: where blocks came from adds up, and what came is there for other devices at once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio

from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from syncer.blocks.recent import RecentBlocks
from syncer.engine.report import Report
from syncer.ports.blocks import Board
from tests.unit.syncer.engine.devices import devices
from tests.unit.syncer.local.folders import BLOCK, noise


def test_what_a_pull_got_is_told_and_readable_before_the_file_has_a_name(tmp_path: Path) -> None:
    first, second = devices(tmp_path, "first", "second")
    data, other = noise(1, 5 * BLOCK), noise(2, 3 * BLOCK)
    first.write("image", data)
    first.write("other", other)
    first.reconcile()
    recent = RecentBlocks()
    names = [BlockId(block_id(data[at : at + BLOCK])) for at in range(0, len(data), BLOCK)]
    found: list[list[bytes | None]] = []

    def step(name: str) -> None:
        if name == "staged" and recent.has(names[0][:8]) and not (second.path / "image").exists():
            found.append([recent.read(name) for name in names])

    second.reconcile(step=step, recent=recent)
    assert b"".join(piece or b"" for piece in found[0]) == data


def test_of_small_files_too_what_is_told_is_readable(tmp_path: Path) -> None:
    """Many are written at once, long after the first came; a device that lacks what it offers is left alone."""
    first, second = devices(tmp_path, "first", "second")
    contents = [noise(number, 100) for number in range(30)]
    for number, content in enumerate(contents):
        first.write(f"small{number}", content)
    first.reconcile()
    recent, told = RecentBlocks(), set[bytes]()

    def step(_: str) -> None:
        for content in contents:
            name = BlockId(block_id(content))
            if recent.has(name[:8]):
                assert recent.read(name) == content
                told.add(name)

    second.reconcile(step=step, recent=recent)
    assert len(told) == len(contents)


def test_the_sources_add_up_to_what_was_pulled(tmp_path: Path) -> None:
    first, second = devices(tmp_path, "first", "second")
    for number in range(20):
        first.write(f"small{number}", noise(number, 100))
    first.write("image", noise(77, 9 * BLOCK))
    first.reconcile()
    report = second.reconcile()
    counts = report.counts()
    assert report.sources["remote"].blocks == counts["blocks_received"] == 29
    assert (counts["blocks_from_roots"], counts["blocks_from_peers"], counts["bytes_from_peers"]) == (0, 0, 0)
    assert counts["blocks_from_own"] == 0
    assert report.sources["remote"].bytes == 20 * 100 + 9 * BLOCK


def test_blocks_that_the_root_has_itself_count_wherever_they_are(tmp_path: Path) -> None:
    """In a copy they are in the same place, and nobody is asked for them; where they moved the board has them found."""
    first, second = devices(tmp_path, "first", "second")
    data = noise(77, 9 * BLOCK)
    first.write("image", data)
    first.write("small", noise(1, 100))
    first.reconcile()
    second.reconcile()
    first.write("copy", data)
    first.write("small copy", noise(1, 100))
    first.write("moved", noise(2, BLOCK) + data)
    assert first.reconcile().counts()["blocks_from_own"] == 0
    report = second.reconcile()
    counts = report.counts()
    assert second.everything() == first.everything()
    assert (counts["blocks_received"], counts["blocks_from_own"]) == (1, 9 + 1 + 9)
    assert report.sources["own"].blocks < counts["blocks_from_own"]


def test_blocks_that_did_not_change_came_from_nowhere(tmp_path: Path) -> None:
    first, second = devices(tmp_path, "first", "second")
    data = noise(77, 9 * BLOCK)
    for known in (data, data[: 5 * BLOCK] + noise(2, BLOCK) + data[6 * BLOCK :]):
        first.write("image", known)
        first.reconcile()
        counts = second.reconcile().counts()
    assert (counts["blocks_received"], counts["blocks_from_own"]) == (1, 0)


class Half:
    """Peers that have the first half of a file, and give it before anybody else is asked."""

    name = "peers"
    near = False

    def __init__(self, data: bytes) -> None:
        self._held = {
            BlockId(block_id(data[at : at + BLOCK])): data[at : at + BLOCK] for at in range(0, len(data), BLOCK)
        }

    async def run(self, board: Board) -> None:
        while await board.more():
            board.heard(trio.current_time())
            board.offer([want for want in board.peek(1000) if want.id in self._held])
            while wants := board.take(BLOCK, among=list(self._held)):
                await board.give([(want, self._held[want.id]) for want in wants])


def test_blocks_of_peers_and_of_the_server_add_up(tmp_path: Path) -> None:
    first, second = devices(tmp_path, "first", "second")
    data = noise(77, 64 * BLOCK)
    first.write("image", data)
    first.reconcile()

    async def pull() -> Report:
        with trio.fail_after(60):
            return await second.cycle(sources=[Half(data[: 32 * BLOCK])])

    report = trio.run(pull)
    counts = report.counts()
    assert second.everything()["image"] == first.everything()["image"]
    assert counts["blocks_from_peers"] > 0
    assert counts["bytes_from_peers"] == counts["blocks_from_peers"] * BLOCK
    assert counts["blocks_from_roots"] == counts["blocks_from_own"] == 0
    sources = ("blocks_received", "blocks_from_peers", "blocks_from_roots", "blocks_from_own")
    assert sum(counts[key] for key in sources) == 64


class Hasty(Half):
    """Peers that claim nothing: what the server brings comes from them, too; and they say each thing twice."""

    async def run(self, board: Board) -> None:
        while await board.more():
            wants = [want for want in board.peek(1000) if want.id in self._held]
            board.lack(wants)  # so the server is asked for all of it at once
            for _ in range(self.after):
                await trio.lowlevel.checkpoint()
            for _ in range(2):
                await board.give([(want, self._held[want.id]) for want in wants])

    after = 0


@pytest.mark.parametrize("after", [0, 1, 3, 10, 30])
def test_a_block_that_came_twice_counts_for_who_was_right(tmp_path: Path, after: int) -> None:
    first, second = devices(tmp_path, "first", "second")
    data = noise(77, 64 * BLOCK)
    first.write("image", data)
    first.reconcile()
    peers = Hasty(data)
    peers.after = after

    async def pull() -> Report:
        with trio.fail_after(60):
            return await second.cycle(sources=[peers])

    report = trio.run(pull)
    counts = report.counts()
    assert second.everything()["image"] == first.everything()["image"]
    assert counts["blocks_received"] + counts["blocks_from_peers"] == 64
    assert counts["blocks_in_vain"] == 2 * 64 + report.traffic["blocks_received"] - 64


class _Nobody:
    """Devices that have nothing; it notes in which order files are wanted."""

    name, near = "peers", False

    def __init__(self) -> None:
        self.seen: list[BlockId] = []

    async def run(self, board: Board) -> None:
        while await board.more():
            wants = board.peek(1000)
            self.seen += [want.id for want in wants]
            board.lack(wants)


def test_small_files_are_pulled_in_another_order_than_other_devices_do_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Devices that begin together then get different ones from the server, and these from each other."""
    monkeypatch.setattr(random, "shuffle", list.reverse)
    first, second = devices(tmp_path, "first", "second")
    contents = [noise(number, 100) for number in range(100)]
    for number, content in enumerate(contents):
        first.write(f"small{number:03}", content)
    first.reconcile()
    nobody = _Nobody()

    async def pull() -> None:
        await second.cycle(sources=(nobody,))

    trio.run(pull)
    places = {BlockId(block_id(content)): number for number, content in enumerate(contents)}
    order = [places[block] for block in nobody.seen]
    assert sorted(order) == list(range(100))
    assert order[order.index(96) :][:5] == [96, 97, 98, 99, 64]  # the last run, and the one before it
