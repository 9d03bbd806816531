"""The daemon: many roots, each in a task of its own; signals, the service manager, the control socket."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from blockfs.runtime.logs import Log
from blockfs.runtime.notify import ServiceManager
from blockfs.runtime.units import counted
from syncer.watch.live import DaemonLive, RootLive
from syncer.watch.page.process import NO_PAGE, PageProcess
from syncer.watch.root_task import RootTask, Surroundings
from syncer.watch.work import RootPorts

if TYPE_CHECKING:
    from syncer.watch.lan import Lan
    from syncer.watch.notices.notifier import Notifier

log = Log()


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One root as the registry has it now."""

    ports: RootPorts
    paused: bool


class Damaged(msgspec.Struct, frozen=True, kw_only=True):
    """One root whose record can't be read: it is shown, and not watched.

    Attributes:
        uuid: Its name in the registry.
        record: The record's path.
        detail: What is the matter and what to do.
    """

    uuid: str
    record: str
    detail: str


Registered = Callable[[], Sequence[Wanted | Damaged]]
"""Reads what is linked now, of the roots that the command line names."""

Signals = Callable[[], AbstractContextManager[AsyncIterator[int]]]


class Daemon:
    """Runs root tasks until it is told to stop.

    Attributes:
        changed: Set, and replaced by another, when `live` may have changed.
        lan: Where blocks come from and go to beside the server; None: nowhere.
        page: What people look at with a browser, when somebody asks for it.
        notifier: Tells the user of events; None: nobody does.
    """

    def __init__(
        self,
        registered: Registered,
        around: Surroundings,
        manager: ServiceManager,
        lan: Lan | None = None,
        page: Sequence[str] = NO_PAGE,
        notifier: Notifier | None = None,
        beside: Sequence[Callable[[], Awaitable[None]]] = (),
    ) -> None:
        self._registered = registered
        self._around = around
        self._manager = manager
        self.lan = lan
        self.page = PageProcess(page)
        self.notifier = notifier
        self._beside = beside
        self._tasks: dict[str, tuple[RootTask, trio.CancelScope]] = {}
        self._damaged: dict[str, RootLive] = {}
        self._nursery: trio.Nursery | None = None
        self._started = around.wall_s()
        self.changed = trio.Event()

    @property
    def live(self) -> DaemonLive:
        """How all roots stand, by path."""
        found = [*(task.live for task, _ in self._tasks.values()), *self._damaged.values()]
        return DaemonLive(pid=os.getpid(), started=self._started, roots=sorted(found, key=lambda live: live.root))

    def told(self) -> None:
        """A root's task has changed its `live`."""
        self.changed.set()
        self.changed = trio.Event()

    def expedite(self, uuid: str) -> bool:
        """Look at everything of one root now. Returns whether it is watched."""
        found = self._tasks.get(uuid)
        if found is not None:
            found[0].expedite()
        return found is not None

    def reload(self) -> None:
        """Take over what was linked, unlinked, paused and resumed since."""
        assert self._nursery is not None
        registered = self._registered()
        wanted = {root.ports.uuid: root for root in registered if isinstance(root, Wanted)}
        self._take_damaged([root for root in registered if isinstance(root, Damaged)])
        for uuid, (task, scope) in list(self._tasks.items()):
            if uuid not in wanted or wanted[uuid].ports is not task.ports:
                log.info("watch.unlinked", root=task.live.root)
                scope.cancel()
                del self._tasks[uuid]
                if self.notifier is not None:
                    self.notifier.forget(uuid)
        for uuid, root in wanted.items():
            if self.notifier is not None:
                self.notifier.follow(uuid, root.ports.path, paused=root.paused)
            if uuid in self._tasks:
                self._tasks[uuid][0].pause(paused=root.paused)
            else:
                self._start(root)
        self.told()

    def _take_damaged(self, roots: Sequence[Damaged]) -> None:
        """Show them; of each that was not so before, tell."""
        before, self._damaged = self._damaged, {}
        for root in roots:
            if self.notifier is not None:  # nobody syncs it: that is told after a day, as of any other
                self.notifier.follow(root.uuid, os.fsencode(root.record), paused=False)
            known = before.get(root.uuid)
            if known is None or known.detail != root.detail:
                log.error("watch.damaged", record=root.record, reason=root.detail)
                since = self._around.wall_s()
                known = RootLive(root=root.record, uuid=root.uuid, phase="damaged", since=since, detail=root.detail)
            self._damaged[root.uuid] = known

    def _start(self, root: Wanted) -> None:
        assert self._nursery is not None
        around = msgspec.structs.replace(self._around, told=self.told)
        if self.notifier is not None:
            around = msgspec.structs.replace(around, ended=partial(self.notifier.ended, root.ports.uuid))
        task, scope = RootTask(root.ports, around, paused=root.paused), trio.CancelScope()
        self._tasks[root.ports.uuid] = (task, scope)

        async def run() -> None:
            with scope:
                await task.run()

        self._nursery.start_soon(run)

    async def run(
        self,
        signals: Signals,
        serve: Callable[..., Awaitable[None]] | None = None,
        watchdog_s: float | None = None,
    ) -> None:
        """Watch until SIGTERM or SIGINT.

        Args:
            signals: Opens the stream of signals.
            serve: Answers on the control socket, as `trio.Nursery.start` begins it.
            watchdog_s: The service manager wants to hear of us within this time.
        """
        with signals() as arriving:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self.reload()
                if self.lan is not None:
                    nursery.start_soon(self.lan.run)
                nursery.start_soon(self.page.run)
                if self.notifier is not None:
                    nursery.start_soon(self.notifier.run)
                for work in self._beside:
                    nursery.start_soon(work)
                if serve is not None:
                    await nursery.start(serve, self)
                if watchdog_s is not None:
                    nursery.start_soon(self._be_alive, watchdog_s)
                self._manager.ready(counted(len(self._tasks), "root", "roots"))
                log.info("watch.ready", roots=len(self._tasks))
                async for number in arriving:
                    if number != signal.SIGHUP:
                        break
                    self._manager.reloading()
                    self.reload()
                    self._manager.ready(counted(len(self._tasks), "root", "roots"))
                self._manager.stopping("ending the cycles under way")
                nursery.cancel_scope.cancel()

    async def _be_alive(self, watchdog_s: float) -> None:
        """Tell the service manager as long as the event loop turns."""
        while True:
            self._manager.alive()
            await trio.sleep(watchdog_s / 2)
