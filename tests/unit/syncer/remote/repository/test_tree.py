"""Trees: names, directories and paths; what is damaged is named."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.core.model import Kind, Meta, RelPath
from syncer.errors import DamagedObjectError
from syncer.remote.repository.format.entries import (
    PARKED,
    TOP,
    Bytes,
    Entry,
    Up,
    decode_entry,
    decode_up,
    encode,
    key_of,
    split_key,
)
from syncer.remote.repository.format.history import DeviceId, Dot
from syncer.remote.repository.format.prolly import update
from syncer.remote.repository.merge import EMPTY
from syncer.remote.repository.tree import Tree
from syncer.remote.repository.writing.draft import Draft
from tests.unit.syncer.remote.repository.nodes import MemoryNodes
from tests.unit.syncer.remote.repository.world import SHAPE

DEVICE = DeviceId(b"d" * 16)
DOT = Dot(DEVICE, 3)
META = Meta(mode=0o644, special=0o4000, mtime_ns=5, xattrs=((b"name", b"value"),))
FILE = Bytes(size_bytes=9, object_hash=bytes(32), blocks=b"", chunks=b"where")


def entry(**changes: object) -> Entry:
    plain = Entry(
        object=b"o" * 16, kind=0, number=7, placed=DOT, filled=DOT, noted=DOT, made_us=1, mode=0o644, file=FILE
    )
    return msgspec.structs.replace(plain, **changes)


def drafted() -> tuple[MemoryNodes, Draft]:
    nodes = MemoryNodes()
    return nodes, Draft(nodes, EMPTY, DEVICE)


def test_an_entry_comes_back_as_it_was() -> None:
    one = entry(special=0o7000, mtime_ns=1 << 62, xattrs=META.xattrs)
    assert decode_entry(b"k" * 17, encode(one)) == one
    assert one.stat(RelPath(b"path")).content == FILE.content
    assert decode_up(b"k" * 16, encode(Up(parent=TOP, name=b"n"))) == Up(parent=TOP, name=b"n")


@given(data=st.binary(max_size=80))
def test_no_bytes_are_taken_for_an_entry_that_they_are_not(data: bytes) -> None:
    for decode in (decode_entry, decode_up):
        with pytest.raises(DamagedObjectError):
            decode(b"k" * 17, data)


@pytest.mark.parametrize(
    "changes",
    [
        {"object": b"short"},
        {"object": TOP},
        {"object": PARKED},
        {"kind": 3},
        {"kind": -1},
        {"kind": 1},
        {"kind": 2},
        {"file": None},
        {"target": b"x"},
        {"kind": 2, "file": None, "target": b""},
        {"number": -1},
        {"mode": 0o1000},
        {"special": 0o777},
        {"file": msgspec.structs.replace(FILE, size_bytes=-1)},
        {"file": msgspec.structs.replace(FILE, object_hash=b"")},
    ],
)
def test_an_entry_that_says_what_cannot_be_is_refused(changes: Mapping[str, object]) -> None:
    with pytest.raises(DamagedObjectError, match="no entry of a tree"):
        decode_entry(b"k" * 17, encode(entry(**changes)))


@pytest.mark.parametrize("key", [b"short", b"p" * 16 + b"a/b", b"p" * 16 + b"..", b"p" * 16 + b"\0"])
def test_a_name_that_no_directory_can_have_is_refused(key: bytes) -> None:
    with pytest.raises(DamagedObjectError):
        split_key(key)


def test_the_tag_tells_versions_apart_and_not_where_chunks_are() -> None:
    one = entry()
    assert one.tag() == entry(file=msgspec.structs.replace(FILE, chunks=b"elsewhere", blocks=b"too")).tag()
    others = [entry(number=8), entry(mode=0o600), entry(file=msgspec.structs.replace(FILE, object_hash=b"x" * 32))]
    assert len({one.tag(), *(other.tag() for other in others)}) == 4


def test_paths_are_found_name_by_name_and_told_from_the_directories() -> None:
    nodes, draft = drafted()
    directory = draft.make(b"1" * 16, TOP, b"dir", META, 0)
    inner = draft.make(b"2" * 16, directory.entry.object, b"inner", META, 0)
    draft.make(b"3" * 16, inner.entry.object, b"file", META, 0, file=FILE)
    draft.make(b"4" * 16, PARKED, b"7-name", META, 0, target=b"to")
    tree = Tree(nodes, draft.finish(SHAPE))
    found = tree.lookup(RelPath(b"dir/inner/file"))
    assert found is not None
    assert found.entry.file == FILE
    assert found.entry.meta == META
    assert tree.lookup(RelPath(b"dir/inner/other")) is None
    assert tree.lookup(RelPath(b"dir/inner/file/below")) is None
    parked = tree.lookup(RelPath(b".blocksync/park/7-name"))
    assert parked is not None
    assert parked.entry.what is Kind.SYMLINK
    assert tree.paths([found.parent, PARKED, TOP])[found.parent] == b"dir/inner"
    assert [each.name for each in tree.below(TOP)] == [b"dir"]


def test_a_directory_that_moves_takes_what_is_below_it_along_by_two_keys() -> None:
    nodes, draft = drafted()
    directory = draft.make(b"1" * 16, TOP, b"dir", META, 0)
    for number in range(200):
        draft.make(b"%016d" % number, directory.entry.object, b"%d" % number, META, 0, file=FILE)
    before = Tree(nodes, draft.finish(SHAPE))
    draft.move(directory, TOP, b"other")
    after = Tree(nodes, draft.finish(SHAPE))
    assert len(list(before.differences(after))) == 2
    assert before.lookup(RelPath(b"dir/7")) == after.lookup(RelPath(b"other/7"))
    assert after.lookup(RelPath(b"dir")) is None


def test_a_draft_is_empty_until_something_is_done() -> None:
    _, draft = drafted()
    assert draft.is_empty
    made = draft.make(b"1" * 16, TOP, b"dir", META, 0)
    assert not draft.is_empty
    assert not draft.has_below(made.entry.object)
    draft.make(b"2" * 16, made.entry.object, b"file", META, 0, file=FILE)
    assert draft.has_below(made.entry.object)


def test_a_directory_that_is_nowhere_or_lies_in_itself_is_damage() -> None:
    nodes, draft = drafted()
    made = draft.make(b"1" * 16, TOP, b"dir", META, 0)
    draft.make(b"2" * 16, made.entry.object, b"file", META, 0, file=FILE)
    root = draft.finish(SHAPE)
    lost = Tree(nodes, update(nodes, SHAPE, root, {made.entry.object: None}))
    with pytest.raises(DamagedObjectError, match="is missing"):
        lost.paths([made.entry.object])
    itself = encode(Up(parent=made.entry.object, name=b"dir"))
    circle = Tree(nodes, update(nodes, SHAPE, root, {made.entry.object: itself}))
    with pytest.raises(DamagedObjectError, match="lies in itself"):
        circle.paths([made.entry.object])
    elsewhere = encode(Up(parent=TOP, name=b"elsewhere"))
    with pytest.raises(DamagedObjectError, match="not where it says"):
        Tree(nodes, update(nodes, SHAPE, root, {made.entry.object: elsewhere})).directories([made.entry.object])
    assert key_of(TOP, b"dir") == made.key
