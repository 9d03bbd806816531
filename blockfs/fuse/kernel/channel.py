"""The open /dev/fuse of one mount: whole messages in, whole answers out. Knows no request.

Source: fs/fuse/dev.c in Linux.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import threading
from collections.abc import Callable
from typing import Final, TypeVar

import trio

from blockfs.fuse.kernel import encode, wire
from blockfs.fuse.kernel.helped import Helper

R = TypeVar("R")

_TRY_AGAIN: Final = frozenset({errno.ENOENT, errno.EINTR})
"""Of read: the request was taken back before it was here, or a signal came."""

_NOBODY_WAITS: Final = frozenset({errno.ENOENT, errno.ENODEV, errno.EPERM, errno.ECONNABORTED})
"""Of write: the kernel has unmounted or was cut off, so whoever asked has its error already."""


class Channel:
    """One connection. `receive` and `ready` belong to the event loop, all the rest to any thread.

    Args:
        fd: Of /dev/fuse, mounted; from now on ours.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._buffer = bytearray(wire.BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._lock = threading.Lock()
        self._is_closed = False
        self._helper: Helper | None = None
        self._polling = select.poll()
        self._polling.register(fd, select.POLLIN)

    def receive(self) -> memoryview | None:
        """The next message, if there is one. It is good until the next call.

        Raises:
            EOFError: The kernel has unmounted.
            OSError: Reading failed otherwise.
        """
        while True:
            try:
                return self._view[: os.readv(self._fd, (self._buffer,))]
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno == errno.ENODEV:
                    raise EOFError from None
                if error.errno not in _TRY_AGAIN:
                    raise

    def poll(self, timeout_s: float) -> bool:
        """Wait without a loop; whether there may be a message."""
        return bool(self._polling.poll(timeout_s * 1000))

    async def ready(self) -> None:
        """Wait until there may be a message."""
        await trio.lowlevel.wait_readable(self._fd)

    def answer(self, unique: int, body: bytes | memoryview) -> None:
        """Answer a request."""
        self._put(encode.header(unique, body), body)

    def refuse(self, unique: int, number: int) -> None:
        """Answer a request by an errno."""
        self._put(encode.refusal(unique, number))

    def _put(self, *parts: bytes | memoryview) -> None:
        try:
            os.writev(self._fd, parts)
        except OSError as error:
            if error.errno not in _NOBODY_WAITS:
                raise

    def notify(self, message: bytes) -> None:
        """Tell the kernel something. It may write pages back through the loop before it returns.

        Raises:
            OSError: ENOENT: it does not know what is meant. ENODEV, ENOTCONN: it has unmounted.
        """
        # Of a descriptor of its own: the number of the closed one may be somebody else's file by now. No lock over the
        # write, which may take as long as the loop does.
        with self._lock:
            if self._is_closed:
                raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
            own = os.dup(self._fd)
        try:
            os.write(own, message)
        finally:
            os.close(own)

    def use_helper(self) -> None:
        """From now on have files registered by the root helper: this process may not do it itself.

        Raises:
            OSError: There is none, or it refuses us.
        """
        self._helper = Helper(self._fd)

    def register(self, descriptor: int) -> int:
        """Have the kernel know a file of the host, for handles that pass through to it; returns its backing id.

        Raises:
            OSError: EPERM: not for this process, or not agreed in INIT. ELOOP: it lies on stacked filesystems.
        """
        if self._helper is not None:
            return self._helped(lambda helper: helper.register(descriptor))
        return self._order(wire.BACKING_OPEN, wire.BACKING_MAP.pack(descriptor, 0, 0))

    def unregister(self, backing_id: int) -> None:
        """Have the kernel forget a backing id. Who uses it goes on.

        Raises:
            OSError: ENODEV: the connection is closed.
        """
        if self._helper is not None:
            return self._helped(lambda helper: helper.unregister(backing_id))
        self._order(wire.BACKING_CLOSE, wire.BACKING_ID.pack(backing_id))
        return None

    def _helped(self, ask: Callable[[Helper], R]) -> R:
        """Ask the helper; one that has gone may be back. What was registered before is the kernel's until the end."""
        with self._lock:
            if self._is_closed or self._helper is None:
                raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
            try:
                return ask(self._helper)
            except ConnectionError:
                self._helper = Helper(self._fd)
                return ask(self._helper)

    def _order(self, order: int, argument: bytes) -> int:
        with self._lock:  # none of the two waits for anything
            if self._is_closed:
                raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
            answer: int = fcntl.ioctl(self._fd, order, bytearray(argument))
            return answer

    def close(self) -> None:
        """Let go of it. The kernel fails whatever still waits."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                if self._helper is not None:
                    self._helper.close()
                os.close(self._fd)
