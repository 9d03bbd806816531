"""Removing from the catalogue what nobody needs: the first half of the server's garbage collection.

Three steps, each sound if the process dies after it: the histories of deleted containers; leaves and leaf lists that no
version names; possession of blocks that were uploaded before the time of grace and are in none of the remaining leaves.
After that, the remaining leaves and possessions name exactly the blocks that must stay.

Requests go on meanwhile. What is dead is found in a snapshot and deleted in short transactions; each of them first
looks at the versions made since (`_Living.catch_up`), because those may name again what was dead in the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

import msgspec

from blockfs.blocks.ids import ID_SIZE
from blockfs.blocks.maintenance.gc import Marks
from syncer.server.catalogue import contents
from syncer.server.catalogue.catalogue import Catalogue, Change, Reading
from syncer.server.catalogue.commits import Commits
from syncer.server.catalogue.schema import ID, SERIAL, NameRecord, VersionRecord, change_key

_BATCH: Final = 1000  # rows deleted in one transaction: some 10 ms, which is what a request may have to wait


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed from the catalogue."""

    versions: int
    leaves: int
    possessions: int


class _Living:
    """Which leaves, leaf lists and blocks are named by versions. May claim too much, never too little.

    What was dealt with already is remembered exactly: the marks may claim what was never put in.
    """

    def __init__(self, view: Reading, block_size: int, offset: int) -> None:
        self._block_size = block_size
        self._marks = Marks(view.count("contents", "leaves", "possessions"), offset)
        self._caught: set[bytes] = set()
        self._serial = 0
        lists: set[bytes] = set()
        for record in self._versions(view):
            if record.content not in lists and len(self._mark_keys(view, record)) > ID_SIZE:
                lists.add(record.content)  # many versions may have it: read it once
        for key, row in view.rows("leaves"):
            if key in self._marks:
                self._marks.add(row[ID_SIZE:])

    def __contains__(self, key: bytes) -> bool:
        return key in self._marks

    def catch_up(self, view: Reading) -> None:
        """Mark what versions name that were made since the last call."""
        for record in self._versions(view):
            keys = self._mark_keys(view, record)
            new = {keys[at : at + ID_SIZE] for at in range(0, len(keys), ID_SIZE)} - self._caught
            for ids in contents.read_leaves(view, b"".join(new)):
                self._marks.add(ids)
            self._caught |= new

    def _versions(self, view: Reading) -> Iterator[VersionRecord]:
        """Versions that were not looked at yet, without those that have no content."""
        for key, raw in view.rows("versions", start=SERIAL.pack(self._serial + 1)):
            (self._serial,) = SERIAL.unpack(key)
            record = VersionRecord.decode(raw)
            if record.content != contents.NO_CONTENT:
                yield record

    def _mark_keys(self, view: Reading, record: VersionRecord) -> bytes:
        """Mark a version's leaf list and leaves; returns the leaf keys."""
        keys = contents.leaf_keys(view, record, self._block_size)
        self._marks.add(record.content)
        self._marks.add(keys)
        return keys


def sweep(catalogue: Catalogue, commits: Commits, *, uploaded_before_us: int, offset: int) -> SweepResult:
    """Remove dead rows.

    Args:
        catalogue: The database.
        commits: Its writer.
        uploaded_before_us: Blocks that were uploaded earlier and are in no version are no longer possessed.
        offset: For `Marks`: random in each run.
    """
    versions = _remove_doomed(catalogue, commits)
    with catalogue.reading() as view:
        living = _Living(view, catalogue.block_size, offset)

    def dead_keys(table: str, skip: int) -> Callable[[Reading, bytes], Iterator[bytes]]:
        """Keys of a table whose last 32 bytes nothing names."""
        return lambda view, start: (key for key, _ in view.rows(table, start=start) if key[skip:] not in living)

    def dead_possessions(view: Reading, start: bytes) -> Iterator[bytes]:
        """Possessions that are old and that nothing names."""
        for key, value in view.rows("possessions", start=start):
            if SERIAL.unpack(value)[0] < uploaded_before_us and key[ID.size :] not in living:
                yield key

    def still_dead(change: Change, table: str, key: bytes) -> bool:
        """Decided again in the transaction that deletes: an upload or a new version may have revived it."""
        value = change.get(table, key)
        if value is None or key[-ID_SIZE:] in living:
            return False
        return table != "possessions" or int(SERIAL.unpack(value)[0]) < uploaded_before_us

    def remove(table: str, find: Callable[[Reading, bytes], Iterator[bytes]]) -> int:
        """Delete in batches."""
        removed = 0
        start = b""
        while True:
            with catalogue.reading() as view:
                batch = list(islice(find(view, start), _BATCH))
            if not batch:
                return removed
            removed += commits.run(partial(_delete, table=table, batch=batch, living=living, still_dead=still_dead))
            start = batch[-1] + b"\0"

    # Leaves before possessions: a possession must outlive every leaf that stands for it.
    remove("account_leaves", dead_keys("account_leaves", ID.size))
    leaves = remove("leaves", dead_keys("leaves", 0))
    remove("contents", dead_keys("contents", 0))
    return SweepResult(versions=versions, leaves=leaves, possessions=remove("possessions", dead_possessions))


def live_blocks(catalogue: Catalogue) -> Iterator[bytes]:
    """Ids of all blocks that must stay, concatenated or single: those in leaves, and those possessed."""
    with catalogue.reading() as view:
        for _, row in view.rows("leaves"):
            yield row[ID_SIZE:]
        for key, _ in view.rows("possessions"):
            yield key[ID.size :]


def _delete(
    change: Change,
    table: str,
    batch: Iterable[bytes],
    living: _Living,
    still_dead: Callable[[Change, str, bytes], bool],
) -> int:
    living.catch_up(change)
    dead = [key for key in batch if still_dead(change, table, key)]
    for key in dead:
        change.delete(table, key)
    return len(dead)


def _remove_doomed(catalogue: Catalogue, commits: Commits) -> int:
    """Remove names and versions of deleted containers."""
    removed = 0
    while True:
        with catalogue.reading() as view:
            doomed = [int(SERIAL.unpack(key)[0]) for key, _ in islice(view.rows("doomed"), 1)]
        if not doomed:
            return removed
        removed += commits.run(partial(_remove_some, container_id=doomed[0]))


def _remove_some(change: Change, container_id: int) -> int:
    """Remove up to a batch of a deleted container's versions; at the end, the mark that it is to be removed."""
    keys = list(islice(change.name_keys(container_id), _BATCH))
    if not keys:
        for move in list(change.moves(container_id, 0)):
            change.delete("moves", change_key(container_id, move.last))
        change.delete("doomed", SERIAL.pack(container_id))
    removed = 0
    for key, row in keys:
        newest = 0 if row is None else row.newest
        change.delete("changes", change_key(container_id, newest))
        while newest and removed < _BATCH:
            previous = change.existing_version(newest).previous
            change.delete("versions", SERIAL.pack(newest))
            newest = previous
            removed += 1
        if newest:  # a long history goes on in the next transaction, from where this one stopped
            assert row is not None
            change.put("names", key, NameRecord(slot=row.slot, newest=newest, deleted=True).encode())
            break
        change.delete("names", key)
    return removed
