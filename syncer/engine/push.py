"""Carry out actions on the remote side: a wave of actions becomes a list of orders, and each outcome is booked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import trio

from blockfs.blocks.ids import BlockId
from syncer.core.model import (
    NO_META,
    Action,
    Create,
    FileStat,
    Kind,
    Meta,
    Mkdir,
    Move,
    Nid,
    Park,
    RelPath,
    RemoteTag,
    SetMeta,
    Side,
    Trash,
    Update,
)
from syncer.core.planner.outcome import BaseChange, Outcome
from syncer.core.planner.overwrites import Overwrite
from syncer.core.subtrees import Retagged, Subtree
from syncer.engine.content_index import LocalContents, LocalFiles, remote_tag
from syncer.engine.foreign import Unseen
from syncer.engine.isolation import Told
from syncer.engine.record import Recorder
from syncer.errors import ONE_NODE, ConflictOnRemoteError, LocalChangedError, UnsafeNameError
from syncer.ports import orders as port
from syncer.ports.local import LocalRoot
from syncer.ports.remote import Capabilities, Remote

_BOOKED_AT_ONCE: Final = 1024
"""Orders of a list, where each is booked before it is sent: the next cycle looks for all that are left in the book."""

_SENT_AT_ONCE: Final = 16_384
"""Orders of a list elsewhere: as many bookings, of some 150 bytes each, are in the state until their rows are."""

_HELD_AT_ONCE: Final = 8192
_HELD_BYTES: Final = 1 << 30
"""Of a list to a remote that holds back: what became of it is told at its end, and only what was told is committed."""


class RemoteWorker:
    """Performs remote actions; books nothing itself but what may be replaced unseen.

    Attributes:
        doubtful: A folder was not moved because the server has another one than the base says, or it is not known
            whether it was.
        lacking: Nodes that lost something that is not ours to sync, and what.
        sent: Files of one block whose contents are on the server already.
        subtrees: Directories of which the outcome has nothing below: they move as a whole.
        device: What this one is called; empty: it is not told.
    """

    def __init__(
        self,
        remote: Remote,
        local: LocalRoot,
        outcome: Outcome,
        files: LocalFiles,
        step: Callable[[str], None],
        unseen: Unseen,
        recorder: Recorder,
    ) -> None:
        """Take the books of a cycle.

        Args:
            remote: The server.
            local: The root.
            outcome: What is where.
            files: What is where locally.
            step: Fault points.
            unseen: Where writes are booked, if the server needs that.
            recorder: Where orders are booked.
        """
        self._remote = remote
        self.subtrees: dict[Nid, Subtree] = {}
        self.lacking: list[tuple[RelPath, str]] = []
        self.sent: AbstractSet[BlockId] = frozenset()
        self.device = ""
        self.doubtful = False
        self._outcome = outcome
        self._files = files
        self._contents = LocalContents(local)
        self._step = step
        self._unseen = unseen
        self._recorder = recorder
        self._open: list[tuple[int, Nid]] = []  # bookings of orders that were carried out and have no row yet
        self._atomic = True
        self._holds_back = False

    async def prepare(self) -> Capabilities:
        """Find out what the server can."""
        can = (await self._remote.open()).can
        self._atomic, self._holds_back = can.atomic, can.holds_back
        return can

    async def perform(self, actions: Sequence[Action], done: Told) -> None:
        """Do actions that do not need each other; tell what each makes true, or one of `ONE_NODE`."""
        if self._holds_back:
            for part in _held(actions):
                await self._perform(part, done)
            return
        most = _SENT_AT_ONCE if self._atomic else _BOOKED_AT_ONCE
        for at in range(0, len(actions), most):
            await self._perform(actions[at : at + most], done)

    async def _perform(self, actions: Sequence[Action], done: Told) -> None:
        doing: list[Action] = []
        orders: list[port.Order] = []
        along: list[tuple[Nid, RemoteTag]] = []
        # Before what is below is moved one by one: the next cycle must know where to.
        numbers = await self._book_orders([action for action in actions if isinstance(action, Move | Park)])
        for action in actions:
            try:
                if isinstance(action, Move | Park):  # a wave of its own
                    along = await self._move_below(action)
                order = await self._order(action)
            except ONE_NODE as error:
                await done(action, error)
                continue
            if order is None:
                await done(action, self._made(action, port.Stored(), along))
                self._told(numbers, action)
            else:
                doing.append(action)
                orders.append(order)
        booked = await self._book([action.nid for action in doing], orders)
        numbers |= await self._book_orders([action for action in doing if not isinstance(action, Move | Park)])

        async def told(at: int, result: port.Stored | Exception) -> None:
            action, order = doing[at], orders[at]
            if isinstance(order, port.Store):
                await self._contents.ended(order, stored=not isinstance(result, Exception))
            if isinstance(result, Exception):
                # Refused, or in doubt: the server has something else than the base says.
                doubtful = _is_doubtful(order, result)
                self.doubtful = self.doubtful or doubtful
                await done(action, result)
                if not doubtful and not along:
                    self._told(numbers, action)
                return
            self._heard(order, result, booked.get(at))
            changes = self._made(action, result, along)
            await done(action, changes)
            self._told(numbers, action, changes)

        if orders:
            await self._remote.write(orders, self._contents, told)

    def _heard(self, order: port.Order, stored: port.Stored, booked: Overwrite | None) -> None:
        """What an order did to what is not ours."""
        if booked is not None:
            self._unseen.done(booked, stored.foreign)
        if stored.lacking is not None and isinstance(order, port.Move):
            self.lacking.append((order.target, stored.lacking))

    def _made(self, action: Action, stored: port.Stored, along: Sequence[tuple[Nid, RemoteTag]]) -> list[BaseChange]:
        """Book an action that was done."""
        if not isinstance(action, Move | Park):
            self._step("deleted" if isinstance(action, Trash) else "remote changed")
            return self._outcome.applied(action, stored.tag)
        self._step("remote moved")
        changes = self._moved(action, stored)
        for nid, moved in along:
            changes += self._outcome.retagged(Side.REMOTE, nid, moved)
        return changes

    def _moved(self, action: Move | Park, stored: port.Stored) -> list[BaseChange]:
        if stored.moved is None:  # a directory without a marker has moved with what is below it
            return self._outcome.applied(action, stored.tag or self._outcome.tag(Side.REMOTE, action.nid))
        self.subtrees[action.nid] = self.subtrees[action.nid].after(stored.moved)
        tag = stored.moved.root_tag(remote_tag(self._outcome, action.nid))
        below = Retagged(nid=action.nid, first=stored.moved.first, count=stored.moved.guard.count)
        return [*self._outcome.applied(action, tag), below]

    def _told(self, numbers: Mapping[Nid, int], action: Action, changes: Sequence[BaseChange] | None = None) -> None:
        """An outcome is known; of what was done and has no row yet the booking stays until it has."""
        if action.nid not in numbers:
            return
        if changes is None or any(_is_of(change, action) for change in changes):
            self._recorder.settle(numbers[action.nid])
        else:
            self._open.append((numbers[action.nid], action.nid))

    async def _book_orders(self, actions: Sequence[Action]) -> dict[Nid, int]:
        """Book what is sent next, durably: the number of each, by its node. Not what the base may not say yet."""
        booked = {action.nid: self._outcome.booking(action) for action in actions}
        orders = {nid: each for nid, each in booked.items() if each is not None}
        return dict(zip(orders, await self._recorder.book(list(orders.values())), strict=True)) if orders else {}

    def concluded(self) -> None:
        """All is done: what has its row by now, or was only a step to it, need not be looked for."""
        for number, nid in self._open:
            if self._outcome.is_recorded(nid):
                self._recorder.settle(number)

    async def _book(self, nids: Sequence[Nid], orders: Sequence[port.Order]) -> dict[int, Overwrite]:
        """Where a condition may miss what slips in: book what is sent next, durably."""
        writes: dict[int, Overwrite] = {}
        for at, order in enumerate(orders if not self._atomic else ()):
            if isinstance(order, port.Store):
                writes[at] = self._unseen.store(order)
            elif isinstance(order, port.Move):
                node = self._outcome.node(Side.REMOTE, nids[at])
                writes[at] = self._unseen.rename(Kind.DIRECTORY if node is None else node.kind, order)
        if not writes:
            return {}
        return dict(zip(writes, await self._unseen.about_to(list(writes.values())), strict=True))

    # --- orders

    async def _order(self, action: Action) -> port.Order | None:
        """What is asked of the server; None if nothing is: a directory without a marker is its objects.

        Raises:
            ConflictOnRemoteError: There is no version that could be named.
            LocalChangedError: The content is not here any more.
        """
        if isinstance(action, Trash):
            tag = self._outcome.tag(Side.REMOTE, action.nid)
            path = self._outcome.path(Side.REMOTE, action.nid)
            return port.Delete(path=path, expect=tag) if isinstance(tag, RemoteTag) else None
        if isinstance(action, Move | Park):
            return await self._move(action)
        path = self._outcome.path_after(action)
        match action:
            case Mkdir():
                return port.Store(path=path, kind=Kind.DIRECTORY, meta=action.meta)
            case Create():
                return self._store(action, path, action.meta, None)
            case Update():
                expect = remote_tag(self._outcome, action.nid)
                return self._store(action, path, self._whole_meta(action), expect)
            case SetMeta():
                expect = remote_tag(self._outcome, action.nid)
                return port.SetMeta(path=path, meta=self._whole_meta(action), expect=expect)
        raise AssertionError(action)

    def _store(self, action: Create | Update, path: RelPath, meta: Meta, replaces: RemoteTag | None) -> port.Store:
        if action.kind is Kind.SYMLINK:
            return port.Store(path=path, kind=action.kind, meta=NO_META, replaces=replaces, target=action.target)
        self._step("before upload")
        assert action.content is not None
        there = None if replaces is None else self._outcome.node(Side.REMOTE, action.nid)
        return port.Store(
            path=path,
            kind=Kind.FILE,
            meta=meta,
            replaces=replaces,
            content=action.content,
            older=None if there is None else there.content,
            source=self._source(action),
            sent=BlockId(bytes(action.content.object_hash)) in self.sent,
            device=self.device,
        )

    def _source(self, action: Create | Update) -> FileStat:
        """The local file that has the content to be sent: the node's own, or the one that it is to be a copy of."""
        nids = [action.nid]
        if isinstance(action, Create) and action.copy_of is not None:
            nids.append(action.copy_of)
        for nid in nids:
            stat = self._files.stat(nid)
            if stat is not None and stat.content == action.content:
                return stat
        assert action.content is not None
        for holder in self._files.holders(action.content):
            return FileStat(path=holder.path, kind=Kind.FILE, meta=NO_META, content=action.content, tag=holder.tag)
        raise LocalChangedError(action.path, "its content is not here any more")

    def _whole_meta(self, action: SetMeta | Update) -> Meta:
        """A write replaces all metadata of an object: what the action leaves alone is sent again."""
        node = self._outcome.node(Side.REMOTE, action.nid)
        assert node is not None
        return node.meta.overlaid(action.meta)

    # --- renames

    async def _move(self, action: Move | Park) -> port.Move | port.MoveTree | None:
        source, target = self._outcome.path(Side.REMOTE, action.nid), self._outcome.path_after(action)
        subtree = self.subtrees.get(action.nid)
        if subtree is not None:
            guard = await trio.to_thread.run_sync(lambda: subtree.guard)
            return port.MoveTree(source=source, target=target, guard=guard)
        tag = self._outcome.tag(Side.REMOTE, action.nid)
        return port.Move(source=source, target=target, expect=tag) if isinstance(tag, RemoteTag) else None

    async def _move_below(self, action: Move | Park) -> list[tuple[Nid, RemoteTag]]:
        """Move what lies below a directory, deepest first, so that a crash in between leaves no orphans."""
        if action.nid in self.subtrees:
            return []
        source, target = self._outcome.path(Side.REMOTE, action.nid), self._outcome.path_after(action)
        levels: dict[int, list[tuple[Nid, port.Move]]] = {}
        for below in self._outcome.below(Side.REMOTE, action.nid):
            path, tag = self._outcome.path(Side.REMOTE, below), self._outcome.tag(Side.REMOTE, below)
            if isinstance(tag, RemoteTag):
                order = port.Move(source=path, target=RelPath(target + path[len(source) :]), expect=tag)
                levels.setdefault(path.count(b"/"), []).append((below, order))
        return [moved for level in sorted(levels, reverse=True) for moved in await self._move_level(levels[level])]

    async def _move_level(self, level: Sequence[tuple[Nid, port.Move]]) -> list[tuple[Nid, RemoteTag]]:
        """Raises the first error, when it is known what became of all."""
        nids, orders = [nid for nid, _ in level], [order for _, order in level]
        booked = await self._book(nids, orders)
        done: list[tuple[Nid, RemoteTag]] = []
        failed: list[Exception] = []

        async def told(at: int, result: port.Stored | Exception) -> None:
            if isinstance(result, Exception):
                failed.append(result)
                return
            self._heard(orders[at], result, booked.get(at))
            assert result.tag is not None
            done.append((nids[at], result.tag))

        await self._remote.write(orders, self._contents, told)
        if failed:
            raise failed[0]
        return done


def _held(actions: Sequence[Action]) -> Iterator[Sequence[Action]]:
    """Cut actions into lists of bounded length and size; one that is larger by itself is a list of its own."""
    first = size_bytes = 0
    for at, action in enumerate(actions):
        content = action.content if isinstance(action, Create | Update) else None
        size_bytes += 0 if content is None else content.size_bytes
        if at > first and (at - first == _HELD_AT_ONCE or size_bytes > _HELD_BYTES):
            yield actions[first:at]
            first, size_bytes = at, 0 if content is None else content.size_bytes
    if first < len(actions):
        yield actions[first:]


def _is_doubtful(order: port.Order, error: Exception) -> bool:
    return isinstance(order, port.MoveTree) and isinstance(error, ConflictOnRemoteError | UnsafeNameError)


def _is_of(change: BaseChange, action: Action) -> bool:
    """Whether it is what an action makes of its node's own row."""
    return change.nid == action.nid and not isinstance(change, Retagged)
