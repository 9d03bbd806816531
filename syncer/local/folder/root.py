"""`LocalDirectory`: an ordinary directory as one side of a sync.

Observing and reading here; staging in assembly.py; changes of names and contents, with their order, in changes.py.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from typing import Final, ParamSpec, TypeVar

import trio
from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.ids import BlockId
from blockfs.errors import NoSpaceError as BlocksFullError
from syncer.blocks.near import OwnBlocks
from syncer.blocks.wanting import fetch_files
from syncer.core.base import BaseIndex
from syncer.core.ignore import IgnoreRules
from syncer.core.model import Content, FileStat, Kind, LocalTag, RelPath
from syncer.core.partial.affected import UnboundedError
from syncer.core.rows import BaseRows, Origin
from syncer.errors import LocalChangedError, NoSpaceError
from syncer.local.blocklists import BlockLists
from syncer.local.folder.assembly import Assembly, temp_name
from syncer.local.folder.changes import Changes, NewName, no_step, unlink_if_there
from syncer.local.folder.identity import Folder, open_folder
from syncer.local.folder.private import PrivateFolder
from syncer.local.folder.probe import probe_folding
from syncer.local.folder.reader import FolderReader
from syncer.local.folder.reading import Reading
from syncer.local.folder.scan import scan
from syncer.local.folder.small_files import SmallFiles
from syncer.local.folder.sources import Sources
from syncer.local.options import RootOptions
from syncer.local.received import Received
from syncer.local.safe_open import (
    look,
    parent_directory,
)
from syncer.local.survey.digests import Digests, FolderPart, Surveyor
from syncer.local.syscalls import status
from syncer.local.twins.twins import Twins
from syncer.local.verbs.retention import Retention
from syncer.local.verbs.trash import Trash, why_removed
from syncer.ports.blocks import BlockSource, Fetcher
from syncer.ports.local import PartLook
from syncer.ports.localvalues import (
    OWN,
    Applied,
    Change,
    ChangeMeta,
    CopyName,
    Hints,
    Holders,
    Install,
    LocalCounters,
    MakeDirectory,
    MakeLink,
    Observation,
    Problem,
    Remove,
    Rename,
    Spill,
    Staged,
    StageOrder,
    outcomes,
)

P = ParamSpec("P")
T = TypeVar("T")

_WORKERS: Final = 8  # concurrent file operations; they wait for fsync most of the time
_WRITERS: Final = 2  # lists of new files written at once, each with a descriptor per file: one waits, one writes
_STALE_TEMP_S: Final = 24 * 3600.0  # a temp file that no run resumed for a day is of no use
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class StagedFile:
    """A finished temp file of an ordinary directory.

    Attributes:
        order: What it is.
        name: Of the temp file.
        tag: Its evidence.
        lacking: Why not all of its attributes could be set.
    """

    def __init__(
        self,
        owner: LocalDirectory,
        order: StageOrder,
        name: bytes,
        tag: LocalTag,
        lacking: str | None,
        end: Callable[[Origin | None], None],
    ) -> None:
        """Take what it is, and who is told where it is from now on (None: nowhere)."""
        self.order = order
        self.name = name
        self.tag = tag
        self.lacking = lacking
        self._owner = owner
        self._end = end
        self._is_installed = False

    def installed(self, path: RelPath, applied: Applied) -> Applied:
        """It has a name: its blocks are found there from now on. Returns what it really got."""
        assert applied.tag is not None
        self._is_installed = True
        self._end(Origin(path=path, tag=applied.tag, content=self.order.content))
        if self.lacking is None:
            return applied
        return replace(applied, meta=replace(self.order.meta, xattrs=()), lacking=self.lacking)

    async def drop(self) -> None:
        """Delete it if it wasn't installed."""
        self._end(None)
        await self._owner.forget_temp(self.name, there=not self._is_installed)


class LocalDirectory:
    """See `LocalRoot`.

    Attributes:
        step: See the constructor. Tests put another one in its place.
    """

    kind: Final = "folder"

    def __init__(
        self,
        path: bytes,
        identity: Folder,
        options: RootOptions,
        copy_name: CopyName,
        blocks: Callable[[], BlockDirectory] | None = None,
        step: Callable[[str], None] = no_step,
    ) -> None:
        """Open the root and make sure that it is the one that was linked.

        Args:
            path: Absolute path.
            identity: As recorded by `link`.
            options: See there.
            copy_name: Names conflict copies.
            blocks: Opens the root's block directory, a source of blocks, which is closed with this object. Called when
                the root is there: one that is not says so before anything else can fail.
            step: Fault point of the crash tests, called after each step that a crash could come after.

        Raises:
            RootIdentityError: It is another folder, or not mounted.
        """
        self._path = path
        self.block_size = options.block_size
        self.step = step
        self._options = options
        self._state = options.state
        self._hints = Hints()
        self._clock_ns = 0
        self.lists = BlockLists(options.lists, options.block_size)
        self.counters = LocalCounters()
        with ExitStack() as opened:
            self._root = open_folder(path, identity)
            opened.callback(os.close, self._root)
            self._private = PrivateFolder(self._root)
            opened.callback(self._private.close)
            self._folding = probe_folding(self._private.tmp)
            self._blocks = None if blocks is None else blocks()
            opened.pop_all()
        retention = Retention(options.keep_trash_s, self._state)
        self._trash = Trash(self._root, self._private.trash, options.block_size, copy_name, retention)
        self._sources = Sources(self._root, self.lists, options.block_size, self.counters, self._blocks)
        self._changes = Changes(self._root, self._private, self._trash, self._reached)
        self._temps: set[bytes] = set()
        self._twins = Twins(path, self._root, self._private.top, self._state, self.lists,
                            least_bytes=options.twin_bytes, used=not options.only_looking)  # fmt: skip
        self._sources.twins = self._twins
        self._reading = Reading(self._root, self.lists, options, self.counters, self._twins)
        self._workers = trio.CapacityLimiter(_WORKERS)
        self._writers = trio.CapacityLimiter(_WRITERS)
        self._filling = trio.CapacityLimiter(1)  # of these: two threads would hand Python's lock to and fro
        self._closed = False

    def _reached(self, step: str) -> None:
        self.step(step)

    # --- observing

    async def observe(self, base: BaseIndex, spill: Spill | None = None) -> Observation:
        """Scan everything; hash the files whose evidence is not the base's."""
        # Our own clock first, then displaced files back where they were, then the scan, which finds them there.
        clock_ns = await self._run(self._private.clock_ns)
        only_looking = self._options.only_looking
        returned = [] if only_looking else await self._run(self._trash.review)
        rules = IgnoreRules(await self._run(self._options.patterns))
        found = await self._run(partial(scan, self._root, rules, parts=self._options.parts))
        self._reading.held.spill = spill
        try:
            stats, to_hash = await self._with_contents(found.stats, base, found.problems, clock_ns)
        finally:
            self._reading.held.spill = None
        await self._run(self._state.contents_only, [stat.tag for stat in to_hash])
        contents = {stat.content for stat in stats if stat.content is not None}
        self._sources.know(contents)
        if not only_looking:
            # The agreed contents stay, too: what a push or pull of a change is told apart from.
            agreed = {row.node.content for row in base.rows.values() if row.node.content is not None}
            await self._run(self.lists.keep_only, contents | agreed)
            await self._run(self._twins.keep_only, stats)
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

    async def attend(self, hints: Hints) -> bool:
        """Take the time before anything is looked at."""
        self._hints = hints
        self._clock_ns = await self._run(self._private.clock_ns)
        return True

    def part(self, rows: BaseRows, rules: IgnoreRules) -> FolderPart:
        """Looks where the hints say, else where its digests say so."""
        if rules.own != tuple(self._options.patterns()):
            raise UnboundedError
        folds = self._folding.key is not None
        return FolderPart(self._root, rules, rows, self._hints, self._digests, folds=folds, parts=self._options.parts)

    async def complete(self, look: PartLook, stats: list[FileStat], base: BaseIndex) -> Observation:
        """Hash what the base does not know by its evidence."""
        problems: list[Problem] = []
        found, _ = await self._with_contents(stats, base, problems, self._clock_ns)
        contents = {stat.content for stat in found if stat.content is not None}
        self._sources.know(contents, with_kept=True)
        return Observation(
            stats=found,
            unknown=[],
            problems=problems,
            clock_ns=self._clock_ns,
            rules=look.rules,
            holding=frozenset(look.holding),
            folding=self._folding,
        )

    async def concluded(self, looked: Collection[RelPath] | None, gone: Collection[Content], *, undone: bool) -> None:  # noqa: ARG002 - a digest says that a directory is as the rows have it
        """Keep the digests of directories that are exactly as the base says now."""
        await self._run(self.lists.drop, gone)
        await self._run(self._twins.tidy)
        # Who watches does not survey: digests that are out of date by then only cost a look.
        if looked is None or (looked and self._hints.directories is None):
            await self._run(self._keep_digests, looked)

    def _keep_digests(self, looked: Collection[RelPath] | None) -> None:
        clock_ns = self._private.clock_ns()
        with self._state.rows() as rows:
            raw = self._state.rules()
            rules = IgnoreRules() if raw is None else IgnoreRules.load(raw)
            settled = Surveyor(self._root, rules, parts=self._options.parts).settled(rows, looked, clock_ns)
        old = Digests() if looked is None else self._digests()
        new = old.updated(settled)
        if new.raw != old.raw or looked is None:
            self._state.keep("directory-digests", new.raw)

    def _digests(self) -> Digests:
        return Digests(self._state.memory("directory-digests") or b"")

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
        had = base.by_path if to_hash and not self._options.only_looking else None

        def is_new(stat: FileStat) -> bool:
            return had is not None and stat.path not in had

        return stats + await self._reading.hash_all(to_hash, problems, clock_ns, is_new=is_new), to_hash

    # --- reading for a push

    async def block_lists(self, stats: Sequence[FileStat]) -> list[BlockList | Exception]:
        """From the cache, else by hashing again."""
        found = await self._run(outcomes, stats, self._cached_list)
        for at, each in enumerate(found):
            if each is None:
                try:
                    found[at] = await self._hashed_list(stats[at])
                except OWN as error:
                    found[at] = error
        return [each for each in found if each is not None]

    def _cached_list(self, stat: FileStat) -> BlockList | None:
        assert stat.content is not None
        with parent_directory(self._root, stat.path) as (directory, name):
            if look(directory, name, stat.path) != stat.tag:
                raise LocalChangedError(stat.path, "it was written to")
        return self.lists.load(stat.content)

    async def _hashed_list(self, stat: FileStat) -> BlockList:
        content, blocks = await self._reading.hash_again(stat)
        if content != stat.content:
            raise LocalChangedError(stat.path, "its content is another one")
        return blocks

    def list_of(self, content: Content, tag: LocalTag | None) -> BlockList | None:  # noqa: ARG002 - the file would have to be read
        """From the cache."""
        return self.lists.load(content)

    def reader(self) -> FolderReader:
        """Reads where they lie, or from memory what was just hashed."""
        return FolderReader(self._root, self.counters, self._reading.held, self._workers)

    # --- staging

    def own_blocks(self, holders: Holders) -> BlockSource:
        """From the block directory, and from any file, those included that are on their way."""
        self._sources.holders = holders
        return OwnBlocks(self._sources)

    async def stage(self, orders: Sequence[StageOrder], blocks: Fetcher) -> list[Staged | Exception]:
        """Small files step by step, each step for all of them; each large one as a temp file that can be resumed."""
        parts = self._options.parts
        own = [replace(order, meta=parts.own(order.meta)) for order in orders]
        found: dict[int, Staged | Exception] = {}
        small = [at for at, order in enumerate(own) if order.is_small]
        if small:
            found.update(zip(small, await self._stage_small([own[at] for at in small], blocks), strict=True))
        for at, order in enumerate(own):
            if not order.is_small:
                try:
                    found[at] = await self._stage_large(order, blocks)
                except OWN as error:
                    found[at] = error
        return [found[at] for at in range(len(own))]

    async def _stage_small(self, orders: Sequence[StageOrder], blocks: Fetcher) -> list[StagedFile | Exception]:
        names = [self._reserve(order) for order in orders]
        small = SmallFiles(self._sources, self._private.tmp, list(zip(orders, names, strict=True)), self._reached)
        staged: list[StagedFile | Exception] = []
        try:
            await self._run(small.gather)

            async def receive(got: Sequence[tuple[BlockId, bytes]]) -> None:
                small.take(got)

            lacking = dict.fromkeys(small.missing(), (0,))
            if lacking:
                versions = [(order.version, order.blocks) for order in orders]
                small.fail(await fetch_files(blocks, versions, lacking, receive))
            async with self._writers if len(orders) > 1 else nullcontext():
                try:
                    async with self._filling if len(orders) > 1 else nullcontext():
                        await self._run(small.fill)
                    await self._run(small.sync)
                finally:
                    small.close()
            for file in small.files:
                end = partial(self._sources.end, file.order.content, file)
                if file.tag is None:
                    assert file.error is not None
                    staged.append(self._named(file.error))
                else:
                    staged.append(StagedFile(self, file.order, file.temp, file.tag, file.lacking, end))
            return staged
        finally:
            for at, (file, name) in enumerate(zip(small.files, names, strict=True)):
                if at >= len(staged) or isinstance(staged[at], Exception):
                    self._sources.end(file.order.content, file)
                    self._temps.discard(name)

    async def _stage_large(self, order: StageOrder, blocks: Fetcher) -> StagedFile:
        name = self._reserve(order)
        try:
            assembly = await self._run(Assembly, self._sources, self._private.tmp, name, order)
            try:
                tag, lacking = await self._fill(assembly, order, blocks)
                assembly.close()
                # Lists before names: what is in its place is found by them.
                await self._run(self.lists.save, order.content, order.blocks)
            except BaseException:
                assembly.end()
                raise
        except BaseException:
            self._temps.discard(name)
            raise
        return StagedFile(self, order, name, tag, lacking, assembly.end)

    async def _fill(self, assembly: Assembly, order: StageOrder, blocks: Fetcher) -> tuple[LocalTag, str | None]:
        """Complete a temp file. Returns its evidence, and why its attributes could not be set."""
        try:
            missing = await self._run(assembly.gather)

            async def receive(got: Sequence[tuple[BlockId, bytes]]) -> None:
                await self._run(assembly.receive, got)

            if missing:
                version = order.version, order.blocks
                for error in (await fetch_files(blocks, [version], {0: missing}, receive)).values():
                    raise error
            self.step("staged")
            found = await self._run(assembly.complete, order.meta)
            self.step("synced")
        except NoSpaceError:
            await self._run(assembly.discard)  # a full disk is not helped by half a file
            raise
        return found

    def keep_received(self) -> Callable[[BlockId], bytes | None]:
        """Reads from the temp files, and from what became of them."""
        received = self._sources.received = self._sources.received or Received()

        def read(block: BlockId) -> bytes | None:
            data = received.read(block)
            # Only the last few files are kept open: an older one has its name by now.
            return data if data is not None else self._sources.read([block], checked=True).get(block)

        return read

    def _reserve(self, order: StageOrder) -> bytes:
        """A temp name; two nodes may want one content at one place only in odd plans, but then it must work."""
        attempt = 0
        while (name := temp_name(order.path, order.content, attempt)) in self._temps:
            attempt += 1
        self._temps.add(name)
        return name

    async def forget_temp(self, name: bytes, *, there: bool) -> None:
        """A staged file was installed, or is given up: then it is deleted."""
        if there:
            await self._run(unlink_if_there, name, self._private.tmp)
        self._temps.discard(name)

    # --- changing

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Exception]:
        """All in one thread; the directory of new files is opened once for all of them."""
        return await self._run(self._apply_all, changes)

    def _apply_all(self, changes: Sequence[Change]) -> list[Applied | Exception]:
        new = [at for at, change in enumerate(changes) if isinstance(change, Install) and change.expect is None]
        found = dict(zip(new, self._create_all([changes[at] for at in new]), strict=True))
        rest = [at for at in range(len(changes)) if at not in found]
        found.update(zip(rest, outcomes([changes[at] for at in rest], self._apply), strict=True))
        return [self._named(found[at]) for at in range(len(changes))]

    def _create_all(self, changes: Sequence[Change]) -> list[Applied | Exception]:
        staged = [(change.path, _file(change)) for change in changes if isinstance(change, Install)]
        names = [NewName(path=path, temp=file.name, tag=file.tag) for path, file in staged]
        return [
            each if isinstance(each, Exception) else file.installed(path, each)
            for (path, file), each in zip(staged, self._changes.create_all(names), strict=True)
        ]

    def _apply(self, change: Change) -> Applied:
        own, changes = self._options.parts.own, self._changes
        match change:
            case Install():
                return self._replace(change, _file(change))
            case MakeDirectory():
                return changes.make_directory(change.path, own(change.meta))
            case MakeLink():
                return changes.make_symlink(change.path, change.target, change.expect)
            case Rename():
                return changes.move(change.source, change.target, change.expect)
            case Remove():
                return (
                    changes.remove_directory(change.path, change.expect)
                    if change.kind is Kind.DIRECTORY
                    else changes.to_trash(change.path, change.expect, why_removed(change), change.origin)
                )
            case ChangeMeta():
                return changes.set_meta(change.path, own(change.meta), change.expect, change.seen)

    def _replace(self, change: Install, staged: StagedFile) -> Applied:
        path, expect, order = change.path, change.expect, staged.order
        assert expect is not None
        complete = order.meta.xattrs is not None and staged.lacking is None
        old = [origin.content for origin in order.origins if (origin.path, origin.tag) == (path, expect)]

        def displacing(place: RelPath) -> None:
            for content in old:
                self._sources.displacing(Origin(path=place, tag=expect, content=content))

        name, tag = staged.name, staged.tag
        made = self._changes.replace(path, name, tag, expect, xattrs_set=complete, displacing=displacing)
        return staged.installed(path, made)

    # --- durability

    async def barrier(self) -> None:
        """Fsync every directory whose entries we changed."""
        await self._run(self._changes.sync)
        self.step("barrier")

    async def settle(self) -> list[RelPath]:
        """Displaced files once more, forgotten temp files."""
        returned = await self._run(self._trash.review)
        await self._run(self._sweep_temps)
        await self.barrier()
        return returned

    def _sweep_temps(self) -> None:
        with os.scandir(self._private.tmp) as entries:
            names = [os.fsencode(entry.name) for entry in entries]
        now_ns = self._private.clock_ns()
        for name in names:
            if name not in self._temps and now_ns - status(name, self._private.tmp).ctime_ns > _STALE_TEMP_S * 1e9:
                with suppress(IsADirectoryError):  # somebody else made it
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
                self._twins.drop_all()
                raise named from error

        return await trio.to_thread.run_sync(work, limiter=self._workers)

    def _named(self, outcome: T) -> T | NoSpaceError:
        """An error that says that the disk is full, as such."""
        if isinstance(outcome, OSError) and outcome.errno in _FULL:
            return NoSpaceError(f"{os.fsdecode(self._path)}: no space left: {outcome.strerror}")
        return NoSpaceError(str(outcome)) if isinstance(outcome, BlocksFullError) else outcome


def _file(change: Install) -> StagedFile:
    assert isinstance(change.staged, StagedFile)
    return change.staged
