"""Messages of the control socket. Pure: bytes in, values out.

A frame is a big-endian u32 length (bytes of the payload, at most `MAX_FRAME_BYTES`) and the payload, one msgpack map
with the key "type" that names the message. The client's first frame is `Hello`; the server answers `Welcome` or an
`ErrorReply` and closes. Then requests and replies alternate, one at a time per connection. Field-by-field reference:
docs/reference/control-protocol.md.

Versions: `PROTOCOL_VERSION` changes when a message changes its meaning. Added optional fields do not change it:
unknown keys are ignored by both sides.
"""

from __future__ import annotations

import struct
from typing import Annotated, Final

import msgspec

from blockfs.control.applying import MOST_MADE as MOST_MADE  # noqa: PLC0414 - part of this module
from blockfs.control.applying import MOST_MADE_IDS as MOST_MADE_IDS  # noqa: PLC0414 - part of this module
from blockfs.control.applying import ApplyMkdir as ApplyMkdir  # noqa: PLC0414 - part of this module
from blockfs.control.applying import ApplyMove as ApplyMove  # noqa: PLC0414 - part of this module
from blockfs.control.applying import ApplyRemove as ApplyRemove  # noqa: PLC0414 - part of this module
from blockfs.control.applying import ApplySetMeta as ApplySetMeta  # noqa: PLC0414 - part of this module
from blockfs.control.applying import ApplySymlink as ApplySymlink  # noqa: PLC0414 - part of this module
from blockfs.control.applying import Change as Change  # noqa: PLC0414 - part of this module
from blockfs.control.applying import Expect as Expect  # noqa: PLC0414 - part of this module
from blockfs.control.applying import InstallFile as InstallFile  # noqa: PLC0414 - part of this module
from blockfs.control.applying import MakeFiles as MakeFiles  # noqa: PLC0414 - part of this module
from blockfs.control.applying import NewFile as NewFile  # noqa: PLC0414 - part of this module
from blockfs.control.maps import BlockMapOf, BlockMapReply, SharingOf, SharingReply
from blockfs.control.message import MAX_XATTR_BYTES, Ino, Mode, Name, Size, TimeNs, UserId, Version
from blockfs.control.message import Message as _Message
from blockfs.control.snapshots import SnapshotCreate, SnapshotDelete, SnapshotList, SnapshotRestore, SnapshotsReply
from blockfs.control.waiting import Wait, WaitReply
from blockfs.tree.schema import LINE_BITS
from blockfs.xattrs import Carried

PROTOCOL_VERSION: Final = 1

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024  # the largest honest reply is a page of `MAX_PAGE_IDS` ids (8 MiB)
MAX_PAGE_IDS: Final = 1 << 18
"""Ids in one `BlockListPage` or `SetBlocks`: 8 MiB of ids, 16 GiB of a file at 64 KiB."""

MAX_PAGE_ROWS: Final = 4096
"""Rows in one `ChangesReply`: 4096 rows with long names stay far below `MAX_FRAME_BYTES`."""

TAKES: Final = ("makefiles", "blockmapof", "sharingof")
"""Of version 1, what its first servers did not answer; see `Welcome`."""

_LENGTH: Final = struct.Struct(">I")
HEADER_BYTES: Final = _LENGTH.size


class ProtocolError(ValueError):
    """The other side sent something that is not a frame or message of this protocol."""


class Hello(_Message, frozen=True, kw_only=True):
    """First frame of a client."""

    version: int


class Welcome(_Message, frozen=True, kw_only=True):
    """The server speaks this version and the peer is allowed.

    Attributes:
        takes: Requests that it answers and servers before it did not: nobody sends them one that is not named here.
    """

    version: int
    pid: int
    takes: tuple[str, ...] = ()


# --- values inside messages


class CursorMsg(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the change journal: all changes up to and including `sequence` are known to the holder.

    Attributes:
        mount_generation: Changes after an unclean end of a mount; a cursor of another generation is void. A copy of the
            volume has another `line`.
        sequence: u64, never reused.
    """

    mount_generation: Version
    sequence: Version

    @property
    def line(self) -> int:
        """What all generations have in common until the volume is copied; a greater one of the same line is later."""
        return self.mount_generation >> LINE_BITS


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One committed inode with all its names.

    Attributes:
        places: (inode of the directory, name) of each hard link; the root has none.
        kind: "file", "directory", "symlink", "fifo", "socket", "character" or "block".
        mode: Permission bits, 0o7777.
        version: Sequence of its last change of any kind.
        content_version: Sequence of its last content change; names the content in `Hashes`, `BlockListPage` and
            `Expect`.
        target: Symlinks only.
        writers: Handles open for writing now.
        xattrs: Of users, if they were asked for; see `xattrs`.
        lost_bytes: How many bytes the host failed to write of it, and nobody has written again: it has no hash then.
    """

    ino: Ino
    places: list[tuple[int, bytes]]
    kind: str
    mode: Mode
    uid: UserId
    gid: UserId
    size_bytes: Size
    mtime_ns: TimeNs
    ctime_ns: TimeNs
    btime_ns: TimeNs
    version: Version
    content_version: Version
    nlink: int
    target: bytes | None = None
    writers: int = 0
    xattrs: Carried | None = None
    lost_bytes: int = 0


class FindingMsg(msgspec.Struct, frozen=True, kw_only=True):
    """One broken invariant that fsck found: a stable name, a sentence, and what repair does about it, if anything."""

    kind: str
    message: str
    remedy: str = ""


class LossMsg(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is gone: bytes `start` to `end` - 1 of a file, or else what the words say; see `tree.findings`."""

    inode: int
    path: bytes
    what: str
    start: int | None
    end: int | None


# --- requests


class Status(_Message, frozen=True, kw_only=True):
    """Who serves this volume?"""


class Stats(_Message, frozen=True, kw_only=True):
    """Space figures of the committed tree. O(files + leaves)."""


class Flush(_Message, frozen=True, kw_only=True):
    """Seal everything staged and commit durably. Pages in the kernel are not ours: syncfs(2) the mount first."""


class Commit(_Message, frozen=True, kw_only=True):
    """Make every conditional change durable that was answered before this request. Seals nothing."""


class Changes(_Message, frozen=True, kw_only=True):
    """Committed changes since a cursor, in pages in inode order.

    All pages of one listing come from one snapshot, which the connection holds until the last page or until a
    request with `after` = 0. Ask on until `more` is false; only then the reply's cursor is yours.

    Attributes:
        cursor: None: the complete listing.
        after: Highest inode of the previous page, 0 for the first.
        limit: Rows per page, at most `MAX_PAGE_ROWS`.
        snapshot: Name of a snapshot of the root: rows and cursor are as of its instant, nobody has a file open.
        xattr_bytes: How much of a node's extended attributes is told at most; None: nothing.
    """

    cursor: CursorMsg | None = None
    snapshot: Name | None = None
    after: Size = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE_ROWS)] = 1024
    xattr_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_XATTR_BYTES)] | None = None


class Hashes(_Message, frozen=True, kw_only=True):
    """Object hashes of committed contents, for (inode, content version); with `snapshot` of the contents in it."""

    items: list[tuple[Ino, Version]]
    snapshot: Name | None = None


class BlockListPage(_Message, frozen=True, kw_only=True):
    """A run of `count` block ids (at most `MAX_PAGE_IDS`), holes included, of a committed content, or in `snapshot`."""

    ino: Ino
    snapshot: Name | None = None
    content_version: Version
    first: Size
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE_IDS)]


class Clone(_Message, frozen=True, kw_only=True):
    """Make `dst` share the content of file `src`. Paths are relative to the mount's root, "/"-separated.

    Errors: 10 (no src, no parent of dst), 2 (dst exists, src is no file).
    """

    src: bytes
    dst: bytes


class PrepareFile(_Message, frozen=True, kw_only=True):
    """Begin a new, nameless file. It belongs to the connection: closing drops it.

    Attributes:
        mode: Permission bits.
        base: (inode, content version) whose block list the new file starts with, or None: all holes.
    """

    size_bytes: Size
    mode: Mode
    uid: UserId
    gid: UserId
    mtime_ns: TimeNs
    base: tuple[Ino, Version] | None = None


class SetBlocks(_Message, frozen=True, kw_only=True):
    """Give a prepared file the ids (concatenated, 32 bytes each) of its blocks from index `first` on.

    The blocks must be in the block directory, durable, and pinned or held by the caller until the file is installed.
    """

    handle: int
    first: Size
    ids: bytes


class AbandonFile(_Message, frozen=True, kw_only=True):
    """Drop a prepared file."""

    handle: int


class Gc(_Message, frozen=True, kw_only=True):
    """Remove blocks that nothing refers to."""


class Fsck(_Message, frozen=True, kw_only=True):
    """Check the committed tree's invariants on a read snapshot."""


class Scrub(_Message, frozen=True, kw_only=True):
    """Read and hash every stored block."""


class Shutdown(_Message, frozen=True, kw_only=True):
    """Unmount and end. The reply comes before the unmount; wait for the process to be gone.

    Attributes:
        seal: Turn everything staged into blocks first.
    """

    seal: bool = False


# --- replies


class StatusReply(_Message, frozen=True, kw_only=True):
    """The running mount. `cursor` is the newest durable one.

    Attributes:
        scrub_blocks: Blocks that a scrub under way will check; 0: there is none. Came, as the next one, with 0.2.
        scrub_blocks_done: Those that it has checked.
    """

    pid: int
    program_version: str
    volume: bytes
    uuid: str
    mountpoint: bytes
    block_size: int
    cursor: CursorMsg
    staged_bytes: int
    scrub_blocks: int = 0
    scrub_blocks_done: int = 0


class StatsReply(_Message, frozen=True, kw_only=True):
    """Space figures; the keys of `blocksync stats --json`.

    Attributes:
        files: Regular files, hard links once.
        logical_bytes: Sum of st_size of regular files, hard links once.
        unique_bytes: Canonical bytes (without trailing NULs) of the distinct blocks that files refer to.
        stored_bytes: Allocated bytes of the volume on its host, without staging.
        blocks: Distinct blocks that files refer to.
        staged_bytes: Written, not yet sealed; of hot files what was written back and nobody shares.
        dedup_ratio: Non-hole logical bytes / unique bytes; 1.0 for an empty volume.
        program_version: Of the mount process. It and all below came with 0.2; counts are since the mount began.
        read_only: Mounted read-only.
        uptime_seconds: Since the mount began.
        open_files: Handles of regular files that are open.
        requests: Answered requests of the kernel by kind: "read", "fsync".
        request_seconds: From request to answer, added up, by kind.
        errors: Requests that were answered with an error, by its name: "ENOSPC".
        commits: Commits of metadata.
        sealed_files: How often what was staged of a file was turned into blocks.
        gc_runs: Collections.
        gc_removed_blocks: What they removed.
        gc_freed_bytes: What the host got back from them.
        frontend: What talks to the kernel: "kernel", "pyfuse3", or "" if it is older than this key.
        mode: Where writes go: "writeback": through the mount process, into staging; "native": from the kernel to files
            of the host. "" as before.
        mode_reason: Why there: a sentence without its full stop.
    """

    files: int
    logical_bytes: int
    unique_bytes: int
    stored_bytes: int
    blocks: int
    staged_bytes: int
    dedup_ratio: float
    program_version: str = ""
    read_only: bool = False
    uptime_seconds: float = 0.0
    open_files: int = 0
    requests: dict[str, int] = msgspec.field(default_factory=dict)
    request_seconds: dict[str, float] = msgspec.field(default_factory=dict)
    errors: dict[str, int] = msgspec.field(default_factory=dict)
    commits: int = 0
    sealed_files: int = 0
    gc_runs: int = 0
    gc_removed_blocks: int = 0
    gc_freed_bytes: int = 0
    frontend: str = ""
    mode: str = ""
    mode_reason: str = ""


class Done(_Message, frozen=True, kw_only=True):
    """It is done; for Flush, Commit and Clone: durably."""


class ChangesReply(_Message, frozen=True, kw_only=True):
    """One page of changes.

    Attributes:
        full: The rows are a complete listing: the cursor was None, void or older than the journal reaches.
        rows: Linked inodes (for full: all but the root's parentless row is included too), ascending.
        gone: Inodes that no longer have a name, ascending (empty for full).
        after: What the next request's `after` must be.
    """

    full: bool
    rows: list[NodeRow]
    gone: list[int]
    cursor: CursorMsg
    after: int
    more: bool


class HashesReply(_Message, frozen=True, kw_only=True):
    """Object hashes in the order asked for; None where the content version is not the committed one any more."""

    hashes: list[bytes | None]


class BlockListReply(_Message, frozen=True, kw_only=True):
    """A run of ids. May be shorter than asked for at the end of the file."""

    size_bytes: int
    ids: bytes


class ChangedReply(_Message, frozen=True, kw_only=True):
    """The content version asked for is not the committed one any more (or the inode is gone)."""


class Prepared(_Message, frozen=True, kw_only=True):
    """A nameless file; the handle is valid on this connection."""

    handle: int


class MissingBlocks(_Message, frozen=True, kw_only=True):
    """SetBlocks changed nothing: these ids (distinct, 32 bytes each) are not in the block directory."""

    ids: list[bytes]


class Applied(_Message, frozen=True, kw_only=True):
    """A conditional change is made and durable.

    Attributes:
        displaced: Inode that was moved to the trash place.
    """

    ino: int
    version: int
    content_version: int
    displaced: int | None = None


class Refused(_Message, frozen=True, kw_only=True):
    """A conditional change was not made: the world is not as expected. Nothing changed.

    Attributes:
        reason: "changed" (another inode or content), "occupied" (the new name is taken), "busy" (open for writing),
            "gone" (no such name, inode or parent), "not_empty" (directory).
    """

    reason: str


class MadeFiles(_Message, frozen=True, kw_only=True):
    """What became of each new file, in order: each fails alone. `MissingBlocks` and `ErrorReply`: it was not made."""

    files: list[Applied | Refused | MissingBlocks | ErrorReply]


class GcReply(_Message, frozen=True, kw_only=True):
    """What a collection removed; bytes_freed is what the host filesystem got back."""

    blocks_removed: int
    bytes_freed: int


class FsckReply(_Message, frozen=True, kw_only=True):
    """Broken invariants, empty: clean; and what is lost, or would be after a repair."""

    inodes_checked: int
    findings: list[FindingMsg]
    lost: list[LossMsg]


class ScrubReply(_Message, frozen=True, kw_only=True):
    """What scrub found.

    Attributes:
        corrupt: Ids (32 bytes) of blocks whose stored content is not what the id says; they are quarantined.
        missing: Ids of blocks that `paths` need as well, and that are not stored.
        paths: Files that need them, relative to the root; at most 10,000.
        findings: Other damage, one sentence each.
    """

    clean: bool
    blocks_checked: int
    bytes_read: int
    corrupt: list[bytes]
    missing: list[bytes]
    paths: list[bytes]
    findings: list[str]


class ErrorReply(_Message, frozen=True, kw_only=True):
    """The request failed.

    Attributes:
        exit_code: What a command that meets this ends with (docs/reference/exit-codes.md).
        errno: POSIX error number, 5 (EIO) when nothing fits better.
    """

    exit_code: int
    errno: int
    message: str


Request = (
    Status
    | Stats
    | BlockMapOf
    | SharingOf
    | Flush
    | Commit
    | Changes
    | Wait
    | Hashes
    | BlockListPage
    | Clone
    | SnapshotCreate
    | SnapshotList
    | SnapshotDelete
    | SnapshotRestore
    | PrepareFile
    | SetBlocks
    | InstallFile
    | MakeFiles
    | AbandonFile
    | ApplyMkdir
    | ApplySymlink
    | ApplyMove
    | ApplyRemove
    | ApplySetMeta
    | Gc
    | Fsck
    | Scrub
    | Shutdown
)

Reply = (
    StatusReply
    | StatsReply
    | BlockMapReply
    | SharingReply
    | Done
    | SnapshotsReply
    | ChangesReply
    | WaitReply
    | HashesReply
    | BlockListReply
    | ChangedReply
    | Prepared
    | MissingBlocks
    | Applied
    | Refused
    | MadeFiles
    | GcReply
    | FsckReply
    | ScrubReply
    | ErrorReply
)

ToServer = Hello | Request
ToClient = Welcome | Reply

_encoder: Final = msgspec.msgpack.Encoder()
_to_server: Final[msgspec.msgpack.Decoder[ToServer]] = msgspec.msgpack.Decoder(ToServer)
_to_client: Final[msgspec.msgpack.Decoder[ToClient]] = msgspec.msgpack.Decoder(ToClient)


def encode(message: ToServer | ToClient) -> bytes:
    """One frame, header included.

    Raises:
        ProtocolError: The payload would exceed `MAX_FRAME_BYTES`.
    """
    payload = _encoder.encode(message)
    if len(payload) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a {type(message).__name__} of {len(payload)} bytes exceeds a frame's {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(payload)) + payload


def payload_size(header: bytes) -> int:
    """Bytes of the payload that follows a frame's `HEADER_BYTES` bytes.

    Raises:
        ProtocolError: Above `MAX_FRAME_BYTES`: nothing of it is read.
    """
    size: int = _LENGTH.unpack(header)[0]
    if size > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {size} bytes exceeds {MAX_FRAME_BYTES}")
    return size


def decode_to_server(payload: bytes) -> ToServer:
    """What a client sent.

    Raises:
        ProtocolError: Not a message of this protocol.
    """
    try:
        return _to_server.decode(payload)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"not a request: {error}") from None


def decode_to_client(payload: bytes) -> ToClient:
    """What a server sent.

    Raises:
        ProtocolError: Not a message of this protocol.
    """
    try:
        return _to_client.decode(payload)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"not a reply: {error}") from None
