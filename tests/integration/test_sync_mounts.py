"""Mounted volumes as roots against a real server: what only a blockfs root does, or must not do."""

from __future__ import annotations

import os
import random
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from syncer.state.statedb import StateDB
from tests.integration.syncing import BLOCK, Sync, command, content, linked
from tests.power.faults import FAIL_ONE_FLUSH
from tests.power.trial import blocksync

NOISE = random.Random(1).randbytes(40 * BLOCK)


@pytest.fixture
def pair(sync: Sync, mounts: Sequence[Path]) -> Iterator[tuple[Path, ...]]:
    """Two mounted volumes linked to one container."""
    with linked(sync, mounts) as roots:
        yield roots


def test_a_file_of_which_something_was_lost_is_named_and_all_others_are_synced(sync: Sync, tmp_path: Path) -> None:
    """The host below the volume failed to write a part of it: neither NUL nor old bytes go to the server."""
    root, volume, trigger = tmp_path / "m", tmp_path / "volume", tmp_path / "trigger"
    noise = os.urandom(40 * BLOCK)  # the server must not know it, nor after this test what others send
    root.mkdir()
    command("init", volume)
    blocksync("mount", "--no-native", volume, root, before=FAIL_ONE_FLUSH.format(trigger=os.fspath(trigger)))
    try:
        sync("link", root, sync.url, "--token-file", sync.token_file)
        (root / "bad").write_bytes(noise)
        sync.reconcile(root)
        (root / "good").write_bytes(noise[::-1])
        with (root / "bad").open("r+b") as bad:
            bad.write(b"new")
            bad.flush()
            trigger.touch()
            with pytest.raises(OSError, match="Input/output"):
                os.fsync(bad.fileno())
        for pushed in (1, 0):
            assert sync.reconcile(root, expect=3)["pushed"] == pushed
            assert "4096 bytes of it could not be written to the disk below the volume" in sync.out + sync.err
        (root / "more").write_bytes(b"more")
        assert sync.reconcile(root, "--snapshot", expect=3)["pushed"] == 1
        assert "4096 bytes of it could not be written" in sync.out + sync.err
        other = sync.folder("other")
        sync.reconcile(other)
        assert (other / "bad").read_bytes() == noise
        assert (other / "good").read_bytes() == noise[::-1]
        assert (other / "more").read_bytes() == b"more"
        (root / "bad").write_bytes(b"new" + noise[3:])
        assert sync.reconcile(root)["pushed"] == 1
        sync.reconcile(other)
        assert (other / "bad").read_bytes() == b"new" + noise[3:]
    finally:
        sync("unlink", root)
        command("umount", root)


def settle(sync: Sync, *roots: Path) -> None:
    for root in roots:
        sync.reconcile(root)


def test_nothing_is_scanned_or_hashed_and_one_page_costs_one_block(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    # New each time: of an earlier test the volume may still have blocks. None ends with a zero, which would be cut off.
    noise = b"".join(os.urandom(BLOCK - 1) + b"\1" for _ in range(40))
    (first / "image").write_bytes(noise)
    up = sync.reconcile(first)
    assert up["bytes_read_local"] == len(noise)  # each block once, to send it
    down = sync.reconcile(second)
    assert (down["blocks_received"], down["bytes_read_local"]) == (40, 0)
    with (first / "image").open("r+b") as file:
        file.seek(7 * BLOCK + 4096)
        file.write(os.urandom(4096))
    up, down = sync.reconcile(first), sync.reconcile(second)
    assert (up["blocks_sent"], up["bytes_read_local"]) == (1, BLOCK)
    assert (down["blocks_received"], down["bytes_read_local"]) == (1, 0)
    assert content(first) == content(second)
    sync.at_rest(first, second)


def test_a_change_of_a_long_file_costs_no_block_list(sync: Sync, pair: tuple[Path, Path]) -> None:
    """Pushed by the one who made it, and, after a pull, by the other one."""
    first, second = pair
    with (first / "image").open("wb") as file:
        for index in range(2000):
            file.seek(index * BLOCK)
            file.write(b"%d" % (index % 7))
        file.truncate(2000 * BLOCK)
    settle(sync, first, second)
    for writer, reader in ((first, second), (second, first), (first, second)):
        with (writer / "image").open("r+b") as file:
            file.seek(1234 * BLOCK)
            file.write(os.urandom(4096))
        up, down = sync.reconcile(writer), sync.reconcile(reader)
        assert up["bytes_sent"] <= 1.5 * BLOCK + 4096
        assert down["bytes_received"] <= 1.5 * BLOCK + 4096
        assert up["bytes_read_local"] <= BLOCK
        assert down["bytes_read_local"] == 0
    assert content(first) == content(second)
    sync.at_rest(first, second)


def test_the_first_change_of_a_long_file_that_was_equal_from_the_start_costs_no_block_list(
    sync: Sync, pair: tuple[Path, Path]
) -> None:
    for root in pair:
        with (root / "image").open("wb") as file:
            for index in range(2000):
                file.seek(index * BLOCK)
                file.write(b"%d" % (index % 7))
            file.truncate(2000 * BLOCK)
    settle(sync, *pair)
    first, second = pair
    for writer, reader in ((second, first), (first, second)):
        with (writer / "image").open("r+b") as file:
            file.seek(77 * BLOCK)
            file.write(os.urandom(4096))
        up, down = sync.reconcile(writer), sync.reconcile(reader)
        assert up["bytes_sent"] <= 1.5 * BLOCK + 4096
        assert down["bytes_received"] <= 1.5 * BLOCK + 4096
    assert content(first) == content(second)


def test_rename_and_clone_transfer_and_read_nothing(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    (first / "d").mkdir()
    (first / "d/image").write_bytes(NOISE)
    settle(sync, first, second)
    inode = os.stat(second / "d/image").st_ino
    command("clone", first / "d/image", first / "clone")
    (first / "d").rename(first / "e")
    for root in pair:
        summary = sync.reconcile(root)
        assert (summary["moved"], summary["blocks_sent"], summary["blocks_received"]) == (1, 0, 0)
        assert summary["blocks_from_own"] == (len(NOISE) // BLOCK if root == second else 0)
        assert summary["bytes_read_local"] == 0
    assert content(first) == content(second)
    assert os.stat(second / "e/image").st_ino == inode
    sync.at_rest(first, second)


def test_every_kind_of_change_arrives(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    for name in ("swap-a", "swap-b", "gone", "bye/file", "keep"):
        (first / name).parent.mkdir(exist_ok=True)
        (first / name).write_bytes(name.encode())
    (first / "link").symlink_to("keep")
    settle(sync, first, second)
    (first / "swap-a").rename(first / "t")
    (first / "swap-b").rename(first / "swap-a")
    (first / "t").rename(first / "swap-b")
    (first / "gone").unlink()
    (first / "bye/file").unlink()
    (first / "bye").rmdir()
    (first / "link").unlink()
    (first / "link").symlink_to("elsewhere")
    (first / "keep").chmod(0o600)
    os.utime(first / "keep", ns=(5, 5_000_000_007))
    (first / "sub").mkdir(mode=0o750)
    (first / "sub/empty").write_bytes(b"")
    os.link(first / "keep", first / "sub/hard")
    settle(sync, first, second)
    assert content(first) == content(second)
    found = os.stat(second / "keep")
    assert (found.st_mode & 0o777, found.st_mtime_ns) == (0o600, 5_000_000_007)
    assert os.stat(second / "sub").st_mode & 0o777 == 0o750
    assert len(list((second / ".blocksync/trash").iterdir())) == 5  # gone, file, link; a swap is two edits
    sync.at_rest(first, second)


def test_the_base_is_not_read_as_a_whole(sync: Sync, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = pair
    for number in range(9):
        (first / f"d{number}").mkdir()
        (first / f"d{number}" / "f").write_bytes(b"%d" % number)
    settle(sync, first, second)
    sync.at_rest(first, second)
    monkeypatch.setattr(StateDB, "load_base", None)
    (first / "d1/f").write_bytes(b"changed")
    (first / "d2").rename(first / "d3" / "moved")
    (first / "d3/moved/new").write_bytes(b"new")
    (first / "d4/f").unlink()
    (first / "d4").rmdir()
    (first / "d5/f").rename(first / "d6" / "f")
    os.link(first / "d7/f", first / "hard")
    (second / "d8/f").write_bytes(b"theirs")
    settle(sync, first, second, first)
    assert content(first) == content(second)
    sync.at_rest(first, second)


def test_random_changes_leave_nothing_to_a_look_at_everything(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    (first / "d/e").mkdir(parents=True)
    settle(sync, first, second)
    for seed in range(15):
        rng = random.Random(seed)
        device, other = rng.sample(pair, 2)
        for _ in range(rng.randrange(1, 8)):
            change(rng, device, seed)
        settle(sync, device, other)
        assert content(device) == content(other), seed
    sync("verify", first)


def change(rng: random.Random, root: Path, seed: int) -> None:
    """One step of a user."""
    folders = [folder for folder in (root, *root.rglob("*")) if folder.is_dir() and ".blocksync" not in folder.parts]
    place, other, name = rng.choice(folders), rng.choice(folders), f"n{rng.randrange(5)}"
    match rng.randrange(6):
        case 0 | 1:
            if not (place / name).is_dir():
                (place / name).write_bytes(b"%d %d" % (seed, rng.randrange(100)))
        case 2:
            (place / f"d{name}").mkdir(exist_ok=True)
        case 3 if (place / name).is_file():
            (place / name).unlink()
        case 4 if (place / name).is_file():
            os.link(place / name, other / f"l{seed}-{rng.randrange(99999)}")
        case _ if place != root and place not in (other, *other.parents) and not (other / place.name).exists():
            place.rename(other / place.name)


def test_both_sides_edit_and_both_contents_stay(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    (first / "image.img").write_bytes(NOISE)
    settle(sync, first, second)
    edits = [NOISE + b"edited first", NOISE + b"edited then"]  # of this test only: its volumes have had others
    for root, edit in zip(pair, edits, strict=True):
        (root / "image.img").write_bytes(edit)
    sync.reconcile(first)
    conflict = sync.reconcile(second, expect=4)
    assert (conflict["conflicts"], conflict["blocks_sent"], conflict["blocks_received"]) == (1, 1, 1)
    sync.reconcile(first)
    assert content(first) == content(second)
    assert sorted(content(first).values(), key=str) == sorted(edits, key=str)
    sync.at_rest(first, second)


def test_a_file_that_is_open_for_writing_waits_until_it_is_closed(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    (first / "image").write_bytes(NOISE)
    settle(sync, first, second)
    with (first / "image").open("r+b") as writer:
        writer.write(b"half")
        writer.flush()
        (first / "other").write_bytes(b"goes")
        lines = sync("reconcile", first, "--json")
        assert lines[-1]["pushed"] == 1
        assert [line["path"] for line in lines if line["type"] == "note"] == ["image"]
    assert sync.reconcile(first)["pushed"] == 1
    with (second / "image").open("r+b") as writer:
        lines = sync("reconcile", second, "--json")
        assert lines[-1]["pulled"] == 1
        assert "open for writing" in str([line for line in lines if line["type"] == "note"])
        assert (second / "image").read_bytes() == NOISE
    assert sync.reconcile(second)["pulled"] == 1
    assert content(first) == content(second)
    sync.at_rest(first, second)


def test_what_failed_is_seen_again_although_the_journal_went_on(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    with open(os.fsencode(first) + b"/caf\xe9", "wb") as file:
        file.write(b"x")
    (first / "good").write_bytes(b"y")
    for _ in range(2):
        lines = sync("reconcile", first, "--json", expect=3)
        assert [line["path"] for line in lines if line["type"] == "failure"] == ["caf\\xe9"]
    os.rename(os.fsencode(first) + b"/caf\xe9", os.fsencode(first) + b"/cafe")
    assert sync.reconcile(first)["pushed"] == 1
    sync.reconcile(second)
    assert content(first) == content(second) == {"cafe": b"x", "good": b"y"}
    sync.at_rest(first, second)


def test_an_unmounted_volume_is_an_identity_error_and_a_subfolder_an_ordinary_root(
    sync: Sync, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    first, second = pair
    (first / "file").write_bytes(b"x")
    settle(sync, first, second)
    volume = first.with_name(f"volume-{first.name}")
    command("umount", first)
    try:
        sync("reconcile", first, expect=18)
        sync("link", volume, sync.url, "--token-file", sync.token_file, expect=2)
        (status,) = sync("status", first, "--json")
        assert (status["condition"], status["kind"]) == ("away", "volume")
    finally:
        command("mount", volume, first)
    sync.at_rest(first, second)
    (first / "inner").mkdir()
    sync("link", first / "inner", sync.url, "--token-file", sync.token_file, expect=2)  # it lies in a linked root
    (first / "inner").rmdir()


@pytest.mark.parametrize("since", ["nothing", "an edit", "more than before"])
def test_a_volume_put_back_from_a_backup_is_an_identity_error_until_it_is_linked_anew(
    sync: Sync, pair: tuple[Path, Path], since: str
) -> None:
    """What was written after the backup is not deleted elsewhere, nor does what is written after it pass for known."""
    first, second = pair
    volume = first.with_name(f"volume-{first.name}")
    (first / "report").write_bytes(b"of before")
    settle(sync, first, second)
    command("umount", "--seal", first)
    subprocess.run(["cp", "-a", volume, volume.with_name("backup")], check=True)
    command("mount", volume, first)
    sync.at_rest(first, second)
    (first / "report").write_bytes(b"of Monday")
    (first / "monday").write_bytes(b"made on Monday")
    settle(sync, first, second)
    command("umount", "--seal", first)
    subprocess.run(["rm", "-rf", volume], check=True)
    volume.with_name("backup").rename(volume)  # cp -a made it anew, as it would on the way back
    command("mount", volume, first)
    if since != "nothing":
        (first / "report").write_bytes(b"of Tuesday")
    for number in range(60 if since == "more than before" else 0):
        (first / "more").write_bytes(b"%d" % number)
    for _ in range(2):
        sync("reconcile", first, expect=18)
    assert "--relink" in sync.out + sync.err
    sync.reconcile(second)
    assert content(second) == {"report": b"of Monday", "monday": b"made on Monday"}
    sync("link", first, sync.url, "--token-file", sync.token_file, "--relink")
    sync.reconcile(first, expect=4)
    sync.reconcile(second)
    assert content(first) == content(second)
    assert {b"of Monday", b"made on Monday"} <= set(content(first).values())
    assert since == "nothing" or b"of Tuesday" in content(first).values()
    sync.at_rest(first, second)


def test_a_folder_inside_a_mount_works_as_an_ordinary_root(sync: Sync, mounts: Sequence[Path]) -> None:
    inner = mounts[0] / "inner"
    inner.mkdir()
    sync("link", inner, sync.url, "--token-file", sync.token_file)
    (inner / "file").write_bytes(NOISE)
    assert sync.reconcile(inner)["pushed"] == 1
    other = sync.folder("other")
    sync.reconcile(other)
    (other / "file").write_bytes(NOISE + b"more")
    sync.reconcile(other)
    assert sync.reconcile(inner)["pulled"] == 1
    assert content(inner) == content(other)
    sync("unlink", inner)
    subprocess.run(["rm", "-rf", inner], check=True)


def test_volume_and_folder_are_devices_of_one_share(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    folder = sync.folder("folder")
    (folder / "image").write_bytes(NOISE)
    settle(sync, folder, first, second)
    with (first / "image").open("r+b") as file:
        file.truncate(10 * BLOCK + 5)
    settle(sync, first, folder, second)
    assert content(first) == content(second) == content(folder)
    with (folder / "image").open("ab") as file:
        file.write(bytes(3 * BLOCK) + b"end")
    settle(sync, folder, first, second)
    assert content(first) == content(second) == content(folder)
    sync.at_rest(first, second, folder)


class PairWriter(threading.Thread):
    """Holds two files open and writes a number durably to the one, then to the other: a is b or b + 1, always."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._paths = [folder / name for name in ("a", "b")]
        self.stopping = threading.Event()
        self.began = threading.Event()

    def run(self) -> None:
        files = [os.open(path, os.O_RDWR | os.O_CREAT) for path in self._paths]
        number = 0
        while not self.stopping.is_set():
            number += 1
            for file in files:
                os.pwrite(file, b"%020d" % number, 0)
                os.fsync(file)
            self.began.set()
        for file in files:
            os.close(file)


def test_files_that_are_always_open_are_pushed_as_of_one_instant(sync: Sync, pair: tuple[Path, Path]) -> None:
    """A running guest's disk and nvram: the other side gets a pair that was there at one moment, and then the next."""
    first, second = pair
    writer = PairWriter(first)
    writer.start()
    seen = []
    try:
        assert writer.began.wait(60)
        for _ in range(3):
            sync("reconcile", first, "--snapshot")
            sync.reconcile(second)
            seen.append(tuple(int((second / name).read_bytes()) for name in ("a", "b")))
        assert os.listdir(first / ".snapshots") == []
    finally:
        writer.stopping.set()
        writer.join()
    assert all(one - other in {0, 1} for one, other in seen), seen
    assert seen[0][0] < seen[1][0] < seen[2][0]
    settle(sync, first, second)
    assert (second / "a").read_bytes() == (first / "a").read_bytes()
    assert sync.reconcile(first)["mutating_requests"] == 0


def test_a_snapshot_that_a_killed_cycle_left_is_removed_by_the_next(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    (first / "f").write_bytes(b"old")
    command("snapshot", first, ".blocksync-reconcile")
    (first / "f").write_bytes(b"new")
    sync("reconcile", first, "--snapshot")
    sync.reconcile(second)
    assert (second / "f").read_bytes() == b"new"
    assert os.listdir(first / ".snapshots") == []


def test_a_cycle_from_a_snapshot_sees_what_changed_and_what_went(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    (first / "d").mkdir()
    (first / "d/kept").write_bytes(b"1")
    (first / "d/gone").write_bytes(b"2")
    settle(sync, first, second)
    (first / "d/gone").unlink()
    (first / "d/kept").rename(first / "moved")
    (first / "made").write_bytes(b"3")
    (second / "theirs").write_bytes(b"4")
    sync.reconcile(second)
    sync("reconcile", first, "--snapshot")
    sync.reconcile(second)
    assert content(first) == content(second)
    assert (first / "theirs").read_bytes() == b"4"
    assert sorted(content(second)) == sorted(content(first))
    assert sync.reconcile(first)["mutating_requests"] == 0


def test_a_snapshot_of_an_ordinary_folder_is_refused(sync: Sync, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    sync("link", folder, sync.url, "--token-file", sync.token_file)
    sync("reconcile", folder, "--snapshot", expect=2)
    sync("unlink", folder)


def test_blocks_of_another_root_of_this_machine_are_not_fetched(
    sync: Sync, mounts: Sequence[Path], tmp_path: Path
) -> None:
    volume, (folder, other) = mounts[0], (tmp_path / "folder", tmp_path / "other")
    sync("link", volume, sync.url, "--token-file", sync.token_file)
    for root in (folder, other):
        root.mkdir()
        sync("link", root, f"{sync.url}-far", "--token-file", sync.token_file)
    (volume / "image").write_bytes(NOISE)
    (other / "copy").write_bytes(NOISE + b"more")
    sync.reconcile(volume)
    sync.reconcile(other)
    sync("unlink", other)
    assert sync.reconcile(folder)["blocks_received"] == 1
    assert (folder / "copy").read_bytes() == NOISE + b"more"
    sync("unlink", volume)
    (volume / "image").unlink()
