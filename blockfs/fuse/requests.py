"""The table of the kernel's requests: the call that answers each, whether it changes the volume, and where it may wait.

Whether it changes something is what an error costs that nobody expected. If not, the request is answered with EIO, and
the error's trace is in the log. Any other one may have been stopped half-way: the mount is abandoned, so that no half
of a change becomes durable (`blockfs.engine.fatal`). Times of access and references of the kernel do not count: each is
whole, or forgotten with the mount.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

import msgspec

from blockfs.fuse.calls import Calls


class Repeat(Enum):
    """Where a call that raised `WouldBlock` is made again."""

    LOOP = "in the loop, after others had their turn; as before"
    DISK = "with may_block, in a thread"
    WRITE = "with may_block, in a thread for writes: lest held-back writers stop reads"
    PAGES = "with may_block, in a thread that waits for other requests: theirs must not be taken by it"
    SYNC = "with may_block, in a thread, and sealing gives way meanwhile (`blockfs.engine.priority`)"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of request.

    Attributes:
        call: Answers it; its name is the request's kind.
        changes: Stopped half-way it may have left half a change.
        repeat: None: the call never raises `WouldBlock`.
        by_handle: Its first argument is the handle of a file, whose path is logged if its content is damaged.
    """

    call: Callable[..., Any]
    changes: bool = True
    repeat: Repeat | None = None
    by_handle: bool = False

    @property
    def kind(self) -> str:
        """Its name, as in `blocksync stats`."""
        return self.call.__name__

    @property
    def what(self) -> str:
        """To be told of an error that nobody expected."""
        return f"the request {self.call.__name__}"


REQUESTS: Final[Mapping[str, Request]] = MappingProxyType(
    {
        request.kind: request
        for request in (
            Request(call=Calls.lookup, changes=False),
            Request(call=Calls.getattr, changes=False),
            Request(call=Calls.readlink, changes=False),
            Request(call=Calls.getxattr, changes=False),
            Request(call=Calls.listxattr, changes=False),
            Request(call=Calls.statfs, changes=False),
            Request(call=Calls.read, changes=False, repeat=Repeat.DISK, by_handle=True),
            Request(call=Calls.lseek, changes=False, repeat=Repeat.PAGES, by_handle=True),
            Request(call=Calls.opendir, changes=False),
            Request(call=Calls.readdir, changes=False, repeat=Repeat.LOOP),
            Request(call=Calls.releasedir, changes=False),
            Request(call=Calls.forget),  # the last one removes an inode without names
            Request(call=Calls.release),
            Request(call=Calls.open, repeat=Repeat.DISK),
            Request(call=Calls.mknod, repeat=Repeat.DISK),
            Request(call=Calls.mkdir, repeat=Repeat.DISK),
            Request(call=Calls.symlink, repeat=Repeat.DISK),
            Request(call=Calls.link, repeat=Repeat.DISK),
            Request(call=Calls.create, repeat=Repeat.DISK),
            Request(call=Calls.tmpfile, repeat=Repeat.DISK),
            Request(call=Calls.unlink),
            Request(call=Calls.rmdir),
            Request(call=Calls.rename, repeat=Repeat.PAGES),  # of what replaces another file
            Request(call=Calls.setattr, repeat=Repeat.DISK),
            Request(call=Calls.setxattr, repeat=Repeat.DISK),
            Request(call=Calls.removexattr),
            Request(call=Calls.write, repeat=Repeat.WRITE, by_handle=True),
            Request(call=Calls.fallocate, repeat=Repeat.WRITE, by_handle=True),
            Request(call=Calls.copy_file_range, repeat=Repeat.WRITE, by_handle=True),
            Request(call=Calls.fsync, repeat=Repeat.SYNC, by_handle=True),
            Request(call=Calls.fsyncdir, repeat=Repeat.SYNC),
        )
    }
)
"""By kind; all that are answered. What the kernel may ask besides is ENOSYS, and it stops asking."""
