"""How a user is told: by programs that run for real, in a queue that holds nobody up."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from syncer.errors import UsageError
from syncer.watch.notices.events import SAVE_S, UNSYNCED_S, Kind, Notify
from syncer.watch.notices.notifier import _DESKTOP, LOOK_S, MAX_WAITING, TIMEOUT_S, Notifier
from syncer.watch.pacing import CycleResult

ROOT = b"/home/me/caf\xe9"
TELL = """
import json, os, sys
found = {
    "notice": os.environ["BLOCKSYNC_NOTICE"],
    "root": os.environb[b"BLOCKSYNC_NOTICE_ROOT"].hex(),
    "text": os.environ["BLOCKSYNC_NOTICE_TEXT"],
    "stdin": sys.stdin.read(),
    "arguments": sys.argv[2:],
    "folder": os.getcwd(),
}
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
"""


class Stage:
    """A notifier, what is set, and a pipe through which its command speaks."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.kept = folder / "notices.json"
        self.pipe = folder / "pipe"
        os.mkfifo(self.pipe)
        self.notify = Notify(command=(sys.executable, "-c", TELL, str(self.pipe), *arguments))
        self.error: Exception | None = None
        self._stops = 0
        self.wall_s = 1_800_000_000.0
        self.notifier = self.new()

    def new(self) -> Notifier:
        return Notifier(self.settings, str(self.kept), lambda: self.wall_s, dict(os.environ))

    def settings(self) -> Notify:
        if self.error is not None:
            raise self.error
        return self.notify

    def follow(self) -> None:
        self.notifier.follow("u1", ROOT, paused=False)

    def stop(self, why: str = "stop") -> None:
        """A safety stop of a root of its own: each is told at once."""
        self._stops += 1
        uuid = f"s{self._stops}"
        self.notifier.follow(uuid, ROOT, paused=False)
        self.notifier.ended(uuid, CycleResult.CONSENT, why, 0)

    async def heard(self) -> dict[str, object]:
        return json.loads(await trio.to_thread.run_sync(self.pipe.read_text))  # type: ignore[no-any-return]


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what a process or a thread does; the clock stands meanwhile."""
    while not is_so():
        await trio.to_thread.run_sync(os.sched_yield)


def played(act: Callable[[trio.Nursery], object], clock: MockClock | None = None) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await act(nursery)  # type: ignore[misc]
            nursery.cancel_scope.cancel()

    trio.run(main, clock=clock or MockClock())


def test_the_command_gets_the_very_bytes_and_no_shell_sees_them(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "$(touch hit)", ";", "--", "'\"")

    async def scenario(nursery: trio.Nursery) -> None:
        stage.follow()
        nursery.start_soon(stage.notifier.run)
        stage.stop("would delete `$(reboot)`")
        heard = await stage.heard()
        assert bytes.fromhex(str(heard["root"])) == ROOT
        assert heard["notice"] == "safety-stop"
        assert heard["text"] == "/home/me/caf\\xe9: would delete `$(reboot)`"
        assert heard["stdin"] == f"{heard['text']}\n"
        assert heard["arguments"] == ["$(touch hit)", ";", "--", "'\""]
        assert heard["folder"] == "/"

    played(scenario)


def test_a_command_that_never_ends_is_killed_with_its_children_and_the_next_one_runs(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    tell = stage.notify
    stage.notify = Notify(command=("/bin/sh", "-c", f"sleep 1000 & echo $! >{stage.pipe}; wait"))

    async def scenario(nursery: trio.Nursery) -> None:
        stage.follow()
        nursery.start_soon(stage.notifier.run)
        stage.stop()
        child = int(await trio.to_thread.run_sync(stage.pipe.read_text))
        descriptor = os.pidfd_open(child)
        stage.notify = tell
        stage.stop()
        clock.jump(TIMEOUT_S)
        assert (await stage.heard())["notice"] == "safety-stop"
        await trio.lowlevel.wait_readable(descriptor)  # it has ended
        os.close(descriptor)

    clock = MockClock()
    with capture_logs() as logs:
        played(scenario, clock)
    assert "it did not end within 30 s" in {log.get("reason") for log in logs}


def test_roots_wait_for_no_command_and_the_queue_has_an_end(tmp_path: Path) -> None:
    """`ended` is no coroutine: it can't wait. What can't be told for long is dropped, the oldest first."""
    stage = Stage(tmp_path)

    async def scenario(_nursery: trio.Nursery) -> None:
        stage.follow()
        for number in range(MAX_WAITING + 5):
            stage.stop(f"stop {number}")
        waiting = stage.notifier._waiting
        assert [len(waiting), waiting[0].text, waiting[-1].text] == [
            MAX_WAITING,
            "/home/me/caf\\xe9: stop 5",
            f"/home/me/caf\\xe9: stop {MAX_WAITING + 4}",
        ]

    played(scenario)


@pytest.mark.parametrize(
    ("command", "reason"), [("/nowhere/program", "No such file"), ("/bin/false", "it ended with 1"), ("/", "denied")]
)
def test_what_goes_wrong_is_in_the_log_and_nothing_else_happens(tmp_path: Path, command: str, reason: str) -> None:
    stage = Stage(tmp_path)
    tell = stage.notify

    async def scenario(nursery: trio.Nursery) -> None:
        stage.follow()
        stage.notify = Notify(command=(command,))
        nursery.start_soon(stage.notifier.run)
        stage.stop()
        await until(lambda: any(log["event"] == "notice.not_told" for log in logs))
        stage.notify = tell
        stage.stop()
        assert (await stage.heard())["notice"] == "safety-stop"

    with capture_logs() as logs:
        played(scenario)
    assert reason in str([log for log in logs if log["event"] == "notice.not_told"])


def test_a_config_that_makes_no_sense_costs_notices_only(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def scenario(nursery: trio.Nursery) -> None:
        stage.follow()
        stage.error = UsageError("config.toml: notify.comand: there is no such key")
        nursery.start_soon(stage.notifier.run)
        stage.stop()
        await until(lambda: "notify.comand" in str(logs))
        stage.error = None
        stage.stop()
        assert (await stage.heard())["notice"] == "safety-stop"

    with capture_logs() as logs:
        played(scenario)


def test_the_desktop_is_told_without_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a name gets onto a command line, which every user of the machine can read."""
    program, pipe = tmp_path / "bin/notify-send", tmp_path / "pipe"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{pipe}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    stage = Stage(tmp_path)
    stage.notify = Notify(desktop=True)

    async def scenario(nursery: trio.Nursery) -> None:
        stage.notifier.follow("u2", b"-u<b>&", paused=False)
        nursery.start_soon(stage.notifier.run)
        stage.notifier.ended("u2", CycleResult.DONE, "", 1)
        told = (await trio.to_thread.run_sync(pipe.read_text)).splitlines()
        assert told[-3:] == [
            "--",
            "blocksync: conflicts",
            "Conflict copies were made. `blocksync conflicts` lists them.",
        ]
        assert "<b>" not in str(told)

    played(scenario)


def test_a_day_is_noticed_without_a_cycle_and_kept_for_the_next_daemon(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def scenario(nursery: trio.Nursery) -> None:
        stage.follow()
        nursery.start_soon(stage.notifier.run)
        await until(stage.kept.exists)
        stage.wall_s += UNSYNCED_S
        clock.jump(UNSYNCED_S)
        # No jump after that: the command, which begins then, would be killed.
        while b'"is_told":true' not in stage.kept.read_bytes():
            clock.jump(LOOK_S)
            await trio.to_thread.run_sync(os.sched_yield)
        assert (await stage.heard())["notice"] == Kind.UNSYNCED.value
        assert stat.S_IMODE(stage.kept.stat().st_mode) == 0o600
        stage.notifier = stage.new()
        stage.follow()
        clock.jump(UNSYNCED_S)
        stage.notifier.ended("u1", CycleResult.SERVER_AWAY, "", 0)
        assert not stage.notifier._waiting

    clock = MockClock()
    played(scenario, clock)


def test_a_record_that_is_mended_is_told_of_by_its_roots_path(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def scenario(_nursery: trio.Nursery) -> None:
        stage.notifier.follow("u1", b"/state/roots/u1/root.json", paused=False)
        stage.follow()
        stage.notifier.ended("u1", CycleResult.CONSENT, "stop", 0)
        assert [notice.root for notice in stage.notifier._waiting] == [ROOT]

    played(scenario)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"u1":1}', b"\xff", b"[" * 100_000])
def test_what_was_told_may_be_lost_and_nothing_more(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "notices.json").write_bytes(content)
    stage = Stage(tmp_path)

    async def scenario(_nursery: trio.Nursery) -> None:
        stage.follow()
        stage.stop()
        assert len(stage.notifier._waiting) == 1

    played(scenario)


def test_times_alone_are_written_down_once_an_hour(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    writes = []

    async def scenario(nursery: trio.Nursery) -> None:
        stage.follow()
        nursery.start_soon(stage.notifier.run)
        for _ in range(int(2 * SAVE_S / LOOK_S)):
            await wait_all_tasks_blocked(0.001)
            stage.wall_s += LOOK_S
            stage.notifier.ended("u1", CycleResult.DONE, "", 0)
            clock.jump(LOOK_S)
            writes.append(stage.kept.stat().st_ino if stage.kept.exists() else None)

    clock = MockClock()
    played(scenario, clock)
    assert len(set(writes)) <= 4


def test_the_desktop_has_words_for_each_kind() -> None:
    assert set(_DESKTOP) == set(Kind)
