"""The LMDB environment of the tree: opening, error translation, and the length of its file."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Final

import lmdb

from blockfs.errors import BlockfsError, CorruptionError, NoSpaceError, NotFoundError
from blockfs.tree.schema import Table

MAP_SIZE_BYTES: Final = 1 << 40  # 1 TiB of address space; costs nothing until used
_DATA_FILE: Final = b"data.mdb"
_GROWTH_BYTES: Final = 64 << 20  # how far the file is (sparsely) longer than LMDB's last page before each commit


class TreeIoError(BlockfsError):
    """The host failed to read or write the tree (EIO and the like). What was committed before is intact."""

    errno = errno.EIO


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn LMDB's and the host's errors into blockfs errors.

    Raises:
        NoSpaceError: The host filesystem, the quota or the map is full.
        CorruptionError: LMDB found a damaged page.
        TreeIoError: Any other failure of the host.
    """
    try:
        yield
    except lmdb.MapFullError as error:
        raise NoSpaceError(f"{doing}: the tree has reached its map size ({error})") from error
    except (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.VersionMismatchError) as error:
        raise CorruptionError(f"{doing}: the tree's database is damaged ({error}); run `blocksync fsck`") from error
    except (lmdb.Error, OSError) as error:
        raise _host_error(doing, error) from error


def _host_error(doing: str, error: lmdb.Error | OSError) -> BlockfsError:
    code = error.code if isinstance(error, lmdb.Error) else error.errno
    if code in (errno.ENOSPC, errno.EDQUOT):
        return NoSpaceError(f"{doing}: {os.strerror(code)}; free some space on the host and try again")
    return TreeIoError(f"{doing}: {error}")


def create_environment(path: bytes) -> None:
    """Make the empty directory for a tree, durably.

    Raises:
        FileExistsError: There is something at `path` already.
    """
    os.mkdir(path, 0o700)
    sync_directory(os.path.dirname(os.path.abspath(path)))


def sync_directory(path: bytes) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_environment(path: bytes, *, read_only: bool, map_size_bytes: int = MAP_SIZE_BYTES) -> lmdb.Environment:
    """Open the LMDB environment in the directory `path`.

    Every commit is synced: no NOSYNC, MAPASYNC or WRITEMAP, a power cut could corrupt the database.

    Raises:
        NotFoundError: No such directory.
        CorruptionError: The file is no LMDB database, or is shorter than its own page count.
    """
    if not os.path.isdir(path):
        raise NotFoundError(f"{os.fsdecode(path)}: no tree here; is this a blocksync volume?")
    with translated(f"opening {os.fsdecode(path)}"):
        environment = lmdb.open(
            os.fsdecode(path),
            map_size=map_size_bytes,
            max_dbs=len(Table),
            subdir=True,
            readonly=read_only,
            create=not read_only,
            mode=0o600,
            metasync=True,
            sync=True,
            map_async=False,
            writemap=False,
        )
    info = environment.info()
    pages = info["last_pgno"] + 1
    size_bytes = os.stat(os.path.join(path, _DATA_FILE)).st_size
    if size_bytes < pages * environment.stat()["psize"] and info["last_txnid"] > 0:
        # Reading a page past the end of a mapped file is a SIGBUS: refuse before LMDB does.
        environment.close()
        raise CorruptionError(f"{os.fsdecode(path)}: the tree's file is cut off at {size_bytes} bytes; restore it")
    return environment


def create_tables(environment: lmdb.Environment, transaction: lmdb.Transaction[bytes]) -> list[lmdb._Database]:
    """Make all sub-databases in one transaction; returns handles indexed by `Table`."""
    return [environment.open_db(table.name.lower().encode(), txn=transaction) for table in Table]


def open_tables(environment: lmdb.Environment) -> list[lmdb._Database]:
    """Handles of all sub-databases, indexed by `Table`.

    Raises:
        CorruptionError: One is missing.
    """
    with translated("opening the tree's sub-databases"):
        try:
            return [environment.open_db(table.name.lower().encode(), create=False) for table in Table]
        except lmdb.NotFoundError as error:
            raise CorruptionError(f"the tree lacks a sub-database ({error}); this is no blocksync tree") from error


def lengthen(environment: lmdb.Environment, path: bytes, growing_bytes: int) -> None:
    """Keep the file longer than any page the next commit can allocate, so that `open_environment` can trust its length.

    LMDB does not write pages that a transaction allocated and gave up again, so its file may end before its last page.
    The added length is sparse and occupies nothing.
    """
    used = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    data_path = os.path.join(path, _DATA_FILE)
    needed = used + 4 * growing_bytes + _GROWTH_BYTES // 4
    if os.stat(data_path).st_size < needed:
        os.truncate(data_path, needed + _GROWTH_BYTES)
