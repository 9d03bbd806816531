"""What must stop a sync, or be told and never silently dropped; on folders and volumes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from syncer.cli.registry.roots import Registry
from syncer.state.statedb import StateDB
from syncer.watch import control
from syncer.watch.live import DaemonLive
from tests.integration.syncing import BLOCK, BLOCKSYNC, Sync, content, server, set_home


def lines(sync: Sync, root: Path, kind: str, expect: int = 0) -> list[dict[str, Any]]:
    return [line for line in sync("reconcile", root, "--json", expect=expect) if line["type"] == kind]


def many(sync: Sync, roots: tuple[Path, Path], count: int = 20) -> None:
    first, second = roots
    for number in range(count):
        (first / f"file{number:02}").write_bytes(b"%d" % number)
    sync.reconcile(first)
    sync.reconcile(second)


def digest(sync: Sync, root: Path) -> str:
    (error,) = lines(sync, root, "error", expect=16)
    return str(error["message"].split("--allow-deletes ")[1].split()[0])


def test_names_from_elsewhere_and_long_paths_are_told_as_they_can_be_read(sync: Sync, roots: tuple[Path, Path]) -> None:
    """An escape sequence would be carried out by the terminal; a path that is wrapped can't be copied or found."""
    first, _ = roots
    (first / "evil\x1b[2J\nname").write_bytes(b"x")
    (first / f"evil\x9b2J{'n' * 100}").write_bytes(b"x")
    (first / ("d" * 100)).mkdir()
    sync("reconcile", first, "--dry-run", expect=3)
    told = sync.out + sync.err
    sync("reconcile", first, expect=3)
    told += sync.out + sync.err
    sync("status", first)
    told += sync.out + sync.err
    assert "\x1b" not in told
    assert "\x9b" not in told
    assert "evil\\x1b[2J\\x0aname: the server can't hold this name" in sync.out
    assert told.count(f"\n{first}\n") + told.startswith(f"{first}\n") >= 2


def test_many_deletions_need_consent_on_the_server_and_here(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, second = roots
    many(sync, roots)
    for number in range(12):
        (first / f"file{number:02}").unlink()
    there = digest(sync, first)
    sync("reconcile", first, expect=16)
    assert sync.out == "", "figures of nothing"
    assert sync.err.strip().endswith(f"run: blocksync reconcile {first} --allow-deletes {there}")
    sync.reconcile(first, "--allow-deletes", "0123456789abcdef", expect=16)
    sync.reconcile(first, "--allow-deletes", there)
    here = digest(sync, second)
    assert len(content(second)) == 20
    sync.reconcile(second, "--allow-deletes", there, expect=16)
    sync.reconcile(second, "--allow-deletes", here)
    assert len(content(second)) == 8


def test_consent_is_for_exactly_these_deletions(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, _ = roots
    many(sync, roots)
    for number in range(12):
        (first / f"file{number:02}").unlink()
    agreed = digest(sync, first)
    assert digest(sync, first) == agreed
    (first / "unrelated").write_bytes(b"new")
    assert digest(sync, first) == agreed
    (first / "file12").unlink()
    sync.reconcile(first, "--allow-deletes", agreed, expect=16)


def test_moving_everything_is_no_deletion_but_an_emptied_root_is(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, second = roots
    many(sync, roots)
    (first / "d").mkdir()
    for number in range(20):
        (first / f"file{number:02}").rename(first / f"d/file{number:02}")
    assert sync.reconcile(first)["moved"] == 20
    assert sync.reconcile(second)["moved"] == 20
    for number in range(20):
        (first / f"d/file{number:02}").unlink()
    (first / "d").rmdir()
    (error,) = lines(sync, first, "error", expect=16)
    assert "empty" in error["message"]
    assert len(content(second)) == 21


def test_a_server_that_lost_the_last_push_is_refused_also_where_others_have_written_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_home(tmp_path, monkeypatch)
    folder, backup = tmp_path / "server", tmp_path / "backup"
    with server(folder) as address:
        sync = Sync(home=tmp_path, address=address, token_file=folder / "token", capsys=capsys, container="c")
        first, second = sync.folder("first"), sync.folder("second")
        (first / "file").write_bytes(b"old")
        sync.reconcile(first)
        sync.reconcile(second)
    shutil.copytree(folder, backup)
    listen = address.removeprefix("http://")
    with server(folder, listen=listen):
        (first / "file").write_bytes(b"newer")
        (first / "new").write_bytes(b"new")
        sync.reconcile(first)
    shutil.rmtree(folder)
    backup.rename(folder)
    with server(folder, listen=listen):
        for number in range(5):
            (second / f"other{number}").write_bytes(b"other")
            sync.reconcile(second)
        (error,) = lines(sync, first, "error", expect=18)
        assert "an older backup?" in error["message"]
        assert content(first) == {"file": b"newer", "new": b"new"}
        sync("link", first, sync.url, sync.opens, sync.token_file, "--relink")
        sync.reconcile(first, expect=4)
        sync.reconcile(second)
        assert sorted(map(str, content(first).values())) == sorted(
            map(str, [b"old", b"newer", b"new", *[b"other"] * 5])
        )
        assert content(first) == content(second)


def test_another_process_on_the_same_root_is_refused(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, _ = roots
    with StateDB.open(Registry(os.environ).get(os.fsencode(first)).state):
        sync("reconcile", first, expect=11)
        assert f"process {os.getpid()}" in sync.err
        sync("unlink", first, expect=11)


@contextmanager
def a_daemon_at_work(root: Path) -> Iterator[StateDB]:
    """This process seems to be a daemon in a cycle on `root`."""
    registry = Registry(os.environ)
    live = DaemonLive(pid=os.getpid(), started=0.0, roots=[])

    def answer() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # shut down
            with connection, connection.makefile("rb") as asked:
                reply = live if b"live" in asked.readline() else control.Done(done=True)
                connection.sendall(msgspec.json.encode(reply) + b"\n")

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        folder = os.open(os.path.dirname(registry.socket), os.O_PATH)  # the whole path may be too long for an address
        listener.bind(f"/proc/self/fd/{folder}/{os.path.basename(os.fsdecode(registry.socket))}")
        os.close(folder)
        listener.listen()
        told = threading.Thread(target=answer)
        told.start()
        try:
            with StateDB.open(registry.get(os.fsencode(root)).state) as database:
                yield database
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            told.join()
            os.unlink(registry.socket)


@pytest.mark.parametrize("verb", ["reconcile", "unlink", "link"])
def test_a_cycle_of_the_daemon_is_waited_for(sync: Sync, roots: tuple[Path, Path], verb: str) -> None:
    """A person can't know when the daemon works; another command's cycle was begun by somebody, who is told of."""
    first, _ = roots
    linking = ("link", first, sync.url, "--token-file", sync.token_file)
    words = (*linking, "--relink") if verb == "link" else (verb, first)
    with (
        a_daemon_at_work(first) as database,
        subprocess.Popen([BLOCKSYNC, *words], stderr=subprocess.PIPE, text=True) as process,
    ):
        assert process.stderr is not None
        told = process.stderr.readline()
        still_there = process.poll() is None
        database.close()
        process.communicate()
    assert told == f"waiting for the cycle of `blocksync watch` on {first}\n"
    assert still_there
    assert process.returncode == 0
    if verb == "unlink":  # as the fixture wants to find it
        sync(*linking)


def test_roots_in_each_other_are_refused(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, _ = roots
    (first / "below").mkdir()
    for nested in (first / "below", first.parent):
        sync("link", nested, sync.url + "x", "--token-file", sync.token_file, expect=2)
        assert "lie in each other" in sync.err
    sync("link", first, sync.url + "x", "--token-file", sync.token_file, expect=2)


def test_hard_links_are_told_once_and_synced_as_files(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, second = roots
    (first / "b").write_bytes(b"content")
    os.link(first / "b", first / "a")
    notes = lines(sync, first, "note")
    assert [(note["path"], "2 names" in note["text"]) for note in notes] == [("a", True)]
    sync.reconcile(second)
    assert content(second) == {"a": b"content", "b": b"content"}


def test_special_files_are_left_alone_with_a_note(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, second = roots
    os.mkfifo(first / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(first, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{here}/socket")  # a path may be longer than a socket's may be
        os.close(here)
    (first / "file").write_bytes(b"")
    notes = lines(sync, first, "note")
    assert [note["path"] for note in notes] == ["pipe", "socket"]
    assert all("is not synced" in note["text"] for note in notes)
    sync.reconcile(second)
    assert content(second) == {"file": b""}
    assert {"pipe", "socket"} <= set(os.listdir(first))


@pytest.mark.parametrize("name", [b"bad\xff", b"new\nline", b"d/\xe9t\xe9"])
def test_names_that_the_server_can_not_hold_are_told_in_every_cycle(
    sync: Sync, roots: tuple[Path, Path], name: bytes
) -> None:
    first, second = roots
    path = os.path.join(os.fsencode(first), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"precious")
    (first / "good").write_bytes(b"good")
    for _ in range(2):
        (failure,) = lines(sync, first, "failure", expect=3)
        assert "can't hold this name" in failure["reason"]
    sync.reconcile(second)
    assert content(second).get("good") == b"good"
    with open(path, "rb") as file:
        assert file.read() == b"precious"
    sync("status", first, "--json")
    assert "can't hold this name" in sync.out


@pytest.mark.parametrize("name", ["n" * 256, "a//b", "../up"])
def test_names_that_no_folder_can_hold_are_told_in_every_cycle(sync: Sync, roots: tuple[Path, Path], name: str) -> None:
    """Another client put them on the server."""
    import http.client  # noqa: PLC0415
    from urllib.parse import quote  # noqa: PLC0415

    first, _ = roots
    token = Registry(os.environ).get(os.fsencode(first)).secret()
    connection = http.client.HTTPConnection(sync.address.removeprefix("http://"), timeout=60)
    connection.request(
        "PUT",
        f"/v1/{sync.account}/{sync.container}/{quote(name, safe='')}",
        body=b"x" * BLOCK,
        headers={"X-Auth-Token": token, "Content-Type": "application/octet-stream"},
    )
    status = connection.getresponse().status
    connection.close()
    (first / "good").write_bytes(b"good")
    if status != 201:  # our own server refuses it: then there is nothing to be told
        assert status == 400
        assert lines(sync, first, "failure") == []
        return
    for _ in range(2):
        failures = lines(sync, first, "failure", expect=3)
        assert [failure["path"] for failure in failures] == [name]
    assert content(first) == {"good": b"good"}
