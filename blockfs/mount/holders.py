"""Who has a filesystem mounted besides us: other mountpoints, and mount namespaces of other processes.

A copy of a mount keeps the filesystem, and with it the mount process, alive after the mountpoint itself is gone.
Containers, `unshare --mount` and services with a namespace of their own have such copies.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from blockfs.runtime.mountinfo import FILESYSTEM_TYPE, Mount, parse, read_mounts
from blockfs.runtime.output import shown


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A place where the filesystem is still mounted.

    Attributes:
        mountpoint: As the processes of that mount namespace see it.
        pid: The first process of that namespace; None: it is in our own.
        command: That process's name; "" in our own.
    """

    mountpoint: bytes
    pid: int | None = None
    command: str = ""

    @property
    def told(self) -> str:
        """Who it is, and how to make it let go."""
        place = shown(self.mountpoint)
        if self.pid is None:
            return f"it is mounted at {place}, too: `umount {place}`"
        return (
            f"process {self.pid} ({self.command}) has it at {place} in a mount namespace of its own: end that process, "
            f"or `nsenter --target {self.pid} --mount umount {place}` as root"
        )


def holders_of(mount: Mount) -> list[Holder]:
    """Where else the filesystem of a mount is mounted now, one entry per namespace and mountpoint.

    Looks at one process of each namespace. Those of other users that this user may not look at are not found.
    """
    ours = _namespace("self")
    found = [Holder(mountpoint=at) for at in _places(mount, read_mounts())]
    seen = {ours}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        namespace = _namespace(str(pid))
        if namespace is not None and namespace not in seen:
            seen.add(namespace)
            found += _elsewhere(mount, pid)
    return found


def is_elsewhere(pid: int) -> bool:
    """Whether a process is known to be in another mount namespace than this one."""
    return _namespace(str(pid)) not in {_namespace("self"), None}


def _elsewhere(mount: Mount, pid: int) -> Iterator[Holder]:
    try:
        with open(f"/proc/{pid}/mountinfo", "rb") as file:
            mounts = parse(file.read())
        with open(f"/proc/{pid}/comm", "rb") as file:
            command = shown(file.read().strip())
    except OSError:
        return  # it has just ended
    for place in _places(mount, mounts):
        yield Holder(mountpoint=place, pid=pid, command=command)


def _places(mount: Mount, mounts: list[Mount]) -> Iterator[bytes]:
    same = (FILESYSTEM_TYPE, mount.source, mount.device_minor)
    return (one.mountpoint for one in mounts if (one.filesystem_type, one.source, one.device_minor) == same)


def _namespace(process: str) -> str | None:
    try:
        return os.readlink(f"/proc/{process}/ns/mnt")
    except OSError:
        return None
