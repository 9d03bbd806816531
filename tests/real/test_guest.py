"""A guest on the mount survives the death of its qemu and of the mount. Full counts: tests/soak/guest.py."""

from __future__ import annotations

import random
from pathlib import Path

from tests import effort
from tests.conftest import Mounted
from tests.real.guest import Mode
from tests.real.trial import Trial


def test_a_guest_finds_all_it_synced_after_its_qemu_or_the_mount_was_killed(mounted: Mounted, tmp_path: Path) -> None:
    trial = Trial(mounted, tmp_path, Mode(format="raw", cache="none", aio="io_uring"))
    trial.run_rounds(["mount", "qemu"] * (effort.count("guest") // 2), random.Random(1), syncs=40)
    trial.check_volume()


def test_a_guest_on_a_chain_of_overlays_trims_its_disk_and_ends_clean(mounted: Mounted, tmp_path: Path) -> None:
    trial = Trial(mounted, tmp_path, Mode(format="qcow2", cache="writeback", aio="threads"))
    console = trial.power_off(versions=20)
    assert "trimmed" in console, console
    trial.check_volume()
