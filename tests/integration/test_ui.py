"""`blocksync ui`: the real daemon, its page's process, and who asks it over a socket."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from syncer.cli.registry.roots import Registry
from tests.integration.syncing import Sync
from tests.integration.watching import Watching, watching

ANY = ("--listen", "127.0.0.1:0")


class Visitor:
    """A browser's part of HTTP, by hand: one connection for each request."""

    def __init__(self, link: str) -> None:
        found = urlsplit(link)
        assert found.hostname
        assert found.port
        self.host, self.port = f"{found.hostname}:{found.port}", found.port
        self.cookie = ""
        status, headers, _ = self.ask("GET", f"{found.path}?{found.query}")
        assert status == 200
        self.cookie = headers["set-cookie"].partition(";")[0]

    def ask(self, method: str, path: str, body: str = "", **headers: str) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            sent = {"Host": self.host, "Cookie": self.cookie, **headers}
            connection.request(method, path, body.encode(), sent)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
        finally:
            connection.close()

    def form(self, path: str, fields: dict[str, str] | None = None) -> tuple[int, dict[str, str], str]:
        found = re.search(r'name="proof" value="([^"]+)"', self.ask("GET", "/")[2])
        assert found
        body = urlencode({"proof": found[1], **(fields or {})})
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.ask("POST", path, body, Origin=f"http://{self.host}", **kind)

    def events(self, path: str) -> Iterator[dict[str, str]]:
        """What the page is told, until the test has seen enough."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path, headers={"Host": self.host, "Cookie": self.cookie})
            answer = connection.getresponse()
            assert answer.status == 200
            while line := answer.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))
        finally:
            connection.close()


@pytest.fixture
def root(sync: Sync) -> Path:
    return sync.folder("one")


@pytest.fixture
def daemon(sync: Sync, root: Path) -> Iterator[Watching]:
    with watching(sync.home / "watch.log") as running:
        running.until_root(root, "idle")
        yield running


def link_of(sync: Sync, *options: str) -> str:
    (line,) = sync("ui", "--json", *options)
    return str(line["link"])


def uuid_of(root: Path) -> str:
    return Registry(os.environ).get(os.fsencode(root)).record.uuid


def test_the_page_loads_no_library_of_command_lines_and_of_processes(sync: Sync) -> None:
    """1.7 MB of the 30 that it may take. Its process ends at once: nobody can ask for a link."""
    program = "import sys; from syncer.cli.ui import child; child.main('127.0.0.1:0', only_figures=False)"
    loaded = "print(*sorted({'click', 'multiprocessing', 'trio', 'starlette'} & set(sys.modules)))"
    command = [sys.executable, "-c", f"{program}; {loaded}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
    ready, modules = done.stdout.splitlines()
    assert '"listen":"127.0.0.1:' in ready
    assert modules == "starlette"


def test_without_a_daemon_it_says_what_to_start(sync: Sync, root: Path) -> None:
    sync("ui", expect=10)
    assert "`blocksync watch`" in sync.err
    sync("ui", "--close", expect=10)


def test_who_does_not_ask_for_the_page_has_no_port_open(daemon: Watching, sync: Sync) -> None:
    def listening() -> list[str]:
        """Ports that the daemon and its children listen at, by the kernel."""
        told = subprocess.run(["ss", "-Htlnp"], capture_output=True, text=True, check=True).stdout.splitlines()
        children = Path(f"/proc/{daemon.process.pid}/task").glob("*/children")
        pids = [str(daemon.process.pid), *(pid for found in children for pid in found.read_text().split())]
        return [line for line in told if any(f"pid={pid}," in line for pid in pids)]

    assert listening() == []
    assert link_of(sync, *ANY)
    assert 1 <= len(listening()) <= 2  # at each address of the loopback
    sync("ui", "--close")
    assert listening() == []


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:8801", "example.org:80", "[::]:0", "127.0.0.1", ":1"])
def test_nobody_else_can_reach_it(daemon: Watching, sync: Sync, address: str) -> None:
    sync("ui", "--listen", address, expect=2)
    assert "--listen" in sync.err


def test_a_port_that_is_in_use_is_told(daemon: Watching, sync: Sync) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        sync("ui", "--listen", f"127.0.0.1:{other.getsockname()[1]}", expect=11)
    assert link_of(sync, *ANY)


def test_no_other_user_gets_the_link_at_the_other_loopback(daemon: Watching, sync: Sync) -> None:
    """A browser takes the page's name for `::1` first, then for 127.0.0.1."""
    visitor = Visitor(link_of(sync, *ANY))
    for host, family in (("::1", socket.AF_INET6), ("::", socket.AF_INET6), ("0.0.0.0", socket.AF_INET)):
        with pytest.raises(OSError, match="in use"):
            socket.create_server((host, visitor.port), family=family).close()
    with socket.create_connection(("::1", visitor.port)) as connection:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: {visitor.host}\r\n\r\n".encode())
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 403 ")


def test_pause_and_resume_by_the_page_are_those_of_the_commands(daemon: Watching, sync: Sync, root: Path) -> None:
    visitor = Visitor(link_of(sync, *ANY))
    place = f"/root/{uuid_of(root)}"
    assert visitor.form(f"{place}/pause")[0] == 303
    daemon.until_root(root, "paused")
    assert sync("status", root, "--json")[0]["paused"]
    (root / "file").write_bytes(b"1")
    assert visitor.form(f"{place}/resume")[0] == 303
    daemon.until(lambda live: live.roots[0].changed.get("pushed", 0) == 1)
    assert "1 pushed" in visitor.ask("GET", place)[2]


def test_the_page_is_told_when_something_happens(daemon: Watching, sync: Sync, root: Path) -> None:
    visitor, card = Visitor(link_of(sync, *ANY)), f"card-{uuid_of(root)}"
    events = visitor.events("/events")
    assert "In step" in next(events)[card]
    (root / "file").write_bytes(b"1")
    assert next(event for event in events if "1 pushed" in event.get(card, ""))
    sync("pause", root)
    assert next(event for event in events if "Paused" in event.get(card, ""))


def test_a_safety_stop_is_shown_and_agreed_to(daemon: Watching, sync: Sync, root: Path) -> None:
    for number in range(20):
        (root / str(number)).write_bytes(b"%d" % number)
    daemon.until(lambda live: live.roots[0].changed.get("pushed", 0) == 20 and live.roots[0].phase == "idle")
    for number in range(15):
        (root / str(number)).unlink()
    daemon.until_root(root, "consent")
    visitor, place = Visitor(link_of(sync, *ANY)), f"/root/{uuid_of(root)}"
    text = ""
    while "Carry out this plan" not in text:  # the page asks again, too, until the plan is made
        status, _, text = visitor.ask("GET", f"{place}/plan")
        assert status == 200
    digest = re.search(r'name="digest" value="(\w+)"', text)
    assert digest
    assert "agree to 15 deletions on the server" in text
    assert visitor.form(f"{place}/consent", {"digest": digest[1], "agreed": "yes"})[0] == 303
    daemon.until(lambda live: live.roots[0].phase == "idle")
    events = visitor.events(f"/events?root={uuid_of(root)}")
    assert next(event for event in events if "It was carried out." in event.get("details", ""))
    assert sync("plan", root, "--json")[0]["actions"] == []


def test_closing_signs_everybody_out_and_frees_the_port(daemon: Watching, sync: Sync) -> None:
    visitor = Visitor(link_of(sync, *ANY))
    sync("ui", "--close")
    assert f"http://{visitor.host}/" in sync.err
    with pytest.raises(ConnectionRefusedError):
        visitor.ask("GET", "/")
    anew = Visitor(link_of(sync, "--listen", f"127.0.0.1:{visitor.port}"))
    assert anew.host != visitor.host
    assert visitor.ask("GET", "/")[0] == 421  # of another name, with a cookie of before
    visitor.host = anew.host
    assert visitor.ask("GET", "/")[0] == 403


def test_the_page_ends_with_the_daemon_whatever_ends_it(daemon: Watching, sync: Sync) -> None:
    visitor = Visitor(link_of(sync, *ANY))
    events = visitor.events("/events")
    next(events)
    daemon.kill()
    assert list(events)[-1:] != [None]  # the stream ends, because the process does
    with pytest.raises(ConnectionRefusedError):
        visitor.ask("GET", "/")


def test_silent_connections_lock_nobody_out(daemon: Watching, sync: Sync) -> None:
    visitor = Visitor(link_of(sync, *ANY))
    silent = [socket.create_connection(("127.0.0.1", visitor.port)) for _ in range(100)]
    try:
        assert visitor.ask("GET", "/")[0] == 200
    finally:
        for each in silent:
            each.close()


def test_a_browser_is_shown_a_file_and_not_the_link(
    daemon: Watching, sync: Sync, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody can read the command lines of everybody's processes, and a link opens once."""
    told = tmp_path / "told"
    os.mkfifo(told)
    opener = tmp_path / "xdg-open"
    opener.write_text(f'#!/bin/sh\necho "$1" > {told}\n')
    opener.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (line,) = sync("ui", "--open", "--json", *ANY)
    assert line["link"] is None
    shown = Path(told.read_text().strip())
    assert shown.stat().st_mode & 0o077 == 0
    found = re.search(r"url=([^\"]+)", shown.read_text())
    assert found
    assert Visitor(found[1]).ask("GET", "/")[0] == 200
