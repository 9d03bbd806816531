from __future__ import annotations

import errno
import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from syncer.core.model import FileStat, Kind, Meta, RelPath
from syncer.errors import NoSpaceError, RemoteUnavailableError, RootIdentityError, SafetyStopError
from syncer.local.folder import changes
from syncer.local.survey.digests import Surveyor
from syncer.ports.remote import RefusedName
from tests.fakes.memory import MemoryClient, MemoryContainer
from tests.unit.syncer.engine.devices import Device, assert_at_rest, devices
from tests.unit.syncer.local.folders import BLOCK, noise


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Device, Device]:
    first, second = devices(tmp_path, "a", "b")
    return first, second


def small_version(container: MemoryContainer, path: bytes, data: bytes) -> None:
    """Another device's write of a whole file, without metadata."""
    container.put(RelPath(path), kind=Kind.FILE, blocks=container.store_all(data), meta=Meta())


def settle(*all_devices: Device) -> None:
    for device in all_devices:
        assert device.reconcile().exit_code == 0


def test_a_tree_arrives_on_the_other_device_with_modes_times_and_links(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("big.img", noise(1, 20 * BLOCK + 7))
    first.write("deep/er/small", b"small")
    first.write("empty", b"")
    (first.path / "link").symlink_to("deep/er")
    (first.path / "deep").chmod(0o750)
    (first.path / "big.img").chmod(0o600)
    report = first.reconcile()
    assert (report.exit_code, report.pushed, report.pulled) == (0, 6, 0)
    report = second.reconcile()
    assert (report.exit_code, report.pushed, report.pulled) == (0, 0, 6)
    assert second.everything() == first.everything()
    assert_at_rest(first, second)


def test_nothing_is_read_again_in_the_next_cycle(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("file", noise(1, 5 * BLOCK))
    os.utime(first.path / "file", ns=(10, 10))
    settle(first, second)
    for device in pair:
        report = device.reconcile()
        assert report.bytes_read_local == 0
        assert report.traffic["requests"] == 1


def test_one_changed_block_travels_alone(pair: tuple[Device, Device]) -> None:
    first, second = pair
    data = noise(1, 100 * BLOCK)
    first.write("image", data)
    settle(first, second)
    with (first.path / "image").open("r+b") as file:
        file.seek(50 * BLOCK + 3)
        file.write(b"changed")
    report = first.reconcile()
    assert (report.traffic["blocks_sent"], report.traffic["blocks_received"]) == (1, 0)
    report = second.reconcile()
    assert (report.traffic["blocks_sent"], report.traffic["blocks_received"]) == (0, 1)
    assert second.everything() == first.everything()


def test_rename_and_copy_transfer_no_blocks(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("d/image", noise(1, 30 * BLOCK))
    settle(first, second)
    (first.path / "d").rename(first.path / "e")
    first.write("copy", noise(1, 30 * BLOCK))
    inode = os.stat(second.path / "d/image").st_ino
    for device in pair:
        report = device.reconcile()
        assert (report.traffic["blocks_sent"], report.traffic["blocks_received"]) == (0, 0)
        assert report.moved == 1
    assert second.everything() == first.everything()
    assert os.stat(second.path / "e/image").st_ino == inode
    assert_at_rest(first, second)


def test_a_renamed_and_edited_file_keeps_its_inode_on_the_other_side(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("image", noise(1, 30 * BLOCK))
    settle(first, second)
    (first.path / "image").rename(first.path / "renamed")
    with (first.path / "renamed").open("r+b") as file:
        file.write(b"edit")
    report = first.reconcile()
    assert (report.moved, report.traffic["blocks_sent"]) == (1, 1)
    report = second.reconcile()
    assert (report.moved, report.pulled, report.traffic["blocks_received"]) == (1, 1, 1)
    assert second.everything() == first.everything()
    assert_at_rest(first, second)


def test_deletions_travel_into_the_trash(pair: tuple[Device, Device]) -> None:
    first, second = pair
    for name in ("a", "d/b", "d/c", "keep"):
        first.write(name, name.encode())
    settle(first, second)
    (first.path / "a").unlink()
    (first.path / "d/b").unlink()
    (first.path / "d/c").unlink()
    (first.path / "d").rmdir()
    assert first.reconcile().deleted == 4
    assert second.reconcile().deleted == 4
    assert set(second.place.visible()) == {"keep"}
    assert sorted(second.place.trashed()) == [b"a", b"d/b", b"d/c"]
    assert_at_rest(first, second)


def test_both_edited_leaves_both_contents_on_both_sides(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("image.img", noise(1, 10 * BLOCK))
    settle(first, second)
    first.write("image.img", noise(2, 10 * BLOCK))
    second.write("image.img", noise(3, 10 * BLOCK))
    assert first.reconcile().exit_code == 0
    report = second.reconcile()
    assert (report.exit_code, report.conflicts) == (4, 1)
    assert first.reconcile().exit_code == 0
    expected = sorted([noise(2, 10 * BLOCK), noise(3, 10 * BLOCK)])
    assert first.contents() == second.contents() == expected
    assert (second.path / "image.img").read_bytes() == noise(2, 10 * BLOCK)  # first come, first served
    assert_at_rest(first, second)


def test_two_new_files_of_one_name_are_adopted_if_equal_and_kept_both_if_not(pair: tuple[Device, Device]) -> None:
    first, second = pair
    for device in pair:
        device.write("same", b"same")
        device.write("other", device.name.encode())
        device.write("folder/inside", b"x")
    first.reconcile()
    report = second.reconcile()
    assert (report.exit_code, report.conflicts) == (4, 1)
    first.reconcile()
    assert first.contents() == second.contents() == [b"a", b"b", b"same", b"x"]
    assert_at_rest(first, second)


def test_a_swap_of_two_names_is_carried_out_by_parking(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("a", b"1")
    first.write("b", b"2")
    first.write("x/in", b"3")
    first.write("y/in", b"4")
    settle(first, second)
    for one, two in (("a", "b"), ("x", "y")):
        (first.path / one).rename(first.path / "t")
        (first.path / two).rename(first.path / one)
        (first.path / "t").rename(first.path / two)
    assert first.reconcile().traffic["blocks_received"] == 0
    # Each of the two files is the other's source. If one is replaced before the other is assembled, that one's block
    # comes from the server: what has just been displaced is no source.
    assert second.reconcile().traffic["blocks_received"] <= 1
    assert second.place.visible() == {"a": b"2", "b": b"1", "x/in": b"4", "y/in": b"3"}
    assert_at_rest(first, second)


def test_modes_and_times_travel_without_content(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("f", noise(1, 3 * BLOCK))
    first.write("d/x", b"")
    settle(first, second)
    (first.path / "f").chmod(0o640)
    os.utime(first.path / "f", ns=(1, 123_456_789_012))
    (first.path / "d").chmod(0o500)
    for device in pair:
        report = device.reconcile()
        assert report.exit_code == 0
        assert (report.traffic["blocks_sent"], report.traffic["blocks_received"]) == (0, 0)
    assert second.everything() == first.everything()
    assert_at_rest(first, second)
    (first.path / "d").chmod(0o700)
    (second.path / "d").chmod(0o700)


def test_a_dry_run_changes_nothing_and_counts_what_would_be(pair: tuple[Device, Device]) -> None:
    first, _ = pair
    first.write("a", b"1")
    report = first.reconcile(dry_run=True)
    assert (report.pushed, report.mutating_requests) == (1, 0)
    assert not first.container.objects
    assert not first.state.rows_now
    assert first.reconcile().pushed == 1


# --- safety


def test_the_guard_stops_until_exactly_this_plan_is_agreed_to(pair: tuple[Device, Device]) -> None:
    first, second = pair
    for number in range(30):
        first.write(f"f{number}", b"%d" % number)
    settle(first, second)
    for number in range(30):
        (first.path / f"f{number}").unlink()
    with pytest.raises(SafetyStopError) as stopped:
        first.reconcile()
    assert len(first.container.objects) == 30
    with pytest.raises(SafetyStopError):
        first.reconcile(consent="0" * 16)
    assert first.reconcile(consent=stopped.value.digest).deleted == 30
    with pytest.raises(SafetyStopError):
        second.reconcile()
    assert len(second.contents()) == 30


def test_another_container_or_an_older_one_stops_everything(pair: tuple[Device, Device]) -> None:
    first, _ = pair
    first.write("a", b"1")
    first.write("b", b"2")
    settle(first)
    first.container.identity = "other"
    with pytest.raises(RootIdentityError):
        first.reconcile()
    first.container.identity = "00000000-0000-4000-8000-000000000001"
    first.reconcile()
    first.container.last_version -= 1
    with pytest.raises(RootIdentityError):
        first.reconcile()
    assert len(first.contents()) == 2


def test_a_backup_from_before_the_last_push_is_no_container_in_which_nothing_changed(
    pair: tuple[Device, Device],
) -> None:
    """A look begins where the push before it began: such a backup tells of nothing, and all of that push is missing."""
    first, _ = pair
    first.write("a", b"1")
    settle(first)
    backup = deepcopy(first.container)
    first.write("b", b"2")
    first.reconcile()
    first.container = backup
    with pytest.raises(RootIdentityError, match="older"):
        first.reconcile(entries=())
    assert len(first.contents()) == 2


def test_a_backup_to_which_others_wrote_more_is_no_container_in_which_the_last_push_is_unchanged(
    pair: tuple[Device, Device],
) -> None:
    """From where the look before that push began, only what others wrote has changed."""
    first, second = pair
    first.write("a", b"1")
    settle(first, second)
    backup = deepcopy(first.container)
    first.write("a", b"2")
    first.reconcile()
    first.container = second.container = backup
    for number in range(5):
        second.write(f"other{number}", b"3")
        second.reconcile()
    with pytest.raises(RootIdentityError, match="older"):
        first.reconcile(entries=())
    assert first.contents() == [b"2"]


def test_what_others_delete_of_the_last_push_is_no_backup(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("d/a", b"1")
    settle(first, second)
    first.write("d/b", b"2")
    first.reconcile()
    second.reconcile()
    (second.path / "d/b").rename(second.path / "c")
    second.reconcile()
    (second.path / "c").unlink()
    second.reconcile()
    first.reconcile(entries=())
    assert first.contents() == [b"1"]


def test_a_lost_state_deletes_nothing_and_transfers_nothing(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("a", noise(1, 5 * BLOCK))
    settle(first, second)
    (first.path / "a").unlink()
    first.write("b", b"new")
    first.state = type(first.state)()
    report = first.reconcile()
    assert (report.deleted, report.conflicts) == (0, 0)
    assert set(first.place.visible()) == {"a", "b"}
    second.state = type(second.state)()
    report = second.reconcile()
    assert report.traffic["blocks_sent"] == 0
    assert_at_rest(first, second)


# --- isolation


def test_an_unreadable_folder_is_left_alone_and_named_while_the_rest_goes_on(
    pair: tuple[Device, Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair
    first.write("dark/file", b"x")
    settle(first, second)
    first.write("good", b"y")
    real = os.open

    def refuse(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if path == b"dark":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    report = first.reconcile()
    assert (report.exit_code, report.pushed, report.deleted) == (3, 1, 0)
    assert [failure.path for failure in report.failures] == [b"dark"]
    monkeypatch.undo()
    second.reconcile()
    assert set(second.place.visible()) == {"dark/file", "good"}


def test_who_may_not_write_a_folder_is_told_what_to_do_and_the_rest_goes_on(
    pair: tuple[Device, Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's, or one of 0555: what is in it can't be changed by an ordinary user."""
    first, second = pair
    first.write("closed", b"x")
    first.write("good", b"y")
    first.reconcile()
    real = changes.rename_noreplace

    def refuse(source: bytes, source_dir: int, target: bytes, target_dir: int) -> None:
        if target == b"closed":
            raise PermissionError(errno.EACCES, "Permission denied", source, None, target)
        real(source, source_dir, target, target_dir)

    monkeypatch.setattr(changes, "rename_noreplace", refuse)
    report = second.reconcile()
    assert (report.exit_code, report.pulled) == (3, 1)
    (failure,) = report.failures
    assert "Permission denied: whoever syncs must be able to write the folder" in failure.reason


@pytest.mark.parametrize("partly", [True, False])
def test_a_folder_whose_mode_may_not_be_set_is_named_and_what_is_in_it_is_synced(
    pair: tuple[Device, Device], monkeypatch: pytest.MonkeyPatch, partly: bool
) -> None:
    """Somebody else's, with another mode: else each edit elsewhere made a conflict copy, each deletion was undone."""
    first, second = pair
    second.partly = partly
    for device in pair:
        device.write("theirs/file", b"first")
        device.write("theirs/deleted", b"x")
        for name in ("file", "deleted"):
            os.utime(device.path / "theirs" / name, (1, 1))
    (second.path / "theirs").chmod(0o777)
    first.reconcile()
    real = os.fchmod

    def refuse(descriptor: int, mode: int) -> None:
        if os.path.samestat(os.fstat(descriptor), (second.path / "theirs").stat()):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        real(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", refuse)
    for data in (b"first", b"second", b"third"):
        first.write("theirs/file", data)
        first.reconcile()
        report = second.reconcile()
        assert [failure.path for failure in report.failures] == [b"theirs"]
        assert (report.exit_code, report.conflicts) == (3, 0)
    (first.path / "theirs/deleted").unlink()
    first.reconcile()
    assert second.reconcile().deleted == 1
    assert first.place.visible() == second.place.visible() == {"theirs/file": b"third"}
    monkeypatch.undo()
    settle(second, first)
    assert first.everything() == second.everything()
    assert (first.path / "theirs").stat().st_mode & 0o777 != 0o777
    assert_at_rest(first, second)


def test_a_name_that_is_not_utf8_is_reported_and_the_rest_goes_on(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("good", b"y")
    with open(os.path.join(os.fsencode(first.path), b"caf\xe9"), "wb") as file:
        file.write(b"kept")
    report = first.reconcile()
    assert (report.exit_code, report.pushed) == (3, 1)
    assert [failure.path for failure in report.failures] == [b"caf\xe9"]
    second.reconcile()
    assert set(second.place.visible()) == {"good"}


def test_renaming_to_a_name_the_server_cant_hold_deletes_nothing_there(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("cafe", b"kept")
    first.write("other", b"x")
    settle(first, second)
    os.rename(os.fsencode(first.path / "cafe"), os.path.join(os.fsencode(first.path), b"caf\xe9"))
    assert first.reconcile().exit_code == 3
    second.reconcile()
    assert set(second.place.visible()) == {"cafe", "other"}


def test_unsafe_remote_names_are_reported_and_never_written(pair: tuple[Device, Device]) -> None:
    first, _ = pair
    first.container.refused.append(RefusedName(name="../x", reason="it contains . or .."))
    small_version(first.container, b"good", b"y")
    report = first.reconcile()
    assert (report.exit_code, report.pulled) == (3, 1)
    assert report.failures[0].path == b"../x"
    assert not (first.path.parent / "x").exists()


def test_a_special_file_is_a_note_and_no_failure(pair: tuple[Device, Device]) -> None:
    first, _ = pair
    os.mkfifo(first.path / "pipe")
    report = first.reconcile()
    assert (report.exit_code, [path for path, _ in report.notes]) == (0, [b"pipe"])


def test_one_object_that_changed_meanwhile_fails_alone_and_is_done_next_time(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("a", b"1")
    first.write("b", b"1")
    settle(first, second)
    first.write("a", b"22")
    first.write("b", b"22")
    meddled: list[bytes] = []

    async def meddle(operation: str, path: RelPath) -> None:
        if operation == "store" and path == b"a" and not meddled:
            meddled.append(path)
            small_version(first.container, b"a", b"theirs")

    report = first.reconcile(client=MemoryClient(first.container, before=meddle))
    assert (report.exit_code, [failure.path for failure in report.failures]) == (3, [b"a"])
    assert first.reconcile().exit_code == 4
    second.reconcile()
    assert first.contents() == second.contents() == [b"22", b"22", b"theirs"]
    assert_at_rest(first, second)


def test_a_file_that_changes_while_it_is_sent_is_sent_next_time(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write("a", noise(1, 8 * BLOCK))

    def write(step: str) -> None:
        if step == "before upload" and (first.path / "a").read_bytes() == noise(1, 8 * BLOCK):
            (first.path / "a").write_bytes(noise(2, 8 * BLOCK))

    report = first.reconcile(step=write)
    assert report.exit_code == 3
    assert not first.container.objects
    settle(first, second)
    assert second.contents() == [noise(2, 8 * BLOCK)]


def test_a_server_that_goes_away_ends_the_cycle_and_what_was_done_is_recorded(pair: tuple[Device, Device]) -> None:
    first, second = pair
    for number in range(20):
        first.write(f"f{number:02}", b"%d" % number)

    async def gone(operation: str, path: RelPath) -> None:
        if len(first.container.objects) == 10 and operation == "store":
            raise RemoteUnavailableError("gone")

    with pytest.raises(RemoteUnavailableError):
        first.reconcile(client=MemoryClient(first.container, before=gone))
    assert len(first.state.rows_now) == len(first.container.objects) == 10
    assert first.reconcile().pushed == 10
    settle(second)
    assert second.everything() == first.everything()


def test_a_full_disk_ends_the_cycle_with_its_own_error(
    pair: tuple[Device, Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair
    first.write("image", noise(1, 8 * BLOCK))
    settle(first)

    def full(descriptor: int, data: Any, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(NoSpaceError) as error:
        second.reconcile()
    assert error.value.exit_code == 17
    monkeypatch.undo()
    assert os.listdir(second.path / ".blocksync/tmp") == []
    settle(second)
    assert second.everything() == first.everything()


def test_a_plain_pithos_whose_listing_carries_no_metadata_is_resolved_lazily(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.container.lists_meta = False
    first.write("a", b"1")
    (first.path / "a").chmod(0o600)
    (first.path / "link").symlink_to("a")
    settle(first, second)
    assert second.everything() == first.everything()
    assert second.reconcile().traffic["requests"] == 1
    assert_at_rest(first, second)


def test_an_object_without_metadata_gets_defaults_and_stays_so(pair: tuple[Device, Device]) -> None:
    first, second = pair
    small_version(first.container, b"folder/a", b"1")
    settle(first, second)
    assert first.contents() == second.contents() == [b"1"]
    assert first.container.objects[RelPath(b"folder/a")].meta == Meta()
    assert first.container.objects.get(RelPath(b"folder")) is None or (
        first.container.objects[RelPath(b"folder")].kind is Kind.DIRECTORY
    )
    for device in pair:
        device.reconcile()
    assert_at_rest(first, second)


def test_a_later_cycle_lists_neither_the_server_nor_folders_that_did_not_change(
    pair: tuple[Device, Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair
    for folder in ("a", "b", "c"):
        first.write(f"{folder}/file", folder.encode() * 9000)
    settle(first, second, first)
    listed: list[bytes] = []
    real = Surveyor.listing

    def spy(self: Surveyor, path: RelPath) -> list[FileStat]:
        listed.append(path)
        return real(self, path)

    async def refuse(operation: str, path: bytes) -> None:
        assert operation != "list_objects"

    monkeypatch.setattr(Surveyor, "listing", spy)
    first.write("b/other", b"new")
    assert first.reconcile(client=MemoryClient(first.container, before=refuse)).pushed == 1
    assert listed == [b"b"]
    listed.clear()
    assert second.reconcile(client=MemoryClient(second.container, before=refuse)).pulled == 1
    assert listed == []
    assert first.everything() == second.everything()


def test_a_part_still_takes_blocks_from_files_that_it_did_not_look_at(pair: tuple[Device, Device]) -> None:
    first, second = pair
    data = noise(1, 10 * BLOCK)
    first.write("far/away", data)
    first.write("near/x", b"x")
    settle(first, second, first, second)
    first.write("near/copy", data[: 6 * BLOCK] + b"end")
    first.reconcile()
    report = second.reconcile()
    assert (report.pulled, report.traffic["blocks_received"]) == (1, 1)
    assert (second.path / "near" / "copy").read_bytes() == data[: 6 * BLOCK] + b"end"
