from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from blockfs.xattrs import PREFIX, carried, to_change
from syncer.core import xattrs
from syncer.core.model import ROOT, Content, Kind, Node, SetMeta, meta_of
from syncer.core.planner.diff import meta_change
from syncer.core.planner.merge import merge_meta
from syncer.core.planner.outcome import agreed
from syncer.core.xattrs import MAX_BYTES, NAME_MAX, XattrError, as_xattrs, fitting, merge, pack, same, united, unpack
from tests import strategies
from tests.unit.syncer.core.trees import content, file, folder, plan

few = st.dictionaries(st.sampled_from([b"a", b"b", b"c"]), st.sampled_from([b"1", b"2"]))
maybe = st.none() | few.map(as_xattrs)


def node(attributes: xattrs.Xattrs | None) -> Node:
    held: Content = content(1)
    return Node(parent=ROOT, name=b"x", kind=Kind.FILE, content=held, meta=meta_of(0o644, xattrs=attributes))


@given(strategies.xattrs)
def test_what_is_packed_comes_back(some: xattrs.Xattrs) -> None:
    assert unpack(pack(some)) == some


@given(st.binary(max_size=60))
def test_any_bytes_are_a_set_or_an_error(raw: bytes) -> None:
    try:
        found = unpack(raw)
    except XattrError:
        return
    assert all(0 < len(name) <= NAME_MAX and b"\0" not in name for name, _ in found)
    assert unpack(pack(found)) == found


def test_more_than_fits_is_an_error() -> None:
    with pytest.raises(XattrError, match=str(MAX_BYTES)):
        pack(((b"a", b"x" * MAX_BYTES),))


@given(st.dictionaries(strategies.xattr_names, st.integers(0, 9000).map(bytes), max_size=8))
def test_what_is_carried_fits_and_what_is_not_is_named(some: dict[bytes, bytes]) -> None:
    found = fitting([(PREFIX + name, value) for name, value in some.items()] + [(b"security.x", b"1")])
    assert [name for name, _ in found] == sorted(some)
    assert all(value in (None, some[name]) for name, value in found)
    pack(found)
    left = [name for name, value in found if value is None]
    for name in left:  # nothing smaller was left out for it
        assert all(len(other) + len(some[other]) <= len(name) + len(some[name]) for other in some if other not in left)


@given(maybe, maybe, maybe)
def test_merging_takes_every_single_change_and_the_servers_if_both_changed(
    base: xattrs.Xattrs | None, local: xattrs.Xattrs | None, remote: xattrs.Xattrs | None
) -> None:
    merged = merge(base, local, remote)
    if local is None or remote is None:
        one = remote if local is None else local
        assert (merged or ()) in (one or (), base or ())
        return
    was, here, there, then = dict(base or ()), dict(local), dict(remote), dict(merged or ())
    assert (merged is None) == (not then and not was)
    for name in (b"a", b"b", b"c"):
        changed_there = there.get(name) != was.get(name)
        assert then.get(name) == (there if changed_there else here).get(name)


@given(maybe, few.map(as_xattrs), few.map(as_xattrs))
def test_both_sides_end_equal_and_agree(
    base: xattrs.Xattrs | None, local: xattrs.Xattrs, remote: xattrs.Xattrs
) -> None:
    was, here, there = node(base), node(local), node(remote)
    target = merge_meta(was, here, there)
    for side in (here, there):
        step = meta_change(side.meta, target, was.meta)
        after = side.meta if step is None else side.meta.overlaid(step)
        assert same(after.xattrs, target.xattrs)
    settled = agreed(was, node(target.xattrs), node(target.xattrs))
    assert settled is not None
    assert settled.meta.xattrs == target.xattrs  # an empty set stays one, if the server was told of it
    untold = agreed(was, node(target.xattrs), node(target.xattrs or None))
    assert untold is None or untold.meta.xattrs == (target.xattrs or None)
    assert meta_change(settled.meta, settled.meta, settled.meta) is None


def test_a_side_without_an_opinion_learns_only_what_the_other_changed() -> None:
    assert xattrs.change(None, (), None) is None
    assert xattrs.change(None, ((b"a", b"1"),), ((b"a", b"1"),)) is None
    assert xattrs.change(None, ((b"a", b"1"),), None) == ((b"a", b"1"),)
    assert xattrs.change(None, (), ((b"a", b"1"),)) == ()


def test_one_that_does_not_fit_is_neither_removed_there_nor_overwritten_here() -> None:
    base, remote = ((b"big", b"old"), (b"x", b"1")), ((b"big", b"old"), (b"x", b"2"))
    local = ((b"big", None), (b"x", b"1"))
    assert merge(base, local, remote) == remote
    assert to_change(local, remote) == {b"user.x": b"2"}
    assert agreed(node(base), node(((b"big", None), (b"x", b"2"))), node(remote)) == node(remote)


def test_one_that_does_not_fit_is_not_removed_where_the_server_has_no_opinion() -> None:
    assert merge(((b"big", b"old"),), ((b"big", None), (b"x", b"1")), None) == ((b"big", b"old"), (b"x", b"1"))


def test_what_becomes_a_known_node_gets_the_attributes_that_its_row_has() -> None:
    """Else the row says of it what it never had, and the next cycle takes that for a removal."""
    known, made = _with(folder("d"), ((b"p", b"1"),)), folder("e")
    done = plan({2: known}, {3: made}, {2: replace(known, name=b"e")})
    assert [(type(action), action.meta.xattrs) for action in done.local] == [(SetMeta, ((b"p", b"1"),))]  # type: ignore[union-attr] # checked
    assert not done.remote


def test_a_removal_here_waits_until_the_server_is_told() -> None:
    assert agreed(node(((b"a", b"1"),)), node(()), node(None)) is None
    assert agreed(node(((b"a", b"1"),)), node(None), node(None)) is not None


@given(maybe, maybe)
def test_two_that_become_one_lose_none(one: xattrs.Xattrs | None, other: xattrs.Xattrs | None) -> None:
    both = united(one, other)
    assert dict(both or ()) == {**dict(one or ()), **dict(other or ())}
    assert (both is None) == (one is None and other is None)


def test_what_was_removed_from_the_one_that_stays_does_not_come_back() -> None:
    assert united(((b"x", b"1"), (b"y", b"1")), (), ((b"x", b"1"),)) == ((b"y", b"1"),)
    assert united(None, (), ((b"x", b"1"),)) == ()  # an order to remove it stays one


def test_what_is_too_large_to_travel_is_no_part_of_what_two_become() -> None:
    assert united(((b"big", None), (b"x", b"1")), None) == ((b"x", b"1"),)
    assert united(((b"big", None),), ((b"big", b"2"),)) == ((b"big", b"2"),)


@pytest.mark.parametrize("made", [folder("d"), file("d", 1)], ids=["directory", "file"])
@pytest.mark.parametrize("there", [None, (), ((b"q", b"2"),)], ids=["unknown", "none", "another"])
def test_equal_new_nodes_unite_their_attributes(made: Node, there: xattrs.Xattrs | None) -> None:
    """Both sides made it before they met: the attributes of neither were removed by anybody."""
    here: xattrs.Xattrs = ((b"big", None), (b"p", b"1"))
    both = tuple(sorted({b"p": b"1", **dict(there or ())}.items()))
    done = plan({}, {5: _with(made, here)}, {6: _with(made, there)})
    assert [node.meta.xattrs for node in done.target.values()] == [both]
    assert [(type(action), action.meta.xattrs) for action in done.remote] == [(SetMeta, both)]  # type: ignore[union-attr] # checked
    assert bool(done.local) == bool(there)


@pytest.mark.parametrize("made", [folder("d"), file("d", 1)], ids=["directory", "file"])
def test_a_server_is_not_told_of_what_is_too_large_to_travel(made: Node) -> None:
    assert plan({}, {5: _with(made, ((b"big", None),))}, {6: made}).is_empty
    (action,) = plan({}, {5: _with(made, ((b"big", None),))}, {}).remote
    assert action.meta.xattrs == ()  # type: ignore[union-attr] # it makes something


def _with(made: Node, attributes: xattrs.Xattrs | None) -> Node:
    return replace(made, meta=replace(made.meta, xattrs=attributes))


def test_changes_name_what_is_set_and_what_is_removed() -> None:
    have = carried([(b"user.a", b"1"), (b"user.b", b"2"), (b"security.s", b"3")], MAX_BYTES)
    assert to_change(have, ((b"a", b"9"), (b"c", b"3"))) == {b"user.a": b"9", b"user.c": b"3", b"user.b": None}


large = st.dictionaries(st.sampled_from([b"a", b"b", b"c"]), st.sampled_from([b"1", b"2", None]))


@given(seen=large, want=few, now=large)
def test_what_somebody_did_since_the_look_stays_but_where_it_is_to_change_anyway(
    seen: dict[bytes, bytes | None], want: dict[bytes, bytes], now: dict[bytes, bytes | None]
) -> None:
    changes = to_change(tuple(now.items()), tuple(want.items()), tuple(seen.items()))
    found = {name: changes.get(PREFIX + name, now.get(name)) for name in (b"a", b"b", b"c")}
    for name, value in found.items():
        # A value of None is there, and too large to be told: nobody removes or replaces it.
        untellable = (name in now and now[name] is None) or (name in seen and seen[name] is None)
        left_alone = untellable or want.get(name) == seen.get(name)
        assert value == (now.get(name) if left_alone else want.get(name))


def test_without_a_change_meanwhile_the_look_makes_no_difference() -> None:
    have, want = ((b"a", b"1"), (b"b", b"2")), ((b"b", b"3"), (b"c", b"4"))
    assert to_change(have, want, have) == to_change(have, want)
