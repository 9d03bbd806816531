"""`blocksync trash` on folders and volumes: what a sync deletes and replaces can be had back."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.syncing import Sync, content, deleted_and_replaced, in_conflict


def test_what_a_sync_took_away_is_listed_and_restored_and_syncs_like_a_users_file(
    sync: Sync, roots: tuple[Path, Path]
) -> None:
    first, second = roots
    deleted_and_replaced(sync, roots)
    lines = sync("trash", "ls", second, "--json")
    assert sorted((line["path"], line["kind"], line["size_bytes"], line["why"]) for line in lines) == [
        ("d/edited", "file", 9, "replaced"),
        ("d/gone", "file", 11, "deleted"),
        ("d/link", "symlink", 0, "deleted"),
    ]
    assert all(line["expires"] > line["deleted"] for line in lines)
    sync("trash", "restore", second / "d/gone")
    sync("trash", "restore", second / "d/edited", "--to", second / "d/edited.old")
    sync("trash", "restore", second / "d/link")
    for root in (second, first):
        sync.reconcile(root)
    assert content(first) == content(second) == {
        "d": "folder",
        "d/edited": b"version 2 of it",
        "d/edited.old": b"version 1",
        "d/gone": b"was deleted",
        "d/link": "-> gone",
    }  # fmt: skip
    assert sync("trash", "ls", second, "--json") == []
    sync.at_rest(*roots)


def test_restoring_overwrites_nothing_and_says_what_to_do(sync: Sync, roots: tuple[Path, Path]) -> None:
    _, second = roots
    deleted_and_replaced(sync, roots)
    sync("trash", "restore", second / "d/edited", expect=2)
    assert "restoring never overwrites" in sync.err
    assert "--to" in sync.err
    sync("trash", "restore", second / "d/nothing", expect=10)
    sync("trash", "restore", second / "d", expect=10)
    assert "2 versions" in sync.err or "3 versions" in sync.err
    sync("trash", "restore", second, expect=2)
    sync("trash", "restore", "/nowhere", expect=10)
    (line,) = [line for line in sync("trash", "ls", second, "--json") if line["path"] == "d/gone"]
    sync("trash", "restore", second, "--entry", line["id"], "--to", second / "new/place/back")
    assert (second / "new/place/back").read_bytes() == b"was deleted"
    entry = second / ".blocksync/trash/1760000000-0000002a"  # as an earlier release named it
    entry.mkdir()
    (entry / "item").write_bytes(b"old")
    (entry / "origin").symlink_to("old")
    sync("trash", "ls", second)
    heading, *rows = [line.split()[-2:] for line in sync.out.splitlines()[1:]]
    assert heading == ["why", "path"]
    assert sorted(rows) == [["-", "old"], ["deleted", "d/link"], ["replaced", "d/edited"]]


def test_a_version_can_be_restored_to_the_root_itself(sync: Sync, roots: tuple[Path, Path]) -> None:
    _, second = roots
    deleted_and_replaced(sync, roots)
    sync("trash", "restore", second / "d/gone", "--to", second)
    assert (second / "gone").read_bytes() == b"was deleted"


@pytest.mark.parametrize("verb", [["explain"], ["resolve", "--take", "both"]])
def test_a_root_is_not_said_to_lie_in_no_root(sync: Sync, roots: tuple[Path, Path], verb: list[str]) -> None:
    first, _ = roots
    sync(*verb, first, expect=10)
    assert f"{first} is a linked root" in sync.err


def test_an_entry_that_is_later_than_every_date_is_listed(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, _ = roots
    sync("reconcile", first)
    entry = first / ".blocksync/trash/99999999999999999999-00000001"
    entry.mkdir()
    (entry / "item").write_bytes(b"x")
    (entry / "origin").symlink_to("late")
    (line,) = sync("trash", "ls", first, "--json")
    assert (line["path"], line["deleted"]) == ("late", "9999-12-31T23:59:59+00:00")
    sync("trash", "ls", first)
    assert "late" in sync.out


def test_what_makes_way_for_its_conflict_copy_was_deleted_by_nobody(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, second = roots
    copy = in_conflict(sync, roots)
    mine = copy.read_bytes()
    (first / "d/report.txt").unlink()
    for root in roots:
        sync.reconcile(root)
    (first / "d/report.txt").write_bytes(b"another one of the other device")
    sync.reconcile(first)
    (second / "d/report.txt").write_bytes(mine)
    sync.reconcile(second, expect=4)
    assert content(second) == {
        "d": "folder",
        "d/report.txt": b"another one of the other device",
        f"d/{copy.name}": mine,
    }
    told = sync("trash", "ls", second, "--json")
    assert [line["why"] for line in told] == ["doubled", "deleted", "replaced"]
    assert told[0]["path"] == "d/report.txt"  # not where it was parked meanwhile


def test_emptying_takes_what_is_old_enough_and_settled(
    sync: Sync, roots: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second = roots
    deleted_and_replaced(sync, roots)
    sync("trash", "empty", second, "--older-than", "1h")
    assert len(sync("trash", "ls", second, "--json")) == 3
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 120)  # the minute in which somebody may still write to them
    sync("trash", "empty", second)
    assert "deleted 3 versions" in sync.err
    assert sync("trash", "ls", second, "--json") == []
    assert os.listdir(second / ".blocksync/trash") == []
    assert content(second) == {"d": "folder", "d/edited": b"version 2 of it"}


@pytest.mark.parametrize("restored", [False, True])
def test_what_was_just_deleted_or_replaced_does_not_come_back_in_a_copy_of_the_root(sync: Sync, restored: bool) -> None:
    """As docs/guide/moving-a-root.md says it; the copy's inodes are others than the trash expects."""
    first, second = sync.folder("first"), sync.folder("second")
    deleted_and_replaced(sync, (first, second))
    expected = content(second)
    copy = second.with_name("copy")
    subprocess.run(["cp", "-a", second, copy], check=True)
    if restored:
        second.rename(second.with_name("old"))
        copy.rename(second)
        copy = second
        sync("reconcile", copy, expect=18)
        sync("link", copy, sync.url, sync.opens, sync.token_file, "--relink")
    else:
        sync("unlink", second)
        sync("link", copy, sync.url, sync.opens, sync.token_file)
    sync.reconcile(copy)
    sync.reconcile(first)
    assert content(copy) == content(first) == expected
    assert all(line["settled"] for line in sync("trash", "ls", copy, "--json"))
    assert len(sync("trash", "ls", copy, "--json")) == 3
    sync.at_rest(copy, first)


def test_retention_is_a_roots_own_and_ends_in_a_cycle(
    sync: Sync, roots: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = roots
    deleted_and_replaced(sync, roots)
    sync("link", second, sync.url, "--token-file", sync.token_file, "--keep-trash", "7d")
    now, day = time.time(), 24 * 3600
    for days in range(1, 9):
        monkeypatch.setattr(time, "time", lambda days=days: now + days * day)
        sync.reconcile(second)
        assert len(sync("trash", "ls", second, "--json")) == (0 if days >= 7 else 3), days
    sync("link", first, sync.url, "--token-file", sync.token_file, "--keep-trash", "7", expect=2)


def test_emptying_beside_a_cycle_leaves_what_the_cycle_may_work_on(
    sync: Sync, roots: tuple[Path, Path], tmp_path: Path
) -> None:
    """A cycle holds the lock: pending entries are its business."""
    from syncer.state.statedb import StateDB  # noqa: PLC0415 - only here

    _, second = roots
    deleted_and_replaced(sync, roots)
    pending = [line for line in sync("trash", "ls", second, "--json") if not line["settled"]]
    (state,) = [
        folder
        for folder in (tmp_path / "state/blocksync/roots").iterdir()
        if (folder / "root.json").read_text().find(f'"{second}"') > 0
    ]
    with StateDB.open(str(state)):
        sync("trash", "empty", second)
    assert len(sync("trash", "ls", second, "--json")) == len(pending)
