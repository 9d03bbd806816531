"""Block lists in binary: what is written is read, holes cost nothing, and bodies that nobody honest would send."""

from __future__ import annotations

import struct

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import PADDING_ID, ZERO_BLOCK
from syncer.protocol.extensions import blocklists
from syncer.protocol.extensions.hashmap_delta import apply_delta, delta_between, delta_of, filled_runs
from syncer.protocol.pithos.hashmap import MAX_BLOCKS, HashmapError

BLOCK = 4096
IDS = [ZERO_BLOCK, *(block_id(b"%d" % number) for number in range(3))]
EMPTY = BlockList(block_size=BLOCK, size_bytes=0, ids=b"")


def of(ids: list[bytes], cut: int = 0) -> BlockList:
    return BlockList(block_size=BLOCK, size_bytes=max(0, len(ids) * BLOCK - cut), ids=b"".join(ids))


@st.composite
def lists(draw: st.DrawFn) -> BlockList:
    """Runs of holes and of ids, also longer than a leaf."""
    runs = draw(st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from([1, 2, 255, 256, 257, 600])), max_size=6))
    ids = [name for name, count in runs for _ in range(count)]
    return of(ids, draw(st.integers(0, BLOCK - 1)) if ids else 0)


@given(lists())
@example(of([]))
@example(of([ZERO_BLOCK] * 700))
def test_a_list_is_read_as_it_was_written(blocks: BlockList) -> None:
    told = blocklists.decode(blocklists.encode(delta_of(blocks, blocks.object_hash), BLOCK), BLOCK)
    assert told.base_version is None
    assert told.delta.object_hash == blocks.object_hash
    assert apply_delta(EMPTY, told.delta) == blocks


@given(lists(), lists())
def test_so_is_what_differs_from_another_one(old: BlockList, new: BlockList) -> None:
    body = blocklists.encode(delta_between(old, new), BLOCK, 17)
    assert blocklists.decode(body, BLOCK).base_version == 17
    assert blocklists.decode_list(body, BLOCK, new.size_bytes, old, 17) == new


@given(lists())
def test_holes_are_left_out_and_nothing_else(blocks: BlockList) -> None:
    runs = list(filled_runs(blocks.ids, first=5))
    told = {first - 5 + at: run[32 * at : 32 * at + 32] for first, run in runs for at in range(len(run) // 32)}
    assert told == {index: name for index, name in enumerate(blocks) if name != ZERO_BLOCK}


def test_an_id_that_seems_to_lie_across_two_is_no_hole() -> None:
    ids = b"\1" * 16 + ZERO_BLOCK[:16] + ZERO_BLOCK[16:] + b"\2" * 16
    assert list(filled_runs(ids)) == [(0, ids)]
    joined = b"\3" * 16 + bytes(32) + b"\4" * 16
    assert blocklists.split_ids(joined) == [joined[:32], joined[32:]]


HEAD = {"bytes": 10 * BLOCK, "block_size": BLOCK, "block_hash": "sha256"}
ID = IDS[1]


def body_of(*splices: tuple[int, int, bytes], **head: object) -> bytes:
    line = msgspec.json.encode({**HEAD, **head}) + b"\n"
    return line + b"".join(struct.pack(">QQ", first, count) + ids for first, count, ids in splices)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "one line of JSON"),
        (b"{}\n", "bytes"),
        (b" " * 5000 + b"\n", "one line of JSON"),
        (b"[]\n", "Invalid data formatting"),
        (body_of(block_size=8192), "block size 8192 given"),
        (body_of(block_hash="md5"), "block hash"),
        (body_of(bytes=-1), "not acceptable"),
        (body_of(bytes=(MAX_BLOCKS + 1) * BLOCK), "not acceptable"),
        (body_of(bytes=1 << 70), "not acceptable"),
        (body_of(hash="xx"), "Invalid data formatting"),
        (body_of((0, 0, b"")), "empty"),
        (body_of((3, 1, ID), (3, 1, ID)), "overlaps"),
        (body_of((3, 1, ID), (1, 1, ID)), "out of order"),
        (body_of((10, 1, ID)), "beyond an object of 10 blocks"),
        (body_of((0, 2**64 - 1, ID)), "beyond an object of 10 blocks"),
        (body_of((0, 2, ID)), "cut off"),
        (body_of((0, 1, ID)) + b"\0", "the last splice is cut off"),
        (body_of((0, 2, ID + PADDING_ID)), "names no block"),
    ],
)
def test_what_makes_no_sense_is_refused_with_words(body: bytes, words: str) -> None:
    with pytest.raises(HashmapError, match=words):
        blocklists.decode(body, BLOCK)


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_read_never_anything_else(garbage: bytes) -> None:
    for body in (garbage, body_of() + garbage):
        try:
            blocklists.decode(body, BLOCK)
        except HashmapError:
            continue


def test_the_answer_must_be_of_the_size_and_the_version_that_were_asked_for() -> None:
    old, new = of([ID] * 5), of([ID] * 4 + [IDS[2]])
    body = blocklists.encode(delta_between(old, new), BLOCK, 17)
    for size, base, version in ((new.size_bytes + 1, old, 17), (new.size_bytes, old, 16), (new.size_bytes, None, 0)):
        with pytest.raises(HashmapError):
            blocklists.decode_list(body, BLOCK, size, base, version)


def test_joined_ids_are_a_whole_number_of_them() -> None:
    assert blocklists.split_ids(ID + IDS[2]) == [ID, IDS[2]]
    with pytest.raises(HashmapError):
        blocklists.split_ids(ID + b"x")


def test_a_golden_list_is_written_and_read_as_ever() -> None:
    """The bytes on the wire are a promise to programs of other releases."""
    golden = (
        b'{"bytes":12289,"block_size":4096,"block_hash":"sha256","hash":"'
        + b"aa" * 32
        + b'","base_version":7}\n'
        + bytes.fromhex("0000000000000001 0000000000000002")
        + ID
        + IDS[2]
    )
    told = blocklists.decode(golden, BLOCK)
    assert (told.base_version, told.delta.size_bytes, told.delta.object_hash) == (7, 12289, b"\xaa" * 32)
    assert told.delta.splices == ((1, ID + IDS[2]),)
    assert blocklists.encode(told.delta, BLOCK, 7) == golden
