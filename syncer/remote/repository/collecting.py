"""Collecting what nobody needs any more, while others write; without locks.

Needed is what the heads name, and the commits that are kept: those younger than `keep` by the store's clock. All else
is deleted in two runs that lie a grace apart. The first one only *condemns*: an object says what. From then on nobody
builds on it (`Objects.look` reads the lists, and what is condemned is sent anew); who began before has committed, or
given up, long before the grace is over (`client.DRAFT_S`). The second run looks again: what any commit has named that
was made meanwhile stays, also if nobody needs it by now: somebody may be building on that commit.

Order of the second run: indexes without the packs that go, the packs, old indexes and commits. A death between any two
leaves what the next run does. The list goes a grace later: a listing of some time ago may still tell of old indexes.

Source: docs/design/repository.md, section 15.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec
import trio

from syncer.errors import CorruptionError, NotFoundError
from syncer.remote.repository.format import condemned
from syncer.remote.repository.format.condemned import Condemned
from syncer.remote.repository.format.entries import ID_BYTES, decode_entry
from syncer.remote.repository.format.history import Commit, CommitId, DeviceId
from syncer.remote.repository.format.keys import ChunkId, Content
from syncer.remote.repository.format.lists import chunks_of
from syncer.remote.repository.format.prolly import Root, reachable
from syncer.remote.repository.format.sealed import Kind, digest_of, object_name
from syncer.remote.repository.objects import Objects, ThreadNodes, fresh_salt
from syncer.remote.stores.port import Blob

KEEP_NS: Final = 30 * 86_400 * 10**9
GRACE_NS: Final = 2 * 86_400 * 10**9


class Collected(msgspec.Struct, kw_only=True):
    """What a run did.

    Attributes:
        kept_packs: That are needed, or too young to tell.
        condemned_packs: That will be deleted by a run after the grace.
        deleted_packs: That are gone.
        deleted_bytes: Of them.
        deleted_indexes: Whose rows others have.
        deleted_commits: That are older than is kept.
    """

    kept_packs: int = 0
    condemned_packs: int = 0
    deleted_packs: int = 0
    deleted_bytes: int = 0
    deleted_indexes: int = 0
    deleted_commits: int = 0


class Collector:
    """One run on one repository."""

    def __init__(self, objects: Objects, device: DeviceId, *, keep_ns: int = KEEP_NS, grace_ns: int = GRACE_NS) -> None:
        """Prepare.

        Args:
            objects: The repository's.
            device: Who runs it.
            keep_ns: Commits younger than that stay, and what they name.
            grace_ns: What is younger is not condemned; what was condemned is deleted after as long.
        """
        self._objects = objects
        self._store = objects.store
        self._device = device
        self._keep_ns = keep_ns
        self._grace_ns = grace_ns
        self._nodes = ThreadNodes(objects)

    async def run(self) -> Collected:
        """Delete what was condemned long enough ago, and condemn what nobody needs.

        Raises:
            CorruptionError: Something that is needed can't be read: nothing was deleted. A check names all of it.
            SyncerError: The store can't be asked.
        """
        now_ns = await self._store.now_ns()
        # The lists come first, the heads after the packs: what is named between two looks is seen by the later one.
        lists = await self._lists()
        packs = await self._there(Kind.PACK)
        index_blobs, commit_blobs = await self._there(Kind.INDEX), await self._there(Kind.COMMIT)
        await self._objects.look(whole=True)
        commits = await self._kept_commits(commit_blobs, now_ns)
        needed = await trio.to_thread.run_sync(self._needed, commits.values())
        if missing := needed - packs.keys():
            await self._still_missing(missing)
        collected = Collected()
        live = self._objects.live_indexes()
        due = {name: each for name, each in lists.items() if each[0].modified_ns + self._grace_ns < now_ns}
        if due:
            began_ns = min(min(blob.modified_ns, each.time_ns) for blob, each in due.values())
            later = {CommitId(digest) for digest, blob in commit_blobs.items() if blob.modified_ns >= began_ns}
            more = await self._objects.commits(sorted(later - commits.keys()))
            kept, there = commits.keys() | more.keys(), index_blobs.keys() | commit_blobs.keys()
            named = needed | await trio.to_thread.run_sync(self._needed, more.values())
            for name, (blob, each) in sorted(due.items(), key=lambda item: item[1][0].modified_ns):
                await self._delete(each, named, live, kept, collected, packs, there)
                if blob.modified_ns + 2 * self._grace_ns < now_ns:
                    await self._store.delete(name)
        told = {digest for _, each in lists.values() for digest in (*each.packs, *each.indexes, *each.commits)}

        def old(blobs: Mapping[bytes, Blob], keep: Collection[bytes]) -> tuple[bytes, ...]:
            return tuple(
                sorted(
                    digest
                    for digest, blob in blobs.items()
                    if digest not in keep and digest not in told and blob.modified_ns + self._grace_ns < now_ns
                )
            )

        new = Condemned(
            device=self._device,
            time_ns=now_ns,
            packs=old(packs, needed)[: condemned.MAX_DIGESTS // 4],
            indexes=old(index_blobs, live)[: condemned.MAX_DIGESTS // 4],
            commits=old(commit_blobs, commits)[: condemned.MAX_DIGESTS // 4],
        )
        if new.packs or new.indexes or new.commits:
            name, raw = condemned.encode(self._objects.keys, fresh_salt(), new, self._objects.codec)
            await self._store.put(name, raw, absent=True)
        collected.condemned_packs = len(new.packs)
        collected.kept_packs = len(packs) - collected.deleted_packs
        return collected

    async def _lists(self) -> dict[str, tuple[Blob, Condemned]]:
        blobs = await self._store.listing(Kind.CONDEMNED.folder)
        found: dict[str, tuple[Blob, Condemned]] = {}
        for blob in blobs:
            if digest_of(Kind.CONDEMNED, blob.name) is not None:
                try:
                    raw = await self._store.get(blob.name)
                except NotFoundError:
                    continue  # another device has done it
                found[blob.name] = blob, condemned.decode(self._objects.keys, blob.name, raw, self._objects.codec)
        return found

    async def _there(self, kind: Kind) -> dict[bytes, Blob]:
        blobs = await self._store.listing(kind.folder)
        return {digest: blob for blob in blobs if (digest := digest_of(kind, blob.name)) is not None}

    async def _kept_commits(self, blobs: Mapping[bytes, Blob], now_ns: int) -> dict[CommitId, Commit]:
        """Those that heads name, and all that are young."""
        heads = {head.commit for head in (await self._objects.heads()).values()}
        # Within the grace no commit is condemned, so what it names isn't either: a commit that is there is whole.
        since_ns = now_ns - max(self._keep_ns, self._grace_ns)
        young = {CommitId(digest) for digest, blob in blobs.items() if blob.modified_ns >= since_ns}
        return await self._objects.commits(sorted(heads | young))

    def _needed(self, commits: Iterable[Commit]) -> set[bytes]:
        """Digests of all packs that some commits need."""
        needed: set[bytes] = set()
        known: set[ChunkId] = set()
        for commit in commits:
            root = msgspec.msgpack.decode(commit.root, type=Root) if commit.root else None
            for node, leaf in reachable(self._nodes, root, known):
                self._note_node(node, needed)
                for key, value in leaf:
                    file = decode_entry(key, value).file if len(key) > ID_BYTES else None
                    if file is None:
                        continue
                    for listed in (file.blocks, file.chunks):
                        if isinstance(listed, Root):
                            for inner, _ in reachable(self._nodes, listed, known):
                                self._note_node(inner, needed)
                    needed.update(chunk.pack.digest for chunk in chunks_of(self._nodes, file))
        return needed

    def _note_node(self, node: ChunkId, needed: set[bytes]) -> None:
        """All packs that have a node: which of them a device reads is its affair."""
        needed.update(found.pack.digest for found in self._objects.all_places(Content.TREES, node))

    async def _still_missing(self, missing: Iterable[bytes]) -> None:
        """Packs that came after the listing are fine."""
        for digest in missing:
            name = object_name(Kind.PACK, digest)
            if await self._store.head(name) is None:
                raise CorruptionError(
                    f"{name} is missing, and needed: nothing was collected; `repo check` names what it holds"
                )

    async def _delete(
        self,
        each: Condemned,
        needed: set[bytes],
        live: set[bytes],
        commits: Collection[bytes],
        collected: Collected,
        packs: Mapping[bytes, Blob],
        there: Collection[bytes],
    ) -> None:
        gone = [digest for digest in each.packs if digest not in needed and digest in packs]
        if gone:
            await self._objects.put_index_without(set(gone))
            live.update(self._objects.live_indexes())
        for digest in gone:
            await self._store.delete(object_name(Kind.PACK, digest))
            collected.deleted_packs += 1
            collected.deleted_bytes += packs[digest].size_bytes
        for digest in each.indexes:
            if digest not in live and digest in there:
                await self._store.delete(object_name(Kind.INDEX, digest))
                collected.deleted_indexes += 1
        for digest in each.commits:
            if digest not in commits and digest in there:
                await self._store.delete(object_name(Kind.COMMIT, digest))
                collected.deleted_commits += 1
