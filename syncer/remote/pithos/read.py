"""Reading from Pithos: pinned to a version, everything verified."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import trio
from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id, canonical
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.runtime.output import shown
from syncer.core.model import Kind, RelPath, RemoteStat, RemoteTag
from syncer.errors import ConflictOnRemoteError, CorruptionError, SyncerError
from syncer.ports.blocks import VersionRef
from syncer.ports.remote import KnownList, Secret
from syncer.protocol.extensions.bulk_read import MAX_OBJECTS, Wanted
from syncer.protocol.pithos import headers as wire
from syncer.protocol.pithos.byteranges import RangeError, parse_parts
from syncer.remote.container.conditions import describe
from syncer.remote.container.info import stat_of
from syncer.remote.container.requests import object_name
from syncer.remote.container.runs import Run, gathered, runs
from syncer.remote.container.session import Session
from syncer.remote.http.transport import Reply
from syncer.remote.parallel import for_each, outcomes
from syncer.remote.source import Deliver
from syncer.remote.synnefo.cut import WrongBlockError

Bytes = bytes | memoryview
RUN_BYTES: Final = 4 << 20
"""Longest range of one GET. With 8 workers that bounds the memory of a download to 32 MiB (more for larger blocks)."""

_AT_ONCE: Final = 8  # questions about objects, of those that share no request
_TARGET_BYTES: Final = 4096  # no link's text is longer; it is one block on every server
_TRIES: Final = 3
"""How often wrong bytes are fetched again: damage on the way is rare, and on the server's disk it stays."""

_WITH_META_BYTES: Final = 64 << 10  # at 10 MB/s a content so short takes no longer than the round trip that it saves
_KEPT_BYTES: Final = 32 << 20  # of such contents in memory; of what has no room the metadata are asked for alone

_THREAD_BYTES: Final = 1 << 18
"""From this size on hashing goes to a thread: 256 KiB take 0.2 ms, a thread hop 0.05 ms."""


class VersionReader:
    """The reading half of the client."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._several = True  # the server serves several ranges at once
        self._kept: dict[tuple[str, int], bytes] = {}  # canonical contents by name and version
        self._kept_bytes = 0

    async def secret(self, path: RelPath, most_bytes: int) -> Secret | None:
        """See Remote.secret."""
        found, raw = await self._session.current(object_name(path)), None
        if found is None:
            return None
        stat = stat_of(path, found.state)
        most_bytes = min(most_bytes, (await self._session.info()).block_size)
        if stat.kind is Kind.FILE and 0 < stat.tag.size_bytes <= most_bytes:
            with suppress(CorruptionError):
                raw = await self._content(stat)
        return Secret(tag=stat.tag, raw=raw)

    async def resolve(self, stats: Sequence[RemoteStat]) -> list[RemoteStat | SyncerError]:
        """See Remote.resolve."""
        read = await self._read_targets(stats)

        async def work(stat: RemoteStat) -> RemoteStat:
            return await self._resolve(stat) if stat.is_bare else stat

        return await outcomes(read, work, _AT_ONCE)

    async def writers(self, versions: Sequence[VersionRef]) -> list[str]:
        """See Remote.writers."""

        async def work(version: VersionRef) -> str:
            stat = await self._session.pinned(version.path, object_name(version.path), version.tag, 0)
            return stat.device or ""

        return [found if isinstance(found, str) else "" for found in await outcomes(versions, work, _AT_ONCE)]

    async def _read_targets(self, stats: Sequence[RemoteStat]) -> list[RemoteStat]:
        """Fill in the texts of links, many by one request where the server can that."""
        full = list(stats)
        links = [at for at, stat in enumerate(stats) if stat.meta is not None and stat.is_bare]
        links = [at for at in links if stats[at].tag.size_bytes <= _TARGET_BYTES]
        for first in range(0, len(links), MAX_OBJECTS):
            part = links[first : first + MAX_OBJECTS]
            with suppress(CorruptionError, ConflictOnRemoteError):  # whose fault it was, asking for each alone tells
                texts = await self.read_small([(stats[at].path, stats[at].tag) for at in part])
                for at, data in zip(part, texts, strict=True):
                    if data is not None and block_id(data).hex() == stats[at].tag.etag:
                        full[at] = replace(stats[at], target=data.ljust(stats[at].tag.size_bytes, b"\0"))
        return full

    async def _resolve(self, stat: RemoteStat) -> RemoteStat:
        if stat.meta is None and stat.kind is not Kind.DIRECTORY and await self._has_room(stat.tag.size_bytes):
            stat = await self._read_with_meta(stat)
        elif stat.meta is None:
            full = await self._session.pinned(stat.path, object_name(stat.path), stat.tag, stat.modified_us)
            stat = replace(stat, meta=full.meta, device=full.device)
        return await self._with_target(stat)

    async def _has_room(self, size_bytes: int) -> bool:
        most = min(_WITH_META_BYTES, (await self._session.info()).block_size)
        return 0 < size_bytes <= most and self._kept_bytes + size_bytes <= _KEPT_BYTES

    def forget(self) -> None:
        """Let contents go that were kept and not asked for: what has been planned since is another thing."""
        self._kept.clear()
        self._kept_bytes = 0

    async def _read_with_meta(self, stat: RemoteStat) -> RemoteStat:
        """A GET tells what a HEAD does, and what will be asked for next; kept until then."""
        name, tag = object_name(stat.path), stat.tag
        self._kept_bytes += tag.size_bytes  # before it is here: others ask at the same time
        is_kept = False
        try:
            reply = await self._session.ask(self._session.make.read(name, tag), 200, 404)
            state = self._session.judge.state(self._of_version(stat.path, tag, reply))
            is_kept = len(reply.body) == tag.size_bytes and block_id(reply.body).hex() == tag.etag
        finally:
            if not is_kept or (name, tag.version) in self._kept:
                self._kept_bytes -= tag.size_bytes
        if is_kept:
            self._kept[name, tag.version] = canonical(reply.body)
        return stat_of(stat.path, replace(state, modified_us=stat.modified_us or state.modified_us))

    async def block_lists(self, asks: Sequence[tuple[VersionRef, KnownList | None]]) -> list[BlockList | SyncerError]:
        """See Remote.block_lists."""

        async def work(ask: tuple[VersionRef, KnownList | None]) -> BlockList:
            version, known = ask
            return await self._block_list(version.path, version.tag, known)

        return await outcomes(asks, work, _AT_ONCE)

    async def _block_list(self, path: RelPath, tag: RemoteTag, known: KnownList | None = None) -> BlockList:
        info = await self._session.info()
        block_size = info.block_size
        if tag.size_bytes <= block_size:
            # The Merkle root of one leaf is the leaf: the tag says it all, no request.
            ids = bytes.fromhex(tag.etag) if tag.size_bytes else b""
            try:
                return BlockList(block_size=block_size, size_bytes=tag.size_bytes, ids=ids)
            except ValueError as error:
                raise CorruptionError(f"{shown(path)} on {self._session.judge.container}: {error}") from None
        binary = wire.EXTENSION_BLOCK_LISTS in info.extensions
        knows_deltas = binary or wire.EXTENSION_DELTA in info.extensions
        if not knows_deltas or (known and known.blocks.block_size != block_size):
            known = None
        judge = self._session.judge
        tries = _TRIES
        while True:
            tries -= 1
            since = None if known is None else known.tag.version
            request = self._session.make.hashmap(object_name(path), tag, block_size, since, binary=binary)
            reply = self._of_version(path, tag, await self._session.ask(request, 200, 404))
            try:
                return await trio.to_thread.run_sync(judge.block_list, reply, path, tag, block_size, known)
            except CorruptionError:
                if not tries:
                    raise
                known = None  # what we have may not be that version's list

    async def read_small(self, versions: Sequence[tuple[RelPath, RemoteTag]]) -> list[bytes | None]:
        """See Reads.read_small."""
        names = [object_name(path) for path, _ in versions]
        found = [self._take_kept(name, tag) for name, (_, tag) in zip(names, versions, strict=True)]
        absent = [at for at, data in enumerate(found) if data is None]
        if len(absent) > 1 and wire.EXTENSION_BULK_READ in (await self._session.info()).extensions:
            read = await self._read_many([(names[at], versions[at][1].version) for at in absent])
            for at, data in zip(absent, read, strict=True):
                found[at] = data if data is not None and len(data) == versions[at][1].size_bytes else None
        self._session.counters.blocks_received += sum(1 for data in found if data is not None)
        return found

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
        """See Reads.read_blocks."""
        wanted = sorted(index for index in indexes if blocks[index] != ZERO_BLOCK)
        for index in indexes:
            if blocks[index] == ZERO_BLOCK:
                await deliver(index, ZERO_BLOCK, b"")
        kept = self._take_kept(object_name(path), tag) if wanted else None
        if kept is not None:
            self._session.counters.blocks_received += 1
            await deliver(0, blocks[0], kept)
            return

        async def fetch(group: Sequence[Run]) -> None:
            bodies = await self._bodies(path, tag, blocks, group)
            for run, body in zip(group, bodies, strict=True):
                whole = await self._whole(path, tag, blocks, run, body) if verify else cut(body, blocks)
                self._session.counters.blocks_received += run.count
                for at, data in enumerate(whole):
                    await deliver(run.first + at, blocks[run.first + at], data)

        jobs = gathered(runs(wanted, blocks.size_bytes, blocks.block_size, RUN_BYTES), RUN_BYTES)
        if len(jobs) == 1:
            await fetch(jobs[0])
        elif jobs:
            await for_each(iter(jobs), fetch, min(self._session.workers, len(jobs)))

    def _take_kept(self, name: str, tag: RemoteTag) -> bytes | None:
        """A content of one block that is here already; its hash was that of the tag."""
        kept = self._kept.pop((name, tag.version), None)
        if kept is not None:
            self._kept_bytes -= tag.size_bytes
        return kept

    async def _read_many(self, wanted: Sequence[Wanted]) -> Sequence[bytes | None]:
        """By one request."""
        request = self._session.make.bulk_read(wanted)
        return self._session.judge.contents(await self._session.ask(request, 200), len(wanted))

    async def _whole(self, path: RelPath, tag: RemoteTag, blocks: BlockList, run: Run, body: Bytes) -> list[bytes]:
        """Adjacent blocks, verified, canonical. Wrong ones are fetched again, alone.

        Raises:
            CorruptionError: A block stays wrong.
        """
        return [
            await self._again(path, tag, blocks, run.first + at) if data is None else data
            for at, data in enumerate(await self._checked(body, blocks, run))
        ]

    async def _bodies(self, path: RelPath, tag: RemoteTag, blocks: BlockList, group: Sequence[Run]) -> Sequence[Bytes]:
        """Several runs by one request, if the server can. As they came, but of the right length."""
        if len(group) > 1 and self._several:
            request = self._session.make.read_runs(object_name(path), tag.version, group)
            reply = self._of_version(path, tag, await self._session.ask(request, 206, 200, 404, 416))
            try:
                parts = parse_parts(reply.body, reply.headers.get("content-type", ""))
            except RangeError:
                parts = {}
            if all(len(parts.get(run.start, b"")) == run.length_bytes for run in group):
                return [parts[run.start] for run in group]
            self._several = False  # it answers otherwise: one range per request from now on
        return [await self._fetch(path, tag, blocks, run) for run in group]

    @staticmethod
    async def _checked(body: Bytes, blocks: BlockList, run: Run) -> list[bytes | None]:
        if run.length_bytes < _THREAD_BYTES:
            return verified(body, blocks, run)
        return await trio.to_thread.run_sync(verified, body, blocks, run)

    async def _again(self, path: RelPath, tag: RemoteTag, blocks: BlockList, index: int) -> bytes:
        """One block that came wrong, alone."""
        (alone,) = runs([index], blocks.size_bytes, blocks.block_size, RUN_BYTES)
        for _ in range(_TRIES - 1):
            (data,) = await self._checked(await self._fetch(path, tag, blocks, alone), blocks, alone)
            if data is not None:
                return data
        text = (
            f"{shown(path)} on {self._session.judge.container}: {_TRIES} times the server's bytes of block {index} did "
            f"not have the id {blocks[index].hex()}"
        )
        raise WrongBlockError(text, index)

    async def _fetch(self, path: RelPath, tag: RemoteTag, blocks: BlockList, run: Run) -> bytes:
        """One range, of the right length."""
        request = self._session.make.read_run(object_name(path), tag.version, run)
        reply = self._of_version(path, tag, await self._session.ask(request, 206, 200, 404))
        if len(reply.body) != run.length_bytes or (reply.status == 200 and run.length_bytes != blocks.size_bytes):
            self._session.judge.bad(
                f"{self._session.judge.origin} answered {reply.status} with {len(reply.body)} bytes to a range of "
                f"{run.length_bytes}"
            )
        return reply.body

    def _of_version(self, path: RelPath, tag: RemoteTag, reply: Reply) -> Reply:
        """A 404 for a pinned version means that the version is gone."""
        if reply.status == 404:
            raise ConflictOnRemoteError(path, describe(tag), "nothing readable")
        return reply

    async def _with_target(self, stat: RemoteStat) -> RemoteStat:
        """Fetch a symlink's target: the content of an object of one block."""
        if stat.kind is not Kind.SYMLINK or stat.target is not None:
            return stat
        return replace(stat, target=await self._content(stat))

    async def _content(self, stat: RemoteStat) -> bytes:
        """Of one block at most."""
        blocks = await self._block_list(stat.path, stat.tag)
        found = [b""]

        async def keep(_index: int, _id: BlockId, data: bytes) -> None:
            found[0] = data

        await self.read_blocks(stat.path, stat.tag, blocks, range(len(blocks))[:1], keep)
        return found[0].ljust(stat.tag.size_bytes, b"\0")


def verified(body: Bytes, blocks: BlockList, run: Run) -> list[bytes | None]:
    """Cut a range into canonical blocks; None for each one that does not have its id."""
    return [
        canonical(piece) if block_id(piece) == blocks[run.first + at] else None
        for at, piece in enumerate(cut(body, blocks))
    ]


def cut(body: Bytes, blocks: BlockList) -> list[bytes]:
    """Cut a range into blocks."""
    step = blocks.block_size
    return [bytes(body[at : at + step]) for at in range(0, len(body), step)]
