"""`make demo`, as a newcomer runs it: what it says at its end, what it keeps if asked to, and that all of it goes."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from scripts.demo import Machines, keep_open
from tests import effort
from tests.kit.hostfs import run, umount
from tests.kit.netns import available

FRONTENDS = ("kernel",)


def demo(home: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "scripts.demo"],
        env={**os.environ, "TMPDIR": str(home), "UI": "", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def assert_nothing_is_left(home: Path) -> None:
    assert not list(home.iterdir())
    assert f"{home}/" not in Path("/proc/self/mounts").read_text()
    assert not [each for each in Path("/proc").glob("[0-9]*/cmdline") if f"{home}/".encode() in command(each)]


def command(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it has ended


def without_room(home: Path) -> None:
    """It says so at once, and what to do."""
    run("mount", "-t", "tmpfs", "-o", "size=64m", "none", home)
    try:
        program = demo(home)
        told, _ = program.communicate()
        assert program.returncode == 17
        assert "are needed; set TMPDIR" in told
        assert_nothing_is_left(home)
    finally:
        umount(home)


def whole(home: Path) -> None:
    """All that it promises, a neighbour included; the last line but one says how to look at it."""
    program = demo(home)
    told, _ = program.communicate()
    assert program.returncode == 0, told
    *_, hint, last = told.splitlines()
    assert "`make demo UI=1`" in hint
    assert last.startswith("demo: ok (")
    assert ("from the server" in told) == available()
    assert_nothing_is_left(home)


def kept(home: Path) -> None:
    """UI=1 leaves it there with a page on it, until it is told to take it away."""
    program = demo(home, UI="1")
    assert program.stdout is not None
    told: list[str] = []
    for line in program.stdout:
        told.append(line)
        if line.rstrip().endswith("away"):  # in one line or two
            break
    links = [line.strip() for line in told if line.startswith("http://")]
    assert len(links) == 1, "".join(told)
    found = urlsplit(links[0])
    connection = http.client.HTTPConnection("127.0.0.1", found.port or 0, timeout=60)
    connection.request("GET", f"{found.path}?{found.query}", headers={"Host": f"{found.hostname}:{found.port}"})
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.headers["Set-Cookie"]
    connection.close()
    program.send_signal(signal.SIGTERM)
    rest, _ = program.communicate()
    assert rest.splitlines()[-1].startswith(("demo: ok (", "demo: interrupted"))  # it waited already, or not yet
    assert_nothing_is_left(home)


WAYS: list[Callable[[Path], None]] = [without_room, kept, whole]


@pytest.mark.parametrize("way", effort.first("demo", WAYS), ids=lambda way: way.__name__)
def test_the_demo(fuse: None, tmp_path: Path, way: Callable[[Path], None]) -> None:
    way(tmp_path)


def test_on_a_terminal_enter_takes_it_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`kept` has no terminal: there it is a signal."""
    ours, its = os.openpty()
    machines = Machines(tmp_path)
    monkeypatch.setattr(machines, "watch", lambda: "http://127.0.0.1:1/open?key=x")
    said: list[str] = []
    monkeypatch.setattr("scripts.demo.say", said.append)
    with os.fdopen(its) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        os.write(ours, b"\n")
        keep_open(machines)
    os.close(ours)
    assert said[-1].endswith("Enter takes all of it away")
