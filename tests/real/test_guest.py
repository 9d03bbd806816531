"""A guest on the mount survives the death of its qemu and of the mount. Full counts: tests/soak/guest.py."""

from __future__ import annotations

import json
import os
import random
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import effort
from tests.conftest import Mounted, mounted_below
from tests.kit.hostfs import MIB, mounted_file
from tests.real.guest import TRIMMED_MIB, Mode
from tests.real.trial import Trial

RAW = Mode(format="raw", cache="none", aio="io_uring")
OVERLAYS = Mode(format="qcow2", cache="writeback", aio="threads")


@pytest.fixture(scope="module")
def xfs(fuse: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of a host that has reflinks."""
    with mounted_file(tmp_path_factory.mktemp("xfs"), 2048 * MIB, "mkfs.xfs", "-q") as path:
        yield path


@pytest.fixture
def native(xfs: Path, request: pytest.FixtureRequest) -> Iterator[Mounted]:
    """A mount that is native, and is so again whenever it is mounted again."""
    home = xfs / request.node.name
    home.mkdir()
    process = -1
    for mount in mounted_below(home):
        yield mount
        told = json.loads(mount.run("stats", mount.path, "--json").stdout)
        assert told["mode"] == "native", told
        process = os.pidfd_open(mount.pid)
    select.select([process], [], [])  # until it ends the host's filesystem is busy
    os.close(process)


def test_a_guest_finds_all_it_synced_after_its_qemu_or_the_mount_was_killed(mounted: Mounted, tmp_path: Path) -> None:
    kill_often(Trial(mounted, tmp_path, RAW))


def test_on_a_native_mount_too_it_finds_all_after_its_qemu_or_the_mount_was_killed(
    native: Mounted, tmp_path: Path
) -> None:
    kill_often(Trial(native, tmp_path, RAW))


def kill_often(trial: Trial) -> None:
    trial.run_rounds(["mount", "qemu"] * (effort.count("guest") // 2), random.Random(1), syncs=40)
    trial.check_volume()


def test_a_guest_on_a_chain_of_overlays_trims_its_disk_and_ends_clean(mounted: Mounted, tmp_path: Path) -> None:
    trim(Trial(mounted, tmp_path, OVERLAYS))


def test_what_a_guest_trims_is_free_on_a_native_mount(native: Mounted, tmp_path: Path) -> None:
    trim(Trial(native, tmp_path, RAW))


def trim(trial: Trial) -> None:
    before = trial.disk.stat().st_blocks
    console = trial.power_off(versions=20)
    assert "trimmed" in console, console
    trial.check_volume()
    grown = (trial.disk.stat().st_blocks - before) * 512
    assert grown < TRIMMED_MIB * MIB // 2, f"{grown:,} bytes more than before are allocated"
