"""`blocksync plan` and `reconcile --plan`: what was looked at is done, or nothing is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.integration.syncing import Sync, content


def both_have(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, _ = roots
    (first / "d").mkdir()
    for name in ("d/edited", "d/moved", "gone", "kept"):
        (first / name).write_bytes(name.encode())
    (first / "link").symlink_to("kept")
    for root in roots:
        sync.reconcile(root)


def change(root: Path) -> None:
    (root / "d/edited").write_bytes(b"edited")
    (root / "d/moved").rename(root / "moved")
    (root / "gone").unlink()
    (root / "new \u00fc").write_bytes(b"new")
    (root / "link").unlink()
    (root / "link").symlink_to("elsewhere")
    (root / "sub").mkdir()


def save(sync: Sync, root: Path, file: Path) -> dict[str, Any]:
    (plan,) = sync("plan", root, "--json")
    file.write_text(sync.out)
    return plan


def shape(plan: dict[str, Any]) -> list[tuple[str, str, str]]:
    return sorted((action["side"], action["action"], action["path"]) for action in plan["actions"])


def test_a_saved_plan_is_carried_out_as_it_was_shown(sync: Sync, roots: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = roots
    both_have(sync, roots)
    change(first)
    (second / "from-second").write_bytes(b"x")
    sync.reconcile(second)
    before = content(first)
    plan = save(sync, first, tmp_path / "plan")
    assert content(first) == before
    assert (
        shape(plan)
        == [
            ("local", "create", "from-second"),
            ("remote", "create", "new \u00fc"),
            ("remote", "mkdir", "sub"),
            ("remote", "move", "moved"),
            ("remote", "trash", "gone"),
            ("remote", "update", "d/edited"),
            ("remote", "update", "link"),
        ]
        or shape(plan)[1][2] != "new \u00fc"
    )
    summary = sync.reconcile(first, "--plan", str(tmp_path / "plan"), "--json")
    assert (summary["pushed"], summary["pulled"], summary["moved"], summary["deleted"]) == (4, 1, 1, 1)
    assert (first / "from-second").read_bytes() == b"x"
    sync.reconcile(second)
    assert content(first) == content(second)
    sync.at_rest(*roots)


@pytest.mark.parametrize("side", ["here", "there"])
def test_a_plan_whose_evidence_changed_does_nothing_and_names_what_changed(
    sync: Sync, roots: tuple[Path, Path], tmp_path: Path, side: str
) -> None:
    first, second = roots
    both_have(sync, roots)
    change(first)
    (second / "kept").write_bytes(b"changed there")
    sync.reconcile(second)
    save(sync, first, tmp_path / "plan")
    if side == "here":
        (first / "d/edited").write_bytes(b"edited again")
        expected = "d/edited"
    else:
        (second / "kept").write_bytes(b"changed there once more")
        sync.reconcile(second)
        expected = "kept"
    before = content(first)
    lines = sync("reconcile", "--plan", tmp_path / "plan", "--json", expect=20)
    assert [line["path"] for line in lines if line["type"] == "stale"] == [expected]
    (summary,) = [line for line in lines if line["type"] == "summary"]
    assert summary["mutating_requests"] == 0
    assert content(first) == before
    sync("reconcile", "--plan", tmp_path / "plan", expect=20)
    assert f"does not hold any more: {expected}: update: changed since then" in sync.err
    sync.reconcile(first)
    sync.reconcile(second)
    assert content(first) == content(second)


def test_what_came_after_the_plan_is_left_for_a_later_cycle(
    sync: Sync, roots: tuple[Path, Path], tmp_path: Path
) -> None:
    first, second = roots
    both_have(sync, roots)
    change(first)
    save(sync, first, tmp_path / "plan")
    (first / "later").write_bytes(b"later")
    (first / "kept").write_bytes(b"changed later")
    sync.reconcile(first, "--plan", str(tmp_path / "plan"))
    sync.reconcile(second)
    assert not (second / "later").exists()
    assert (second / "kept").read_bytes() == b"kept"
    assert (second / "moved").read_bytes() == b"d/moved"
    assert sync.reconcile(first)["pushed"] == 2  # also on a volume, whose journal has told of them already
    sync.reconcile(second)
    assert content(first) == content(second)
    sync("reconcile", "--plan", tmp_path / "plan", expect=20)


def test_a_conflict_in_a_saved_plan_gets_the_name_that_was_shown(
    sync: Sync, roots: tuple[Path, Path], tmp_path: Path
) -> None:
    first, second = roots
    both_have(sync, roots)
    (first / "kept").write_bytes(b"first")
    (second / "kept").write_bytes(b"second")
    sync.reconcile(second)
    plan = save(sync, first, tmp_path / "plan")
    (copy,) = {action["path"] for action in plan["actions"] if "(conflict " in action["path"]}
    (first / "later").write_bytes(b"not part of it")
    sync.reconcile(first, "--plan", str(tmp_path / "plan"), expect=4)
    assert (first / copy).read_bytes() == b"first"
    assert (first / "kept").read_bytes() == b"second"


def test_the_safety_stop_asks_also_for_saved_plans(sync: Sync, roots: tuple[Path, Path], tmp_path: Path) -> None:
    first, _ = roots
    for number in range(20):
        (first / f"file{number}").write_bytes(b"%d" % number)
    sync.reconcile(first)
    for number in range(15):
        (first / f"file{number}").unlink()
    plan = save(sync, first, tmp_path / "plan")
    assert plan["needs_consent"] == ["the plan would delete 15 of 20 nodes on the remote side (limit: half)"]
    sync("plan", first)
    assert plan["digest"] in sync.err
    sync("reconcile", "--plan", tmp_path / "plan", expect=16)
    sync("reconcile", "--plan", tmp_path / "plan", "--allow-deletes", plan["digest"])
    assert sync.reconcile(first)["deleted"] == 0


def test_plans_of_other_roots_and_other_files_are_refused(sync: Sync, roots: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = roots
    both_have(sync, roots)
    plan = save(sync, first, tmp_path / "plan")
    assert plan["actions"] == []
    sync("plan", first)
    assert "nothing to do" in sync.out
    sync("reconcile", "--plan", tmp_path / "plan")
    sync("reconcile", second, "--plan", tmp_path / "plan", expect=2)
    assert f"made for {first} and {plan['url']}; this is {second} and " in sync.err
    sync("reconcile", "--plan", tmp_path / "nowhere", expect=10)
    for text, code in (
        ("", 2),
        ("{}\n{}\n", 2),
        ("no json", 15),
        ('{"type":"summary","version":1}', 2),
        ('{"type":"plan","version":2}', 14),
        ('{"type":"plan","version":1}', 15),
        (json.dumps({**plan, "root_uuid": "gone"}), 10),
        (json.dumps({**plan, "url": plan["url"] + "2"}), 2),
    ):
        (tmp_path / "plan").write_text(text)
        sync("reconcile", "--plan", tmp_path / "plan", expect=code)


def test_names_that_are_no_utf8_are_in_the_plan_in_full(sync: Sync, tmp_path: Path) -> None:
    root = sync.folder("only")
    with open(os.path.join(os.fsencode(root), b"bad\xff"), "wb"):
        pass
    (plan,) = sync("plan", root, "--json")
    assert plan["actions"] == []
    assert [failure["path"] for failure in plan["not_synced"]] == ["bad\\xff"]
