"""LMDB environments: one per path and process, fully synced, and damage found before it can kill the process."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import lmdb
from lmdb import _Database
from lmdb.verify import VerifyError, verify

from blockfs.errors import BlockfsError, CorruptionError, DatabaseStoppedError, NoSpaceError, NotFoundError, QuotaError
from blockfs.runtime.atomic import space_errors

MAX_READERS: Final = 1024  # reader slots of all processes together, 64 bytes each in lock.mdb
_LOCK_FILE_BYTES: Final = MAX_READERS * 64 + 4096  # the slots and LMDB's header before them
_SPARE_TRANSACTIONS: Final = 16  # cached read transactions, about one per thread that reads: saves 1 of 2 µs a lookup

_DAMAGE: Final = (
    lmdb.CorruptedError,
    lmdb.BadTxnError,  # a page that the transaction needed could not be had; failed writes end theirs before
    lmdb.MemoryError,  # a length that a damaged page made up
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.IncompatibleError,
)


_RUN_BYTES: Final = 1 << 20  # LMDB writes up to 256 KiB of pages in one call, or one value with all its pages


@dataclass(slots=True)
class _Shared:
    environment: lmdb.Environment
    users: int


_shared: dict[tuple[int, int], _Shared] = {}  # (device, inode) of the folder: LMDB may be opened once per process
_shared_lock: Final = threading.Lock()


def lmdb_error(error: lmdb.Error, path: str, advice: str) -> BlockfsError:
    """The error of ours that says what an LMDB error means.

    Args:
        error: What LMDB raised.
        path: The environment's folder.
        advice: What to do about damage, e.g. "run `blocksync fsck --repair` …".

    Returns:
        NoSpaceError for a full disk or map, QuotaError, CorruptionError for damage, DatabaseStoppedError for
        MDB_PANIC and a host that has become read-only, else a plain BlockfsError.
    """
    code = getattr(error, "code", 0)
    if code == errno.EDQUOT:
        return QuotaError(f"{path}: no quota for the database: {error}; free some space and repeat")
    is_short_write = code == errno.EIO and _is_full(path)
    if isinstance(error, lmdb.MapFullError | lmdb.DiskError) or code == errno.ENOSPC or is_short_write:
        return NoSpaceError(f"{path}: no space for the database: {error}; free some space and repeat")
    if isinstance(error, _DAMAGE):
        return CorruptionError(f"{path}/data.mdb is damaged: {error}; {advice}")
    if isinstance(error, lmdb.PanicError):
        return DatabaseStoppedError(
            f"{path}: the disk failed under an earlier commit: {error}; mount it anew: what was fsynced is there, "
            "later changes are lost"
        )
    if code == errno.EROFS:
        return DatabaseStoppedError(
            f"{path}: the host's filesystem has become read-only: have it repaired, and mount the volume anew; "
            "what was fsynced is there, later changes are lost"
        )
    return BlockfsError(f"{path}: {error}")


def _is_full(path: str) -> bool:
    """Whether a host has no room for a run of pages. If a part of one fits, LMDB says EIO: "short write, full?"."""
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _RUN_BYTES


@contextmanager
def lmdb_errors(path: str, advice: str) -> Iterator[None]:
    """Raise LMDB errors of the block inside as errors of ours; see `lmdb_error`."""
    try:
        yield
    except lmdb.Error as error:
        raise lmdb_error(error, path, advice) from error


def open_environment(path: str, *, map_size_bytes: int, databases: int, advice: str) -> lmdb.Environment:
    """Open an environment, or share it if this process has it open already. Give it back with `close_environment`.

    No NOSYNC, no MAPASYNC, no WRITEMAP, ever: a commit that returned is durable, and a power cut can't tear the file.
    Readahead is off: lookups are random.

    Args:
        path: Folder with data.mdb and lock.mdb; must exist. data.mdb is created if the folder is empty.
        map_size_bytes: Address space and upper limit of the file.
        databases: How many named databases there are at most.
        advice: Ends the message of a CorruptionError.

    Raises:
        CorruptionError: Not an LMDB file, or a part of it is cut off.
        NoSpaceError: Disk or quota full.
        NotFoundError: No such folder.
        BlockfsError: The process may not map that much.
    """
    with _shared_lock, lmdb_errors(path, advice):
        try:
            found = os.stat(path)
        except FileNotFoundError:
            raise NotFoundError(f"{path}: no such directory; {advice}") from None
        shared = _shared.get((found.st_dev, found.st_ino))
        if shared is None:
            _allocate_lock_file(path)
            try:
                environment = lmdb.open(
                    os.fsencode(path),  # as str it would have to be UTF-8
                    map_size=map_size_bytes,
                    max_dbs=databases,
                    max_readers=MAX_READERS,
                    max_spare_txns=_SPARE_TRANSACTIONS,
                    readahead=False,
                    mode=0o600,
                )
            except lmdb.MemoryError:  # mmap's ENOMEM: nothing of the file has been read yet
                raise BlockfsError(
                    f"{path}: no address space for a map of {map_size_bytes >> 30} GiB; raise the limit "
                    "(`ulimit -v`, LimitAS= of a unit)"
                ) from None
            try:
                _refuse_truncated(environment, path, advice)
                environment.reader_check()  # slots of processes that were killed
            except BaseException:
                environment.close()
                raise
            shared = _shared[found.st_dev, found.st_ino] = _Shared(environment=environment, users=0)
        shared.users += 1
        return shared.environment


def close_environment(environment: lmdb.Environment) -> None:
    """Give one use of an environment back; the last one closes it."""
    with _shared_lock:
        for key, shared in _shared.items():
            if shared.environment is environment:
                shared.users -= 1
                if not shared.users:
                    del _shared[key]
                    environment.close()
                return


def open_databases(environment: lmdb.Environment, names: Iterable[bytes]) -> list[_Database]:
    """Open named databases that exist.

    In a write transaction that changes nothing, because of two traps of py-lmdb 3.0 (both seen): `open_db` without a
    transaction begins a write transaction of its own with the GIL held, and waits for ever if another thread of this
    process is in one; and what is opened in a read transaction is gone when that is put aside as a spare one.

    Raises:
        lmdb.NotFoundError: One does not exist.
    """
    with environment.begin(write=True) as txn:
        return [environment.open_db(name, txn=txn, create=False) for name in names]


def structural_damage(path: str) -> list[str]:
    """Walk all of an environment's pages without LMDB (which trusts the file) and say what is wrong.

    Takes time in proportion to the file. Nobody may write meanwhile.
    """
    try:
        findings = verify(  # type: ignore[no-untyped-call]  # lmdb.verify has no annotations
            os.path.join(path, "data.mdb"), subdir=False
        )
        return [str(finding) for finding in findings]
    except VerifyError as error:
        return [str(error)]


def _allocate_lock_file(path: str) -> None:
    """Give the mapped lock file its blocks now: on a full disk, touching a page without one would end in SIGBUS.

    Only while this process has not opened the environment: closing the file drops LMDB's POSIX locks on it.

    Raises:
        NoSpaceError: The host is full.
    """
    with space_errors(path):
        fd = os.open(os.path.join(path, "lock.mdb"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, _LOCK_FILE_BYTES)
        finally:
            os.close(fd)


def _refuse_truncated(environment: lmdb.Environment, path: str, advice: str) -> None:
    """Refuse a file that is cut off: touching a mapped page beyond its end would kill the process with SIGBUS.

    LMDB doesn't check. A sound file may end a few pages early: pages that were allocated and freed by one transaction
    at the end are never written (seen after 6 of 4000 random commits). Then the slow check decides.
    """
    page_size = environment.stat()["psize"]
    data = os.path.join(path, "data.mdb")
    if os.stat(data).st_size >= (environment.info()["last_pgno"] + 1) * page_size:
        return
    with environment.begin(write=True):  # touches only the meta pages; nobody else commits during the check
        if os.stat(data).st_size < (environment.info()["last_pgno"] + 1) * page_size:
            damage = structural_damage(path)
            if damage:
                raise CorruptionError(f"{data} is cut off: {damage[0]}; {advice}")
