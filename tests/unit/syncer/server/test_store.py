"""What the object store promises, case by case."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import LEAF_IDS, block_id
from blockfs.blocks.ids import ZERO_BLOCK
from syncer.protocol.pithos.headers import parse_etags
from syncer.protocol.pithos.listing import ContainerRow, ObjectRow, SubdirectoryRow
from syncer.protocol.segments import Wanted
from syncer.server.catalogue import contents
from syncer.server.catalogue.conditions import Conditions
from syncer.server.catalogue.orders import (
    DeleteOrder,
    MetaOrder,
    ReadOrder,
    Selection,
    Transfer,
    TransferOrder,
    WriteOrder,
)
from syncer.server.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    MissingBlocks,
    NotFound,
    NotModified,
    PreconditionFailed,
)
from syncer.server.store import deltas
from syncer.server.store.reading import ObjectView
from syncer.server.store.store import Store
from tests.unit.syncer.server.stores import (
    BLOCK,
    Clock,
    at,
    letter,
    letter_id,
    names,
    open_store,
    put,
    put_ids,
    read,
    upload,
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    with open_store(tmp_path / "store", clock) as opened:
        opened.create_container("alice", "c")
        yield opened


# --- content


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 300 * BLOCK + 5])
def test_content_comes_back_and_has_the_hash_of_its_blocks(store: Store, size: int) -> None:
    data = bytes(index * 31 % 251 for index in range(size))
    state = put(store, at("f"), data)
    blocks = [data[start : start + BLOCK] for start in range(0, size, BLOCK)]
    expected = BlockList(block_size=BLOCK, size_bytes=size, ids=b"".join(block_id(block) for block in blocks))
    assert (state.size_bytes, state.object_hash) == (size, expected.object_hash)
    assert read(store, at("f")) == data
    opened = store.open_object(ReadOrder(place=at("f")))
    assert b"".join(store.id_runs(opened)) == expected.ids


@pytest.mark.parametrize("piece", [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 3 * BLOCK + 5, 10 * BLOCK])
def test_a_body_is_stored_the_same_in_whatever_pieces_it_comes(store: Store, piece: int) -> None:
    """A block that lies in two pieces is joined, and nothing else moves: else an object would get another hash."""
    data = random.Random(piece).randbytes(4 * BLOCK + 9)
    order = WriteOrder(place=at("f"), content_type="t/t", meta={})
    with closing(store.receive()) as incoming:
        for start in range(0, len(data), piece):
            incoming.feed([data[start : start + piece], b""])
        state = store.put_content(order, incoming)
    assert state.object_hash == put(store, at("whole"), data).object_hash
    assert read(store, at("f")) == data


def test_any_range_can_be_read(store: Store) -> None:
    data = b"".join(letter(character) for character in "ab") + bytes(BLOCK) + b"tail"
    put(store, at("f"), data)
    opened = store.open_object(ReadOrder(place=at("f")))
    for start, length in [(0, 1), (BLOCK - 1, 2), (BLOCK, BLOCK), (2 * BLOCK - 3, BLOCK + 6), (3 * BLOCK, 4)]:
        assert b"".join(store.content(opened, start, length)) == data[start : start + length]


def test_trailing_zeros_are_content_although_the_hash_ignores_them(store: Store) -> None:
    short = put(store, at("f"), b"a" * 1000)
    long = put(store, at("f"), b"a" * 1000 + bytes(500))
    assert short.object_hash == long.object_hash
    assert read(store, at("f")) == b"a" * 1000 + bytes(500)
    assert read(store, at("f"), short.version) == b"a" * 1000


def test_a_hashmap_of_uploaded_blocks_is_an_object(store: Store) -> None:
    a, b = upload(store, "alice", letter("a"), b"bb")
    state = put_ids(store, at("f"), [a, ZERO_BLOCK, a, b], 3 * BLOCK + 7)
    assert read(store, at("f")) == letter("a") + bytes(BLOCK) + letter("a") + b"bb" + bytes(5)
    assert state.size_bytes == 3 * BLOCK + 7


def test_a_hole_needs_no_upload(store: Store) -> None:
    put_ids(store, at("f"), [ZERO_BLOCK] * 1000)
    assert read(store, at("f")) == bytes(1000 * BLOCK)


def test_missing_blocks_are_told_once_each_in_order_and_nothing_is_written(store: Store) -> None:
    (a,) = upload(store, "alice", letter("a"))
    with pytest.raises(MissingBlocks) as told:
        put_ids(store, at("f"), [letter_id("y"), a, letter_id("x"), letter_id("y"), ZERO_BLOCK])
    assert told.value.ids == [letter_id("y"), letter_id("x")]
    assert names(store) == []


# --- possession


def test_knowing_an_id_does_not_give_the_data(store: Store) -> None:
    """Breaks when the server takes another account's block for this account's: anybody could fetch it by its hash."""
    store.create_container("mallory", "m")
    put(store, at("secret"), letter("s"))
    with pytest.raises(MissingBlocks) as told:
        put_ids(store, at("loot", "m", "mallory"), [letter_id("s")])
    assert told.value.ids == [letter_id("s")]
    assert upload(store, "mallory", letter("s")) == [letter_id("s")]
    put_ids(store, at("loot", "m", "mallory"), [letter_id("s")])


def test_a_leaf_of_another_account_is_no_short_cut(store: Store) -> None:
    """The very same leaf is stored already, by its key: that must not count as possession."""
    store.create_container("mallory", "m")
    ids = upload(store, "alice", *(letter(character) for character in "abcdef"))
    put_ids(store, at("big"), ids * 100)
    with pytest.raises(MissingBlocks) as told:
        put_ids(store, at("loot", "m", "mallory"), ids * 100)
    assert told.value.ids == ids


def test_blocks_of_own_objects_can_be_named_again(store: Store) -> None:
    put(store, at("f"), letter("a") + letter("b"))
    put_ids(store, at("g"), [letter_id("b"), letter_id("a")])
    assert read(store, at("g")) == letter("b") + letter("a")


def test_one_changed_block_adds_one_leaf(store: Store) -> None:
    """Breaks when the catalogue grows with the file instead of with the change."""
    ids = upload(store, "alice", *(letter(character) for character in "abc"))
    base = (ids * 1000)[: 8 * LEAF_IDS]
    put_ids(store, at("f"), base)
    with store._catalogue.reading() as view:
        before = view.count("leaves"), view.count("contents")
    changed = [*base]
    changed[1000] = ids[(1000 + 1) % 3]
    put_ids(store, at("f"), changed)
    with store._catalogue.reading() as view:
        assert view.count("leaves") == before[0] + 1
        assert view.count("contents") == before[1] + 1


# --- versions


def test_versions_are_one_serial_and_stay_readable(store: Store, clock: Clock) -> None:
    store.create_container("alice", "d")
    first = put(store, at("f"), b"one")
    other = put(store, at("g", "d"), b"other")
    second = put(store, at("f"), b"two")
    assert first.version < other.version < second.version
    assert first.uuid == second.uuid != other.uuid
    assert first.modified_us < other.modified_us < second.modified_us  # although the clock stood still
    assert [row.version for row in store.history(at("f"))] == [first.version, second.version]
    assert read(store, at("f"), first.version) == b"one"
    clock.now_us -= 3600 * 1_000_000
    assert put(store, at("f"), b"three").modified_us > second.modified_us


def test_a_version_belongs_to_its_name(store: Store) -> None:
    other = put(store, at("g"), b"other")
    put(store, at("f"), b"mine")
    for version in (other.version, 999, 0):
        with pytest.raises(NotFound):
            read(store, at("f"), version)


def test_a_deleted_object_keeps_its_history_and_loses_its_uuid(store: Store) -> None:
    first = put(store, at("f"), b"one")
    store.delete(DeleteOrder(place=at("f")))
    assert names(store) == []
    with pytest.raises(NotFound):
        read(store, at("f"))
    assert read(store, at("f"), first.version) == b"one"
    assert [row.version for row in store.history(at("f"))] == [first.version]
    again = put(store, at("f"), b"two")
    assert again.uuid != first.uuid
    assert [row.version for row in store.history(at("f"))] == [first.version, again.version]


def test_a_move_takes_uuid_and_metadata_along_and_names_the_new_version(store: Store) -> None:
    made = put(store, at("f"), b"data", mode="644")
    moved = store.transfer(
        Transfer(
            source=at("f"),
            destination=at("g/" + "x" * 1000),
            order=TransferOrder(meta={"mtime-ns": "5"}),
            moves=True,
        )
    )
    assert moved.uuid == made.uuid
    assert moved.version > made.version
    assert moved.meta == {"mode": "644", "mtime-ns": "5"}
    assert names(store) == ["g/" + "x" * 1000]
    assert read(store, at("f"), made.version) == b"data"
    assert store.container("alice", "c").record.object_count == 1


def test_a_move_over_an_object_replaces_it(store: Store) -> None:
    put(store, at("f"), b"mover")
    old = put(store, at("g"), b"replaced!")
    moved = store.transfer(Transfer(source=at("f"), destination=at("g"), moves=True))
    assert read(store, at("g")) == b"mover"
    assert read(store, at("g"), old.version) == b"replaced!"
    assert [row.version for row in store.history(at("g"))] == [old.version, moved.version]
    record = store.container("alice", "c").record
    assert (record.object_count, record.bytes_used) == (1, 5)


def test_a_move_between_containers_counts_in_both(store: Store) -> None:
    store.create_container("alice", "d")
    put(store, at("f"), b"12345")
    store.transfer(Transfer(source=at("f"), destination=at("f", "d"), moves=True))
    counts = [store.container("alice", name).record for name in ("c", "d")]
    assert [(record.object_count, record.bytes_used) for record in counts] == [(0, 0), (1, 5)]


def test_a_move_onto_itself_is_refused(store: Store) -> None:
    put(store, at("f"), b"x")
    with pytest.raises(BadRequest):
        store.transfer(Transfer(source=at("f"), destination=at("f"), moves=True))


def test_metadata_are_replaced_by_content_and_merged_by_update(store: Store) -> None:
    put(store, at("f"), b"x", a="1", b="2")
    assert store.set_meta(MetaOrder(place=at("f"), meta={"b": "", "c": "3"}, keeps_meta=True)).meta == {
        "a": "1",
        "c": "3",
    }
    assert store.set_meta(MetaOrder(place=at("f"), meta={"d": "4"}, keeps_meta=False)).meta == {"d": "4"}
    assert put(store, at("f"), b"y").meta == {}
    many = {f"k{number}": "v" for number in range(20)}
    store.set_meta(MetaOrder(place=at("f"), meta=many, keeps_meta=True))
    with pytest.raises(BadRequest):
        store.set_meta(MetaOrder(place=at("f"), meta={f"n{number}": "v" for number in range(20)}, keeps_meta=True))


# --- conditions, atomic with the write

Write = Callable[[Store, Conditions], object]

WRITES: dict[str, Write] = {
    "put": lambda store, conditions: put(store, at("f"), b"new", conditions),
    "hashmap": lambda store, conditions: put_ids(store, at("f"), [ZERO_BLOCK], conditions=conditions),
    "meta": lambda store, conditions: store.set_meta(
        MetaOrder(place=at("f"), meta={"k": "v"}, keeps_meta=True, conditions=conditions)
    ),
    "delete": lambda store, conditions: store.delete(DeleteOrder(place=at("f"), conditions=conditions)),
    "move": lambda store, conditions: store.transfer(
        Transfer(source=at("f"), destination=at("g"), order=TransferOrder(source=conditions), moves=True)
    ),
    "move onto": lambda store, conditions: store.transfer(
        Transfer(source=at("s"), destination=at("f"), order=TransferOrder(destination=conditions), moves=True)
    ),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_with_a_stale_condition_does_nothing(store: Store, write: str) -> None:
    put(store, at("s"), b"source")
    old = put(store, at("f"), b"old")
    current = put(store, at("f"), b"current")
    for stale in (
        Conditions(if_version=old.version),
        Conditions(if_version=0),
        Conditions(if_match=parse_etags(old.etag)),
        Conditions(if_none_match=parse_etags("*")),
        Conditions(if_none_match=parse_etags(current.etag)),
    ):
        with pytest.raises(PreconditionFailed):
            WRITES[write](store, stale)
    assert read(store, at("f")) == b"current"
    assert names(store) == ["f", "s"]
    WRITES[write](store, Conditions(if_version=current.version, if_match=parse_etags(current.etag)))


@pytest.mark.parametrize("write", ["put", "hashmap", "delete"])
def test_of_parallel_writers_with_one_condition_exactly_one_wins(store: Store, write: str) -> None:
    """The fault of Synnefo's server that loses updates: six parallel PUTs with one If-Match all succeed there."""
    with ThreadPoolExecutor(6) as pool:
        for _ in range(10):
            base = put(store, at("f"), b"base")
            barrier = threading.Barrier(6)

            def attempt(_: int, base: int = base.version, barrier: threading.Barrier = barrier) -> bool:
                barrier.wait()
                try:
                    WRITES[write](store, Conditions(if_version=base))
                except (PreconditionFailed, NotFound):
                    return False
                return True

            assert sum(pool.map(attempt, range(6))) == 1


def test_reads_are_conditional_too(store: Store) -> None:
    state = put(store, at("f"), b"x")
    with pytest.raises(NotModified):
        store.open_object(ReadOrder(place=at("f"), conditions=Conditions(if_none_match=parse_etags(state.etag))))
    with pytest.raises(PreconditionFailed):
        store.open_object(ReadOrder(place=at("f"), conditions=Conditions(if_match=parse_etags("aa"))))


# --- containers and listings


def test_only_an_empty_container_goes(store: Store) -> None:
    before = store.container("alice", "c").identity
    put(store, at("f"), b"x")
    with pytest.raises(Conflict):
        store.delete_container("alice", "c")
    store.delete(DeleteOrder(place=at("f")))
    store.delete_container("alice", "c")
    for gone in (
        lambda: store.container("alice", "c"),
        lambda: names(store),
        lambda: put(store, at("f"), b"x"),
        lambda: store.history(at("f")),
    ):
        with pytest.raises(NotFound):
            gone()
    assert store.create_container("alice", "c")
    assert not store.create_container("alice", "c")
    assert store.container("alice", "c").identity != before
    with pytest.raises(NotFound):
        store.history(at("f"))


def test_a_listing_goes_on_behind_its_marker(store: Store) -> None:
    for name in ("b", "a/2", "a/1", "c", "é", "a"):
        put(store, at(name), b"x")

    def page(marker: str = "", prefix: str = "", limit: int = 100) -> list[str]:
        _, rows = store.listing("alice", "c", Selection(marker=marker, prefix=prefix, limit=limit))
        return [row.name for row in rows]

    assert page() == ["a", "a/1", "a/2", "b", "c", "é"]
    assert page(limit=2) == ["a", "a/1"]
    assert page(marker="a/1", limit=2) == ["a/2", "b"]
    assert page(marker="a/15") == ["a/2", "b", "c", "é"]  # a marker need not exist
    assert page(prefix="a/") == ["a/1", "a/2"]
    assert page(prefix="a/", marker="a/1") == ["a/2"]
    assert page(prefix="b", marker="c") == []
    assert page(prefix="zz") == []


def test_accounts_list_their_own_containers(store: Store) -> None:
    store.create_container("alice", "b")
    store.create_container("bob", "other")
    put(store, at("f"), b"12345")
    rows = store.containers("alice", Selection(limit=10))
    told = [(row.name, row.count, row.size_bytes) for row in rows if isinstance(row, ContainerRow)]
    assert told == [("b", 0, 0), ("c", 1, 5)]
    assert [row.name for row in store.containers("alice", Selection(marker="b", limit=10))] == ["c"]
    assert store.containers("nobody", Selection()) == []
    summary = store.account("alice")
    assert (summary.containers, summary.bytes_used) == (2, 5)


def test_a_delimiter_groups_containers(store: Store) -> None:
    for name in ("c-1", "c-2", "c_1"):
        store.create_container("alice", name)

    def page(**fields: object) -> list[tuple[str, bool]]:
        rows = store.containers("alice", Selection(delimiter="-", **fields))  # type: ignore[arg-type]
        return [(row.name, isinstance(row, SubdirectoryRow)) for row in rows]

    assert page() == [("c", False), ("c-", True), ("c_1", False)]
    assert page(limit=2) == [("c", False), ("c-", True)]
    assert page(marker="c-") == [("c_1", False)]
    assert page(marker="c-1") == [("c-", True), ("c_1", False)]
    assert page(prefix="c-") == [("c-1", False), ("c-2", False)]


def test_an_unchanged_listing_is_not_sent_again(store: Store, clock: Clock) -> None:
    put(store, at("f"), b"x")
    clock.now_us += 2_000_000
    view, _ = store.listing("alice", "c", Selection(limit=10))
    since = view.settled_us // 1_000_000
    with pytest.raises(NotModified):
        store.listing("alice", "c", Selection(limit=10), since=since)
    put(store, at("g"), b"x")
    _, rows = store.listing("alice", "c", Selection(limit=10), since=since)
    assert len(rows) == 2


def test_a_change_within_the_second_of_the_listing_is_not_missed(store: Store) -> None:
    put(store, at("f"), b"x")
    view, _ = store.listing("alice", "c", Selection(limit=10))
    put(store, at("g"), b"x")  # the clock has not moved
    _, rows = store.listing("alice", "c", Selection(limit=10), since=view.settled_us // 1_000_000)
    assert len(rows) == 2


# --- what a crash or a race could break


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    with open_store(tmp_path / "s", clock) as store:
        store.create_container("alice", "c")
        state = put(store, at("f"), letter("a") + b"b", k="v")
        identity = store.container("alice", "c").identity
    with open_store(tmp_path / "s", clock) as store:
        assert read(store, at("f")) == letter("a") + b"b"
        assert store.open_object(ReadOrder(place=at("f"))).state == state
        assert store.container("alice", "c").identity == identity
        assert put(store, at("f"), b"x").version == state.version + 1


def test_a_leaf_swept_between_look_and_commit_is_looked_at_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when the short cut for known leaves trusts a look that is out of date: blocks could be gone already."""
    ids = upload(store, "alice", letter("a"), letter("b"))
    put_ids(store, at("f"), ids)
    looks = []
    prepare = deltas.prepare_delta

    def sweep_behind(*arguments: object, **keywords: object) -> contents.Prepared:
        prepared = prepare(*arguments, **keywords)  # type: ignore[arg-type]  # passes everything on
        looks.append(bool(prepared.known))
        if len(looks) == 1:
            (key,) = prepared.known
            store._commits.run(lambda change: change.delete("leaves", key))
        return prepared

    monkeypatch.setattr(deltas, "prepare_delta", sweep_behind)
    put_ids(store, at("g"), ids)
    assert looks == [True, False]
    assert read(store, at("g")) == letter("a") + letter("b")


def test_of_segments_and_manifests_nothing_is_held_that_nobody_is_told(store: Store) -> None:
    """Breaks when a HEAD of an object of 10,000 segments holds their header fields, and a list long manifests."""

    def write(name: str, data: bytes, manifest: str = "") -> None:
        fields = {"Expires": "x" * 1024}
        order = WriteOrder(place=at(name), content_type="t/t", meta={"k": "v"}, fields=fields, manifest=manifest)
        with closing(store.receive(md5=True)) as incoming:
            incoming.feed([data])
            store.put_content(order, incoming)

    write("parts/1", b"one")
    write("dynamic", b"", "c/parts/")
    order = WriteOrder(place=at("static"), content_type="t/t", meta={})
    _, etag = store.put_static(order, [Wanted(path="/c/parts/1")])
    for name in ("dynamic", "static"):
        (segment,) = store.open_object(ReadOrder(place=at(name), joins=True)).segments
        assert (segment.record.meta, segment.record.fields, segment.state.meta) == ({}, {}, {})
    _, rows = store.listing("alice", "c", Selection())
    assert [row.manifest for row in rows if isinstance(row, ObjectRow)] == ["", "", f"/3/{etag}"]


def test_a_part_of_what_is_no_longer_shared_when_it_is_opened_is_not_copied(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_container("bob", "c")
    source, target = at("f"), at("g", account="bob")
    put(store, source, b"for bob")
    store.shares.share(source, ["bob"])
    wanted = Transfer(source=source, destination=target, moves=False, joins=True, ranges="bytes=0-")
    assert store.transfer(wanted).size_bytes == 7
    open_object = store.open_object

    def open_later(order: ReadOrder) -> ObjectView:
        store.shares.share(source, [])
        put(store, source, b"private")
        return open_object(order)

    monkeypatch.setattr(store, "open_object", open_later)
    with pytest.raises(Forbidden):
        store.transfer(wanted)


def test_a_reader_who_had_to_wait_is_not_shown_what_is_not_shared_any_more(store: Store) -> None:
    put(store, at("f"), b"for bob")
    store.shares.share(at("f"), ["bob"])
    asked = ReadOrder(place=at("f"), reader="bob")
    assert store.open_object(asked).state.size_bytes == 7
    private = WriteOrder(place=at("f"), content_type="t/t", meta={}, readers=[])
    with closing(store.receive()) as incoming:
        incoming.feed([b"private"])
        store.put_content(private, incoming)
    with pytest.raises(Forbidden):
        store.open_object(asked)


def test_of_two_writes_each_has_its_own_readers(store: Store) -> None:
    for name in ("bob", "carol"):
        order = WriteOrder(place=at("f"), content_type="t/t", meta={}, readers=[name])
        with closing(store.receive()) as incoming:
            incoming.feed([name.encode()])
            store.put_content(order, incoming)
        store.shares.require_readable(name, at("f"), None)
    with pytest.raises(Forbidden):
        store.shares.require_readable("bob", at("f"), None)


def test_what_a_refusal_saw_is_let_go_of_before_python_looks_for_cycles(store: Store) -> None:
    """LMDB has 1024 slots for who reads: that many refusals, kept by their tracebacks, ended all reading."""
    put(store, at("o"), b"x")
    environment = store._catalogue._environment
    before = environment.readers()
    told = []
    for act in (
        lambda: read(store, at("nope")),
        lambda: store.shares.require_readable("bob", at("o"), None),
        lambda: put(store, at("o"), b"y", Conditions(if_version=7)),
        lambda: put_ids(store, at("o"), [letter_id("q")]),
    ):
        with pytest.raises((NotFound, Forbidden, PreconditionFailed, MissingBlocks)) as refused:
            act()
        told.append(refused)
    assert environment.readers() == before
    assert len(told) == 4
