"""From a linked root to what the daemon watches and runs: `watch.work.RootPorts`."""

from __future__ import annotations

import sys
from typing import Final, Literal

import trio
from msgspec.structs import replace

from blockfs.runtime.logs import Log
from blockfs.runtime.output import shown
from syncer.cli.lan.attending import Attendance
from syncer.cli.output.progress import Progress
from syncer.cli.registry.roots import LinkedRoot
from syncer.cli.session.opening import open_share, policy_now
from syncer.cli.session.session import kept, opened, options_of, run_cycle
from syncer.core.model import Action, Plan, RelPath
from syncer.engine.report import Failure, Report
from syncer.engine.root_state import RootState
from syncer.ports.localvalues import Hints
from syncer.ports.remote import Remote
from syncer.state.statedb import StateDB
from syncer.watch.dirt import EVERYTHING
from syncer.watch.inotify_source import InotifySource
from syncer.watch.portable_source import PortableSource
from syncer.watch.source import DirtySource
from syncer.watch.volume_source import VolumeSource, has_writers
from syncer.watch.work import Moving, Work

log = Log()

Watcher = Literal["auto", "inotify", "watchdog"]

_FIGURES_S: Final = 0.1  # a person reads no faster


class Ports:
    """See `RootPorts`."""

    def __init__(self, linked: LinkedRoot, watcher: Watcher, on_lan: Attendance | None = None) -> None:
        self.record = linked.record
        self.uuid = linked.record.uuid
        self.path = linked.path
        interval_s = linked.record.open_files_interval_s
        self.open_files_interval_s = interval_s or None
        self._linked = linked
        self._watcher = watcher
        self._on_lan = on_lan

    def source(self) -> DirtySource:
        """See RootPorts."""
        if self._linked.record.folder is None:
            return VolumeSource(self.path)
        if self._watcher == "inotify" or (self._watcher == "auto" and sys.platform == "linux"):
            return InotifySource(self.path)
        return PortableSource(self.path, tells_closing=sys.platform == "linux")

    def connect(self) -> Remote:
        """See RootPorts."""
        return open_share(self._linked)

    async def open_files(self) -> Work:
        """See RootPorts. Who writes to a folder can't be asked: it is looked at, by the evidence of its entries."""
        if self._linked.record.folder is not None:
            return Work(local=EVERYTHING)
        writers = await trio.to_thread.run_sync(has_writers, self.path)
        return Work(from_snapshot=writers)

    async def cycle(self, remote: Remote, work: Work, moving: Moving) -> Report:
        """See RootPorts. The state is locked only while it runs, so that `reconcile` finds its turn."""
        report = Report()
        with StateDB.open(self._linked.state) as database:
            state = RootState(database, self._linked.record.parts)
            try:
                with kept(state, report, counts=lambda _: True):
                    try:
                        await self._run(remote, state, report, work, moving)
                    finally:
                        if self._on_lan is not None:
                            report.blocks_to_peers, report.bytes_to_peers = self._on_lan.given(self._linked)
            finally:
                if self._on_lan is not None:
                    self._on_lan.attend(self._linked)  # the share may have another key now
        return report

    async def _run(self, remote: Remote, state: RootState, report: Report, work: Work, moving: Moving) -> None:
        policy = policy_now()
        async with opened(self._linked, state, policy, from_snapshot=work.from_snapshot) as local:
            told = work.local
            hints = (
                Hints() if told.everything else Hints(directories=told.directories, entries=told.entries, brief=True)
            )
            on_lan = self._on_lan
            options = options_of(self._linked, policy, () if on_lan is None else on_lan.sources(self._linked))
            recent = None if on_lan is None else on_lan.recent(self._linked)
            options = replace(options, hints=hints, recent=recent)
            ears = _Ears(moving, Progress(counters=remote.counters, hashing=local.counters))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ears.tick)
                await run_cycle(self._linked, (local, remote), state, ears, options, report)
                nursery.cancel_scope.cancel()


class _Ears:
    """`engine.report.Listener` of the daemon: failures to the log, the rest to who follows."""

    def __init__(self, moving: Moving, progress: Progress) -> None:
        self._moving = moving
        self._progress = progress
        self._latest = ""
        self._figures: dict[str, int] = {}
        self._due_s = 0.0

    async def tick(self) -> None:
        """Tell about once a second how far it is, until cancelled: one large file takes long, too."""
        while True:
            await trio.sleep(1)
            self._tell()

    def planned(self, plan: Plan) -> None:
        """See Listener."""
        self._progress.planned(plan, trio.current_time())
        self._tell()

    def done(self, action: Action, path: RelPath) -> None:
        """See Listener."""
        self._progress.done(action)
        self._latest = shown(path)
        self._tell()
        log.debug("watch.done", action=type(action).__name__.lower(), side=action.side.value, path=path)

    def failed(self, failure: Failure) -> None:
        """See Listener."""
        log.info("watch.not_synced", path=failure.path, reason=failure.reason)

    def noted(self, path: bytes, text: str) -> None:
        """See Listener."""
        log.debug("watch.note", path=path, text=text)

    def _tell(self) -> None:
        """Figures at most ten times a second: of small files there are thousands in one."""
        now_s = trio.current_time()
        if now_s >= self._due_s:
            self._due_s = now_s + _FIGURES_S
            self._figures = self._progress.figures(now_s) if self._progress.files else self._progress.looking()
        self._moving(self._latest, self._figures)
