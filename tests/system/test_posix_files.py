"""Contents, times, listings, locks and xattrs of files on a mount, as on ext4 or as docs/reference/posix.md says."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Mounted
from tests.system.posix import MAKERS, Dirent, Pair, answer

_libc = ctypes.CDLL(None, use_errno=True)
_libc.opendir.restype = _libc.readdir.restype = ctypes.c_void_p
_libc.telldir.restype = ctypes.c_long
for _function in ("readdir", "telldir", "closedir"):
    getattr(_libc, _function).argtypes = [ctypes.c_void_p]
_libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]

LONG_AGO_NS = 10**9


def in_child(call: Callable[[], object]) -> int:
    """Run in a process of its own; returns 0, or the errno it failed with."""
    pid = os.fork()
    if pid == 0:
        status = 255
        try:
            call()
            status = 0
        except OSError as error:
            status = error.errno or 255
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# --- times ---

CHANGES: dict[str, Callable[[], object]] = {
    "write": lambda: Path("file").write_bytes(b"new"),
    "truncate": lambda: os.truncate("file", 3),
    "chmod": lambda: os.chmod("file", 0o600),
    "chown": lambda: os.chown("file", 1, 1),
    "chown to nobody": lambda: os.chown("file", -1, -1),
    "link": lambda: os.link("file", "other"),
    "rename": lambda: os.rename("file", "moved"),
    "rename over": lambda: os.rename("second", "file"),
    "unlink one of two": lambda: os.unlink("twin"),
    "setxattr": lambda: os.setxattr("file", "user.x", b"1"),
    "removexattr": lambda: os.removexattr("file", "user.there"),
    "utimes": lambda: os.utime("file", ns=(5, 6)),
    "create": lambda: os.close(os.open("new", os.O_CREAT | os.O_WRONLY)),
    "mkdir": lambda: os.mkdir("new"),
    "rmdir": lambda: os.rmdir("empty"),
    "symlink": lambda: os.symlink("x", "new"),
    "open and close": lambda: os.close(os.open("file", os.O_RDWR)),
    "failed create": lambda: answer(os.mkdir, "file"),
    "failed unlink": lambda: answer(os.unlink, "empty"),
}


def changed_times() -> dict[tuple[str, str], object]:
    """Which times of which inode each change sets."""
    found: dict[tuple[str, str], object] = {}
    top = os.open(".", os.O_RDONLY)
    for name, change in CHANGES.items():
        os.mkdir(name)
        os.chdir(name)
        for path in ("file", "second"):
            Path(path).write_bytes(b"first")
        os.link("file", "twin")
        os.mkdir("empty")
        os.setxattr("file", "user.there", b"1")
        descriptor = os.open("file", os.O_RDONLY)
        inodes = {"file": descriptor, "directory": os.open(".", os.O_RDONLY)}
        for inode in inodes.values():
            os.utime(inode, ns=(LONG_AGO_NS, LONG_AGO_NS))
        # ctime has no setter: wait until the clock that files are stamped with has moved on.
        before = {path: os.fstat(inode).st_ctime_ns for path, inode in inodes.items()}
        while _stamp() <= max(before.values()):
            pass
        change()
        for path, inode in inodes.items():
            info = os.fstat(inode)
            stamped = (info.st_atime_ns != LONG_AGO_NS, info.st_mtime_ns != LONG_AGO_NS)
            found[name, path] = (*stamped, info.st_ctime_ns != before[path])
            os.close(inode)
        os.fchdir(top)
    return found


def _stamp() -> int:
    """The time that a new file gets."""
    with open("clock", "w") as file:
        stamp = os.fstat(file.fileno()).st_ctime_ns
    os.unlink("clock")
    return stamp


def test_changes_set_the_times_they_set_on_ext4(pair: Pair) -> None:
    pair.same(changed_times)


def test_nanoseconds_and_old_times_are_kept(pair: Pair) -> None:
    def set_times() -> list[tuple[int, int]]:
        MAKERS["file"]("file")
        found = []
        for times in ((1, 2), (-1, -999_999_999), (10**18 + 1, 2 * 10**18 + 123_456_789), (-(2**31) * 10**9, 0)):
            os.utime("file", ns=times)
            info = os.stat("file")
            found.append((info.st_atime_ns, info.st_mtime_ns))
        return found

    pair.same(set_times)


def test_a_read_that_reaches_the_mount_sets_the_access_time_once(mounted: Mounted) -> None:
    path = mounted.path / "file"
    path.write_bytes(b"x" * 10_000)
    os.symlink("file", mounted.path / "link")
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))
    mounted.umount()
    mounted.remount()
    descriptor = os.open(path, os.O_RDONLY | os.O_NOATIME)
    os.read(descriptor, 4096)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    assert path.stat().st_atime_ns == LONG_AGO_NS
    path.read_bytes()
    accessed = path.stat().st_atime_ns
    assert accessed > LONG_AGO_NS
    assert path.stat().st_mtime_ns == LONG_AGO_NS
    mounted.umount()
    mounted.remount()
    assert path.stat().st_atime_ns == accessed


# --- listings and inode numbers ---


def test_inode_numbers_and_dotdot_survive_a_remount(mounted: Mounted) -> None:
    (mounted.path / "a/b/c").mkdir(parents=True)
    for name in ("a/f", "a/b/g"):
        (mounted.path / name).touch()

    def numbers() -> dict[str, tuple[int, int]]:
        return {
            folder: (os.stat(folder).st_ino, os.stat(f"{folder}/..").st_ino)
            for folder, _, _ in os.walk(mounted.path)
            if folder != str(mounted.path)
        } | {str(path): (path.stat().st_ino, 0) for path in mounted.path.rglob("*")}

    before = numbers()
    mounted.umount()
    mounted.remount()
    assert numbers() == before


def test_a_listing_goes_on_where_telldir_was(place: Path) -> None:
    """Also when names before and behind that place have gone and come meanwhile."""
    names = [f"name-{number:04}".encode() for number in range(500)]
    for name in names:
        (place / os.fsdecode(name)).touch()
    directory = _libc.opendir(os.fsencode(place))

    def read(count: int) -> list[bytes]:
        found = []
        while len(found) < count and (entry := _libc.readdir(directory)):
            found.append(Dirent.from_address(entry).d_name)
        return found

    first = read(200)
    position = _libc.telldir(directory)
    rest = read(1000)
    assert sorted(first + rest) == sorted([b".", b"..", *names])
    os.unlink(place / os.fsdecode(first[10]))
    os.unlink(place / os.fsdecode(rest[10]))
    (place / "new").touch()
    _libc.seekdir(directory, position)
    again = read(1000)
    assert [name for name in again if name != b"new"] == [name for name in rest if name != rest[10]]
    _libc.closedir(directory)


# --- contents ---


def test_maps_and_calls_see_the_same_bytes(place: Path) -> None:
    path = place / "file"
    path.write_bytes(bytes(20_000))
    with path.open("r+b", buffering=0) as file:
        shared = mmap.mmap(file.fileno(), 20_000)
        private = mmap.mmap(file.fileno(), 20_000, flags=mmap.MAP_PRIVATE)
        shared[5000:5005] = b"map's"
        assert os.pread(file.fileno(), 5, 5000) == b"map's"
        os.pwrite(file.fileno(), b"call's", 9000)
        assert shared[9000:9006] == private[9000:9006] == b"call's"
        private[0:7] = b"private"
        assert os.pread(file.fileno(), 7, 0) == bytes(7)
        shared.flush()
        shared.close()
        private.close()
    assert path.read_bytes()[:9006] == bytes(5000) + b"map's" + bytes(3995) + b"call's"


def test_appends_of_several_processes_do_not_overwrite_each_other(place: Path) -> None:
    path = place / "log"

    def append(letter: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for _ in range(200):
            os.write(descriptor, letter * 99 + b"\n")

    threads = [threading.Thread(target=lambda n=n: in_child(lambda: append(n))) for n in (b"a", b"b", b"c", b"d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = path.read_bytes().splitlines()
    assert len(lines) == 800
    assert all(len(set(line)) == 1 and len(line) == 99 for line in lines)


@pytest.mark.parametrize("flags", [os.O_DIRECT, os.O_SYNC, os.O_DSYNC, os.O_DIRECT | os.O_SYNC])
def test_direct_and_synchronous_writes_are_there(place: Path, flags: int) -> None:
    path = place / "file"
    memory = mmap.mmap(-1, 65536)
    memory.write(bytes(range(256)) * 256)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags)
    assert os.pwritev(descriptor, [memory], 4096) == 65536
    target = mmap.mmap(-1, 65536)
    assert os.preadv(descriptor, [target], 4096) == 65536
    assert target[:] == memory[:]
    os.close(descriptor)
    assert path.read_bytes() == bytes(4096) + memory[:]


def test_direct_and_cached_calls_agree(place: Path) -> None:
    path = place / "file"
    memory = mmap.mmap(-1, 4096)
    cached = os.open(path, os.O_RDWR | os.O_CREAT)
    direct = os.open(path, os.O_RDWR | os.O_DIRECT)
    for number in range(20):
        os.pwrite(cached, bytes([number]) * 4096, 0)
        os.preadv(direct, [memory], 0)
        assert memory[0] == number
        memory[:] = bytes([number + 100]) * 4096
        os.pwritev(direct, [memory], 0)
        assert os.pread(cached, 4096, 0) == memory[:]
    os.close(cached)
    os.close(direct)


def test_sizes_go_up_to_the_largest_offset(place: Path) -> None:
    largest = 2**63 - 1
    descriptor = os.open(place / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(descriptor, largest)
    assert os.fstat(descriptor).st_size == largest
    assert os.fstat(descriptor).st_blocks == 0
    assert os.pwrite(descriptor, b"end", largest - 4096) == 3
    assert os.pread(descriptor, 10, largest - 4097) == b"\0end" + bytes(6)
    assert answer(os.ftruncate, descriptor, -1) == "EINVAL"
    os.ftruncate(descriptor, 0)
    os.close(descriptor)


def test_the_limit_of_a_process_stops_its_files(place: Path) -> None:
    def write() -> None:
        import resource  # noqa: PLC0415 - only in this child
        import signal  # noqa: PLC0415

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        descriptor = os.open(place / "file", os.O_WRONLY | os.O_CREAT)
        assert os.pwrite(descriptor, b"x" * 2000, 0) == 1000
        os.pwrite(descriptor, b"x", 1000)

    assert in_child(write) == errno.EFBIG


# --- locks, fifos, sockets ---


def test_locks_keep_other_processes_out(place: Path) -> None:
    path = place / "file"
    path.write_bytes(b"x" * 100)
    ofd = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 10, 0)
    with path.open("r+b") as file:

        def other(call: Callable[[int], object]) -> int:
            return in_child(lambda: call(os.open(path, os.O_RDWR)))

        fcntl.flock(file, fcntl.LOCK_EX)
        assert other(lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)) == errno.EAGAIN
        fcntl.flock(file, fcntl.LOCK_UN)
        assert other(lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)) == 0
        fcntl.lockf(file, fcntl.LOCK_EX, 10, 0)
        assert other(lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)) == errno.EAGAIN
        assert other(lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 10)) == 0
        fcntl.lockf(file, fcntl.LOCK_UN)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, ofd)
        assert other(lambda fd: fcntl.fcntl(fd, fcntl.F_OFD_SETLK, ofd)) == errno.EAGAIN
    assert in_child(lambda: fcntl.fcntl(os.open(path, os.O_RDWR), fcntl.F_OFD_SETLK, ofd)) == 0


def test_fifos_and_sockets_carry_data(pair: Pair) -> None:
    def talk() -> list[bytes]:
        os.mkfifo("fifo")
        reader = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
        writer = os.open("fifo", os.O_WRONLY)
        os.write(writer, b"through a fifo")
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind("socket")
            server.listen()
            client.connect("socket")
            client.sendall(b"through a socket")
            return [os.read(reader, 100), server.accept()[0].recv(100)]

    assert pair.same(talk) == [b"through a fifo", b"through a socket"]


# --- extended attributes ---


def test_extended_attributes_answer_as_on_ext4(pair: Pair) -> None:
    def calls() -> dict[str, object]:
        MAKERS["file"]("file")
        found: dict[str, object] = {}
        for name in ("user.a", "user.", "user", "other.a", "trusted.a", "security.a", "system.a", "user." + "n" * 250):
            for flags in (os.XATTR_REPLACE, os.XATTR_CREATE, os.XATTR_CREATE, os.XATTR_REPLACE, 0):
                found[f"{name} {flags}"] = answer(os.setxattr, "file", name, b"value", flags)
            found[f"{name} value"] = answer(os.getxattr, "file", name)
        found["too long"] = answer(os.setxattr, "file", "user." + "n" * 251, b"")
        found["empty"] = answer(os.setxattr, "file", "user.empty", b""), answer(os.getxattr, "file", "user.empty")
        found["too large"] = answer(os.setxattr, "file", "user.large", bytes(65537))
        found["names"] = sorted(os.listxattr("file"))
        found["removed twice"] = answer(os.removexattr, "file", "user.a"), answer(os.removexattr, "file", "user.a")
        return found

    pair.same(calls)


def test_what_is_written_right_after_it_was_made_is_not_older_than_itself(pair: Pair) -> None:
    def backwards() -> int:
        count = 0
        for number in range(200):
            with open(f"made-{number}", "wb") as file:
                made_ns = os.fstat(file.fileno()).st_ctime_ns
                file.write(b"x")
            written = os.stat(f"made-{number}")
            os.chmod(f"made-{number}", 0o600)
            after_ns = os.stat(f"made-{number}").st_ctime_ns
            count += written.st_mtime_ns < made_ns or written.st_ctime_ns < made_ns or after_ns < written.st_ctime_ns
        return count

    pair.same(backwards)


def test_the_room_of_a_file_is_told_when_a_handle_of_it_is_closed(place: Path) -> None:
    path = place / "room"
    with path.open("wb", buffering=0) as file:
        file.write(b"x" * 200_000)
        os.fsync(file.fileno())
        path.open("rb").close()  # until then the kernel may tell what it was (docs/reference/posix.md)
        assert path.stat().st_blocks * 512 >= 200_000


def test_reads_that_must_not_wait_are_refused(place: Path) -> None:
    path = place / "cached"
    path.write_bytes(b"x")
    with path.open("rb", buffering=0) as file, pytest.raises(OSError, match="not supported"):
        os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
