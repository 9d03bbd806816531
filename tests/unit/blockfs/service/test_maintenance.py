"""Checks of a volume that is in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from blockfs.engine.filesystem import Filesystem
from blockfs.service import maintenance
from tests.unit.blockfs.engine.volumes import config, create, make

DATA = b"x" * 4096


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
