"""The power goes under a mixed load: what was fsynced is there, and nothing is made up.

Few cuts here; `make soak` does hundreds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import effort
from tests.power.disk import HOSTS
from tests.power.faults import ADOPTS_ALL
from tests.power.recording import Loss, read_entries, surviving
from tests.power.trial import Trial, cut_power, look_with_engine, look_with_mount, record


@pytest.fixture(scope="module", params=["copied", "adopted", "xfs", "btrfs"])
def trial(fuse: None, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Trial:
    """A load that was recorded on a sound volume.

    On ext4 it is sealed by copying, or so that all that is new becomes a segment; elsewhere the mount is native.
    """
    home, how = tmp_path_factory.mktemp("power"), str(request.param)
    if how in HOSTS:
        return record(home, rounds=40, seed=1, host=how)
    return record(home, rounds=40, seed=1, fault=ADOPTS_ALL if how == "adopted" else "")


def test_what_was_promised_survives_a_power_cut(trial: Trial) -> None:
    assert cut_power(trial, effort.count("power cuts"), look_with_engine, seed=1) == []


def test_a_volume_can_be_mounted_after_a_power_cut(trial: Trial) -> None:
    assert cut_power(trial, effort.count("power cuts, mounted"), look_with_mount, seed=2) == []


def test_the_load_is_worth_cutting(trial: Trial) -> None:
    entries = read_entries(trial.recording)
    assert sum(entry.offset is None for entry in entries) > 200
    promises = [history.promises for history in (*trial.log.cells.values(), *trial.log.names.values())]
    assert all(len(made) > 1 for made in promises), "each file was promised something"


def test_a_mount_that_flushes_nothing_is_found_out(fuse: None, tmp_path: Path) -> None:
    """Else the tests above would prove nothing."""
    trial = record(tmp_path, rounds=25, seed=3, fault="import os; os.fdatasync = lambda descriptor: None")
    assert cut_power(trial, 5, look_with_engine, seed=3)


@pytest.mark.parametrize("loss", list(Loss))
def test_a_disk_loses_whole_sectors_and_makes_nothing_up(loss: Loss) -> None:
    writes = [(8192 * number, bytes([number + 1]) * 8192) for number in range(40)]
    unit = {Loss.TORN_SECTORS: 512, Loss.TORN_PAGES: 4096}.get(loss, 8192)
    kept = list(surviving(writes, loss, seed=1))
    for offset, data in kept:
        assert offset % unit == 0
        assert len(data) % unit == 0
        assert data == bytes([offset // 8192 + 1]) * len(data)
    total = sum(len(data) for _, data in kept)
    assert {Loss.NONE: total == 40 * 8192, Loss.ALL: total == 0}.get(loss, 0 < total < 40 * 8192)
