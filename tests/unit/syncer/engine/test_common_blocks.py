"""Blocks that files of one cycle have in common travel once, each way: pin R11, seen through the engine."""

from __future__ import annotations

from pathlib import Path

from tests.unit.syncer.engine.devices import assert_at_rest, devices
from tests.unit.syncer.local.folders import BLOCK, noise


def test_blocks_that_several_new_files_share_travel_once(tmp_path: Path) -> None:
    """R11. Breaks when files are transferred side by side without looking at what they share."""
    first, second = devices(tmp_path, "a", "b")
    shared = noise(1, 40 * BLOCK)
    for number in range(12):
        first.write(f"image-{number}", shared + noise(number + 2, 3 * BLOCK))
    assert first.reconcile().traffic["blocks_sent"] == 40 + 12 * 3
    assert second.reconcile().traffic["blocks_received"] == 40 + 12 * 3
    assert second.everything() == first.everything()
    assert_at_rest(first, second)


def test_a_block_of_changed_and_new_files_travels_once(tmp_path: Path) -> None:
    """R11. Breaks when what replaces a file and what is new are not looked at together."""
    first, second = devices(tmp_path, "a", "b")
    for number in range(4):
        first.write(f"image-{number}", noise(number, 5 * BLOCK))
    for device in (first, second):
        device.reconcile()
    common = noise(99, 2 * BLOCK)
    for number in range(4):
        first.write(f"image-{number}", noise(number, 3 * BLOCK) + common)
        first.write(f"new-{number}", common + noise(10 + number, BLOCK))
    assert first.reconcile().traffic["blocks_sent"] == 2 + 4
    assert second.reconcile().traffic["blocks_received"] == 2 + 4
    assert second.everything() == first.everything()
    assert_at_rest(first, second)


def test_small_files_of_one_content_are_received_once(tmp_path: Path) -> None:
    """R11. Each is its own request's content when it is pushed: a small file is sent whole."""
    first, second = devices(tmp_path, "a", "b")
    for number in range(30):
        first.write(f"small-{number}", noise(number % 3, 100))
    first.reconcile()
    assert second.reconcile().traffic["blocks_received"] == 3
    assert second.everything() == first.everything()
    assert_at_rest(first, second)
