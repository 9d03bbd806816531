"""The catalogue's database: one LMDB environment, read snapshots, and changes inside a write transaction.

What the rows mean is in `schema.py`; who writes is `commits.py` alone. No rules here.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Final

import lmdb

from blockfs.blocks.environment import close_environment, lmdb_errors, open_databases, open_environment
from blockfs.runtime.atomic import sync_directory
from syncer.core.subtrees import SubtreeMove
from syncer.errors import CorruptionError, FormatTooNewError, UsageError
from syncer.server.catalogue import nameindex
from syncer.server.catalogue.schema import (
    FORMAT,
    ID,
    SERIAL,
    ContainerRecord,
    Counters,
    Format,
    MoveRecord,
    NameRecord,
    Settings,
    VersionRecord,
    account_settings_key,
    change_key,
    container_settings_key,
)

MAP_SIZE_BYTES: Final = 1 << 40  # address space, not disk: the catalogue can't outgrow it

_TABLES: Final = (
    "meta",
    "accounts",
    "containers",
    "doomed",
    "names",
    "changes",
    "moves",
    "versions",
    "contents",
    "leaves",
    "account_leaves",
    "possessions",
    "settings",
    "grants",
    "shared",
)
_FORMAT_KEY: Final = b"format"
_COUNTERS_KEY: Final = b"counters"
_ADVICE: Final = "restore the server's folder from a backup"


class Reading:
    """A snapshot: everything one request sees belongs together. Use it in one thread, shortly."""

    def __init__(self, txn: lmdb.Transaction[bytes], tables: dict[str, lmdb._Database]) -> None:
        self._txn = txn
        self._tables = tables

    def end(self) -> None:
        """Let go of it.

        A transaction has its slot of LMDB's as long as it is an object, and the traceback of a refusal holds whoever
        saw it until Python looks for cycles.
        """
        self._txn.abort()
        del self._txn

    def get(self, table: str, key: bytes) -> bytes | None:
        """One row."""
        return self._txn.get(key, db=self._tables[table])

    def rows(self, table: str, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Rows whose keys have a prefix, from `start` on, in key order."""
        cursor = self._cursor(table)
        if cursor.set_range(max(prefix, start)):
            for key, value in cursor.iternext():
                if not key.startswith(prefix):
                    return
                yield key, value

    def some(self, table: str, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Those of some rows that are there: half the time of one by one."""
        return dict(self._cursor(table).getmulti(list(keys)))

    def count(self, *tables: str) -> int:
        """Rows in some tables together."""
        return sum(self._txn.stat(self._tables[table])["entries"] for table in tables)

    def counters(self) -> Counters:
        """The numbers given out so far."""
        raw = self.get("meta", _COUNTERS_KEY)
        assert raw is not None
        return Counters.decode(raw)

    def account(self, name: str) -> int | None:
        """An account's id, None for one that has never written."""
        raw = self.get("accounts", name.encode("utf-8"))
        return None if raw is None else int(ID.unpack(raw)[0])

    def container(self, account: int, name: str) -> ContainerRecord | None:
        """A container's row."""
        raw = self.get("containers", ID.pack(account) + name.encode("utf-8"))
        return None if raw is None else ContainerRecord.decode(raw)

    def account_settings(self, account: int | None) -> Settings:
        """What was set for an account; None for one that has never written."""
        return Settings() if account is None else self._settings(account_settings_key(account))

    def container_settings(self, container_id: int) -> Settings:
        """What was set for a container."""
        return self._settings(container_settings_key(container_id))

    def _settings(self, key: bytes) -> Settings:
        raw = self.get("settings", key)
        return Settings() if raw is None else Settings.decode(raw)

    def name(self, container_id: int, name: str) -> NameRecord | None:
        """The row of a name that exists or existed."""
        key = nameindex.find(lambda at: self.get("names", at), container_id, name.encode("utf-8"))
        raw = None if key is None else self.get("names", key)
        return None if raw is None else NameRecord.decode(raw)

    def names(self, container_id: int, start: bytes = b"") -> Iterator[tuple[bytes, NameRecord]]:
        """Names that exist or existed, in byte order."""
        for name, raw in self.name_rows(container_id, start):
            yield name, NameRecord.decode(raw)

    def name_rows(self, container_id: int, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """The same with the rows as they are stored."""
        return nameindex.walk(lambda: self._cursor("names"), container_id, start)

    def name_keys(self, container_id: int) -> Iterator[tuple[bytes, NameRecord | None]]:
        """All keys of a container's names, ways included (None)."""
        for key, raw in nameindex.rows(lambda: self._cursor("names"), container_id):
            yield key, None if raw is None else NameRecord.decode(raw)

    def changed_names(self, container_id: int, since: int) -> Iterator[tuple[int, str]]:
        """Newest version and name of what changed in a container after a version, in the order of the changes."""
        for key, name in self.rows("changes", SERIAL.pack(container_id), change_key(container_id, since + 1)):
            yield int(SERIAL.unpack(key[SERIAL.size :])[0]), name.decode("utf-8")

    def moves(self, container_id: int, since: int) -> Iterator[SubtreeMove]:
        """Subtrees that were moved in a container after a version, in order."""
        for _, raw in self.rows("moves", SERIAL.pack(container_id), change_key(container_id, since + 1)):
            yield MoveRecord.decode(raw).move

    def version(self, serial: int) -> VersionRecord | None:
        """A version, whatever it belongs to."""
        raw = self.get("versions", SERIAL.pack(serial))
        return None if raw is None else VersionRecord.decode(raw)

    def existing_version(self, serial: int) -> VersionRecord:
        """A version that another row names."""
        return VersionRecord.decode(self.existing_row(serial))

    def existing_row(self, serial: int) -> bytes:
        """The row of a version that another row names."""
        raw = self.get("versions", SERIAL.pack(serial))
        if raw is None:
            raise CorruptionError(f"the catalogue names version {serial}, which is not there; {_ADVICE}")
        return raw

    def _cursor(self, table: str) -> lmdb.Cursor[bytes]:
        return self._txn.cursor(db=self._tables[table])


class Change(Reading):
    """A write transaction, shared by the requests of one group.

    A request refuses before its first write: what it has written can't be taken back without the others'.

    Containers and settings, which each request looks at, are read once; a container's row is written once, at the end
    (or before somebody reads the whole table).

    Attributes:
        writes: Rows written or deleted so far.
        touched: Ids of the containers that change.
        numbers: Counters; stored at the end.
    """

    def __init__(self, txn: lmdb.Transaction[bytes], tables: dict[str, lmdb._Database], now_us: int) -> None:
        super().__init__(txn, tables)
        self.writes = 0
        self.touched: Final[set[int]] = set()
        self.now_us: Final = now_us
        self.numbers: Final = super().counters()
        self._accounts: dict[str, int] = {}
        self._containers: dict[tuple[int, str], ContainerRecord] = {}
        self._unwritten: set[tuple[int, str]] = set()  # of those
        self._known_settings: dict[bytes, Settings] = {}

    def account(self, name: str) -> int | None:
        """See Reading."""
        found = self._accounts.get(name)
        if found is None:
            found = super().account(name)
            if found is not None:
                self._accounts[name] = found
        return found

    def container(self, account: int, name: str) -> ContainerRecord | None:
        """See Reading."""
        found = self._containers.get((account, name))
        if found is None:
            found = super().container(account, name)
            if found is not None:
                self._containers[account, name] = found
        return found

    def rows(self, table: str, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """See Reading."""
        if table == "containers":
            self._write_containers()
        return super().rows(table, prefix, start)

    def _settings(self, key: bytes) -> Settings:
        found = self._known_settings.get(key)
        if found is None:
            found = self._known_settings[key] = super()._settings(key)
        return found

    def put(self, table: str, key: bytes, value: bytes) -> None:
        """Write a row."""
        self.writes += 1
        self._txn.put(key, value, db=self._tables[table])

    def put_all(self, table: str, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Write many rows at once: a third of the time of one by one. Sorted by key they go quicker still."""
        written, _ = self._cursor(table).putmulti(rows)
        self.writes += written

    def delete(self, table: str, key: bytes) -> None:
        """Delete a row, if it is there."""
        self.writes += 1
        self._txn.delete(key, db=self._tables[table])

    def put_settings(self, key: bytes, settings: Settings | None) -> None:
        """Write what was set for an account or a container; None: it is gone."""
        self._known_settings.pop(key, None)
        if settings is None:
            self.delete("settings", key)
        else:
            self.put("settings", key, settings.encode())

    def stamp_us(self) -> int:
        """A time for a version: now, but always later than the one before."""
        self.numbers.stamp_us = max(self.now_us, self.numbers.stamp_us + 1)
        return self.numbers.stamp_us

    def next_serial(self) -> int:
        """A new version serial."""
        self.numbers.serial += 1
        return self.numbers.serial

    def next_node(self) -> int:
        """A new node of the name index."""
        self.numbers.node += 1
        return self.numbers.node

    def next_slot(self) -> int:
        """A new slot."""
        self.numbers.slot += 1
        return self.numbers.slot

    def make_account(self, name: str) -> int:
        """An account's id, a new one if it has none."""
        found = self.account(name)
        if found is not None:
            return found
        self.numbers.account += 1
        self.put("accounts", name.encode("utf-8"), ID.pack(self.numbers.account))
        return self.numbers.account

    def put_container(self, account: int, name: str, record: ContainerRecord) -> None:
        """Write a container's row."""
        self.touched.add(record.container_id)
        self.writes += 1
        self._containers[account, name] = record
        self._unwritten.add((account, name))

    def delete_container(self, account: int, name: str) -> None:
        """Delete a container's row."""
        self._containers.pop((account, name), None)
        self._unwritten.discard((account, name))
        self.delete("containers", ID.pack(account) + name.encode("utf-8"))

    def _write_containers(self) -> None:
        for account, name in sorted(self._unwritten):
            key = ID.pack(account) + name.encode("utf-8")
            self._txn.put(key, self._containers[account, name].encode(), db=self._tables["containers"])
        self._unwritten.clear()

    def put_name(self, container_id: int, name: str, record: NameRecord) -> None:
        """Write a name's row."""
        self.put("names", self.name_key(container_id, name.encode("utf-8")), record.encode())

    def name_key(self, container_id: int, name: bytes) -> bytes:
        """The key of a name's row; makes the way there, if it is a long one."""
        if len(name) <= nameindex.CHUNK:
            return SERIAL.pack(container_id) + name
        return nameindex.make(
            lambda at: self.get("names", at),
            lambda at, value: self.put("names", at, value),
            self.next_node,
            container_id,
            name,
        )

    def put_change(self, container_id: int, name: str, newest: int, before: int) -> None:
        """Note a name's newest version among its container's changes, in place of the one before (0: none)."""
        if before:
            self.delete("changes", change_key(container_id, before))
        self.put("changes", change_key(container_id, newest), name.encode("utf-8"))

    def put_move(self, container_id: int, move: SubtreeMove) -> None:
        """Note a move of a subtree."""
        self.put("moves", change_key(container_id, move.last), MoveRecord(move=move).encode())

    def put_version(self, serial: int, record: VersionRecord) -> None:
        """Write a version."""
        self.put("versions", SERIAL.pack(serial), record.encode())

    def finish(self) -> None:
        """Store the containers and the counters: the last step before the commit."""
        self._write_containers()
        self.put("meta", _COUNTERS_KEY, self.numbers.encode())


class Catalogue:
    """The open database. Thread-safe; writes come from one thread (`commits.py`)."""

    def __init__(self, path: str, environment: lmdb.Environment) -> None:
        self.path: Final = path
        self._environment = environment
        try:
            opened = open_databases(environment, [table.encode() for table in _TABLES])
        except lmdb.NotFoundError:
            if _is_older(environment):
                raise UsageError(
                    f"{path} is of an older release; a start of `blocksync serve` makes it this one's"
                ) from None
            raise CorruptionError(f"{path} is a database, but not a catalogue; {_ADVICE}") from None
        self._tables = dict(zip(_TABLES, opened, strict=True))
        with self.reading() as view:
            raw = view.get("meta", _FORMAT_KEY)
        assert raw is not None  # written together with the tables
        number, found = Format.decode(raw)
        if number > FORMAT:
            raise FormatTooNewError(path, number, FORMAT)
        self.block_size: Final = found.block_size

    @staticmethod
    def create(path: str, *, block_size: int) -> None:
        """Make an empty catalogue, or make one of an older format ours.

        Order: database → fsync of its folder → fsync of the folder above. A crash before the end leaves a folder
        without any table; making it again continues there. An older format lacks tables and has the same rows: the
        new tables, the changes that the old rows tell, and the new number, in one transaction, are all of the upgrade.
        """
        os.makedirs(path, mode=0o700, exist_ok=True)
        with lmdb_errors(path, _ADVICE):
            environment = open_environment(path, map_size_bytes=MAP_SIZE_BYTES, databases=len(_TABLES), advice=_ADVICE)
            try:
                with environment.begin(write=True) as txn:  # tables and format row: all or nothing
                    meta = environment.open_db(b"meta", txn=txn)
                    raw = txn.get(_FORMAT_KEY, db=meta)
                    if raw is None:
                        txn.put(_COUNTERS_KEY, Counters().encode(), db=meta)
                    number = 0 if raw is None else Format.decode(raw)[0]
                    if number < FORMAT:
                        txn.put(_FORMAT_KEY, Format(block_size=block_size).encode(), db=meta)
                        tables = {table: environment.open_db(table.encode(), txn=txn) for table in _TABLES}
                        if number == 1:
                            _note_changes(Change(txn, tables, 0))
            finally:
                close_environment(environment)
        sync_directory(path)
        sync_directory(os.path.dirname(path) or ".")

    @classmethod
    def open(cls, path: str) -> Catalogue:
        """Open a catalogue.

        Raises:
            blockfs.errors.CorruptionError: Not an LMDB file, or a part of it is cut off.
            CorruptionError: Not a catalogue.
            UsageError: Made by an older version, and not opened by a server since.
            FormatTooNewError: Made by a newer version.
            blockfs.errors.NotFoundError: Nothing there.
        """
        environment = open_environment(path, map_size_bytes=MAP_SIZE_BYTES, databases=len(_TABLES), advice=_ADVICE)
        try:
            with lmdb_errors(path, _ADVICE):
                return cls(path, environment)
        except BaseException:
            close_environment(environment)
            raise

    def close(self) -> None:
        """Close; no transaction may be open."""
        close_environment(self._environment)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Reading]:
        """A snapshot of what is durable now."""
        with lmdb_errors(self.path, _ADVICE):
            view = Reading(self._environment.begin(), self._tables)
            try:
                yield view
            finally:
                view.end()

    @contextlib.contextmanager
    def changing(self, now_us: int) -> Iterator[Change]:
        """A write transaction: durable when the block is left, undone when it raises."""
        with lmdb_errors(self.path, _ADVICE), self._environment.begin(write=True) as txn:
            change = Change(txn, self._tables, now_us)
            yield change
            change.finish()


def _is_older(environment: lmdb.Environment) -> bool:
    """Whether it is a catalogue of an older format, which lacks tables."""
    try:
        meta = environment.open_db(b"meta", create=False)
    except lmdb.Error:
        return False
    with environment.begin() as txn:
        raw = txn.get(_FORMAT_KEY, db=meta)
    return raw is not None and Format.decode(raw)[0] < FORMAT


def _note_changes(change: Change) -> None:
    """Fill `changes` from the names that there are."""
    for _, raw in change.rows("containers"):
        container_id = ContainerRecord.decode(raw).container_id
        for name, row in change.names(container_id):
            change.put_change(container_id, name.decode("utf-8"), row.newest, 0)
