from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ID_SIZE
from syncer.core.model import Content
from syncer.local.blocklists import BlockIndex, BlockLists
from syncer.local.folder.filehash import hash_file
from syncer.ports.localvalues import content_of
from tests import effort
from tests.unit.syncer.local.folders import BLOCK, blocks_of, noise

pieces = st.lists(st.tuples(st.sampled_from([0, 1, 100, BLOCK, 3 * BLOCK + 1, 40 * BLOCK]), st.booleans()), max_size=6)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=effort.count("sparse hashes"),
    deadline=None,
)
@given(pieces, st.sampled_from([BLOCK, 4 * BLOCK, 2 << 20, 4 << 20]))
def test_a_sparse_file_hashes_like_its_bytes(tmp_path: Path, plan: list[tuple[int, bool]], block_size: int) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        for size, hole in plan:
            if hole:
                file.seek(size, os.SEEK_CUR)
            else:
                file.write(noise(size, size))
        file.truncate(file.tell())
    data = path.read_bytes()
    expected = b"".join(block_id(data[at : at + block_size]) for at in range(0, len(data), block_size))
    descriptor = os.open(path, os.O_RDONLY)
    blocks, read = hash_file(descriptor, len(data), block_size)
    os.close(descriptor)
    assert (blocks.ids, blocks.size_bytes) == (expected, len(data))
    assert read <= len(data)


def test_a_file_of_which_no_holes_are_told_is_read_in_one_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount refuses to search a file that somebody has open for writing, on some kernels."""
    path = tmp_path / "file"
    data = bytes(3 * BLOCK) + noise(1, BLOCK)
    path.write_bytes(data)
    with path.open("rb") as file:

        def refuse(_descriptor: int, _at: int, _whence: int) -> int:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        monkeypatch.setattr(os, "lseek", refuse)
        assert hash_file(file.fileno(), len(data), BLOCK) == (blocks_of(data), len(data))


def test_block_lists_are_kept_by_content_and_a_damaged_one_is_forgotten(tmp_path: Path) -> None:
    lists = BlockLists(str(tmp_path / "lists"), BLOCK)
    long, other = blocks_of(noise(1, 5 * BLOCK + 3)), blocks_of(noise(2, 2 * BLOCK))
    lists.save(content_of(long), long)
    lists.save(content_of(other), other)
    assert lists.load(content_of(long)) == long
    lists.keep_only([content_of(other)])
    assert lists.load(content_of(long)) is None
    (file,) = (tmp_path / "lists").iterdir()
    file.write_bytes(bytes(reversed(file.read_bytes())))
    assert lists.load(content_of(other)) is None
    file.write_bytes(b"short")
    assert lists.load(content_of(other)) is None


def test_the_list_of_a_single_block_needs_no_file(tmp_path: Path) -> None:
    lists = BlockLists(str(tmp_path / "lists"), BLOCK)
    for data in (b"", b"one", noise(1, BLOCK)):
        blocks = blocks_of(data)
        lists.save(content_of(blocks), blocks)
        assert lists.load(content_of(blocks)) == blocks
    assert list((tmp_path / "lists").iterdir()) == []


def test_the_index_finds_every_place_of_a_block_and_no_hole(tmp_path: Path) -> None:
    lists = BlockLists(str(tmp_path / "lists"), BLOCK)
    twice = blocks_of(noise(1, BLOCK) + bytes(BLOCK) + noise(1, BLOCK))
    single = blocks_of(noise(1, BLOCK))
    lists.save(content_of(twice), twice)
    unknown = Content(size_bytes=9 * BLOCK, object_hash=twice.object_hash)
    index = BlockIndex(lists, [content_of(twice), unknown, content_of(single)])
    assert sorted(index.find(twice[0]), key=lambda place: (place[0].size_bytes, place[1])) == [
        (content_of(single), 0),
        (content_of(twice), 0),
        (content_of(twice), 2),
    ]
    assert list(index.find(twice[1])) == []
    assert len(twice.ids) == 3 * ID_SIZE
