"""`scrub --from NAME`: what a program around this one offers by name, beside places on the disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from blockfs.blocks.sources import Deliver, Store
from blockfs.cli.scrub import SOURCES, FindDeliver, command
from blockfs.errors import UsageError

BLOCK_SIZE = 4096
DATA = [bytes([number]) * 3000 for number in range(1, 5)]
IDS = [block_id(data) for data in DATA]


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A block directory of which the second and the third block are damaged."""
    path = tmp_path / "blocks"
    with BlockDirectory.create(str(path), block_size=BLOCK_SIZE) as blocks:
        with blocks.hold() as hold:
            for data in DATA:
                blocks.put(data, hold)
            blocks.sync()
        for name in IDS[1:3]:
            with blocks.index.reading() as txn:
                row = blocks.index.row(txn, name)
            assert row is not None
            with Path(blocks.layout.segment(row.segment)).open("r+b") as file:
                file.seek(row.offset)
                file.write(b"damage!")
    return path


def scrub(capsys: pytest.CaptureFixture[str], *arguments: str | Path, find: FindDeliver) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON line of a scrub by a program that offers `--from others`."""
    obj = {SOURCES: {b"others": find}}
    code = command.main([*map(str, arguments), "--json"], obj=obj, standalone_mode=False)
    return code or 0, json.loads(capsys.readouterr().out)


def offering(*have: bytes) -> FindDeliver:
    """Somebody who has these."""

    def find(_: str) -> Deliver:
        def deliver(wanted: Sequence[BlockId], store: Store) -> None:
            store([(block_id(data), data) for data in have if block_id(data) in wanted])

        return deliver

    return find


def hexed(*ids: BlockId) -> list[str]:
    return [each.hex() for each in ids]


def test_what_the_named_source_has_is_fetched_again(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = scrub(capsys, damaged, "--from", "others", find=offering(*DATA))
    assert (code, sorted(told["fetched"]), told["not_found"]) == (0, sorted(hexed(*IDS[1:3])), [])
    assert scrub(capsys, damaged, find=offering())[1]["clean"] is True


def test_what_nobody_has_is_named_and_the_exit_code_is_that_of_damage(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = scrub(capsys, damaged, "--from", "others", find=offering(DATA[1]))
    assert (code, told["fetched"], told["not_found"]) == (15, hexed(IDS[1]), hexed(IDS[2]))
    assert command.main([str(damaged), "--from", "others"], obj={SOURCES: {b"others": offering()}},
                        standalone_mode=False) == 15  # fmt: skip
    assert f"nobody has: {IDS[2].hex()}\n" in capsys.readouterr().out


def test_places_on_the_disk_are_asked_first(damaged: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = tmp_path / "other"
    with BlockDirectory.create(str(other), block_size=BLOCK_SIZE) as blocks, blocks.hold() as hold:
        blocks.put(DATA[1], hold)
        blocks.sync()
    asked: list[BlockId] = []

    def find(_: str) -> Deliver:
        return lambda wanted, _: asked.extend(wanted)

    code, told = scrub(capsys, damaged, "--from", "others", "--from", other, find=find)
    assert (code, told["fetched"], asked) == (15, hexed(IDS[1]), [IDS[2]])


def test_a_source_that_can_not_be_asked_says_so_before_anything_is_read(damaged: Path) -> None:
    """Reading takes hours."""

    def find(path: str) -> Deliver:
        raise UsageError(f"nobody knows {path}")

    with pytest.raises(UsageError, match=f"nobody knows {damaged}"):
        command.main([str(damaged), "--from", "others"], obj={SOURCES: {b"others": find}}, standalone_mode=False)
    with BlockDirectory.open(str(damaged)) as blocks:
        assert blocks.missing(IDS) == []


def test_a_folder_of_that_name_is_meant_by_its_path(
    damaged: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "others"
    with BlockDirectory.create(str(other), block_size=BLOCK_SIZE) as blocks, blocks.hold() as hold:
        blocks.put(DATA[2], hold)
        blocks.sync()
    monkeypatch.chdir(tmp_path)
    assert scrub(capsys, damaged, "--from", "./others", find=offering())[1]["fetched"] == hexed(IDS[2])
