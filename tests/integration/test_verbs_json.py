"""JSON lines of the verbs that change something: what was done, and to what."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from syncer.cli.registry.roots import Registry
from tests.integration.syncing import BLOCK, Sync, content, deleted_and_replaced, in_conflict
from tests.integration.watching import watching


def uuid_of(root: Path) -> str:
    return Registry(os.environ).get(os.fsencode(root)).record.uuid


def test_link_says_what_is_linked_and_unlink_what_was(sync: Sync, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    url = ("link", root, sync.url, "--token-file", sync.token_file, "--json")
    for more, again, merges in (((), False, True), ((), True, False), (("--relink",), True, True)):
        (line,) = sync(*url, *more)
        assert line == {
            "type": "link", "version": 1, "root": str(root), "uuid": uuid_of(root), "url": sync.url,
            "kind": "folder", "block_size": BLOCK, "again": again, "merges": merges,
        }  # fmt: skip
        assert not sync.err
    uuid = uuid_of(root)
    (line,) = sync("unlink", root, "--json")
    assert line == {"type": "unlink", "version": 1, "root": str(root), "uuid": uuid, "url": sync.url}
    (line,) = sync("unlink", root, "--json", expect=10)
    assert (line["type"], line["root"], line["exit_code"]) == ("error", None, 10)
    assert "is not linked" in line["message"]
    assert "is not linked" in sync.err


def test_pause_and_resume_tell_each_root_and_whether_a_daemon_knows(sync: Sync, tmp_path: Path) -> None:
    assert sync("pause", "--json") == [{"type": "summary", "version": 1, "roots": 0, "daemon": False}]
    one, two = sync.folder("one"), sync.folder("two")
    lines = sync("pause", "--json")
    assert [(line["type"], line["root"], line["uuid"], line["paused"]) for line in lines[:-1]] == [
        ("pause", str(one), uuid_of(one), True),
        ("pause", str(two), uuid_of(two), True),
    ]
    assert lines[-1] == {"type": "summary", "version": 1, "roots": 2, "daemon": False}
    with watching(tmp_path / "watch.log") as daemon:
        daemon.until_root(one, "paused")
        line, summary = sync("resume", one, "--json")
        assert (line["type"], line["root"], line["paused"]) == ("resume", str(one), False)
        assert (summary["roots"], summary["daemon"]) == (1, True)
        daemon.until_root(one, "idle")


@pytest.mark.parametrize("take", ["local", "remote", "both"])
def test_resolve_tells_what_became_of_both(sync: Sync, roots: tuple[Path, Path], take: str) -> None:
    _, second = roots
    copy = in_conflict(sync, roots)
    (line,) = sync("resolve", copy, "--take", take, "--json")
    done = line.pop("done")
    assert done
    assert line == {
        "type": "resolve", "version": 1, "root": str(second), "path": f"d/{copy.name}", "original": "d/report.txt",
        "take": take,
    }  # fmt: skip
    assert not sync.err


def test_resolve_tells_names_of_any_bytes(sync: Sync) -> None:
    roots = sync.folder("first"), sync.folder("second")
    copy = in_conflict(sync, roots)
    for path in (copy, roots[1] / "d/report.txt"):
        path.rename(path.with_name(path.name.replace("report", os.fsdecode(b"caf\xe9"))))
    wanted = copy.with_name(copy.name.replace("report", os.fsdecode(b"caf\xe9")))
    (line,) = sync("resolve", wanted, "--take", "both", "--json")
    assert line["original"] == "d/caf\\xe9.txt"
    assert "as d/caf\\xe9 (" in line["done"]


def test_restore_tells_where_it_is(sync: Sync, roots: tuple[Path, Path]) -> None:
    _, second = roots
    deleted_and_replaced(sync, roots)
    (kept,) = [line for line in sync("trash", "ls", second, "--json") if line["path"] == "d/gone"]
    (line,) = sync("trash", "restore", second / "d/gone", "--to", second / "d/back", "--json")
    assert line == {**kept, "type": "restored", "to": "d/back"}
    assert content(second)["d/back"] == b"was deleted"
    assert not sync.err


def test_empty_tells_each_version_and_the_sum(
    sync: Sync, roots: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second = roots
    deleted_and_replaced(sync, roots)
    entry = second / ".blocksync/trash/1-1"  # as somebody's `mv` makes one
    (entry / "item").mkdir(parents=True)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 120)
    lines = sync("trash", "empty", second, "--json")
    assert sorted((line["type"], line["path"]) for line in lines[:-1]) == [
        ("emptied", "d/edited"),
        ("emptied", "d/gone"),
        ("emptied", "d/link"),
        ("kept", None),
    ]
    (kept,) = [line for line in lines if line["type"] == "kept"]
    assert kept["reason"] == "a folder that somebody put there"
    assert lines[-1] == {
        "type": "summary", "version": 1, "root": str(second), "emptied": 3, "bytes": 9 + 11, "kept": 1,
    }  # fmt: skip
    assert not sync.err
