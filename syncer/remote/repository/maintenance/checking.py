"""Whether a repository holds what its heads promise: every commit that can be restored, down to the places of chunks.

Nothing is changed. What is wrong is named, with what hangs on it; what nobody names is only counted: it is what a crash
leaves, or what another device is about to name.

Source: docs/design/repository.md, section 14.
"""

from __future__ import annotations

import random as randomness
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import trio

from blockfs.runtime.output import shown
from blockfs.runtime.units import counted, format_size
from syncer.errors import CorruptionError, DamagedObjectError, FormatTooNewError, NotFoundError, SyncerError
from syncer.remote.parallel import for_each
from syncer.remote.repository.format.entries import (
    ID_BYTES,
    Bytes,
    Entry,
    Up,
    decode_entry,
    decode_up,
    key_of,
    split_key,
)
from syncer.remote.repository.format.history import Commit, CommitId, commit_name
from syncer.remote.repository.format.indexes import Found
from syncer.remote.repository.format.keys import ChunkId, Content
from syncer.remote.repository.format.lists import blocks_of, chunks_of
from syncer.remote.repository.format.packs import MAX_BYTES as MAX_PACK_BYTES
from syncer.remote.repository.format.packs import read_pack
from syncer.remote.repository.format.prolly import Root, reachable
from syncer.remote.repository.format.sealed import Kind, object_name
from syncer.remote.repository.headless import LOST, Headless, heads_there
from syncer.remote.repository.maintenance.settings import settings_of
from syncer.remote.repository.objects import Objects, ThreadNodes
from syncer.remote.repository.opening import read_slots
from syncer.remote.repository.tree import Tree

_MOST_PROBLEMS: Final = 1000
_AT_ONCE: Final = 4

_WRONG: Final = (CorruptionError, FormatTooNewError)  # a flipped bit may make another version


class Findings(msgspec.Struct, kw_only=True):
    """What a check found.

    Attributes:
        problems: What is wrong, each named; at most 1,000.
        commits: That can be restored.
        entries: In the trees of heads, files and all else.
        packs: On the store.
        unnamed_packs: Of them those that no index names.
        packs_read: That were read as a whole.
        bytes_read: Of them.
    """

    problems: list[str] = msgspec.field(default_factory=list)
    commits: int = 0
    entries: int = 0
    packs: int = 0
    unnamed_packs: int = 0
    packs_read: int = 0
    bytes_read: int = 0

    def add(self, problem: object) -> None:
        """Another one."""
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(str(problem))


class Checker:
    """One check of one repository."""

    def __init__(
        self,
        objects: Objects,
        grid: int,
        *,
        share: float = 0.0,
        chosen: Callable[[], float] = randomness.random,
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Prepare.

        Args:
            objects: The repository's.
            grid: Bytes of a block of the share.
            share: Of the packs so many are read as a whole, 0 to 1.
            chosen: Draws from 0 to 1, which.
            told: Hears how far it is.
        """
        self.findings: Final = Findings()
        self._objects = objects
        self._nodes = ThreadNodes(objects)
        self._grid = grid
        self._share = share
        self._chosen = chosen
        self._told = told
        self._sizes: dict[str, int] = {}
        self._missing: set[str] = set()
        self._went: list[str] = []  # packs, while they were read
        self._headed: set[CommitId] = set()
        self._known: set[ChunkId] = set()

    async def run(self) -> Findings:
        """Look at everything.

        Raises:
            SyncerError: The store can't be asked. What is damaged or missing is a finding.
        """
        self._sizes = {blob.name: blob.size_bytes for blob in await self._objects.store.listing(Kind.PACK.folder)}
        self.findings.packs = len(self._sizes)
        try:
            await self._objects.look(whole=True)
            commits = await self._commits()
        except _WRONG as error:
            self.findings.add(error)
            return self.findings
        for number, (name, commit) in enumerate(commits.items(), 1):
            self._told(f"commit {number} of {len(commits)}")
            before = len(self.findings.problems)
            await trio.to_thread.run_sync(self._tree, name, commit)
            if len(self.findings.problems) > before and await self._was_collected(name):
                del self.findings.problems[before:]
        self._indexed()
        await self._settings()
        await self._keys()
        await for_each(self._to_read(), self._read, _AT_ONCE)
        await self._look_for_those_that_went()
        return self.findings

    async def _look_for_those_that_went(self) -> None:
        """What a collection has deleted meanwhile it tells."""
        collected = {object_name(Kind.PACK, each) for each in await self._objects.condemned()} if self._went else set()
        for name in self._went:
            if name not in collected:
                self.findings.add(f"the pack {name} has just gone")

    async def _commits(self) -> dict[CommitId, Commit]:
        """Those that heads name, and of their ancestors those that are kept."""
        heads, standing = await heads_there(self._objects)
        if standing is Headless.LOST:
            self.findings.add(LOST)
        found: dict[CommitId, Commit] = {}
        self._headed = {head.commit for head in heads.values()}
        wanted = dict.fromkeys(self._headed, True)
        while wanted:
            behind: dict[CommitId, bool] = {}
            for commit, must in wanted.items():
                try:
                    found.update(await self._objects.commits([commit]))
                except NotFoundError:
                    if must:
                        self.findings.add(f"the commit {commit.hex()} is missing: a head names it")
                    continue
                except _WRONG as error:
                    self.findings.add(error)
                    continue
                behind.update((parent, False) for parent in found[commit].parents if parent not in found)
            wanted = behind
        self.findings.commits = len(found)
        return found

    async def _was_collected(self, commit: CommitId) -> bool:
        """Whether a commit that nobody keeps is gone by now: what only it had goes after it."""
        return commit not in self._headed and await self._objects.store.head(commit_name(commit)) is None

    def _tree(self, name: CommitId, commit: Commit) -> None:
        told = f"commit {name.hex()[:16]}"
        try:
            root = msgspec.msgpack.decode(commit.root, type=Root) if commit.root else None
        except msgspec.MsgspecError:
            self.findings.add(f"{told}: what names its tree is malformed")
            return
        entries: dict[bytes, Entry] = {}
        ups: dict[bytes, Up] = {}
        try:
            for key, value in (pair for _, leaf in reachable(self._nodes, root, self._known) for pair in leaf):
                if len(key) > ID_BYTES:
                    entries[key] = decode_entry(key, value)
                else:
                    ups[key] = decode_up(key, value)
        except SyncerError as error:
            self.findings.add(f"{told}: {error}")
        self.findings.entries += len(entries)
        self._directories(told, entries, ups)
        tree = Tree(self._nodes, root)
        for key, entry in entries.items():
            if entry.file is not None and (problem := self._file(entry.file)) is not None:
                self.findings.add(f"{told}: {_path(tree, key)}: {problem}")

    def _directories(self, told: str, entries: dict[bytes, Entry], ups: dict[bytes, Up]) -> None:
        for key, entry in entries.items():
            up = ups.get(entry.object)  # it may be in a node that another tree has, too
            if up is not None and key_of(up.parent, up.name) != key:
                self.findings.add(f"{told}: directory {entry.object.hex()} is not where it says")
        if len({entry.object for entry in entries.values()}) != len(entries):
            self.findings.add(f"{told}: an object is at two places")

    def _file(self, file: Bytes) -> str | None:
        """What is wrong with a file; None: nothing."""
        try:
            blocks_of(self._nodes, file, self._grid)
            for chunk in chunks_of(self._nodes, file):
                place = self._place(Found(chunk.pack, chunk.entry))
                size = self._size_of(place.pack.name)
                if size is None:
                    return f"the pack {place.pack.name} is missing"
                if place.entry.end > size:
                    return f"the pack {place.pack.name} is shorter than it was"
        except SyncerError as error:
            return str(error)
        return None

    def _size_of(self, name: str) -> int | None:
        """Of a pack; None: there is none. What a listing does not tell may be there all the same: it may lag."""
        if name not in self._sizes and name not in self._missing:
            found = trio.from_thread.run(self._objects.store.head, name)
            if found is None:
                self._missing.add(name)
            else:
                self._sizes[name] = found.size_bytes
        return self._sizes.get(name)

    def _place(self, own: Found) -> Found:
        """Where a chunk is: elsewhere than a list says, if its pack was repacked."""
        if self._size_of(own.pack.name) is not None:
            return own
        places = self._objects.all_places(Content.FILES, own.entry.id)
        return next((each for each in places if self._size_of(each.pack.name) is not None), own)

    def _indexed(self) -> None:
        named = {pack.name: size for pack, size in self._objects.packs()}
        for name, size in named.items():
            if self._sizes.get(name, size) != size:
                self.findings.add(f"the pack {name} has {self._sizes[name]} bytes, and {size} by the index")
        self.findings.unnamed_packs = len(self._sizes.keys() - named.keys())

    async def _settings(self) -> None:
        try:
            await settings_of(self._objects)
        except _WRONG as error:
            self.findings.add(f"{error}; `blocksync repo settings --keep TIME` writes it anew")

    async def _keys(self) -> None:
        _, unreadable = await read_slots(self._objects.store)
        for error in unreadable:
            if isinstance(error, DamagedObjectError):  # what a newer blocksync made is sound
                self.findings.add(
                    f"{error}, so this key opens nothing; `blocksync repo key` removes it, and adds another"
                )

    def _to_read(self) -> Iterator[str]:
        return (name for name in self._sizes if self._chosen() < self._share)

    async def _read(self, name: str) -> None:
        try:
            raw = await self._objects.store.get(name, most_bytes=MAX_PACK_BYTES)
            await trio.to_thread.run_sync(self._open, name, raw)
        except NotFoundError:
            self._went.append(name)
            return
        except _WRONG as error:
            self.findings.add(error)
        else:
            self.findings.bytes_read += len(raw)
        self.findings.packs_read += 1
        packs = counted(self.findings.packs_read, "pack", "packs")
        self._told(f"{packs} read, {format_size(self.findings.bytes_read)}")

    def _open(self, name: str, raw: bytes) -> None:
        """See that all chunks of a pack are what they should be, whatever it holds."""
        try:
            content = Content.FILES
            pack, reader = read_pack(self._objects.keys, content, name, raw)
        except DamagedObjectError:
            content = Content.TREES
            pack, reader = read_pack(self._objects.keys, content, name, raw)
        view = memoryview(raw)
        for entry in pack.entries:
            reader.open(entry, view[entry.offset : entry.end], self._objects.codec)


def _path(tree: Tree, key: bytes) -> str:
    """Of a file, for a person."""
    parent, name = split_key(key)
    try:
        above = tree.paths([parent])[parent]
    except SyncerError:
        return f"{shown(name)}, whose directory can't be told"
    return shown(above + b"/" + name if above else name)
