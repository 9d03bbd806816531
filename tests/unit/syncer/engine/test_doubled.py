"""What histories of several devices did not come to rest with: names that an object and a folder have on the server,
names that were cut in a character, folders whose marker somebody made without a mode."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from syncer.core.model import Kind, Meta, RelPath
from tests.unit.syncer.engine.devices import Device, assert_at_rest, devices


@pytest.fixture
def trio_of(tmp_path: Path) -> list[Device]:
    found = devices(tmp_path, "first", "second", "third")
    found[0].write("B/old", b"old")
    for device in found:
        device.reconcile()
    return found


def settle(*some: Device, rounds: int = 4) -> None:
    for _ in range(rounds):
        for device in some:
            device.reconcile()


def equal(*some: Device) -> dict[str, object]:
    """What all of them have, without the times of conflict copies."""
    first, *others = (device.everything() for device in some)
    for other in others:
        assert other == first
    return first


def doubled(device: Device) -> None:
    """The server has a file B, and an object B/c: two devices were at it at once."""
    box = device.container
    for path in sorted(box.objects):
        box.remove(path)
    box.put(RelPath(b"B"), kind=Kind.FILE, blocks=box.store_all(b"file"), meta=Meta(mode=0o644, mtime_ns=5))
    box.put(RelPath(b"B/c"), kind=Kind.FILE, blocks=box.store_all(b"below"), meta=Meta(mode=0o644, mtime_ns=6))


@pytest.mark.parametrize("partly", [True, False])
def test_a_folder_replaced_by_a_file_while_another_device_makes_something_in_it_keeps_both_on_all_devices(
    trio_of: list[Device], partly: bool
) -> None:
    first, second, third = trio_of
    for device in trio_of:
        device.partly = partly
    shutil.rmtree(first.path / "B")
    first.write("B", b"file")
    second.write("B/c", b"below")

    def meanwhile(name: str) -> None:
        if name == "before upload" and b"B/c" not in first.container.objects:
            box = first.container
            box.put(RelPath(b"B/c"), kind=Kind.FILE, blocks=box.store_all(b"below"), meta=Meta(mode=0o644, mtime_ns=6))

    first.reconcile(step=meanwhile)
    assert {b"B", b"B/c"} <= first.container.objects.keys()
    settle(second, third, first)
    assert_at_rest(*trio_of)
    found = equal(*trio_of)
    assert [first.path.joinpath(name).read_bytes() for name in found if name.startswith("B (conflict")] == [b"file"]
    assert (first.path / "B" / "c").read_bytes() == b"below"


@pytest.mark.parametrize("partly", [True, False])
@pytest.mark.parametrize("first_to_come", [0, 1, 2])
def test_a_name_that_a_file_and_a_folder_have_on_the_server_becomes_two(
    trio_of: list[Device], first_to_come: int, partly: bool
) -> None:
    doubled(trio_of[0])
    for device in trio_of:
        device.partly = partly
    order = [*trio_of[first_to_come:], *trio_of[:first_to_come]]
    report = order[0].reconcile()
    assert not report.failures
    settle(*order)
    assert_at_rest(*trio_of)
    found = equal(*trio_of)
    (copy,) = (name for name in found if name.startswith("B (conflict"))
    assert (trio_of[0].path / copy).read_bytes() == b"file"
    assert (trio_of[0].path / "B" / "c").read_bytes() == b"below"
    assert sorted(each.decode() for each in trio_of[0].container.objects) == ["B", copy, "B/c"]


def test_a_file_with_an_object_below_it_can_be_edited_removed_and_renamed_before_anybody_knows(
    trio_of: list[Device],
) -> None:
    """Each device did another thing to B; the object below it came in between."""
    first, second, third = trio_of
    shutil.rmtree(first.path / "B")
    first.write("B", b"file")
    settle(first, second, third, rounds=1)
    box = first.container
    box.put(RelPath(b"B/c"), kind=Kind.FILE, blocks=box.store_all(b"below"), meta=Meta(mode=0o644, mtime_ns=6))
    (first.path / "B").unlink()
    second.write("B", b"edited")
    (third.path / "B").rename(third.path / "elsewhere")
    settle(*trio_of)
    assert_at_rest(*trio_of)
    found = equal(*trio_of)
    contents = {value[0] for value in found.values() if isinstance(value, tuple)}
    assert contents >= {b"below", b"edited"}
    assert (first.path / "B" / "c").read_bytes() == b"below"


def test_messages_show_names_and_no_python(trio_of: list[Device]) -> None:
    doubled(trio_of[0])
    trio_of[1].reconcile()
    told = [text for _, text in trio_of[1].ears.notes] + [failure.reason for failure in trio_of[1].ears.failures]
    assert told
    assert not [text for text in told if "b'" in text]


@pytest.mark.parametrize("number", range(1, 5))
def test_a_long_name_of_wide_characters_is_parked_on_the_server(tmp_path: Path, number: int) -> None:
    """Files and folders that swap their names: one of them waits in the park, under as much of its name as fits."""
    first, second = devices(tmp_path, "first", "second")
    wide = "x" * (number - 1) + "\N{GRINNING FACE}" * 63 + "x" * (4 - number)
    first.write(wide, b"file")
    later = "\U0010fffd"  # of two that swap their names the first one is freed
    first.write(f"{later}/f", b"below")
    settle(first, second, rounds=1)
    for name, target in ((wide, "aside"), (later, wide), ("aside", later)):
        (first.path / name).rename(first.path / target)
    settle(first, second, rounds=2)
    assert_at_rest(first, second)
    assert equal(first, second).keys() == {wide + "/", wide + "/f", later}


@pytest.mark.parametrize("partly", [True, False])
def test_a_marker_that_somebody_made_anew_without_a_mode_is_told_the_mode(tmp_path: Path, partly: bool) -> None:
    first, second, third = devices(tmp_path, "first", "second", "third")
    for device in (first, second, third):
        device.partly = partly
    first.write("d/f", b"1")
    os.chmod(first.path / "d", 0o700)
    settle(first, second, rounds=1)
    first.container.remove(RelPath(b"d"))
    third.reconcile()
    assert first.container.objects[RelPath(b"d")].meta.mode is None
    settle(first, second, third, rounds=2)
    assert_at_rest(first, second, third)
    equal(first, second, third)
    assert (third.path / "d").stat().st_mode & 0o777 == 0o700


def test_a_rename_that_stopped_before_the_marker_keeps_the_mode_though_a_new_device_comes_first(tmp_path: Path) -> None:
    first, second, third = devices(tmp_path, "first", "second", "third")
    first.write("d/f", b"1")
    os.chmod(first.path / "d", 0o711)
    settle(first, second, rounds=1)
    (first.path / "d").rename(first.path / "e")
    box = first.container
    old = box.remove(RelPath(b"d/f"))
    box.put(RelPath(b"e/f"), kind=old.kind, blocks=old.blocks, meta=old.meta, uuid=old.uuid)
    third.reconcile()
    settle(first, second, third, rounds=3)
    assert_at_rest(first, second, third)
    assert equal(first, second, third)["e/"] == 0o40711


def test_a_folder_of_somebody_who_tells_no_modes_is_not_told_any(tmp_path: Path) -> None:
    """A share that may only be read has no failures for that."""
    (first,) = devices(tmp_path, "first")
    box = first.container
    box.put(RelPath(b"d"), kind=Kind.DIRECTORY, blocks=box.store_all(b""), meta=Meta())
    box.put(RelPath(b"d/f"), kind=Kind.FILE, blocks=box.store_all(b"1"), meta=Meta())
    assert first.reconcile().mutating_requests == 0
    assert_at_rest(first)


def test_a_folder_gets_its_marker_in_the_cycle_that_removes_the_object_of_its_name(trio_of: list[Device]) -> None:
    """Else nothing would lead a cycle that looks at a part to what was not recorded."""
    first, second, _ = trio_of
    shutil.rmtree(first.path / "B")
    first.write("B", b"file")
    settle(first, second, rounds=1)
    box = first.container
    box.put(RelPath(b"B/c"), kind=Kind.FILE, blocks=box.store_all(b"below"), meta=Meta(mode=0o644, mtime_ns=6))
    (second.path / "B").unlink()
    second.write("B/mine", b"mine")
    assert not second.reconcile().failures
    assert sorted(box.objects) == [b"B", b"B/c", b"B/mine"]
    assert_at_rest(second)
    settle(*trio_of)
    equal(*trio_of)
