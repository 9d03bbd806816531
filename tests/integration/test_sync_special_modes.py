"""setuid, setgid and sticky bits between devices: folders and mounted volumes against a real server."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.syncing import Sync, clear


@pytest.fixture(params=["folder", "volume"])
def root(sync: Sync, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder or a mounted volume, not linked yet."""
    root: Path = request.getfixturevalue("mounts")[0] if request.param == "volume" else tmp_path / "root"
    root.mkdir(exist_ok=True)
    yield root
    sync("unlink", root)
    clear(root)


@pytest.fixture
def theirs(sync: Sync, tmp_path: Path) -> Path:
    """A folder of somebody else, who syncs all bits."""
    path = tmp_path / "theirs"
    path.mkdir()
    link(sync, path, "--special-modes")
    return path


def link(sync: Sync, root: Path, *options: str) -> None:
    sync("link", root, sync.url, "--token-file", sync.token_file, *options)


def put(path: Path, content: bytes, mode: int) -> None:
    path.write_bytes(content)
    path.chmod(mode)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def exchange(sync: Sync, *roots: Path) -> None:
    for root in roots:
        sync.reconcile(root)


def test_bits_from_the_share_are_not_applied(sync: Sync, root: Path, theirs: Path) -> None:
    """Else whoever can write to a share gets a root shell where root syncs."""
    link(sync, root)
    put(theirs / "shell", b"#!/bin/sh", 0o6755)
    (theirs / "folder").mkdir()
    (theirs / "folder").chmod(0o3777)
    exchange(sync, theirs, root)
    assert (mode(root / "shell"), mode(root / "folder")) == (0o755, 0o777)
    (theirs / "later").write_bytes(b"plain")
    exchange(sync, theirs, root)
    (theirs / "later").chmod(0o4711)
    exchange(sync, theirs, root)
    assert mode(root / "later") == 0o711
    (theirs / "later").write_bytes(b"another content")
    (theirs / "later").chmod(0o4711)
    exchange(sync, theirs, root)
    assert mode(root / "later") == 0o711
    assert (root / "later").read_bytes() == b"another content"


def test_a_file_whose_content_comes_from_the_share_loses_its_own_bits(sync: Sync, root: Path, theirs: Path) -> None:
    """Else the share says what a program of root does."""
    link(sync, root)
    put(root / "tool", b"ours", 0o755)
    exchange(sync, root, theirs)
    (root / "tool").chmod(0o6755)
    exchange(sync, root, theirs)
    assert (mode(root / "tool"), mode(theirs / "tool")) == (0o6755, 0o755)
    put(theirs / "tool", b"theirs", 0o755)
    exchange(sync, theirs, root)
    assert ((root / "tool").read_bytes(), mode(root / "tool")) == (b"theirs", 0o755)


def test_a_change_of_permissions_alone_keeps_a_files_own_bits(sync: Sync, root: Path, theirs: Path) -> None:
    link(sync, root)
    put(root / "tool", b"ours", 0o755)
    exchange(sync, root, theirs, root)
    (root / "tool").chmod(0o4755)
    (theirs / "tool").chmod(0o700)
    exchange(sync, theirs, root)
    assert mode(root / "tool") == 0o4700


def test_a_directory_keeps_its_own_bits(sync: Sync, root: Path, theirs: Path) -> None:
    link(sync, root)
    (root / "shared").mkdir()
    (root / "shared").chmod(0o2775)
    exchange(sync, root, theirs)
    assert mode(theirs / "shared") == 0o775
    (theirs / "shared").chmod(0o700)
    (theirs / "shared" / "below").mkdir(mode=0o750)
    exchange(sync, theirs, root)
    assert mode(root / "shared") == 0o2700
    assert mode(root / "shared" / "below") == 0o2750  # as mkdir makes it in such a directory
    sync.at_rest(root, theirs)
    assert (mode(theirs / "shared"), mode(theirs / "shared" / "below")) == (0o700, 0o750)


def test_what_the_server_has_of_other_devices_stays_there(sync: Sync, root: Path, theirs: Path, tmp_path: Path) -> None:
    link(sync, root)
    put(theirs / "tool", b"one", 0o4755)
    (theirs / "folder").mkdir()
    (theirs / "folder").chmod(0o1777)
    exchange(sync, theirs, root)
    (root / "tool").write_bytes(b"two")
    exchange(sync, root)
    (root / "tool").chmod(0o700)
    (root / "folder").chmod(0o755)
    exchange(sync, root)
    (root / "tool").rename(root / "folder" / "moved")
    exchange(sync, root)
    third = tmp_path / "third"
    third.mkdir()
    link(sync, third, "--special-modes")
    exchange(sync, third, theirs)
    for each in (third, theirs):
        assert (mode(each / "folder" / "moved"), mode(each / "folder")) == (0o4700, 0o1755)
        assert (each / "folder" / "moved").read_bytes() == b"two"


def test_two_devices_one_with_and_one_without_the_option_come_to_rest(sync: Sync, root: Path, theirs: Path) -> None:
    link(sync, root)
    for number, (ours, other) in enumerate([(0o4755, 0o755), (0o755, 0o6711), (0o2700, 0o1777), (0o4755, 0o2755)]):
        for device, bits in ((root, ours), (theirs, other)):
            put(device / f"equal{number}", b"equal", bits)
            (device / f"folder{number}").mkdir()
            (device / f"folder{number}").chmod(bits)
    exchange(sync, theirs, root, theirs, root)
    sync.at_rest(theirs, root, theirs)
    for number in range(4):
        (root / f"equal{number}").chmod(0o4640)
        (theirs / f"folder{number}").chmod(0o7750)
    exchange(sync, theirs, root, theirs, root)
    sync.at_rest(theirs, root, theirs)
    assert sync("verify", root, "--deep", "--json")[-1]["difference"] == 0
    assert sync("verify", theirs, "--deep", "--json")[-1]["difference"] == 0


def test_with_the_option_bits_travel_both_ways(sync: Sync, root: Path, theirs: Path) -> None:
    link(sync, root, "--special-modes")
    put(theirs / "tool", b"one", 0o6755)
    (theirs / "folder").mkdir()
    (theirs / "folder").chmod(0o1777)
    exchange(sync, theirs, root)
    assert (mode(root / "tool"), mode(root / "folder")) == (0o6755, 0o1777)
    (root / "tool").chmod(0o755)
    (root / "folder").chmod(0o2775)
    exchange(sync, root, theirs)
    assert (mode(theirs / "tool"), mode(theirs / "folder")) == (0o755, 0o2775)
    put(theirs / "tool", b"two", 0o4755)
    exchange(sync, theirs, root)
    assert ((root / "tool").read_bytes(), mode(root / "tool")) == (b"two", 0o4755)
    sync.at_rest(root, theirs)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_with_the_option_bits_of_a_file_of_another_owner_arrive(sync: Sync, root: Path, theirs: Path) -> None:
    """chown takes them away: they are set after it."""
    link(sync, root, "--special-modes")
    put(root / "tool", b"one", 0o755)
    exchange(sync, root, theirs)
    os.chown(root / "tool", 12345, 12345)
    put(theirs / "tool", b"two", 0o6755)
    exchange(sync, theirs, root)
    assert (mode(root / "tool"), (root / "tool").stat().st_uid) == (0o6755, 12345)
    sync.at_rest(root, theirs)


def test_switching_the_option_on_unites_and_removes_nothing(sync: Sync, root: Path, theirs: Path) -> None:
    link(sync, root)
    put(theirs / "tool", b"one", 0o4755)
    put(theirs / "other", b"one", 0o755)
    exchange(sync, theirs, root)
    (root / "other").chmod(0o2755)
    exchange(sync, root)
    link(sync, root, "--special-modes")
    exchange(sync, root, theirs)
    for each in (root, theirs):
        assert (mode(each / "tool"), mode(each / "other")) == (0o4755, 0o2755)
    sync.at_rest(root, theirs)
    link(sync, root, "--no-special-modes")
    (root / "tool").chmod(0o755)
    exchange(sync, root, theirs)
    assert mode(theirs / "tool") == 0o4755


def test_a_conflict_copy_has_no_bits_of_the_share(sync: Sync, root: Path, theirs: Path) -> None:
    """A local file that only gives way, to a node that was there first, is the same file under another name."""
    link(sync, root)
    put(theirs / "clash", b"theirs", 0o6755)
    put(root / "clash", b"ours", 0o4711)
    put(root / "edited", b"base", 0o755)
    exchange(sync, theirs)
    sync.reconcile(root, expect=4)
    exchange(sync, theirs)
    put(theirs / "edited", b"theirs", 0o6755)
    put(root / "edited", b"ours", 0o4755)
    exchange(sync, theirs)
    sync.reconcile(root, expect=4)
    exchange(sync, theirs, root)
    for name, here, there in (("clash", 0o4711, 0o711), ("edited", 0o755, 0o755)):
        (copy,) = (path.name for path in root.iterdir() if path.name.startswith(f"{name} (conflict"))
        assert ((root / copy).read_bytes(), mode(root / copy), mode(theirs / copy)) == (b"ours", here, there)
        assert ((root / name).read_bytes(), mode(root / name)) == (b"theirs", 0o755)
        assert mode(theirs / name) == 0o6755


def test_what_comes_back_from_the_trash_has_no_bits(sync: Sync, root: Path, theirs: Path) -> None:
    """An earlier release applied what the share said: the trash may still have such files."""
    link(sync, root)
    (root / "another").write_bytes(b"so that not all is deleted")
    put(root / "tool", b"one", 0o755)
    exchange(sync, root, theirs)
    (root / "tool").chmod(0o6755)
    exchange(sync, root)
    (theirs / "tool").unlink()
    exchange(sync, theirs, root)
    assert not (root / "tool").exists()
    sync("trash", "restore", root / "tool")
    assert ((root / "tool").read_bytes(), mode(root / "tool")) == (b"one", 0o755)
    exchange(sync, root, theirs)
    (root / "tool").chmod(0o4755)
    link(sync, root, "--special-modes")
    exchange(sync, root, theirs)
    (theirs / "tool").unlink()
    exchange(sync, theirs, root)
    sync("trash", "restore", root / "tool")
    assert mode(root / "tool") == 0o4755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may set capabilities")
def test_no_capability_comes_from_the_share_nor_outlives_a_content(sync: Sync, root: Path, theirs: Path) -> None:
    """`security.capability` is setuid by another name."""
    capability = bytes.fromhex("0100000200040000000000000000000000000000")  # CAP_DAC_READ_SEARCH, effective
    for each in (root, theirs):
        link(sync, each, "--xattrs", "--special-modes")
    put(theirs / "tool", b"one", 0o755)
    os.setxattr(theirs / "tool", "security.capability", capability)
    os.setxattr(theirs / "tool", "user.security.capability", capability)
    exchange(sync, theirs, root)
    assert "security.capability" not in os.listxattr(root / "tool")
    os.setxattr(root / "tool", "security.capability", capability)
    exchange(sync, root)
    (theirs / "tool").write_bytes(b"two")
    exchange(sync, theirs, root)
    assert (root / "tool").read_bytes() == b"two"
    assert "security.capability" not in os.listxattr(root / "tool")
