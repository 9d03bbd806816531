"""One root under watch: its source, its server's feed, and the loop that runs a cycle whenever one is due.

Roots share nothing but the process: whatever happens to one, the others go on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import msgspec
import trio
from msgspec import structs

from blockfs.errors import BlockfsError
from blockfs.runtime.failures import said
from blockfs.runtime.logs import Log
from blockfs.runtime.memory import give_back, resident_bytes
from blockfs.runtime.output import shown
from syncer.core.model import Position
from syncer.engine.report import CHANGES, Report
from syncer.errors import (
    EXPECTED,
    AuthError,
    HeadsMissingError,
    LockedError,
    RemoteUnavailableError,
    RolledBackError,
    RootIdentityError,
    SafetyStopError,
    SyncerError,
)
from syncer.ports.remote import Remote
from syncer.remote.parallel import first_error
from syncer.watch.live import Phase, RootLive
from syncer.watch.pacing import BLIND_RESCAN_S, MIN_QUIET_S, RESCAN_S, THROUGH, CycleResult, Pacer, backoff_s
from syncer.watch.source import DirtySource, SourceLostError
from syncer.watch.work import ALL, RootPorts, Work

log = Log()

_FOLLOWING: Final = {"told": "changes", "polling": "polling", "files": "files"}
"""How changes on the server are noticed, in the words of `status`."""

_LOOKING_SHARE: Final = 0.002
"""Of the time, for looks at everything that only open files ask for: a root at rest must cost next to nothing."""

_PHASES: Final[dict[CycleResult, Phase]] = {
    CycleResult.DONE: "idle",
    CycleResult.PARTLY: "retrying",
    CycleResult.CONSENT: "consent",
    CycleResult.ROOT_AWAY: "away",
    CycleResult.SERVER_AWAY: "retrying",
    CycleResult.BUSY: "retrying",
    CycleResult.BROKEN: "retrying",
}


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a root's task gets from outside, so that tests decide it.

    Attributes:
        draw: Random numbers, 0 to 1.
        wall_s: Seconds since the epoch.
        told: Called when what `status` shows has changed.
        ended: Called when a cycle has ended: how, why, and how many conflict copies it made.
    """

    draw: Callable[[], float]
    wall_s: Callable[[], float]
    told: Callable[[], None]
    ended: Callable[[CycleResult, str, int], None] = lambda _result, _why, _conflicts: None


class RootTask:
    """Watches one root until it is cancelled.

    Attributes:
        live: How it stands.
    """

    def __init__(self, ports: RootPorts, around: Surroundings, *, paused: bool = False) -> None:
        self.ports = ports
        self.live = RootLive(root=shown(ports.path), uuid=ports.uuid, phase="starting", since=around.wall_s())
        self._around = around
        self._paused = paused
        self._turned = trio.Event()
        self._pacer = Pacer()
        self._work = Work()
        self._poke = trio.Event()
        self._tried_to_watch = trio.Event()
        self._source: DirtySource | None = None
        self._look_s = 0.0  # what the last look at everything took that found nothing to do
        self._local_problem: str | None = None
        self._remote_problem: str | None = None
        self._log = log.bind(root=shown(ports.path))

    # --- from outside

    def pause(self, *, paused: bool) -> None:
        """Stop after the cycle under way, or go on."""
        if paused != self._paused:
            self._paused = paused
            self._turned.set()
            self._wake()

    def expedite(self) -> None:
        """Run a full cycle now, whatever it waits for."""
        self._work |= ALL
        self._pacer.expedite(trio.current_time())
        self._wake()

    async def run(self) -> None:
        """Watch, for ever. What goes wrong here stays here."""
        failures = 0
        while True:
            self._turned = trio.Event()
            if self._paused:
                self._show("paused", "`blocksync resume` goes on")
                await self._turned.wait()
                continue
            try:
                await self._watch()
                failures = 0
            except* Exception as group:  # noqa: BLE001 - a bug in one root's task must not end the others
                failures += 1
                error = first_error(group)
                if not isinstance(error, EXPECTED):
                    self._log.exception("watch.bug", exc_info=error)
                self._show("retrying", _judge(error)[1])
            if failures:
                with trio.move_on_after(backoff_s(CycleResult.BROKEN, failures, self._around.draw())):
                    await self._turned.wait()

    async def _watch(self) -> None:
        """From a start or a resume to a pause."""
        self._pacer, self._work, self._tried_to_watch = Pacer(), Work(), trio.Event()
        self._show("starting")
        remote = self.ports.connect()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_local)
                nursery.start_soon(self._watch_remote, remote)
                if self.ports.open_files_interval_s is not None:
                    nursery.start_soon(self._push_open_files, self.ports.open_files_interval_s)
                await self._drive(remote)
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await remote.close()

    # --- what notices

    async def _watch_local(self) -> None:
        failures = 0
        while True:
            source = self.ports.source()
            try:
                await trio.to_thread.run_sync(source.arm)
                failures = 0
                await self._listen(source)
            except (SourceLostError, OSError, BlockfsError) as error:
                failures += 1
                self._local_problem = str(error)
                self._log.info("watch.source_lost", reason=str(error))
            finally:
                self._source = None
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(source.close)
            # A cycle says what is the matter with the root, and syncs it if it is only that it can't be watched.
            self._pacer.rescan_s = BLIND_RESCAN_S
            if failures <= 1:
                self._pacer.rescan_at(trio.current_time())
            self._tried_to_watch.set()
            self._wake()
            await trio.sleep(backoff_s(CycleResult.ROOT_AWAY, failures, self._around.draw()))

    async def _listen(self, source: DirtySource) -> None:
        """From armed to lost."""
        self._source, self._local_problem = source, source.problem
        self._pacer.rescan_s = BLIND_RESCAN_S if source.problem else RESCAN_S
        self._pacer.rescan_at(trio.current_time())  # nobody watched until now
        self._tried_to_watch.set()
        self._wake()
        while True:
            await source.wait()
            self._take(source)
            self._wake()

    def _take(self, source: DirtySource) -> None:
        dirt, now_s = source.take(), trio.current_time()
        if dirt:
            self._pacer.noticed(now_s)
            self._work |= Work(local=dirt)
        if dirt.everything:
            self._log.info("watch.overflow")
            self._pacer.rescan_at(now_s + MIN_QUIET_S)
        if source.problem != self._local_problem:
            self._local_problem = source.problem
            self._pacer.rescan_s = BLIND_RESCAN_S if source.problem else RESCAN_S

    async def _watch_remote(self, remote: Remote) -> None:
        seen: Position | None = None  # of ours: what a cycle writes is told, too, and the next one finds the echo
        failures = 0
        while True:
            try:
                seen = await remote.wait(seen)
                waits = (await remote.open()).can.waits
            except EXPECTED as error:
                failures += 1
                self._remote_problem = str(error)
                self._wake()
                await trio.sleep(backoff_s(CycleResult.SERVER_AWAY, failures, self._around.draw()))
                continue
            if failures:
                failures, self._remote_problem = 0, None
                self._pacer.expedite(trio.current_time())
            self.live = structs.replace(self.live, following=_FOLLOWING[waits])
            self._work |= Work(remote=True)
            self._pacer.noticed(trio.current_time())
            self._wake()

    async def _push_open_files(self, interval_s: float) -> None:
        """A running machine never closes its disk: push it now and then."""
        pause_s = interval_s
        while True:
            await trio.sleep(pause_s)
            pause_s = interval_s
            try:
                work = await self.ports.open_files()
            except EXPECTED as error:
                self._log.debug("watch.not_asked", reason=str(error))
                continue
            if work:
                self._work |= work
                self._pacer.noticed(trio.current_time())
                self._wake()
            if work.local.everything:
                pause_s = max(interval_s, self._look_s / _LOOKING_SHARE)

    # --- what acts

    def _wake(self) -> None:
        self._poke.set()

    async def _drive(self, remote: Remote) -> None:
        """Run cycles when they are due, until the root is paused."""
        await self._tried_to_watch.wait()  # the first one looks at everything
        while not self._paused:
            if self._pacer.due_s <= trio.current_time():
                await self._cycle(remote)
                continue
            self._rest()
            with trio.move_on_at(self._pacer.due_s):
                await self._poke.wait()
            self._poke = trio.Event()

    def _rest(self) -> None:
        """Show that nothing runs."""
        if self.live.phase in {"idle", "quiet"}:
            self._show("quiet" if self._work else "idle")
        else:
            self._refresh()

    async def _cycle(self, remote: Remote) -> None:
        began_s = trio.current_time()
        everything = self._pacer.began(began_s)
        work, self._work = self._work, Work()
        if everything:
            work |= ALL
        self._show("working", "looking at everything" if work.local.everything else "")
        before_bytes = resident_bytes()
        result, detail, report = await self._run(remote, work)
        await trio.to_thread.run_sync(give_back, before_bytes)
        now_s = trio.current_time()
        if result is not CycleResult.DONE:
            self._work = work | self._work  # the next cycle looks there, too
        self._pacer.ended(result, now_s, now_s - began_s, self._around.draw(), was_everything=everything)
        self._log.info(
            "watch.cycle", outcome=result.value, detail=detail, full=work.local.everything, **_figures(report)
        )
        counts = report.counts() if report is not None else self.live.last
        has_changed = report is not None and any(counts.get(key) for key in CHANGES)
        if work.local.everything and report is not None and not (has_changed or report.bytes_read_local):
            self._look_s = report.seconds
        synced = self._around.wall_s() if result in THROUGH else self.live.synced
        self.live = structs.replace(
            self.live,
            cycles=self.live.cycles + 1,
            last=counts,
            changed=counts if has_changed else self.live.changed,
            moving="",
            progress={},
            synced=synced,
        )
        self._around.ended(result, detail, 0 if report is None else report.conflicts)
        self._show(_PHASES[result], detail)

    async def _run(self, remote: Remote, work: Work) -> tuple[CycleResult, str, Report | None]:
        """One cycle; its errors as a result."""
        try:
            report = await self.ports.cycle(remote, work, self._moving)
        except trio.Cancelled:
            raise
        except BaseExceptionGroup as group:
            error: BaseException = first_error(group)
            if not isinstance(error, Exception):
                raise
        except Exception as single:  # noqa: BLE001 - a bug that one root's files bring out must not stop the others
            error = single
        else:
            failed = len(report.failures)
            return (CycleResult.PARTLY, f"{failed} not synced", report) if failed else (CycleResult.DONE, "", report)
        result, detail = _judge(error)
        if not isinstance(error, EXPECTED):
            self._log.error("watch.bug", exc_info=error)
        return result, detail, None

    # --- what shows

    def _moving(self, path: str, progress: dict[str, int]) -> None:
        self.live = structs.replace(self.live, moving=path, progress=progress)
        self._around.told()

    def _show(self, phase: Phase, detail: str = "") -> None:
        if (phase, detail) != (self.live.phase, self.live.detail):
            self.live = structs.replace(self.live, phase=phase, detail=detail, since=self._around.wall_s())
        self._refresh()

    def _refresh(self) -> None:
        local, source = self._work.local, self._source
        due_s = self._pacer.due_s
        self.live = structs.replace(
            self.live,
            degraded=[text for text in (self._local_problem, self._remote_problem) if text is not None],
            watching=source.kind if source is not None else "nothing",
            dirty=-1 if local.everything else len(local),
            next=None if math.isinf(due_s) else self._around.wall_s() + due_s - trio.current_time(),
        )
        self._around.told()


def _judge(error: BaseException) -> tuple[CycleResult, str]:
    """What an error means for the next cycle, and how it is told."""
    match error:
        case SafetyStopError() | RolledBackError() | HeadsMissingError():
            return CycleResult.CONSENT, str(error)
        case RootIdentityError():
            return CycleResult.ROOT_AWAY, str(error)
        case RemoteUnavailableError() | AuthError():
            return CycleResult.SERVER_AWAY, str(error)
        case LockedError():
            return CycleResult.BUSY, str(error)
        case SyncerError() | BlockfsError() | OSError():
            return CycleResult.BROKEN, said(error)
        case _:
            return CycleResult.BROKEN, f"internal error: {type(error).__name__}: {error} (please report it)"


def _figures(report: Report | None) -> dict[str, int | float]:
    """What of a report goes to the log: what is not 0."""
    return {} if report is None else {key: value for key, value in report.counts().items() if value}
