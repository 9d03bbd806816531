"""What those see who look after a real daemon: by HTTP, by a command, by notices; and what nobody else sees."""

from __future__ import annotations

import http.client
import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from syncer.cli.registry.roots import Registry
from tests.integration.syncing import Sync
from tests.integration.watching import Watching, watching

NOBODY = 65534


@pytest.fixture
def root(sync: Sync) -> Path:
    return sync.folder("one")


@pytest.fixture
def daemon(sync: Sync, root: Path) -> Iterator[Watching]:
    with watching(sync.home / "watch.log") as running:
        running.until_root(root, "idle")
        yield running


def port_of(sync: Sync) -> int:
    (line,) = sync("ui", "--json", "--listen", "127.0.0.1:0")
    port = urlsplit(str(line["link"])).port
    assert port
    return port


def ask(port: int, path: str, **headers: str) -> tuple[int, str]:
    """As Prometheus does: by address, without a session."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_figures_of_a_daemon_by_its_page_and_by_the_command(daemon: Watching, sync: Sync, root: Path) -> None:
    (root / "secret-plans.txt").write_bytes(b"x")
    daemon.until(lambda live: live.roots[0].changed.get("pushed", 0) == 1)
    daemon.until_root(root, "idle")
    port = port_of(sync)
    assert ask(port, "/healthz") == (200, "ok\n")
    assert ask(port, "/metrics")[0] == 401
    token_file = Path(Registry(os.environ).metrics_token)
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    status, text = ask(port, "/metrics", Authorization=f"Bearer {token_file.read_text().strip()}")
    assert status == 200
    sync("status", "--metrics")
    for figures in (text, sync.out):
        assert f'blocksync_root_state{{root="{root}",state="' in figures
        assert f'blocksync_root_synced_timestamp_seconds{{root="{root}"}} 1' in figures
        assert "secret-plans" not in figures
    assert "blocksync_lan_roots" in text
    for more in (("--json",), (root,), ("--follow",)):
        sync("status", "--metrics", *more, expect=2)


def test_figures_of_a_daemon_without_its_page(sync: Sync, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a port that `config.toml` names: sums for everybody, all for who has the token, and no page."""
    config = sync.home / "config/blocksync/config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(sync.home / "config"))
    config.parent.mkdir(parents=True)
    config.write_text('[metrics]\nlisten = "127.0.0.1:0"\n')
    log = sync.home / "watch.log"
    with watching(log) as daemon:
        daemon.until_root(root, "idle")
        port = opened_at(log)
        assert ask(port, "/healthz") == (200, "ok\n")
        status, sums = ask(port, "/metrics")
        assert status == 200
        assert 'blocksync_watch_roots{state="idle"} 1.0' in sums
        assert "blocksync_watch_synced_roots 1.0" in sums
        assert str(root) not in sums
        token = Path(Registry(os.environ).metrics_token).read_text().strip()
        status, figures = ask(port, "/metrics", Authorization=f"Bearer {token}")
        assert f'blocksync_root_state{{root="{root}",state="' in figures
        assert ask(port, "/metrics", Authorization="Bearer x")[0] == 401
        assert ask(port, "/")[0] == 404
        assert ask(port, "/healthz", Host=f"evil.example:{port}")[0] == 421
    with pytest.raises(ConnectionRefusedError):  # it ends with the daemon
        ask(port, "/healthz")


def opened_at(log: Path) -> int:
    """The port that a daemon has told its log; the log grows until it has."""
    follow = ["tail", "-n", "+1", "-f", log]
    with subprocess.Popen(follow, stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        line = next(line for line in tail.stdout if '"metrics.opened"' in line)
        tail.terminate()
    port = urlsplit(json.loads(line)["address"]).port
    assert port
    return port


def test_without_a_daemon_there_are_no_figures(sync: Sync, root: Path) -> None:
    sync("status", "--metrics", expect=10)
    assert "no `blocksync watch` is running" in sync.err
    assert sync.out == ""


def test_another_user_of_the_machine_sees_a_word_and_nothing_else(daemon: Watching, sync: Sync) -> None:
    """With all that is his: the port, and the paths, which he can guess."""
    port, registry = port_of(sync), Registry(os.environ)
    program = f"""
import http.client, os, socket
def ask(path, **headers):
    line = http.client.HTTPConnection("127.0.0.1", {port}, timeout=60)
    line.request("GET", path, headers=headers)
    return line.getresponse().status
def refused(act):
    try:
        act()
    except PermissionError:
        return True
print(ask("/healthz"), ask("/metrics"), ask("/metrics", Authorization="Bearer x"), ask("/"), ask("/events"))
print(refused(lambda: open({registry.metrics_token!r})), refused(lambda: open({registry.notices!r})))
os.chdir({os.path.dirname(registry.socket)!r})  # a socket's path has 107 bytes at most
print(refused(lambda: socket.socket(socket.AF_UNIX).connect({os.path.basename(registry.socket)!r})))
"""
    own = Path(registry.socket).parent
    assert own.stat().st_mode & 0o077 == 0
    for folder in own.parents:  # what pytest made for root alone would hide what is tested
        if folder.stat().st_uid == os.getuid() and folder.is_relative_to("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    own.chmod(0o755)  # each file by itself must be closed, too
    ended = subprocess.run(
        ["/usr/bin/python3", "-c", program],
        user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.stdout.splitlines() == ["200 401 401 421 421", "True True", "True"], ended.stderr


def test_a_safety_stop_is_told_once_by_a_command_of_the_users(
    sync: Sync, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, config = tmp_path / "told", tmp_path / "config/blocksync/config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    os.mkfifo(told)
    config.parent.mkdir(parents=True)
    script = f'printf "%s %s\\n" "$BLOCKSYNC_NOTICE" "$BLOCKSYNC_NOTICE_ROOT" >{told}'
    config.write_text(f"[notify]\ncommand = ['/bin/sh', '-c', '{script}']\n")
    for number in range(20):
        (root / str(number)).write_bytes(b"%d" % number)
    sync("reconcile", root)
    log = sync.home / "watch.log"
    with watching(log) as daemon:
        daemon.until_root(root, "idle")
        for number in range(15):
            (root / str(number)).unlink()
        assert told.read_text() == f"safety-stop {root}\n"
        daemon.until_root(root, "consent")
    with watching(log) as daemon:
        daemon.until_root(root, "consent")
    assert sum('"notice"' in line for line in log.read_text().splitlines()) == 1
