"""The same calls on a mount and on ext4: what they answer must be equal."""

from __future__ import annotations

import ctypes
import errno
import os
import pickle
import stat
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

AT_FDCWD: Final = -100
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
_libc = ctypes.CDLL(None, use_errno=True)

T = TypeVar("T")


class User(msgspec.Struct, frozen=True):
    """Who makes calls: a process with these identities and umask."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    umask: int = 0o022


ROOT: Final = User(0, 0)
ALICE: Final = User(4001, 4001)
BOB: Final = User(4002, 4002, (4001,))
"""In Alice's group."""
CAROL: Final = User(4003, 4003)
"""In nobody's."""


def run_as(user: User, folder: Path, scenario: Callable[[], T]) -> T:
    """Run a scenario in a process of its own, in `folder`, as `user`; returns what it returns.

    It uses paths relative to there, so that users without access to the folders above can run it too.

    Raises:
        AssertionError: The scenario raised, or the test itself has no right to become `user`.
    """
    assert os.geteuid() == 0, "this test makes calls as several users: run it as root"
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reader)
            os.chdir(folder)
            os.setgroups(user.groups)
            os.setresgid(user.gid, user.gid, user.gid)
            os.setresuid(user.uid, user.uid, user.uid)
            os.umask(user.umask)
            with open(writer, "wb") as pipe:
                pickle.dump(scenario(), pipe)
            status = 0
        except Exception:  # noqa: BLE001 - this copy of the test run must end here, whatever it is
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writer)
    with open(reader, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, "the scenario failed: its traceback is on stderr"
    answer: T = pickle.loads(told)
    return answer


def answer(call: Callable[..., object], *arguments: object) -> object:
    """What a call returns, or the name of its errno."""
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno or 0]


class Pair(msgspec.Struct, frozen=True):
    """A folder on a mount and one on ext4, equally empty at first."""

    mount: Path
    ext4: Path

    def same(self, scenario: Callable[[], T], user: User = ROOT) -> T:
        """Run a scenario in both; returns the answer they share."""
        here, there = (run_as(user, folder, scenario) for folder in (self.mount, self.ext4))
        if isinstance(here, dict) and isinstance(there, dict):
            differences = {case: (here.get(case), there[case]) for case in there if here.get(case) != there[case]}
            assert not differences, f"(mount, ext4): {differences}"
        assert here == there
        return here


def renameat2(old: str | bytes | Path, new: str | bytes | Path, flags: int) -> None:
    """renameat2(2), relative to the present folder."""
    if _libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def make_file(name: str) -> None:
    """An empty file."""
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def make_full_directory(name: str) -> None:
    """A directory that is not empty."""
    os.makedirs(f"{name}/inside")


MAKERS: Final[dict[str, Callable[[str], None]]] = {
    "file": make_file,
    "directory": os.mkdir,
    "full": make_full_directory,
    "symlink": lambda name: os.symlink("nowhere", name),
    "link to a directory": lambda name: os.symlink(".", name),
    "loop": lambda name: os.symlink(os.path.basename(name), name),
    "fifo": os.mkfifo,
    "socket": lambda name: os.mknod(name, stat.S_IFSOCK | 0o600),
    "device": lambda name: os.mknod(name, stat.S_IFCHR | 0o600, os.makedev(1, 3)),
    "nothing": lambda name: None,
}
"""How to make each kind of thing that a name can lead to."""


def shape(path: str | bytes | Path) -> tuple[object, ...]:
    """What lstat tells, except what differs between filesystems: inode, device, times, blocks, sizes of folders."""
    info = os.lstat(path)
    size = None if stat.S_ISDIR(info.st_mode) else info.st_size
    return (oct(info.st_mode), info.st_nlink, info.st_uid, info.st_gid, size, info.st_rdev)


class Dirent(ctypes.Structure):
    """struct dirent of 64-bit Linux."""

    _fields_ = (
        ("d_ino", ctypes.c_uint64),
        ("d_off", ctypes.c_int64),
        ("d_reclen", ctypes.c_uint16),
        ("d_type", ctypes.c_uint8),
        ("d_name", ctypes.c_char * 256),
    )


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a tool."""
    return subprocess.run(command, capture_output=True, text=True, check=False)


@contextmanager
def loop_mounted(image: Path, mountpoint: Path, options: str = "loop") -> Iterator[Path]:
    """An image's filesystem, mounted."""
    mountpoint.mkdir(exist_ok=True)
    ended = run("mount", "-o", options, image, mountpoint)
    assert ended.returncode == 0, ended.stderr
    try:
        yield mountpoint
    finally:
        subprocess.run(["umount", mountpoint], check=True)
