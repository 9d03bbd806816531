"""The root helper of ordinary users' native mounts: `python -I -m blockfs.fuse.passthrough_helper`. Stdlib only.

The kernel lets only CAP_SYS_ADMIN say which files of the host it shall read and write for a mount. A mount process of
an ordinary user connects to a socket, hands over its /dev/fuse once, and then each file; a child of ours asks the
kernel.

The kernel opens such a file again for each handle, with the flags of that handle and without asking for permissions. So
a file is taken only if it is a regular one of the user's own, on XFS or btrfs, open for reading and writing and not for
appending only: who has that may do all that the kernel will. Each connection has a process of its own, which has the
user's ids and of all capabilities only CAP_SYS_ADMIN: the kernel goes on with these when it reads and writes. Number of
connections, of files of each, and memory have bounds. When the mount process ends, the files are taken back.

Protocol, SOCK_SEQPACKET: first a message HELLO with the descriptor of /dev/fuse; then OPEN with a descriptor, or CLOSE
with a number. Each is answered: a number from 1 on, 0, or a negative errno. All else ends the connection.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import select
import signal
import socket
import stat
import struct
import sys
from typing import Final

SOCKET: Final = "/run/blocksync/passthrough"
HELLO, OPEN, CLOSE = 0, 1, 2
REQUEST: Final = struct.Struct("=II")
"""What, and the number for CLOSE."""
ANSWER: Final = struct.Struct("=i")

FILES_PER_CONNECTION: Final = 16384
CONNECTIONS_PER_USER: Final = 16
CONNECTIONS: Final = 256

_FUSE_DEVICE: Final = os.makedev(10, 229)  # Documentation/admin-guide/devices.txt
_BACKING_OPEN: Final = 0x4010_E501  # linux/fuse.h, as in blockfs.fuse.kernel.wire, which costs ten times this module
_BACKING_CLOSE: Final = 0x4004_E502
_BACKING_MAP: Final = struct.Struct("=iIQ")
_BACKING_ID: Final = struct.Struct("=I")
_PEER: Final = struct.Struct("=iII")  # struct ucred
_FILESYSTEMS: Final = {0x5846_5342, 0x9123_683E}  # XFS, btrfs (linux/magic.h): not /proc, nor a FUSE of the user's
_STATFS_BYTES: Final = 512  # more than any struct statfs, which begins with a long that is f_type
_MEMORY_BYTES: Final = 256 << 20
_FILES: Final = 32

_SYS_ADMIN: Final = 1 << 21  # linux/capability.h
_CAPABILITIES: Final = struct.Struct("=6I")  # effective, permitted, inheritable; twice, for 64 bits
_CAPABILITY_HEADER: Final = struct.pack("=Ii", 0x2008_0522, 0)  # version 3, this process
_KEEP_CAPABILITIES, _NO_NEW_PRIVILEGES, _DUMPABLE = 8, 38, 4  # linux/prctl.h

_libc: Final = ctypes.CDLL(None, use_errno=True)


class RefusedError(Exception):
    """What was asked for is not done; the connection goes on."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.number = number


# --- a connection: in a process of its own ---


def become(uid: int, gid: int) -> None:
    """Give up all rights but those of a user, and CAP_SYS_ADMIN. For good."""
    _checked(_libc.prctl(_KEEP_CAPABILITIES, 1, 0, 0, 0))
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _checked(_libc.capset(_CAPABILITY_HEADER, _CAPABILITIES.pack(_SYS_ADMIN, _SYS_ADMIN, 0, 0, 0, 0)))
    _checked(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(_libc.prctl(_DUMPABLE, 0, 0, 0, 0))  # the user's other processes may not look into this one
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, _FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _checked(answer: int) -> None:
    if answer != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Connection:
    """What one mount process asks for.

    Args:
        peer: Connected to it.
        uid: Its user.
    """

    def __init__(self, peer: socket.socket, uid: int) -> None:
        self._peer = peer
        self._uid = uid
        self._device = -1
        self._ids: set[int] = set()

    def run(self) -> None:
        """Answer until the mount process ends, or says what nobody says."""
        try:
            while (asked := self._received()) is not None:
                what, number, files = asked
                try:
                    answer = self._answer(what, number, files)
                except RefusedError as refused:
                    answer = -refused.number
                except OSError as error:
                    answer = -(error.errno or errno.EIO)
                finally:
                    for file in files:
                        if file != self._device:
                            os.close(file)
                self._peer.send(ANSWER.pack(answer))
        finally:
            self._take_back()

    def _received(self) -> tuple[int, int, list[int]] | None:
        """The next request and its descriptors, which are ours; None: there is none."""
        files = array.array("i")
        message, ancillary, flags, _ = self._peer.recvmsg(
            REQUEST.size, socket.CMSG_SPACE(2 * files.itemsize), socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files.frombytes(data[: len(data) - len(data) % files.itemsize])
        found = files.tolist()
        if len(message) != REQUEST.size or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            for file in found:
                os.close(file)
            return None
        what, number = REQUEST.unpack(message)
        return what, number, found

    def _answer(self, what: int, number: int, files: list[int]) -> int:
        if what == HELLO and len(files) == 1 and self._device < 0:
            return self._hello(files[0])
        if what == OPEN and len(files) == 1 and self._device >= 0:
            return self._open(files[0])
        if what == CLOSE and not files and number in self._ids:
            fcntl.ioctl(self._device, _BACKING_CLOSE, _BACKING_ID.pack(number))
            self._ids.discard(number)
            return 0
        raise RefusedError(errno.EINVAL)

    def _hello(self, file: int) -> int:
        status = os.fstat(file)
        if not stat.S_ISCHR(status.st_mode) or status.st_rdev != _FUSE_DEVICE:
            raise RefusedError(errno.ENOTTY)  # the orders of ioctl(2) mean something else elsewhere
        self._device = file
        return 0

    def _open(self, file: int) -> int:
        if len(self._ids) >= FILES_PER_CONNECTION:
            raise RefusedError(errno.ENFILE)
        check_file(file, self._uid)
        number = int(fcntl.ioctl(self._device, _BACKING_OPEN, bytearray(_BACKING_MAP.pack(file, 0, 0))))
        self._ids.add(number)
        return number

    def _take_back(self) -> None:
        for number in self._ids:
            try:
                fcntl.ioctl(self._device, _BACKING_CLOSE, _BACKING_ID.pack(number))
            except OSError:  # the kernel has unmounted
                return


def check_file(file: int, uid: int) -> None:
    """Refuse a file with which the kernel would let its user do more than he may.

    Raises:
        RefusedError: EPERM: it is another's, no regular file of XFS or btrfs, or not open for both ways.
    """
    flags, about = fcntl.fcntl(file, fcntl.F_GETFL), ctypes.create_string_buffer(_STATFS_BYTES)
    if flags & os.O_ACCMODE != os.O_RDWR or flags & (os.O_APPEND | os.O_PATH):
        raise RefusedError(errno.EPERM)
    _checked(_libc.fstatfs(file, about))
    status, kind = os.fstat(file), ctypes.c_long.from_buffer(about).value & 0xFFFF_FFFF
    if not stat.S_ISREG(status.st_mode) or status.st_uid != uid or kind not in _FILESYSTEMS:
        raise RefusedError(errno.EPERM)


# --- all connections ---


def serve(listening: socket.socket) -> None:
    """Give each connection a process, for ever."""
    users: dict[int, int] = {}  # child → its user
    wakes, told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(told)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([listening.fileno(), wakes], [], [])
        if wakes in ready:
            os.read(wakes, 4096)
        while users and (child := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            del users[child]
        if listening.fileno() in ready:
            peer, _ = listening.accept()
            with peer:
                _begin(listening, peer, users)


def _begin(listening: socket.socket, peer: socket.socket, users: dict[int, int]) -> None:
    _, uid, gid = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    if len(users) >= CONNECTIONS or sum(user == uid for user in users.values()) >= CONNECTIONS_PER_USER:
        return
    try:
        child = os.fork()
    except OSError:  # the host has no process for it
        return
    if child == 0:
        _serve_one(listening, peer, uid, gid)
    users[child] = uid


def _serve_one(listening: socket.socket, peer: socket.socket, uid: int, gid: int) -> None:
    try:
        signal.set_wakeup_fd(-1)
        listening.close()
        become(uid, gid)
        Connection(peer, uid).run()
    except Exception as error:  # noqa: BLE001 - nobody else would tell
        sys.stderr.write(f"connection of user {uid}: {error!r}\n")
    finally:
        os._exit(0)


def main() -> None:
    """Serve the socket that systemd hands over, or make it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if os.environ.get("LISTEN_PID") == str(os.getpid()):
        listening = socket.socket(fileno=3)
    else:
        os.makedirs(os.path.dirname(SOCKET), mode=0o755, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        os.umask(0o111)  # every user may come
        listening.bind(SOCKET)
        listening.listen(64)
    serve(listening)


if __name__ == "__main__":
    main()
