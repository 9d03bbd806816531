"""Servers whose conditions are not atomic (Synnefo's Pithos): look before, look after, keep what slipped in.

- PUT: the version list afterwards shows versions between the one we based on and ours. All stay readable (with
  versioning "auto"), so they are reported and become conflict copies.
- MOVE: its version header is junk, so the result is looked up; a target that appeared meanwhile is found the same way.
- DELETE ignores If-Match: the object is moved to a hidden name first, compared there, and only then deleted. What turns
  out to be somebody's newer version goes back.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncer.core.model import RelPath, RemoteTag
from syncer.errors import ConflictOnRemoteError
from syncer.protocol import headers as wire
from syncer.protocol.headers import ObjectState
from syncer.protocol.listing import ObjectRow
from syncer.remote.client import ForeignVersion, PutResult
from syncer.remote.conditions import describe, require, slipped_in
from syncer.remote.http import BadReplyError
from syncer.remote.pithos_replies import tag_of
from syncer.remote.pithos_requests import etag_guard, object_name, parse_trash_name, trash_name
from syncer.remote.pithos_session import Session


class PlainServer:
    """The extra steps that such a server needs."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def foreign(
        self, path: RelPath, name: str, expect: RemoteTag | None, ours: RemoteTag
    ) -> tuple[ForeignVersion, ...]:
        """Versions that our write at `name` replaced unseen.

        Args:
            path: The object's path.
            name: The same as an object name.
            expect: What we based on; None for a create.
            ours: What our write became.
        """
        base = expect.version if expect is not None else 0
        found: list[ForeignVersion] = []
        for version in slipped_in(await self._versions(name), base, ours.version):
            current = await self._session.current(name, version)
            if current is None:
                continue
            # After a create the list also shows earlier lives of the name, properly deleted: they have other uuids.
            if expect is None and current.state.uuid != ours.uuid:
                continue
            found.append(_foreign(path, current.state))
        return tuple(found)

    async def move(self, source: RelPath, target: RelPath, expect: RemoteTag) -> PutResult:
        """Rename; see CloudClient.move."""
        from_name, to_name = object_name(source), object_name(target)
        before = await self._versions(to_name)

        async def attempt() -> bool:
            current = await self._session.current(from_name)
            require(source, expect, None if current is None else tag_of(current.state))
            taken = await self._session.current(to_name)
            require(target, None, None if taken is None else tag_of(taken.state))
            request = self._session.make.move(from_name, to_name, etag_guard(current.etag if current else None))
            reply = await self._session.send(request)
            if reply.status in {404, 412}:
                raise self._session.judge.conflict(source, expect, reply)
            self._session.judge.demand(request, reply, 201, 202, 204)
            return True

        async def look() -> bool | None:
            return await self.moved(to_name, expect) is not None or None

        await self._session.retry.looking(attempt, look)
        ours = await self.moved(to_name, expect)
        if ours is None:
            # It moved as somebody had just changed it. Nothing is lost; the next cycle sees it as it is.
            raise ConflictOnRemoteError(source, describe(expect), "another one, which was moved")
        seen = {*before, ours.version}
        fresh = [version for version in await self._versions(to_name) if version not in seen and version < ours.version]
        states = [await self._session.current(to_name, version) for version in fresh]
        return PutResult(
            tag=ours, foreign=tuple(_foreign(target, found.state) for found in states if found is not None)
        )

    async def moved(self, to_name: str, expect: RemoteTag) -> RemoteTag | None:
        """The object at the new name, if it is the one that was to be moved."""
        current = await self._session.current(to_name)
        if current is None or not _is(current.state, expect.uuid, expect.size_bytes, expect.etag):
            return None
        return tag_of(current.state)

    async def delete(self, path: RelPath, expect: RemoteTag) -> None:
        """Delete exactly `expect`: every step looks first, so the whole may be repeated."""
        name = object_name(path)
        hidden = trash_name(name, expect)

        async def once() -> None:
            current = await self._session.current(name)
            if current is not None:
                require(path, expect, tag_of(current.state))
                request = self._session.make.move(name, hidden, etag_guard(current.etag))
                reply = await self._session.send(request)
                if reply.status == 412:
                    raise self._session.judge.conflict(path, expect, reply)
                self._session.judge.demand(request, reply, 201, 202, 204, 404)
            if not await self._settle(hidden, name, expect.uuid, expect.size_bytes, expect.etag):
                raise ConflictOnRemoteError(path, describe(expect), "another one, which was put back")

        await self._session.retry.idempotent(once)

    async def finish_deletes(self, hidden: Sequence[ObjectRow]) -> None:
        """Bring deletions to their end that a crash left half done: objects found under hidden names."""
        for row in hidden:
            parsed = parse_trash_name(row.name)
            if parsed is None or not parsed[0]:
                continue  # not ours, or its name was too long to be remembered: left for a person

            async def once(row: ObjectRow = row, parsed: tuple[str, str, int, str] = parsed) -> None:
                await self._settle(row.name, *parsed)

            await self._session.retry.idempotent(once)

    async def _settle(self, hidden: str, name: str, uuid: str, size_bytes: int, etag: str) -> bool:
        """Delete what waits under a hidden name if it is what was to be deleted; else put it back.

        Returns:
            False when it was put back.
        """
        current = await self._session.current(hidden)
        if current is None:
            return True
        if _is(current.state, uuid, size_bytes, etag):
            request = self._session.make.delete(hidden, {})
            self._session.judge.demand(request, await self._session.send(request), 204, 200, 404)
            return True
        # Somebody's version, newer than ours, moved in the instant between check and act.
        for place in (name, f"{name} (recovered {current.state.version})"):
            request = self._session.make.move_back(hidden, place)
            reply = await self._session.send(request)
            if reply.status != 412:
                self._session.judge.demand(request, reply, 201, 202, 204, 404)
                return False
        raise BadReplyError(f"{self._session.judge.container}: no place for {hidden!r}; rename it by hand to keep it")

    async def _versions(self, name: str) -> list[int]:
        """All versions of a name; none if it never existed."""
        reply = await self._session.ask(self._session.make.versions(name), 200, 404)
        return [] if reply.status == 404 else self._session.judge.versions(reply)


def _is(state: ObjectState, uuid: str, size_bytes: int, etag: str) -> bool:
    """Whether a version has the identity and the content that were decided on."""
    return state.uuid == uuid and state.size_bytes == size_bytes and state.etag == etag


def _foreign(path: RelPath, state: ObjectState) -> ForeignVersion:
    return ForeignVersion(path=path, kind=wire.kind_of(state.content_type), tag=tag_of(state))
