"""What came true of orders whose outcome nobody told."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from syncer.core.base import BaseIndex
from syncer.core.model import PARK, BaseRow, Nid, Node, RemoteStat
from syncer.core.planner.bookings import came_true, changed, halfway
from syncer.core.planner.outcome import Booking, Forgotten
from tests.unit.syncer.core.trees import base_of, file, folder, local_tag, remote_file, remote_folder, remote_tag

UUID = remote_tag(1).uuid


def booking(number: int, node: Node | None, uuid: str = "") -> Booking:
    return Booking(nid=Nid(number), node=node, uuid=uuid, local=local_tag(number, ctime=9))


def there(path: str, number: int, uuid: int) -> RemoteStat:
    node = file("x", number)
    return remote_file(path, number, uuid=uuid, version=7, meta=node.meta)


def found(booked: Sequence[Booking], base: BaseIndex, objects: Sequence[RemoteStat]) -> dict[Nid, BaseRow]:
    return dict(changed(base, came_true(booked, base, objects)).rows)


def test_an_edit_that_arrived_is_the_base() -> None:
    base = base_of({1: file("a", 1)})
    rows = found([booking(1, file("a", 2), UUID)], base, [there("a", 2, 1)])
    assert rows[Nid(1)].node.content == file("a", 2).content
    assert (rows[Nid(1)].remote, rows[Nid(1)].local) == (there("a", 2, 1).tag, local_tag(1, ctime=9))


def test_what_did_not_arrive_or_was_written_over_leaves_the_base() -> None:
    base = base_of({1: file("a", 1)})
    for content in (1, 3):
        assert found([booking(1, file("a", 2), UUID)], base, [there("a", content, 1)]) == base.rows


def test_other_metadata_than_ours_is_somebodys() -> None:
    base = base_of({1: file("a", 1)})
    theirs = remote_file("a", 2, uuid=1, version=8, meta=file("a", 2, mode=0o600).meta)
    assert found([booking(1, file("a", 2), UUID)], base, [theirs]) == base.rows


def test_a_new_file_in_a_new_folder() -> None:
    new = [booking(1, folder("d")), booking(2, file("f", 5, parent=1))]
    rows = found(new, BaseIndex(), [remote_folder("d", uuid=1), there("d/f", 5, 2)])
    assert rows.keys() == {1, 2}
    assert not found(new, BaseIndex(), [there("d/f", 5, 2)]), "without its folder it would have no path"


def test_a_rename_counts_by_what_was_moved_and_not_by_an_equal_file() -> None:
    base = base_of({1: file("a", 1)})
    moved = booking(1, file("b", 1), UUID)
    assert found([moved], base, [there("b", 1, 1)])[Nid(1)].node.name == b"b"
    assert found([moved], base, [there("a", 1, 1), there("b", 1, 2)]) == base.rows


def test_a_file_is_found_where_its_folder_was_moved_later() -> None:
    base = base_of({1: folder("d"), 2: file("f", 1, parent=1)})
    booked = [booking(2, file("f", 2, parent=1), remote_tag(2).uuid), booking(1, folder("e"), UUID)]
    rows = found(booked, base, [remote_folder("e", uuid=1), there("e/f", 2, 2)])
    assert (rows[Nid(1)].node.name, rows[Nid(2)].node.content) == (b"e", file("f", 2).content)


def test_a_deletion_that_arrived_is_forgotten_and_no_folder_before_what_is_in_it() -> None:
    base = base_of({1: folder("d"), 2: file("f", 1, parent=1)})
    both = [booking(2, None, remote_tag(2).uuid), booking(1, None, UUID)]
    assert came_true(both, base, []) == [Forgotten(nid=Nid(2)), Forgotten(nid=Nid(1))]
    assert came_true(both[1:], base, []) == []
    assert came_true(both[:1], base, [there("elsewhere", 1, 2)]) == [], "somebody moved it, and it is there"


def test_what_the_base_has_by_now_is_not_taken_twice() -> None:
    """A program that knows no bookings may have recorded it since, as another node."""
    base = base_of({9: file("a", 2)})
    assert came_true([booking(1, file("a", 2))], base, [there("a", 2, 9)]) == []


@given(st.lists(st.tuples(st.integers(1, 6), st.sampled_from("abc"), st.integers(1, 3)), max_size=12), st.data())
def test_the_base_gets_only_what_the_server_has(orders: list[tuple[int, str, int]], data: st.DataObject) -> None:
    """Whatever is booked: a row that is not the old one is an object of the server, where and as it is there."""
    base = base_of({1: file("a", 1), 2: file("b", 2)})
    booked = []
    for number, name, content in orders:
        gone = data.draw(st.booleans())
        uuid = remote_tag(number).uuid if number in (1, 2) else ""
        booked.append(booking(number, None if gone else file(name, content), uuid))
    names = data.draw(st.lists(st.sampled_from("abc"), unique=True))
    objects = [there(name, data.draw(st.integers(1, 3)), at) for at, name in enumerate(names, 1)]
    after = changed(base, came_true(booked, base, objects))
    at = {stat.path: stat for stat in objects}
    for nid, row in after.rows.items():
        if row != base.rows.get(nid):
            stat = at[after.paths[nid]]
            assert (row.remote, row.node.content) == (stat.tag, stat.content)
    uuids = {stat.tag.uuid for stat in objects}
    gone = [row for nid, row in base.rows.items() if nid not in after.rows]
    assert all(row.remote is not None and row.remote.uuid not in uuids for row in gone)


def test_half_a_move_is_ended_deepest_first_and_the_folder_last() -> None:
    base = base_of({1: folder("d"), 2: folder("e", parent=1), 3: file("f", 1, parent=2), 4: file("g", 1, parent=1)})
    objects = [remote_folder("d", uuid=1), remote_folder("d/e", uuid=2), there("new/e/f", 1, 3), there("d/g", 1, 4)]
    steps = [(stat.path, target) for stat, target in halfway([booking(1, folder("new"), UUID)], base, objects)]
    assert steps == [(b"d/e", b"new/e"), (b"d/g", b"new/g"), (b"d", b"new")]


def test_a_move_that_was_not_begun_or_is_done_is_left_alone() -> None:
    base = base_of({1: folder("d"), 2: file("f", 1, parent=1)})
    moved = booking(1, folder("new"), UUID)
    assert halfway([moved], base, [remote_folder("d", uuid=1), there("d/f", 1, 2)]) == []
    assert halfway([moved], base, [remote_folder("new", uuid=1), there("new/f", 1, 2)]) == []


def test_a_move_to_the_park_is_ended_but_never_the_base() -> None:
    base = base_of({1: folder("d"), 2: file("f", 1, parent=1)})
    parked = booking(1, folder("d").placed(PARK, b"1-d"), UUID)
    park = ".blocksync/park/1-d"
    steps = halfway([parked], base, [remote_folder("d", uuid=1), there(f"{park}/f", 1, 2)])
    assert [(stat.path, target) for stat, target in steps] == [(b"d", park.encode())]
    assert came_true([parked], base, [remote_folder(park, uuid=1), there(f"{park}/f", 1, 2)]) == []


def test_a_folder_that_somebody_moved_since_is_not_moved_back() -> None:
    """A change of mode was booked, or a move that was done: then they renamed it, and put a file where it had been."""
    base = base_of({1: folder("d"), 2: file("f", 1, parent=1), 3: file("g", 1, parent=1)})
    for booked, place in ((folder("d", mode=0o700), "d"), (folder("new"), "new")):
        objects = [remote_folder("theirs", uuid=1), there("theirs/g", 1, 3), there(f"{place}/f", 1, 2)]
        assert halfway([booking(1, booked, UUID)], base, objects) == []
