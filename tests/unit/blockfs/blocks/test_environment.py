from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import lmdb
import pytest

from blockfs.blocks.environment import close_environment, lmdb_error, open_environment, structural_damage
from blockfs.errors import BlockfsError, CorruptionError, DatabaseStoppedError, NoSpaceError, NotFoundError, QuotaError

ADVICE = "call a friend"


def test_an_environment_is_opened_once_and_shared(tmp_path: Path) -> None:
    """LMDB breaks its locks if one process opens a file twice."""
    first = open_environment(str(tmp_path), map_size_bytes=1 << 20, databases=1, advice=ADVICE)
    second = open_environment(f"{tmp_path}/../{tmp_path.name}", map_size_bytes=1 << 20, databases=1, advice=ADVICE)
    assert first is second
    close_environment(first)
    with second.begin(write=True) as txn:
        txn.put(b"a", b"b")
    close_environment(second)
    with pytest.raises(lmdb.Error):
        second.begin()


def test_no_environment_trades_safety_for_speed(tmp_path: Path) -> None:
    environment = open_environment(str(tmp_path), map_size_bytes=1 << 20, databases=1, advice=ADVICE)
    flags = environment.flags()
    assert flags["sync"]
    assert flags["metasync"]
    assert not flags["map_async"]
    assert not flags["writemap"]
    close_environment(environment)


def test_a_missing_folder_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=ADVICE):
        open_environment(str(tmp_path / "none"), map_size_bytes=1 << 20, databases=1, advice=ADVICE)


def test_a_link_in_the_place_of_the_lock_file_is_not_followed(tmp_path: Path) -> None:
    """LMDB itself would make the file longer, and write its header over what is there."""
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "lock.mdb").symlink_to("../precious")
    with pytest.raises(OSError, match="symbolic links"):
        open_environment(str(tmp_path / "db"), map_size_bytes=1 << 20, databases=1, advice=ADVICE)
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_a_map_that_the_limits_of_the_process_forbid_is_no_damage(tmp_path: Path) -> None:
    """A map beyond any address space stands for a map beyond `ulimit -v`: mmap says ENOMEM to both."""
    with pytest.raises(BlockfsError, match="ulimit -v") as caught:
        open_environment(str(tmp_path), map_size_bytes=1 << 60, databases=1, advice=ADVICE)
    assert not isinstance(caught.value, CorruptionError)
    assert ADVICE not in str(caught.value)


def test_a_full_map_is_no_space(tmp_path: Path) -> None:
    environment = open_environment(str(tmp_path), map_size_bytes=1 << 16, databases=1, advice=ADVICE)
    try:
        with pytest.raises(lmdb.MapFullError) as caught:
            fill(environment)
        assert isinstance(lmdb_error(caught.value, "path", ADVICE), NoSpaceError)
    finally:
        close_environment(environment)


def over_quota() -> lmdb.Error:
    error = lmdb.Error("x")
    error.code = errno.EDQUOT  # LMDB's C code sets it; there is no class for this one
    return error


def fill(environment: lmdb.Environment) -> None:
    with environment.begin(write=True) as txn:
        for number in range(1000):
            txn.put(b"%d" % number, bytes(500))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (lmdb.DiskError("x"), NoSpaceError),
        (over_quota(), QuotaError),
        (lmdb.CorruptedError("x"), CorruptionError),
        (lmdb.PageNotFoundError("x"), CorruptionError),
        (lmdb.InvalidError("x"), CorruptionError),
        (lmdb.BadTxnError("x"), CorruptionError),
        (lmdb.PanicError("x"), DatabaseStoppedError),
        (lmdb.ReadersFullError("x"), BlockfsError),
    ],
)
def test_lmdb_errors_become_errors_of_ours(error: lmdb.Error, expected: type[BlockfsError]) -> None:
    assert type(lmdb_error(error, "/a/path", ADVICE)) is expected
    assert "/a/path" in str(lmdb_error(error, "/a/path", ADVICE))


def filled(path: Path) -> None:
    environment = open_environment(str(path), map_size_bytes=1 << 30, databases=1, advice=ADVICE)
    with environment.begin(write=True) as txn:
        for number in range(3000):
            txn.put(b"%06d" % number, bytes(100))
    close_environment(environment)


def test_a_file_whose_last_pages_were_never_written_is_sound(tmp_path: Path) -> None:
    """LMDB doesn't write pages that a transaction allocates and frees again: such a file is short, not damaged."""
    filled(tmp_path)
    environment = open_environment(str(tmp_path), map_size_bytes=1 << 30, databases=1, advice=ADVICE)
    with environment.begin(write=True) as txn:
        for number in range(2000, 3000):
            txn.delete(b"%06d" % number)
    close_environment(environment)
    assert structural_damage(str(tmp_path)) == []
    data = tmp_path / "data.mdb"
    while True:  # cut off free pages for as long as none that counts is hit
        size = data.stat().st_size
        content = data.read_bytes()
        os.truncate(data, size - 4096)
        if structural_damage(str(tmp_path)):
            data.write_bytes(content)
            break
    assert structural_damage(str(tmp_path)) == []
    close_environment(open_environment(str(tmp_path), map_size_bytes=1 << 30, databases=1, advice=ADVICE))
    os.truncate(data, data.stat().st_size - 4096)
    with pytest.raises(CorruptionError, match="cut off"):
        open_environment(str(tmp_path), map_size_bytes=1 << 30, databases=1, advice=ADVICE)


def test_a_changed_page_is_structural_damage(tmp_path: Path) -> None:
    filled(tmp_path)
    with open(tmp_path / "data.mdb", "r+b") as file:
        file.seek(7 * 4096)
        file.write(b"\xff" * 64)
    assert structural_damage(str(tmp_path))


def test_a_file_that_is_no_environment_is_structural_damage(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"hello")
    assert structural_damage(str(tmp_path))


@pytest.mark.parametrize(("free_pages", "expected"), [(0, NoSpaceError), (255, NoSpaceError), (256, BlockfsError)])
def test_a_short_write_on_a_full_host_is_no_space(
    monkeypatch: pytest.MonkeyPatch, free_pages: int, expected: type[BlockfsError]
) -> None:
    """LMDB says EIO if a part of what it writes fits. Then nothing threw off the ballast: no commit went through."""
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free_pages, f_frsize=4096))
    error = lmdb.Error("mdb_txn_commit: Input/output error")
    error.code = errno.EIO
    assert type(lmdb_error(error, "/v/tree", ADVICE)) is expected
