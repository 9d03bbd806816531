"""Connections that others have begun: who is let in, proves a share's key, and is served that share alone.

    comes ── no place, banned, by a link on which we don't serve ──> closed
      └ in, unproven (1 s) ── no key of ours, no first record ──> closed
          └ proven ── served ──> until it goes, its key or its epoch ends, or nothing is served any more

Source: docs/design/peer-protocol.md, docs/design/peer-exchange.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

import msgspec
import trio

from blockfs.runtime.logs import Log
from syncer.peer.exchange import tcp
from syncer.peer.exchange.channel import HANDSHAKE_S, Channel, greeting
from syncer.peer.exchange.joint import Joint
from syncer.peer.exchange.limits import Door, Uploads
from syncer.peer.exchange.serving import Serving
from syncer.peer.links.link import Came
from syncer.peer.session.budget import inbound_connections
from syncer.peer.session.keyring import ShareKey
from syncer.peer.session.session import Session
from syncer.peer.wire.drops import Drop
from syncer.peer.wire.handshake import answer, parse_preamble

log = Log()

CONNECTION_S: Final = 600.0  # then it is begun anew, under the key and the epoch of that time
PAUSE_S: Final = 0.1  # if the system has no more file descriptors for who comes in


class Host(Protocol):
    """Whose connections they are; the exchange is one.

    Attributes:
        session: Knows keys and bans.
        uploads: Places, and what was sent.
    """

    session: Session
    uploads: Uploads

    def index_of(self, share: str) -> Joint | None:
        """What a share has; None: we take no part in it any more."""
        ...

    def links(self) -> Iterable[Came]:
        """Those that are up."""
        ...

    def may_serve(self) -> bool:
        """Whether circumstances allow it now."""
        ...

    def spawn(self, task: Callable[..., object], *arguments: object) -> bool:
        """Start a task. False: none is started any more."""
        ...


class _Guest(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who has come.

    Attributes:
        peer: The sender id that it has.
        key: Which it holds, if its first record comes.
        channel: What it says.
    """

    peer: bytes
    key: ShareKey
    channel: Channel


class Arrivals:
    """Everybody who has come in."""

    def __init__(self, host: Host, *, entropy: Callable[[int], bytes], unix: Callable[[], float]) -> None:
        """Nobody has.

        Args:
            host: See there.
            entropy: Random bytes.
            unix: The wall clock.
        """
        self._host = host
        self._entropy = entropy
        self._unix = unix
        self._door = Door()

    def __len__(self) -> int:
        """How many are in."""
        return len(self._door)

    async def take(self, listener: trio.abc.Listener[trio.SocketStream]) -> None:
        """Let in whoever comes, until cancelled."""
        pace, failed = inbound_connections(), False
        async with listener:
            while True:
                while not pace.take(trio.current_time()):
                    await trio.sleep_until(pace.ready_at(trio.current_time()))
                try:
                    stream = await listener.accept()
                except OSError as error:
                    if not failed:
                        log.warning("peers.accept_failed", error=error.strerror)
                    failed = True
                    await trio.sleep(PAUSE_S)
                    continue
                failed = False
                comes, taken = tcp.there(stream), tcp.here(stream)
                if not comes or not taken or not self.admit(stream, comes[0], partial(self._came_right, *taken)):
                    stream.socket.close()

    def admit(self, stream: trio.abc.Stream, address: bytes, is_right: Callable[[], bool] = lambda: True) -> bool:
        """Let somebody in who has come.

        Args:
            stream: The caller's, if this says False.
            address: From where.
            is_right: Whether it came by a link on which we serve now.

        Returns:
            False: there is no place.
        """
        is_banned = self._host.session.standing.is_banned(address, trio.current_time())
        if is_banned or not is_right() or not self._host.may_serve() or not self._door.enter(address):
            return False
        if not self._host.spawn(self._receive, stream, address, is_right):
            self._door.leave(address, proven=False)
            return False
        return True

    def _came_right(self, address: bytes, zone: int) -> bool:
        """Whether what was taken at this address of ours came by a link on which we serve."""
        serving = [came for came in self._host.links() if came.serves and address in came.addresses]
        return any(not tcp.is_link_local(address) or came.index == zone for came in serving)

    async def _receive(self, stream: trio.abc.Stream, address: bytes, is_right: Callable[[], bool]) -> None:
        """One connection, from its first byte to its end."""
        is_proven = False
        try:
            guest: _Guest | None = None
            with trio.move_on_after(HANDSHAKE_S):
                guest = await self._shake_hands(stream)
                # Until its first record it may be a recording, and has only the place of a handshake.
                is_proven = guest is not None and await guest.channel.first()
            if guest is not None and is_proven:
                self._door.proven()
                await self._serve(guest, address, is_right)
        finally:
            self._door.leave(address, proven=is_proven)
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    async def _serve(self, guest: _Guest, address: bytes, is_right: Callable[[], bool]) -> None:
        index, uploads = self._host.index_of(guest.key.share), self._host.uploads
        if index is None:
            return
        is_served = partial(self._is_served, guest.key, index, is_right)
        with trio.move_on_after(CONNECTION_S), uploads.connected(guest.peer, address) as connection:
            await Serving(guest.channel, index, uploads, connection, is_served, index.scrub).run()

    def _is_served(self, key: ShareKey, index: Joint, is_right: Callable[[], bool]) -> bool:
        """Whether who has proven this key gets blocks still."""
        return is_right() and bool(index) and self._host.may_serve() and self._host.session.counts(key, self._unix())

    async def _shake_hands(self, stream: trio.abc.Stream) -> _Guest | None:
        """Who has come; None: it holds no key, or has gone."""
        said = await greeting(stream)
        preamble = Drop.SIZE if said is None else parse_preamble(said)
        if said is None or isinstance(preamble, Drop):
            return None
        now, unix_s = trio.current_time(), self._unix()
        welcome = self._host.session.welcome(preamble.epoch16, preamble.hint, preamble.sender, now, unix_s)
        if welcome is None:
            return None
        key, keys = welcome
        answered = answer(said, keys, self._entropy(32))
        if isinstance(answered, Drop):
            return None
        reply, secured = answered
        try:
            await stream.send_all(reply)
        except trio.BrokenResourceError:
            return None
        return _Guest(peer=preamble.sender, key=key, channel=Channel(stream, secured))
