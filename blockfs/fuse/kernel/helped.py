"""Registering files by the root helper, for a mount process that may not do it itself: `passthrough_helper`."""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Final

from blockfs.fuse.passthrough_helper import ANSWER, CLOSE, HELLO, OPEN, REQUEST, SOCKET

_TIMEOUT_S: Final = 2.0  # it answers in 0.1 ms; a mount must not hang because it does not
_PEER: Final = struct.Struct("=iII")  # struct ucred


class Helper:
    """A connection to the helper. Used by one thread at a time.

    Args:
        device: Descriptor of /dev/fuse.
        path: Of the helper's socket.

    Raises:
        OSError: There is none, it is not root's, or it refuses us. ConnectionError, here and later: it has gone.
    """

    def __init__(self, device: int, path: str = SOCKET) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            self._socket.settimeout(_TIMEOUT_S)
            self._socket.connect(path)
            self._check_peer()
            self._ask(HELLO, 0, device)
        except BaseException:
            self._socket.close()
            raise

    def _check_peer(self) -> None:
        _, uid, _ = _PEER.unpack(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if uid != 0:
            raise PermissionError(errno.EPERM, "the helper is not root's")

    def register(self, descriptor: int) -> int:
        """See `Channel.register`."""
        return self._ask(OPEN, 0, descriptor)

    def unregister(self, backing_id: int) -> None:
        """See `Channel.unregister`."""
        self._ask(CLOSE, backing_id)

    def close(self) -> None:
        """Let go of it: it takes back what is registered."""
        self._socket.close()

    def _ask(self, what: int, number: int, *descriptors: int) -> int:
        try:
            socket.send_fds(self._socket, [REQUEST.pack(what, number)], descriptors)
            said = self._socket.recv(ANSWER.size)
        except OSError as error:
            self._socket.close()  # no later answer may be taken for another's
            raise ConnectionResetError(errno.ECONNRESET, f"the helper: {error}") from None
        if len(said) != ANSWER.size:
            self._socket.close()
            raise ConnectionResetError(errno.ECONNRESET, "the helper has ended")
        (answer,) = ANSWER.unpack(said)
        if answer < 0:
            raise OSError(-answer, os.strerror(-answer))
        return int(answer)
