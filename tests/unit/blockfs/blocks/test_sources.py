"""Damaged and missing blocks come back from whoever has them, and only the right bytes are taken."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from blockfs.blocks.maintenance.scrub import scrub
from blockfs.blocks.sources import DirectorySource, Store, deliver_again, fetch_again

BLOCK_SIZE = 4096
DATA = [bytes([number]) * 3000 + bytes(100) for number in range(1, 5)]
IDS = [block_id(data) for data in DATA]


class Fake:
    """A source that says what it is told to say."""

    def __init__(self, content: dict[BlockId, bytes]) -> None:
        self.content = content
        self.asked: list[BlockId] = []

    def fetch(self, wanted: BlockId) -> bytes | None:
        self.asked.append(wanted)
        return self.content.get(wanted)


def filled(path: Path, count: int = 4) -> BlockDirectory:
    blocks = BlockDirectory.create(str(path), block_size=BLOCK_SIZE)
    with blocks.hold() as hold:
        for data in DATA[:count]:
            blocks.put(data, hold)
        blocks.sync()
    return blocks


def damage(blocks: BlockDirectory, number: int) -> None:
    with blocks.index.reading() as txn:
        row = blocks.index.row(txn, IDS[number])
    assert row is not None
    with Path(blocks.layout.segment(row.segment)).open("r+b") as file:
        file.seek(row.offset)
        file.write(b"damage!")


def test_a_quarantined_block_comes_back_from_the_first_source_with_the_right_bytes(tmp_path: Path) -> None:
    with filled(tmp_path / "blocks") as blocks:
        damage(blocks, 2)
        assert scrub(blocks).corrupt == (IDS[2],)
        liar, empty = Fake({IDS[2]: b"something else"}), Fake({})
        good, never = Fake({IDS[2]: DATA[2]}), Fake({IDS[2]: DATA[2]})
        assert fetch_again(blocks, [IDS[2]], [liar, empty]) == []
        assert blocks.missing(IDS) == [IDS[2]]
        assert fetch_again(blocks, [IDS[2]], [liar, empty, good, never]) == [IDS[2]]
        assert never.asked == []
        assert blocks.get(IDS[2], verify=True) == DATA[2].rstrip(b"\0")
        assert scrub(blocks).is_clean


def test_bytes_that_are_more_than_a_block_here_are_not_taken(tmp_path: Path) -> None:
    large = b"x" * (BLOCK_SIZE + 1)
    with filled(tmp_path / "blocks") as blocks:
        assert fetch_again(blocks, [block_id(large)], [Fake({block_id(large): large})]) == []


def test_another_block_directory_is_a_source_of_what_it_has_whole(tmp_path: Path) -> None:
    filled(tmp_path / "other").close()
    with BlockDirectory.open(str(tmp_path / "other")) as other:
        damage(other, 1)
        scrub(other)
    with filled(tmp_path / "blocks", count=1) as blocks, DirectorySource.opened(str(tmp_path / "other")) as source:
        assert fetch_again(blocks, IDS[1:], [source]) == [IDS[2], IDS[3]]
        assert blocks.missing(IDS) == [IDS[1]]


def test_what_somebody_delivers_is_stored_if_it_is_right_whatever_the_order(tmp_path: Path) -> None:
    with filled(tmp_path / "blocks", count=1) as blocks:

        def deliver(wanted: Sequence[BlockId], store: Store) -> None:
            assert list(wanted) == IDS[1:]
            store([(IDS[3], DATA[3]), (IDS[2], b"something else")])
            store([(IDS[2], bytes(BLOCK_SIZE + 1))])
            store([(IDS[1], DATA[1])])

        assert deliver_again(blocks, IDS[1:], deliver) == [IDS[3], IDS[1]]
        assert blocks.missing(IDS) == [IDS[2]]
        assert blocks.get(IDS[3], verify=True) == DATA[3].rstrip(b"\0")


def test_nobody_is_asked_for_nothing(tmp_path: Path) -> None:
    def deliver(_: Sequence[BlockId], __: Store) -> None:
        raise AssertionError

    with filled(tmp_path / "blocks") as blocks:
        assert deliver_again(blocks, [], deliver) == []
