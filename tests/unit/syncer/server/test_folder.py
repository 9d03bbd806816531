"""The server's folder: locks, block size, and damage that must not be papered over."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import lmdb
import pytest

from blockfs.errors import BlockfsError
from blockfs.errors import UsageError as BlockfsUsageError
from syncer.errors import CorruptionError, FormatTooNewError, LockedError, SyncerError, UsageError
from syncer.server.catalogue.schema import Format
from syncer.server.folder import ServerFolder
from tests.unit.syncer.server.stores import BLOCK, Clock, at, open_store, put, read


def test_a_second_server_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    folder = ServerFolder.open(str(tmp_path / "s"))
    with pytest.raises(LockedError) as told:
        ServerFolder.open(str(tmp_path / "s"))
    assert told.value.holder_pid == os.getpid()
    assert told.value.exit_code == 11
    folder.close()
    ServerFolder.open(str(tmp_path / "s")).close()


def test_another_block_size_is_refused_later(tmp_path: Path) -> None:
    ServerFolder.open(str(tmp_path / "s"), block_size=8192).close()
    ServerFolder.open(str(tmp_path / "s")).close()
    ServerFolder.open(str(tmp_path / "s"), block_size=8192).close()
    with pytest.raises(UsageError):
        ServerFolder.open(str(tmp_path / "s"), block_size=4096)


def test_a_block_size_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BlockfsUsageError):
        ServerFolder.open(str(tmp_path / "s"), block_size=5000)


@pytest.mark.parametrize("part", ["blocks", "catalogue"])
def test_a_folder_that_lost_a_part_is_not_begun_anew(tmp_path: Path, part: str) -> None:
    """Breaks when a server starts with an empty catalogue over somebody's blocks, and then collects them."""
    with open_store(tmp_path / "s", Clock()) as store:
        store.create_container("alice", "c")
        put(store, at("f"), b"x")
    shutil.rmtree(tmp_path / "s" / part)
    with pytest.raises(CorruptionError):
        open_store(tmp_path / "s", Clock())


def test_a_catalogue_that_was_emptied_is_not_begun_anew(tmp_path: Path) -> None:
    """Breaks when LMDB is asked to open a file without a byte: it makes a new database of it."""
    with open_store(tmp_path / "s", Clock()) as store:
        store.create_container("alice", "c")
        put(store, at("f"), b"x")
    os.truncate(tmp_path / "s" / "catalogue" / "data.mdb", 0)
    with pytest.raises(CorruptionError):
        open_store(tmp_path / "s", Clock())


@pytest.mark.parametrize("damage", ["garbage", "cut"])
def test_a_damaged_catalogue_is_told_and_left_alone(tmp_path: Path, damage: str) -> None:
    with open_store(tmp_path / "s", Clock()) as store:
        store.create_container("alice", "c")
        for number in range(30):
            put(store, at(str(number)), b"x" * number)
    path = tmp_path / "s" / "catalogue" / "data.mdb"
    data = path.read_bytes()
    path.write_bytes(os.urandom(len(data)) if damage == "garbage" else data[: len(data) // 2])
    left = path.read_bytes()
    with pytest.raises((BlockfsError, SyncerError)) as told:
        open_store(tmp_path / "s", Clock())
    assert told.value.exit_code == 15
    assert path.read_bytes() == left


def test_a_newer_format_is_not_touched(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", Clock()) as store:
        store._commits.run(lambda change: change.put("meta", b"format", b"\0\0\0\xff" + bytes(8)))
    with pytest.raises(FormatTooNewError):
        open_store(tmp_path / "s", Clock())


def test_a_folder_of_format_1_is_taken_over(tmp_path: Path) -> None:
    """Format 1 had three tables less. Breaks when a server refuses its own folder after an upgrade."""
    with open_store(tmp_path / "s", Clock()) as store:
        store.create_container("alice", "c")
        put(store, at("f"), b"x")
        store._commits.run(
            lambda change: change.put("meta", b"format", b"\0\0\0\1" + store.block_size.to_bytes(8, "big"))
        )
    environment = lmdb.open(str(tmp_path / "s" / "catalogue"), max_dbs=20)
    for table in (b"settings", b"grants", b"shared"):
        with environment.begin(write=True) as txn:
            txn.drop(environment.open_db(table, txn=txn))
    environment.close()
    for _ in range(2):
        with open_store(tmp_path / "s", Clock()) as store:
            assert read(store, at("f")) == b"x"
            with store._catalogue.reading() as view:
                assert view.get("meta", b"format") == Format(block_size=store.block_size).encode()
                assert view.count("settings", "grants", "shared") == 0


def test_a_start_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "catalogue").mkdir()
    with open_store(tmp_path / "s", Clock()) as store:
        assert store.block_size == BLOCK
