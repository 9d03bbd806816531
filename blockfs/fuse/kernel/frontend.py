"""Front-end 2: the kernel's own protocol, without libfuse.

The kernel caches entries, attributes and pages for as long as it likes, because this process is the only writer. With
the writeback cache it also owns size and times of regular files it knows. A native mount has none: there the kernel
reads and writes files of the host itself (`native`), and what goes through us is written at once.
What changes behind its back (clones, applied changes) must be told: `forget_entry`, `forget_attributes`.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
from typing import Final

import trio

from blockfs.engine.filesystem import Filesystem
from blockfs.errors import FsError, MountError
from blockfs.fuse.answering import Answering, Limit, keep_dirty_low
from blockfs.fuse.calls import Calls
from blockfs.fuse.kernel import encode
from blockfs.fuse.kernel.channel import Channel
from blockfs.fuse.kernel.mounting import greeted, mounted, undo
from blockfs.fuse.kernel.native import NativeFiles
from blockfs.fuse.kernel.negotiate import Agreed
from blockfs.fuse.kernel.preparing import HotFiles
from blockfs.fuse.kernel.serving import Refused, Serving
from blockfs.fuse.kernel.translation import Translation
from blockfs.fuse.writeback import take_pages, take_pages_of_locked
from blockfs.service.counters import Counters

_SOON_S: Final = 0.005  # right after the last close it is mostly the kernel itself that still has a file
_SWEEP_S: Final = 1.0  # later it is a mapping


class KernelFrontend:
    """A mount without libfuse.

    Args:
        filesystem: What is mounted.
        counters: Of the mount.
        hot: Has files of the host for the kernel to read and write, if not the filesystem.

    Attributes:
        is_unmounted: The kernel has let go of it: nobody waits for an answer any more.
        why_not_native: Why the kernel reads and writes no files of the host itself; None: it does. Known once mounted.
    """

    name: Final = "kernel"

    def __init__(self, filesystem: Filesystem, counters: Counters, hot: HotFiles | None = None) -> None:
        self._filesystem = filesystem
        if hot is None and filesystem.hot.why_not is None:
            hot = filesystem.hot
        self._hot = hot
        self._native: NativeFiles | None = None
        self._calls = Calls(filesystem, counters)
        self._answering = Answering(filesystem, self._calls, counters, Refused)
        self._calls.forget_attributes = self.forget_attributes
        self._calls.take_pages = self._take_pages_of
        filesystem.namespace.take_pages = self._take_pages_if_it_can
        self._channel: Channel | None = None
        self._serving: Serving | None = None
        self._writes_unlocked = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._reading = trio.CancelScope()
        self._mountpoint = b""
        self._is_terminated = False
        self.is_unmounted = False
        self.why_not_native = None if hot is not None else filesystem.hot.why_not

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
        channel, agreed = _greeted(volume, mountpoint, flags, native=self._hot is not None)
        if self._hot is not None:
            self.why_not_native = _why_not_native(channel, agreed, volume)
            if agreed.passes_through and self.why_not_native is not None:
                channel.close()  # what was agreed stays so: without passthrough the writeback cache is worth having
                undo(mountpoint)
                channel, agreed = _greeted(volume, mountpoint, flags, native=False)
        self._channel = channel
        self._writes_unlocked = agreed.writes_unlocked
        if self._hot is not None and agreed.passes_through:
            self._native = NativeFiles(
                self._hot, channel, self._size, self.forget_pages, owning=self._filesystem.fatal.owning
            )
            self._calls.stamps_writes = True
        translation = Translation(self._calls, tells_privileges=agreed.tells_privileges, native=self._native)
        self._serving = Serving(channel, translation.rows, self._answering, agreed.nothing_to_do)

    async def serve(self) -> None:
        """Answer requests until the kernel has unmounted or `terminate` is called."""
        self._token = trio.lowlevel.current_trio_token()
        if self._filesystem.fatal.has_struck:
            return
        assert self._serving is not None, "mounted first"
        async with trio.open_nursery() as sweeping:
            if self._native is not None:
                sweeping.start_soon(_sweep, self._native)
            async with trio.open_nursery() as nursery:
                with self._reading:
                    await self._serving.run(nursery)
            sweeping.cancel_scope.cancel()
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
        if self._native is not None:
            self._native.end()
        if self._channel is not None:
            self._channel.close()

    def _size(self, ino: int) -> int:
        return self._calls.getattr(ino).size_bytes

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

    def _take_pages_of(self, ino: int) -> None:
        """Wait until all that was written to one file has come in. From a thread without the engine's lock.

        Raises:
            FsError: EINVAL, with which programs take a file for one piece of data: the kernel does not hand its pages
                over while it keeps the inode locked.
        """
        if self._native is not None and self._native.passes_through(ino):
            return
        if not self._writes_unlocked:
            raise FsError(errno.EINVAL, "a search for data while the file is open for writing, on this kernel")
        if not take_pages_of_locked(self._filesystem, self._mountpoint, ino):
            self.forget_pages(ino)  # what is dropped is written first

    def _take_pages_if_it_can(self, ino: int) -> None:
        """As `_take_pages_of`, before a file replaces another: vfs_rename keeps inodes and directories locked."""
        with contextlib.suppress(FsError):
            self._take_pages_of(ino)

    def forget_attributes(self, ino: int) -> None:
        """Tell the kernel that an inode's attributes have changed. Without the engine's lock; also in the loop."""
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


async def _sweep(native: NativeFiles) -> None:
    """Give back what is mapped no more, until cancelled."""
    token, told, pause_s = trio.lowlevel.current_trio_token(), trio.Event(), math.inf

    def tell() -> None:
        if not told.is_set():
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(told.set)

    native.tell = tell
    while True:
        with trio.move_on_after(pause_s):
            await told.wait()
        if told.is_set():
            told, pause_s = trio.Event(), _SOON_S
            await trio.sleep(_SOON_S)
        pause_s = min(2 * pause_s, _SWEEP_S) if native.sweep() else math.inf


def _greeted(volume: bytes, mountpoint: bytes, flags: frozenset[str], *, native: bool) -> tuple[Channel, Agreed]:
    """Mount, and answer INIT."""
    channel = Channel(mounted(volume, mountpoint, flags))
    try:
        return channel, greeted(channel, native=native)
    except MountError:
        channel.close()
        undo(mountpoint)
        raise


def _why_not_native(channel: Channel, agreed: Agreed, volume: bytes) -> str | None:
    """Try whether the kernel takes a file of the volume's host; why not, if so."""
    if not agreed.passes_through:
        return "this kernel can't read and write files of the host itself (Linux 6.9 was the first that could)"
    descriptor = os.open(volume, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            number = channel.register(descriptor)
        except PermissionError:
            channel.use_helper()
            number = channel.register(descriptor)
        channel.unregister(number)
    except (PermissionError, FileNotFoundError, ConnectionError, TimeoutError) as error:
        return (
            "this process may not have the kernel read and write files of the host itself (CAP_SYS_ADMIN), and the "
            f"helper does not do it: {error.strerror or error}"
        )
    except OSError as error:
        return f"the kernel does not read and write files of this host itself: {error.strerror}"
    finally:
        os.close(descriptor)
    return None
