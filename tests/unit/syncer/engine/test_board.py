"""A pull's wants lie on one board: where blocks came from adds up, and what came is there for other devices at once."""

from __future__ import annotations

from pathlib import Path

from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from syncer.blocks.recent import Recent
from tests.unit.syncer.engine.devices import devices
from tests.unit.syncer.local.folders import BLOCK, noise


def test_what_a_pull_got_is_told_and_readable_before_the_file_has_a_name(tmp_path: Path) -> None:
    first, second = devices(tmp_path, "first", "second")
    data, other = noise(1, 5 * BLOCK), noise(2, 3 * BLOCK)
    first.write("image", data)
    first.write("other", other)
    first.reconcile()
    recent = Recent()
    names = [BlockId(block_id(data[at : at + BLOCK])) for at in range(0, len(data), BLOCK)]
    found: list[list[bytes | None]] = []

    def step(name: str) -> None:
        if name == "staged" and recent.has(names[0][:8]) and not (second.path / "image").exists():
            found.append([recent.read(name) for name in names])

    second.reconcile(step=step, recent=recent)
    assert b"".join(piece or b"" for piece in found[0]) == data
    assert recent.read(names[0]) is None
    assert not recent.has(names[0][:8])


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
    assert report.sources["remote"].bytes == 20 * 100 + 9 * BLOCK
