"""Which directory an inotify watch is, through renames; dirt as a value."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncer.core.model import RelPath
from syncer.watch.dirt import CLEAN, EVERYTHING, MAX_DIRECTORIES, MAX_ENTRIES, Dirt
from syncer.watch.inotify import WatchTree
from syncer.watch.source import Mailbox

ROOT = 1


def tree(*places: tuple[int, int, bytes]) -> WatchTree:
    found = WatchTree()
    found.put_root(ROOT)
    for wd, parent, name in places:
        found.put(wd, parent, name)
    return found


def test_a_rename_moves_all_below() -> None:
    watches = tree((2, ROOT, b"a"), (3, 2, b"b"), (4, 3, b"c"))
    watches.detach(ROOT, b"a")
    assert [watches.path(wd) for wd in (2, 3, 4)] == [None, None, None]
    watches.put(2, ROOT, b"z")
    assert [watches.path(wd) for wd in (2, 3, 4)] == [b"z", b"z/b", b"z/b/c"]


def test_another_directory_may_take_a_name() -> None:
    watches = tree((2, ROOT, b"a"), (3, 2, b"b"))
    watches.put(4, ROOT, b"a")
    watches.put(2, ROOT, b"old")
    assert watches.child(ROOT, b"a") == 4
    assert watches.path(3) == b"old/b"


def test_a_watch_that_is_gone_has_no_path_nor_have_those_below() -> None:
    watches = tree((2, ROOT, b"a"), (3, 2, b"b"))
    watches.forget(2)
    assert watches.path(2) is None
    assert watches.path(3) is None
    assert watches.child(ROOT, b"a") is None


@given(st.lists(st.tuples(st.integers(2, 9), st.integers(1, 9), st.sampled_from([b"a", b"b", b"c"]))))
def test_paths_agree_with_a_plain_model(moves: list[tuple[int, int, bytes]]) -> None:
    watches, model = tree(), {ROOT: (0, b"")}

    def is_below(wd: int, top: int) -> bool:
        while wd in model and wd != ROOT:
            if wd == top:
                return True
            wd = model[wd][0]
        return wd == top

    for wd, parent, name in moves:
        if parent not in model or is_below(parent, wd) or (parent, name) in model.values():
            continue
        watches.put(wd, parent, name)
        model[wd] = (parent, name)
    for wd in model.keys() - {ROOT}:
        names, at = [], wd
        while at != ROOT:
            at, name = model[at]
            names.append(name)
        assert watches.path(wd) == b"/".join(reversed(names))
        assert watches.child(*model[wd]) == wd


def test_too_much_dirt_is_everything() -> None:
    some = Dirt(directories=frozenset(RelPath(b"%d" % number) for number in range(MAX_DIRECTORIES)))
    assert not (some | CLEAN).everything
    assert (some | Dirt(directories=frozenset({RelPath(b"one more")}))) == EVERYTHING
    assert some | EVERYTHING == EVERYTHING
    assert not CLEAN


def test_many_dirty_entries_are_told_by_their_directories() -> None:
    one = Dirt(entries=frozenset({RelPath(b"other/one")}))
    some = Dirt(entries=frozenset(RelPath(b"a/%d" % number) for number in range(MAX_ENTRIES)))
    assert some
    assert (some | CLEAN) == some
    assert (some | one) == Dirt(directories=frozenset({RelPath(b"a"), RelPath(b"other")}))


def test_a_mailbox_tells_many_entries_by_their_directories() -> None:
    mailbox = Mailbox()
    mailbox.put(set(), {RelPath(b"b/one")})
    assert mailbox.take() == Dirt(entries=frozenset({RelPath(b"b/one")}))
    mailbox.put(set(), {RelPath(b"a/%d" % number) for number in range(MAX_ENTRIES)})
    mailbox.put({RelPath(b"c")}, {RelPath(b"b/one")})
    assert mailbox.take().directories == {b"a", b"b", b"c"}
    assert mailbox.take() == CLEAN
