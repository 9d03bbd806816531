"""Commits, heads and lists of what will be deleted: read as they were written, or named as damaged."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.errors import DamagedObjectError, FormatTooNewError
from syncer.remote.repository.format import condemned
from syncer.remote.repository.format.codec import Codec
from syncer.remote.repository.format.condemned import Condemned
from syncer.remote.repository.format.history import (
    NOTHING,
    Commit,
    CommitId,
    DeviceId,
    Dot,
    Head,
    Vector,
    commit_name,
    commit_of,
    decode_commit,
    decode_head,
    device_of,
    encode_commit,
    encode_head,
    head_name,
)
from syncer.remote.repository.format.keys import MasterKey, derive
from syncer.remote.repository.format.sealed import Kind, object_name, seal_whole

KEYS = derive(MasterKey(bytes(range(32))), bytes(range(16)))
SALT = bytes(range(50, 66))
CODEC = Codec()

devices = st.integers(0, 9).map(lambda n: DeviceId(bytes([n]) * 16))
digests = st.integers(0, 1 << 200).map(lambda n: n.to_bytes(32, "big"))
numbers = st.integers(1, 1 << 40)
vectors = st.dictionaries(devices, numbers, max_size=5).map(Vector)


@st.composite
def commits(draw: st.DrawFn) -> Commit:
    device, seen = draw(devices), draw(vectors)
    number = seen.next_number() + draw(st.integers(0, 3))
    return Commit(
        parents=tuple(sorted(CommitId(each) for each in draw(st.sets(digests, max_size=4)))),
        vector=seen.adding(Dot(device, number)),
        root=draw(st.binary(max_size=128)),
        number=number,
        device=device,
        time_ns=draw(st.integers(0, 1 << 62)),
        tool=draw(st.sampled_from(["", "0.1.0"])),
        name=draw(st.sampled_from(["", "laptop", "Notizbüchlein"])),
    )


SEEN = Vector({DeviceId(b"a" * 16): 3, DeviceId(b"b" * 16): 7})
COMMIT = Commit(
    parents=(CommitId(b"1" * 32), CommitId(b"2" * 32)),
    vector=SEEN,
    root=b"root",
    number=7,
    device=DeviceId(b"b" * 16),
    time_ns=1_790_000_000_000_000_000,
    tool="0.1.0",
    name="laptop",
)


@given(commits())
def test_a_commit_is_read_as_it_was_written(commit: Commit) -> None:
    name, raw = encode_commit(KEYS, SALT, commit, CODEC)
    assert name == hashlib.sha256(raw).digest()
    assert decode_commit(KEYS, name, raw, CODEC) == commit
    assert commit_of(commit_name(name)) == name


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"parents": COMMIT.parents[::-1]}, "parents are not in order"),
        ({"parents": COMMIT.parents[:1] * 2}, "parents are not in order"),
        ({"number": 8}, "not the highest"),
        ({"vector": NOTHING}, "out of range|not the highest"),
        ({"vector": SEEN.adding(Dot(DeviceId(b"c" * 16), 7))}, "not the highest"),
        ({"name": "two\nlines"}, "can't be shown"),
        ({"root": bytes(129)}, "too long"),
        ({"tool": "x" * 65}, "too long"),
        ({"time_ns": 1 << 63}, "out of range"),
    ],
)
def test_no_commit_that_breaks_a_rule_is_written(change: dict[str, object], reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        encode_commit(KEYS, SALT, msgspec.structs.replace(COMMIT, **change), CODEC)


def _forged(body: bytes) -> tuple[CommitId, bytes]:
    raw = seal_whole(KEYS, Kind.COMMIT, SALT, body, CODEC)
    return CommitId(hashlib.sha256(raw).digest()), raw


def test_who_has_the_key_can_not_write_a_commit_that_breaks_a_rule_either() -> None:
    """A client of somebody else's with a fault: what it writes is named, and no other commit is touched."""
    body = (7).to_bytes(8, "big") + b"b" * 16 + bytes(8) + b"\0\0\0\1\0\0\0" + b"b" * 16 + (7).to_bytes(8, "big")
    name, raw = _forged(body)
    assert decode_commit(KEYS, name, raw, CODEC).number == 7
    for wrong in (body + b"\0", body[:-1], body[:38], b"", b"\1" + body[1:], body[:7] + b"\6" + body[8:]):
        name, raw = _forged(wrong)
        with pytest.raises(DamagedObjectError, match=f"{commit_name(name)}.* is malformed"):
            decode_commit(KEYS, name, raw, CODEC)


@given(devices, numbers, digests)
def test_a_head_is_read_as_it_was_written(device: DeviceId, sequence: int, commit: bytes) -> None:
    head = Head(device=device, sequence=sequence, commit=CommitId(commit))
    name, raw = encode_head(KEYS, SALT, head, CODEC)
    assert device_of(name) == device
    assert decode_head(KEYS, device, raw, CODEC) == head
    assert len(raw) == 256


def test_a_head_under_another_devices_name_is_refused() -> None:
    """A store that swaps heads would make a device's past another's."""
    _, raw = encode_head(KEYS, SALT, Head(device=DeviceId(b"a" * 16), sequence=1, commit=CommitId(bytes(32))), CODEC)
    with pytest.raises(DamagedObjectError, match="heads/62"):
        decode_head(KEYS, DeviceId(b"b" * 16), raw, CODEC)


@pytest.mark.parametrize("body", [b"", bytes(39), bytes(40), b"\x80" + bytes(39), b"\0" * 7 + b"\1" + bytes(33)])
def test_no_head_but_ours_is_read(body: bytes) -> None:
    device = DeviceId(b"a" * 16)
    raw = seal_whole(KEYS, Kind.HEAD, SALT, body, CODEC, bound=device)
    with pytest.raises(DamagedObjectError):
        decode_head(KEYS, device, raw, CODEC)


def test_a_newer_versions_commit_is_left_alone() -> None:
    _, raw = encode_commit(KEYS, SALT, COMMIT, CODEC)
    newer = raw[:5] + b"\2" + raw[6:]
    with pytest.raises(FormatTooNewError):
        decode_commit(KEYS, CommitId(hashlib.sha256(newer).digest()), newer, CODEC)


@pytest.mark.parametrize(
    "name", ["", "heads/", "heads/" + "A" * 32, "heads/" + "g" * 32, "head/" + "a" * 32, "heads/a"]
)
def test_no_other_name_is_a_heads(name: str) -> None:
    assert device_of(name) is None
    assert commit_of(name) is None
    assert device_of(head_name(DeviceId(b"\xaa" * 16))) == b"\xaa" * 16


class TestVector:
    @given(vectors, vectors, devices, numbers)
    def test_what_is_joined_covers_what_either_covers(self, one: Vector, other: Vector, who: DeviceId, n: int) -> None:
        joined = one.joined(other)
        assert joined.covers(Dot(who, n)) == (one.covers(Dot(who, n)) or other.covers(Dot(who, n)))
        assert joined.covers_all(one)
        assert joined.covers_all(other)
        assert one.covers_all(other) == (joined == one)
        assert other.joined(one) == joined

    @given(vectors, devices)
    def test_the_next_number_is_covered_by_nobody(self, vector: Vector, device: DeviceId) -> None:
        dot = Dot(device, vector.next_number())
        assert not any(vector.covers(Dot(each, dot.number)) for each in vector.numbers)
        assert vector.adding(dot).covers(dot)


@given(devices, st.lists(st.sets(digests, max_size=5).map(lambda each: tuple(sorted(each))), min_size=3, max_size=3))
def test_what_will_be_deleted_is_read_as_it_was_written(device: DeviceId, lists: list[tuple[bytes, ...]]) -> None:
    told = Condemned(device=device, time_ns=5, packs=lists[0], indexes=lists[1], commits=lists[2])
    name, raw = condemned.encode(KEYS, SALT, told, CODEC)
    assert condemned.decode(KEYS, name, raw, CODEC) == told


@pytest.mark.parametrize(
    "body", [b"", bytes(35), bytes(37), bytes(35) + b"\1", bytes(27) + b"\2" + bytes(8 + 64), b"\xff" * 36]
)
def test_no_list_but_ours_deletes_anything(body: bytes) -> None:
    raw = seal_whole(KEYS, Kind.CONDEMNED, SALT, body, CODEC)
    name = object_name(Kind.CONDEMNED, hashlib.sha256(raw).digest())
    with pytest.raises(DamagedObjectError, match="is malformed"):
        condemned.decode(KEYS, name, raw, CODEC)
