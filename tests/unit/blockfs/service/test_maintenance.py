"""Checks of a volume that is in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import CorruptionError
from blockfs.service import maintenance
from blockfs.tree.schema import ROOT_INO
from tests.unit.blockfs.engine.volumes import USER, config, create, find, make

DATA = b"x" * 4096
LEVELS = 3000
"""More than Python's calls go deep, and their path is longer than the kernel takes one."""


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[Filesystem]:
    opened = Filesystem.open(make(tmp_path / "volume", block_size=4096), config())
    opened.files.write(create(opened, b"f"), 0, DATA)
    opened.files.flush()
    yield opened
    opened.close()


@pytest.mark.parametrize("times", [1, 1000])
def test_only_blocks_that_newer_states_still_refer_to_are_lost(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    left = iter(range(times))
    real = filesystem.blocks.missing

    def missing(ids: Iterable[BlockId]) -> list[BlockId]:
        """As if the file had been removed and its block collected while the first state is looked at."""
        asked = list(ids)
        return asked if asked and next(left, None) is not None else real(asked)

    monkeypatch.setattr(filesystem.blocks, "missing", missing)
    reply = maintenance.fsck(filesystem.blocks, filesystem.tree, filesystem.volume.staging_path)
    is_lost = times > 1
    assert [found.kind for found in reply.findings] == ["missing-block"] * is_lost
    assert len(reply.lost) == is_lost


def test_a_scrub_names_missing_blocks_only_if_newer_states_refer_to_them(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = maintenance.scrub(filesystem.blocks, filesystem.tree)
    assert sound.clean
    answers = iter([{block_id(DATA)}, set()])
    monkeypatch.setattr(maintenance, "_missing", lambda *_: next(answers))
    assert maintenance.scrub(filesystem.blocks, filesystem.tree).clean
    monkeypatch.setattr(maintenance, "_missing", lambda *_: {block_id(DATA)})
    assert maintenance.scrub(filesystem.blocks, filesystem.tree).missing == [block_id(DATA)]


def test_a_file_is_found_by_all_its_names_below_however_many_folders(filesystem: Filesystem) -> None:
    """Breaks as the end of the mount: what waits for the kernel's pages asks for paths under the engine's lock."""
    names, folder = filesystem.namespace, ROOT_INO
    for _ in range(LEVELS):
        folder = names.mkdir(folder, b"dd", mode=0o755, caller=USER).ino
    ino = find(filesystem, b"f")
    assert ino is not None
    names.link(ino, folder, b"g")
    assert sorted(maintenance.paths_of(filesystem.tree, ino)) == [b"dd/" * LEVELS + b"g", b"f"]


def test_a_file_in_a_snapshot_is_found_there(filesystem: Filesystem) -> None:
    filesystem.snapshots.create(ROOT_INO, b"s")
    ino = filesystem.namespace.resolve(b".snapshots/s/f").ino
    assert list(maintenance.paths_of(filesystem.tree, ino)) == [b".snapshots/s/f"]


def test_names_in_a_folder_that_is_below_itself_are_damage(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks as a request that never ends, and holds the engine's lock."""
    places = {5: [(6, b"f")], 6: [(7, b"a")], 7: [(6, b"b")]}
    monkeypatch.setattr(filesystem.tree, "places", lambda ino: iter(places[ino]))
    with pytest.raises(CorruptionError, match="below itself"):
        list(maintenance.paths_of(filesystem.tree, 5))
