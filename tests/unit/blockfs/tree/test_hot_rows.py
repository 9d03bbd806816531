"""Rows of hot files, on disk and under fsck, and the format number that keeps older programs away."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockfs.errors import CorruptionError
from blockfs.tree.fsck.check import examine
from blockfs.tree.fsck.draft import World
from blockfs.tree.fsck.findings import Problem
from blockfs.tree.schema import (
    FAILED_FORMAT,
    FORMAT,
    META_FORMAT,
    PLAIN_FORMAT,
    ROOT_INO,
    FailedFlush,
    HotRow,
    HotState,
    Inode,
    Kind,
    Table,
    decode_format,
    decode_hot,
    encode_format,
    encode_hot,
    hot_key,
)
from blockfs.tree.store import Tree
from tests.kit.committed import check

BLOCK = 65536
BEHIND = HotRow(ino=2, number=7, state=HotState.BEHIND)
LEFT = HotRow(ino=2, number=5, state=HotState.LEFT, base=6)
FAILED = FailedFlush(ino=2, code=errno.EIO, is_told=True, runs=())


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    """A tree with a file, inode 2."""
    made = Tree.create(os.fsencode(tmp_path / "tree"))
    made.begin_mount()
    times = dict.fromkeys(("atime_ns", "mtime_ns", "ctime_ns", "btime_ns"), 0)
    ino = made.new_ino()
    made.put_inode(Inode(ino=ino, kind=Kind.FILE, mode=0o600, uid=0, gid=0, nlink=1, size_bytes=9000, **times))
    made.link(ROOT_INO, b"f", ino)
    made.commit()
    yield made
    made.close()


def number(tree: Tree) -> int:
    """The format that the disk has."""
    tree.commit()
    with tree.committed() as view:
        return decode_format(view.rows.get(Table.META, META_FORMAT))


def problems(tree: Tree, hot: set[tuple[int, int]] | None = None) -> list[Problem]:
    tree.commit()
    with tree.committed() as view:
        return [found.problem for found in examine(view, World(block_size=BLOCK, hot=hot)).draft.findings]


def test_the_row_is_what_format_4_says() -> None:
    assert FORMAT == 4
    assert hot_key(2, 7) == b"hot" + bytes(7) + b"\x02" + bytes(7) + b"\x07"
    assert encode_hot(LEFT) == b"\x02" + bytes(7) + b"\x06"
    assert decode_hot(hot_key(2, 5), encode_hot(LEFT)) == LEFT
    assert decode_hot(hot_key(2, 7), b"\x01" + bytes(8)) == BEHIND


@pytest.mark.parametrize("row", [b"", b"\x01", b"\x03" + bytes(8), bytes(10)])
def test_a_row_that_makes_no_sense_is_damage(row: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_hot(hot_key(2, 7), row)


def test_the_format_is_raised_by_the_first_row_and_lowered_by_the_last(tree: Tree) -> None:
    """Breaks if an older program opens a volume of which it would show old content."""
    assert number(tree) == PLAIN_FORMAT
    tree.put_hot(BEHIND)
    assert number(tree) == FORMAT
    tree.put_hot(LEFT)
    tree.put_failed_flush(FAILED)
    tree.drop_hot(2, BEHIND.number)
    assert number(tree) == FORMAT
    tree.drop_hot(2, LEFT.number)
    assert number(tree) == FAILED_FORMAT
    tree.put_hot(BEHIND)
    tree.drop_failed_flush(2)
    assert number(tree) == FORMAT
    tree.drop_hot(2, BEHIND.number)
    assert number(tree) == PLAIN_FORMAT


def test_rows_are_known_again_by_the_next_mount_and_go_with_their_inode(tree: Tree, tmp_path: Path) -> None:
    tree.put_hot(BEHIND)
    tree.put_hot(LEFT)
    tree.commit()
    tree.end_mount()
    again = Tree.open(os.fsencode(tmp_path / "tree"))
    again.begin_mount()
    assert sorted(row.number for row in again.hot(2)) == [5, 7]
    assert again.hot(3) == []
    assert len(again.all_hot()) == 2
    again.unlink(ROOT_INO, b"f")
    again.remove_inode(2)
    assert number(again) == PLAIN_FORMAT
    with again.committed() as view:
        assert list(view.hot_rows()) == []
    again.close()


def test_a_commit_that_fails_keeps_row_and_number_together(tree: Tree) -> None:
    tree.put_hot(BEHIND)
    change_set = tree.freeze()
    assert change_set is not None
    tree.drop_hot(2, BEHIND.number)
    tree.thaw(change_set)
    assert number(tree) == PLAIN_FORMAT
    with tree.committed() as view:
        assert list(view.hot_rows(2)) == []


def test_a_sound_row_is_no_finding_and_one_without_its_file_is(tree: Tree) -> None:
    tree.put_hot(BEHIND)
    tree.put_hot(LEFT)
    assert problems(tree) == []
    assert problems(tree, {(2, 7), (2, 5), (2, 6)}) == []
    assert problems(tree, {(2, 7)}) == [Problem.MISSING_STAGING]
    with tree.committed() as view:
        losses = examine(view, World(block_size=BLOCK, hot=set())).draft.losses
    assert [lost.ino for lost in losses] == [2]


def test_a_second_content_is_a_finding_and_so_is_one_of_no_file(tree: Tree) -> None:
    tree.put_hot(BEHIND)
    tree.put_hot(HotRow(ino=2, number=9, state=HotState.SEALED))
    assert problems(tree) == [Problem.STRAY_ROW]
    tree.put_hot(HotRow(ino=ROOT_INO, number=3, state=HotState.SEALED))
    assert problems(tree) == [Problem.STRAY_ROW] * 2


@pytest.mark.parametrize("wrong", [PLAIN_FORMAT, FAILED_FORMAT])
def test_the_format_number_says_whether_there_are_rows(tree: Tree, wrong: int) -> None:
    tree.put_hot(BEHIND)
    tree._store.put(Table.META, META_FORMAT, encode_format(wrong))
    assert problems(tree) == [Problem.META]


def test_the_format_is_recorded_again_when_it_is_missing(tree: Tree) -> None:
    tree.put_hot(BEHIND)
    tree._store.delete(Table.META, META_FORMAT)
    tree.commit()
    with tree.committed() as view:
        findings = check(view, BLOCK)
    assert [found.problem for found in findings] == [Problem.META]
    assert f"format {FORMAT}" in findings[0].remedy


def test_a_damaged_row_is_removed(tree: Tree) -> None:
    tree._store.put(Table.META, hot_key(2, 7), b"\x09")
    assert problems(tree) == [Problem.BAD_ROW]
