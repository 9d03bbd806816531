"""Taking hold of a mountpoint and letting it go. Knows the kernel and fusermount3, not the filesystem."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from typing import Final

from blockfs.errors import BlockfsError, MountError, NotFoundError, UsageError
from blockfs.exitcodes import ExitCode
from blockfs.runtime.linux import MNT_DETACH, umount2
from blockfs.runtime.logs import Log
from blockfs.runtime.mountinfo import FILESYSTEM_TYPE, Mount, is_below, read_mounts
from blockfs.runtime.output import shown

FUSE_CONFIGURATION: Final = "/etc/fuse.conf"

log = Log()


class MountBusyError(BlockfsError):
    """Something still uses a mount, so that it can't be unmounted."""

    exit_code = ExitCode.LOCKED
    errno = errno.EBUSY

    def __init__(self, mountpoint: bytes) -> None:
        self.mountpoint = mountpoint
        super().__init__(
            f"{shown(mountpoint)} is busy: an open file or a working directory is on it "
            f"(`fuser -vm {shown(mountpoint)}` lists who); close them and try again"
        )


def check_places(volume: bytes, mountpoint: bytes) -> None:
    """Refuse mountpoints that can't work, before anything is opened. Both paths absolute and real.

    Raises:
        NotFoundError: No such directory.
        UsageError: Not a directory, or one of the two lies inside the other: the mount would hide its own volume.
    """
    if is_below(volume, mountpoint) or is_below(mountpoint, volume):
        raise UsageError(f"{shown(mountpoint)} and {shown(volume)} must not lie inside each other")
    if is_dead(mountpoint):
        return
    try:
        is_directory = stat.S_ISDIR(os.stat(mountpoint).st_mode)
    except FileNotFoundError:
        raise NotFoundError(f"{shown(mountpoint)} does not exist; make the directory first") from None
    if not is_directory:
        raise UsageError(f"{shown(mountpoint)} is not a directory")


def check_rights(*, allow_other: bool, configuration: str = FUSE_CONFIGURATION) -> None:
    """Refuse what only root may do, with the reason: fusermount3 tells it in words of its own, or not at all.

    Args:
        allow_other: Whether the mount shall let other users in.
        configuration: The file in which root lets users do that.

    Raises:
        MountError: /dev/fuse is missing or not accessible.
        UsageError: An ordinary user asks for `allow_other`, and root has not allowed that.
    """
    if not os.path.exists("/dev/fuse"):
        raise MountError("/dev/fuse is missing: load the kernel's fuse module (`modprobe fuse`)")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise MountError(
            "/dev/fuse can't be opened by this user; it should have mode 0666 (`chmod 666 /dev/fuse` as root)"
        )
    if allow_other and os.geteuid() != 0 and not _users_may_allow_other(configuration):
        raise UsageError(
            f"allow_other is root's, unless {configuration} has a line `user_allow_other`: ask root to add it, or "
            "mount without it"
        )


def _users_may_allow_other(configuration: str) -> bool:
    try:
        with open(configuration, encoding="utf-8", errors="replace") as file:
            return any(line.strip() == "user_allow_other" for line in file)
    except OSError:
        return False


def take(mountpoint: bytes) -> None:
    """Make a mountpoint ready: detach a dead blocksync mount, refuse a living one and a directory with files in it.

    Raises:
        UsageError: Not empty, or another volume is mounted there.
        MountError: A dead mount that is not ours, or that can't be detached.
    """
    while is_dead(mountpoint):
        dead = mount_at(mountpoint)
        if dead is None:
            raise MountError(f"{shown(mountpoint)}: a mount whose server is gone, and not one of blocksync; unmount it")
        log.info("mount.dead_detached", mountpoint=mountpoint, volume=dead.source)
        unmount(mountpoint, lazy=True)
    living = mount_at(mountpoint)
    if living is not None:
        raise UsageError(
            f"{shown(living.source)} is mounted at {shown(mountpoint)}; `blocksync umount {shown(mountpoint)}` first"
        )
    if os.listdir(mountpoint):
        # What lies below would be hidden, and a program that missed the mount has probably written there.
        raise UsageError(f"{shown(mountpoint)} is not empty; mount on an empty directory")


def is_dead(mountpoint: bytes) -> bool:
    """Whether a FUSE mount is there whose process is gone."""
    try:
        os.statvfs(mountpoint)  # always asks the server; stat would be answered from the kernel's cache
    except OSError as error:
        return error.errno in {errno.ENOTCONN, errno.ECONNABORTED}
    return False


def mount_at(mountpoint: bytes) -> Mount | None:
    """The blocksync mount exactly at this path, if it is the topmost mount there."""
    here = [mount for mount in read_mounts() if mount.mountpoint == mountpoint]
    return here[-1] if here and here[-1].filesystem_type == FILESYSTEM_TYPE else None


def unmount(mountpoint: bytes, *, lazy: bool = False) -> None:
    """Unmount; dirty pages are written first. With `lazy`, open files keep the filesystem until they are closed.

    Raises:
        MountBusyError: In use (not with `lazy`).
        MountError: Refused for another reason.
    """
    try:
        umount2(mountpoint, MNT_DETACH if lazy else 0)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise MountBusyError(mountpoint) from None
        if error.errno != errno.EPERM:
            raise MountError(f"{shown(mountpoint)}: can't unmount: {error.strerror}") from error
        _fusermount(mountpoint, lazy=lazy)


def _fusermount(mountpoint: bytes, *, lazy: bool) -> None:
    """Unmount as an ordinary user."""
    program = shutil.which("fusermount3")
    if program is None:
        raise MountError("fusermount3 is not installed (Debian: fuse3); only root can unmount without it")
    command = [os.fsencode(program), b"-uz" if lazy else b"-u", b"--", mountpoint]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - fixed program, path as one argument
    if done.returncode == 0:
        return
    text = shown(done.stderr).strip()
    if "busy" in text.lower():
        raise MountBusyError(mountpoint)
    raise MountError(f"{shown(mountpoint)}: can't unmount: {text}")
