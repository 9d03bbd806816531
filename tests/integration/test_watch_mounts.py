"""`blocksync watch` on a mounted volume: told by the mount, holding nothing, pushing what is never closed."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockfs.control.client import ControlClient
from syncer.local.volume.root import SNAPSHOT
from tests.integration.syncing import BLOCK, Sync, command
from tests.integration.watching import root_of, watching

NOISE = random.Random(2).randbytes(8 * BLOCK)


@pytest.fixture
def volume(sync: Sync) -> Path:
    path = sync.home / "volume"
    command("init", path)
    return path


@pytest.fixture
def mount(sync: Sync, volume: Path) -> Iterator[Path]:
    """A mounted, linked volume."""
    point = sync.home / "mnt"
    point.mkdir()
    command("mount", volume, point)
    sync("link", point, sync.url, "--token-file", sync.token_file, "--open-files-interval", "1s")
    yield point
    if os.path.ismount(point):
        command("umount", point)


def test_the_mount_tells_of_changes_and_not_of_our_own(sync: Sync, mount: Path) -> None:
    folder = sync.folder("folder")
    with watching(sync.home / "watch.log") as daemon:
        assert daemon.until_root(mount, "idle").watching == "journal"
        (mount / "image").write_bytes(NOISE)
        daemon.until_there(folder / "image", NOISE)
        (mount / "image").rename(mount / "renamed")
        daemon.until_there(folder / "renamed", NOISE)
        (folder / "back").write_bytes(b"1")
        daemon.until_there(mount / "back", b"1")
        daemon.until(lambda live: all(root.phase == "idle" for root in live.roots))


def test_a_volume_can_be_unmounted_under_watch_and_nothing_is_deleted(sync: Sync, volume: Path, mount: Path) -> None:
    folder = sync.folder("folder")
    with watching(sync.home / "watch.log") as daemon:
        (mount / "file").write_bytes(b"1")
        daemon.until_there(folder / "file", b"1")
        daemon.until_root(mount, "idle")
        command("umount", mount)
        daemon.until_root(mount, "away")
        (folder / "other").write_bytes(b"2")
        daemon.until(lambda live: root_of(live, folder).changed.get("pushed", 0) == 1)
        assert (folder / "file").read_bytes() == b"1"
        command("mount", volume, mount)
        daemon.until_there(mount / "other", b"2")


def test_a_file_that_is_never_closed_is_pushed_from_snapshots(sync: Sync, volume: Path, mount: Path) -> None:
    folder = sync.folder("folder")
    with watching(sync.home / "watch.log") as daemon:
        daemon.until_root(mount, "idle")
        with (mount / "disk").open("wb", buffering=0) as disk:
            disk.write(NOISE)
            daemon.until_there(folder / "disk", NOISE)
            disk.write(NOISE)
            os.fsync(disk.fileno())
            daemon.until_there(folder / "disk", NOISE + NOISE)
        daemon.until_root(mount, "idle")
        assert daemon.stop() == 0
    assert snapshots(volume) == []


def test_a_snapshot_that_a_killed_daemon_left_goes_with_the_next_start(sync: Sync, volume: Path, mount: Path) -> None:
    with ControlClient(os.fsencode(volume)) as client:
        client.create_snapshot(b"", SNAPSHOT)
    with watching(sync.home / "watch.log") as daemon:
        daemon.until_root(mount, "idle")
    assert snapshots(volume) == []


def snapshots(volume: Path) -> list[bytes]:
    with ControlClient(os.fsencode(volume)) as client:
        return [found.name for found in client.snapshots()]
