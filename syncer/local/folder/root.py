"""`LocalDirectory`: an ordinary directory as one side of a sync.

Observing and reading here; staging in assembly.py; changes of names and contents, with their order, in changes.py.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, ParamSpec, TypeVar

import trio
from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.extents import block_length
from blockfs.blocks.hashing import canonical
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.errors import NoSpaceError as BlocksFullError
from syncer.blocks.near import OwnBlocks
from syncer.core.base import BaseIndex
from syncer.core.ignore import IgnoreRules
from syncer.core.model import Content, FileStat, Kind, LocalTag, Meta, RelPath
from syncer.core.parts import NO_PARTS, Parts
from syncer.core.rows import BaseRows, Origin
from syncer.errors import LocalChangedError, NoSpaceError
from syncer.local.blocklists import BlockLists
from syncer.local.folder.assembly import Assembly, temp_name
from syncer.local.folder.changes import Changes, unlink_if_there
from syncer.local.folder.filehash import read_exactly
from syncer.local.folder.held import Spill
from syncer.local.folder.identity import Folder, open_folder
from syncer.local.folder.private import PrivateFolder
from syncer.local.folder.probe import probe_folding
from syncer.local.folder.reader import FolderReader
from syncer.local.folder.reading import Reading
from syncer.local.folder.scan import scan
from syncer.local.folder.small_files import Portion, told
from syncer.local.folder.sources import Sources
from syncer.local.received import Received
from syncer.local.root import (
    OWN,
    Applied,
    CopyName,
    FetchAll,
    Holders,
    Observation,
    Patterns,
    Problem,
    Staged,
    Wanted,
    no_patterns,
)
from syncer.local.safe_open import (
    Opener,
    look,
    open_file,
    parent_directory,
)
from syncer.local.survey.digests import Surveyor
from syncer.local.syscalls import status
from syncer.local.verbs.retention import KEEP_S
from syncer.local.verbs.trash import Trash
from syncer.ports.blocks import BlockSource
from syncer.ports.state import State

P = ParamSpec("P")
T = TypeVar("T")

_WORKERS: Final = 8  # concurrent file operations; they wait for fsync most of the time
_WRITERS: Final = 2  # portions of new files written at once, each with a descriptor per file: one waits, one writes
_STALE_TEMP_S: Final = 24 * 3600.0  # a temp file that no run resumed for a day is of no use
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class StagedFile:
    """A finished temp file of an ordinary directory."""

    def __init__(
        self, assembly: Assembly, tag: LocalTag, owner: LocalDirectory, wanted: Wanted, lacking: str | None
    ) -> None:
        self.wanted = wanted
        self.lacking = lacking
        self.name = assembly.name
        self.tag = tag
        self._assembly = assembly
        self._owner = owner

    def installed(self, path: RelPath, applied: Applied) -> Applied:
        """It has a name: its blocks are found there from now on. Returns what it really got."""
        self._assembly.end(Origin(path=path, tag=applied.tag, content=self.wanted.content))
        return told(applied, self.wanted, self.lacking)

    async def drop(self) -> None:
        """Delete it if it wasn't installed."""
        self._assembly.end()
        await self._owner.drop_temp(self.name)


class LocalDirectory:
    """See `LocalRoot`. Made by `open_directory_root`."""

    def __init__(
        self,
        path: bytes,
        identity: Folder,
        lists: BlockLists,
        block_size: int,
        copy_name: CopyName,
        state: State | None = None,
        keep_trash_s: float = KEEP_S,
    ) -> None:
        """Open the root and make sure that it is the one that was linked.

        Args:
            path: Absolute path.
            identity: As recorded by `link`.
            lists: The root's block list cache.
            block_size: Bytes of a block.
            copy_name: Names conflict copies.
            state: Knows contents of files that are not in the base yet; None: nobody does.
            keep_trash_s: For how long displaced and deleted versions are kept.

        Raises:
            RootIdentityError: It is another folder, or not mounted.
        """
        self.path = path
        self.block_size = block_size
        self._state = state
        self._patterns: Patterns = no_patterns
        self._only_looking = False
        self._parts = NO_PARTS
        self._lists = lists
        self._blocks: BlockDirectory | None = None
        self._root = open_folder(path, identity)
        try:
            self._private = PrivateFolder(self._root)
            try:
                self._folding = probe_folding(self._private.tmp)
            except BaseException:
                self._private.close()
                raise
        except BaseException:
            os.close(self._root)
            raise
        self._trash = Trash(self._root, self._private.trash, block_size, copy_name, keep_trash_s)
        self._sources = Sources(self._root, lists, block_size)
        self._changes = Changes(self._root, self._private, self._trash)
        self._temps: set[bytes] = set()
        self.reading = Reading(self._root, lists, self._sources, block_size, state)
        self._workers = trio.CapacityLimiter(_WORKERS)
        self._writers = trio.CapacityLimiter(_WRITERS)
        self._closed = False

    @property
    def step(self) -> Callable[[str], None]:
        """Fault point of the crash tests, called after each step that a crash could come after."""
        return self._changes.step

    @step.setter
    def step(self, step: Callable[[str], None]) -> None:
        self._changes.step = step

    def use_patterns(self, patterns: Patterns) -> None:
        """Ignore what these patterns say, beside `.blocksyncignore` files."""
        self._patterns = patterns

    def use_blocks(self, blocks: BlockDirectory) -> None:
        """Take the root's block directory as a source of blocks; it is closed with this object."""
        self._blocks = self._sources.directory = blocks

    def take_part(self, parts: Parts) -> None:
        """Sync this, too; else attributes are never read, and set only to keep them, and special bits never set."""
        self._parts = parts

    def only_look(self) -> None:
        """Observe without tidying up, because a cycle may be at work on the same root."""
        self._only_looking = True

    @property
    def bytes_read(self) -> int:
        """Content bytes read from this root's files."""
        return self._sources.bytes_read

    # --- observing

    async def observe(self, base: BaseIndex, checkpoint: bytes | None, spill: Spill | None = None) -> Observation:  # noqa: ARG002 - scans know no checkpoints
        """Scan everything; hash the files whose evidence is not the base's."""
        clock_ns = await self._run(self._private.clock_ns)
        returned = [] if self._only_looking else await self._run(self._trash.review)
        rules = IgnoreRules(await self._run(self._patterns))
        found = await self._run(partial(scan, self._root, rules, parts=self._parts))
        self.reading.held.spill = spill
        try:
            stats, to_hash = await self._with_contents(found.stats, base, found.problems, clock_ns)
        finally:
            self.reading.held.spill = None
        if self._state is not None:
            await self._run(self._state.contents_only, [stat.tag for stat in to_hash])
        contents = {stat.content for stat in stats if stat.content is not None}
        self._sources.know(contents)
        if not self._only_looking:
            # The agreed contents stay, too: what a push or pull of a change is told apart from.
            agreed = {row.node.content for row in base.rows.values() if row.node.content is not None}
            await self._run(self._lists.keep_only, contents | agreed)
        reason = "somebody still wrote to it after it was displaced; it is kept here"
        found.problems += [Problem(path=path, reason=reason, partly=False) for path in returned]
        return Observation(
            stats=stats,
            unknown=found.unknown,
            problems=found.problems,
            clock_ns=clock_ns,
            rules=rules,
            holding=frozenset(found.holding),
            sealed=frozenset(found.sealed),
            folding=self._folding,
        )

    # --- observing a part (engine/partial/partial_look.py)

    async def attend(self, state: object) -> bool:  # noqa: ARG002 - a volume has a journal to read
        """Always ready."""
        return True

    async def supersede(self, contents: Sequence[Content]) -> None:
        """Forget the block lists of contents that both sides had and have no more."""
        await self._run(self._lists.drop, contents)

    def surveyor(self, rules: IgnoreRules, rows: object) -> Surveyor:  # noqa: ARG002 - see `attend`
        """Finds out where to look."""
        return Surveyor(self._root, rules, folds=self._folding.key is not None, parts=self._parts)

    def settled(
        self, rules: IgnoreRules, rows: BaseRows, paths: Iterable[RelPath] | None, clock_ns: int
    ) -> dict[int, bytes | None]:
        """See Surveyor.settled. Blocking."""
        return self.surveyor(rules, rows).settled(rows, paths, clock_ns)

    def patterns(self) -> Sequence[bytes]:
        """The root's own ignore patterns. Blocking."""
        return self._patterns()

    async def begin(self) -> int:
        """The filesystem's own time, before anything is looked at."""
        return await self._run(self._private.clock_ns)

    async def kept_contents(self) -> set[Content]:
        """Contents whose block lists are at hand: their blocks can be found in the files that have them."""
        return await self._run(self._lists.contents)

    async def observe_part(self, stats: list[FileStat], base: BaseIndex, clock_ns: int) -> Observation:
        """Complete what was listed of some directories; of unchanged files the base knows the content."""
        problems: list[Problem] = []
        found, _ = await self._with_contents(stats, base, problems, clock_ns)
        contents = {stat.content for stat in found if stat.content is not None}
        self._sources.know(contents, with_kept=True)
        return Observation(stats=found, unknown=[], problems=problems, clock_ns=clock_ns, folding=self._folding)

    async def _with_contents(
        self, seen: list[FileStat], base: BaseIndex, problems: list[Problem], clock_ns: int
    ) -> tuple[list[FileStat], list[FileStat]]:
        """All with their contents, and those of them that had to be hashed, without."""
        known = {row.local: row.node.content for row in base.rows.values() if row.local is not None}
        stats: list[FileStat] = []
        to_hash: list[FileStat] = []
        for stat in seen:
            content = stat.content or (known.get(stat.tag) if stat.kind is Kind.FILE else None)
            if stat.kind is Kind.FILE and content is None:
                to_hash.append(stat)
            else:
                stats.append(replace(stat, content=content))
        had = base.by_path if to_hash and not self._only_looking else None

        def is_new(stat: FileStat) -> bool:
            return had is not None and stat.path not in had

        return stats + await self.reading.hash_all(to_hash, problems, clock_ns, is_new=is_new), to_hash

    # --- reading for a push

    async def block_list(self, stat: FileStat) -> BlockList:
        """From the cache, else by hashing again."""
        assert stat.content is not None
        cached = await self._run(self._lists.load, stat.content)
        if cached is not None:
            return cached

        content, blocks = await self.reading.hash_again(stat)
        if content != stat.content:
            raise LocalChangedError(stat.path, "its content is another one")
        return blocks

    async def known_list(self, content: Content, stat: FileStat | None = None) -> BlockList | None:  # noqa: ARG002 - its list is in the cache, or nowhere
        """From the cache."""
        return await self._run(self._lists.load, content)

    def list_of(self, content: Content, tag: LocalTag | None) -> BlockList | None:  # noqa: ARG002 - as in `known_list`
        """See `SharedLists`."""
        return self._lists.load(content)

    async def remember_list(self, content: Content, blocks: BlockList) -> None:
        """Into the cache."""
        with suppress(OSError):
            await self._run(self._lists.save, content, blocks)

    async def read_block(self, stat: FileStat, blocks: BlockList, index: int) -> bytes:
        """Read it where it lies; `upload_file` hashes it once more and refuses a changed one."""
        if blocks[index] == ZERO_BLOCK:
            return b""
        held = self.reading.held.take(blocks[index])
        if held is not None:
            return held
        length = block_length(index, blocks.size_bytes, blocks.block_size)
        return await self._run(self._read, partial(open_file, self._root), stat.path, index * blocks.block_size, length)

    async def read_small(self, stats: Sequence[FileStat]) -> list[bytes | LocalChangedError | OSError]:
        """All in one thread: a call costs as much as reading several."""

        def work() -> list[bytes | LocalChangedError | OSError]:
            found: list[bytes | LocalChangedError | OSError] = []
            with Opener(self._root) as opener:
                for stat in stats:
                    assert stat.content is not None
                    try:
                        held = self.reading.held.take(BlockId(bytes(stat.content.object_hash)))
                        if held is None:
                            held = self._read(opener.open, stat.path, 0, stat.content.size_bytes)
                        else:
                            self._verify_unchanged(stat)
                        found.append(held)
                    except (LocalChangedError, OSError) as error:
                        found.append(error)
            return found

        return await self._run(work)

    def _read(self, opened: Callable[[RelPath], int], path: RelPath, offset: int, length: int) -> bytes:
        descriptor = opened(path)
        try:
            data = read_exactly(descriptor, offset, length)
        finally:
            os.close(descriptor)
        self._sources.bytes_read += len(data)
        return canonical(data)

    async def verify_unchanged(self, stat: FileStat) -> None:
        """Compare the whole evidence, ctime included."""
        await self._run(self._verify_unchanged, stat)

    def _verify_unchanged(self, stat: FileStat) -> None:
        with parent_directory(self._root, stat.path) as (directory, name):
            if look(directory, name, stat.path) != stat.tag:
                raise LocalChangedError(stat.path, "it was written to")

    def reader(self) -> FolderReader:
        """Reads where they lie, or from memory what was just hashed."""
        return FolderReader(self._root, self._sources, self.reading, self._run)

    async def block_lists(self, stats: Sequence[FileStat]) -> list[BlockList | Exception]:
        """From the cache, else by hashing again."""
        found: list[BlockList | Exception] = []
        for stat in stats:
            try:
                found.append(await self.block_list(stat))
            except OWN as error:
                found.append(error)
        return found

    # --- staging

    def own_blocks(self, holders: Holders) -> BlockSource:
        """From the block directory, and from any file, those included that are on their way."""
        self._sources.holders = holders
        return OwnBlocks(self._sources)

    async def stage(self, wanted: Wanted) -> Staged:
        """Assemble a temp file; what could not be fetched now is there for the next run."""
        wanted = replace(wanted, meta=self._parts.own(wanted.meta))
        with self._temp(wanted) as name:
            assembly = await self._run(Assembly, self._sources, self._private.tmp, name, wanted)
            try:
                tag, lacking = await self._fill(assembly, wanted)
                assembly.close()
                await self._run(self._lists.save, wanted.content, wanted.blocks)
            except BaseException:
                assembly.end()
                raise
        return StagedFile(assembly, tag, self, wanted, lacking)

    async def _fill(self, assembly: Assembly, wanted: Wanted) -> tuple[LocalTag, str | None]:
        """Complete a temp file. Returns its evidence, and why its attributes could not be set."""
        try:
            missing = await self._run(assembly.gather)

            async def receive(got: Sequence[tuple[BlockId, bytes]]) -> None:
                await self._run(assembly.receive, got)

            if missing:
                await wanted.fetch(missing, receive)
            self.step("staged")
            found = await self._run(assembly.complete, wanted.meta)
            self.step("synced")
        except NoSpaceError:
            await self._run(assembly.discard)  # a full disk is not helped by half a file
            raise
        return found

    def keep_received(self) -> Callable[[BlockId], bytes | None]:
        """Reads from the temp files, and from what became of them."""
        self._sources.received = self._sources.received or Received()
        return self._sources.received.read

    def _reserve(self, wanted: Wanted) -> bytes:
        """A temp name; two nodes may want one content at one place only in odd plans, but then it must work."""
        attempt = 0
        while (name := temp_name(wanted.path, wanted.content, attempt)) in self._temps:
            attempt += 1
        self._temps.add(name)
        return name

    @contextmanager
    def _temp(self, wanted: Wanted) -> Iterator[bytes]:
        """A temp name that is given up if staging fails."""
        name = self._reserve(wanted)
        try:
            yield name
        except BaseException:
            self._temps.discard(name)
            raise

    async def drop_temp(self, name: bytes) -> None:
        """Forget a staged file; deletes it if it was not installed."""
        await self._run(unlink_if_there, name, self._private.tmp)
        self._temps.discard(name)

    # --- changing

    async def create_all(self, wanted: Sequence[Wanted], fetch: FetchAll) -> list[Applied | Exception]:
        """Gather, fetch, write and name them step by step, each step for all of them."""
        own = [replace(each, meta=self._parts.own(each.meta)) for each in wanted]
        files = [(each, self._reserve(each)) for each in own]
        portion = Portion(self._sources, self._changes, self._private.tmp, files)
        try:
            await self._run(portion.gather)

            async def receive(got: Sequence[tuple[BlockId, bytes]]) -> None:
                portion.take(got)

            missing = portion.missing()
            if missing:
                portion.fail(await fetch(missing, receive))
            async with self._writers:
                await self._run(portion.write)
            await self._run(portion.install)
            return [self._named(outcome) for outcome in portion.outcomes()]
        finally:
            portion.end()
            self._temps.difference_update(name for _, name in files)

    async def create(self, path: RelPath, staged: Staged) -> Applied:
        """Rename without replacing."""
        assert isinstance(staged, StagedFile)
        return staged.installed(path, await self._run(self._changes.create, path, staged.name, staged.tag))

    async def replace(self, path: RelPath, staged: Staged, expect: LocalTag) -> Applied:
        """Exchange, then look at what was displaced."""
        assert isinstance(staged, StagedFile)
        complete = staged.wanted.meta.xattrs is not None and staged.lacking is None
        old = [origin.content for origin in staged.wanted.origins if (origin.path, origin.tag) == (path, expect)]

        def displacing(place: RelPath) -> None:
            for content in old:
                self._sources.displacing(Origin(path=place, tag=expect, content=content))

        def work() -> Applied:
            name, tag = staged.name, staged.tag
            return self._changes.replace(path, name, tag, expect, xattrs_set=complete, displacing=displacing)

        return staged.installed(path, await self._run(work))

    async def make_directory(self, path: RelPath, meta: Meta) -> Applied:
        """Make it with its mode."""
        return await self._run(self._changes.make_directory, path, self._parts.own(meta))

    async def make_symlink(self, path: RelPath, target: bytes, expect: LocalTag | None) -> Applied:
        """Make it under a temp name, then treat it like a staged file."""
        return await self._run(self._changes.make_symlink, path, target, expect)

    async def move(self, source: RelPath, target: RelPath, expect: LocalTag) -> Applied:
        """Rename without replacing; if it was another inode after all, rename back."""
        return await self._run(self._changes.move, source, target, expect)

    async def trash(self, path: RelPath, kind: Kind, expect: LocalTag) -> None:
        """Rename into the trash, then look at it; a directory is removed if it is empty."""
        await self._run(
            self._changes.remove_directory if kind is Kind.DIRECTORY else self._changes.to_trash, path, expect
        )

    async def set_meta(self, path: RelPath, meta: Meta, expect: LocalTag, seen: Meta | None = None) -> Applied:
        """Set them through a descriptor of the very inode that was expected."""
        return await self._run(self._changes.set_meta, path, self._parts.own(meta), expect, seen)

    # --- durability

    async def barrier(self) -> None:
        """Fsync every directory whose entries we changed."""
        await self._run(self._changes.sync)
        self.step("barrier")

    async def finish(self) -> list[RelPath]:
        """Displaced files once more, forgotten temp files."""
        returned = await self._run(self._trash.review)
        if self._sources.received is not None:
            self._sources.received.clear()
        await self._run(self._sweep_temps)
        await self.barrier()
        return returned

    def _sweep_temps(self) -> None:
        with os.scandir(self._private.tmp) as entries:
            names = [os.fsencode(entry.name) for entry in entries]
        now_ns = self._private.clock_ns()
        for name in names:
            if name not in self._temps and now_ns - status(name, self._private.tmp).ctime_ns > _STALE_TEMP_S * 1e9:
                unlink_if_there(name, self._private.tmp)

    async def close(self) -> None:
        """Close every descriptor."""
        if not self._closed:
            self._closed = True
            if self._sources.received is not None:
                self._sources.received.clear()
            self._changes.close()
            self._private.close()
            os.close(self._root)
            if self._blocks is not None:
                self._blocks.close()

    # --- parts

    async def _run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work in a thread; a full disk is named as such."""

        def work() -> T:
            try:
                return function(*args, **kwargs)
            except (OSError, BlocksFullError) as error:
                named = self._named(error)
                if named is error:
                    raise
                raise named from error

        return await trio.to_thread.run_sync(work, limiter=self._workers)

    def _named(self, outcome: T) -> T | NoSpaceError:
        """An error that says that the disk is full, as such."""
        if isinstance(outcome, OSError) and outcome.errno in _FULL:
            return NoSpaceError(f"{os.fsdecode(self.path)}: no space left: {outcome.strerror}")
        return NoSpaceError(str(outcome)) if isinstance(outcome, BlocksFullError) else outcome
