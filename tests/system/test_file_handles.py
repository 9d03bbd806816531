"""Files opened by handle (open_by_handle_at(2)), as NFS servers and backup programs do."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from pathlib import Path

import pytest

from tests.conftest import Mounted

HANDLE_BYTES = 128  # MAX_HANDLE_SZ
AT_FDCWD = -100
_libc = ctypes.CDLL(None, use_errno=True)


def handle_of(path: Path) -> ctypes.Array[ctypes.c_char]:
    """A name for the inode that stays good while nobody has it open, also over a remount."""
    handle = ctypes.create_string_buffer(struct.pack("Ii", HANDLE_BYTES, 0), 8 + HANDLE_BYTES)
    mount_id = ctypes.c_int()
    _checked(_libc.name_to_handle_at(AT_FDCWD, os.fsencode(path), handle, ctypes.byref(mount_id), 0))
    return handle


def opened(mount: Mounted, handle: ctypes.Array[ctypes.c_char], flags: int) -> int:
    root = os.open(mount.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return _checked(_libc.open_by_handle_at(root, handle, flags))
    finally:
        os.close(root)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def test_each_kind_of_inode_is_found_when_the_kernel_has_forgotten_it(mounted: Mounted) -> None:
    """The kernel then asks for "." of the inode, also of one that is no directory."""
    folder = mounted.path / "folder"
    folder.mkdir()
    (folder / "file").write_bytes(b"content")
    os.symlink("target", folder / "symlink")
    os.mkfifo(folder / "fifo")
    names = [folder, *(folder / name for name in ("file", "symlink", "fifo"))]
    handles = [(path, path.lstat().st_ino, handle_of(path)) for path in names]
    mounted.umount()
    mounted.remount()  # a new superblock: nothing is in the kernel's memory
    for path, ino, handle in handles:
        descriptor = opened(mounted, handle, os.O_PATH)
        try:
            assert os.fstat(descriptor).st_ino == ino, path
        finally:
            os.close(descriptor)
    descriptor = opened(mounted, handles[1][2], os.O_RDWR)
    try:
        assert os.read(descriptor, 100) == b"content"
        os.pwrite(descriptor, b"CON", 0)
    finally:
        os.close(descriptor)
    assert (folder / "file").read_bytes() == b"CONtent"


def test_the_handle_of_a_removed_file_is_stale(mounted: Mounted) -> None:
    path = mounted.path / "file"
    path.write_bytes(b"content")
    handle = handle_of(path)
    path.unlink()
    mounted.umount()
    mounted.remount()
    with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
        opened(mounted, handle, os.O_RDONLY)
