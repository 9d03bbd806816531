"""StateDB: what is remembered about one linked root, in LMDB. One writing process at a time.

Rules (docs/design/statedb.md says where each is kept):
A. A base row is written only after both sides were observed equal for that node. (`core.planner.outcome` decides.)
B. No intermediate state can be misread, so no intentions are kept.
C. Data fsync → rename → directory fsync → commit here, in groups.
D. The evidence left by our own write goes into the same transaction as the row, so nothing echoes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Self, TypeVar

import lmdb

from blockfs import errors as blockfs_errors
from blockfs.blocks.environment import close_environment, lmdb_errors, open_environment
from blockfs.runtime.atomic import sync_directory
from syncer.core.base import BaseIndex
from syncer.core.conflict import Written
from syncer.core.model import BaseRow, Content, LocalTag, Nid
from syncer.core.planner.outcome import BaseChange, Booking
from syncer.core.planner.overwrites import Overwrite
from syncer.core.subtrees import Retagged, version_of
from syncer.errors import CorruptionError, FormatTooNewError, LockedError, NoSpaceError, NotAllowedError, NotFoundError
from syncer.protocol.jsontext import MALFORMED
from syncer.state.rows import RowReader
from syncer.state.schema import (
    FORMAT,
    INODE_KEY,
    NID_KEY,
    STAMP_KEY,
    KnownContent,
    Problem,
    after_write,
    decode_bookings,
    decode_known,
    decode_overwrite,
    decode_problem,
    decode_row,
    decode_written,
    encode_bookings,
    encode_known,
    encode_overwrite,
    encode_problem,
    encode_row,
    encode_written,
    inode_key,
    slot_key,
    uuid_key,
    with_remote_version,
)

MAP_SIZE_BYTES: Final = 1 << 36  # 64 GiB of address space: some 100 M base rows with their indexes, 510 bytes each
NIDS_AT_ONCE: Final = 4096  # one commit per so many new nodes; what is left over is never used
_RETAGGED_AT_ONCE: Final = 16384  # rows in memory: 4 MB

_PLAIN: Final = ("base", "contents", "problems", "meta")
_LATER: Final = ("overwrites", "writers", "orders")  # older states lack them until they are opened for writing
_INDEXES: Final = ("by-path", "by-inode", "by-uuid")
_FORMAT_KEY: Final = b"format"
_NEXT_NID_KEY: Final = b"next-nid"
T = TypeVar("T")

_ADVICE: Final = (
    "run `blocksync link ROOT URL --relink`: it starts a new state, merges both sides anew and deletes nothing"
)


Patience = Callable[[int | None], bool]
"""Is told the pid of who holds a lock, as far as it is known; answers whether to wait for it."""


class StateDB:
    """The state of one root, in a folder of its own. Methods may be called from any thread; each is one transaction."""

    def __init__(self, path: str, environment: lmdb.Environment, lock: int | None, *, new: bool) -> None:
        """Use `create` or `open`."""
        self.path = path
        self._environment = environment
        self._lock = lock
        self._closed = False
        self._writing = threading.Lock()
        # In a writing transaction, which changes nothing where all are there; see `environment.open_databases`.
        with self._errors(), environment.begin(write=True) as txn:
            try:
                self._tables = {
                    name: environment.open_db(name.encode(), txn=txn, create=lock is not None, dupsort=name in _INDEXES)
                    for name in _PLAIN + _INDEXES
                }
            except lmdb.NotFoundError:
                raise NotFoundError(f"{path} holds no state: link the root first") from None
            made = [self._open_later(txn, name) for name in _LATER]
            if any(made) and txn.get(STAMP_KEY, db=self._tables["meta"]) is not None:
                self._stamp(txn, rows=False)  # once: a transaction that finds its own stamp takes it for another's
        if new:
            self._begin()
        else:
            self._check_format()

    def _open_later(self, txn: lmdb.Transaction, name: str) -> bool:
        """Open a table that states of older versions lack; who writes makes it, and no row is another for that.

        Returns:
            True if it was made.
        """
        try:
            self._tables[name] = self._environment.open_db(name.encode(), txn=txn, create=False)
        except lmdb.NotFoundError:
            if self._lock is not None:
                self._tables[name] = self._environment.open_db(name.encode(), txn=txn)
        else:
            return False
        return self._lock is not None

    # --- opening and closing

    @classmethod
    def create(cls, path: str, *, map_size_bytes: int = MAP_SIZE_BYTES) -> StateDB:
        """Start a new state in the folder `path` (made if need be, 0700), and open it for writing.

        Raises:
            LockedError: Another process works on it.
            FileExistsError: There is a state already: use `open`, or `clear` it.
            NoSpaceError: Disk full.
        """
        os.makedirs(path, mode=0o700, exist_ok=True)
        sync_directory(os.path.dirname(os.path.abspath(path)))
        lock = _lock(path)
        os.makedirs(os.path.join(path, "db"), mode=0o700, exist_ok=True)
        return cls._opened(path, lock, map_size_bytes, new=True)

    @classmethod
    def open(
        cls,
        path: str,
        *,
        read_only: bool = False,
        map_size_bytes: int = MAP_SIZE_BYTES,
        patience: Patience | None = None,
    ) -> StateDB:
        """Open an existing state.

        Args:
            path: Its folder.
            read_only: For `status`: takes no lock, sees the last commit.
            map_size_bytes: Upper limit of the database.
            patience: Whether to wait for who works on it.

        Raises:
            NotFoundError: No state there.
            LockedError: Another process works on it (never with read_only).
            NotAllowedError: There is, or may be one, and we may not read it.
            CorruptionError: Damaged; says what to do.
            FormatTooNewError: Written by a newer blocksync.
        """
        data = os.path.join(path, "db", "data.mdb")
        try:
            # Not exists(): that calls a state missing that another user's permissions hide.
            os.close(os.open(data, os.O_RDWR | os.O_CLOEXEC))
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(f"{path} holds no state: link the root first") from None
        except PermissionError as error:
            raise NotAllowedError(data, error.strerror or "not allowed") from error
        return cls._opened(path, None if read_only else _lock(path, patience), map_size_bytes, new=False)

    @classmethod
    def set_aside(cls, path: str) -> str | None:
        """Get a damaged state out of the way (for `--relink`), without looking into it; it is kept.

        Returns:
            Where it is now; None if there was none.

        Raises:
            LockedError: Another process works on it.
        """
        lock = _lock(path)
        try:
            number = 1
            while os.path.exists(aside := os.path.join(path, f"db.damaged-{number}")):
                number += 1
            os.rename(os.path.join(path, "db"), aside)
            sync_directory(path)
            return aside
        except FileNotFoundError:
            return None
        finally:
            os.close(lock)

    @classmethod
    def _opened(cls, path: str, lock: int | None, map_size_bytes: int, *, new: bool) -> StateDB:
        database = os.path.join(path, "db")
        environment = None
        try:
            with _translated(database):
                environment = open_environment(
                    database,
                    map_size_bytes=map_size_bytes,
                    databases=len(_PLAIN + _LATER + _INDEXES),
                    advice=_ADVICE,
                )
            return cls(path, environment, lock, new=new)
        except BaseException:
            if environment is not None:
                close_environment(environment)
            if lock is not None:
                os.close(lock)
            raise

    def _begin(self) -> None:
        """Write the first records. Until the format number is there, there is no state (a crash in `create`)."""
        with self._write() as txn:
            table = self._tables["meta"]
            if txn.get(_FORMAT_KEY, db=table) is not None:
                raise FileExistsError(self.path)
            txn.put(_FORMAT_KEY, b"%d" % FORMAT, db=table)
            txn.put(_NEXT_NID_KEY, NID_KEY.pack(1), db=table)
        sync_directory(os.path.join(self.path, "db"))
        sync_directory(self.path)

    def close(self) -> None:
        """Release the lock. Idempotent."""
        if not self._closed:
            self._closed = True
            close_environment(self._environment)
        if self._lock is not None:
            lock, self._lock = self._lock, None
            os.close(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _check_format(self) -> None:
        with self._read() as txn:
            raw = txn.get(_FORMAT_KEY, db=self._tables["meta"])
            if raw is None and not txn.stat(self._tables["meta"])["entries"]:
                raise NotFoundError(f"{self.path} holds no state: link the root first")
        raw = bytes(raw) if raw is not None else b""
        if not raw.isdigit():
            raise CorruptionError(f"{self.path}/db has no format number; {_ADVICE}")
        if int(raw) > FORMAT:
            raise FormatTooNewError(self.path, int(raw), FORMAT)

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return _translated(os.path.join(self.path, "db"))

    @contextlib.contextmanager
    def _read(self) -> Iterator[lmdb.Transaction]:
        with self._errors(), self._environment.begin() as txn:
            yield txn

    @contextlib.contextmanager
    def _write(self, *, rows: bool = False) -> Iterator[lmdb.Transaction]:
        """One durable transaction (LMDB syncs on commit: no flag of ours turns that off).

        Args:
            rows: It changes base rows.
        """
        assert self._lock is not None, "opened read-only"
        with self._writing, self._errors(), self._environment.begin(write=True) as txn:
            yield txn
            self._stamp(txn, rows=rows)

    def _stamp(self, txn: lmdb.Transaction, *, rows: bool) -> None:
        raw = txn.get(STAMP_KEY, db=self._tables["meta"])
        stamp = after_write(None if raw is None else bytes(raw), txn.id(), rows=rows)
        txn.put(STAMP_KEY, stamp, db=self._tables["meta"])

    # --- base

    def load_base(self) -> BaseIndex:
        """All base rows."""
        rows: list[BaseRow] = []
        with self._read() as txn:
            for key, raw in txn.cursor(db=self._tables["base"]):
                (nid,) = NID_KEY.unpack(key)
                rows.append(decode_row(Nid(nid), bytes(raw)))
        return BaseIndex(rows)

    @contextlib.contextmanager
    def rows(self) -> Iterator[RowReader]:
        """The base rows one by one, as of one moment. Keep it short: no page is reused while it is open."""
        with self._read() as txn:
            yield RowReader(txn, self._tables)

    def row(self, nid: Nid) -> BaseRow | None:
        """One base row."""
        with self._read() as txn:
            raw = txn.get(NID_KEY.pack(nid), db=self._tables["base"])
            return decode_row(nid, bytes(raw)) if raw is not None else None

    def record(
        self,
        changes: Iterable[BaseChange],
        *,
        contents: Iterable[KnownContent] = (),
        meta: Mapping[str, bytes] | None = None,
        settled: Iterable[int] = (),
    ) -> None:
        """One group, durably and all or nothing.

        Rule C: whoever calls has fsynced the data, renamed, and fsynced the directories that these rows speak of.

        Args:
            changes: From the outcome, in its order.
            contents: Hashing results to keep.
            meta: Further values, e.g. a journal cursor that these rows include.
            settled: Lists of orders of which these rows tell the outcome, by their numbers.
        """
        changes = list(changes)
        with self._write(rows=bool(changes)) as txn:
            for change in changes:
                if isinstance(change, Retagged):
                    self._retag(txn, change)
                else:
                    self._replace(txn, change.nid, change if isinstance(change, BaseRow) else None)
            for known in contents:
                txn.put(inode_key(known.tag), encode_known(known), db=self._tables["contents"])
            for key, value in (meta or {}).items():
                txn.put(_user_key(key), value, db=self._tables["meta"])
            for number in settled:
                txn.delete(NID_KEY.pack(number), db=self._tables["orders"])

    def _replace(self, txn: lmdb.Transaction, nid: Nid, row: BaseRow | None) -> None:
        key = NID_KEY.pack(nid)
        raw = txn.get(key, db=self._tables["base"])
        old = [] if raw is None else list(_index_entries(decode_row(nid, bytes(raw))))
        new = [] if row is None else list(_index_entries(row))
        if old != new:  # most changes are new evidence of a node in its place: its index entries stay
            for index, entry in old:
                txn.delete(entry, key, db=self._tables[index])
            for index, entry in new:
                txn.put(entry, key, db=self._tables[index])
        if row is None:
            txn.delete(key, db=self._tables["base"])
        else:
            txn.put(key, encode_row(row), db=self._tables["base"])

    def _retag(self, txn: lmdb.Transaction, change: Retagged) -> None:
        """Give all below a directory the versions of a move. Nothing else of their rows changes, nor does an index."""
        rows = RowReader(txn, self._tables)
        nids = rows.subtree(change.nid).nids
        assert len(nids) == change.count, "the base changed under a move of it"
        cursor = txn.cursor(db=self._tables["base"])
        for start in range(1, len(nids), _RETAGGED_AT_ONCE):
            ranks = {NID_KEY.pack(nid): rank for rank, nid in enumerate(nids[start : start + _RETAGGED_AT_ONCE], start)}
            found = list(rows.raw(sorted(ranks)))
            assert len(found) == len(ranks)
            cursor.putmulti(
                [(key, with_remote_version(raw, version_of(change.first, ranks[key]))) for key, raw in found]
            )

    def clear(self) -> None:
        """Forget both sides (`--relink`): the next cycle is a union merge. Numbers are still never reused."""
        with self._write(rows=True) as txn:
            for name in ("base", "contents", "problems", "orders", *_INDEXES):
                txn.drop(self._tables[name], delete=False)

    # --- numbers

    def allocator(self) -> Callable[[], Nid]:
        """A source of new nids, for one cycle. They are reserved ahead, durably, and never given twice."""
        numbers: Iterator[int] = iter(())

        def fresh() -> Nid:
            nonlocal numbers
            number = next(numbers, None)
            if number is None:
                numbers = iter(self._reserve(NIDS_AT_ONCE))
                number = next(numbers)
            return Nid(number)

        return fresh

    def _reserve(self, count: int) -> range:
        with self._write() as txn:
            raw = txn.get(_NEXT_NID_KEY, db=self._tables["meta"])
            if raw is None or len(raw) != NID_KEY.size:
                raise CorruptionError(f"{self.path}/db has no next number; {_ADVICE}")
            (first,) = NID_KEY.unpack(raw)
            txn.put(_NEXT_NID_KEY, NID_KEY.pack(first + count), db=self._tables["meta"])
        return range(first, first + count)

    def _numbered(self, table: str) -> list[tuple[int, bytes]]:
        with self._read() as txn:
            return [(NID_KEY.unpack(key)[0], bytes(raw)) for key, raw in txn.cursor(db=self._tables[table])]

    # --- bookings of writes

    def overwrites(self) -> list[Overwrite]:
        """Writes that may have replaced what nobody here has seen, in the order of their numbers."""
        if "overwrites" not in self._tables:
            return []
        return [decode_overwrite(number, raw) for number, raw in self._numbered("overwrites")]

    def book_overwrites(self, new: Iterable[Overwrite], settled: Iterable[int]) -> None:
        """Take writes in by their numbers, and others out, in one transaction. `clear` keeps them."""
        with self._write() as txn:
            for write in new:
                txn.put(NID_KEY.pack(write.number), encode_overwrite(write), db=self._tables["overwrites"])
            for number in settled:
                txn.delete(NID_KEY.pack(number), db=self._tables["overwrites"])

    def orders(self) -> dict[int, Sequence[Booking]]:
        """Orders of which the outcome is not known yet, by the numbers of lists of them, in their order."""
        if "orders" not in self._tables:
            return {}
        return {number: decode_bookings(raw) for number, raw in self._numbered("orders")}

    def book_orders(self, booked: Mapping[int, Sequence[Booking]]) -> None:
        """Take lists of orders in by their numbers, in one transaction. `record` and `clear` take them out."""
        with self._write() as txn:
            for number, each in booked.items():
                txn.put(NID_KEY.pack(number), encode_bookings(each), db=self._tables["orders"])

    # --- whose versions kept their names beside conflict copies

    def writers(self) -> dict[Nid, Written]:
        """Of which devices they are, by node."""
        if "writers" not in self._tables:
            return {}
        return {Nid(number): decode_written(raw) for number, raw in self._numbered("writers")}

    def note_writers(self, found: Mapping[Nid, Written]) -> None:
        """Add to them, and drop those of nodes that have no base row, in one transaction."""
        with self._write() as txn:
            table = self._tables["writers"]
            for nid, written in found.items():
                txn.put(NID_KEY.pack(nid), encode_written(written), db=table)
            for key in [bytes(key) for key in txn.cursor(db=table).iternext(values=False)]:
                if txn.get(key, db=self._tables["base"]) is None:
                    txn.delete(key, db=table)

    # --- contents of local files

    def known_content(self, tag: LocalTag) -> Content | None:
        """What a file with exactly this evidence contains, if that was seen at a trustworthy time; else None."""
        with self._read() as txn:
            raw = txn.get(inode_key(tag), db=self._tables["contents"])
            known = decode_known(bytes(raw)) if raw is not None else None
        if known is None or known.tag != tag or not known.trustworthy:
            return None
        return known.content

    def keep_contents(self, tags: Iterable[LocalTag]) -> None:
        """Forget what was known about all other inodes: after a complete scan."""
        wanted = {inode_key(tag) for tag in tags}
        with self._write() as txn:
            table = self._tables["contents"]
            for key in [bytes(key) for key in txn.cursor(db=table).iternext(values=False)]:
                if key not in wanted:
                    assert len(key) == INODE_KEY.size
                    txn.delete(key, db=table)

    # --- problems and other values

    def set_problems(self, problems: Iterable[Problem]) -> None:
        """Replace the list that `status` shows. A problem that is already listed keeps its `since_ns`."""
        with self._write() as txn:
            table = self._tables["problems"]
            since: dict[tuple[bytes, str], int] = {}
            for _, raw in txn.cursor(db=table):
                old = decode_problem(bytes(raw))
                since[old.path, old.kind] = old.since_ns
            txn.drop(table, delete=False)
            for number, new in enumerate(problems, 1):
                kept = Problem(
                    path=new.path,
                    kind=new.kind,
                    text=new.text,
                    since_ns=since.get((new.path, new.kind), new.since_ns),
                )
                txn.put(NID_KEY.pack(number), encode_problem(kept), db=table)

    def problems(self) -> list[Problem]:
        """What the last cycle could not sync."""
        return [decode_problem(raw) for _, raw in self._numbered("problems")]

    def meta_get(self, key: str) -> bytes | None:
        """A value of the engine's own: identity, url, cursor, host label. Its encoding is the caller's."""
        with self._read() as txn:
            raw = txn.get(_user_key(key), db=self._tables["meta"])
            return bytes(raw) if raw is not None else None

    def meta_read(self, key: str, decode: Callable[[bytes], T]) -> T | None:
        """Such a value, decoded: one that its own codec (JSON, by msgspec) does not understand is damage."""
        raw = self.meta_get(key)
        if raw is None:
            return None
        try:
            return decode(raw)
        except MALFORMED as error:
            raise CorruptionError(f"{self.path}/db: a record is damaged: {error}; {_ADVICE}") from error

    def meta_set(self, values: Mapping[str, bytes | None]) -> None:
        """Set values, or delete them (None), in one transaction."""
        with self._write() as txn:
            for key, value in values.items():
                if value is None:
                    txn.delete(_user_key(key), db=self._tables["meta"])
                else:
                    txn.put(_user_key(key), value, db=self._tables["meta"])


def _user_key(key: str) -> bytes:
    return b"user:" + key.encode()


def _index_entries(row: BaseRow) -> Iterator[tuple[str, bytes]]:
    yield "by-path", slot_key(row.node)
    if row.local is not None:
        yield "by-inode", inode_key(row.local)
    if row.remote is not None and row.remote.uuid:
        yield "by-uuid", uuid_key(row.remote.uuid)


@contextlib.contextmanager
def exclusive(path: str, what: str) -> Iterator[None]:
    """Hold a lock file.

    Raises:
        LockedError: Another process does.
    """
    lock = _hold(path, what)
    try:
        yield
    finally:
        os.close(lock)


def _lock(path: str, patience: Patience | None = None) -> int:
    return _hold(os.path.join(path, "lock"), f"the state {path}", patience)


def _hold(path: str, what: str, patience: Patience | None = None) -> int:
    """The right to write: a flock, which the kernel releases when the process ends, however it ends."""
    lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            digits = os.pread(lock, 32, 0).strip()
            holder = int(digits) if digits.isdigit() else None
            if patience is None or not patience(holder):
                raise LockedError(what, holder) from None
            fcntl.flock(lock, fcntl.LOCK_EX)
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    except BaseException as error:
        os.close(lock)  # left open (the disk is full, say), it would keep everybody out, this process too
        if isinstance(error, OSError):
            error.filename = path
        raise
    return lock


@contextlib.contextmanager
def _translated(database: str) -> Iterator[None]:
    """Errors of LMDB, of the database layer and of the codecs as the syncer's own."""
    try:
        with lmdb_errors(database, _ADVICE):
            yield
    except ValueError as error:
        raise CorruptionError(f"{database}: a record is damaged: {error}; {_ADVICE}") from error
    except blockfs_errors.NoSpaceError as error:
        raise NoSpaceError(str(error)) from error
    except blockfs_errors.CorruptionError as error:
        raise CorruptionError(str(error)) from error
