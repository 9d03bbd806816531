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
from tests.integration.syncing import Sync, server, set_home
from tests.integration.watching import OF_DAYS, Watching, root_of, watching

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


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipe to which the command that `config.toml` names writes each notice: three lines."""
    told, config = tmp_path / "told", tmp_path / "config/blocksync/config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    os.mkfifo(told)
    config.parent.mkdir(parents=True)
    values = '"$BLOCKSYNC_NOTICE" "$BLOCKSYNC_NOTICE_ROOT" "$BLOCKSYNC_NOTICE_TEXT"'
    config.write_text(f"[notify]\ncommand = ['/bin/sh', '-c', 'printf \"%s\\n\" {values} >{told}']\n")
    return told


def notices_in(log: Path) -> int:
    """How many a daemon has given to its command."""
    return sum('"notice"' in line for line in log.read_text().splitlines())


def test_a_safety_stop_is_told_once_by_a_command_of_the_users(sync: Sync, root: Path, told: Path) -> None:
    for number in range(20):
        (root / str(number)).write_bytes(b"%d" % number)
    sync("reconcile", root)
    log = sync.home / "watch.log"
    with watching(log) as daemon:
        daemon.until_root(root, "idle")
        for number in range(15):
            (root / str(number)).unlink()
        kind, where, text = told.read_text().splitlines()
        assert (kind, where) == ("safety-stop", str(root))
        assert f"blocksync reconcile {root} --allow-deletes" in text
        daemon.until_root(root, "consent")
    with watching(log) as daemon:
        daemon.until_root(root, "consent")
    assert notices_in(log) == 1


def test_conflicts_are_told_by_a_command_of_the_users(sync: Sync, root: Path, told: Path) -> None:
    """Those of one cycle in one notice."""
    other, names = sync.folder("other"), ("report.txt", "plan.txt")
    for where, text in ((root, b"both know this"), (root, b"mine"), (other, b"another device's")):
        for name in names:
            (where / name).write_bytes(text)
        if text != b"mine":  # which the daemon finds
            sync("reconcile", where)
        if where is root:
            sync("reconcile", other)
    log = sync.home / "watch.log"
    with watching(log, root) as daemon:
        assert told.read_text().splitlines() == [
            "conflicts",
            str(root),
            f"{root}: 2 conflict copies were made; `blocksync conflicts` lists them",
        ]
        daemon.until_root(root, "idle")
        for name in names:
            assert sorted(path.read_bytes() for path in root.glob(f"{name[:4]}*")) == [b"another device's", b"mine"]
    assert notices_in(log) == 1


def test_a_root_that_has_not_synced_for_a_day_is_told_once_by_a_command_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], told: Path
) -> None:
    set_home(tmp_path, monkeypatch)
    store, log = tmp_path / "store", tmp_path / "watch.log"
    with server(store) as address:
        sync = Sync(tmp_path, address, store / "token", capsys)
        root = sync.folder("one")
    with watching(log, program=OF_DAYS) as daemon:
        with server(store, listen=address.removeprefix("http://")):
            daemon.until_root(root, "idle")
        (root / "file").write_bytes(b"of today")
        daemon.until_root(root, "retrying")
        daemon.pass_a_day()
        kind, where, text = told.read_text().splitlines()
        assert (kind, where) == ("unsynced", str(root))
        assert text.startswith(f"{root}: it has not synced for 1 day: ")
        assert "127.0.0.1" in text  # why: the server's address is in it
        before = daemon.until_root(root, "retrying").cycles
        daemon.pass_a_day()
        daemon.until(lambda live: root_of(live, root).cycles > before)
    assert notices_in(log) == 1
