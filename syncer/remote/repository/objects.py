"""The objects of a repository on a store: what is read is opened and verified, what is written is sealed.

Indexes, commits and nodes of trees that were read once stay in memory, nodes at most so many bytes of them.

Source: docs/design/repository.md.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import trio

from syncer.errors import CorruptionError, DamagedObjectError, NotFoundError
from syncer.remote.parallel import for_each
from syncer.remote.repository.elapsed import When, awake_or_asleep_s
from syncer.remote.repository.format import condemned, indexes
from syncer.remote.repository.format.codec import Codec
from syncer.remote.repository.format.history import (
    Commit,
    CommitId,
    DeviceId,
    Head,
    commit_name,
    decode_commit,
    encode_commit,
)
from syncer.remote.repository.format.indexes import Found, Index, Section
from syncer.remote.repository.format.keys import SALT_BYTES, ChunkId, Content, Keys
from syncer.remote.repository.format.packs import Fetch, Pack, PackReader, PackRef, plan
from syncer.remote.repository.format.sealed import Kind, digest_of, object_name
from syncer.remote.repository.heads import Heads, MissingHeadError
from syncer.remote.repository.kept import Codecs, Kept, Listing, listing_of
from syncer.remote.stores.caching import CachedStore
from syncer.remote.stores.port import Blob, BlobStore

_AT_ONCE: Final = 8  # requests
_INDEXES: Final = 4  # at once: each may tell of the next ones that they need not be read
_FRESH_S: Final = 60.0  # so long a listing of them serves whoever looks for one of them
_REWRITE_S: Final = 6 * 3600.0  # indexes are written again while what was read of them is younger
_COMMIT_BYTES: Final = 512 << 10  # with as many devices as there may be
_NODE_BYTES: Final = 64 << 20  # of nodes that stay in memory


def fresh_salt() -> bytes:
    """16 random bytes, for one object."""
    return os.urandom(SALT_BYTES)


class Objects:
    """One repository. Safe for many tasks."""

    def __init__(
        self,
        store: BlobStore,
        keys: Keys,
        clock_s: Callable[[], float] = awake_or_asleep_s,
        *,
        cache: CachedStore | None = None,
    ) -> None:
        """Take what they need.

        Args:
            store: Where they are.
            keys: The repository's.
            clock_s: Seconds that go on while the machine sleeps.
            cache: The same store, for what is worth to be kept on this machine: all but chunks of files.
        """
        self.clock_s = clock_s
        self.store = store
        self._asked_ns: int | None = None
        self._looked = self.now()
        self._kept = Kept(store, cache)
        self.keys = keys
        self._codecs = Codecs()
        self._listed: Listing | None = None
        self._heads = Heads(store, self._kept, keys, self._codecs)
        self._commits: dict[CommitId, Commit] = {}
        self._indexes: dict[bytes, Index] = {}
        self._sizes: dict[bytes, int] = {}
        self._live: list[Index] = []
        self._nodes: OrderedDict[ChunkId, bytes] = OrderedDict()
        self._node_bytes = 0
        self._readers: dict[tuple[Content, PackRef], PackReader] = {}
        self._looking = trio.Lock()
        self._condemned: frozenset[bytes] = frozenset()
        self._partly: set[bytes] = set()  # indexes of which only the section TREES was read
        self._fresh: set[bytes] = set()  # indexes of ours that no commit needs yet: a listing may be late
        self._named: frozenset[bytes] = frozenset()
        self._gone: set[bytes] = set()

    @property
    def codec(self) -> Codec:
        """This thread's: ask for it in the thread that uses it."""
        return self._codecs.codec

    # --- time

    def now(self) -> When:
        """By our own clock, and by the store's as of the last time that it told."""
        heard_ns = self.store.heard_ns
        return When(self.clock_s(), self._asked_ns if heard_ns is None else heard_ns)

    async def hear(self) -> None:
        """Ask for the store's time, where replies don't tell it: we may have been paused, and our clock with us."""
        if self.store.heard_ns is None:
            self._asked_ns = await self.store.now_ns()

    # --- heads and commits

    async def heads(self, told: Callable[[When], object] = lambda _: None) -> dict[DeviceId, Head]:
        """The heads of all devices. One listing, and a request for each that is, or may be, another than it was.

        Where a listing tells of contents, that holds for what another process of this machine has seen, too. What else
        it tells, a `look` that follows soon need not ask for.

        Args:
            told: Hears when the listing was asked for.

        Raises:
            DamagedObjectError: One is not what it was, or is missing.
        """
        self._listed = listed = await listing_of(self.store, self.clock_s)
        told(listed.since)
        try:
            return await self._heads.of(listed.below(Kind.HEAD))
        except MissingHeadError:
            # A device that was forgotten since: others build on it, perhaps by heads that are later than that listing.
            self._listed = listed = await listing_of(self.store, self.clock_s)
            told(listed.since)
            return await self._heads.of(listed.below(Kind.HEAD))

    async def head(self, device: DeviceId) -> Head | None:
        """A device's head as it is now; None if it has none.

        Raises:
            DamagedObjectError: It is not what it was.
        """
        return await self._heads.now(device)

    def tells_content(self, device: DeviceId) -> bool:
        """Whether the last listing of heads told what is in this one, not only when it was written."""
        return self._heads.tells_content(device)

    async def commits(self, wanted: Collection[CommitId], *, must: bool = False) -> dict[CommitId, Commit]:
        """Some commits.

        Args:
            wanted: Which.
            must: They were named by heads just now: one that is gone is damage.

        Raises:
            NotFoundError: One is gone.
            DamagedObjectError: One is not what it was.
        """
        asks = [commit for commit in dict.fromkeys(wanted) if commit not in self._commits]

        async def ask(commit: CommitId) -> None:
            def check(raw: bytes) -> Commit:
                return decode_commit(self.keys, commit, raw, self.codec)

            try:
                self._commits[commit] = await self._kept.got(commit_name(commit), check, most_bytes=_COMMIT_BYTES)
            except NotFoundError:
                if must:
                    raise DamagedObjectError(commit_name(commit), "is missing: a head names it") from None
                raise

        await for_each(iter(asks), ask, _AT_ONCE)
        return {commit: self._commits[commit] for commit in wanted}

    async def put_commit(self, commit: Commit) -> CommitId:
        """Write a commit; nobody finds it before a head names it, or another commit."""
        name, raw = encode_commit(self.keys, fresh_salt(), commit, self.codec)
        await self._kept.put(commit_name(name), raw)
        self._commits[name] = commit
        return name

    async def put_head(self, head: Head) -> None:
        """Replace a device's head, which only that device does."""
        self._listed = None
        await self._heads.put(head)
        self._fresh.clear()

    # --- indexes

    async def look(self, *, to_write: bool = False, whole: bool = False, again: bool = False) -> None:
        """Read the indexes that are new. One listing at most.

        Args:
            to_write: Read what is condemned, too: nothing new may build on that.
            whole: All of all indexes, also of those that others replace. Who writes gets no such ones; who does not,
                only where nodes of trees are.
            again: By a listing of now, not by the one that told of the heads.
        """
        every, whole = whole, whole or to_write
        async with self._looking:
            listed = self._listed
            if every or again or listed is None or listed.since.is_over(_FRESH_S, self.now()):
                self._listed = listed = await listing_of(self.store, self.clock_s)
            if to_write:
                self._condemned = await self._read_condemned(listed)
            there = {
                digest: blob for blob in listed.below(Kind.INDEX) if (digest := indexes.index_of(blob.name)) is not None
            }
            if to_write:
                self._fresh.clear()
            kept = there.keys() | self._fresh
            self._indexes = {digest: index for digest, index in self._indexes.items() if digest in kept}
            self._sizes = {digest: blob.size_bytes for digest, blob in there.items()}

            async def ask(digest: bytes) -> None:
                try:
                    if whole or there[digest].size_bytes <= indexes.FIRST_BYTES:
                        decoded = await self._kept.got(there[digest].name, partial(self._decoded, digest))
                        self._partly.discard(digest)
                    else:
                        decoded = await self._trees_of(digest, there[digest].name)
                        self._partly.add(digest)
                except NotFoundError:
                    return  # replaced meanwhile: what it said is said by another one
                self._indexes[digest] = decoded

            self._partly &= self._indexes.keys()
            tried: set[bytes] = set()
            while asks := self._unread(there, tried, whole=whole, every=every):
                tried.update(asks)
                await for_each(iter(asks), ask, _AT_ONCE)
            self._refresh()
            self._looked = listed.since

    async def condemned(self) -> frozenset[bytes]:
        """Digests of the packs that are being deleted, or were lately, as the lists tell now."""
        await self.look(to_write=True, again=True)
        return self._condemned

    @property
    def _is_behind(self) -> bool:
        """What was read of indexes is not to be written again: packs of theirs may have been deleted since."""
        return self._looked.is_over(_REWRITE_S, self.now())

    def _unread(
        self, there: Mapping[bytes, Blob], tried: Collection[bytes], *, whole: bool, every: bool
    ) -> list[bytes]:
        """Some indexes to read next: the longest ones. What replaces others is twice as long as each of them."""
        replaced = {digest for index in self._indexes.values() for digest in index.trees.replaces}
        wanted = {
            digest: blob.size_bytes
            for digest, blob in there.items()
            if digest not in tried
            and (every or digest not in replaced)
            and (digest not in self._indexes or (whole and digest in self._partly))
        }
        longest = max(wanted.values(), default=0)
        likely = [digest for digest, size in wanted.items() if 2 * size > longest]
        return sorted(likely, key=lambda digest: (-wanted[digest], -there[digest].modified_ns, digest))[:_INDEXES]

    async def _trees_of(self, digest: bytes, name: str) -> Index:
        """What an index says of nodes of trees: its beginning."""

        def end_of(first: bytes) -> tuple[bytes, int]:
            return first, indexes.trees_end(self.keys, digest, first)

        first, end = await self._kept.got(name, end_of, (0, indexes.FIRST_BYTES))
        if end <= len(first):
            return Index(await trio.to_thread.run_sync(self._decoded_trees, digest, first), indexes.EMPTY)
        rest = len(first), end - len(first)
        return Index(
            await self._kept.got(name, lambda more: self._decoded_trees(digest, first + more), rest), indexes.EMPTY
        )

    def find(self, content: Content, chunk: ChunkId) -> Found | None:
        """Where a chunk is, as far as the indexes that were read tell."""
        places = list(self.all_places(content, chunk))
        return next((found for found in places if found.pack.digest not in self._gone), places[0] if places else None)

    def find_to_keep(self, content: Content, chunk: ChunkId) -> Found | None:
        """As `find`, where something new may build on it: not in a pack that will be deleted, or is gone."""
        avoided = self._condemned | self._gone if self._gone else self._condemned
        return next((found for found in self.all_places(content, chunk) if found.pack.digest not in avoided), None)

    def all_places(self, content: Content, chunk: ChunkId) -> Iterator[Found]:
        """Where a chunk is, by each index; one place may come more than once."""
        for index in self._live:
            yield from (index.trees if content is Content.TREES else index.files).find_all(chunk)

    def settled(self, content: Content, place: Found) -> Found:
        """Where a chunk is that something places there: elsewhere, if its pack was repacked since, and is gone."""
        digest = place.pack.digest
        if digest in self._named and digest not in self._gone:
            return place
        return self.find(content, place.entry.id) or place

    def live_indexes(self) -> set[bytes]:
        """Digests of the indexes that no other one replaces."""
        return indexes.live({digest: index.trees.replaces for digest, index in self._indexes.items()})

    async def put_index_without(self, gone: Collection[bytes], check: Callable[[], None]) -> None:
        """Write indexes anew that name packs which go, or are gone; `check` has the last word, right before each."""
        self._fresh.clear()  # what another run has replaced since, and deleted, must not come back
        while True:  # again for who slept meanwhile: what it has read of an index may be gone
            await self.look(whole=True)
            async with self._looking:
                live = self.live_indexes()
                for digest, index in list(self._indexes.items()):
                    parts = index.trees, index.files
                    trees, files = ([pack for pack in part.packs if pack.digest in gone] for part in parts)
                    if self._is_behind or digest not in live or not (trees or files):
                        continue
                    without = indexes.merged([index.trees], without=trees, replaces=self._replaced_by([digest]))
                    await self._replace(Index(without, indexes.merged([index.files], without=files)), check)
                if not self._is_behind:
                    return

    def packs(self) -> Iterator[tuple[PackRef, int]]:
        """All packs that the indexes name, and their lengths; one may come more than once."""
        for index in self._live:
            yield from index.trees.packs.items()
            yield from index.files.packs.items()

    def stored_bytes(self) -> dict[bytes, int]:
        """How many bytes of each pack that an index names are chunks; by its digest. For a thread."""
        found: dict[bytes, int] = {}
        for index in self._live:
            for section in (index.trees, index.files):
                for pack, total in section.stored_bytes().items():
                    found[pack.digest] = max(total, found.get(pack.digest, 0))
        return found

    async def put_index(self, trees: Sequence[Pack], files: Sequence[Pack], check: Callable[[], None]) -> None:
        """Write an index of new packs, and of small ones that are there; `check` has the last word, right before."""
        async with self._looking:
            live = self.live_indexes()
            # What names condemned packs is not written again: its rows would outlive these, and somebody build on them.
            there = {
                digest: size
                for digest, size in self._sizes.items()
                if digest in live - self._partly and not self._names_condemned(self._indexes[digest])
            }
            rows = sum(len(pack.entries) for pack in (*trees, *files))
            merged = [] if self._is_behind else indexes.to_merge(48 * rows, there)
            parts, replaced = [self._indexes[digest] for digest in merged], self._replaced_by(merged)
            await self._replace(await trio.to_thread.run_sync(_merged, trees, files, parts, replaced), check)

    def _replaced_by(self, merged: Sequence[bytes]) -> list[bytes]:
        """What an index replaces that has what these have: also what they replace, as long as it is there."""
        older = {each for digest in merged for each in self._indexes[digest].trees.replaces if each in self._sizes}
        return [*merged, *sorted(older.difference(merged))][: indexes.MAX_REPLACED]

    def _names_condemned(self, index: Index) -> bool:
        packs = (pack.digest for part in (index.trees, index.files) for pack in part.packs)
        return bool(self._condemned) and not self._condemned.isdisjoint(packs)

    async def _replace(self, index: Index, check: Callable[[], None]) -> None:
        digest, raw = await trio.to_thread.run_sync(self._encoded, index)
        await self.hear()
        check()
        await self._kept.put(object_name(Kind.INDEX, digest), raw)
        self._listed = None
        self._indexes[digest], self._sizes[digest] = index, len(raw)
        self._fresh.add(digest)
        self._refresh()

    async def _read_condemned(self, there: Listing) -> frozenset[bytes]:
        names = [blob.name for blob in there.below(Kind.CONDEMNED) if digest_of(Kind.CONDEMNED, blob.name) is not None]
        found: set[bytes] = set()

        async def ask(name: str) -> None:
            try:
                listed = await self._kept.got(name, lambda raw: condemned.decode(self.keys, name, raw, self.codec))
            except NotFoundError:
                return  # what was in it is gone
            found.update(listed.packs)

        await for_each(iter(names), ask, _AT_ONCE)
        return frozenset(found)

    def _decoded(self, digest: bytes, raw: bytes) -> Index:
        return indexes.decode(self.keys, digest, raw, self.codec)

    def _decoded_trees(self, digest: bytes, first: bytes) -> Section:
        return indexes.decode_trees(self.keys, digest, first, self.codec)

    def _encoded(self, index: Index) -> tuple[bytes, bytes]:
        return indexes.encode(self.keys, fresh_salt(), index, self.codec)

    def _refresh(self) -> None:
        live = self.live_indexes()
        self._live = [index for digest, index in sorted(self._indexes.items()) if digest in live]
        self._named = frozenset(pack.digest for pack, _ in self.packs())

    # --- packs

    async def put_pack(self, content: Content, pack: Pack, raw: bytes) -> None:
        """Write a pack; nobody finds it before an index names it, or an entry of a tree."""
        await self._kept.put(pack.ref.name, raw, is_kept=content is Content.TREES)

    async def read(
        self, content: Content, wanted: Iterable[Found], *, gap_bytes: int | None = None
    ) -> dict[ChunkId, bytes]:
        """Some chunks, verified. In memory all at once: ask for as much as that may be.

        Args:
            content: What is in them.
            wanted: Where each is.
            gap_bytes: See `packs.plan`; None: its own.

        Raises:
            DamagedObjectError: A pack is gone, or a chunk is not what it was.
        """
        read: dict[ChunkId, bytes] = {}
        pending, tried = [self.settled(content, each) for each in wanted], set[bytes]()
        while pending:
            lost = await self._fetch(content, pending, gap_bytes, read)
            if not lost:
                break
            tried.update(lost)
            # Repacked since we looked: another pack has what was in it, and another index says which.
            await self.look(whole=True)
            again = [self.settled(content, each) for each in pending if each.pack.digest in lost]
            for each in again:
                if each.pack.digest in tried:
                    raise DamagedObjectError(each.pack.name, "is missing, or was deleted just now")
            pending = again
        return read

    async def _fetch(
        self, content: Content, places: Iterable[Found], gap_bytes: int | None, read: dict[ChunkId, bytes]
    ) -> set[bytes]:
        """Read chunks where they are said to be; digests of the packs that are not there."""
        by_pack: dict[PackRef, list[Found]] = {}
        for found in places:
            by_pack.setdefault(found.pack, []).append(found)
        lost: set[bytes] = set()
        fetches = [
            (pack, fetch)
            for pack, inside in by_pack.items()
            for fetch in (
                plan(each.entry for each in inside)
                if gap_bytes is None
                else plan((each.entry for each in inside), gap_bytes=gap_bytes)
            )
        ]

        async def ask(job: tuple[PackRef, Fetch]) -> None:
            pack, fetch = job
            if pack.digest in lost:
                return
            span = (fetch.start, fetch.end - fetch.start)
            reader = self._reader(content, pack)
            try:
                got = await self._kept.got(
                    pack.name, partial(self._opened, reader, fetch), span, is_kept=content is Content.TREES
                )
            except NotFoundError:
                lost.add(pack.digest)
                self._gone.add(pack.digest)
                return
            self._gone.discard(pack.digest)
            read.update(got)

        await for_each(iter(fetches), ask, _AT_ONCE)
        return lost

    def _opened(self, reader: PackReader, fetch: Fetch, raw: bytes) -> dict[ChunkId, bytes]:
        view = memoryview(raw)
        return {
            entry.id: reader.open(entry, view[entry.offset - fetch.start : entry.end - fetch.start], self.codec)
            for entry in fetch.entries
        }

    def _reader(self, content: Content, pack: PackRef) -> PackReader:
        reader = self._readers.get((content, pack))
        if reader is None:
            if len(self._readers) > 1 << 12:
                self._readers.clear()
            reader = self._readers[content, pack] = PackReader(self.keys, content, pack)
        return reader

    # --- nodes of trees

    async def nodes(self, ids: Sequence[ChunkId]) -> list[bytes]:
        """Nodes of trees, from memory or from their packs.

        Raises:
            DamagedObjectError: One is nowhere, or is not what it was.
        """
        found: dict[ChunkId, bytes] = {}
        for node in ids:
            if node in self._nodes:
                self._nodes.move_to_end(node)
                found[node] = self._nodes[node]
        missing = [node for node in dict.fromkeys(ids) if node not in found]
        if missing:
            places = [self.find(Content.TREES, node) for node in missing]
            for again in (False, True):  # what was listed with the heads may lag behind them
                if None in places:
                    await self.look(again=again)
                    places = [self.find(Content.TREES, node) for node in missing]
            lost = [node for node, place in zip(missing, places, strict=True) if place is None]
            if lost:
                raise DamagedObjectError(f"tree node {lost[0].hex()[:16]}", "is missing: no index names it")
            try:
                read = await self.read(Content.TREES, [place for place in places if place is not None])
            except CorruptionError:
                read = await self._read_anywhere(missing)
            found.update(read)
            for node, data in read.items():
                self.keep_node(node, data)
        return [found[node] for node in ids]

    def at_hand(self, node: ChunkId) -> bytes | None:
        """A node that is in memory. For any thread."""
        return self._nodes.get(node)

    async def _read_anywhere(self, nodes: Iterable[ChunkId]) -> dict[ChunkId, bytes]:
        """Nodes one by one, each from whichever pack has it whole."""
        read: dict[ChunkId, bytes] = {}
        for node in nodes:
            wrong: CorruptionError | None = None
            for place in self.all_places(Content.TREES, node):
                try:
                    read.update(await self.read(Content.TREES, [place]))
                    break
                except CorruptionError as error:
                    wrong = wrong or error
            if node not in read:
                raise wrong or DamagedObjectError(f"tree node {node.hex()[:16]}", "is missing: no index names it")
        return read

    def keep_node(self, node: ChunkId, data: bytes) -> None:
        """Have a node at hand."""
        if node not in self._nodes:
            self._nodes[node] = data
            self._node_bytes += len(data)
        while self._node_bytes > _NODE_BYTES:
            _, old = self._nodes.popitem(last=False)
            self._node_bytes -= len(old)


def _merged(trees: Sequence[Pack], files: Sequence[Pack], parts: Sequence[Index], replaced: Sequence[bytes]) -> Index:
    return Index(
        indexes.merged([indexes.section(trees), *(part.trees for part in parts)], replaces=replaced),
        indexes.merged([indexes.section(files), *(part.files for part in parts)]),
    )


class ThreadNodes:
    """`Nodes` for pure code that runs in a thread: what is written is kept here until it is packed."""

    def __init__(self, objects: Objects) -> None:
        """Nodes of a repository."""
        self._objects = objects
        self.written: dict[ChunkId, bytes] = {}

    def read(self, ids: Sequence[ChunkId]) -> list[bytes]:
        """See Nodes. In a thread that trio started: it goes to the loop only for what is not in memory."""
        found = {node: data for node in ids if (data := self.written.get(node) or self._objects.at_hand(node))}
        if rest := [node for node in ids if node not in found]:
            found.update(zip(rest, trio.from_thread.run(self._objects.nodes, rest), strict=True))
        return [found[node] for node in ids]

    def write(self, node: bytes) -> ChunkId:
        """See Nodes."""
        name = self._objects.keys.chunk_id(Content.TREES, node)
        if self._objects.find_to_keep(Content.TREES, name) is None:
            self.written[name] = node
        return name
