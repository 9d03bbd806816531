"""Files on their way: what is in its place is found, and what is not is not looked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import BlockId
from syncer.local.blocklists import BlockIndex, BlockLists
from syncer.local.coming import Coming
from syncer.ports.localvalues import content_of
from tests.unit.syncer.local.folders import BLOCK, blocks_of, noise


@dataclass(eq=False)
class File:
    places: dict[int, bytes] = field(default_factory=dict)

    def has(self, index: int) -> bool:
        return index in self.places

    def held(self, index: int) -> bytes | None:
        return self.places.get(index)


def indexed(folder: Path, *known: BlockList) -> BlockIndex:
    lists = BlockLists(str(folder / "lists"), BLOCK)
    for each in known:
        lists.save(content_of(each), each)
    return BlockIndex(lists, [content_of(each) for each in known])


def test_a_place_that_is_not_filled_is_none(tmp_path: Path) -> None:
    """Breaks when each block that a pull lacks is looked for in the very file that lacks it."""
    blocks = blocks_of(noise(1, 3 * BLOCK))
    coming, file, index = Coming(), File(), indexed(tmp_path)
    coming.begin(content_of(blocks), blocks, file)
    index.add(content_of(blocks), blocks)
    assert not any(coming.may_have(index, BlockId(block)) for block in blocks)
    file.places[1] = b"x"
    assert [coming.may_have(index, BlockId(block)) for block in blocks] == [False, True, False]
    assert list(coming.held(content_of(blocks), 1)) == [b"x"]
    assert not list(coming.held(content_of(blocks), 0))


def test_a_file_that_has_come_has_all_places(tmp_path: Path) -> None:
    blocks = blocks_of(noise(1, 3 * BLOCK))
    coming, file, index = Coming(), File(), indexed(tmp_path)
    coming.begin(content_of(blocks), blocks, file)
    index.add(content_of(blocks), blocks)
    coming.end(content_of(blocks), file, came=True)
    coming.end(content_of(blocks), file, came=False)
    assert not coming.lists()
    coming.begin(content_of(blocks), blocks, File())  # once more, elsewhere
    assert all(coming.may_have(index, BlockId(block)) for block in blocks)


def test_what_an_older_file_has_too_may_be_there(tmp_path: Path) -> None:
    blocks = blocks_of(noise(1, 3 * BLOCK))
    coming, index = Coming(), indexed(tmp_path, blocks)
    coming.begin(content_of(blocks), blocks, File())
    index.add(content_of(blocks), blocks)
    assert all(coming.may_have(index, BlockId(block)) for block in blocks)
    assert not coming.may_have(index, BlockId(blocks_of(b"another")[0]))


def test_of_two_files_of_one_content_each_has_its_own_places() -> None:
    blocks = blocks_of(noise(1, 3 * BLOCK))
    coming, one, other = Coming(), File({0: b"a"}), File({0: b"b", 2: b"c"})
    for file in (one, other):
        coming.begin(content_of(blocks), blocks, file)
    assert list(coming.held(content_of(blocks), 0)) == [b"a", b"b"]
    assert list(coming.held(content_of(blocks), 2)) == [b"c"]
    coming.end(content_of(blocks), one, came=False)
    assert list(coming.held(content_of(blocks), 0)) == [b"b"]
