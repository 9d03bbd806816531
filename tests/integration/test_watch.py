"""`blocksync watch` as a process: real folders, real inotify, a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncer.cli.registry.roots import Registry
from tests.integration.syncing import BLOCKSYNC, Sync, content, server, set_home
from tests.integration.watching import Watching, root_of, watching

AT_REST = ("idle",)


@pytest.fixture
def pair(sync: Sync) -> tuple[Path, Path]:
    return sync.folder("one"), sync.folder("two")


@pytest.fixture
def daemon(sync: Sync, pair: tuple[Path, Path]) -> Iterator[Watching]:
    with watching(sync.home / "watch.log") as running:
        for root in pair:
            running.until_root(root, *AT_REST)
        yield running


def test_changes_travel_both_ways_and_then_there_is_rest(daemon: Watching, pair: tuple[Path, Path]) -> None:
    one, two = pair
    (one / "folder").mkdir()
    (one / "folder" / "file").write_bytes(b"first")
    daemon.until_there(two / "folder" / "file", b"first")
    (two / "folder" / "file").write_bytes(b"second")
    daemon.until_there(one / "folder" / "file", b"second")
    (one / "folder").rename(one / "renamed")
    daemon.until_there(two / "renamed" / "file", b"second")
    (one / "renamed" / "file").unlink()
    daemon.until(lambda _: not (two / "renamed" / "file").exists())
    daemon.until(lambda live: all(root.phase == "idle" and not root.dirty for root in live.roots))
    assert content(one) == content(two)


def test_a_file_that_stays_open_is_pushed_all_the_same(sync: Sync, pair: tuple[Path, Path]) -> None:
    one, two = pair
    sync("link", one, sync.url, "--token-file", sync.token_file, "--open-files-interval", "2s")
    with (one / "image").open("wb", buffering=0) as file:
        file.write(b"first")
        with watching(sync.home / "watch.log") as daemon:
            daemon.until_there(two / "image", b"first")
            file.seek(0)
            file.write(b"later")  # of which inotify says nothing
            daemon.until_there(two / "image", b"later")


@pytest.mark.parametrize("watcher", ["inotify", "watchdog"])
def test_both_watchers_serve(sync: Sync, pair: tuple[Path, Path], watcher: str) -> None:
    one, two = pair
    with watching(sync.home / "watch.log", "--watcher", watcher) as daemon:
        live = daemon.until_root(one, *AT_REST)
        assert live.watching == watcher
        (one / "file").write_bytes(b"1")
        daemon.until_there(two / "file", b"1")


def test_a_killed_daemon_leaves_nothing_behind_that_stops_the_next(sync: Sync, pair: tuple[Path, Path]) -> None:
    one, two = pair
    for number in range(200):
        (one / f"{number}").write_bytes(b"%d" % number * 1000)
    with watching(sync.home / "watch.log") as daemon:
        # In the middle of a cycle of either root. (If this machine is so fast that none was seen: after the last.)
        daemon.until(lambda live: any(root.moving for root in live.roots) or content(one) == content(two))
        daemon.kill()
    (one / "0").write_bytes(b"edited while nobody watched")
    with watching(sync.home / "watch.log") as daemon:
        daemon.until(lambda _: content(one) == content(two))
        assert daemon.stop() == 0
    sync.at_rest(one, two)
    # Pushed and killed before that was recorded, then edited: both sides are new to the base, and both are kept.
    assert b"edited while nobody watched" in content(two).values()
    assert len(content(two)) <= 201


def test_a_server_that_is_away_is_told_and_used_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_home(tmp_path, monkeypatch)
    store = tmp_path / "store"
    with server(store) as address:
        sync = Sync(tmp_path, address, store / "token", capsys)
        root = sync.folder("one")
    with watching(tmp_path / "watch.log") as daemon:
        (root / "file").write_bytes(b"1")
        assert "127.0.0.1" in daemon.until_root(root, "retrying").detail
        with server(store, listen=address.removeprefix("http://")):
            daemon.until_root(root, *AT_REST)
            sync.at_rest(root)


def test_a_root_that_vanishes_is_away_and_nothing_is_deleted(
    daemon: Watching, sync: Sync, pair: tuple[Path, Path]
) -> None:
    one, two = pair
    (one / "file").write_bytes(b"1")
    daemon.until_there(two / "file", b"1")
    one.rename(sync.home / "aside")
    one.mkdir()  # as an unmounted disk leaves it
    assert "not the one that was linked" in daemon.until_root(one, "away").detail
    (two / "other").write_bytes(b"2")  # the other root goes on
    daemon.until(lambda live: root_of(live, two).changed.get("pushed", 0) == 1)
    assert (two / "file").read_bytes() == b"1"
    one.rmdir()
    (sync.home / "aside").rename(one)
    daemon.until_there(one / "other", b"2")


def test_many_deletions_wait_for_a_person_and_the_other_root_goes_on(
    daemon: Watching, sync: Sync, pair: tuple[Path, Path]
) -> None:
    one, two = pair
    for number in range(20):
        (one / f"{number}").write_bytes(b"%d" % number)
    daemon.until_there(two / "19", b"19")
    daemon.until(lambda live: content(one) == content(two) and all(root.phase == "idle" for root in live.roots))
    sync("pause", two)
    for path in one.iterdir():
        if path.name != ".blocksync":
            path.unlink()
    live = daemon.until_root(one, "consent")
    assert len(content(two)) == 20
    digest = live.detail.rpartition(" ")[2]
    sync("reconcile", one, "--allow-deletes", digest)
    sync("resume", two)
    daemon.until_root(one, *AT_REST)
    # The other device has its own guard against losing everything.
    daemon.until_root(two, "consent")
    assert len(content(two)) == 20


def test_pause_survives_a_restart(sync: Sync, pair: tuple[Path, Path]) -> None:
    one, two = pair
    sync("pause", one)
    (one / "file").write_bytes(b"1")
    with watching(sync.home / "watch.log") as daemon:
        daemon.until_root(one, "paused")
        (line,) = (row for row in sync("status", "--json") if row["root"] == str(one))
        assert line["paused"]
        assert line["watch"]["phase"] == "paused"
        sync("resume", one)
        daemon.until_there(two / "file", b"1")


def test_there_is_one_daemon_and_reconcile_finds_its_turn(
    daemon: Watching, sync: Sync, pair: tuple[Path, Path]
) -> None:
    sync("watch", expect=11)
    sync("pause")
    daemon.until(lambda live: all(root.phase == "paused" for root in live.roots))
    (pair[0] / "file").write_bytes(b"1")
    assert sync.reconcile(pair[0])["pushed"] == 1
    sync("resume")
    daemon.until_there(pair[1] / "file", b"1")


def test_what_is_linked_later_is_watched_and_what_is_unlinked_is_not(
    daemon: Watching, sync: Sync, pair: tuple[Path, Path]
) -> None:
    third = sync.folder("three")
    (third / "file").write_bytes(b"3")
    daemon.until_there(pair[0] / "file", b"3")
    sync("unlink", third)
    daemon.until(lambda live: len(live.roots) == 2)


def test_status_follows_the_daemon(daemon: Watching, pair: tuple[Path, Path]) -> None:
    process = subprocess.Popen([BLOCKSYNC, "status", "--follow", "--json", pair[0]], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert (first["type"], first["root"], first["phase"]) == ("live", str(pair[0]), "idle")
    (pair[0] / "file").write_bytes(b"1")
    phases = iter(json.loads(line)["phase"] for line in process.stdout)
    assert next(phase for phase in phases if phase != "idle") in {"quiet", "working"}
    process.terminate()
    process.wait()
    process.stdout.close()


def test_status_follows_as_text_into_a_pipe_at_once(daemon: Watching, pair: tuple[Path, Path]) -> None:
    """Breaks when nothing comes out before the end: `status --follow | grep …` would never say anything."""
    process = subprocess.Popen([BLOCKSYNC, "status", "--follow", pair[0]], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith(f"{pair[0]}  idle  ")
    (pair[0] / "file").write_bytes(b"1")
    lines = iter(process.stdout.readline, "")  # each as it comes, and until the end, which must not come
    assert any(line.split("  ")[1] in {"quiet", "working"} for line in lines)
    assert any(line.split("  ")[1] == "idle" for line in lines)
    assert process.poll() is None
    process.terminate()
    process.wait()
    process.stdout.close()


def test_sighup_reads_again_what_is_linked(daemon: Watching, pair: tuple[Path, Path]) -> None:
    Registry(os.environ).get(os.fsencode(pair[0])).pause(paused=True)  # nobody tells the daemon
    daemon.process.send_signal(signal.SIGHUP)
    daemon.until_root(pair[0], "paused")


def test_sigterm_ends_it_cleanly(daemon: Watching) -> None:
    assert daemon.stop() == 0
    assert not os.path.exists(daemon.socket)
