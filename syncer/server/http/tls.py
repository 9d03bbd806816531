"""TLS: the certificate, which may be replaced while the server runs, and the door that connections come through.

asyncio would tell us of a connection only after its handshake: those that never finish one would be counted nowhere.
So the door counts first and shakes hands then.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn

from syncer.errors import UsageError
from syncer.server.http.bounded_protocol import BoundedProtocol, Reception, send_away
from syncer.server.http.guests import Guest


class Certificates:
    """The certificate in use.

    Attributes:
        context: For new connections; those that stand keep theirs.
    """

    def __init__(self, certificate: str, key: str) -> None:
        """Read the files.

        Args:
            certificate: PEM, the server's own first, then those in between.
            key: PEM, without a password.

        Raises:
            UsageError: They can't be read, or don't belong together.
        """
        self._files: Final = certificate, key
        self.context = _context(certificate, key)

    def renew(self) -> None:
        """Read the files again. If that fails, the old certificate stays.

        Raises:
            UsageError: As at the beginning.
        """
        self.context = _context(*self._files)


def _context(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in (certificate, key):
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise UsageError(f"{path} can't be read: {error.strerror}") from None
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        raise UsageError(
            f"{certificate} and {key} are no certificate in PEM form and its key: {error.reason or error}"
        ) from None
    return context


def _no_password() -> NoReturn:
    raise UsageError("the key of --tls-key has a password; nobody is there to type it: store it without one")


class TlsDoor(asyncio.Protocol):
    """One connection before its handshake is done; the protocol behind it sees what was encrypted."""

    def __init__(
        self,
        *arguments: Any,
        inner: Callable[..., BoundedProtocol],
        reception: Reception,
        certificates: Certificates,
        **more: Any,
    ) -> None:
        """Begin.

        Args:
            *arguments: uvicorn's, for the protocol behind.
            inner: Makes that.
            reception: Of the server.
            certificates: The server's.
            **more: As the first.
        """
        self._make: Callable[..., BoundedProtocol] = partial(inner, *arguments, **more)
        self._reception = reception
        self._certificates = certificates
        self._guest: Guest | None = None
        self._shaking: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody knocks."""
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()  # the handshake is the first to read
        loop = asyncio.get_running_loop()
        peer = transport.get_extra_info("peername")
        guest = Guest(address=peer[0] if peer else "", hang_up=transport.abort, look=_wait)
        self._guest = guest
        send_away(self._reception, guest, loop.time())
        self._shaking = loop.create_task(self._shake_hands(transport, guest))

    def connection_lost(self, _reason: Exception | None) -> None:
        """It ended before the handshake began."""
        if self._guest is not None:
            self._reception.guests.leave(self._guest)

    async def _shake_hands(self, transport: asyncio.Transport, guest: Guest) -> None:
        loop = asyncio.get_running_loop()
        protocol = self._make(guest=guest)
        try:
            secured = await loop.start_tls(
                transport,
                protocol,
                self._certificates.context,
                server_side=True,
                ssl_handshake_timeout=self._reception.patience.handshake_s,
            )
        except OSError as error:  # ssl.SSLError is one
            # A frame of asyncio knows the failure, whose traceback knows it: 300 KB until Python looks for cycles.
            error.__traceback__ = None
            transport.abort()
            self._reception.guests.leave(guest)
            reason = getattr(error, "reason", None) or error.strerror or str(error)
            self._reception.journal.warn("handshake.failed", guest.address, loop.time(), reason=reason)
            return
        if secured is None or transport.is_closing():
            self._reception.guests.leave(guest)
            return
        protocol.connection_made(secured)


def _wait(_now: float) -> None:
    """The handshake has a time-out of its own."""
