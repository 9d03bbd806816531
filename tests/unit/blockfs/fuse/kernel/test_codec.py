"""The kernel's bytes: layouts, requests → values, values → answers."""

from __future__ import annotations

import errno
import os
import stat
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.engine.names.attributes import AttributeChanges, Attributes, FilesystemNumbers
from blockfs.fuse.kernel import decode, encode, wire
from blockfs.fuse.kernel.decode import DECODERS, MalformedError
from blockfs.fuse.kernel.wire import Opcode
from blockfs.tree.schema import Kind
from tests.kit.kernel_requests import BODIES, UNIQUE, init, request

FILE = Attributes(
    ino=7,
    kind=Kind.FILE,
    mode=0o4755,
    nlink=2,
    uid=1000,
    gid=1001,
    rdev=0,
    size_bytes=5000,
    allocated_bytes=8192,
    atime_ns=1_000_000_001,
    mtime_ns=-1,
    ctime_ns=3_000_000_003,
    btime_ns=500,
)
LAYOUTS = {
    wire.IN_HEADER: 40, wire.OUT_HEADER: 16, wire.ATTR: 88, wire.ENTRY: 40, wire.ATTR_OUT: 16, wire.STATX: 256,
    wire.STATX_OUT: 32, wire.OPEN_OUT: 16, wire.DIRENT: 24, wire.STATFS_OUT: 80, wire.INIT_OUT: 64, wire.SETATTR_IN: 88,
    wire.WRITE_IN: 40, wire.FALLOCATE_IN: 32, wire.LSEEK_IN: 24, wire.COPY_FILE_RANGE_IN: 56, wire.STATX_IN: 24,
    wire.INVAL_INODE_OUT: 24, wire.INVAL_ENTRY_OUT: 16, wire.BACKING_MAP: 16,
    wire.BACKING_ID: 4,
}  # fmt: skip


def body(message: bytes) -> memoryview:
    return decode.split(memoryview(message))[1]


def decoded(opcode: Opcode) -> object:
    return DECODERS[opcode](memoryview(BODIES[opcode]))


def test_each_layout_is_as_long_as_in_the_kernels_header() -> None:
    assert {layout.format: layout.size for layout in LAYOUTS} == {
        layout.format: size for layout, size in LAYOUTS.items()
    }


def test_a_message_is_split_into_header_and_body() -> None:
    header, rest = decode.split(memoryview(request(Opcode.LOOKUP, b"name\0", node=9)))
    assert (header.opcode, header.unique, header.node, header.uid, header.gid, header.pid) == (
        1,
        UNIQUE,
        9,
        1000,
        1001,
        77,
    )
    assert bytes(rest) == b"name\0"


def test_extensions_at_the_end_are_no_part_of_the_body() -> None:
    message = wire.IN_HEADER.pack(wire.IN_HEADER.size + 5 + 8, 1, 1, 1, 0, 0, 0, 1) + b"name\0" + bytes(8)
    assert bytes(body(message)) == b"name\0"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        request(1, b"name\0")[:-1],
        request(1, b"name\0") + b"x",
        request(1)[:39],
        wire.IN_HEADER.pack(wire.IN_HEADER.size, 1, 1, 1, 0, 0, 0, 1),
    ],
)
def test_a_message_that_lies_about_its_length_is_malformed(message: bytes) -> None:
    with pytest.raises(MalformedError):
        decode.split(memoryview(message))


def test_each_kind_of_request_is_decoded() -> None:
    assert decoded(Opcode.LOOKUP) == b"name"
    assert decoded(Opcode.SYMLINK) == decode.Symlink(name=b"name", target=b"target")
    assert decoded(Opcode.MKNOD) == decode.Make(name=b"name", mode=stat.S_IFIFO | 0o600, umask=0o022)
    assert decoded(Opcode.MKDIR) == decode.Make(name=b"name", mode=0o755, umask=0o022)
    create = decode.Make(name=b"name", mode=stat.S_IFREG | 0o640, umask=0o022, flags=os.O_RDWR | os.O_CREAT)
    assert decoded(Opcode.CREATE) == create
    assert decoded(Opcode.RENAME) == decode.Rename(name=b"old", new_parent=1, new_name=b"new", flags=0)
    assert decoded(Opcode.RENAME2) == decode.Rename(name=b"old", new_parent=1, new_name=b"new", flags=1)
    assert decoded(Opcode.LINK) == decode.Link(ino=2, name=b"name")
    assert decoded(Opcode.OPEN) == decode.Open(flags=os.O_RDWR, kill_privileges=False)
    assert decoded(Opcode.READ) == decode.Read(1, 4096, 512)
    assert decoded(Opcode.WRITE) == decode.Write(1, 4096, memoryview(b"data"), False)
    assert decoded(Opcode.RELEASE) == 1
    assert decoded(Opcode.FSYNC) == decode.Sync(fh=1, datasync=True)
    assert decoded(Opcode.FSYNCDIR) == decode.Sync(fh=1, datasync=False)
    assert decoded(Opcode.SETXATTR) == decode.SetXattr(name=b"user.x", value=b"a\0b\0c", flags=0)
    assert decoded(Opcode.GETXATTR) == decode.GetXattr(name=b"user.x", room=64)
    assert decoded(Opcode.LISTXATTR) == 64
    assert decoded(Opcode.BATCH_FORGET) == [(5, 1), (6, 2)]
    assert decode.forget(9, memoryview(BODIES[Opcode.FORGET])) == [(9, 1)]
    assert decoded(Opcode.FALLOCATE) == decode.Fallocate(fh=1, offset=0, length=4096, mode=3)
    assert decoded(Opcode.LSEEK) == decode.Seek(fh=1, offset=0, whence=os.SEEK_DATA)
    copy = decode.CopyRange(fh_in=1, offset_in=0, ino_out=2, fh_out=2, offset_out=4096, length=8192, flags=0)
    assert decoded(Opcode.COPY_FILE_RANGE) == decoded(Opcode.COPY_FILE_RANGE_64) == copy
    assert decoded(Opcode.STATX) == 0xFFF
    assert decode.interrupt(memoryview(wire.INTERRUPT_IN.pack(5))) == 5


def test_setattr_takes_what_is_marked_and_nothing_else() -> None:
    changes = AttributeChanges(
        mode=0o640, uid=5, gid=6, atime_ns=1_000_000_010, mtime_ns=-1_999_999_980, ctime_ns=3_000_000_030
    )
    assert decoded(Opcode.SETATTR) == decode.SetAttributes(size_bytes=9, changes=changes, kill_privileges=False)
    none = wire.SETATTR_IN.pack(1 << 11, 0, 9, 0, 1, 2, 3, 4, 5, 6, 0o777, 1, 1)
    assert decode.setattr_(memoryview(none)) == decode.SetAttributes(
        size_bytes=None, changes=AttributeChanges(), kill_privileges=True
    )


def test_privileges_go_where_the_kernel_says_so() -> None:
    assert decode.open_(memoryview(wire.OPEN_IN.pack(os.O_TRUNC, 1))).kill_privileges
    assert decode.write(memoryview(wire.WRITE_IN.pack(1, 0, 1, 4, 0, 0, 0) + b"x")).kill_privileges


@pytest.mark.parametrize("opcode", DECODERS)
def test_a_body_that_is_cut_anywhere_is_malformed_or_whole(opcode: Opcode) -> None:
    """A longer fixed part is a later version's; a shorter one never is read as if something were there."""
    valid = BODIES.get(opcode, init()[wire.IN_HEADER.size :])
    whole = DECODERS[opcode](memoryview(valid))
    for end in range(len(valid)):
        with suppress(MalformedError):
            assert DECODERS[opcode](memoryview(valid[:end])) == whole


@pytest.mark.parametrize(
    "malformed",
    [
        (Opcode.LOOKUP, b"name"),
        (Opcode.LOOKUP, b"\0"),
        (Opcode.LOOKUP, b"a\0b\0"),
        (Opcode.SYMLINK, b"name\0"),
        (Opcode.RENAME, wire.RENAME_IN.pack(1) + b"old\0new"),
        (Opcode.WRITE, wire.WRITE_IN.pack(1, 0, 5, 0, 0, 0, 0) + b"data"),
        (Opcode.WRITE, wire.WRITE_IN.pack(1, 0, 3, 0, 0, 0, 0) + b"data"),
        (Opcode.WRITE, wire.WRITE_IN.pack(1, 1 << 63, 4, 0, 0, 0, 0) + b"data"),
        (Opcode.READ, wire.READ_IN.pack(1, 0, wire.MAX_REQUEST + 1)),
        (Opcode.READ, wire.READ_IN.pack(1, 1 << 63, 1)),
        (Opcode.SETXATTR, wire.SETXATTR_IN.pack(9, 0) + b"user.x\0abc"),
        (Opcode.SETXATTR, wire.SETXATTR_IN.pack(0, 0) + b"user.x"),
        (Opcode.BATCH_FORGET, wire.BATCH_FORGET_IN.pack(0xFFFF_FFFF, 0) + wire.FORGET_ONE.pack(1, 1)),
    ],
)
def test_bodies_that_lie_are_malformed(malformed: tuple[Opcode, bytes]) -> None:
    opcode, lying = malformed
    with pytest.raises(MalformedError):
        DECODERS[opcode](memoryview(lying))


@given(st.sampled_from(sorted(DECODERS)), st.binary(max_size=120))
def test_any_body_is_a_value_or_malformed(opcode: Opcode, data: bytes) -> None:
    with suppress(MalformedError):
        DECODERS[opcode](memoryview(data))


# --- answers ---


def test_attributes_are_those_of_stat() -> None:
    assert wire.ATTR.unpack(encode.attributes(FILE)) == (
        *(7, 5000, 16, 1, -1, 3, 1, 999_999_999, 3, stat.S_IFREG | 0o4755, 2, 1000, 1001, 0, 4096, 0),
    )


def test_an_entry_names_its_node_and_may_be_kept() -> None:
    entry = encode.entry(FILE)
    assert wire.ENTRY.unpack_from(entry) == (7, 0, encode.CACHE_S, encode.CACHE_S, 0, 0)
    assert len(entry) == len(encode.MISSING) == 128
    assert wire.ENTRY.unpack_from(encode.MISSING)[:3] == (0, 0, encode.CACHE_S)


def test_attributes_that_change_behind_us_are_told_for_this_moment_only() -> None:
    """Breaks when size and times of a file that the kernel writes itself are shown as they were."""
    assert wire.ENTRY.unpack_from(encode.entry(FILE, 0)) == (7, 0, encode.CACHE_S, 0, 0, 0)
    for told, layout in ((encode.attr_out(FILE, 0), wire.ATTR_OUT), (encode.statx_out(FILE, 0), wire.STATX_OUT)):
        assert layout.unpack_from(told) == (0, 0, 0)
    entries = encode.Entries(2 * 160, {7: 0}.__getitem__)
    entries.add(b"a", FILE, 3)
    assert entries.body.startswith(encode.entry(FILE, 0))


def test_an_open_that_passes_through_names_its_file() -> None:
    assert wire.OPEN_OUT.unpack(encode.opened(5, wire.FOPEN_PASSTHROUGH, 9)) == (5, 128, 9)
    assert wire.OPEN_OUT.unpack(encode.opened(5)) == (5, wire.FOPEN_KEEP_CACHE, 0)


@pytest.mark.parametrize(
    ("order", "number", "layout"),
    [(wire.BACKING_OPEN, 1, wire.BACKING_MAP), (wire.BACKING_CLOSE, 2, wire.BACKING_ID)],
)
def test_orders_are_numbered_as_the_kernels_macros_do(order: int, number: int, layout: struct.Struct) -> None:
    """_IOW(229, number, type) of linux/ioctl.h."""
    assert order == 1 << 30 | layout.size << 16 | 229 << 8 | number


def test_statx_tells_the_time_of_birth() -> None:
    told = wire.STATX.unpack(encode.statx_out(FILE)[wire.STATX_OUT.size :])
    assert told[0] == 0xFFF
    assert told[6:9] == (stat.S_IFREG | 0o4755, 7, 5000)
    assert told[11:19] == (1, 1, 0, 500, 3, 3, -1, 999_999_999)  # atime, btime, ctime, mtime


def test_a_device_number_has_its_major_and_minor() -> None:
    device = Attributes(
        **{**{name: getattr(FILE, name) for name in FILE.__struct_fields__}, "rdev": os.makedev(259, 70_000)}
    )
    told = wire.STATX.unpack(encode.statx_out(device)[wire.STATX_OUT.size :])
    assert told[19:21] == (259, 70_000)


def test_an_answer_says_how_long_it_is() -> None:
    assert wire.OUT_HEADER.unpack(encode.header(5, b"body")) == (20, 0, 5)
    assert wire.OUT_HEADER.unpack(encode.refusal(5, errno.ENOENT)) == (16, -errno.ENOENT, 5)


def test_an_xattr_is_told_its_length_or_no_room() -> None:
    assert encode.xattr(b"value", 0) == wire.GETXATTR_OUT.pack(5, 0)
    assert encode.xattr(b"value", 5) == b"value"
    assert encode.xattr(b"value", 4) is None


def test_entries_are_added_while_there_is_room() -> None:
    entries = encode.Entries(2 * 160)
    assert entries.add(b"a" * 8, FILE, 3)
    assert entries.add(b"b", FILE, 4)
    assert not entries.add(b"c", FILE, 5)
    body = entries.body
    assert len(body) == 320
    assert wire.DIRENT.unpack_from(body, 128) == (7, 3, 8, stat.S_IFREG >> 12)
    assert body[152:160] == b"a" * 8
    assert body[312:320] == b"b" + bytes(7)


def test_statfs_has_the_figures_in_the_kernels_order() -> None:
    numbers = FilesystemNumbers(
        fragment_bytes=4096, blocks=10, blocks_free=9, blocks_available=8, files=7, files_free=6, name_max=255
    )
    assert wire.STATFS_OUT.unpack(encode.statfs(numbers)) == (10, 9, 8, 7, 6, 4096, 255, 4096)


def test_notifications_have_no_unique() -> None:
    assert encode.forget_inode(7, pages=False) == wire.OUT_HEADER.pack(40, 2, 0) + wire.INVAL_INODE_OUT.pack(7, -1, 0)
    assert encode.forget_inode(7, pages=True) == wire.OUT_HEADER.pack(40, 2, 0) + wire.INVAL_INODE_OUT.pack(7, 0, 0)
    assert encode.forget_entry(1, b"n") == wire.OUT_HEADER.pack(34, 3, 0) + wire.INVAL_ENTRY_OUT.pack(1, 1, 0) + b"n\0"
