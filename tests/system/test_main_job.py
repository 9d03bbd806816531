"""The main job, end to end: two mounted volumes, an ordinary folder and the server, by the command line only."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.machines import Machines, content

MIB = 1 << 20
BLOCK = 64 * 1024
PAGE = 4096


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    yield made
    made.close()


@pytest.fixture
def linked(machines: Machines) -> tuple[Machines, Path, Path, Path]:
    """Machines a and b with volumes, c with a folder, all linked; a holds two images, everything is reconciled."""
    machines.serve()
    first, second, folder = machines.volume("a"), machines.volume("b"), machines.folder("c")
    machines.link(first, second, folder)
    noise = random.Random(2)
    (first / "disk.img").write_bytes(noise.randbytes(5 * MIB) + bytes(3 * MIB) + noise.randbytes(MIB + 123))
    (first / "notes").mkdir()
    (first / "notes" / "readme.txt").write_text("hello\n")
    for root in (first, second, folder):
        machines.reconcile(root)
    return machines, first, second, folder


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """One server and one mounted volume "a" with a file, for the tests in which nothing comes to pass."""
    made = Machines(tmp_path_factory.mktemp("refusing"))
    made.serve()
    (made.volume("a") / "disk.img").write_bytes(b"content")
    yield made
    made.close()


def change_page(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def assert_at_rest(machines: Machines, *roots: Path) -> None:
    """A further cycle changes nothing, here or on the server, and moves no block."""
    keys = ("pushed", "pulled", "moved", "deleted", "conflicts", "blocks_sent", "blocks_received", "mutating_requests")
    for root in roots:
        summary = machines.reconcile(root)
        assert not any(summary[key] for key in keys), summary


def test_what_one_machine_writes_arrives_byte_identical_on_the_others(
    linked: tuple[Machines, Path, Path, Path],
) -> None:
    machines, first, second, folder = linked
    assert content(first) == content(second) == content(folder)
    assert len(content(first)["disk.img"]) == 9 * MIB + 123
    assert_at_rest(machines, first, second, folder)


def test_one_changed_page_costs_one_block_up_and_one_down(linked: tuple[Machines, Path, Path, Path]) -> None:
    machines, first, second, folder = linked
    change_page(first / "disk.img", 2 * MIB + PAGE, os.urandom(PAGE))
    up = machines.reconcile(first)
    assert (up["pushed"], up["blocks_sent"], up["blocks_received"]) == (1, 1, 0)
    assert up["bytes_read_local"] <= BLOCK
    assert up["bytes_sent"] < BLOCK + 64 * 1024
    for root in (second, folder):
        down = machines.reconcile(root)
        assert (down["pulled"], down["blocks_received"], down["blocks_sent"]) == (1, 1, 0)
    assert content(first) == content(second) == content(folder)
    assert_at_rest(machines, first, second, folder)


def test_rename_and_clone_move_no_blocks(linked: tuple[Machines, Path, Path, Path]) -> None:
    machines, first, second, folder = linked
    machines.run("clone", first / "disk.img", first / "clone.img")
    (first / "disk.img").rename(first / "notes" / "renamed.img")
    up = machines.reconcile(first)
    assert (up["blocks_sent"], up["blocks_received"], up["moved"]) == (0, 0, 1)
    for root in (second, folder):
        down = machines.reconcile(root)
        assert (down["blocks_sent"], down["blocks_received"], down["moved"]) == (0, 0, 1)
    assert content(first) == content(second) == content(folder)
    assert_at_rest(machines, first, second, folder)


def test_two_different_changes_leave_both_contents_on_both_sides(linked: tuple[Machines, Path, Path, Path]) -> None:
    machines, first, second, _folder = linked
    change_page(first / "disk.img", 0, b"a" * PAGE)
    change_page(second / "disk.img", PAGE, b"b" * PAGE)
    mine, theirs = (first / "disk.img").read_bytes(), (second / "disk.img").read_bytes()
    machines.reconcile(first)
    assert machines.reconcile(second, expect=4)["conflicts"] == 1
    machines.reconcile(first)
    for root in (first, second):
        images = {name: data for name, data in content(root).items() if name.startswith("disk")}
        assert sorted(images.values(), key=hash) == sorted([mine, theirs], key=hash)
        assert images["disk.img"] == mine  # first come, first served
    assert_at_rest(machines, first, second)


def test_deletions_and_folders_travel_too(linked: tuple[Machines, Path, Path, Path]) -> None:
    machines, first, second, folder = linked
    (second / "deep" / "er").mkdir(parents=True)
    (second / "deep" / "link").symlink_to("../disk.img")
    (second / "empty").write_bytes(b"")
    (second / "disk.img").unlink()
    machines.reconcile(second)
    for root in (first, folder):
        machines.reconcile(root)
    assert content(first) == content(second) == content(folder)
    assert "disk.img" not in content(first)
    assert_at_rest(machines, first, second, folder)


def test_killing_the_syncer_at_random_points_of_a_push_and_a_pull_loses_nothing(machines: Machines) -> None:
    machines.serve()
    first, folder = machines.volume("a"), machines.folder("c")
    machines.link(first, folder)
    noise = random.Random(5)
    for number in range(40):
        (first / f"image-{number}").write_bytes(noise.randbytes(noise.randrange(3 * MIB)))
    expected = content(first)
    for root in (first, folder):
        for attempt in range(8):
            syncer = machines.start("reconcile", root)
            try:
                syncer.wait(0.35 + 0.3 * attempt * noise.random())
            except subprocess.TimeoutExpired:
                syncer.kill()
                syncer.wait()
        machines.reconcile(root)
    assert content(first) == content(folder) == expected
    assert_at_rest(machines, first, folder)


def test_killing_the_server_at_random_points_of_a_push_loses_nothing(machines: Machines) -> None:
    machines.serve()
    first, folder = machines.folder("c"), machines.folder("d")
    machines.link(first, folder)
    noise = random.Random(6)
    for number in range(30):
        (first / f"image-{number}").write_bytes(noise.randbytes(noise.randrange(3 * MIB)))
    expected = content(first)
    for _attempt in range(4):
        syncer = machines.start("reconcile", first)
        try:
            syncer.wait(0.4 + 0.4 * noise.random())
        except subprocess.TimeoutExpired:
            machines.kill_server()
            syncer.kill()
            syncer.wait()
            machines.serve()
    machines.reconcile(first)
    machines.reconcile(folder)
    assert content(folder) == content(first) == expected
    assert_at_rest(machines, first, folder)


def test_a_killed_mount_keeps_what_was_fsynced_and_is_clean_afterwards(machines: Machines) -> None:
    first = machines.volume("a")
    noise = random.Random(7)
    promised: dict[str, bytes] = {}
    for number in range(24):
        name = f"file-{number % 16}"
        data = noise.randbytes(noise.randrange(300_000))
        with (first / name).open("wb") as file:
            file.write(data)
            file.flush()
            if number % 2 == 0:
                os.fsync(file.fileno())
                promised[name] = data
            else:
                promised.pop(name, None)
    machines.kill_mount("a")
    machines.remount("a")
    assert {name: (first / name).read_bytes() for name in promised} == promised
    assert machines.run("fsck", first).exit_code == 0
    assert machines.run("scrub", first).exit_code == 0
    machines.run("umount", first, "--seal")
    assert machines.run("fsck", machines.home / "volume-a").exit_code == 0
    assert machines.run("scrub", machines.home / "volume-a").exit_code == 0


def test_a_wrong_token_is_an_authentication_error(refusing: Machines) -> None:
    wrong = refusing.home / "wrong"
    wrong.write_text("not-the-token default\n")
    fresh = refusing.folder("wrong-token")
    ended = refusing.run("link", fresh, refusing.url, "--token-file", wrong, expect=12)
    assert "token" in ended.stderr.lower()


def test_a_server_that_is_gone_is_named(linked: tuple[Machines, Path, Path, Path]) -> None:
    machines, first, *_ = linked
    machines.kill_server()
    ended = machines.run("reconcile", first, expect=13)
    assert machines.address in ended.stderr + ended.stdout


def test_an_unknown_container_is_only_made_when_wanted(refusing: Machines) -> None:
    fresh = refusing.folder("no-create")
    url = refusing.url.replace("/images", "/nothing-there")
    ended = refusing.run("link", fresh, url, "--token-file", refusing.token_file, "--no-create", expect=10)
    assert "nothing-there" in ended.stderr


def test_a_volume_with_another_block_size_is_linked(refusing: Machines) -> None:
    """What travels then: tests/integration/test_sync_block_sizes.py."""
    small = refusing.volume("small", "--block-size", "16KiB")
    refusing.run("link", small, refusing.url, "--token-file", refusing.token_file)
    refusing.run("reconcile", small)
    refusing.run("unlink", small)


def test_an_unmounted_volume_does_not_look_like_deleted_files(linked: tuple[Machines, Path, Path, Path]) -> None:
    machines, first, second, _folder = linked
    before = content(second)
    machines.run("umount", first)
    machines.run("reconcile", first, expect=18)
    machines.reconcile(second)
    assert content(second) == before
    machines.remount("a")
    assert_at_rest(machines, first)


def test_an_emptied_folder_stops_at_the_guard_until_its_plan_is_allowed(
    linked: tuple[Machines, Path, Path, Path],
) -> None:
    machines, first, _second, folder = linked
    for number in range(20):
        (folder / f"small-{number}").write_text(str(number))
    machines.reconcile(folder)
    machines.reconcile(first)
    for path in folder.iterdir():
        if path.name != ".blocksync":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    ended = machines.run("reconcile", folder, expect=16)
    plan = ended.stderr.split("--allow-deletes")[1].split()[0].strip("`'\".")
    assert len(content(first)) > 20
    machines.run("reconcile", folder, "--allow-deletes", plan)
    machines.run("reconcile", first, expect=16)


def test_a_name_that_is_not_utf8_is_reported_and_stays(linked: tuple[Machines, Path, Path, Path]) -> None:
    machines, first, *_ = linked
    strange = os.path.join(os.fsencode(first), b"caf\xe9")
    with open(strange, "wb") as file:
        file.write(b"kept")
    (first / "good").write_text("travels")
    ended = machines.run("reconcile", first, "--json", expect=3)
    assert "caf" in ended.stdout + ended.stderr
    assert ended.summary["pushed"] == 1
    with open(strange, "rb") as file:
        assert file.read() == b"kept"


def test_a_truncated_segment_is_found_by_scrub_and_never_read_as_data(machines: Machines) -> None:
    first = machines.volume("a")
    (first / "disk.img").write_bytes(random.Random(8).randbytes(4 * MIB))
    machines.run("umount", first, "--seal")
    segment = max(
        (machines.home / "volume-a" / "blocks" / "segments").glob("*.seg"), key=lambda path: path.stat().st_size
    )
    os.truncate(segment, segment.stat().st_size // 2)
    ended = machines.run("scrub", machines.home / "volume-a", expect=15)
    assert "disk.img" in ended.stdout + ended.stderr
    machines.remount("a")
    with pytest.raises(OSError, match="Input/output error"):
        (first / "disk.img").read_bytes()


def test_a_garbage_index_is_named_as_corruption_and_can_be_rebuilt(machines: Machines) -> None:
    first = machines.volume("a")
    data = random.Random(9).randbytes(4 * MIB)
    (first / "disk.img").write_bytes(data)
    machines.run("umount", first, "--seal")
    index = machines.home / "volume-a" / "blocks" / "index" / "data.mdb"
    index.write_bytes(b"garbage" * 4096)
    ended = machines.run("mount", machines.home / "volume-a", first, expect=15)
    assert "index" in ended.stderr
    machines.run("fsck", machines.home / "volume-a", expect=15)
    machines.run("fsck", machines.home / "volume-a", "--repair", expect=None)
    machines.remount("a")
    assert (first / "disk.img").read_bytes() == data


def test_clone_onto_an_existing_file_is_a_usage_error(refusing: Machines) -> None:
    first = refusing.home / "a"
    (first / "readme.txt").write_text("kept")
    ended = refusing.run("clone", first / "disk.img", first / "readme.txt", expect=2)
    assert "readme.txt" in ended.stderr
    assert (first / "readme.txt").read_text() == "kept"
