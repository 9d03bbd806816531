"""Which blocks a share has: ids of the blocks that the base's rows name, for answers to other devices.

An LMDB environment of its own beside the state (docs/design/share-index.md has its tables). It is made from the base
and can be thrown away: `follow` makes it what the rows say, by a look at the rows that changed, or at all of them where
it can't be known which did.

An entry alone is never believed. It counts if the index's stamp is that of the rows; else if the row of its file still
names the content that the entry was made for. So an entry that a crash, or an older program, left behind answers
nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Self

import lmdb
import msgspec

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.environment import close_environment, open_environment
from blockfs.blocks.ids import ID_SIZE, BlockId, ObjectHash
from blockfs.runtime.atomic import sync_directory
from syncer.core.model import Content, Nid
from syncer.errors import CorruptionError, FormatTooNewError, NotFoundError
from syncer.state.rows import RowReader
from syncer.state.sharewriter import (
    ADVICE,
    ENTRY,
    FILE,
    PREFIX,
    RUN,
    RUN_IDS,
    SPOT,
    STAMP,
    STAMP_KEY,
    IndexWriter,
    Tables,
    translated,
)

FORMAT: Final = 1
MAP_SIZE_BYTES: Final = 1 << 36  # 64 GiB of address space: some 900 M blocks

_SPOTS: Final = 16  # files that are tried for one block; in more it is in vain, or somebody made them for that
_FORMAT_KEY: Final = b"format"


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """Where a block of the share is.

    Attributes:
        nid: The file; its row names the content.
        content: What the file holds on both sides.
        index: Of the block in it, in the share's grid.
    """

    nid: Nid
    content: Content
    index: int


class IdIndex:
    """One root's index. Any number of readers in any process and thread; who holds the state's lock may write."""

    def __init__(self, folder: str, environment: lmdb.Environment) -> None:
        """Use `open`, or `make`."""
        self.folder = folder
        self._environment = environment
        self._inode = os.stat(os.path.join(folder, "data.mdb")).st_ino
        self._closed = False
        with self._errors(), environment.begin(write=True) as txn:
            try:
                self._meta = environment.open_db(b"meta", txn=txn, create=False)
                self._files = environment.open_db(b"files", txn=txn, create=False)
                self._lists = environment.open_db(b"lists", txn=txn, create=False)
                self._ids = environment.open_db(b"ids", txn=txn, create=False, dupsort=True, dupfixed=True)
            except lmdb.NotFoundError:
                raise NotFoundError(f"{folder} holds no index of blocks; {ADVICE}") from None
            raw = txn.get(_FORMAT_KEY, db=self._meta)
            found = bytes(raw) if raw is not None else b""
        if not found.isdigit():
            raise CorruptionError(f"{folder} has no format number; {ADVICE}")
        if int(found) > FORMAT:
            raise FormatTooNewError(folder, int(found), FORMAT)

    # --- opening and closing

    @classmethod
    def open(cls, folder: str) -> IdIndex:
        """Open an index.

        Raises:
            NotFoundError: There is none.
            CorruptionError: Damaged.
            FormatTooNewError: A newer program made it. It is left alone.
        """
        environment = None
        try:
            with translated(folder):
                environment = open_environment(folder, map_size_bytes=MAP_SIZE_BYTES, databases=4, advice=ADVICE)
            return cls(folder, environment)
        except BaseException:
            if environment is not None:
                close_environment(environment)
            raise

    @classmethod
    def make(cls, folder: str) -> IdIndex:
        """Open the index for writing; one that is missing or damaged is made anew. The state's lock must be held.

        Raises:
            FormatTooNewError: A newer program made it. It is left alone.
        """
        with contextlib.suppress(NotFoundError, CorruptionError):
            return cls.open(folder)
        cls.remove(folder)
        os.makedirs(folder, mode=0o700)
        with translated(folder):
            environment = open_environment(folder, map_size_bytes=MAP_SIZE_BYTES, databases=4, advice=ADVICE)
            try:
                with environment.begin(write=True) as txn:
                    environment.open_db(b"files", txn=txn)
                    environment.open_db(b"lists", txn=txn)
                    environment.open_db(b"ids", txn=txn, dupsort=True, dupfixed=True)
                    txn.put(_FORMAT_KEY, b"%d" % FORMAT, db=environment.open_db(b"meta", txn=txn))
                sync_directory(os.path.dirname(os.path.abspath(folder)))
            finally:
                close_environment(environment)
        return cls.open(folder)

    @staticmethod
    def remove(folder: str) -> None:
        """Throw an index away, whatever it is."""
        shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Idempotent."""
        if not self._closed:
            self._closed = True
            close_environment(self._environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def replaced(self) -> bool:
        """Whether the index in the folder is another one by now, or gone: then open that."""
        try:
            return os.stat(os.path.join(self.folder, "data.mdb")).st_ino != self._inode
        except OSError:
            return True

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return translated(self.folder)

    # --- asking

    def match(self, prefixes: Sequence[bytes], rows: RowReader) -> list[bool]:
        """For each prefix of 8 bytes: whether a row names a block whose id begins so.

        Args:
            prefixes: Of ids.
            rows: The base, as it is now.
        """
        with self._errors(), self._environment.begin() as txn:
            cursor = txn.cursor(db=self._ids)
            # In their order in the index: one page after the other, and neighbours on the same one.
            ordered = sorted(prefixes)
            found: set[bytes]
            if self._is_current(txn, rows):
                found = {prefix for prefix, _ in cursor.getmulti(ordered)}
            else:
                known: dict[Nid, Content | None] = {}
                found = {prefix for prefix in ordered if any(self._named(txn, cursor, prefix, rows, known))}
            return [prefix in found for prefix in prefixes]

    def spots(self, block: BlockId, rows: RowReader) -> list[Spot]:
        """Where a block is, one place per file, a few files; empty if no row names it."""
        with self._errors(), self._environment.begin() as txn:
            cursor = txn.cursor(db=self._ids)
            return [
                spot
                for spot in self._named(txn, cursor, block[:PREFIX], rows, {})
                if self._id_at(txn, spot.nid, spot.index) == block
            ]

    def _named(
        self,
        txn: lmdb.Transaction,
        cursor: lmdb.Cursor,
        prefix: bytes,
        rows: RowReader,
        known: dict[Nid, Content | None],
    ) -> Iterator[Spot]:
        """Entries of a prefix whose file's row names what they were made for, one per file.

        Args:
            txn: Of the index.
            cursor: Of `ids`.
            prefix: Of an id.
            rows: The base.
            known: What was found out of files before.
        """
        there = cursor.set_key(prefix)
        for _ in range(_SPOTS):
            if not there:
                return
            number, index = SPOT.unpack(cursor.value())
            nid = Nid(number)
            if nid not in known:
                known[nid] = self._content(txn, nid, rows)
            content = known[nid]
            if content is not None:
                yield Spot(nid=nid, content=content, index=index)
            there = cursor.set_range_dup(prefix, SPOT.pack(number + 1, 0))

    def _content(self, txn: lmdb.Transaction, nid: Nid, rows: RowReader) -> Content | None:
        """What a file's entries were made for, if its row names that now."""
        entry = self._entry(txn, nid)
        return entry[1] if entry is not None and entry[0] and rows.agreed(nid) == entry[1] else None

    def _is_current(self, txn: lmdb.Transaction, rows: RowReader) -> bool:
        stamp, raw = rows.stamp, txn.get(STAMP_KEY, db=self._meta)
        return stamp is not None and raw is not None and bytes(raw) == STAMP.pack(stamp)

    def is_current(self, rows: RowReader) -> bool:
        """Whether it is what the rows say."""
        with self._errors(), self._environment.begin() as txn:
            return self._is_current(txn, rows)

    def _entry(self, txn: lmdb.Transaction, nid: Nid) -> tuple[bool, Content] | None:
        """Whether a file's entries are complete, and what they are made for; None if it has none."""
        raw = txn.get(FILE.pack(nid), db=self._files)
        if raw is None:
            return None
        complete, size_bytes, object_hash = ENTRY.unpack(raw)
        return bool(complete), Content(size_bytes=size_bytes, object_hash=ObjectHash(object_hash))

    def _id_at(self, txn: lmdb.Transaction, nid: Nid, index: int) -> bytes:
        run, place = divmod(index, RUN_IDS)
        raw = txn.get(RUN.pack(nid, run), db=self._lists)
        return b"" if raw is None else bytes(raw[place * ID_SIZE : (place + 1) * ID_SIZE])

    def files_from(self, first: Nid, most: int) -> tuple[list[Nid], Nid | None]:
        """The next `most` files that have entries, by number; and the number to go on with."""
        found: list[Nid] = []
        with self._errors(), self._environment.begin() as txn:
            cursor = txn.cursor(db=self._files)
            if cursor.set_range(FILE.pack(first)):
                for key in cursor.iternext(values=False):
                    nid = Nid(FILE.unpack(key)[0])
                    if len(found) == most:
                        return found, nid
                    found.append(nid)
        return found, None

    def held(self, files: Iterable[tuple[Nid, Content | None]]) -> set[Nid]:
        """Those of some files whose entries are complete, and made for their contents."""
        with self._errors(), self._environment.begin() as txn:
            return {nid for nid, content in files if self._entry(txn, nid) == (True, content)}

    # --- writing

    def writing(self) -> IndexWriter:
        """Begin to change it. For one thread; commit, or abandon it."""
        tables = Tables(meta=self._meta, files=self._files, lists=self._lists, ids=self._ids)
        return IndexWriter(self._environment, tables, self.folder)


Rows = Callable[[], contextlib.AbstractContextManager[RowReader]]
"""The base rows as of one moment (`StateDB.rows`)."""

ListOf = Callable[[Nid, Content], BlockList | None]
"""The block list of a file's content in the share's grid, if it can be had without reading content."""

_AT_ONCE: Final = 4096  # rows that are looked at before anything is written: 0.5 MB


def follow(
    index: IdIndex, rows: Rows, list_of: ListOf, block_size: int, changed: Iterable[Nid] | None
) -> Iterator[int]:
    """Make the index what the base's rows say, step by step. Nobody else may write either meanwhile.

    It may be stopped after any step; then all is looked at next time.

    Args:
        index: Open for writing.
        rows: The base.
        list_of: Asked for files of more than one block.
        block_size: Of the share.
        changed: The rows that changed since the index was current; None: it was not, so all are looked at.

    Yields:
        After each step, how many files were written so far.
    """
    # Before any row is looked at: who changed it afterwards gives another stamp, and all is looked at again.
    with rows() as reader:
        stamp = reader.stamp
    writer, written = index.writing(), 0
    try:
        for wanted in _gone_and_all(index, rows) if changed is None else _lists(changed, rows):
            writer.commit()
            yield written
            held = index.held(wanted)
            for nid, content in wanted:
                if content is None:
                    writer.drop(nid)
                elif nid not in held:
                    writer.put(nid, content, _blocks_of(nid, content, list_of, block_size))
                    written += 1
                if writer.is_full:
                    writer.commit()
                    yield written
        writer.stamp(stamp)
        writer.commit()
    finally:
        writer.abandon()
    yield written


_Wanted = Sequence[tuple[Nid, Content | None]]
"""Files, and what the base's rows say that each holds; None: it is no file there."""


def _lists(nids: Iterable[Nid], rows: Rows) -> Iterator[_Wanted]:
    numbers = sorted(set(nids))
    return (_agreed(numbers[at : at + _AT_ONCE], rows) for at in range(0, len(numbers), _AT_ONCE))


def _agreed(nids: Iterable[Nid], rows: Rows) -> _Wanted:
    with rows() as reader:
        return [(nid, reader.agreed(nid)) for nid in nids]


def _gone_and_all(index: IdIndex, rows: Rows) -> Iterator[_Wanted]:
    """The files of the index, then those of the base: of all that has changed, one of the two knows."""
    at: Nid | None = Nid(0)
    while at is not None:
        nids, at = index.files_from(at, _AT_ONCE)
        yield _agreed(nids, rows)
    at = Nid(0)
    while at is not None:
        with rows() as reader:
            found, at = reader.agreed_from(at, _AT_ONCE)
        yield found


def _blocks_of(nid: Nid, content: Content, list_of: ListOf, block_size: int) -> BlockList | None:
    """A file of one block has that block's id as its object hash: nothing need be asked."""
    if content.size_bytes <= block_size:
        ids = bytes(content.object_hash) if content.size_bytes else b""
        return BlockList(block_size=block_size, size_bytes=content.size_bytes, ids=ids)
    return list_of(nid, content)
