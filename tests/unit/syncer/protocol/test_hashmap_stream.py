"""A hashmap that is read piece by piece is the one that is read as a whole, or refused as that is."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import ID_SIZE, PADDING_ID, ZERO_BLOCK
from syncer.protocol.extensions import blocklists
from syncer.protocol.extensions.hashmap_delta import apply_delta, delta_of
from syncer.protocol.pithos.hashmap import HashmapError, decode_hashmap
from syncer.protocol.pithos.hashmap_stream import BinaryReader, HashmapReader

BLOCK = 4096
IDS = st.lists(
    st.one_of(st.just(ZERO_BLOCK), st.binary(min_size=ID_SIZE, max_size=ID_SIZE)).filter(lambda one: one != PADDING_ID),
    max_size=30,
)


def streamed(body: bytes, cuts: list[int]) -> tuple[bytes, int]:
    reader = HashmapReader(BLOCK)
    ids, at = b"", 0
    for cut in sorted(cut % (len(body) + 1) for cut in cuts):
        ids += b"".join(reader.feed(body[at:cut]))
        at = max(at, cut)
    ids += b"".join(reader.feed(body[at:]))
    last, size_bytes = reader.finish()
    return (ids + b"".join(last))[: reader.count * ID_SIZE], size_bytes


def whole(body: bytes) -> tuple[bytes, int]:
    found = decode_hashmap(body, BLOCK)
    return found.ids, found.size_bytes


@given(IDS, st.integers(-2, 2), st.data())
def test_any_cuts_give_what_the_whole_gives(ids: list[bytes], off: int, data: st.DataObject) -> None:
    size = max(0, len(ids) * BLOCK - data.draw(st.integers(0, BLOCK)) + off * BLOCK)
    fields = {"bytes": size, "hashes": [one.hex() for one in ids]}
    more = data.draw(
        st.dictionaries(
            st.sampled_from(["block_size", "block_hash", "other"]), st.sampled_from([BLOCK, "sha256", None])
        )
    )
    pairs = data.draw(st.permutations([*fields.items(), *more.items()]))
    body = json.dumps(dict(pairs), indent=data.draw(st.sampled_from([None, 0, 2]))).encode()
    if data.draw(st.booleans()):
        body = (
            re.sub(rb"[a-f]", lambda match: match[0].upper(), body) if b"sha" not in body and b"b" not in body else body
        )
    cuts = data.draw(st.lists(st.integers(0, 10_000), max_size=8))
    try:
        expected = whole(body)
    except HashmapError:
        with pytest.raises(HashmapError):
            streamed(body, cuts)
    else:
        assert streamed(body, cuts) == expected


@given(st.data())
def test_a_damaged_hashmap_is_refused_or_read_as_the_whole_is(data: st.DataObject) -> None:
    """Whatever bytes are put in, left out or replaced: never other ids than those of the text."""
    ids = data.draw(st.lists(st.binary(min_size=ID_SIZE, max_size=ID_SIZE), min_size=1, max_size=4))
    body = bytearray(json.dumps({"bytes": len(ids) * BLOCK, "hashes": [one.hex() for one in ids]}).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"", b",", b'"', b"\\", b'\\"', b"#", b'"#1"', b"[", b"]", b"{", b":", b"0", b" ", b"g"])
        )
    cuts = data.draw(st.lists(st.integers(0, 1000), max_size=4))
    try:
        found = streamed(bytes(body), cuts)
    except HashmapError:
        return
    assert found == whole(bytes(body))


@pytest.mark.parametrize(
    "text",
    [
        '{"bytes":0,"hashes":["#1"]}',
        '{"bytes":4096,"hashes":["#1"]}',
        "[]",
        "",
        "{}",
        '{"bytes":' + "9" * 5000 + ',"hashes":[]}',
    ],
)
def test_what_is_no_hashmap_is_refused(text: str) -> None:
    with pytest.raises(HashmapError):
        streamed(text.encode(), [])


@pytest.mark.parametrize("piece", [b"x" * 70_000, b"," * 70_000, b'"a",' * 30_000, b"[" * 70_000])
def test_what_it_keeps_is_bounded(piece: bytes) -> None:
    reader = HashmapReader(BLOCK)

    def feed_all() -> None:
        for _ in range(1000):
            list(reader.feed(piece))

    with pytest.raises(HashmapError):
        feed_all()


def test_a_long_one_leaves_nothing_behind() -> None:
    reader = HashmapReader(BLOCK)
    item = b'"%s",' % (b"\1" * ID_SIZE).hex().encode()
    assert b"".join(reader.feed(b'{"bytes":%d,"hashes":[' % (BLOCK << 20))) == b""
    total = sum(len(ids) for _ in range(1024) for ids in reader.feed(item * 1024))
    assert total == ID_SIZE << 20
    assert reader.count == 1 << 20


def binary(body: bytes, cuts: list[int]) -> tuple[bytes, int, int | None]:
    reader = BinaryReader(BLOCK)
    ids, at = b"", 0
    for cut in [*sorted(cut % (len(body) + 1) for cut in cuts), len(body)]:
        ids += b"".join(reader.feed(body[at:cut]))
        at = cut
    last, size_bytes = reader.finish()
    return ids + b"".join(last), size_bytes, reader.base_version


@given(IDS, st.integers(0, BLOCK - 1), st.lists(st.integers(0, 3000), max_size=8), st.data())
def test_a_binary_list_in_pieces_is_what_the_whole_is(
    ids: list[bytes], short: int, cuts: list[int], data: st.DataObject
) -> None:
    """Also when it is damaged: refused by both, or read as the same."""
    size = max(0, len(ids) * BLOCK - short)
    blocks = BlockList(block_size=BLOCK, size_bytes=size, ids=b"".join(ids))
    body = bytearray(blocklists.encode(delta_of(blocks), BLOCK, data.draw(st.sampled_from([None, 7]))))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        told = blocklists.decode(bytes(body), BLOCK)
    except HashmapError:
        with pytest.raises(HashmapError):
            binary(bytes(body), cuts)
        return
    expected = apply_delta(BlockList(block_size=BLOCK, size_bytes=0, ids=b""), told.delta)
    assert binary(bytes(body), cuts) == (expected.ids, expected.size_bytes, told.base_version)
