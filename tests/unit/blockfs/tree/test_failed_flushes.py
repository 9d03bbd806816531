"""Rows of failed flushes, on disk and under fsck."""

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
    FORMAT,
    META_FORMAT,
    PLAIN_FORMAT,
    ROOT_INO,
    FailedFlush,
    Inode,
    Kind,
    Table,
    decode_failed_flush,
    encode_failed_flush,
    encode_format,
    failed_flush_key,
)
from blockfs.tree.store import Tree
from tests.kit.committed import check

BLOCK = 65536
ROW = FailedFlush(ino=2, code=errno.EIO, is_told=False, runs=((1, 2), (1 << 40, 1)))
GOLDEN = bytes.fromhex("0000000500" + "0000000000000001" + "0000000000000002" + "0000010000000000" + "0000000000000001")


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    """A tree with a file of 9,000 bytes, inode 2."""
    made = Tree.create(os.fsencode(tmp_path / "tree"))
    made.begin_mount()
    times = dict.fromkeys(("atime_ns", "mtime_ns", "ctime_ns", "btime_ns"), 0)
    ino = made.new_ino()
    made.put_inode(Inode(ino=ino, kind=Kind.FILE, mode=0o600, uid=0, gid=0, nlink=1, size_bytes=9000, **times))
    made.link(ROOT_INO, b"f", ino)
    made.commit()
    yield made
    made.close()


def problems(tree: Tree) -> list[Problem]:
    tree.commit()
    with tree.committed() as view:
        return [found.problem for found in check(view, BLOCK)]


def test_the_row_is_what_format_3_says() -> None:
    assert failed_flush_key(2) == b"failed" + bytes(7) + b"\x02"
    assert encode_failed_flush(ROW) == GOLDEN
    assert decode_failed_flush(failed_flush_key(2), GOLDEN) == ROW


@pytest.mark.parametrize("cut", [0, 4, 6, 36])
def test_a_row_that_is_cut_off_is_damage(cut: int) -> None:
    with pytest.raises(CorruptionError):
        decode_failed_flush(failed_flush_key(2), GOLDEN[:cut])


def test_a_lost_range_is_a_finding_with_its_path_up_to_the_end_of_the_file(tree: Tree) -> None:
    tree.put_failed_flush(ROW)
    assert problems(tree) == [Problem.FAILED_FLUSH]
    with tree.committed() as view:
        (lost,) = examine(view, World(block_size=BLOCK)).draft.losses
    assert (lost.ino, lost.start, lost.end) == (2, 4096, 9000)
    tree.drop_failed_flush(2)
    assert problems(tree) == []


def test_an_error_that_nobody_was_told_of_is_no_damage(tree: Tree) -> None:
    tree.put_failed_flush(FailedFlush(ino=2, code=errno.EIO, is_told=False, runs=()))
    assert problems(tree) == []


def test_a_row_of_nobody_goes_and_the_format_with_it(tree: Tree) -> None:
    tree.put_failed_flush(FailedFlush(ino=99, code=errno.EIO, is_told=True, runs=((0, 1),)))
    assert problems(tree) == [Problem.STRAY_ROW, Problem.META]


@pytest.mark.parametrize("number", [PLAIN_FORMAT, FORMAT])
def test_the_format_number_says_whether_there_are_rows(tree: Tree, number: int) -> None:
    """Format 2 with a row would be opened by a program that does not know it."""
    if number == PLAIN_FORMAT:
        tree.put_failed_flush(FailedFlush(ino=2, code=errno.EIO, is_told=False, runs=()))
    tree._store.put(Table.META, META_FORMAT, encode_format(number))
    assert problems(tree) == [Problem.META]


def test_a_row_that_makes_no_sense_is_removed(tree: Tree) -> None:
    tree._store.put(Table.META, failed_flush_key(2), b"\0")
    assert problems(tree) == [Problem.BAD_ROW]
