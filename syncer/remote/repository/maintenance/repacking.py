"""Repacking: packs of which less than half is needed are written anew, while others write; without locks.

No tree changes by it. What a list of chunks says of where one is, is a hint: whoever finds the pack gone asks the
indexes. So the chunks that are needed go into new packs, an index says where they are now, and the old packs are
condemned like those that nobody needs (`collecting`): collections delete them a grace later, if by then nothing else of
them is needed.

Order, for a few packs at a time: new packs, their index, the list that condemns the old ones. A death before the list
leaves each chunk at two places; collections keep one.

Source: docs/design/repository.md, section 17.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import trio

from syncer.remote.repository.format.keys import Content
from syncer.remote.repository.format.packs import (
    FOOT_BYTES,
    MAX_BYTES,
    Entry,
    Pack,
    PackBuilder,
    PackReader,
    PackRef,
    plan,
)
from syncer.remote.repository.maintenance.marking import Marker, Sight, Use, see_that_all_is_there, used
from syncer.remote.repository.maintenance.run import MaintenanceRun
from syncer.remote.repository.objects import Objects, fresh_salt

_AT_A_TIME: Final = 32  # packs: a death loses the copies of so many at most


class Repacked(msgspec.Struct, kw_only=True):
    """What a run did, or would do.

    Attributes:
        packs: That are there.
        sparse_packs: Of which less than half is needed: condemned now.
        sparse_bytes: Of them.
        live_bytes: What of them is needed, as stored.
        new_packs: That were written.
        new_bytes: Of them.
    """

    packs: int = 0
    sparse_packs: int = 0
    sparse_bytes: int = 0
    live_bytes: int = 0
    new_packs: int = 0
    new_bytes: int = 0


def sparse(sight: Sight, uses: Mapping[PackRef, Use], stored: Mapping[bytes, int], *, grace_ns: int) -> list[PackRef]:
    """Packs that are worth writing anew: of the bytes of their chunks less than half is needed, and some. Pure.

    What is young stays: who writes it has not named all of it yet. What is condemned already goes as it is.

    Args:
        sight: What is there.
        uses: What is needed.
        stored: Bytes of chunks in each pack that an index names, by digest.
        grace_ns: What is younger is young.
    """
    avoided = sight.condemned_packs
    return sorted(
        (
            pack
            for pack, use in uses.items()
            if pack.digest in sight.packs
            and pack.digest not in avoided
            and sight.packs[pack.digest].modified_ns + grace_ns < sight.now_ns
            and 0 < 2 * use.live_bytes < stored.get(pack.digest, 0)
        ),
        key=lambda pack: (uses[pack].content.value, uses[pack].live_bytes, pack),
    )


class Repacker(MaintenanceRun[Repacked]):
    """One run on one repository."""

    async def run(self, *, dry: bool = False) -> Repacked:
        """Write anew what is worth it.

        Args:
            dry: Only find out.

        Raises:
            CorruptionError: Something that is needed can't be read: its pack was left as it is.
            SyncerError: The store can't be asked.
        """
        self._new: set[bytes] = set()
        sight = await self._look()
        uses = await trio.to_thread.run_sync(used, Marker(self._objects, sight), sight, self._told)
        await see_that_all_is_there(self._objects, {pack.digest for pack in uses} - sight.packs.keys())
        stored = await trio.to_thread.run_sync(self._objects.stored_bytes)
        chosen = sparse(sight, uses, stored, grace_ns=self._grace_ns)
        repacked = Repacked(
            packs=len(sight.packs),
            sparse_packs=len(chosen),
            sparse_bytes=sum(sight.packs[pack.digest].size_bytes for pack in chosen),
            live_bytes=sum(uses[pack].live_bytes for pack in chosen),
        )
        if not dry:
            for at in range(0, len(chosen), _AT_A_TIME):
                self._told(f"packs {at} of {len(chosen)}")
                await self._move(chosen[at : at + _AT_A_TIME], chosen, uses, sight, repacked)
        return repacked

    async def _move(
        self,
        packs: Sequence[PackRef],
        chosen: Collection[PackRef],
        uses: Mapping[PackRef, Use],
        sight: Sight,
        repacked: Repacked,
    ) -> None:
        """Write some packs anew, and condemn them."""
        going = {pack.digest for pack in chosen}
        made: dict[Content, list[Pack]] = {content: [] for content in Content}
        for content in Content:
            writer = _Writer(self._objects, content)
            for pack in packs:
                if uses[pack].content is content:
                    wanted = await self._wanted(pack, sight.packs[pack.digest].size_bytes, uses[pack])
                    missing = [entry for entry in wanted if not self._elsewhere(content, entry, going, sight)]
                    await self._copy(pack, missing, writer)
            made[content] = await writer.finish()
        new = [pack for each in made.values() for pack in each]
        self._new.update(pack.ref.digest for pack in new)
        repacked.new_packs += len(new)
        repacked.new_bytes += sum(pack.size_bytes for pack in new)
        # New packs → their index → the list: who finds an old pack gone finds the new one.
        if new:
            await self._objects.put_index(made[Content.TREES], made[Content.FILES], self._still_awake)
        await self._still_sure(sight)
        await self._condemn(sight, packs=tuple(sorted(pack.digest for pack in packs)))

    def _elsewhere(self, content: Content, entry: Entry, going: Collection[bytes], sight: Sight) -> bool:
        """Whether a chunk is in a pack that stays, as after a run that died."""
        digests = {each.pack.digest for each in self._objects.all_places(content, entry.id)}
        return not digests.isdisjoint(self._new) or any(
            digest in sight.packs and digest not in going and digest not in sight.condemned_packs for digest in digests
        )

    async def _wanted(self, pack: PackRef, size: int, use: Use) -> list[Entry]:
        """The chunks of a pack that are needed, as it says itself."""
        reader = PackReader(self._objects.keys, use.content, pack)
        foot = await self._store.get(pack.name, (size - FOOT_BYTES, FOOT_BYTES))
        length = reader.trailer_length(size, foot)
        end = await self._store.get(pack.name, (size - length, length), most_bytes=MAX_BYTES)
        entries = await trio.to_thread.run_sync(reader.entries, size, end)
        return [entry for entry in entries if entry.offset in use.offsets]

    async def _copy(self, pack: PackRef, wanted: Sequence[Entry], writer: _Writer) -> None:
        for fetch in plan(wanted):
            raw = await self._store.get(pack.name, (fetch.start, fetch.end - fetch.start), most_bytes=MAX_BYTES)
            await writer.add(pack, fetch.entries, fetch.start, raw)


class _Writer:
    """Fills packs of one kind with chunks of others; each is opened and held against its id before."""

    def __init__(self, objects: Objects, content: Content) -> None:
        self._objects = objects
        self._content = content
        self._builder: PackBuilder | None = None
        self._packs: list[Pack] = []

    async def add(self, pack: PackRef, entries: Sequence[Entry], start: int, raw: bytes) -> None:
        """Put chunks into packs; full ones are sent.

        Args:
            pack: Where they are now.
            entries: Which.
            start: Where in it `raw` begins.
            raw: Bytes of it.

        Raises:
            DamagedObjectError: One is not what it was.
        """
        for full, data in await trio.to_thread.run_sync(list, self._filled(pack, entries, start, raw)):
            await self._send(full, data)

    async def finish(self) -> list[Pack]:
        """Send the rest; all that were made."""
        if self._builder is not None:
            await self._send(*await trio.to_thread.run_sync(self._builder.finish))
            self._builder = None
        return self._packs

    def _filled(self, pack: PackRef, entries: Sequence[Entry], start: int, raw: bytes) -> Iterator[tuple[Pack, bytes]]:
        reader, view = PackReader(self._objects.keys, self._content, pack), memoryview(raw)
        for entry in entries:
            sealed = view[entry.offset - start : entry.end - start]
            reader.open(entry, sealed, self._objects.codec)  # what is damaged is not written again
            if self._builder is None:
                self._builder = PackBuilder(self._objects.keys, self._content, fresh_salt(), self._objects.codec)
            self._builder.add_encoded(entry.id, reader.open_encoded(entry, sealed), entry.plain)
            if self._builder.is_full:
                yield self._builder.finish()
                self._builder = None

    async def _send(self, pack: Pack, raw: bytes) -> None:
        await self._objects.put_pack(self._content, pack, raw)
        self._packs.append(pack)
