from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from blockfs.blocks.hashing import block_id
from syncer.core.conflict import parse_conflict_name
from syncer.core.model import Kind, RelPath, RemoteTag
from syncer.core.planner.overwrites import ForeignVersion, Overwrite, copy_path, unseen

PATH = RelPath(b"d/name.txt")


def version(serial: int, data: bytes, *, uuid: str = "u", kind: Kind = Kind.FILE, seconds: int = 7) -> ForeignVersion:
    tag = RemoteTag(uuid=uuid, version=serial, etag=block_id(data).hex(), size_bytes=len(data))
    return ForeignVersion(path=PATH, kind=kind, tag=tag, modified_us=seconds * 1_000_000, author="alice")


def write(data: bytes, replaced: ForeignVersion | None = None, *, uuid: str = "", known: int = 0) -> Overwrite:
    tag = None if replaced is None else replaced.tag
    etag, known = block_id(data).hex(), known if tag is None else tag.version
    return Overwrite(path=PATH, kind=Kind.FILE, size_bytes=len(data), etag=etag, known=known, replaced=tag, uuid=uuid)


def test_what_lies_between_the_version_that_was_replaced_and_ours_was_not_seen() -> None:
    versions = [version(11, b"theirs"), version(12, b"mine"), version(13, b"after")]
    assert unseen(write(b"mine", version(10, b"base")), versions, versions[1].tag) == [versions[0]]
    assert unseen(write(b"mine", version(10, b"base")), versions) == [versions[0]]


def test_of_a_write_that_was_never_done_nothing_is_told() -> None:
    assert unseen(write(b"mine", version(10, b"base")), [version(11, b"theirs")]) == []
    assert unseen(write(b"mine", version(10, b"base")), []) == []


def test_equal_contents_need_no_copy() -> None:
    base = version(10, b"base")
    assert unseen(write(b"mine", base), [version(11, b"mine"), version(12, b"mine")]) == []
    assert unseen(write(b"mine", base), [version(11, b"base"), version(12, b"mine")]) == []
    twice = [version(11, b"theirs"), version(12, b"theirs"), version(13, b"mine")]
    assert unseen(write(b"mine", base), twice) == [twice[1]]


def test_trailing_nuls_are_content() -> None:
    longer = version(11, b"mine\0\0")
    assert unseen(write(b"mine", version(10, b"base")), [longer, version(12, b"mine")]) == [longer]


def test_another_kind_with_the_same_bytes_is_kept() -> None:
    link = version(11, b"mine", kind=Kind.SYMLINK)
    assert unseen(write(b"mine", version(10, b"base")), [link, version(12, b"mine")]) == [link]


def test_an_earlier_life_of_a_name_is_nothing_that_was_replaced() -> None:
    earlier, theirs, ours = version(3, b"old", uuid="o"), version(11, b"theirs"), version(12, b"mine")
    assert unseen(write(b"mine"), [earlier, theirs, ours]) == [theirs]


def test_what_appeared_where_something_was_moved_to_is_kept() -> None:
    theirs, moved = version(11, b"theirs", uuid="t"), version(12, b"mine", uuid="m")
    assert unseen(write(b"mine", uuid="m", known=5), [theirs, moved]) == [theirs]
    assert unseen(write(b"mine", uuid="m", known=5), [theirs]) == []


@given(st.lists(st.sampled_from([b"a", b"b", b"mine", b"base"]), max_size=8))
def test_each_content_that_a_done_write_did_not_know_is_kept_once(contents: list[bytes]) -> None:
    base = version(10, b"base")
    versions = [version(11 + at, data) for at, data in enumerate(contents)]
    done = [at for at, data in enumerate(contents) if data == b"mine"]
    kept = unseen(write(b"mine", base), reversed(versions))
    before = set(contents[: done[-1]]) if done else set()
    assert sorted(block_id(data).hex() for data in before - {b"mine", b"base"}) == sorted(v.tag.etag for v in kept)


@given(st.sampled_from(Kind), st.integers(0, 10**19), st.integers(0, 3))
def test_all_who_find_a_version_give_it_the_same_name(kind: Kind, modified_us: int, others: int) -> None:
    found = replace(version(11, b"x", kind=kind), modified_us=modified_us)
    path = copy_path(found)
    assert path == copy_path(replace(found, meta=found.meta))
    assert path.startswith(b"d/")
    name = parse_conflict_name(path[2:])
    assert name is not None
    assert (name.original, name.host) == (b"name.txt", "alice")
    taken = [path[2:]]
    for _ in range(others):
        again = copy_path(found, taken)
        assert again[2:] not in taken
        taken.append(again[2:])
