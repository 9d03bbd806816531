"""The control socket's server: threads that read requests, ask a handler, write replies.

Plain threads, not trio: requests are blocking disk work, a connection is a conversation with state (a snapshot,
prepared files), and an unmount must find the server alive while the front-end's loop is busy.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import threading
import time
from typing import Final, Protocol

from blockfs.control import protocol
from blockfs.control.client import SOCKET_NAME
from blockfs.errors import BlockfsError
from blockfs.exitcodes import ExitCode
from blockfs.runtime.atomic import space_errors
from blockfs.runtime.failures import code_of, said
from blockfs.runtime.logs import Log

MAX_CONNECTIONS: Final = 64  # a few commands and one syncer with its threads; more wait in the listen queue
DRAIN_TIMEOUT_S: Final = 1.0  # for a peer that goes on sending after it was refused
STOP_TIMEOUT_S: Final = 10.0  # for peers to take their replies when the mount ends
ACCEPT_PAUSE_S: Final = 1.0  # when the host has no descriptor for a connection; it would say so again at once

_PEER: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid

log = Log()


class Session(Protocol):
    """One connection's conversation. Used by one thread."""

    def answer(self, request: protocol.Request) -> protocol.Reply:
        """Do what is asked. Raises BlockfsError, OSError or ValueError; the server makes an ErrorReply of them.

        What nobody expects is for the session to own: an error of another kind ends the connection.
        """
        ...

    def close(self) -> None:
        """The connection is gone: drop snapshots and prepared files."""
        ...


class Handler(Protocol):
    """What the mount offers. Implemented next to the engine, which control does not know."""

    def session(self) -> Session:
        """Begin a conversation. Called from any thread."""
        ...

    def crashed(self, error: BaseException, doing: str) -> None:
        """The thread that accepts connections met an error that nobody expected, and is gone."""
        ...


class ControlServer:
    """Serves VOLUME/control.sock to processes of the same user, and to root."""

    def __init__(self, volume: bytes, handler: Handler) -> None:
        """Bind the socket and begin to serve.

        The caller holds the volume's lock, so a socket file that is there was left by a dead mount and is replaced.

        Raises:
            OSError: The socket can't be made.
        """
        self._volume = volume
        self._handler = handler
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._stopping = False
        self._stopped = threading.Event()  # the same, to wait for
        self._listener = _bound(volume)
        self._acceptor = threading.Thread(target=self._accept_all, name="control-accept", daemon=True)
        self._acceptor.start()

    def stop(self) -> None:
        """Refuse new connections, remove the socket file, and wait for the requests in flight. Idempotent.

        When it returns no request uses the mount any more, so that what they use may be closed: however long that
        takes. What takes long asks whether to stop. A peer that does not take its reply in time loses it.
        """
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
            connections = dict(self._connections)
        self._stopped.set()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._volume, SOCKET_NAME))
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept(); close() alone does not
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)  # an idle reader sees the end, a reply still goes out
        connections = {one: thread for one, thread in connections.items() if thread is not threading.current_thread()}
        until_s = time.monotonic() + STOP_TIMEOUT_S
        for thread in connections.values():
            thread.join(max(0.0, until_s - time.monotonic()))
        for connection, thread in connections.items():
            if thread.is_alive():
                log.warning("control.waits", reason="a request is still at work")
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # if it is its reply that nobody reads
                thread.join()
        self._listener.close()

    def _accept_all(self) -> None:
        try:
            while not self._stopping:
                self._slots.acquire()
                if not self._accept():
                    self._slots.release()
        except BaseException as error:  # noqa: BLE001 - the top of this thread: its owner is told
            self._handler.crashed(error, "the thread that accepts connections")

    def _accept(self) -> bool:
        """Wait for a connection; returns whether a thread serves one now."""
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if not self._stopping:
                log.warning("control.accept_failed", reason=str(error))
                self._stopped.wait(ACCEPT_PAUSE_S)
            return False
        thread = threading.Thread(target=self._serve, args=(connection,), name="control", daemon=True)
        with self._lock:
            if self._stopping:
                connection.close()
                return False
            self._connections[connection] = thread
            try:
                thread.start()
            except RuntimeError as error:  # the host has no thread for it now
                del self._connections[connection]
                connection.close()
                log.warning("control.accept_failed", reason=str(error))
                return False
        return True

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                if _greeted(connection):
                    self._converse(connection)
        except OSError as error:
            log.debug("control.connection_lost", reason=str(error))
        except Exception:
            log.exception("control.crashed")  # the top of this thread; requests have their own owner
        finally:
            with self._lock:
                self._connections.pop(connection, None)
            self._slots.release()

    def _converse(self, connection: socket.socket) -> None:
        session = self._handler.session()
        try:
            while (payload := _frame(connection)) is not None:
                _send(connection, _answered(session, _request(payload)))
        except protocol.ProtocolError as error:
            _refuse(connection, error)
        finally:
            session.close()


def _bound(volume: bytes) -> socket.socket:
    """Listen through a directory descriptor: sun_path holds 107 bytes, a volume's path may be longer."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    os.fchmod(listener.fileno(), 0o600)  # bind(2) gives the name this mode; chmod(2) of the name could follow a link
    directory = os.open(volume, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET_NAME, dir_fd=directory)
        path = b"/proc/self/fd/%d/%s" % (directory, SOCKET_NAME)
        with space_errors(os.fsdecode(volume)):
            listener.bind(path)
        listener.listen()
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(directory)
    return listener


def _greeted(connection: socket.socket) -> bool:
    """Check who calls and which version they speak; answer either way."""
    try:
        # The hello is read before anybody is refused: who still sends when we hang up sees EPIPE, not our answer.
        payload = _frame(connection)
        if payload is None:
            return False
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        _, uid, _ = _PEER.unpack(credentials)
        if uid not in (0, os.geteuid()):
            text = f"this mount belongs to user {os.geteuid()}; only that user and root may control it"
            _send(connection, protocol.ErrorReply(exit_code=ExitCode.AUTH, errno=errno.EPERM, message=text))
            return False
        hello = protocol.decode_to_server(payload)
    except protocol.ProtocolError as error:
        _refuse(connection, error)
        return False
    if not isinstance(hello, protocol.Hello) or hello.version != protocol.PROTOCOL_VERSION:
        text = f"this mount speaks control protocol {protocol.PROTOCOL_VERSION}; use the same blocksync release for it"
        _send(connection, protocol.ErrorReply(exit_code=ExitCode.UNEXPECTED, errno=errno.EPROTO, message=text))
        return False
    welcome = protocol.Welcome(version=protocol.PROTOCOL_VERSION, pid=os.getpid(), takes=protocol.TAKES)
    _send(connection, welcome)
    return True


def _request(payload: bytes) -> protocol.Request:
    message = protocol.decode_to_server(payload)
    if isinstance(message, protocol.Hello):
        raise protocol.ProtocolError("a second hello")
    return message


def _answered(session: Session, request: protocol.Request) -> protocol.Reply:
    try:
        return session.answer(request)
    except (BlockfsError, OSError) as error:
        return protocol.ErrorReply(exit_code=code_of(error), errno=error.errno or errno.EIO, message=said(error))
    except ValueError as error:
        return protocol.ErrorReply(exit_code=ExitCode.USAGE, errno=errno.EINVAL, message=str(error))


def _refuse(connection: socket.socket, error: protocol.ProtocolError) -> None:
    """Answer malformed input and let the answer arrive: closing with unread input would reset the connection."""
    log.warning("control.malformed", reason=str(error))
    text = f"malformed request: {error}"
    _send(connection, protocol.ErrorReply(exit_code=ExitCode.UNEXPECTED, errno=errno.EPROTO, message=text))
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(DRAIN_TIMEOUT_S)
    _received(connection, protocol.MAX_FRAME_BYTES)


def _send(connection: socket.socket, message: protocol.ToClient) -> None:
    connection.sendall(protocol.encode(message))


def _frame(connection: socket.socket) -> bytes | None:
    """One payload, or None at the orderly end."""
    header = _received(connection, protocol.HEADER_BYTES)
    if not header:
        return None
    return _received(connection, protocol.payload_size(header)) if len(header) == protocol.HEADER_BYTES else None


def _received(connection: socket.socket, size: int) -> bytes:
    """`size` bytes, or fewer if the peer ends before."""
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            break
        received += piece
    return bytes(received)
