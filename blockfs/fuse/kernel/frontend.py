"""Front-end 2: the kernel's own protocol. Reads requests, and answers most at once: without a task, or a thread.

The kernel caches entries, attributes and pages for as long as it likes, because this process is the only writer. With
the writeback cache it also owns size and times of regular files it knows.
What changes behind its back (clones, applied changes) must be told: `forget_entry`, `forget_attributes`.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Mapping
from functools import partial
from typing import Final

import trio

from blockfs.engine.filesystem import Filesystem
from blockfs.errors import MountError, WouldBlock
from blockfs.fuse.answering import Answering, Limit, keep_dirty_low
from blockfs.fuse.calls import Calls
from blockfs.fuse.kernel import decode, encode
from blockfs.fuse.kernel.channel import Channel
from blockfs.fuse.kernel.decode import Header, MalformedError
from blockfs.fuse.kernel.mounting import greeted, mounted, undo
from blockfs.fuse.kernel.translation import UNANSWERED, Row, Translation
from blockfs.fuse.kernel.wire import HANDLE_IN, Opcode
from blockfs.fuse.writeback import take_pages
from blockfs.runtime.logs import Log
from blockfs.service.counters import Counters

MAX_WAITING: Final = 96  # requests that wait in tasks: each holds up to 1 MiB; pyfuse3 has 99 tasks
_TURN: Final = 16  # requests that are answered before other tasks have theirs

log = Log()


class Refused(Exception):  # noqa: N818 - a control-flow signal, as the front-end of pyfuse3 has one
    """What the kernel is told instead of an answer."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class KernelFrontend:
    """A mount without libfuse.

    Attributes:
        is_unmounted: The kernel has let go of it: nobody waits for an answer any more.
    """

    name: Final = "kernel"

    def __init__(self, filesystem: Filesystem, counters: Counters) -> None:
        self._filesystem = filesystem
        self._calls = Calls(filesystem, counters)
        self._answering = Answering(filesystem, self._calls, counters, Refused)
        self._rows: Mapping[int, Row] = {}
        self._channel: Channel | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._reading = trio.CancelScope()
        self._room = trio.Semaphore(MAX_WAITING)
        self._mountpoint = b""
        self._is_terminated = False
        self.is_unmounted = False

    def mount(self, volume: bytes, mountpoint: bytes, *, flags: frozenset[str]) -> None:
        """Mount. Requests wait until `serve` runs.

        Args:
            volume: Shown as the mount's source.
            mountpoint: An existing directory.
            flags: Mount options without a value, such as "ro", "allow_other", "noexec".

        Raises:
            MountError: Refused; says why.
        """
        self._mountpoint = mountpoint
        channel = Channel(mounted(volume, mountpoint, flags))
        try:
            agreed = greeted(channel)
        except MountError:
            channel.close()
            undo(mountpoint)
            raise
        self._channel = channel
        self._rows = Translation(self._calls, tells_privileges=agreed.tells_privileges).rows

    async def serve(self) -> None:
        """Answer requests until the kernel has unmounted or `terminate` is called."""
        self._token = trio.lowlevel.current_trio_token()
        if self._filesystem.fatal.has_struck:
            return
        assert self._channel is not None, "mounted first"
        async with trio.open_nursery() as nursery:
            with self._reading:
                await self._read(self._channel, nursery)
        self.is_unmounted = not self._is_terminated

    async def keep_dirty_low(self, limit: Limit) -> None:
        """Lower the limit of dirty pages while fsyncs wait beside a stream; until cancelled."""
        await keep_dirty_low(self._calls.fairness, limit)

    def terminate(self) -> None:
        """Make `serve` return while the mount is still there. From any thread."""
        assert self._token is not None
        self._is_terminated = True
        trio.from_thread.run_sync(self._reading.cancel, trio_token=self._token)

    def abandon(self) -> None:
        """Make `serve` return, if it runs. From any thread, whatever it holds: nothing is waited for."""
        self._is_terminated = True
        if self._token is not None:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._reading.cancel)

    def close(self) -> None:
        """Free the connection. It is for the caller to have unmounted."""
        if self._channel is not None:
            self._channel.close()

    # --- what the kernel must forget ---

    def forget_entry(self, parent: int, name: bytes) -> None:
        """Tell the kernel that a directory entry has changed, and that its directory's times have.

        From a thread without the engine's lock: the kernel may write pages back through the loop before it answers.
        """
        self._notify(encode.forget_entry(parent, name))
        self.forget_attributes(parent)

    def take_pages(self) -> None:
        """See `writeback`."""
        take_pages(self._filesystem, self._mountpoint)

    def forget_attributes(self, ino: int) -> None:
        """Tell the kernel that an inode's attributes have changed. From a thread without the engine's lock."""
        self._notify(encode.forget_inode(ino, pages=False))

    def forget_pages(self, ino: int) -> None:
        """Have the kernel drop its pages of a file. It writes those first that were changed: through this mount."""
        self._notify(encode.forget_inode(ino, pages=True))

    def _notify(self, message: bytes) -> None:
        assert self._channel is not None, "mounted first"
        try:
            self._channel.notify(message)
        except OSError as error:
            # The kernel does not know it (any more), or the mount is just ending: there is nothing to forget.
            if error.errno not in {errno.ENOENT, errno.ENOTCONN, errno.ENODEV}:
                raise

    # --- requests ---

    async def _read(self, channel: Channel, nursery: trio.Nursery) -> None:
        """Answer what comes, until the kernel has unmounted."""
        with contextlib.suppress(EOFError):
            while True:
                for _ in range(_TURN):
                    message = channel.receive()
                    if message is None:
                        await channel.ready()
                        continue
                    left = self._answer(channel, message)
                    if left is not None:
                        await self._room.acquire()
                        nursery.start_soon(self._answer_later, channel, *left)
                await trio.lowlevel.checkpoint()

    def _answer(self, channel: Channel, message: memoryview) -> tuple[Row, Header, bytes, float] | None:
        """Answer a request; or what is needed to do so where it may wait."""
        began_s = time.perf_counter()
        try:
            header, body = decode.split(message)
        except MalformedError as error:  # not even whom to answer is certain
            log.warning("request.malformed", reason=str(error))
            return None
        row = self._rows.get(header.opcode)
        if row is None:
            self._answer_simply(channel, header)
            return None
        try:
            with self._answering.owning(row.request, began_s, _handle(row, body), may_repeat=True):
                answer = row.answer(header, body, False)
        except WouldBlock:
            return row, header, bytes(body), began_s
        except Refused as refused:
            _refuse(channel, header, refused.number)
        else:
            if header.opcode not in UNANSWERED:
                channel.answer(header.unique, answer)
        return None

    def _answer_simply(self, channel: Channel, header: Header) -> None:
        """What needs no call.

        INTERRUPT is among what is not supported, and then the kernel stops sending it: no program expects EINTR of a
        disk, so whoever gets a signal has its answer when that is there, as on the host's filesystem.
        """
        if header.opcode == Opcode.DESTROY:
            channel.answer(header.unique, b"")
        else:
            _refuse(channel, header, errno.ENOSYS)

    async def _answer_later(self, channel: Channel, row: Row, header: Header, body: bytes, began_s: float) -> None:
        """Answer a request for which a disk must be waited for, or others' turns."""
        view = memoryview(body)
        inline = partial(row.answer, header, view, False)
        waiting = partial(row.answer, header, view, True)
        try:
            with self._answering.owning(row.request, began_s, _handle(row, view)):
                answer = await self._answering.repeated(row.request.repeat, inline, waiting)
        except Refused as refused:
            channel.refuse(header.unique, refused.number)
        else:
            channel.answer(header.unique, answer)
        finally:
            self._room.release()


def _refuse(channel: Channel, header: Header, number: int) -> None:
    if header.opcode not in UNANSWERED:
        channel.refuse(header.unique, number)


def _handle(row: Row, body: memoryview) -> int | None:
    """The file whose content a request is about, to be told if it is damaged."""
    return int(HANDLE_IN.unpack_from(body)[0]) if row.request.by_handle and len(body) >= HANDLE_IN.size else None
