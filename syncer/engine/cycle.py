"""One cycle: observe both sides, plan, stop for safety, apply, record.

Any error that ends a cycle leaves both sides and the StateDB consistent: what was applied and not yet recorded is
recorded before the error goes on, and what is not even that is found again by the next observation.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final

import msgspec
import trio
from msgspec.structs import replace

from blockfs.exitcodes import ExitCode
from syncer.blocks.board import Blocks
from syncer.blocks.recent import RecentBlocks
from syncer.core.base import BaseIndex
from syncer.core.conflict import host_label
from syncer.core.ignore import IgnoreRules
from syncer.core.model import (
    Action,
    Ages,
    BaseRow,
    Content,
    Create,
    Kind,
    LocalTag,
    Move,
    Nid,
    Plan,
    Position,
    RelPath,
    RemoteStat,
    RemoteTag,
    SetMeta,
    Side,
    Update,
    latest,
)
from syncer.core.planner.bookings import came_true, changed
from syncer.core.planner.identify import Blind, identify_local, identify_remote
from syncer.core.planner.merge import Policy
from syncer.core.planner.outcome import BaseChange, Booking, Forgotten, Outcome
from syncer.core.planner.overwrites import Overwrite
from syncer.core.planner.plan import make_plan
from syncer.core.planner.safety import ContainerIdentity, check_age, check_container, check_deletions
from syncer.core.rows import Origin
from syncer.engine.ahead import Ahead
from syncer.engine.content_index import MIN_KNOWN_BLOCKS, LocalFiles
from syncer.engine.fetch import PullFetcher, serving
from syncer.engine.foreign import Unseen, keep_beside
from syncer.engine.halfway import finish_moves, may_be_halfway
from syncer.engine.isolation import Isolation
from syncer.engine.observe import container_identity, hard_links, resolve_changed
from syncer.engine.partial.echoes import behind_own_writes
from syncer.engine.partial.partial_look import PartialLook, look_at_part
from syncer.engine.partial.subtree_moves import MovedSubtrees
from syncer.engine.pull import LocalWorker
from syncer.engine.push import RemoteWorker
from syncer.engine.record import Recorder
from syncer.engine.report import TRAFFIC, Failure, Listener, Report, no_step
from syncer.engine.schedule import run_waves
from syncer.engine.writers import note_writers
from syncer.errors import ONE_NODE
from syncer.ports.blocks import BlockSource
from syncer.ports.local import LocalRoot
from syncer.ports.localvalues import Hints, Observation
from syncer.ports.remote import Changes, KeySign, Listing, RefusedName, Remote
from syncer.ports.state import State
from syncer.remote.parallel import for_each, one_error

_IGNORED_FOLDER: Final = (
    "a folder of this name is ignored here, and is on the server, perhaps: call this one otherwise, change the "
    "pattern, or remove the folder on a device that syncs it"
)
_LOOKS_AT_ONCE: Final = 16


def _all_of_it(plan: Plan) -> Plan:
    """A cycle does all that is planned."""
    return plan


AttendKey = Callable[[Remote, KeySign], Awaitable[Sequence[RemoteTag]]]
"""Is told what a look at the server told of the share's key; returns the versions that it wrote (`share.lankey`)."""


async def no_key(remote: Remote, sign: KeySign) -> Sequence[RemoteTag]:  # noqa: ARG001 - see AttendKey
    """The root takes no part in the LAN."""
    return ()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a cycle is run.

    Attributes:
        policy: Host, time, names.
        dry_run: Plan only.
        consent: Digest of the plan whose deletions are agreed to.
        select: Makes of the plan what is to be done of it; raises if it is not what it should be.
        step: Fault points of the crash tests.
        hints: Where to look, if a part of the tree is enough; None: always at all of it.
        root: How a command names the root, for the safety stop's message.
        attend_key: Looks after the key of the share. Not called where nothing may be written.
        sources: Where blocks may come from beside the server, near ones first; they may outlive the cycle.
        recent: Is told what a pull got, so that other devices have it before a file is complete. Whoever gave it ends
            it: when the index for other devices has what the cycle recorded.
    """

    policy: Policy
    dry_run: bool = False
    consent: str | None = None
    select: Callable[[Plan], Plan] = msgspec.field(default=_all_of_it)
    step: Callable[[str], None] = msgspec.field(default=no_step)
    hints: Hints | None = None
    root: str = "ROOT"
    attend_key: AttendKey = msgspec.field(default=no_key)
    sources: Sequence[BlockSource] = ()
    recent: RecentBlocks | None = None


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides as they were seen: what a plan is made from.

    Attributes:
        base: What was agreed on, of what was looked at.
        objects: The remote side.
        refused: Objects that can't be synced.
        unread: Objects of which not all could be read.
        seen: The local side.
        position: The moment that the remote side was seen at.
        container: What the container was recognised by.
        beside: Nodes that were not looked at, because they are as the base says.
        directories: Local directories that were looked at; None: all.
        untracked: Base rows of what is ignored now.
        moved: Directories that moved as a whole: what is below them is beside, too.
        lan_key: What was told of the share's key.
        orders: What earlier cycles booked and were never told the outcome of, by its number.
        came_true: What of it is there: the base has it already, and its rows are to be recorded.
    """

    base: BaseIndex
    objects: Sequence[RemoteStat]
    refused: Sequence[RefusedName]
    unread: Sequence[Failure]
    seen: Observation
    position: Position
    container: ContainerIdentity
    beside: int = 0
    directories: Sequence[RelPath] | None = None
    untracked: tuple[Nid, ...] = ()
    moved: MovedSubtrees = msgspec.field(default_factory=lambda: MovedSubtrees(subtrees={}))
    lan_key: KeySign = KeySign()
    orders: Mapping[int, Sequence[Booking]] = msgspec.field(default_factory=dict)
    came_true: Sequence[BaseChange] = ()

    def newest(self, ages: Ages) -> RemoteTag | None:
        """The latest version that was seen or is known."""
        known = [row.remote for row in self.base.rows.values() if row.remote is not None]
        return latest([*(stat.tag for stat in self.objects), *known], ages)


class Cycle:
    """One cycle of one root. Used once.

    Attributes:
        report: Filled while it runs; also valid after an error.
    """

    def __init__(
        self,
        local: LocalRoot,
        remote: Remote,
        state: State,
        listener: Listener,
        options: Options,
        report: Report | None = None,
    ) -> None:
        self.report = report or Report(dry_run=options.dry_run)
        self._local = local
        self._remote = remote
        self._state = state
        self._listener = listener
        self._options = options
        hints = options.hints
        self._partial = None if hints is None else PartialLook(local=local, state=state, hints=hints)
        self._orders: Mapping[int, Sequence[Booking]] = {}  # of earlier cycles, which do not know what became of them
        self._versions: list[RemoteTag] = []  # of the rows that were recorded
        self._rules = IgnoreRules()  # of the look that is carried out
        self._ahead: Ahead | None = None  # only while nothing is asked but to do what will be planned

    async def run(self) -> Report:
        """Run it.

        Raises:
            SafetyStopError: The plan deletes too much; nothing was done.
            RootIdentityError: The container is another one, or an older copy; nothing was done.
            SyncerError: The server is gone, the disk is full, …: what was done is recorded.
        """
        started, before = time.monotonic(), self._remote.counters.snapshot()
        try:
            await self._run()
        finally:
            counters = self._remote.counters.since(before)
            self.report.traffic = {name: getattr(counters, name) for name in TRAFFIC}
            self.report.mutating_requests = counters.mutating_requests
            self.report.bytes_read_local = self._local.counters.bytes_read + self.report.bytes_from_near(
                self._options.sources
            )
            self.report.own_blocks = self._local.counters.own_blocks
            self.report.seconds = time.monotonic() - started
        return self.report

    async def look(self) -> tuple[Plan, Look]:
        """Observe both sides and plan; nothing is done, told or asked.

        Raises:
            RootIdentityError: The container is another one, or an older copy.
        """
        self._orders = await trio.to_thread.run_sync(self._state.orders)
        look = await self._part() or await self._whole()
        fresh = self._state.fresh()

        def decide() -> Plan:
            seen, fold = look.seen, look.seen.folding.key
            blind = Blind(unknown=frozenset(seen.unknown), sealed=seen.sealed, holding=seen.holding)
            local = identify_local(seen.stats, blind, look.base, fresh, fold)
            remote = identify_remote(look.objects, look.base, fresh, self._remote.ages)
            policy = replace(self._options.policy, fold_local=fold)
            return make_plan(look.base, local, remote, policy, fresh, beside=look.beside)

        return await trio.to_thread.run_sync(decide), look

    async def _run(self) -> None:
        if not self._options.dry_run and self._options.select is _all_of_it:
            self._ahead = Ahead(self._remote)
            await self._finish_moves()
        found, look = await self.look()
        plan = self._options.select(found)
        # What was planned and is left out is not done: later cycles must not take it for done.
        self.report.undone = plan is not found
        self._tell(plan, look)
        check_deletions(plan, self._options.consent, self._options.root)
        # Only now: nothing of a look that is refused is kept. One lie about the version would block all later cycles.
        await self._keep_container(look.container)
        self._listener.planned(plan)
        if self._options.dry_run:
            for action in (*plan.remote, *plan.local):
                self.report.count(action)
            return
        await self._take_look(look)
        # Before anything is pulled: then devices that have the new key already can be asked.
        own = await self._options.attend_key(self._remote, look.lan_key)
        settled = await self._carry_out(plan, look)
        frozen = plan.local_state.frozen or plan.remote_state.frozen
        undone = bool(self.report.undone or self.report.failures or frozen or not settled)
        gone: set[Content] = set()
        if look.directories is not None and not undone:
            # A look at everything forgets what is nowhere any more; this one knows only what it replaced.
            before = {row.node.content for row in look.base.rows.values()}
            gone = {content for content in before if content is not None} - {
                node.content for node in plan.target.values()
            }
        position = look.position if self._partial is not None else None
        if position is not None and not undone:
            position = await behind_own_writes(self._remote, position, [*self._versions, *own])
        await self._local.concluded(() if position is None else look.directories, gone, undone=undone)
        if position is not None:
            if not undone and position != self._state.cursor():
                await trio.to_thread.run_sync(self._state.set_cursor, position)
            if look.seen.rules.concerned_by(plan.local):
                # What is in the base and what is ignored may be other things now.
                await self._distrust_parts()

    async def _finish_moves(self) -> None:
        booked = await trio.to_thread.run_sync(may_be_halfway, self._state)
        if booked:
            listing = await self._remote.list_objects()
            self._check(listing)
            await finish_moves(self._remote, self._state, booked, listing)

    async def _part(self) -> Look | None:
        """Both sides where something may have changed; None if that can't be told."""
        partial = self._partial
        found = None
        if partial is not None and not self._orders:
            found = await look_at_part(partial, self._remote, check=self._check)
        if found is None:
            return None
        self._check(found.changes, found.affected.base.rows.values())
        # What changed may have a link's text that a list of changes, like a listing, does not tell.
        objects, unread = await resolve_changed(self._remote, found.affected.remote, found.affected.base)
        return Look(
            base=found.affected.base,
            objects=objects,
            unread=unread,
            refused=found.changes.refused,
            seen=found.seen,
            position=found.changes.position,
            container=container_identity(found.changes.info, found.changes.position),
            beside=found.affected.beside,
            directories=found.directories,
            moved=found.moved,
            lan_key=KeySign(stat=found.changes.lan_key, gone=found.changes.lan_key_gone),
        )

    async def _whole(self) -> Look:
        """Both sides, all of them."""
        known = await trio.to_thread.run_sync(self._state.base)
        observed: list[Observation] = []
        spill = self._ahead.spill if self._ahead is not None and not known.rows else None

        async def observe() -> None:
            observed.append(await self._local.observe(known, spill))

        with one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(observe)  # while the server is asked: neither look needs the other
                listing = await self._remote.list_objects()
                self._check(listing, known.rows.values())
                if self._ahead is not None:
                    self._ahead.decide(is_first=not (known.rows or listing.objects or listing.refused))
        (seen,) = observed
        seen.rules.follow(known, seen.stats, listing.objects)
        here, holding = seen.rules.tracked_here(seen.stats, known)
        if holding:
            seen = replace(seen, stats=here, holding=seen.holding | holding)
        base, untracked = seen.rules.tracked_base(known)
        stats, unread = await resolve_changed(self._remote, seen.rules.tracked(listing.objects), base)
        ours = came_true(chain.from_iterable(self._orders.values()), base, stats) if self._orders else ()
        return Look(
            base=changed(base, ours) if ours else base,
            objects=stats,
            unread=unread,
            refused=listing.refused,
            seen=seen,
            position=listing.position,
            container=container_identity(listing.info, listing.position),
            untracked=untracked,
            lan_key=KeySign(stat=listing.lan_key, gone=listing.lan_key is None),
            orders=self._orders,
            came_true=ours,
        )

    async def _take_look(self, look: Look) -> None:
        """What the look told of the base, before anything is done.

        Both sides keep what is ignored. Without a row it is new on both, should it ever be synced again.
        """
        self._rules = look.seen.rules
        if look.orders:
            await trio.to_thread.run_sync(self._state.record, look.came_true, list(look.orders))
        if look.untracked:
            await trio.to_thread.run_sync(self._state.record, [Forgotten(nid=nid) for nid in look.untracked])
        # After the rows are gone, before anything else is recorded: a part is looked at by the rules of the last whole.
        if self._partial is not None and look.directories is None:
            await trio.to_thread.run_sync(self._state.set_rules, look.seen.rules.dump())

    async def _keep_container(self, found: ContainerIdentity) -> None:
        known, is_later = self._state.container(), self._remote.ages.is_later
        is_known = known is not None and replace(found, seen=known.seen) == known
        if not self._options.dry_run and (known is None or not is_known or is_later(found.seen, known.seen)):
            await trio.to_thread.run_sync(self._state.set_container, found)

    def _check(self, found: Listing | Changes, rows: Iterable[BaseRow] = ()) -> None:
        """Is it the container that was linked, and as it was when these rows were agreed on, or later?"""
        linked = self._state.container()
        if linked is not None:
            check_container(linked, container_identity(found.info, found.position))
        seen = None if linked is None else linked.seen
        check_age(seen, rows, found.objects, found.position, self._remote.ages)

    def _tell(self, plan: Plan, look: Look) -> None:
        """Report everything that is left alone, before anything is done."""
        seen = look.seen
        self.report.digest = plan.digest
        self.report.take_notes(plan, seen.problems)
        self.report.notes += hard_links(seen.stats)
        self.report.failures += look.unread
        for refused in look.refused:
            name = RelPath(refused.name.encode("utf-8", "surrogateescape"))
            if seen.rules.hides(name, directory=False):
                continue
            reason = f"the server's object can't be synced: {refused.reason}"
            self.report.failures.append(Failure(path=name, reason=reason))
        for failure in self.report.failures:
            self._listener.failed(failure)
        for path, text in self.report.notes:
            self._listener.noted(path, text)

    async def _carry_out(self, plan: Plan, look: Look) -> bool:
        """Do it, and record it. True if the base has all that was done."""
        step = self._options.step
        outcome = Outcome(look.base, plan)
        files = LocalFiles(outcome, plan, await self._beside(plan, look))
        recorder = Recorder(self._state, self._local, self._remote.commit, look.seen.clock_ns, step)
        unseen = Unseen(self._state, step, partial(look.newest, self._remote.ages))
        pusher = RemoteWorker(self._remote, self._local, outcome, files, step, unseen, recorder)
        pusher.subtrees, pusher.device = dict(look.moved.subtrees), host_label(self._options.policy.host)
        if self._ahead is not None:
            pusher.sent = self._ahead.sent
        blocks = Blocks([self._local.own_blocks(files.holders), *self._options.sources, self._remote.source])
        received = self._remote.counters.blocks_received
        recent = self._options.recent
        puller = LocalWorker(self._remote, self._local, outcome, files, step, unseen, PullFetcher(blocks, recent, step))
        if not all(source.near for source in self._options.sources):
            # Each of several devices gets others of many small files from the server, and these from each other.
            puller.shuffle = random.shuffle
        if recent is not None:
            recent.use(self._local.keep_received())
        try:
            await self._look_for_left(unseen)
            # Another version of the same content, in the same place of its directory: true before that is moved here.
            await recorder.add(look.moved.retagged)
            if plan.untrack:
                # Rows of what was below have no path until it is here again. Who looks at a part may never find them.
                await self._distrust_parts()
            await recorder.add(outcome.adoptions())
            await self._remember_adopted(plan, files, look.base)
            if plan.remote:
                await self._push(plan, outcome, recorder, pusher)
            if plan.local:
                await puller.prepare()
                async with serving(blocks):
                    await self._waves(plan.local, plan, outcome, recorder, puller)
            await self._keep_foreign(unseen)
            pusher.concluded()
        finally:
            # Also when the server went away or the disk is full: what is done is done, and must not look like a
            # user's change to the next cycle. A cancelled run only loses the last group, which it finds again.
            self.report.sources = blocks.stats
            self.report.blocks_read = self._remote.counters.blocks_received - received
            await recorder.flush()
            self._versions = recorder.versions
            # What a look at a part does not see: a backup from before our own writes looks as if nothing had changed.
            seen = self._remote.ages.after(look.position, recorder.versions)
            await self._keep_container(replace(look.container, seen=seen))
            await unseen.flush()
            if pusher.doubtful:
                # The server has something else than the base says: only a look at everything puts that right.
                await self._distrust_parts()
        late = await self._local.settle()
        for path, reason in (*pusher.lacking, *puller.lacking):
            self._isolated(Failure(path=path, reason=reason))
        copies = (*puller.copies, *late)
        await note_writers(self._remote, self._state, plan, look.objects, copies, self._options.policy.host)
        for path in copies:
            self.report.conflicts += 1
            self._listener.noted(path, "somebody wrote to it while it was replaced: kept as a conflict copy")
        return await trio.to_thread.run_sync(outcome.is_settled)

    async def _distrust_parts(self) -> None:
        """The next look must be at everything."""
        if self._partial is not None:
            await trio.to_thread.run_sync(self._state.set_cursor, None)

    async def _remember_adopted(self, plan: Plan, files: LocalFiles, base: BaseIndex) -> None:
        """Keep the block lists of files that were equal from the start: else their first change sends whole ones."""
        least = MIN_KNOWN_BLOCKS * self._local.block_size
        there = plan.remote_state.tree
        changed = (action.nid for action in (*plan.local, *plan.remote) if isinstance(action, SetMeta | Move))
        for nid in {*(adopt.nid for adopt in plan.adopt), *changed}:
            stat, node = files.stat(nid), there.get(nid)
            if stat is None or node is None or stat.content is None or stat.content != node.content:
                continue
            row = base.rows.get(nid)
            if stat.content.size_bytes < least or (row is not None and row.node.content == stat.content):
                continue
            await trio.to_thread.run_sync(self._keep_list, stat.content, stat.tag)

    def _keep_list(self, content: Content, tag: LocalTag) -> None:
        blocks = self._local.list_of(content, tag)
        if blocks is not None:
            self._local.lists.save(content, blocks)

    async def _beside(self, plan: Plan, look: Look) -> Mapping[Content, Sequence[Origin]]:
        """Files outside the part that is looked at, from which something could be taken that is to be pulled."""
        wanted = {action.content for action in plan.local if isinstance(action, Create | Update) and action.content}
        if self._partial is None or not wanted or not look.beside:
            return {}
        if self._local.kind == "folder":
            wanted |= await trio.to_thread.run_sync(self._local.lists.contents)
        return await trio.to_thread.run_sync(self._state.holders, wanted)

    async def _push(self, plan: Plan, outcome: Outcome, recorder: Recorder, worker: RemoteWorker) -> None:
        if recorder.has_rows:
            await recorder.flush()  # a booking whose directory has no row says nothing to the next cycle
        recorder.waits = (await worker.prepare()).holds_back
        await self._waves(plan.remote, plan, outcome, recorder, worker)
        if recorder.waits:
            recorder.waits = False
            await recorder.flush()

    async def _waves(
        self,
        actions: Sequence[Action],
        plan: Plan,
        outcome: Outcome,
        recorder: Recorder,
        worker: RemoteWorker | LocalWorker,
    ) -> None:
        run = Isolation(outcome, recorder, self.report, self._listener, self._failed)
        await run_waves(actions, partial(_kind_of, plan), partial(run.wave, perform=worker.perform))

    async def _look_for_left(self, unseen: Unseen) -> None:
        """What earlier cycles could not look after: writes that they were ended in the middle of, or nearly."""

        async def look(write: Overwrite) -> None:
            unseen.done(write, await self._remote.replaced_unseen(write))

        await for_each(iter(unseen.left), look, _LOOKS_AT_ONCE)

    async def _keep_foreign(self, unseen: Unseen) -> None:
        """Versions of others that our writes replaced unseen (plain Pithos only) become conflict copies."""
        failed: set[int] = set()
        for write, version in unseen.found:
            name = self._remote.ages.name(version.tag)
            try:
                copy = await keep_beside(self._remote, version)
            except ONE_NODE as error:
                failed.add(write.number)
                reason = f"{name} was replaced unseen and is not kept yet: {error}"
                self._isolated(Failure(path=version.path, reason=reason))
            else:
                self.report.conflicts += 1
                self._listener.noted(copy, f"keeps {name}, which our write replaced unseen")
        for write in {write.number: write for write, _ in unseen.found if write.number not in failed}.values():
            unseen.settle(write)

    def _failed(self, action: Action, reason: str, exit_code: int = ExitCode.PARTLY_DONE) -> None:
        side = "on the server" if action.side is Side.REMOTE else "locally"
        if action.side is Side.REMOTE and isinstance(action, Create | Move) and self._may_be_ignored(action.path):
            reason = f"{reason}; {_IGNORED_FOLDER}"
        self._isolated(Failure(path=action.path, reason=f"{_verb(action)} {side}: {reason}", exit_code=exit_code))

    def _may_be_ignored(self, path: RelPath) -> bool:
        """Whether a folder of this name would be ignored, though what is to be put there is not."""
        return self._rules.hides(path, directory=True) and not self._rules.hides(path, directory=False)

    def _isolated(self, failure: Failure) -> None:
        self.report.undone = True
        self.report.failures.append(failure)
        self._listener.failed(failure)


def _kind_of(plan: Plan, nid: Nid) -> Kind | None:
    node = plan.target.get(nid) or plan.local_state.tree.get(nid) or plan.remote_state.tree.get(nid)
    return node.kind if node is not None else None


def _verb(action: Action) -> str:
    return type(action).__name__.lower()
