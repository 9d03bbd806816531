"""INIT: which version and which features both sides use. Pure.

The oldest kernel is Linux 5.4 (protocol 7.31): a long-term release, older than any distribution with Python 3.11. From
there on every structure has its present length, requests of 1 MiB can be had, and all `REQUIRED` are there.
"""

from __future__ import annotations

from typing import Final

import msgspec

from blockfs.errors import KernelTooOldError
from blockfs.fuse.fairness import CONGESTION_THRESHOLD, MAX_BACKGROUND
from blockfs.fuse.kernel import wire
from blockfs.fuse.kernel.decode import Init
from blockfs.fuse.kernel.wire import InitFlag, Opcode

OLDEST_MINOR: Final = 31
_WRITES_AT_CLOSE_MINOR: Final = 32
"""Linux 5.10. Since 5.8 close(2) writes a file's pages also if FLUSH is not supported."""

_UNLOCKED_WRITES_MINOR: Final = 45
"""Linux 6.18. Since 6.16 writing a file's pages is over when they are written, and close(2) locks no inode; before, the
kernel wrote copies of pages, and waited for these with the inode locked (fuse_sync_writes). 6.18 is what was tried."""

REQUIRED: Final = (
    InitFlag.ATOMIC_O_TRUNC  # Calls.open truncates
    | InitFlag.DO_READDIRPLUS  # Calls.readdir counts each entry as a lookup
    | InitFlag.WRITEBACK_CACHE  # Calls.write sets no times: the kernel does. A native mount goes without
    | InitFlag.POSIX_ACL  # the kernel asks for ACLs and enforces them
    | InitFlag.EXPORT_SUPPORT  # Calls.lookup finds "." and "..": open_by_handle_at(2), NFS
    | InitFlag.DONT_MASK  # the umask counts only where there is no default ACL: Namespace knows
    | InitFlag.BIG_WRITES
    | InitFlag.MAX_PAGES
)
"""What the calls rely on, whatever the kernel would do without."""

WANTED: Final = (
    InitFlag.ASYNC_READ  # several read-aheads at once
    | InitFlag.ASYNC_DIO  # several direct requests of one caller at once
    | InitFlag.PARALLEL_DIROPS  # lookups of one directory need not wait for each other
    | InitFlag.HANDLE_KILLPRIV_V2  # else the kernel asks for security.capability before every write; since Linux 5.11
)


_NATIVE: Final = InitFlag.PASSTHROUGH | InitFlag.INIT_EXT
"""Of a native mount. Linux 6.9 was the first to offer it. Upper flags count with INIT_EXT only."""


class Agreed(msgspec.Struct, frozen=True, kw_only=True):
    """What both sides use.

    Attributes:
        minor: Version of the protocol.
        flags: Features.
        body: Our answer to INIT.
    """

    minor: int
    flags: InitFlag
    body: bytes

    @property
    def tells_privileges(self) -> bool:
        """Writes, truncations and opens say whether privileges must go; the kernel no longer sees to it."""
        return InitFlag.HANDLE_KILLPRIV_V2 in self.flags

    @property
    def passes_through(self) -> bool:
        """The kernel can read and write files of the host itself; it has no writeback cache then."""
        return InitFlag.PASSTHROUGH in self.flags

    @property
    def writes_unlocked(self) -> bool:
        """Pages of a file can be had, and waited for, while its inode is locked."""
        return self.minor >= _UNLOCKED_WRITES_MINOR

    @property
    def nothing_to_do(self) -> frozenset[int]:
        """Kinds of requests that are done as soon as they are here."""
        return frozenset({Opcode.DESTROY} if self.minor >= _WRITES_AT_CLOSE_MINOR else {Opcode.DESTROY, Opcode.FLUSH})


def negotiate(asked: Init, kernel: str, *, native: bool = False) -> Agreed | None:
    """Answer INIT; None: the kernel must ask again, for our major version (`other_major`).

    Args:
        asked: What it offers.
        kernel: Its release, to be told.
        native: Take passthrough instead of the writeback cache, if it is offered.

    Raises:
        KernelTooOldError: It is.
    """
    if asked.major > wire.MAJOR:
        return None
    if asked.major < wire.MAJOR or asked.minor < OLDEST_MINOR or asked.flags & REQUIRED != REQUIRED:
        raise KernelTooOldError(
            f"this kernel ({kernel}, FUSE {asked.major}.{asked.minor}) is too old for blocksync's own front-end, which "
            f"needs FUSE {wire.MAJOR}.{OLDEST_MINOR} (Linux 5.4): mount with --frontend pyfuse3"
        )
    minor = min(asked.minor, wire.MINOR)
    flags = InitFlag(asked.flags & (REQUIRED | WANTED))
    if native and asked.flags & _NATIVE == _NATIVE:
        flags = flags & ~InitFlag.WRITEBACK_CACHE | _NATIVE  # both at once: registering a file is EPERM
    body = wire.INIT_OUT.pack(
        wire.MAJOR,
        minor,
        asked.max_readahead,
        flags & 0xFFFF_FFFF,
        MAX_BACKGROUND,
        CONGESTION_THRESHOLD,
        wire.MAX_REQUEST,
        1,  # ns: the granularity of times
        wire.MAX_PAGES,
        0,
        flags >> 32,
        wire.STACK_DEPTH if InitFlag.PASSTHROUGH in flags else 0,
    )
    return Agreed(minor=minor, flags=flags, body=body)


def other_major() -> bytes:
    """The answer to an INIT of a later major version."""
    return wire.INIT_OUT.pack(wire.MAJOR, wire.MINOR, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
