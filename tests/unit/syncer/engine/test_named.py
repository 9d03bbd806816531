"""Cycles that are told the very names that may have changed: what is looked at, and what must be looked at beside."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from syncer.local.survey.digests import Surveyor
from tests import effort
from tests.fakes.memory import MemoryClient, MemoryContainer
from tests.unit.syncer.engine.devices import Device, MemoryState
from tests.unit.syncer.local.folders import BLOCK, new_place


@pytest.fixture
def plain(tmp_path: Path) -> tuple[Device, Device]:
    """On a plain Pithos."""
    container = MemoryContainer(block_size=BLOCK, extensions=frozenset(), identity=None, lists_meta=False)
    return tuple(Device(name, new_place(tmp_path, name), container) for name in ("first", "second"))  # type: ignore[return-value] # two of them


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Device, Device]:
    container = MemoryContainer(block_size=BLOCK)
    return tuple(Device(name, new_place(tmp_path, name), container) for name in ("first", "second"))  # type: ignore[return-value] # two of them


def settle(*devices: Device) -> None:
    for device in devices:
        device.reconcile()


def test_only_what_is_named_is_looked_at(pair: tuple[Device, Device], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = pair
    for number in range(5):
        first.write(f"d/f{number}", b"%d" % number)
    settle(first, second, first)
    monkeypatch.setattr(Surveyor, "listing", None)  # nothing is listed
    first.write("d/f1", b"changed")
    first.write("d/new", b"new")
    (first.path / "d" / "f3").unlink()
    (first.path / "d" / "f4").rename(first.path / "moved")
    first.write("d/f2", b"not named")
    report = first.reconcile(entries=[b"d/f1", b"d/new", b"d/f3", b"d/f4", b"moved", b"d/never", b"gone/x"])
    assert (report.pushed, report.deleted, report.moved) == (2, 1, 1)
    monkeypatch.undo()
    settle(second)
    (second.path / "d" / "f2").write_bytes(b"not named")
    assert {name: found[0] for name, found in second.everything().items() if isinstance(found, tuple)} == {
        name: found[0] for name, found in first.everything().items() if isinstance(found, tuple)
    }


def test_lists_of_what_both_sides_have_no_more_are_forgotten(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("f", bytes(3 * BLOCK - 1) + b"1")
    first.write("other", bytes(3 * BLOCK - 1) + b"other")
    settle(first, second)
    for number in range(5):
        first.write("f", bytes(3 * BLOCK - 1) + b"%d" % number)
        first.reconcile(entries=[b"f"])
        second.reconcile()
    for device in pair:
        assert len(list((device.place.state / "lists").iterdir())) == 2


def test_all_names_of_a_hard_link_are_looked_at(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("d/one", b"1")
    os.link(first.path / "d" / "one", first.path / "d" / "two")
    settle(first, second)
    first.write("d/one", b"changed")
    first.reconcile(entries=[b"d/one"])
    settle(second)
    assert (second.path / "d" / "two").read_bytes() == b"changed"


def test_new_rules_count_for_everything(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("d/keep", b"1")
    first.write("d/x.tmp", b"1")
    settle(first, second)
    first.write("d/.blocksyncignore", b"*.tmp\n")
    first.reconcile(entries=[b"d/.blocksyncignore"])
    first.write("d/y.tmp", b"1")
    first.write("d/x.tmp", b"2")
    first.reconcile(entries=[b"d/y.tmp", b"d/x.tmp"])
    settle(second)
    assert (second.path / "d" / "x.tmp").read_bytes() == b"1"
    assert not (second.path / "d" / "y.tmp").exists()


def test_a_name_that_the_other_side_took_meanwhile_is_a_conflict(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("d/a", b"a")
    settle(first, second)
    second.write("d/new", b"theirs")
    second.write("d/a", b"theirs, too")
    settle(second)
    first.write("d/new", b"ours")
    first.write("d/a", b"ours, too")
    first.reconcile(entries=[b"d/new", b"d/a"])
    settle(second)
    assert sorted(first.contents()) == sorted([b"ours", b"ours, too", b"theirs", b"theirs, too"])
    assert first.contents() == second.contents()


def test_a_folder_that_is_where_it_was_under_another_inode_is_listed(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("d/deep/a", b"a")
    first.write("d/b", b"b")
    settle(first, second)
    shutil.copytree(first.path / "d", first.path / "e")
    first.write("e/deep/a", b"other")
    shutil.rmtree(first.path / "d")
    (first.path / "e").rename(first.path / "d")
    first.reconcile(entries=[b"d", b"e"])
    settle(second)
    assert first.everything().keys() == second.everything().keys()
    assert (second.path / "d" / "deep" / "a").read_bytes() == b"other"


def test_on_a_plain_pithos_the_base_is_not_read_as_a_whole(
    plain: tuple[Device, Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = plain
    for number in range(9):
        first.write(f"d{number}/f", b"%d" % number)
    settle(first, second, first, second)
    monkeypatch.setattr(MemoryState, "base", None)
    first.write("d1/f", b"changed")
    (first.path / "d2" / "f").rename(first.path / "moved")
    shutil.rmtree(first.path / "d3")
    report = first.reconcile()
    assert (report.pushed, report.moved, report.deleted) == (1, 1, 2)
    report = second.reconcile()
    assert (report.pulled, report.moved, report.deleted) == (1, 1, 2)
    assert first.everything() == second.everything()


def test_on_a_plain_pithos_that_has_not_changed_nothing_is_listed(
    plain: tuple[Device, Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = plain
    first.write("d/f", b"1")
    settle(first, first)
    monkeypatch.setattr(MemoryClient, "list_objects", None)
    first.write("d/f", b"2")
    assert first.reconcile(entries=[b"d/f"]).pushed == 1


@pytest.mark.parametrize("server", ["pair", "plain"])
def test_random_changes_by_name_leave_nothing_to_a_look_at_everything(
    server: str, request: pytest.FixtureRequest
) -> None:
    pair: tuple[Device, Device] = request.getfixturevalue(server)
    first, second = pair
    first.write("d/e/f", b"f")
    settle(first, second)
    for seed in range(effort.count("changes by name")):
        rng = random.Random(seed)
        device, other = rng.sample(pair, 2)
        before = device.everything()
        for _ in range(rng.randrange(1, 6)):
            change(rng, device.path, seed)
        after = device.everything()
        names = {os.fsencode(name.rstrip("/")) for name in before.keys() | after.keys()
                 if before.get(name) != after.get(name)}  # fmt: skip
        device.reconcile(entries=names)
        assert device.reconcile().mutating_requests == 0, seed
        settle(other)
        assert device.everything() == other.everything(), seed


def change(rng: random.Random, root: Path, seed: int) -> None:
    """One step of a user."""
    folders = [root / folder for folder in ("", "d", "d/e", "g") if (root / folder).is_dir()]
    place, name = rng.choice(folders), f"n{rng.randrange(5)}"
    match rng.randrange(5):
        case 0 | 1:
            (place / name).write_bytes(b"%d %d" % (seed, rng.randrange(100)))
        case 2:
            (place / name).unlink(missing_ok=True)
        case 3 if (place / name).exists():
            (place / name).rename(rng.choice(folders) / f"m{seed}-{rng.randrange(9)}")
        case _:
            (root / rng.choice(("d", "d/e", "g"))).mkdir(exist_ok=True, parents=True)
