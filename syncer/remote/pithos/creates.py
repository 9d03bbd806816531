"""Many new small objects on a server whose conditions are not atomic: one request each, where it can be.

Such a server names neither an object's uuid in its reply, nor whether somebody else wrote the name in the same instant
(`synnefo/plain`). The uuids come from a listing of the names, afterwards, for all. Who slipped in is told by the
serials of versions: the server has one counter for all, and writes in a container come one after the other, each with
the next number (protocol note 3). So a version of somebody else that our condition did not see lies between the newest
one that we knew when the request was sent and ours; if all numbers there are ours, there was none. Other writers on
the server, in other containers too, leave numbers that are not ours: that costs the look at the object's versions
which it would take anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from syncer.core.planner.overwrites import Overwrite
from syncer.core.xattrs import XattrError
from syncer.errors import ONE_NODE, SyncerError
from syncer.ports.orders import Store, Stored
from syncer.protocol.pithos.headers import ObjectState
from syncer.remote.container.info import tag_of
from syncer.remote.container.replies import Written
from syncer.remote.container.requests import device_headers, etag_condition, object_name
from syncer.remote.container.session import Session
from syncer.remote.parallel import for_each
from syncer.remote.pithos.alone import Alone

_MOST_KNOWN: Final = 1 << 16  # serials in memory; half of them are forgotten then
_MARGIN: Final = 64  # rows of a page beyond the names that are looked for
_USEFUL: Final = 8  # of so many rows of a page one must be looked for; else a HEAD each is less


class OwnSerials:
    """Which versions of a server are ours, as far as its replies said so.

    Attributes:
        newest: The last of them, 0 before the first. Whatever was written before it was there for every request that
            was sent since.
    """

    def __init__(self) -> None:
        self.newest = 0
        self._ours: set[int] = set()

    def got(self, version: int) -> None:
        """Take a version from a reply."""
        self._ours.add(version)
        self.newest = max(self.newest, version)
        if len(self._ours) > _MOST_KNOWN:
            self._ours = set(sorted(self._ours)[_MOST_KNOWN // 2 :])

    def all_between(self, since: int, version: int) -> bool:
        """Whether every version after one that was ours, and before another, is known to be ours."""
        return 0 < since < version and all(serial in self._ours for serial in range(since + 1, version))


class _Sent(msgspec.Struct, frozen=True, kw_only=True):
    """An object that the server says it has made.

    Attributes:
        name: Its name.
        written: The reply.
        since: The newest version that we knew when the request was sent.
    """

    name: str
    written: Written
    since: int


class Creator:
    """Makes new objects on such a server."""

    def __init__(self, session: Session, serials: OwnSerials, alone: Alone) -> None:
        """Take what is needed.

        Args:
            session: The container.
            serials: What is known of other writes of ours.
            alone: Brings an order to its end that may have been done.
        """
        self._session = session
        self._serials = serials
        self._alone = alone

    async def make(self, orders: Sequence[tuple[Store, bytes]]) -> list[Stored | Exception]:
        """Make objects, each with its whole content; returns what became of each.

        Raises:
            SyncerError: What concerns all.
        """
        done: dict[int, Stored | Exception] = {}
        sent: dict[int, _Sent] = {}

        async def send(at: int) -> None:
            order, data = orders[at]
            since = 0

            def leaving() -> None:  # the serial counts as the request leaves, not when it is queued
                nonlocal since
                since = self._serials.newest

            try:
                name = object_name(order.path)
                condition = {**etag_condition(None), **device_headers(order)}
                made = self._session.make.put_body(name, order.kind, data, order.meta, condition)
                request = replace(made, leaving=leaving)
                written = self._alone.written(request, await self._session.send(request), order.path, None)
            except (*ONE_NODE, XattrError) as error:
                done[at] = error
            except SyncerError as error:
                if not error.retryable:
                    raise
                done[at] = await self._again(order, data)
            else:
                if written.version is not None:
                    self._serials.got(written.version)
                sent[at] = _Sent(name=name, written=written, since=since)

        workers = max(1, min(self._session.workers, len(orders)))
        await for_each(iter(range(len(orders))), send, workers)
        states = await self._listed([one.name for one in sent.values()])

        async def finish(at: int) -> None:
            done[at] = await self._finished(orders[at][0], sent[at], states.get(sent[at].name))

        await for_each(iter(list(sent)), finish, workers)
        return [done[at] for at in range(len(orders))]

    async def _again(self, order: Store, data: bytes) -> Stored | Exception:
        try:
            return await self._alone.settle(order, data, doubt=True)
        except ONE_NODE as error:
            return error

    async def _finished(self, order: Store, sent: _Sent, state: ObjectState | None) -> Stored | Exception:
        """Look at what has become of one: its tag, if the listing does not tell, and who slipped in."""
        written, tag = sent.written, None
        if state is not None and state.version == written.version and state.size_bytes == order.size_bytes:
            tag = tag_of(state) if state.etag == order.hash_hex else None
        if tag is not None and written.version and self._serials.all_between(sent.since, written.version):
            return Stored(tag=tag)
        try:
            if tag is None:
                tag = await self._alone.tag(order.path, sent.name, written, None, order.hash_hex, order.size_bytes)
            write = Overwrite(path=order.path, kind=order.kind, size_bytes=order.size_bytes, etag=tag.etag, known=0)
            return Stored(tag=tag, foreign=tuple(await self._alone.plain.foreign(sent.name, write, tag)))
        except ONE_NODE as error:
            return error

    async def _listed(self, names: Sequence[str]) -> Mapping[str, ObjectState]:
        """What a listing says of some objects; of those that it does not name soon, nothing."""
        found: dict[str, ObjectState] = {}
        if len(names) < _USEFUL:
            return found
        wanted, last = set(names), max(names)
        marker = min(names)[:-1]  # a marker is not listed itself
        try:
            while wanted and marker < last:
                request = self._session.make.list_page(marker, limit=len(wanted) + _MARGIN)
                rows = self._session.judge.rows(await self._session.ask(request, 200, 204))
                here = {row.name: row.state for row in rows if row.name in wanted}
                found.update(here)
                wanted -= here.keys()
                if not rows or len(here) * _USEFUL < len(rows) or rows[-1].name <= marker:
                    break
                marker = rows[-1].name
        except SyncerError:
            pass  # each is looked at by itself
        return found
