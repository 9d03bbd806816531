"""`Remote` over the Pithos protocol: Synnefo's server and `blocksync serve`.

The parts: `requests` and `replies` (pure), `session` (what they share), `read`; `write`, `alone`, `upload`; `creates`
and `plain` (what servers without atomic conditions need). docs/reference/remote.md explains it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

import trio

from blockfs.blocks.blocklist import BlockList
from syncer.core.model import Ages, RelPath, RemoteTag
from syncer.core.partial.listing_diff import Known, ListingDiff
from syncer.core.paths import LAN_KEY
from syncer.errors import AuthError, RemoteUnavailableError
from syncer.ports.blocks import BlockSource
from syncer.ports.remote import (
    Changes,
    Counters,
    Listing,
    RemoteInfo,
)
from syncer.protocol.extensions.changes import MAX_RANGES, ChangesPage
from syncer.protocol.pithos import headers as wire
from syncer.protocol.pithos.listing import MAX_ROWS, ObjectRow
from syncer.remote.container.info import ContainerInfo, lan_key_in, sort_out
from syncer.remote.container.replies import Stamp
from syncer.remote.container.requests import Requests
from syncer.remote.container.session import Session
from syncer.remote.http.retry import Retry, RetryPolicy
from syncer.remote.http.transport import BadReplyError, HttpSettings, HttpTransport, Transport
from syncer.remote.pithos.pages import Pages
from syncer.remote.pithos.read import VersionReader
from syncer.remote.pithos.write import Writer
from syncer.remote.polling import ServerChanges
from syncer.remote.serials import SERIALS, Cursor, ranges_of
from syncer.remote.source import Deliver, RemoteSource
from syncer.remote.synnefo.cut import CutObjects, WrongBlockError
from syncer.remote.synnefo.plain import PlainServer
from syncer.remote.url import RemoteUrl, parse_url

_LISTING_TRIES: Final = 5
"""How often a listing is begun anew because the container changed under it, or has more objects than it names."""

WAIT_S: Final = 50.0
"""Of one waiting request. Proxies commonly cut connections that are silent for a minute."""


class PithosClient(ServerChanges):
    """`Remote` for one container. See that class for what the methods promise.

    Attributes:
        uploads: Its blocks on their way.
    """

    def __init__(self, url: RemoteUrl, transport: Transport, retry: Retry, counters: Counters, workers: int) -> None:
        self.counters = counters
        self.ages: Ages = SERIALS
        self._session = Session(Requests(url), transport, retry, counters, workers)
        self._reader = VersionReader(self._session)
        self.resolve, self.secret = self._reader.resolve, self._reader.secret
        self.writers = self._reader.writers
        self.block_lists, self.read_small = self._reader.block_lists, self._reader.read_small
        writer = Writer(self._session)
        self.write, self.replaced_unseen = writer.write, writer.replaced_unseen
        self.uploads, self.send = writer.uploads, writer.uploads.send
        self._cuts = CutObjects(self._session)
        self.source: BlockSource = RemoteSource(self)

    async def open(self, *, create: bool = False) -> RemoteInfo:
        """See Remote."""
        if not create:
            return (await self._session.info()).told
        await self._session.ask(self._session.make.create_container(), 201, 202)
        return (await self._session.fresh_info()).told

    async def list_objects(self) -> Listing:
        """See Remote. Pages are no snapshot: a rename between two of them would look like a deletion.

        So a listing of more than one page counts only if the container did not change meanwhile.
        """
        info, stamp, pages = await self._listed(Pages)
        found = pages.found
        return Listing(
            info=info.told,
            objects=sorted(found.objects, key=lambda stat: stat.path),
            refused=found.refused,
            position=stamp.place.position,
            lan_key=lan_key_in(found.hidden),
        )

    async def _compared(self, known: Known, since: Cursor) -> Changes:
        """What differs from what is known: a complete listing, of which no more is kept.

        What has changed since the evidence was taken is in it, and in nothing else of a HEAD.
        """
        if since.evidence:
            info, stamp = await self._session.look_at_container()
            if stamp.place == since:
                return Changes(info=info.told, position=since.position, objects=[], deleted=[], refused=[])
        info, stamp, pages = await self._listed(lambda: Pages(ListingDiff(known)))
        assert pages.diff is not None
        return Changes(
            info=info.told,
            position=stamp.place.position,
            complete=False,
            objects=sorted(pages.found.objects, key=lambda stat: stat.path),
            deleted=list(await trio.to_thread.run_sync(pages.diff.missing)),
            refused=pages.found.refused,
            lan_key=lan_key_in(pages.found.hidden),
            lan_key_gone=lan_key_in(pages.found.hidden) is None,
        )

    async def _listed(self, begin: Callable[[], Pages]) -> tuple[ContainerInfo, Stamp, Pages]:
        """All pages, if the container did not change meanwhile; and the container before them."""
        self._reader.forget()
        container = self._session.judge.container
        short = -1  # rows of a listing that had not all of the container
        for _ in range(_LISTING_TRIES):
            info, before = await self._session.look_at_container()
            pages = begin()
            # The server has our page limit: a shorter page is the last. Otherwise only an empty one is: a server with a
            # lower limit would look as if it had lost everything behind it.
            full = MAX_ROWS if info.atomic else 1
            count, endless = full, False
            while count >= full:
                # Where deletions can be left half done, their remains are looked for in the whole container.
                request = self._session.make.list_page(pages.last, whole=not info.atomic)
                first = not pages.last
                reply = await self._session.ask(request, 200)
                count = await trio.to_thread.run_sync(pages.take, self._session.judge, reply)
                if first and not info.atomic and self._session.judge.objects(reply) == pages.rows:
                    break  # the same reply says that the container has no more than that
                endless = info.atomic and pages.rows > before.objects + MAX_ROWS
                if endless:
                    break  # it has grown since, or goes on for ever
            lacking = self._may_tell_all(info) and pages.rows < before.objects
            if (pages.count > 1 or lacking or endless) and (await self._session.look_at_container())[1] != before:
                continue
            if endless:
                self._session.judge.bad(f"{container} lists more objects than the {before.objects} that it says it has")
            if lacking and (info.atomic or pages.rows != short):
                # It ended early, which would look like deletions. Synnefo's count may be wrong for good: there a second
                # listing that ends at the same place is believed.
                short = pages.rows
                continue
            if pages.found.hidden and not info.atomic:
                await PlainServer(self._session).finish_deletes(pages.found.hidden)
                await self._cuts.forget_left(pages.found.hidden)
            return info, before, pages
        if short >= 0:
            raise BadReplyError(f"{container} has more objects than the {short} that its listing names")
        raise RemoteUnavailableError(f"{container} keeps changing while it is being listed")

    def _may_tell_all(self, info: ContainerInfo) -> bool:
        """Whether the whole container is listed, and not a folder of it (`Requests.list_page`)."""
        return not info.atomic or not self._session.make.url.prefix

    async def _now(self) -> Cursor:
        return (await self._session.look_at_container())[1].place

    async def _told(
        self, since: Cursor, *, moves: bool = False, own: Sequence[RemoteTag] = (), waits: bool = False
    ) -> Changes | None:
        """What the server says. Later pages may correct earlier ones: together they are the state of the last one."""
        without = ranges_of(own)
        if len(without) > MAX_RANGES:
            return None
        info = self._session.known  # else the cursor comes from a server with `changes`: the reply tells the rest
        needed = {wire.EXTENSION_CHANGES, *([wire.EXTENSION_WITHOUT] if without else [])}
        if info is not None and not needed <= info.extensions:
            return None
        moves = moves and (info is None or wire.EXTENSION_SUBTREES in info.extensions)
        rows: dict[str, ObjectRow] = {}
        deleted: dict[str, None] = {}
        at = since
        while True:
            wait_now_s = WAIT_S if waits and not (rows or deleted) else 0.0
            page = await self._page_of_changes(at, wait_now_s, moves=moves, without=without)
            if page is None:
                return None
            if page.more and moves:
                # What a page tells of the objects of a subtree could be from before a move that the next one tells.
                return await self._told(since, own=own)
            for row in page.objects:
                deleted.pop(row.name, None)
                rows[row.name] = row
            for name in page.deleted:
                rows.pop(name, None)
                deleted[name] = None
            at = Cursor(identity=since.identity, version=page.version, modified_us=page.modified_us)
            if not page.more:
                break
        found = await trio.to_thread.run_sync(sort_out, rows.values())
        return Changes(
            info=(await self._session.info()).told,
            position=at.position,
            objects=sorted(found.objects, key=lambda stat: stat.path),
            deleted=[name.encode("utf-8", "surrogatepass") for name in deleted],
            refused=found.refused,
            moves=list(page.moves),
            lan_key=lan_key_in(found.hidden),
            lan_key_gone=LAN_KEY.decode() in deleted,
        )

    async def _page_of_changes(
        self, since: Cursor, wait_s: float, *, moves: bool, without: Sequence[range]
    ) -> ChangesPage | None:
        """One reply; None if the cursor is not one of this container, or the server has no `changes` (any more)."""
        request = self._session.make.changes(since, wait_s, moves=moves, without=without)
        reply = await self._session.ask(request, 200, 410)
        if reply.status == 410:
            return None
        info = self._session.learn_info(reply) or await self._session.info()
        if wire.EXTENSION_CHANGES not in info.extensions:
            return None  # what it answered is a listing
        return await trio.to_thread.run_sync(self._session.judge.changes, reply, since)

    async def read_blocks(
        self,
        path: RelPath,
        tag: RemoteTag,
        blocks: BlockList,
        indexes: Sequence[int],
        deliver: Deliver,
        *,
        verify: bool = True,
    ) -> None:
        """See Reads."""
        try:
            await self._reader.read_blocks(path, tag, blocks, indexes, deliver, verify=verify)
        except WrongBlockError as wrong:
            raise await self._cuts.explain(path, tag, blocks, wrong) from wrong

    async def commit(self) -> None:
        """See Writes: what was answered is visible and durable."""

    async def close(self) -> None:
        """See Remote."""
        self._session.close()


def open_pithos(
    url: str,
    token: str,
    *,
    settings: HttpSettings | None = None,
    policy: RetryPolicy | None = None,
    draw: Callable[[], float] = random.random,
) -> PithosClient:
    """A client of the container at `url`. Opens no connection yet.

    Args:
        url: `pithos+http(s)://BASE/ACCOUNT/CONTAINER`.
        token: Sent with every request, and nowhere else.
        settings: How to talk.
        policy: How patiently.
        draw: Randomness of the pauses.

    Raises:
        ValueError: Not such a URL.
        AuthError: A token that no server can have given out.
    """
    parsed = parse_url(url)
    if not token or not token.isascii() or any(not "!" <= character <= "~" for character in token):
        raise AuthError(f"the token for {parsed} is empty or has characters that no token has (a space, a line break)")
    settings = settings or HttpSettings()
    counters = Counters()
    transport = HttpTransport(parsed, token, settings, counters)
    retry = Retry(policy=policy or RetryPolicy(), draw=draw, host=parsed.origin)
    client = PithosClient(parsed, transport, retry, counters, settings.concurrency)
    client.poll_s = settings.poll_s or client.poll_s
    return client
