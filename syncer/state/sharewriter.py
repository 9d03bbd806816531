"""Writing the index of a share's blocks: its records, and changes in transactions of bounded size."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from typing import Final

import lmdb
import msgspec
from lmdb import _Database

from blockfs import errors as blockfs_errors
from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.environment import lmdb_errors
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK
from syncer.core.model import Content, Nid
from syncer.errors import CorruptionError, NoSpaceError, NotFoundError

PREFIX: Final = 8  # bytes of an id that are looked up: what a question on the wire has
RUN_IDS: Final = 127  # ids in a record of `lists`: with LMDB's header they fill one page of 4 KiB
FILE: Final = struct.Struct(">Q")  # key of `files`: nid
RUN: Final = struct.Struct(">QI")  # key of `lists`: nid, number of the run
SPOT: Final = struct.Struct(">QI")  # value of `ids`: nid, index of the block
ENTRY: Final = struct.Struct(f">BQ{ID_SIZE}s")  # value of `files`: 1 if complete, size in bytes, object hash
STAMP: Final = struct.Struct(">Q")  # value of `meta`, `stamp`: see `schema.after_write`
STAMP_KEY: Final = b"stamp"
ADVICE: Final = "the next cycle makes it anew"

_HOLES: Final = ZERO_BLOCK * RUN_IDS
_BATCH: Final = 1 << 17  # entries in one transaction: 25 MB in memory while it is made


class Tables(msgspec.Struct, frozen=True, kw_only=True):
    """The tables that a writer changes."""

    meta: _Database
    files: _Database
    lists: _Database
    ids: _Database


class IndexWriter:
    """Changes the index, in transactions of bounded size. What a crash leaves of a file is marked as incomplete."""

    def __init__(self, environment: lmdb.Environment, tables: Tables, folder: str) -> None:
        self._environment = environment
        self._tables = tables
        self._folder = folder
        self._txn: lmdb.Transaction | None = None
        self._added: list[tuple[bytes, bytes]] = []
        self._removed: list[tuple[bytes, bytes]] = []

    @property
    def is_full(self) -> bool:
        """Time to commit."""
        return len(self._added) + len(self._removed) >= _BATCH

    def put(self, nid: Nid, content: Content, blocks: BlockList | None) -> None:
        """Make a file's entries those of a content. Only runs of ids that differ from what was there are written.

        Args:
            nid: The file.
            content: What it holds.
            blocks: Its block list; None: not known, so the file has no entries.
        """
        ids = b"" if blocks is None else blocks.ids
        step = RUN_IDS * ID_SIZE
        with translated(self._folder):
            self._mark(nid, content, complete=False)
            runs = -(-len(ids) // step)
            for run in range(runs):
                self._set_run(nid, run, ids[run * step : (run + 1) * step])
                if self.is_full:
                    self.commit()
            self._drop_runs(nid, runs)
            self._mark(nid, content, complete=blocks is not None)

    def drop(self, nid: Nid) -> None:
        """Take all entries of a file away."""
        with translated(self._folder):
            self._drop_runs(nid, 0)
            self._begun().delete(FILE.pack(nid), db=self._tables.files)

    def stamp(self, stamp: int | None) -> None:
        """Say which rows the index is made of when this is committed; None: it can't be said."""
        with translated(self._folder):
            txn = self._begun()
            if stamp is not None:
                txn.put(STAMP_KEY, STAMP.pack(stamp), db=self._tables.meta)

    def commit(self) -> None:
        """Make what was done so far durable."""
        txn, self._txn = self._txn, None
        if txn is None:
            return
        added, self._added = self._added, []
        removed, self._removed = self._removed, []
        try:
            with translated(self._folder):
                # In order of keys: neighbours are on one page. Removed first: an id may come back to its place.
                for key, value in sorted(removed):
                    txn.delete(key, value, db=self._tables.ids)
                added.sort()
                txn.cursor(db=self._tables.ids).putmulti(added)
                txn.commit()
        except BaseException:
            txn.abort()
            raise

    def abandon(self) -> None:
        """Forget what was not committed. Harmless after `commit`."""
        txn, self._txn = self._txn, None
        if txn is not None:
            txn.abort()

    def _begun(self) -> lmdb.Transaction:
        if self._txn is None:
            self._txn = self._environment.begin(write=True)
            # From here on it is what no stamp names, until `stamp`: entries are compared with their rows.
            self._txn.delete(STAMP_KEY, db=self._tables.meta)
        return self._txn

    def _mark(self, nid: Nid, content: Content, *, complete: bool) -> None:
        entry = ENTRY.pack(complete, content.size_bytes, content.object_hash)
        self._begun().put(FILE.pack(nid), entry, db=self._tables.files)

    def _set_run(self, nid: Nid, run: int, new: bytes) -> None:
        txn, key = self._begun(), RUN.pack(nid, run)
        raw = txn.get(key, db=self._tables.lists)
        old = b"" if raw is None else bytes(raw)
        is_hole = new == _HOLES[: len(new)]
        if old == (b"" if is_hole else new):
            return
        if is_hole:
            txn.delete(key, db=self._tables.lists)
        else:
            txn.put(key, new, db=self._tables.lists)
        first = run * RUN_IDS
        for at in range(0, max(len(old), len(new)), ID_SIZE):
            before, after = old[at : at + ID_SIZE], new[at : at + ID_SIZE]
            if before != after:
                spot = SPOT.pack(nid, first + at // ID_SIZE)
                if before and before != ZERO_BLOCK:
                    self._removed.append((before[:PREFIX], spot))
                if after and after != ZERO_BLOCK:
                    self._added.append((after[:PREFIX], spot))

    def _drop_runs(self, nid: Nid, first: int) -> None:
        """Take away what a longer content had behind."""
        while True:
            cursor = self._begun().cursor(db=self._tables.lists)
            if not cursor.set_range(RUN.pack(nid, first)):
                return
            number, run = RUN.unpack(cursor.key())
            if number != nid:
                return
            old = bytes(cursor.value())
            cursor.delete()
            for at in range(0, len(old), ID_SIZE):
                if old[at : at + ID_SIZE] != ZERO_BLOCK:
                    spot = SPOT.pack(nid, run * RUN_IDS + at // ID_SIZE)
                    self._removed.append((old[at : at + PREFIX], spot))
            if self.is_full:
                self.commit()


@contextlib.contextmanager
def translated(folder: str) -> Iterator[None]:
    """Errors of LMDB and of the database layer as the syncer's own."""
    try:
        with lmdb_errors(folder, ADVICE):
            yield
    except struct.error as error:
        raise CorruptionError(f"{folder}: a record is damaged: {error}; {ADVICE}") from error
    except blockfs_errors.NotFoundError as error:
        raise NotFoundError(str(error)) from error
    except blockfs_errors.NoSpaceError as error:
        raise NoSpaceError(str(error)) from error
    except blockfs_errors.CorruptionError as error:
        raise CorruptionError(str(error)) from error
