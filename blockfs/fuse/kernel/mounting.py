"""Mounting without libfuse: mount(2) for who may, else fusermount3; then INIT. /proc/mounts shows what libfuse shows.

Sources: Documentation/filesystems/fuse.rst in Linux; lib/mount.c and util/fusermount.c in libfuse 3.
"""

from __future__ import annotations

import errno
import os
import platform
import shutil
import socket
import subprocess
from typing import Final

from blockfs.errors import MountError
from blockfs.fuse.kernel import decode, wire
from blockfs.fuse.kernel.channel import Channel
from blockfs.fuse.kernel.negotiate import Agreed, negotiate, other_major
from blockfs.runtime.linux import MNT_DETACH, mount, umount2
from blockfs.runtime.mountinfo import FILESYSTEM_TYPE
from blockfs.runtime.output import shown

_FLAGS: Final = {
    "ro": (1, True),
    "nosuid": (2, True),
    "suid": (2, False),
    "nodev": (4, True),
    "dev": (4, False),
    "noexec": (8, True),
    "exec": (8, False),
    "sync": (16, True),
    "async": (16, False),
    "dirsync": (128, True),
    "noatime": (1024, True),
}
"""Options that are flags of mount(2) (linux/mount.h): bit, and whether the option sets or clears it."""

_USUAL: Final = frozenset({"nosuid", "nodev"})
_ALWAYS: Final = ("default_permissions",)
_INIT_TIMEOUT_S: Final = 30.0  # the kernel sends INIT while it mounts


def mounted(volume: bytes, mountpoint: bytes, flags: frozenset[str]) -> int:
    """Mount; returns a descriptor of /dev/fuse on which INIT waits.

    Args:
        volume: Shown as the mount's source.
        mountpoint: An existing directory.
        flags: Options without a value, such as "ro", "allow_other", "noexec".

    Raises:
        MountError: Refused; says why.
    """
    try:
        return _mount(volume, mountpoint, flags)
    except PermissionError:
        return _fusermount(volume, mountpoint, flags)
    except OSError as error:
        raise MountError(f"{shown(mountpoint)}: can't mount: {error.strerror}") from None


def greeted(channel: Channel, *, native: bool = False) -> Agreed:
    """Answer INIT, the first request of a mount. `native`: take passthrough, if it is offered.

    Raises:
        MountError: The kernel is too old, or says nothing.
    """
    while True:
        asked = _first(channel)
        agreed = negotiate(decode.init(asked[1]), platform.release(), native=native)
        if agreed is not None:
            channel.answer(asked[0].unique, agreed.body)
            return agreed
        channel.answer(asked[0].unique, other_major())


def _first(channel: Channel) -> tuple[decode.Header, memoryview]:
    while True:
        try:
            message = channel.receive()
        except EOFError:
            raise MountError("the kernel has unmounted at once") from None
        if message is not None:
            header, body = decode.split(message)
            assert header.opcode == wire.Opcode.INIT, "the kernel holds everything else back"
            return header, body
        if not channel.poll(_INIT_TIMEOUT_S):
            raise MountError("the kernel has mounted, but sends nothing")


def _chosen(flags: frozenset[str]) -> frozenset[str]:
    """Flags with the usual ones, but where their opposites were asked for."""
    return flags | {each for each in _USUAL if each.removeprefix("no") not in flags}


def _mount(volume: bytes, mountpoint: bytes, flags: frozenset[str]) -> int:
    """As root, or as who may in its user namespace."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        bits = sum(_FLAGS[each][0] for each in _chosen(flags) if each in _FLAGS and _FLAGS[each][1])
        options = [f"fd={device}", "rootmode=40000", f"user_id={os.geteuid()}", f"group_id={os.getegid()}"]
        options += [*_ALWAYS, *sorted(flags - _FLAGS.keys())]
        mount(volume, mountpoint, os.fsencode(FILESYSTEM_TYPE), bits, ",".join(options).encode())
    except BaseException:
        os.close(device)
        raise
    return device


def _fusermount(volume: bytes, mountpoint: bytes, flags: frozenset[str]) -> int:
    """As an ordinary user: the set-user-id program mounts, and hands the descriptor over."""
    program = shutil.which("fusermount3")
    if program is None:
        raise MountError("fusermount3 is not installed (Debian: fuse3); only root can mount without it")
    source = volume.replace(b"\\", b"\\\\").replace(b",", b"\\,")
    plain = [*sorted(_chosen(flags)), *_ALWAYS]
    options = b",".join([*(each.encode() for each in plain), b"subtype=blocksync", b"fsname=" + source])
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - fixed program; paths as single arguments
                [os.fsencode(program), b"-o", options, b"--", mountpoint],
                env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1, socket.MSG_CMSG_CLOEXEC)
        told = process.communicate()[1]
    if not descriptors:
        raise MountError(f"{shown(mountpoint)}: can't mount: {shown(told).strip()}")
    return descriptors[0]


def undo(mountpoint: bytes) -> None:
    """Take away what was mounted and can't be served. Closing the descriptor has cut it off already."""
    try:
        umount2(mountpoint, MNT_DETACH)
    except OSError as error:
        program = shutil.which("fusermount3")
        if error.errno == errno.EPERM and program is not None:
            command = [os.fsencode(program), b"-uz", b"--", mountpoint]
            subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - fixed program
