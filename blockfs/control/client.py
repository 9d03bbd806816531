"""Blocking client of a mount's control socket.

One connection, one request at a time: a client object belongs to one thread. The syncer calls it from worker threads.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.extents import block_count
from blockfs.control import maps, protocol, snapshots, waiting
from blockfs.control.protocol import CursorMsg, NodeRow
from blockfs.errors import BlockfsError, NotFoundError, UsageError
from blockfs.runtime.failures import said
from blockfs.runtime.output import shown

SOCKET_NAME: Final = b"control.sock"
CONNECT_TIMEOUT_S: Final = 10.0  # a mount under load answers in milliseconds; a stopped one must not hang a command

R = TypeVar("R")


class NotMountedError(NotFoundError):
    """Nobody serves this volume's control socket."""

    def __init__(self, volume: bytes) -> None:
        self.volume = volume
        super().__init__(f"{os.fsdecode(volume)} is not mounted; `blocksync mount` it first")


class RequestError(BlockfsError):
    """The mount answered a request with an error; exit code and errno are its own."""

    def __init__(self, reply: protocol.ErrorReply) -> None:
        self.exit_code = reply.exit_code
        self.errno = reply.errno
        super().__init__(reply.message)


class ConnectionLostError(BlockfsError):
    """The mount went away in the middle of a request, or speaks something else: the request may or may not be done."""


class ControlClient:
    """A connection to the mount that serves a volume.

    Every method raises `RequestError` when the mount refuses (its exit_code says why) and `ConnectionLostError` when
    the mount is gone. Conditional changes answer `Refused` as a value.

    Attributes:
        server_pid: The mount's process.
        makes_files: Whether the mount takes `make_files`; one of an older release does not.
        draws_maps: Likewise `block_map` and `sharing`.
    """

    def __init__(self, volume: bytes) -> None:
        """Connect and agree on the version.

        Args:
            volume: Absolute path of the VOLUME directory, of any length.

        Raises:
            NotMountedError: No socket, or nobody behind it.
            RequestError: Another user's mount, or another protocol version.
        """
        self.volume = volume
        self._socket = _connect(volume)
        try:
            greeting = protocol.Hello(version=protocol.PROTOCOL_VERSION)
            welcome = self._ask(greeting, protocol.Welcome)
        except BaseException:
            self._socket.close()
            raise
        self.server_pid = welcome.pid
        self.makes_files: Final = "makefiles" in welcome.takes
        self.draws_maps: Final = "blockmapof" in welcome.takes
        # Sealing, gc and scrub take as long as they take; a dead mount closes the connection.
        self._socket.settimeout(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connection and with it every file prepared on it and not installed."""
        self._socket.close()

    # --- the mount

    def status(self) -> protocol.StatusReply:
        """Who serves the volume, and where its journal stands."""
        return self._ask(protocol.Status(), protocol.StatusReply)

    def stats(self) -> protocol.StatsReply:
        """Space figures of the committed tree."""
        return self._ask(protocol.Stats(), protocol.StatsReply)

    def block_map(self, path: bytes, cells: int, first: int = 0, count: int = 0) -> maps.BlockMapReply:
        """The map of a file (relative to the mount's root), in at most so many cells. Only where `draws_maps`.

        Args:
            path: The file.
            cells: In how many pieces at most.
            first: Where the part begins that is asked for, in blocks; it is made to begin and end with a leaf.
            count: How many blocks it has; 0: all that follow.

        Raises:
            UsageError: The mount is of a release that draws whole files only.
        """
        request = maps.BlockMapOf(path=path, cells=cells, first=first, count=count)
        reply = self._ask(request, maps.BlockMapReply)
        if (first or count) and not reply.file_blocks and reply.blocks:
            raise UsageError("the mount is of an older release, which draws whole files only; unmount it, and mount it")
        return reply

    def sharing(self, most: int) -> maps.SharingReply:
        """What the files come to, and the `most` that share most. Only where `draws_maps`."""
        return self._ask(maps.SharingOf(most=most), maps.SharingReply)

    def flush(self) -> None:
        """Seal and commit everything the mount has seen. The kernel holds pages too: syncfs(2) the mount first."""
        self._ask(protocol.Flush(), protocol.Done)

    def commit(self) -> None:
        """Make every conditional change durable that was made without a commit of its own."""
        self._ask(protocol.Commit(), protocol.Done)

    def gc(self) -> protocol.GcReply:
        """Remove blocks that nothing refers to."""
        return self._ask(protocol.Gc(), protocol.GcReply)

    def fsck(self) -> protocol.FsckReply:
        """Check the committed metadata."""
        return self._ask(protocol.Fsck(), protocol.FsckReply)

    def scrub(self) -> protocol.ScrubReply:
        """Read and hash all stored blocks."""
        return self._ask(protocol.Scrub(), protocol.ScrubReply)

    def shutdown(self, *, seal: bool = False) -> None:
        """Ask the mount to commit, unmount and end. Returns when it has agreed, not when it is gone.

        Raises:
            RequestError: Exit code 11 when the mount is busy (an open file, a working directory); it goes on serving.
        """
        self._ask(protocol.Shutdown(seal=seal), protocol.Done)

    def clone(self, src: bytes, dst: bytes) -> None:
        """Make `dst` a durable copy of file `src` that shares its blocks. Paths are relative to the mount's root."""
        self._ask(protocol.Clone(src=src, dst=dst), protocol.Done)

    # --- snapshots

    def create_snapshot(self, src: bytes, name: bytes) -> snapshots.SnapshotMsg:
        """Keep `src` (relative to the mount's root) and all below it. Pages in the kernel: syncfs(2) first."""
        (made,) = self._ask(snapshots.SnapshotCreate(src=src, name=name), snapshots.SnapshotsReply).snapshots
        return made

    def snapshots(self) -> list[snapshots.SnapshotMsg]:
        """All snapshots."""
        return self._ask(snapshots.SnapshotList(), snapshots.SnapshotsReply).snapshots

    def delete_snapshot(self, name: bytes) -> None:
        """Delete a snapshot."""
        self._ask(snapshots.SnapshotDelete(name=name), protocol.Done)

    def restore_snapshot(self, name: bytes, path: bytes, dst: bytes) -> None:
        """Copy what is at `path` in a snapshot (b"": all of it) to the new `dst`, relative to the mount's root."""
        self._ask(snapshots.SnapshotRestore(name=name, path=path, dst=dst), protocol.Done)

    # --- what changed

    def change_pages(
        self,
        cursor: CursorMsg | None,
        *,
        limit: int = 1024,
        snapshot: bytes | None = None,
        xattr_bytes: int | None = None,
    ) -> Iterator[protocol.ChangesReply]:
        """Pages of one consistent listing since `cursor` (None: everything). Keep the cursor of the last page only."""
        after, more = 0, True
        while more:
            request = protocol.Changes(
                cursor=cursor, after=after, limit=limit, snapshot=snapshot, xattr_bytes=xattr_bytes
            )
            page = self._ask(request, protocol.ChangesReply)
            yield page
            after, more = page.after, page.more

    def changes(
        self, cursor: CursorMsg | None, snapshot: bytes | None = None, xattr_bytes: int | None = None
    ) -> tuple[bool, list[NodeRow], list[int], CursorMsg]:
        """All pages at once: (full, rows, gone, new cursor). Memory O(rows)."""
        rows: list[NodeRow] = []
        gone: list[int] = []
        full, reached = False, cursor
        limit = 1024 if xattr_bytes is None else 128  # names alone may take 64 KiB a row
        for page in self.change_pages(cursor, limit=limit, snapshot=snapshot, xattr_bytes=xattr_bytes):
            rows += page.rows
            gone += page.gone
            full, reached = page.full, page.cursor
        assert reached is not None  # there is always at least one page
        return full, rows, gone, reached

    def wait(self, seen: int | None, timeout_ms: int) -> waiting.WaitReply:
        """Wait until users changed something since activity `seen`, or the time is over (None: don't wait).

        Blocks the connection: use one of its own. `interrupt` ends it from another thread.
        """
        return self._ask(waiting.Wait(seen=seen, timeout_ms=timeout_ms), waiting.WaitReply)

    def interrupt(self) -> None:
        """End a request under way in another thread, which raises `ConnectionLostError`; only `close` is left then."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def hashes(self, items: Sequence[tuple[int, int]], snapshot: bytes | None = None) -> list[bytes | None]:
        """Object hashes for (inode, content version); None where that is not the committed content any more."""
        return self._ask(protocol.Hashes(items=list(items), snapshot=snapshot), protocol.HashesReply).hashes

    def block_list_page(
        self, ino: int, content_version: int, first: int, count: int, snapshot: bytes | None = None
    ) -> protocol.BlockListReply | None:
        """Up to `count` ids from block index `first` on; None when the content changed meanwhile."""
        request = protocol.BlockListPage(
            ino=ino, content_version=content_version, first=first, count=count, snapshot=snapshot
        )
        reply = self._exchange(request)
        if isinstance(reply, protocol.ChangedReply):
            return None
        return _expected(reply, protocol.BlockListReply)

    def block_list(
        self, ino: int, content_version: int, block_size: int, snapshot: bytes | None = None
    ) -> BlockList | None:
        """The whole block list of a committed content; None when it changed meanwhile. Memory 32 bytes per block."""
        ids = bytearray()
        while True:
            first = len(ids) // 32
            page = self.block_list_page(ino, content_version, first, protocol.MAX_PAGE_IDS, snapshot)
            if page is None:
                return None
            ids += page.ids
            if len(ids) // 32 >= block_count(page.size_bytes, block_size):
                return BlockList(block_size=block_size, size_bytes=page.size_bytes, ids=bytes(ids))
            if not page.ids:
                raise ConnectionLostError(f"inode {ino}: the mount sent an empty page of block ids")

    # --- conditional changes

    def prepare_file(
        self, *, size_bytes: int, mode: int, uid: int, gid: int, mtime_ns: int, base: tuple[int, int] | None = None
    ) -> int | None:
        """Begin a nameless file with the blocks of `base` (inode, content version) or holes. None: the base changed."""
        request = protocol.PrepareFile(size_bytes=size_bytes, mode=mode, uid=uid, gid=gid, mtime_ns=mtime_ns, base=base)
        reply = self._exchange(request)
        if isinstance(reply, protocol.ChangedReply):
            return None
        return _expected(reply, protocol.Prepared).handle

    def set_blocks(self, handle: int, first: int, ids: bytes) -> list[bytes]:
        """Set the ids of blocks `first`, `first` + 1, …; at most `MAX_PAGE_IDS` of them.

        Returns:
            Ids that are not in the block directory. Then nothing was set; empty: done.
        """
        reply = self._exchange(protocol.SetBlocks(handle=handle, first=first, ids=ids))
        if isinstance(reply, protocol.MissingBlocks):
            return reply.ids
        _expected(reply, protocol.Done)
        return []

    def abandon_file(self, handle: int) -> None:
        """Drop a prepared file."""
        self._ask(protocol.AbandonFile(handle=handle), protocol.Done)

    def make_files(
        self, files: Sequence[protocol.NewFile], *, commit: bool
    ) -> list[protocol.Applied | protocol.Refused | protocol.MissingBlocks | RequestError]:
        """Make up to 1024 new files; returns what became of each. Only where `makes_files`."""
        reply = self._ask(protocol.MakeFiles(files=list(files), commit=commit), protocol.MadeFiles)
        if len(reply.files) != len(files):
            raise ConnectionLostError(f"{len(reply.files)} answers for {len(files)} new files")
        return [RequestError(each) if isinstance(each, protocol.ErrorReply) else each for each in reply.files]

    def apply(
        self,
        change: protocol.InstallFile
        | protocol.ApplyMkdir
        | protocol.ApplySymlink
        | protocol.ApplyMove
        | protocol.ApplyRemove
        | protocol.ApplySetMeta,
    ) -> protocol.Applied | protocol.Refused:
        """Make one conditional change: durable when `Applied` (if it has `commit`); nothing changed when `Refused`."""
        reply = self._exchange(change)
        if isinstance(reply, protocol.Refused):
            return reply
        return _expected(reply, protocol.Applied)

    # --- frames

    def _ask(self, request: protocol.ToServer, kind: type[R]) -> R:
        return _expected(self._exchange(request), kind)

    def _exchange(self, request: protocol.ToServer) -> protocol.ToClient:
        try:
            self._socket.sendall(protocol.encode(request))
            header = self._receive(protocol.HEADER_BYTES)
            return protocol.decode_to_client(self._receive(protocol.payload_size(header)))
        except (OSError, protocol.ProtocolError) as error:
            raise ConnectionLostError(f"lost the mount of {shown(self.volume)}: {said(error)}") from error

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self._socket.recv(size - len(received))
            if not piece:
                raise ConnectionResetError("the connection was closed")
            received += piece
        return bytes(received)


def _expected(reply: protocol.ToClient, kind: type[R]) -> R:
    if isinstance(reply, protocol.ErrorReply):
        raise RequestError(reply)
    if not isinstance(reply, kind):
        raise ConnectionLostError(f"unexpected reply {type(reply).__name__}")
    return reply


def _connect(volume: bytes) -> socket.socket:
    """Connect through a directory descriptor: sun_path holds 107 bytes, a volume's path may be longer."""
    try:
        directory = os.open(volume, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        raise NotMountedError(volume) from None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(CONNECT_TIMEOUT_S)
    try:
        connection.connect(b"/proc/self/fd/%d/%s" % (directory, SOCKET_NAME))
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        raise NotMountedError(volume) from None
    except OSError as error:
        connection.close()
        raise ConnectionLostError(f"{shown(volume)}: can't reach its mount: {said(error)}") from error
    finally:
        os.close(directory)
    return connection
