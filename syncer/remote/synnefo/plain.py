"""Servers whose conditions are not atomic (Synnefo's Pithos): look before, look after, keep what slipped in.

- PUT: the version list afterwards shows versions between the one we based on and ours. All stay readable (with
  versioning "auto"), so they are reported and become conflict copies.
- MOVE: its version header is junk, so the result is looked up; a target that appeared meanwhile is found the same way.
- DELETE ignores If-Match: the object is moved to a hidden name first, compared there, and only then deleted. What turns
  out to be somebody's newer version goes back, and what that replaced in turn is kept beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from syncer.core.model import NO_META, Meta, RelPath, RemoteTag
from syncer.core.planner.overwrites import ForeignVersion, Overwrite, unseen
from syncer.errors import ConflictOnRemoteError
from syncer.ports.orders import Stored
from syncer.protocol.pithos import headers as wire
from syncer.protocol.pithos.headers import ObjectState
from syncer.protocol.pithos.listing import ObjectRow
from syncer.protocol.pithos.names import MAX_OBJECT_CHARACTERS
from syncer.remote.container.conditions import describe, require
from syncer.remote.container.info import tag_of
from syncer.remote.container.requests import etag_condition, object_name
from syncer.remote.container.session import Current, Session

TRASH_FOLDER: Final = ".blocksync/trash"
"""Where plain Pithos objects go before they are deleted: their name here says what they must be."""

_DROPPED: Final = {wire.OBJECT_SHARING: "sharing", wire.OBJECT_PUBLIC: "public link"}


class PlainServer:
    """The extra steps that such a server needs."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def foreign(self, name: str, write: Overwrite, ours: RemoteTag | None = None) -> list[ForeignVersion]:
        """Versions that a write replaced unseen.

        Args:
            name: Its path as an object name.
            write: What was written.
            ours: What it became; None if that was not heard of.
        """
        later = await self._later(name, write.path, write.known, None if ours is None else ours.version)
        return unseen(write, later, ours)

    async def keep(self, version: ForeignVersion, target: RelPath) -> None:
        """Give a version a name of its own, with its metadata; the time it was made is its mtime if it has none.

        It may be there already, by an earlier try or by somebody else who found it.

        Raises:
            ConflictOnRemoteError: The version is no longer readable.
            PreconditionFailedError: Something else has that name.
        """
        meta = Meta(mtime_ns=version.modified_us * 1000) if version.meta.mtime_ns is None else NO_META
        from_name, to_name = object_name(version.path), object_name(target)
        request = self._session.make.copy(from_name, to_name, version.tag.version, meta)

        async def once() -> None:
            reply = await self._session.send(request)
            if reply.status == 404:
                raise ConflictOnRemoteError(version.path, describe(version.tag), "nothing readable")
            if reply.status != 412:
                self._session.judge.demand(request, reply, 201, 202, 204)
                return
            there = await self._session.current(to_name)
            if there is None or not _same(_foreign(target, there.state), version):
                raise self._session.judge.conflict(target, None, reply)

        await self._session.retry.idempotent(once)

    async def move(self, source: RelPath, target: RelPath, expect: RemoteTag) -> Stored:
        """Rename: see `ports.remote.Move`."""
        from_name, to_name = object_name(source), object_name(target)
        before = await self._versions(to_name)
        shared: dict[str, str] = {}

        async def attempt() -> bool:
            current = await self._session.current(from_name)
            shared.update({} if current is None else current.shared)
            require(source, expect, None if current is None else tag_of(current.state))
            taken = await self._session.current(to_name)
            require(target, None, None if taken is None else tag_of(taken.state))
            condition = etag_condition(current.etag if current else None)
            # A MOVE drops sharing and publication that it does not name. Named, they move in the same transaction.
            request = self._session.make.move(from_name, to_name, condition, shared)
            reply = await self._session.send(request)
            if shared and reply.status in {400, 403}:  # who may rename an object may not share it, perhaps
                request = self._session.make.move(from_name, to_name, condition)
                reply = await self._session.send(request)
            if reply.status in {404, 412}:
                raise self._session.judge.conflict(source, expect, reply)
            self._session.judge.demand(request, reply, 201, 202, 204)
            return True

        async def look() -> bool | None:
            return await self.moved(to_name, expect) is not None or None

        await self._session.retry.looking(attempt, look)
        there = await self._moved(to_name, expect)
        if there is None:
            # It moved as somebody had just changed it. Nothing is lost; the next cycle sees it as it is.
            raise ConflictOnRemoteError(source, describe(expect), "another one, which was moved")
        ours, lacking = there.state, await self._share_again(to_name, there, shared)
        write = Overwrite(
            path=target,
            kind=wire.kind_of(ours.content_type),
            size_bytes=ours.size_bytes,
            etag=ours.etag,
            known=max(before, default=0),
            uuid=expect.uuid,
        )
        foreign = tuple(await self.foreign(to_name, write, tag_of(ours)))
        return Stored(tag=tag_of(ours), foreign=foreign, lacking=lacking)

    async def _share_again(self, name: str, there: Current, shared: Mapping[str, str]) -> str | None:
        """Give a renamed object what the rename dropped; says so if that is refused."""
        dropped = {header: value for header, value in shared.items() if header not in there.shared}
        if not dropped:
            return None
        reply = await self._session.ask(self._session.make.share(name, dropped), 202, 400, 403, 404)
        if reply.status == 202:
            return None
        what = " and ".join(_DROPPED[header] for header in dropped)
        return f"the rename ended its {what}, and the server refuses to give that back ({reply.status})"

    async def moved(self, to_name: str, expect: RemoteTag) -> RemoteTag | None:
        """The object at the new name, if it is the one that was to be moved."""
        there = await self._moved(to_name, expect)
        return None if there is None else tag_of(there.state)

    async def _moved(self, to_name: str, expect: RemoteTag) -> Current | None:
        current = await self._session.current(to_name)
        if current is None or not _is(current.state, expect.uuid, expect.size_bytes, expect.etag):
            return None
        return current

    async def delete(self, path: RelPath, expect: RemoteTag) -> None:
        """Delete exactly `expect`: every step looks first, so the whole may be repeated."""
        name = object_name(path)
        hidden = trash_name(name, expect)

        async def once() -> None:
            current = await self._session.current(name)
            if current is not None:
                require(path, expect, tag_of(current.state))
                request = self._session.make.move(name, hidden, etag_condition(current.etag))
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
        delete = self._session.make.delete(hidden, {})
        if _is(current.state, uuid, size_bytes, etag):
            self._session.judge.demand(delete, await self._session.send(delete), 204, 200, 404)
            return True
        await self._put_back(hidden, name, _foreign(RelPath(name.encode()), current.state))
        self._session.judge.demand(delete, await self._session.send(delete), 204, 200, 404)
        return False

    async def _put_back(self, hidden: str, name: str, caught: ForeignVersion) -> None:
        """Bring back somebody's version, newer than ours, that was moved away between check and act.

        It is copied, and stays where it is hidden until it was looked after: a third writer may have taken the name in
        that instant, and been replaced by the copy, whose condition is not atomic either. Whoever is killed in between
        leaves the hidden object, and the next listing of any device goes through the same steps.
        """
        later = await self._later(name, caught.path, caught.tag.version)
        if not any(_same(each, caught) for each in later):
            if not await self._copy(hidden, name):
                await self._copy(hidden, _recovered(name, caught))  # it is there already: by an earlier try
            later = await self._later(name, caught.path, caught.tag.version)
        back = max((each.tag.version for each in later if _same(each, caught)), default=0)
        for each in later:
            if each.tag.version < back and not _same(each, caught):
                await self._copy(name, _recovered(name, each), each.tag.version)

    async def _copy(self, source: str, target: str, version: int | None = None) -> bool:
        """Copy onto a name that must be free; False if it is not."""
        request = self._session.make.copy(source, target, version)
        reply = await self._session.send(request)
        if reply.status != 412:
            self._session.judge.demand(request, reply, 201, 202, 204, 404)
        return reply.status != 412

    async def _later(self, name: str, path: RelPath, known: int, until: int | None = None) -> list[ForeignVersion]:
        """The versions of a name after one, and before another one."""
        return [
            _foreign(path, current.state)
            for version in await self._versions(name)
            if version > known and (until is None or version < until)
            if (current := await self._session.current(name, version)) is not None
        ]

    async def _versions(self, name: str) -> list[int]:
        """All versions of a name; none if it never existed."""
        reply = await self._session.ask(self._session.make.versions(name), 200, 404)
        return [] if reply.status == 404 else self._session.judge.versions(reply)


def trash_name(name: str, tag: RemoteTag) -> str:
    """Hidden name under which an object waits for its deletion; see `parse_trash_name`."""
    evidence = f"{TRASH_FOLDER}/{tag.uuid}.{tag.size_bytes}.{tag.etag}"
    full = f"{evidence}/{name}"
    return full if len(full) <= MAX_OBJECT_CHARACTERS else evidence


def parse_trash_name(name: str) -> tuple[str, str, int, str] | None:
    """Original name ("" if it was too long), uuid, size and etag of what was to be deleted; None for other names."""
    evidence, _, original = name.removeprefix(f"{TRASH_FOLDER}/").partition("/")
    parts = evidence.split(".")
    if not name.startswith(f"{TRASH_FOLDER}/") or len(parts) != 3 or not parts[1].isdecimal():
        return None
    return original, parts[0], int(parts[1]), parts[2]


def _is(state: ObjectState, uuid: str, size_bytes: int, etag: str) -> bool:
    """Whether a version has the identity and the content that were decided on."""
    return state.uuid == uuid and state.size_bytes == size_bytes and state.etag == etag


def _same(one: ForeignVersion, other: ForeignVersion) -> bool:
    """Whether both are the same thing with the same content."""
    return (one.kind, one.tag.size_bytes, one.tag.etag) == (other.kind, other.tag.size_bytes, other.tag.etag)


def _recovered(name: str, version: ForeignVersion) -> str:
    """A name for what can't have its own; the same whoever gives it."""
    return f"{name} (recovered {version.tag.version})"


def _foreign(path: RelPath, state: ObjectState) -> ForeignVersion:
    return ForeignVersion(
        path=path,
        kind=wire.kind_of(state.content_type),
        tag=tag_of(state),
        meta=NO_META if state.meta is None else wire.decode_meta(state.meta),
        modified_us=state.modified_us,
        author=state.modified_by,
    )
