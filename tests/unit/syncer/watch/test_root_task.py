"""One root's task with fakes under a clock that jumps: events in, cycles out."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from syncer.core.model import NO_META, Kind, Position, RelPath
from syncer.engine.report import Failure, Report
from syncer.errors import LockedError, RemoteUnavailableError, RootIdentityError, SafetyStopError
from syncer.ports.remote import Remote
from syncer.watch.dirt import CLEAN, EVERYTHING, Dirt
from syncer.watch.pacing import BLIND_RESCAN_S, MAX_QUIET_S, MIN_QUIET_S, RESCAN_S
from syncer.watch.root_task import RootTask, Surroundings
from syncer.watch.source import SourceLostError
from syncer.watch.work import Moving, Work
from tests.contract.writing import put_small
from tests.fakes.memory import MemoryClient, MemoryContainer

HERE = RelPath(b"here")


class FakeSource:
    """Delivers what a test says."""

    kind = "fake"

    def __init__(self) -> None:
        self.problem: str | None = None
        self.arm_error: Exception | None = None
        self.dirt: Dirt = CLEAN
        self.lost: str | None = None
        self.closed = False
        self._event = trio.Event()

    def arm(self) -> None:
        if self.arm_error is not None:
            raise self.arm_error

    async def wait(self) -> None:
        while not self.dirt:
            if self.lost is not None:
                raise SourceLostError(self.lost)
            await self._event.wait()
            self._event = trio.Event()

    def take(self) -> Dirt:
        found, self.dirt = self.dirt, CLEAN
        return found

    def close(self) -> None:
        self.closed = True

    def put(self, *paths: bytes, everything: bool = False) -> None:
        self.dirt |= EVERYTHING if everything else Dirt(directories=frozenset(map(RelPath, paths)))
        self._event.set()

    def lose(self, reason: str) -> None:
        self.lost = reason
        self._event.set()


class FakeRemote(MemoryClient):
    """Whoever waits does so until a test says something."""

    def __init__(self) -> None:
        super().__init__(MemoryContainer())
        self.send, self._receive = trio.open_memory_channel[Exception | None](100)

    async def wait(self, seen: Position | None) -> Position:
        found = await self._receive.receive()
        if found is not None:
            raise found
        return self.container.cursor.position


class FakePorts:
    """Remembers when which cycle ran, and ends it as a test says."""

    uuid = "uuid"
    path = b"/root"

    def __init__(self) -> None:
        self.open_files_interval_s: float | None = None
        self.sources: list[FakeSource] = [FakeSource()]
        self.fed = FakeRemote()
        self.cycles: list[tuple[float, Work]] = []
        self.outcomes: deque[Exception | Report] = deque()
        self.seconds = 0.0
        self.open = Work()

    @property
    def local(self) -> FakeSource:
        return self.sources[-1]

    def source(self) -> FakeSource:
        if self.sources[-1].closed:
            self.sources.append(FakeSource())
        return self.sources[-1]

    def connect(self) -> Remote:
        return self.fed

    async def open_files(self) -> Work:
        return self.open

    async def cycle(self, remote: Remote, work: Work, moving: Moving) -> Report:
        self.cycles.append((trio.current_time(), work))
        await trio.sleep(self.seconds)
        ended = self.outcomes.popleft() if self.outcomes else Report(seconds=self.seconds)
        if isinstance(ended, Exception):
            raise ended
        return ended


class Stage:
    """A running task; time stands still unless a test lets it pass."""

    def __init__(self, ports: FakePorts, task: RootTask, clock: MockClock) -> None:
        self.ports = ports
        self.task = task
        self._clock = clock

    async def settle(self) -> None:
        """Let everybody do what can be done now; arming and closing happen in threads."""
        while True:
            await wait_all_tasks_blocked(0.001)
            if self.task.ports is self.ports and not trio.to_thread.current_default_thread_limiter().borrowed_tokens:
                return

    async def after(self, seconds: float) -> None:
        await self.settle()  # what happened before happened before
        self._clock.jump(seconds)
        await self.settle()

    @property
    def phase(self) -> str:
        return self.task.live.phase

    @property
    def works(self) -> list[Work]:
        return [work for _, work in self.ports.cycles]


def staged(
    scenario: Callable[[Stage], Awaitable[None]], ports: FakePorts | None = None, *, paused: bool = False
) -> None:
    async def main() -> None:
        clock = cast("MockClock", trio.lowlevel.current_clock())
        made = ports or FakePorts()
        around = Surroundings(draw=lambda: 1.0, wall_s=trio.current_time, told=lambda: None)
        task = RootTask(made, around, paused=paused)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(task.run)
            stage = Stage(made, task, clock)
            await stage.settle()
            await scenario(stage)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock())


def test_a_start_looks_at_everything_and_then_rests() -> None:
    async def scenario(stage: Stage) -> None:
        assert [work.local.everything for work in stage.works] == [True]
        assert stage.phase == "idle"
        await stage.after(RESCAN_S - 1)
        assert len(stage.works) == 1
        await stage.after(1)
        assert [work.local.everything for work in stage.works] == [True, True]

    staged(scenario)


def test_the_first_cycle_waits_until_the_root_is_watched() -> None:
    class Slow(FakeSource):
        def __init__(self) -> None:
            super().__init__()
            self.go = threading.Event()

        def arm(self) -> None:
            self.go.wait()

    async def main() -> None:
        ports, source = FakePorts(), Slow()
        ports.sources = [source]
        ports.fed.send.send_nowait(None)  # the server is asked meanwhile
        around = Surroundings(draw=lambda: 1.0, wall_s=trio.current_time, told=lambda: None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(RootTask(ports, around).run)
            await wait_all_tasks_blocked(0.001)
            assert ports.cycles == []
            source.go.set()
            while not ports.cycles:
                await wait_all_tasks_blocked(0.001)
            assert ports.cycles[0][1].local.everything
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_change_is_acted_on_after_quiet_and_names_its_directory() -> None:
    async def scenario(stage: Stage) -> None:
        stage.ports.local.put(HERE)
        await stage.settle()
        assert stage.phase == "quiet"
        assert stage.task.live.dirty == 1
        await stage.after(MIN_QUIET_S)
        assert stage.works[1:] == [Work(local=Dirt(directories=frozenset({HERE})))]
        assert stage.phase == "idle"

    staged(scenario)


def test_a_steady_stream_of_changes_is_acted_on_all_the_same() -> None:
    async def scenario(stage: Stage) -> None:
        began = trio.current_time()
        while len(stage.works) == 1:
            stage.ports.local.put(HERE)
            await stage.after(MIN_QUIET_S / 2)
        assert stage.ports.cycles[1][0] - began <= MAX_QUIET_S + MIN_QUIET_S / 2

    staged(scenario)


def test_the_servers_change_starts_a_cycle_of_the_other_side_only() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.ports.fed.send.send(None)
        await stage.after(MIN_QUIET_S)
        assert stage.works[1:] == [Work(remote=True)]

    staged(scenario)


def test_a_change_right_after_the_start_is_heard_like_any_other() -> None:
    """Breaks when the task listens to the server only some time after it has begun to watch."""

    class Telling(FakePorts):
        client = MemoryClient(MemoryContainer())

        def connect(self) -> Remote:
            return self.client

    async def scenario(stage: Stage) -> None:
        await stage.after(MIN_QUIET_S)
        cycles = len(stage.works)
        await put_small(MemoryClient(Telling.client.container), HERE, Kind.DIRECTORY, b"", NO_META, None)
        await stage.after(MIN_QUIET_S)
        assert stage.works[cycles:] == [Work(remote=True)]

    staged(scenario, Telling())


def test_lost_events_are_made_up_for_within_a_second() -> None:
    async def scenario(stage: Stage) -> None:
        stage.ports.local.put(everything=True)
        await stage.after(1.0)
        assert stage.works[1].local.everything

    staged(scenario)


def test_a_server_that_is_away_is_waited_for_and_its_return_is_used_at_once() -> None:
    async def scenario(stage: Stage) -> None:
        ports = stage.ports
        await ports.fed.send.send(RemoteUnavailableError("no route"))
        await stage.settle()
        assert stage.task.live.degraded == ["no route"]
        ports.outcomes.append(RemoteUnavailableError("no route"))
        ports.local.put(HERE)
        await stage.after(MIN_QUIET_S)
        assert (stage.phase, len(ports.cycles)) == ("retrying", 2)
        ports.fed.send.send_nowait(None)
        await stage.after(1.0 - MIN_QUIET_S)
        await stage.after(MIN_QUIET_S)
        assert len(ports.cycles) == 3
        assert ports.cycles[2][1] == Work(local=Dirt(directories=frozenset({HERE})), remote=True)
        assert stage.phase == "idle"
        assert stage.task.live.degraded == []

    staged(scenario)


def test_what_a_failed_cycle_was_to_look_at_is_looked_at_by_the_next() -> None:
    async def scenario(stage: Stage) -> None:
        stage.ports.outcomes.append(LockedError("the state", 1))
        stage.ports.local.put(HERE)
        await stage.after(MIN_QUIET_S)
        await stage.after(1.0)
        assert [work.local.directories for work in stage.works[1:]] == [{HERE}, {HERE}]

    staged(scenario)


def test_a_root_that_is_away_is_looked_for_and_then_looked_at_completely() -> None:
    async def scenario(stage: Stage) -> None:
        ports = stage.ports
        ports.outcomes.append(RootIdentityError("the folder", "root", "nothing"))
        ports.local.lose("unmounted")
        await stage.settle()
        assert stage.phase == "away"
        await stage.after(1.0)
        assert stage.phase == "idle"
        assert stage.works[-1].local.everything
        assert len(ports.sources) == 2

    staged(scenario)


def test_a_root_that_cannot_be_watched_is_looked_at_now_and_then() -> None:
    ports = FakePorts()
    ports.sources[0].problem = "too many directories"

    async def scenario(stage: Stage) -> None:
        assert stage.task.live.degraded == ["too many directories"]
        await stage.after(BLIND_RESCAN_S)
        assert [work.local.everything for work in stage.works] == [True, True]

    staged(scenario, ports)


def test_a_safety_stop_waits_for_consent_and_other_changes_are_planned_again() -> None:
    async def scenario(stage: Stage) -> None:
        stage.ports.outcomes.append(SafetyStopError("digest", 2000, "too many"))
        stage.ports.local.put(HERE)
        await stage.after(MIN_QUIET_S)
        assert stage.phase == "consent"
        assert "digest" in stage.task.live.detail
        await stage.after(600)
        assert len(stage.works) == 2
        stage.ports.local.put(b"there")
        await stage.after(MIN_QUIET_S)
        assert stage.works[2].local.directories == {HERE, b"there"}
        assert stage.phase == "idle"

    staged(scenario)


def test_what_could_not_be_synced_is_tried_again_by_a_look_at_everything() -> None:
    async def scenario(stage: Stage) -> None:
        stage.ports.outcomes.append(Report(failures=[Failure(path=b"x", reason="locked")]))
        stage.ports.local.put(HERE)
        await stage.after(MIN_QUIET_S)
        assert (stage.phase, stage.task.live.detail) == ("retrying", "1 not synced")
        await stage.after(1.0)
        assert [work.local.everything for work in stage.works] == [True, False, True]
        assert stage.phase == "idle"

    staged(scenario)


def test_a_bug_that_a_root_brings_out_is_told_and_the_task_goes_on() -> None:
    async def scenario(stage: Stage) -> None:
        stage.ports.outcomes.append(ZeroDivisionError("oops"))
        stage.ports.local.put(HERE)
        await stage.after(MIN_QUIET_S)
        assert "ZeroDivisionError" in stage.task.live.detail
        await stage.after(1.0)
        assert stage.phase == "idle"

    staged(scenario)


def test_a_paused_root_is_left_alone_and_a_resumed_one_looked_at_completely() -> None:
    async def scenario(stage: Stage) -> None:
        stage.task.pause(paused=True)
        await stage.settle()
        assert stage.phase == "paused"
        assert stage.ports.local.closed
        await stage.after(2 * RESCAN_S)
        assert len(stage.works) == 1
        stage.task.pause(paused=False)
        await stage.settle()
        assert [work.local.everything for work in stage.works] == [True, True]
        assert stage.phase == "idle"

    staged(scenario)


def test_a_root_may_be_paused_from_the_start() -> None:
    async def scenario(stage: Stage) -> None:
        assert (stage.phase, stage.works) == ("paused", [])

    staged(scenario, paused=True)


def test_open_files_are_pushed_from_a_snapshot_now_and_then() -> None:
    ports = FakePorts()
    ports.open_files_interval_s = 600.0

    async def scenario(stage: Stage) -> None:
        await stage.after(600)
        assert len(stage.works) == 1
        ports.open = Work(from_snapshot=True)
        await stage.after(600)
        await stage.after(MIN_QUIET_S)
        assert [work.from_snapshot for work in stage.works] == [False, True]

    staged(scenario, ports)


def test_a_folder_whose_open_files_cant_be_asked_for_is_looked_at_as_often_as_that_costs_little() -> None:
    ports = FakePorts()
    ports.open_files_interval_s = 600.0
    ports.open = Work(local=EVERYTHING)
    ports.seconds = 2.0

    async def scenario(stage: Stage) -> None:
        await stage.after(2)  # the first look ends
        await stage.after(598)
        await stage.after(MAX_QUIET_S)
        assert [work.local.everything for work in stage.works] == [True, True]
        await stage.after(2)
        await stage.after(990)  # 2 s are 0.2 % of 1000
        await stage.after(MAX_QUIET_S)
        assert len(stage.works) == 2
        await stage.after(10)
        await stage.after(MAX_QUIET_S)
        assert [work.local.everything for work in stage.works] == [True, True, True]

    staged(scenario, ports)


def test_what_a_cycle_reads_and_moves_is_no_reason_to_look_less_often() -> None:
    """Breaks when a first sync of an hour keeps an open file from being pushed for the rest of the day."""
    ports = FakePorts()
    ports.open_files_interval_s = 600.0
    ports.open = Work(local=EVERYTHING)
    ports.seconds = 599.0
    ports.outcomes += [Report(seconds=599.0, pushed=1), Report(seconds=1.0, bytes_read_local=1)]

    async def scenario(stage: Stage) -> None:
        await stage.after(599)
        ports.seconds = 1.0
        for looks in (2, 3):
            await stage.after(1 if looks == 2 else 600)
            await stage.after(MAX_QUIET_S)
            await stage.after(1)
            assert len(stage.works) == looks

    staged(scenario, ports)


def test_a_person_need_not_wait() -> None:
    async def scenario(stage: Stage) -> None:
        stage.ports.outcomes.append(RemoteUnavailableError("no route"))
        stage.ports.local.put(HERE)
        await stage.after(MIN_QUIET_S)
        stage.task.expedite()
        await stage.settle()
        assert [work.local.everything for work in stage.works] == [True, False, True]

    staged(scenario)
