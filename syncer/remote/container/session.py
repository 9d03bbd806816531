"""What the parts of the Pithos client share: requests, transport, retries, the judge of replies."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from syncer.core.model import RelPath, RemoteStat, RemoteTag
from syncer.errors import ConflictOnRemoteError
from syncer.ports.remote import Counters
from syncer.protocol.pithos import headers as wire
from syncer.protocol.pithos.headers import ObjectState
from syncer.remote.container.conditions import describe
from syncer.remote.container.info import ContainerInfo, stat_of
from syncer.remote.container.replies import Judge, Stamp
from syncer.remote.container.requests import Requests
from syncer.remote.http.retry import Retry
from syncer.remote.http.transport import Reply, Request, Transport


class Current(msgspec.Struct, frozen=True, kw_only=True):
    """An object as a HEAD shows it.

    Attributes:
        state: What it is.
        etag: As conditions compare it: not always the object hash.
        shared: Headers of a write that gives an object the sharing and the public link that this one has itself, not
            by a directory above. A public link is another one then.
    """

    state: ObjectState
    etag: str
    shared: Mapping[str, str] = msgspec.field(default_factory=dict)


class Session:
    """One container of one server, with everything needed to talk to it.

    Attributes:
        make: Builds requests.
        judge: Reads replies.
        retry: Repeats.
        counters: Counts; the transport adds to them, too.
        workers: Requests at once of one transfer.
        send: Sends a request once; any status is returned.
        close: Closes idle connections.
        known: The container as it was when last looked at; None: it never was.
    """

    def __init__(self, make: Requests, transport: Transport, retry: Retry, counters: Counters, workers: int) -> None:
        self.make = make
        self.judge = Judge(make.url.origin, str(make.url))
        self.retry = retry
        self.counters = counters
        self.workers = workers
        self.send = transport.send
        self.close = transport.close
        self.known: ContainerInfo | None = None

    async def ask(self, request: Request, *expected: int) -> Reply:
        """Send a request that may be repeated, until it is answered with one of some statuses."""

        async def once() -> Reply:
            return self.judge.demand(request, await self.send(request), *expected)

        return await self.retry.idempotent(once)

    async def info(self) -> ContainerInfo:
        """The container as it was when last looked at."""
        return self.known or await self.fresh_info()

    def learn_info(self, reply: Reply) -> ContainerInfo | None:
        """What the container is: by a reply about it, if that tells, else as known; None if it is not."""
        if self.judge.tells_container(reply):
            self.known = self.judge.container_info(reply)
        return self.known

    async def fresh_info(self) -> ContainerInfo:
        """Look at the container now."""
        return (await self.look_at_container())[0]

    async def look_at_container(self) -> tuple[ContainerInfo, Stamp]:
        """The container now, and what would be different if anything in it were."""
        reply = await self.ask(self.make.head_container(), 204, 200)
        self.known = self.judge.container_info(reply)
        return self.known, self.judge.stamp(reply)

    async def current(self, name: str, version: int | None = None) -> Current | None:
        """One object, now or at a version; None if there is none."""
        reply = await self.ask(self.make.head(name, version), 200, 404)
        if reply.status == 404:
            return None
        state = self.judge.state(reply)
        shared: dict[str, str] = {}
        sharing = reply.headers.get(wire.OBJECT_SHARING.lower())
        if sharing and wire.OBJECT_SHARED_BY.lower() not in reply.headers:
            shared[wire.OBJECT_SHARING] = sharing
        if wire.OBJECT_PUBLIC.lower() in reply.headers:
            shared[wire.OBJECT_PUBLIC] = "true"
        return Current(state=state, etag=reply.headers.get("etag", state.etag).strip('"'), shared=shared)

    async def pinned(self, path: RelPath, name: str, tag: RemoteTag, modified_us: int) -> RemoteStat:
        """One version of an object.

        Args:
            path: Its path.
            name: The same as an object name.
            tag: The version.
            modified_us: Its time as a listing told it: a HEAD of a plain Pithos has full seconds only. 0: not known.

        Raises:
            ConflictOnRemoteError: No longer readable.
        """
        found = await self.current(name, tag.version)
        if found is None:
            raise ConflictOnRemoteError(path, describe(tag), "nothing readable")
        return stat_of(path, replace(found.state, modified_us=modified_us or found.state.modified_us))
