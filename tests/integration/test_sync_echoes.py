"""What a device wrote itself is not told to it once more: traffic follows what others changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.syncing import Sync, content


@pytest.fixture
def pair(sync: Sync) -> tuple[Path, Path]:
    return sync.folder("first"), sync.folder("second")


def fill(root: Path, folder: str, count: int) -> None:
    (root / folder).mkdir()
    for number in range(count):
        (root / folder / f"file{number:05}").write_bytes(b"%d" % number)


def test_the_cycle_after_a_large_first_push_receives_no_echoes(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    few, many = 30, 1200
    fill(first, "few", few)
    sync.reconcile(first)
    after_few = sync.reconcile(first)["bytes_received"]
    fill(first, "many", many)
    assert sync.reconcile(first)["pushed"] == many + 1
    after_many = sync.reconcile(first)
    assert after_many["bytes_received"] <= 2 * after_few
    assert after_many["requests"] == 1
    sync.reconcile(second)
    assert content(first) == content(second)
    sync.at_rest(first, second, first)


def test_what_others_wrote_between_is_told_and_nothing_of_ours(sync: Sync, pair: tuple[Path, Path]) -> None:
    """Changes of others beside, over and below what we wrote, before our next look."""
    first, second = pair
    fill(first, "d", 400)
    sync.reconcile(first)
    sync.reconcile(second)
    fill(first, "e", 400)
    sync.reconcile(first)
    sync.reconcile(second)
    (second / "e" / "file00003").write_bytes(b"theirs")
    (second / "e" / "file00004").unlink()
    (second / "e" / "file00005").rename(second / "moved")
    (second / "new").write_bytes(b"new")
    (second / "d").rename(second / "f")
    sync.reconcile(second)
    told = sync.reconcile(first)
    assert told["bytes_received"] < 40_000
    assert content(first) == content(second)
    assert (first / "e" / "file00003").read_bytes() == b"theirs"
    assert not (first / "e" / "file00004").exists()
    sync.at_rest(first, second, first)
