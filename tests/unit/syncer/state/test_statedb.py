from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest
from msgspec.structs import replace

from syncer.core.conflict import Written
from syncer.core.model import BaseRow, Kind, LocalTag, Nid, RelPath
from syncer.core.planner.outcome import Booking, Forgotten
from syncer.core.planner.overwrites import Overwrite
from syncer.core.subtrees import Retagged
from syncer.errors import CorruptionError, FormatTooNewError, LockedError, NoSpaceError, NotAllowedError, NotFoundError
from syncer.state.schema import KnownContent, Problem
from syncer.state.statedb import NIDS_AT_ONCE, StateDB
from tests.unit.syncer.core.trees import content, file, folder, local_tag, remote_tag
from tests.unit.syncer.state.indexes import at, with_inode, with_uuid

SMALL = 1 << 22  # bytes of address space: tests stay below


def row(nid: int, name: str, *, parent: int = 0, inode: int | None = None) -> BaseRow:
    return BaseRow(
        nid=Nid(nid),
        node=file(name, nid % 200, parent=parent),
        local=local_tag(nid if inode is None else inode),
        remote=remote_tag(nid),
    )


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "roots" / "one")


@pytest.fixture
def state(path: str) -> Iterator[StateDB]:
    with StateDB.create(path, map_size_bytes=SMALL) as made:
        yield made


def test_a_new_state_knows_nothing(state: StateDB) -> None:
    assert len(state.load_base()) == 0
    assert state.problems() == []
    assert state.meta_get("url") is None


def test_what_was_recorded_is_there_after_reopening(path: str, state: StateDB) -> None:
    state.record([row(1, "a"), row(2, "b", parent=1)], meta={"cursor": b"c1"})
    state.record([Forgotten(nid=Nid(1)), row(2, "c")], meta={"cursor": b"c2"})
    state.close()
    with StateDB.open(path, map_size_bytes=SMALL) as again:
        assert dict(again.load_base().rows) == {2: row(2, "c")}
        assert again.row(Nid(2)) == row(2, "c")
        assert again.row(Nid(1)) is None
        assert again.meta_get("cursor") == b"c2"


def test_the_indexes_follow_the_rows(state: StateDB) -> None:
    state.record([row(1, "a"), row(2, "b", inode=1)])
    assert at(state, Nid(0), b"a") == [1]
    assert with_inode(state, local_tag(1)) == [1, 2]
    assert with_uuid(state, "u2") == [2]
    state.record([replace(row(1, "moved"), local=local_tag(50)), Forgotten(nid=Nid(2))])
    assert at(state, Nid(0), b"a") == []
    assert at(state, Nid(0), b"moved") == [1]
    assert with_inode(state, local_tag(1)) == []
    assert with_uuid(state, "u2") == []


def test_a_listing_is_held_against_the_rows(state: StateDB) -> None:
    bare = BaseRow(nid=Nid(5), node=file("bare", 1), local=local_tag(5), remote=None)
    state.record([row(1, "a"), row(2, "a"), row(3, "a", parent=1), bare])
    with state.rows() as rows:
        assert rows.agreeing(Nid(0), b"a", remote_tag(2)) == 2
        assert rows.agreeing(Nid(0), b"a", remote_tag(3)) is None
        assert rows.agreeing(Nid(1), b"a", remote_tag(3)) == 3
        assert rows.agreeing(Nid(0), b"none", remote_tag(1)) is None
        assert rows.agreeing(Nid(0), b"bare", remote_tag(5)) is None
        assert [each.nid for each in rows.others({1, 3})] == [2, 5]


def test_a_group_is_all_or_nothing(state: StateDB) -> None:
    def changes() -> Iterator[BaseRow]:
        yield row(1, "a")
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        state.record(changes())
    assert len(state.load_base()) == 0


def test_numbers_are_never_given_twice(path: str, state: StateDB) -> None:
    fresh = state.allocator()
    given = [fresh() for _ in range(NIDS_AT_ONCE + 3)]
    assert given == list(range(1, NIDS_AT_ONCE + 4))
    given += [state.allocator()() for _ in range(3)]
    state.clear()
    state.close()
    with StateDB.open(path, map_size_bytes=SMALL) as again:
        given.append(again.allocator()())
    assert len(set(given)) == len(given)


def test_a_content_is_known_only_for_exactly_the_evidence_it_was_seen_with(state: StateDB) -> None:
    tag = LocalTag(device=1, ino=2, btime_ns=3, size_bytes=4, mtime_ns=5, ctime_ns=6)
    state.record([], contents=[KnownContent(tag=tag, content=content(7), observed_ns=10**12)])
    assert state.known_content(tag) == content(7)
    for change in ("size_bytes", "mtime_ns", "ctime_ns", "btime_ns", "ino", "device", "version"):
        assert state.known_content(replace(tag, **{change: 99})) is None, change
    state.keep_contents([replace(tag, size_bytes=0)])
    assert state.known_content(tag) == content(7)
    state.keep_contents([])
    assert state.known_content(tag) is None


def test_a_racily_clean_content_is_not_trusted(state: StateDB) -> None:
    tag = LocalTag(device=1, ino=2, btime_ns=3, size_bytes=4, mtime_ns=10**12, ctime_ns=10**12)
    state.record([], contents=[KnownContent(tag=tag, content=content(7), observed_ns=10**12 + 1)])
    assert state.known_content(tag) is None


def test_a_problem_keeps_the_time_it_was_first_seen(state: StateDB) -> None:
    first = Problem(path=RelPath(b"a"), kind="unknown", text="one", since_ns=5)
    state.set_problems([first])
    other = Problem(path=RelPath(b"b"), kind="unknown", text="two", since_ns=9)
    state.set_problems([replace(first, text="still", since_ns=9), other])
    assert state.problems() == [replace(first, text="still"), other]
    state.set_problems([])
    assert state.problems() == []


def test_relinking_forgets_both_sides(state: StateDB) -> None:
    state.record([row(1, "a")], meta={"url": b"u"})
    state.clear()
    assert len(state.load_base()) == 0
    assert at(state, Nid(0), b"a") == []
    assert state.meta_get("url") == b"u"


def test_meta_values_are_set_and_deleted_together(state: StateDB) -> None:
    state.meta_set({"url": b"u", "host": b"h"})
    state.meta_set({"url": None, "host": b"g"})
    assert state.meta_get("url") is None
    assert state.meta_get("host") == b"g"


def test_a_disk_that_is_full_when_the_lock_is_taken_locks_nobody_out_later(
    path: str, state: StateDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon goes on after a full disk: it must be able to take its own lock again."""
    state.close()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left") as caught:
            StateDB.open(path, map_size_bytes=SMALL)
    assert caught.value.filename == f"{path}/lock"
    StateDB.open(path, map_size_bytes=SMALL).close()


def test_a_second_writer_is_refused_with_the_holders_pid(path: str, state: StateDB) -> None:
    with pytest.raises(LockedError) as caught:
        StateDB.open(path)
    assert caught.value.holder_pid == os.getpid()
    assert caught.value.exit_code == 11
    state.close()
    StateDB.open(path, map_size_bytes=SMALL).close()


def test_a_reader_needs_no_lock_and_sees_the_last_commit(path: str, state: StateDB) -> None:
    state.record([row(1, "a")])
    with StateDB.open(path, read_only=True, map_size_bytes=SMALL) as reader:
        assert len(reader.load_base()) == 1


def test_a_killed_writer_leaves_its_last_commit_and_no_lock(path: str) -> None:
    program = (
        "import os, sys\n"
        "from syncer.state.statedb import StateDB\n"
        "state = StateDB.create(sys.argv[1])\n"
        "state.meta_set({'a': b'1'})\n"
        "os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, path], check=False)
    assert ended.returncode == -9
    with StateDB.open(path) as state:
        assert state.meta_get("a") == b"1"


def test_a_second_create_is_refused(path: str, state: StateDB) -> None:
    state.close()
    with pytest.raises(FileExistsError):
        StateDB.create(path, map_size_bytes=SMALL)


def test_a_create_that_was_cut_short_can_be_repeated(path: str) -> None:
    os.makedirs(os.path.join(path, "db"))
    with pytest.raises(NotFoundError):
        StateDB.open(path)
    with StateDB.create(path, map_size_bytes=SMALL) as state:
        assert len(state.load_base()) == 0


def test_no_state_is_not_found(path: str) -> None:
    with pytest.raises(NotFoundError):
        StateDB.open(path)


@pytest.mark.parametrize("damage", ["garbage", "cut", "short"])
def test_a_damaged_state_names_its_file_and_says_what_to_do(path: str, state: StateDB, damage: str) -> None:
    state.record([row(nid, f"f{nid}") for nid in range(1, 3000)])
    state.close()
    data = Path(path, "db", "data.mdb")
    whole = data.read_bytes()
    data.write_bytes(
        {"garbage": os.urandom(len(whole)), "cut": whole[: len(whole) // 2], "short": b"not a database"}[damage]
    )
    with pytest.raises(CorruptionError) as caught:
        StateDB.open(path, map_size_bytes=SMALL)
    assert path in str(caught.value)
    assert "--relink" in str(caught.value)
    assert StateDB.set_aside(path) == f"{path}/db.damaged-1"
    with StateDB.create(path, map_size_bytes=SMALL) as fresh:
        assert len(fresh.load_base()) == 0


def test_setting_aside_what_is_not_there_is_no_error(path: str) -> None:
    os.makedirs(path)
    assert StateDB.set_aside(path) is None


def test_a_damaged_record_is_corruption(path: str, state: StateDB) -> None:
    with state._write() as txn:
        txn.put(b"\0" * 7 + b"\1", b"nonsense", db=state._tables["base"])
    with pytest.raises(CorruptionError, match="record is damaged"):
        state.load_base()


def test_a_newer_format_is_refused(path: str, state: StateDB) -> None:
    with state._write() as txn:
        txn.put(b"format", b"99", db=state._tables["meta"])
    state.close()
    with pytest.raises(FormatTooNewError) as caught:
        StateDB.open(path, map_size_bytes=SMALL)
    assert caught.value.found == 99


def test_a_full_map_is_no_space_and_loses_nothing(state: StateDB) -> None:
    state.record([row(1, "a")])
    with pytest.raises(NoSpaceError):
        state.record([row(nid, f"f{nid}") for nid in range(2, 60_000)])
    assert len(state.load_base()) == 1


def test_rows_of_directories_have_no_content(state: StateDB) -> None:
    made = BaseRow(nid=Nid(1), node=folder("d"), local=None, remote=None)
    state.record([made])
    assert state.load_base().rows[Nid(1)] == made
    assert with_inode(state, local_tag(0)) == []


def test_a_state_of_another_user_is_not_called_missing(tmp_path: Path) -> None:
    """exists() says no where permissions hide something; `link --relink` would then be the wrong advice."""
    folder = tmp_path / "state"
    StateDB.create(str(folder)).close()
    (folder / "db").chmod(0)
    with _as_nobody(), pytest.raises(NotAllowedError, match="belongs to another user") as caught:
        StateDB.open(str(folder), read_only=True)
    (folder / "db").chmod(0o700)
    assert caught.value.exit_code == 12


@contextlib.contextmanager
def _as_nobody() -> Iterator[None]:
    if os.geteuid() != 0:  # our own files: taking the permission away is enough
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_subtree_is_told_in_byte_order_and_gets_its_new_versions(state: StateDB) -> None:
    def directory(nid: int, name: str, parent: int = 0) -> BaseRow:
        return BaseRow(
            nid=Nid(nid), node=folder(name, parent=parent), local=local_tag(nid), remote=remote_tag(nid, version=nid)
        )

    link = replace(row(8, "link", parent=3).node, kind=Kind.SYMLINK, content=None, target=b"x" * 300)
    rows = [
        directory(1, "top"),
        directory(3, "a", parent=1),
        row(4, "file", parent=3),
        row(5, "a-", parent=1),
        BaseRow(nid=Nid(8), node=link, local=replace(local_tag(8), version=7), remote=remote_tag(8)),
        row(9, "beside"),
    ]
    state.record(rows)
    with state.rows() as reader:
        found = reader.subtree(Nid(1))
    assert list(zip(found.rests, found.nids, strict=True)) == [
        (b"", 1), (b"/a", 3), (b"/a-", 5), (b"/a/file", 4), (b"/a/link", 8)
    ]  # fmt: skip
    by_nid = {each.nid: each for each in rows}
    for nid, version in zip(found.nids, found.versions, strict=True):
        tag = by_nid[nid].remote
        assert tag is not None
        assert version == tag.version
    before = state.load_base()
    state.record([Retagged(nid=Nid(1), first=100, count=5)])
    after = state.load_base()
    versions = {3: 103, 5: 105, 4: 107, 8: 109}
    for nid, known in before.rows.items():
        tag = known.remote
        assert tag is not None
        expected = known if nid not in versions else replace(known, remote=replace(tag, version=versions[nid]))
        assert after.rows[nid] == expected
        assert with_uuid(state, tag.uuid) == [nid]


def test_a_row_below_itself_has_an_end(state: StateDB) -> None:
    loop = [
        BaseRow(nid=Nid(nid), node=folder("x", parent=3 - nid), local=local_tag(nid), remote=None) for nid in (1, 2)
    ]
    state.record(loop)
    with state.rows() as reader:
        assert len(reader.subtree(Nid(1))) == 2


# --- bookings of writes


def overwrite(number: int) -> Overwrite:
    return Overwrite(
        path=RelPath(b"d/%d" % number), kind=Kind.FILE, size_bytes=5, etag="ab" * 32, known=number, number=number
    )


def test_bookings_are_kept_until_they_are_settled_also_over_a_relink(path: str, state: StateDB) -> None:
    state.book_overwrites([overwrite(1), overwrite(2)], [])
    state.book_overwrites([overwrite(3)], [2, 7])
    state.clear()
    state.close()
    with StateDB.open(path, map_size_bytes=SMALL) as again:
        assert again.overwrites() == [overwrite(1), overwrite(3)]


def without_bookings(path: str) -> None:
    """Make of a state one that was written before there were any."""
    with lmdb.open(os.path.join(path, "db"), max_dbs=8, map_size=SMALL) as environment:
        table = environment.open_db(b"overwrites")
        with environment.begin(write=True) as txn:
            txn.drop(table)


def test_a_state_from_before_there_were_bookings_opens_unchanged(path: str, state: StateDB) -> None:
    state.record([row(1, "a")])
    state.close()
    without_bookings(path)
    with StateDB.open(path, read_only=True, map_size_bytes=SMALL) as old:
        assert (old.overwrites(), len(old.load_base())) == ([], 1)
    with StateDB.open(path, map_size_bytes=SMALL) as old:
        assert (old.overwrites(), len(old.load_base())) == ([], 1)
        old.book_overwrites([overwrite(1)], [])
        assert old.overwrites() == [overwrite(1)]


def test_a_program_that_knows_no_bookings_works_on_the_rest_and_leaves_them(path: str, state: StateDB) -> None:
    state.record([row(1, "a")])
    state.book_overwrites([overwrite(1)], [])
    state.close()
    older = ("base", "contents", "problems", "meta", "by-path", "by-inode", "by-uuid")
    with lmdb.open(os.path.join(path, "db"), max_dbs=len(older), map_size=SMALL) as environment:
        tables = {name: environment.open_db(name.encode(), dupsort=name.startswith("by-")) for name in older}
        with environment.begin(write=True) as txn:
            assert txn.stat(tables["base"])["entries"] == 1
            txn.put(b"user:x", b"y", db=tables["meta"])
    with StateDB.open(path, map_size_bytes=SMALL) as again:
        assert (again.overwrites(), again.meta_get("x")) == ([overwrite(1)], b"y")


def test_orders_stay_until_their_rows_are_recorded(path: str, state: StateDB) -> None:
    """The rows and the end of the booking are one transaction; `clear` forgets both sides, so orders too."""
    one, two = ([Booking(nid=Nid(number), node=None, uuid="u")] for number in (1, 2))
    state.book_orders({1: one, 2: two})
    state.record([row(1, "a")], settled=[1])
    state.close()
    with StateDB.open(path, map_size_bytes=SMALL) as again:
        assert (again.orders(), len(again.load_base())) == ({2: two}, 1)
        again.clear()
        assert again.orders() == {}


def test_devices_of_versions_are_kept_as_long_as_the_nodes(path: str, state: StateDB) -> None:
    state.record([row(1, "a"), row(2, "b")])
    of_a, of_b = (Written(content=content(number), device=device) for number, device in ((1, "desk"), (2, "laptop")))
    state.note_writers({Nid(1): of_a})
    state.note_writers({Nid(2): of_b})
    state.close()
    with StateDB.open(path, map_size_bytes=SMALL) as again:
        assert again.writers() == {1: of_a, 2: of_b}
        again.record([Forgotten(nid=Nid(1))])
        again.note_writers({Nid(2): of_a})
        assert again.writers() == {2: of_a}


def test_a_state_of_an_older_release_knows_no_devices(path: str, state: StateDB) -> None:
    state.record([row(1, "a")])
    state.close()
    with lmdb.open(os.path.join(path, "db"), max_dbs=16) as environment, environment.begin(write=True) as txn:
        txn.drop(environment.open_db(b"writers", txn=txn), delete=True)
    with StateDB.open(path, map_size_bytes=SMALL, read_only=True) as read:
        assert read.writers() == {}
    with StateDB.open(path, map_size_bytes=SMALL) as again:
        again.note_writers({Nid(1): Written(content=content(1), device="desk")})
        assert [each.device for each in again.writers().values()] == ["desk"]
