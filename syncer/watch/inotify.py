"""inotify(7) by ctypes: a descriptor, watches, and its queue as values. Linux only.

Libraries were looked at: watchdog loses events in a burst without telling (docs/design/watch.md), inotify_simple and
asyncinotify keep a path per watch, which a renamed directory makes wrong.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from syncer.core.model import RelPath

IN_ATTRIB: Final = 0x004
IN_CLOSE_WRITE: Final = 0x008
IN_MOVED_FROM: Final = 0x040
IN_MOVED_TO: Final = 0x080
IN_CREATE: Final = 0x100
IN_DELETE: Final = 0x200
IN_DELETE_SELF: Final = 0x400
IN_MOVE_SELF: Final = 0x800
IN_UNMOUNT: Final = 0x2000
IN_Q_OVERFLOW: Final = 0x4000
IN_IGNORED: Final = 0x8000
IN_ISDIR: Final = 0x40000000
_IN_ONLYDIR: Final = 0x01000000
_IN_EXCL_UNLINK: Final = 0x04000000

DIRECTORY_EVENTS: Final = IN_ATTRIB | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE
"""Not IN_MODIFY: one event per write(2) would fill the queue, and a file is looked at when it is closed."""

_IN_CLOEXEC: Final = os.O_CLOEXEC
_IN_NONBLOCK: Final = os.O_NONBLOCK
_HEAD: Final = struct.Struct("iIII")  # struct inotify_event: wd, mask, cookie, len; then len bytes, NUL-padded
_READ_BYTES: Final = 1 << 20  # some 30,000 events: the queue's default limit is 16,384
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class Event(msgspec.Struct, frozen=True):
    """One event; positional, because there may be a hundred thousand of them."""

    wd: int
    mask: int
    cookie: int
    name: bytes


class Inotify:
    """One inotify instance."""

    def __init__(self) -> None:
        """Make it.

        Raises:
            OSError: EMFILE: too many instances (fs.inotify.max_user_instances).
        """
        self.descriptor: int = _LIBC.inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK)
        if self.descriptor < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), "inotify")

    def add(self, directory: int, mask: int = DIRECTORY_EVENTS) -> int:
        """Watch an open directory; the number of the watch. One that is watched already keeps its number.

        Raises:
            OSError: ENOSPC: the limit of watches (fs.inotify.max_user_watches).
        """
        # By its descriptor: a path could lead elsewhere by now.
        path = b"/proc/self/fd/%d" % directory
        number: int = _LIBC.inotify_add_watch(self.descriptor, path, mask | _IN_ONLYDIR | _IN_EXCL_UNLINK)
        if number < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), "inotify watch")
        return number

    def remove(self, number: int) -> None:
        """Stop watching; one that is gone already is fine."""
        _LIBC.inotify_rm_watch(self.descriptor, number)

    def read(self) -> Iterator[Event]:
        """What is in the queue now, at most 1 MiB of it; nothing if it is empty."""
        try:
            data = os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        yield from parse(data)

    def close(self) -> None:
        """Drop all watches."""
        os.close(self.descriptor)


def parse(data: bytes) -> Iterator[Event]:
    """Events in one read(2)."""
    offset = 0
    while offset < len(data):
        wd, mask, cookie, length = _HEAD.unpack_from(data, offset)
        offset += _HEAD.size
        yield Event(wd, mask, cookie, data[offset : offset + length].rstrip(b"\0"))
        offset += length


class WatchTree:
    """Which directory each watch is. Pure: told of watches and of renames, answers with paths.

    A directory is its parent and its name, so a rename is one change however much lies below it.
    """

    def __init__(self) -> None:
        self._places: dict[int, tuple[int, bytes]] = {}  # watch → (watch of the parent, name)
        self._below: dict[int, dict[bytes, int]] = {}
        self.root = -1

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, wd: int) -> bool:
        return wd in self._places

    def put_root(self, wd: int) -> None:
        """Name the watch of the root."""
        self.root = wd
        self._places[wd] = (-1, b"")

    def put(self, wd: int, parent: int, name: bytes) -> None:
        """A directory is at this place now, wherever it was."""
        self._unlink(wd)
        self._places[wd] = (parent, name)
        self._below.setdefault(parent, {})[name] = wd

    def child(self, parent: int, name: bytes) -> int | None:
        """The watch of a directory by its place."""
        return self._below.get(parent, {}).get(name)

    def detach(self, parent: int, name: bytes) -> int | None:
        """The directory left this place: until `put` says where it went, it and all below have no path."""
        wd = self.child(parent, name)
        if wd is not None:
            self._unlink(wd)
            self._places[wd] = (-1, b"")
        return wd

    def forget(self, wd: int) -> None:
        """The watch is gone."""
        self._unlink(wd)
        self._places.pop(wd, None)
        for below in self._below.pop(wd, {}).values():
            self._places[below] = (-1, b"")

    def below(self, wd: int) -> list[int]:
        """Everything below, top down."""
        found = list(self._below.get(wd, {}).values())
        for inner in found:  # grows while it is walked
            found += self._below.get(inner, {}).values()
        return found

    def path(self, wd: int) -> RelPath | None:
        """Where it is; None: nowhere in the root."""
        names: list[bytes] = []
        while wd != self.root:
            place = self._places.get(wd)
            if place is None or place[0] == -1:
                return None
            wd, name = place
            names.append(name)
        return RelPath(b"/".join(reversed(names)))

    def _unlink(self, wd: int) -> None:
        place = self._places.get(wd)
        if place is not None and self._below.get(place[0], {}).get(place[1]) == wd:
            del self._below[place[0]][place[1]]
