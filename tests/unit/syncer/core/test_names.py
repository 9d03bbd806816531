"""Paths and the names of conflict copies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.core.conflict import (
    ConflictName,
    conflict_name,
    hash6,
    host_label,
    is_copy_of,
    parse_conflict_name,
    split_extension,
)
from syncer.core.model import PARK, Kind, Nid, Node, RelPath
from syncer.core.paths import (
    ancestors,
    is_private,
    join,
    park_name,
    parse_park_name,
    path_in,
    paths_of,
    rel_path,
    remote_objection,
    split,
)
from syncer.errors import UnsafeNameError
from tests import strategies
from tests.unit.syncer.core.trees import content, file, folder, link, tree


def named(name: bytes, kind: Kind = Kind.FILE) -> Node:
    return Node(
        parent=Nid(0),
        name=name,
        kind=kind,
        content=content(7) if kind is Kind.FILE else None,
        target=b"t" if kind is Kind.SYMLINK else None,
    )


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        (b"disk.img", Kind.FILE, b"disk (conflict pc T 070707).img"),
        (b"plain", Kind.FILE, b"plain (conflict pc T 070707)"),
        (b".bashrc", Kind.FILE, b".bashrc (conflict pc T 070707)"),
        (b"a.tar.gz", Kind.FILE, b"a.tar (conflict pc T 070707).gz"),
        (b"ends.", Kind.FILE, b"ends. (conflict pc T 070707)"),
        (b"v1.2 of the plan for next year", Kind.FILE, b"v1.2 of the plan for next year (conflict pc T 070707)"),
        (b"\xff\xfe.bin", Kind.FILE, b"\xff\xfe (conflict pc T 070707).bin"),
        (b"dir.d", Kind.DIRECTORY, b"dir.d (conflict pc T 3ab77f)"),
        (b"l", Kind.SYMLINK, b"l (conflict pc T e3b98a)"),
    ],
)
def test_the_conflict_name_of(name: bytes, kind: Kind, expected: bytes) -> None:
    assert conflict_name(named(name, kind), host="pc", utc="T", taken=()) == expected


# Stems around the length at which a name must be cut; bytes that are no UTF-8; marks and dots inside.
_ENDS = (b"", b".img", b".x (conflict y", b" (conflict pc 20260101T000000Z 070707)")
_ODD = (b"a (conflict pc 20260101T000000Z 070707).img", b"a.x (conflict y", b".bashrc", b"a\n.b\n", b"a.b)")
_LOST_NAMES = st.one_of(
    strategies.names,
    st.builds(
        lambda letter, count, end: (letter * count).encode()[:240] + end,
        st.sampled_from("aé漢😀"),
        st.integers(60, 240),
        st.sampled_from(_ENDS),
    ),
    st.sampled_from(_ODD),
).filter(lambda name: len(name) <= 255)


@given(
    _LOST_NAMES,
    st.sampled_from(Kind),
    st.text(max_size=40),
    st.datetimes().map(lambda time: time.strftime("%Y%m%dT%H%M%SZ").rjust(16, "0")),
    st.integers(0, 3),
)
def test_a_conflict_name_says_what_it_was_made_of(name: bytes, kind: Kind, host: str, utc: str, others: int) -> None:
    node, taken = named(name, kind), set[bytes]()
    for _ in range(others):
        taken.add(conflict_name(node, host=host, utc=utc, taken=taken))
    made = conflict_name(node, host=host, utc=utc, taken=taken)
    found = parse_conflict_name(made)
    stem, extension = split_extension(name, kind)
    assert found is not None
    assert stem.startswith(found.stem)
    assert found == ConflictName(
        stem=stem if not found.cut else found.stem,
        extension=extension,
        host=host_label(host),
        utc=utc,
        hash6=hash6(node),
        number=others + 1,
        cut=len(made) > 251,
    )
    assert found.may_be_of(name)
    if not found.cut:
        assert found.original == name


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b"plain",
        b" (conflict pc T 070707)",
        b"a (conflict pc T 07070)",
        b"a (conflict pc T 07070g)",
        b"a (conflict pc 070707)",
        b"a (conflict pc T 070707",
        b"a (conflict pc T 070707) b",
        b"a (conflict pc T 070707 0)",
        b"a (conflict pc T 070707).",
        b"a (conflict pc T 070707).a.b",
        b"a (conflict p/c T 070707)",
    ],
)
def test_what_is_no_conflict_name_is_not_taken_for_one(name: bytes) -> None:
    assert parse_conflict_name(name) is None


@given(st.binary(max_size=255))
def test_any_bytes_can_be_asked_whether_they_are_a_conflict_name(name: bytes) -> None:
    parse_conflict_name(name)
    parse_conflict_name(b"a (conflict pc " + name)


def test_a_taken_conflict_name_gets_a_number() -> None:
    taken = {b"a (conflict pc T 070707)", b"a (conflict pc T 070707 2)"}
    assert conflict_name(named(b"a"), host="pc", utc="T", taken=taken) == b"a (conflict pc T 070707 3)"


def test_a_host_name_can_not_break_the_pattern() -> None:
    assert host_label("my (old) ho/st") == "my__old__ho_st"
    assert host_label("") == "host"


@given(strategies.names, st.sampled_from(Kind), st.text(max_size=60))
def test_a_conflict_name_can_be_held_and_is_recognised(name: bytes, kind: Kind, host: str) -> None:
    node = named(name, kind)
    made = conflict_name(node, host=host, utc="20240131T120000Z", taken=())
    assert len(made) <= 255
    assert made != name
    assert is_copy_of(made, node)
    assert hash6(node).encode() in made


@given(strategies.text_names)
def test_a_cut_conflict_name_is_still_utf8(name: str) -> None:
    long = (name * 255).encode()[:255].decode("utf-8", "ignore").encode()
    conflict_name(named(long), host="h", utc="T", taken=()).decode("utf-8")


@given(strategies.names, strategies.names)
def test_a_copy_of_another_name_is_not_taken_for_it(one: bytes, two: bytes) -> None:
    first, second = named(one[:60]), named(two[:60])
    made = conflict_name(first, host="h", utc="T", taken=())
    assert is_copy_of(made, second) == (first.name == second.name)


def test_a_copy_of_other_content_is_not_taken_for_it() -> None:
    made = conflict_name(named(b"a"), host="h", utc="T", taken=())
    assert not is_copy_of(made, file("a", 8))
    assert not is_copy_of(b"a (conflict of interest).txt", file("a.txt", 8))


@given(strategies.names)
def test_splitting_off_an_extension_loses_nothing(name: bytes) -> None:
    assert b"".join(split_extension(name, Kind.FILE)) == name


@given(strategies.paths)
def test_a_safe_path_is_accepted_as_it_is(path: RelPath) -> None:
    assert rel_path(path) == path
    parent, name = split(path)
    assert join(parent, name) == path
    assert [above for above in ancestors(path) if above] == list(ancestors(path))
    assert sum(1 for _ in ancestors(path)) == path.count(b"/")


@pytest.mark.parametrize("raw", [b"/a", b"a/", b"a//b", b".", b"..", b"a/../b", b"a/./b", b"a\0b", b"x" * 256])
def test_an_unsafe_path_is_refused(raw: bytes) -> None:
    with pytest.raises(UnsafeNameError) as caught:
        rel_path(raw)
    assert caught.value.name == raw
    assert caught.value.exit_code == 3


def test_only_the_private_folder_is_private() -> None:
    assert is_private(RelPath(b".blocksync"))
    assert is_private(RelPath(b".blocksync/x"))
    assert not is_private(RelPath(b".blocksyncs"))
    assert not is_private(RelPath(b"a/.blocksync"))


@given(strategies.nids, strategies.names, st.integers(0, 3))
def test_a_parked_name_tells_the_number(nid: Nid, name: bytes, attempt: int) -> None:
    parked = park_name(nid, name, attempt)
    assert len(parked) <= 255
    number, rest = parse_park_name(parked)
    assert number == nid
    assert (b"~" * attempt + name).startswith(rest)


@pytest.mark.parametrize("raw", [b"x", b"-x", b"12-", b"1x-y"])
def test_a_foreign_name_in_the_park_has_no_number(raw: bytes) -> None:
    assert parse_park_name(raw) == (None, raw)


def test_paths_of_leaves_out_orphans_and_cycles() -> None:
    nodes = tree({
        1: folder("a"), 2: file("b", 1, parent=1), 3: folder("x", parent=4), 4: folder("y", parent=3),
        5: link("l", "t", parent=99), 6: file("p", 1, parent=3),
    })  # fmt: skip
    nodes[Nid(7)] = Node(parent=PARK, name=b"7-p", kind=Kind.FILE)
    assert paths_of(nodes) == {1: b"a", 2: b"a/b", 7: b".blocksync/park/7-p"}
    assert [path_in(nodes, Nid(nid)) for nid in (2, 3, 5, 6, 7)] == [b"a/b", None, None, None, b".blocksync/park/7-p"]


def test_the_server_takes_utf8_only() -> None:
    assert remote_objection("Ünïcödé 日本".encode()) is None
    assert remote_objection(b"\xff") is not None
    assert remote_objection(b"a\nb") is not None
