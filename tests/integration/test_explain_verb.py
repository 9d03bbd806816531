"""`blocksync explain`: what is here, there, agreed; the rule; what failed; on folders and volumes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.integration.syncing import Sync, content
from tests.integration.watching import watching


def explained(sync: Sync, path: Path) -> dict[str, Any]:
    (found,) = sync("explain", path, "--json")
    assert (found["type"], found["version"]) == ("explanation", 1)
    return found


def test_states_rule_and_plan_of_what_changed_here_or_there(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, second = roots
    (first / "d").mkdir()
    for name in ("d/mine", "d/theirs", "d/both", "d/moved"):
        (first / name).write_bytes(name.encode())
    for root in roots:
        sync.reconcile(root)
    calm = explained(sync, first / "d/mine")
    assert (calm["local_change"], calm["remote_change"], calm["actions"]) == ("unchanged", "unchanged", [])
    assert calm["next_retry"] is calm["last_failure"] is None
    assert calm["local"]["object_hash"] == calm["base"]["object_hash"] == calm["remote"]["object_hash"]
    assert calm["remote"]["evidence"]["uuid"]

    (second / "d/theirs").write_bytes(b"changed there")
    (second / "d/both").write_bytes(b"changed on both")
    (second / "d/moved").rename(second / "moved")
    (second / "new").write_bytes(b"new")
    sync.reconcile(second)
    (first / "d/mine").write_bytes(b"changed here")
    (first / "d/both").write_bytes(b"changed on both, too")
    before = content(first)
    mine = explained(sync, first / "d/mine")
    assert (mine["local_change"], mine["rule"]) == ("edited", "changed here only: the content is pushed")
    assert [(action["side"], action["action"]) for action in mine["actions"]] == [("remote", "update")]
    assert "next cycle" in mine["next_retry"]
    theirs = explained(sync, first / "d/theirs")
    assert (theirs["remote_change"], theirs["remote"]["size_bytes"]) == ("edited", 13)
    for path in ("d/moved", "moved"):
        moved = explained(sync, first / path)
        assert (moved["remote_change"], moved["local"]["path"], moved["remote"]["path"]) == (
            "moved",
            "d/moved",
            "moved",
        )
        assert moved["actions"][0]["from"] == "d/moved"
    assert "conflict" in explained(sync, first / "d/both")["rule"]
    new = explained(sync, first / "new")
    assert (new["local"], new["base"], new["remote_change"]) == (None, None, "new")
    sync("explain", first / "d/both")
    assert "conflict copy" in sync.out
    assert content(first) == before
    sync("explain", first / "nothing", expect=10)
    sync("explain", first / ".blocksync/trash", expect=2)
    sync("explain", "/nowhere", expect=10)


def test_what_can_not_be_synced_says_why_and_since_when(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, _ = roots
    with open(os.path.join(os.fsencode(first), b"bad\xff"), "wb"):
        pass
    os.mkfifo(first / "pipe")
    sync.reconcile(first, expect=3)
    (bad,) = sync("explain", os.path.join(os.fsencode(first), b"bad\xff"), "--json")
    assert bad["path"] == "bad\\xff"
    assert "not UTF-8" in bad["left_alone"]
    assert "not UTF-8" in bad["last_failure"]["text"]
    assert bad["last_failure"]["since"]
    assert "next cycle" in bad["next_retry"]
    pipe = explained(sync, first / "pipe")
    assert pipe["tracked"] is False
    assert "is not synced" in pipe["notes"][0]
    (first / ".blocksyncignore").write_text("*.tmp\n")
    (first / "a.tmp").write_bytes(b"")
    assert "*.tmp" in explained(sync, first / "a.tmp")["notes"][0]


def test_it_works_beside_a_cycle_that_holds_the_lock(sync: Sync, roots: tuple[Path, Path]) -> None:
    from syncer.cli.registry.roots import Registry  # noqa: PLC0415
    from syncer.state.statedb import StateDB  # noqa: PLC0415

    first, _ = roots
    (first / "file").write_bytes(b"new")
    with StateDB.open(Registry(os.environ).get(os.fsencode(first)).state):
        assert f"process {os.getpid()}" in explained(sync, first / "file")["next_retry"]
        sync("plan", first)


def test_a_daemon_says_when_it_tries_again(sync: Sync, tmp_path: Path) -> None:
    root = sync.folder("first")
    with open(os.path.join(os.fsencode(root), b"bad\xff"), "wb"):
        pass
    bad = os.path.join(os.fsencode(root), b"bad\xff")
    sync("explain", bad)
    assert "not running for this root" in sync.out
    with watching(tmp_path / "log", root) as daemon:
        daemon.until_root(root, "idle", "retrying")
        (found,) = sync("explain", bad, "--json")
        assert "daemon" in found["next_retry"] or "at work" in found["next_retry"]
        sync("pause", root)
        daemon.until_root(root, "paused")
        (found,) = sync("explain", bad, "--json")
        assert "the daemon waits (paused" in found["next_retry"]
