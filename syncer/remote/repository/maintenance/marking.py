"""What the commits that are kept need: a look at a repository, and for each chunk the one place that must stay.

A chunk may be in several packs. What a list of chunks says of where one is, is a hint: who finds the pack gone asks the
indexes (`Objects.settled`). So of several places one is enough, and which is a rule (`choose`) that decides the same
for all who see the same: collections beside each other must not each take away what the other one relies on.

Source: docs/design/repository.md, sections 15 and 17.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from syncer.errors import CorruptionError, DamagedObjectError, NotFoundError
from syncer.remote.parallel import for_each
from syncer.remote.repository.format import condemned
from syncer.remote.repository.format.condemned import Condemned
from syncer.remote.repository.format.entries import ID_BYTES, Bytes, decode_entry
from syncer.remote.repository.format.history import Commit, CommitId, commit_name
from syncer.remote.repository.format.indexes import Found
from syncer.remote.repository.format.keys import ChunkId, Content
from syncer.remote.repository.format.lists import chunks_of
from syncer.remote.repository.format.packs import Entry, PackRef
from syncer.remote.repository.format.prolly import Root, reachable
from syncer.remote.repository.format.sealed import Kind, digest_of, object_name
from syncer.remote.repository.headless import LOST, Headless, heads_there
from syncer.remote.repository.objects import Objects, ThreadNodes
from syncer.remote.stores.port import Blob

GRACE_NS: Final = 2 * 86_400 * 10**9
_AT_ONCE: Final = 8  # requests


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """A repository at a moment: what is there, by digest, and which commits are kept.

    Attributes:
        now_ns: By the store's clock, before anything was looked at.
        lists: Of what is condemned, by the names of their objects.
        packs: All that are there.
        indexes: The same.
        commits: The same.
        kept: Commits that heads name, and those that are young.
    """

    now_ns: int
    lists: Mapping[str, tuple[Blob, Condemned]]
    packs: Mapping[bytes, Blob]
    indexes: Mapping[bytes, Blob]
    commits: Mapping[bytes, Blob]
    kept: Mapping[CommitId, Commit]

    @property
    def condemned_packs(self) -> frozenset[bytes]:
        """Digests of those that will be deleted."""
        return frozenset(digest for _, each in self.lists.values() for digest in each.packs)


async def look(objects: Objects, *, keep_ns: int, grace_ns: int) -> Sight:
    """See what is there.

    Args:
        objects: The repository's; their indexes are read anew.
        keep_ns: Commits younger than that are kept, by the store's clock.
        grace_ns: And those younger than that.

    Raises:
        CorruptionError: There are commits, and no head says which are needed; or one that a head names is missing.
        SyncerError: The store can't be asked.
    """
    now_ns = await objects.store.now_ns()
    # The lists come first, the heads after the packs: what is named between two looks is seen by the later one.
    lists = await _lists(objects)
    packs = await _there(objects, Kind.PACK)
    index_blobs, commit_blobs = await _there(objects, Kind.INDEX), await _there(objects, Kind.COMMIT)
    await objects.look(to_write=True, whole=True)
    named, standing = await heads_there(objects)
    if standing is Headless.LOST:
        raise CorruptionError(f"nothing was collected: {LOST}")
    heads = {head.commit for head in named.values()}
    # Within the grace no commit is condemned, so what it names isn't either: a commit that is there is whole.
    since_ns = now_ns - max(keep_ns, grace_ns)
    young = {CommitId(digest) for digest, blob in commit_blobs.items() if blob.modified_ns >= since_ns}
    kept = await objects.commits(sorted(heads), must=True) | await _still_there(objects, young - heads)
    return Sight(now_ns=now_ns, lists=lists, packs=packs, indexes=index_blobs, commits=commit_blobs, kept=kept)


def choose(
    own: Found | None, places: Iterable[Found], there: Container[bytes], avoided: Container[bytes]
) -> Found | None:
    """The place of a chunk that must stay. Pure.

    Args:
        own: Where a list of chunks says that it is; None: it is a node, which only indexes place.
        places: Where indexes say that it is.
        there: Digests of packs that the store has.
        avoided: Digests of those that are condemned.

    Returns:
        One in a pack that is there: if possible not in a condemned one; then its own; then the one whose pack comes
        first. None: it is nowhere.
    """
    ordered = [] if own is None else [own]
    ordered += sorted(places, key=lambda each: each.pack)
    found = [each for each in ordered if each.pack.digest in there]
    return next((each for each in found if each.pack.digest not in avoided), found[0] if found else None)


class Marker:
    """Finds what commits need. For threads that trio started."""

    def __init__(self, objects: Objects, sight: Sight) -> None:
        """Of a repository, as it was seen."""
        self._objects = objects
        self._nodes = ThreadNodes(objects)
        self._there = sight.packs
        self._avoided = sight.condemned_packs
        self._known: set[ChunkId] = set()

    def needed(self, commit: Commit) -> Iterator[tuple[Content, Found]]:
        """Places that must stay; a chunk comes as often as it is named. Where none is there, the one that is missing.

        What an earlier commit had, too, does not come again.

        Raises:
            DamagedObjectError: A tree can't be read.
        """
        root = msgspec.msgpack.decode(commit.root, type=Root) if commit.root else None
        for node, leaf in reachable(self._nodes, root, self._known):
            yield Content.TREES, self._of_node(node)
            for key, value in leaf:
                file = decode_entry(key, value).file if len(key) > ID_BYTES else None
                if file is not None:
                    yield from self._of_file(file)

    def _of_file(self, file: Bytes) -> Iterator[tuple[Content, Found]]:
        for listed in (file.blocks, file.chunks):
            if isinstance(listed, Root):
                for node, _ in reachable(self._nodes, listed, self._known):
                    yield Content.TREES, self._of_node(node)
        for chunk in chunks_of(self._nodes, file):
            yield Content.FILES, self._of_chunk(Found(chunk.pack, chunk.entry))

    def _of_node(self, node: ChunkId) -> Found:
        places = list(self._objects.all_places(Content.TREES, node))
        if not places:
            raise DamagedObjectError(f"tree node {node.hex()[:16]}", "is missing: no index names it")
        return choose(None, places, self._there, self._avoided) or places[0]

    def _of_chunk(self, own: Found) -> Found:
        digest = own.pack.digest
        if digest in self._there and digest not in self._avoided:
            return own  # nearly always: no index is asked
        places = self._objects.all_places(Content.FILES, own.entry.id)
        return choose(own, places, self._there, self._avoided) or own


class Use(msgspec.Struct, kw_only=True):
    """What of a pack is needed.

    Attributes:
        content: What is in it.
        offsets: Where the chunks that are needed begin.
        live_bytes: Of them, as stored.
        plain_bytes: Of them, as files or trees have them.
    """

    content: Content
    offsets: set[int] = msgspec.field(default_factory=set)
    live_bytes: int = 0
    plain_bytes: int = 0

    def add(self, entry: Entry) -> None:
        """A chunk is needed; once or again."""
        if entry.offset not in self.offsets:
            self.offsets.add(entry.offset)
            self.live_bytes += entry.length
            self.plain_bytes += entry.plain


def all_needed(marker: Marker, sight: Sight, told: Callable[[str], None]) -> Iterator[tuple[Content, Found]]:
    """What all commits that are kept need, see `Marker.needed`. For a thread that trio started."""
    # The latest ones first: what many commits share is looked at with the first of them.
    for number, commit in enumerate(sorted(sight.kept.values(), key=lambda each: -each.number), 1):
        told(f"commit {number} of {len(sight.kept)}")
        yield from marker.needed(commit)


def used(marker: Marker, sight: Sight, told: Callable[[str], None]) -> dict[PackRef, Use]:
    """What is needed of each pack. For a thread that trio started."""
    uses: dict[PackRef, Use] = {}
    for content, found in all_needed(marker, sight, told):
        use = uses.get(found.pack)
        if use is None:
            use = uses[found.pack] = Use(content=content)
        use.add(found.entry)
    return uses


async def see_that_all_is_there(objects: Objects, missing: Iterable[bytes]) -> None:
    """Packs that came after the listing are fine; none else may be missing.

    Raises:
        CorruptionError: One is.
    """
    for digest in missing:
        name = object_name(Kind.PACK, digest)
        if await objects.store.head(name) is None:
            raise CorruptionError(
                f"{name} is missing, and needed: nothing was collected; `blocksync repo check` names what it holds"
            )


async def _lists(objects: Objects) -> dict[str, tuple[Blob, Condemned]]:
    found: dict[str, tuple[Blob, Condemned]] = {}
    for blob in await objects.store.listing(Kind.CONDEMNED.folder):
        if digest_of(Kind.CONDEMNED, blob.name) is not None:
            try:
                raw = await objects.store.get(blob.name)
            except NotFoundError:
                continue  # another device has done it
            found[blob.name] = blob, condemned.decode(objects.keys, blob.name, raw, objects.codec)
    return found


async def _still_there(objects: Objects, listed: Collection[CommitId]) -> dict[CommitId, Commit]:
    """Commits that were listed, but for those that another run has collected since, which keeps less.

    Raises:
        DamagedObjectError: One is listed, and can't be got.
    """
    found: dict[CommitId, Commit] = {}
    gone: list[CommitId] = []

    async def ask(name: CommitId) -> None:
        try:
            found.update(await objects.commits([name]))
        except NotFoundError:
            gone.append(name)

    await for_each(iter(sorted(listed)), ask, _AT_ONCE)
    there = await _there(objects, Kind.COMMIT) if gone else {}
    for name in gone:
        if name in there:
            raise DamagedObjectError(commit_name(name), "is missing: the store lists it")
    return found


async def _there(objects: Objects, kind: Kind) -> dict[bytes, Blob]:
    blobs = await objects.store.listing(kind.folder)
    return {digest: blob for blob in blobs if (digest := digest_of(kind, blob.name)) is not None}
