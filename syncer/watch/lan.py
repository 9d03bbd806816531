"""A process on the LAN: one exchange for all its roots that take part. A daemon's, or one root's of a command.

It begins with the first root that has a key, and ends with the process. Whatever is wrong with it, the roots go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec
import trio

from blockfs.blocks.ids import BlockId
from blockfs.runtime.logs import Log
from syncer.errors import SyncerError
from syncer.peer.exchange.exchange import Exchange
from syncer.peer.exchange.figures import Figures
from syncer.peer.exchange.source import Circle, PeerSource
from syncer.peer.session.keyring import RootKey
from syncer.ports.blocks import BlockSource, ShareIndex

log = Log()

REST_S: Final = 5.0  # nobody asked for so long: the root's files are let go, so that its disk can be unmounted
ANEW_S: Final = 60.0
BEGIN_S: Final = 1.0  # sockets are opened; a cycle waits for that no longer, and the server serves it meanwhile


class SharedBlocks(ShareIndex, Protocol):
    """A root's blocks as others may have them; `engine.share.sharing.SharedRoot` is one."""

    def rest(self) -> None:
        """Let go of the root's files until somebody asks."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One root.

    Attributes:
        root: Its path, for a person.
        block_size: Of its share, bytes.
        keys: Of its share, the present one first; empty: it takes no part.
        off: Why it takes no part, in words; empty where nobody said so.
        index: Its blocks; None: it asks, and gives nothing.
    """

    root: str
    block_size: int
    keys: tuple[RootKey, ...]
    off: str
    index: SharedBlocks | None


class ShareLive(msgspec.Struct, frozen=True, kw_only=True):
    """One root, for who asks the daemon.

    Attributes:
        root: Its path, for a person.
        uuid: Its name in the registry.
        off: Why it takes no part; empty: it does.
    """

    root: str
    uuid: str
    off: str


class PeersLive(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon on the LAN now.

    Attributes:
        off: Why it is not there at all; empty: it is, or would be with a root that takes part.
        shares: Its roots.
        figures: Of the exchange; None: no root takes part until now.
    """

    off: str
    shares: list[ShareLive]
    figures: Figures | None


class Lan:
    """Takes part for roots. For the trio thread, but for what an index does."""

    def __init__(self, make: Callable[[], Exchange], *, warms: bool = True) -> None:
        """Nothing is begun.

        Args:
            make: Makes an exchange, that does not run yet.
            warms: Open what an index needs before anybody asks; else the first answer comes later.
        """
        self._make = make
        self._warms = warms
        self._members: dict[str, Member] = {}
        self._served: dict[str, _Served] = {}
        self._exchange: Exchange | None = None
        self._nursery: trio.Nursery | None = None
        self._begun = trio.Event()
        self._changed = trio.Event()
        self._read = trio.Event()

    def attend(self, uuid: str, member: Member) -> None:
        """Learn how it is with a root now: after a start, a cycle, a pause, a resume."""
        before = self._members.get(uuid)
        self._members[uuid] = member
        if before is not None and before.index is not member.index:
            self._dismiss(uuid, before)
        self._tell(uuid)
        self._changed.set()

    def keep_only(self, uuids: Collection[str]) -> None:
        """Forget all other roots: they are not linked any more."""
        for uuid in [uuid for uuid in self._members if uuid not in uuids]:
            self._dismiss(uuid, self._members.pop(uuid))
            if self._exchange is not None:
                self._exchange.unshare(uuid)

    async def source(self, uuid: str) -> BlockSource | None:
        """A source of blocks for a root's cycle; None: it takes no part. Waits for an exchange that only begins."""
        if uuid in self._members and self._members[uuid].keys:
            with trio.move_on_after(BEGIN_S):
                await self._begun.wait()
        circle = self.circle(uuid)
        return None if circle is None else PeerSource(circle[0])

    def circle(self, uuid: str) -> tuple[Circle, int] | None:
        """A root's share, and its block size in bytes; None: it takes no part."""
        if self._exchange is None or uuid not in self._members or not self._members[uuid].keys:
            return None
        circle = self._exchange.circle(uuid)
        return None if circle is None else (circle, self._members[uuid].block_size)

    def given(self, uuid: str) -> tuple[int, int]:
        """Blocks, and their bytes, that peers got from a root since this was asked last."""
        served = self._served.get(uuid)
        return (0, 0) if served is None else served.given()

    def unban(self, who: str) -> int:
        """See `Exchange.unban`."""
        return 0 if self._exchange is None else self._exchange.unban(who)

    def begin_anew(self) -> None:
        """End the exchange and begin another: settings have changed. Cycles under way go on with the server."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def live(self) -> PeersLive:
        """How it stands."""
        shares = [
            ShareLive(root=member.root, uuid=uuid, off="" if member.keys else member.off or "there is no key yet")
            for uuid, member in self._members.items()
        ]
        figures = None if self._exchange is None else self._exchange.figures()
        return PeersLive(off="", shares=sorted(shares, key=lambda share: share.root), figures=figures)

    async def run(self) -> None:
        """Take part until cancelled. What goes wrong here stays here."""
        try:
            while True:
                try:
                    await self._run()  # returns if it is to begin anew
                except* Exception as group:  # a bug here must not end the daemon
                    log.exception("lan.bug", exc_info=group)
                    await trio.sleep(ANEW_S)
        finally:
            self.keep_only(())

    async def _run(self) -> None:
        while not any(member.keys for member in self._members.values()):
            self._changed = trio.Event()
            await self._changed.wait()
        exchange = self._make()
        async with trio.open_nursery() as nursery:
            await nursery.start(exchange.run)
            try:
                self._exchange, self._nursery = exchange, nursery
                for uuid in self._members:
                    self._tell(uuid)
                self._begun.set()
                await self._let_go()
            finally:
                self._exchange = self._nursery = None
                self._begun = trio.Event()
                self._served.clear()

    def _tell(self, uuid: str) -> None:
        """Let the exchange know what is so of a root."""
        if self._exchange is None:
            return
        member = self._members[uuid]
        if not member.keys:
            self._exchange.unshare(uuid)
            return
        if member.index is not None and uuid not in self._served:
            token = trio.lowlevel.current_trio_token()
            self._served[uuid] = _Served(member.index, partial(token.run_sync_soon, self._was_read))
            if self._nursery is not None and self._warms:
                self._nursery.start_soon(_warm, member.index)
        self._exchange.share(uuid, member.keys, self._served.get(uuid))

    def _dismiss(self, uuid: str, member: Member) -> None:
        self._served.pop(uuid, None)
        if member.index is not None:
            member.index.close()

    async def _let_go(self) -> None:
        """Let go of roots that nobody has read from for some seconds; for ever."""
        while True:
            used = [served for served in self._served.values() if served.in_use]
            for served in used:
                if time.monotonic() - served.last_s >= REST_S:
                    served.in_use = False
                    await trio.to_thread.run_sync(served.inner.rest)
            if used:
                await trio.sleep(REST_S)
            else:
                self._read = trio.Event()
                await self._read.wait()

    def _was_read(self) -> None:
        self._read.set()


class _Served:
    """A root's blocks, with the time at which somebody read one. `read` and `match` in any thread."""

    def __init__(self, inner: SharedBlocks, was_read: Callable[[], object]) -> None:
        self.inner = inner
        self.share = inner.share
        self.in_use = False
        self.last_s = 0.0
        self._was_read = was_read
        self._lock = threading.Lock()
        self._blocks = self._bytes = 0

    def match(self, prefixes: Sequence[bytes]) -> list[bool]:
        """See ShareIndex."""
        return self.inner.match(prefixes)

    def read(self, block: BlockId) -> bytes | None:
        """See ShareIndex."""
        self.last_s = time.monotonic()
        if not self.in_use:
            self.in_use = True
            self._was_read()
        data = self.inner.read(block)
        if data is not None:
            with self._lock:
                self._blocks += 1
                self._bytes += len(data)
        return data

    def given(self) -> tuple[int, int]:
        """See `Lan.given`."""
        with self._lock:
            given = self._blocks, self._bytes
            self._blocks = self._bytes = 0
        return given

    def recent(self, since: int) -> tuple[int, Sequence[BlockId]]:
        """See ShareIndex."""
        return self.inner.recent(since)


async def _warm(index: SharedBlocks) -> None:
    """Have it open what it needs, so that the first answer comes as soon as all others."""
    try:
        await trio.to_thread.run_sync(index.match, ())
    except (SyncerError, OSError) as error:  # whoever asks first is told
        log.debug("lan.not_warm", error=str(error))
