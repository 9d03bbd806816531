"""Whatever is changed in a file: what is said to be as it was is so, and only what overlaps a change is read again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id, canonical
from syncer.core.reblock import joined, over, pieces, stale

SIZES = st.sampled_from([4, 8, 16, 64])
CONTENTS = st.lists(st.sampled_from([b"\0" * 8, b"\0" * 64, b"a", b"bc" * 9, b"x" * 64]), max_size=12).map(b"".join)


def cut(data: bytes, block_size: int) -> BlockList:
    ids = b"".join(block_id(data[at : at + block_size]) for at in range(0, len(data), block_size))
    return BlockList(block_size=block_size, size_bytes=len(data), ids=ids)


def blocks_of(data: bytes, block_size: int) -> dict[int, bytes]:
    return {at // block_size: canonical(data[at : at + block_size]) for at in range(0, len(data), block_size)}


@st.composite
def edits(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Two versions of a file."""
    old = draw(CONTENTS)
    new = bytearray(old)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(0, len(new) - 1)))
        new[at : at + 3] = draw(st.binary(max_size=3)).ljust(min(3, len(new) - at), b"\0")
    change = draw(st.sampled_from(["same", "shorter", "longer", "hole"]))
    if change == "shorter":
        del new[draw(st.integers(0, len(new))) :]
    elif change == "longer":
        new += draw(CONTENTS)
    elif change == "hole":
        new += bytes(draw(st.integers(0, 100)))
    return old, bytes(new)


@given(edits(), SIZES, SIZES)
def test_what_is_not_stale_is_as_it_was(versions: tuple[bytes, bytes], one: int, other: int) -> None:
    old, new = versions
    again = stale(cut(new, one), cut(old, one), cut(old, other))
    assert again == sorted(set(again))
    truth = cut(new, other)
    assert cut(old, other).splice(len(new), {index: truth[index] for index in again}) == truth


@given(edits(), SIZES, SIZES)
def test_what_is_stale_overlaps_a_change_or_is_the_last(versions: tuple[bytes, bytes], one: int, other: int) -> None:
    old, new = versions
    changed = cut(new, one).changed_from(cut(old, one))
    allowed = set(over(changed, one, other, len(new)))
    if len(cut(new, one)) < len(cut(old, one)):
        allowed.add(len(cut(new, other)) - 1)
    assert set(stale(cut(new, one), cut(old, one), cut(old, other))) <= allowed


@given(CONTENTS, SIZES, SIZES)
def test_pieces_join_to_the_block(data: bytes, near: int, far: int) -> None:
    blocks = blocks_of(data, far)
    whole = b"".join(joined(pieces(index, near, far, len(data)), blocks, far) for index in range(len(cut(data, near))))
    assert whole == data
