"""Notices on a desktop's bus: libnotify's `notify-send`, a bus of its own, and a service standing for the desktop."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from syncer.watch.notices.events import Notify
from syncer.watch.notices.notifier import Notifier
from syncer.watch.pacing import CycleResult

SERVICE = """[D-BUS Service]
Name=org.freedesktop.Notifications
Exec=/usr/bin/python3 -m dbusmock --template notification_daemon --logfile {log}
"""


@contextmanager
def desktop(home: Path, log: Path) -> Iterator[str]:
    """The address of a session's bus, which starts the service when it is first called, as desktops do."""
    folder = home / "dbus-1/services"
    folder.mkdir(parents=True)
    (folder / "org.freedesktop.Notifications.service").write_text(SERVICE.format(log=log))
    words = ["dbus-daemon", "--session", "--nofork", "--print-address"]
    environment = {"PATH": os.environ["PATH"], "XDG_DATA_HOME": str(home)}
    with subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            commands = Path("/proc").glob("[0-9]*/cmdline")
            started = [os.pidfd_open(int(each.parent.name)) for each in commands if os.fsencode(log) in command(each)]
            process.terminate()
            for service in started:  # it ends when there is no bus any more
                select.select([service], [], [])
                os.close(service)


def test_a_desktop_shows_what_a_root_waits_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    os.mkfifo(log)
    with desktop(tmp_path / "data", log) as bus:
        environment = {"PATH": os.environ["PATH"], "DBUS_SESSION_BUS_ADDRESS": bus}
        notifier = Notifier(lambda: Notify(desktop=True), str(tmp_path / "kept"), lambda: 1.8e9, environment)

        async def scenario() -> str:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(notifier.run)
                notifier.follow("u1", b"/home/me/-u<b>", paused=False)
                notifier.ended("u1", CycleResult.CONSENT, "would delete all", 0)
                shown = await trio.to_thread.run_sync(first_call, log)
                nursery.cancel_scope.cancel()
            return shown

        shown = trio.run(scenario)
    assert ' Notify "blocksync" ' in shown
    assert '"urgency": 2' in shown  # critical
    assert "<b>" not in shown


def first_call(log: Path) -> str:
    """The first notice that the service was asked to show."""
    with log.open() as file:
        return next(line for line in file if " Notify " in line)


def command(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it has ended
