from __future__ import annotations

import hashlib
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.blocks.ids import ID_SIZE, PADDING_ID, ZERO_BLOCK
from blockfs.errors import CorruptionError
from blockfs.tree import schema
from blockfs.tree.schema import Generation, Inode, Kind, MountRow, Reserved

u16 = st.integers(0, 0o7777)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
inodes = st.builds(
    Inode, ino=u64, kind=st.sampled_from(Kind), mode=u16, uid=u32, gid=u32, nlink=u32, size_bytes=u64, atime_ns=i64,
    mtime_ns=i64, ctime_ns=i64, btime_ns=i64, rdev=u64, version=u64, content_version=u64,
)  # fmt: skip


@given(inodes)
def test_an_inode_row_is_read_as_it_was_written(inode: Inode) -> None:
    assert schema.decode_inode(inode.ino, schema.encode_inode(inode)) == inode


def test_the_bytes_of_an_inode_row_are_those_of_the_table() -> None:
    inode = Inode(
        ino=9, kind=Kind.SYMLINK, mode=0o1777, uid=1, gid=2, nlink=3, size_bytes=4, atime_ns=-1, mtime_ns=5,
        ctime_ns=6, btime_ns=7, rdev=8, version=9, content_version=10,
    )  # fmt: skip
    fields = "0a 03ff 00000001 00000002 00000003 0000000000000004 ffffffffffffffff 0000000000000005 0000000000000006"
    fields += " 0000000000000007 0000000000000008 0000000000000009 000000000000000a"
    assert schema.encode_inode(inode) == bytes.fromhex(fields)


def test_the_kinds_are_the_bits_of_stat() -> None:
    assert {kind: kind.value for kind in Kind} == {
        Kind.FILE: stat.S_IFREG,
        Kind.DIRECTORY: stat.S_IFDIR,
        Kind.SYMLINK: stat.S_IFLNK,
        Kind.FIFO: stat.S_IFIFO,
        Kind.SOCKET: stat.S_IFSOCK,
        Kind.CHARACTER: stat.S_IFCHR,
        Kind.BLOCK: stat.S_IFBLK,
    }


@given(st.builds(Generation, ino=u64, range_index=u32, generation=u64, valid_below=u64))
def test_a_generation_row_is_read_as_it_was_written(generation: Generation) -> None:
    assert schema.decode_generation(*schema.encode_generation(generation)) == generation


@given(st.builds(MountRow, generation=u64, clean=st.booleans(), sequence=u64, next_ino=u64), u64, u64)
def test_the_meta_rows_are_read_as_they_were_written(row: MountRow, sequence: int, ino: int) -> None:
    assert schema.decode_mount(schema.encode_mount(row)) == row
    reserved = Reserved(sequence=sequence, ino=ino)
    assert schema.decode_reserved(schema.encode_reserved(reserved)) == reserved
    assert schema.decode_leaf_ref(schema.encode_leaf_ref(sequence, 256)) == (sequence, 256)
    assert schema.decode_format(schema.encode_format(7)) == 7
    assert schema.decode_u64(schema.u64(ino)) == ino


@given(u64, u64, st.binary(min_size=1, max_size=255))
def test_keys_give_back_their_parts(child: int, parent: int, name: bytes) -> None:
    assert schema.split_parent_key(schema.parent_key(child, parent, name)) == (child, parent, name)
    assert schema.split_ino_key(schema.ino_key(parent, name)) == (parent, name)


@given(u64, u64)
def test_the_order_of_keys_is_the_order_of_numbers(a: int, b: int) -> None:
    assert (schema.u64(a) < schema.u64(b)) == (a < b)
    assert (schema.leaf_map_key(1, a) < schema.leaf_map_key(1, b)) == (a < b)


@pytest.mark.parametrize(
    "decode",
    [
        lambda row: schema.decode_inode(1, row),
        schema.decode_u64,
        schema.decode_leaf_ref,
        schema.decode_mount,
        schema.decode_reserved,
        schema.decode_format,
        lambda row: schema.decode_generation(row, bytes(8)),
        lambda row: schema.decode_generation(bytes(20), row),
    ],
)
@pytest.mark.parametrize("row", [b"", bytes(3), bytes(500)])
def test_a_row_of_the_wrong_length_is_corruption(decode: object, row: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode(row)  # type: ignore[operator]  # parametrized


def test_an_unknown_kind_is_corruption() -> None:
    with pytest.raises(CorruptionError, match="inode row 5"):
        schema.decode_inode(5, b"\x03" + bytes(78))


def test_a_missing_format_is_corruption() -> None:
    with pytest.raises(CorruptionError, match="format"):
        schema.decode_format(None)


def test_a_canonical_leaf_keeps_holes_inside_and_drops_those_at_the_end() -> None:
    block = hashlib.sha256(b"x").digest()
    assert schema.canonical_leaf(ZERO_BLOCK + block + ZERO_BLOCK * 3) == ZERO_BLOCK + block
    assert schema.canonical_leaf(ZERO_BLOCK * 256) == b""
    assert schema.canonical_leaf(b"") == b""


def test_non_holes_are_counted_and_the_merkle_padding_is_refused() -> None:
    block = hashlib.sha256(b"x").digest()
    assert schema.non_holes(ZERO_BLOCK + block + ZERO_BLOCK + block) == 2
    with pytest.raises(AssertionError):
        schema.non_holes(block + PADDING_ID)
    assert schema.non_holes(bytes([1]) + bytes(ID_SIZE) + bytes([1]) * 31) == 2, "unaligned NUL bytes are no padding"
