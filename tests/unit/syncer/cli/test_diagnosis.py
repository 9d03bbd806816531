"""What `doctor` concludes."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from syncer.cli.doctor import diagnosis
from syncer.cli.doctor.diagnosis import Level

NOW = 1_790_000_000.0


@pytest.mark.parametrize(
    ("release", "level"),
    [("6.1.0-13-amd64", Level.OK), ("4.11", Level.OK), ("4.9.0", Level.FAIL), ("odd", Level.FAIL)],
)
def test_old_kernels_fail(release: str, level: Level) -> None:
    assert diagnosis.kernel(release).level is level


@pytest.mark.parametrize(
    ("off_s", "took_s", "level"),
    [
        (0, 0, Level.OK),
        (4, 0, Level.OK),
        (-4, 0, Level.OK),
        (30, 0, Level.WARN),
        (-30, 0, Level.WARN),
        (-30, 60, Level.OK),  # the reply took so long that nothing is known
        (90_000, 0, Level.FAIL),
        (-90_000, 0, Level.FAIL),
    ],
)
def test_a_clock_is_judged_within_what_the_reply_proves(off_s: float, took_s: float, level: Level) -> None:
    check = diagnosis.skew(formatdate(NOW + off_s, usegmt=True), NOW - took_s, NOW)
    assert check.level is level
    assert bool(check.remedy) is (level is not Level.OK)
    if level is not Level.OK:
        assert ("behind" if off_s > 0 else "ahead") in check.text


def test_a_server_without_a_clock_or_with_nonsense() -> None:
    assert diagnosis.skew(None, NOW, NOW).level is Level.OK
    assert diagnosis.skew("yesterday", NOW, NOW).level is Level.WARN


@pytest.mark.parametrize(
    ("free", "total", "level"),
    [
        (1 << 40, 1 << 41, Level.OK),
        (2 << 30, 1 << 42, Level.OK),
        (200 << 20, 1 << 42, Level.WARN),
        (200 << 20, 1 << 30, Level.OK),  # a small disk: a fifth of it is free
        (10 << 20, 1 << 42, Level.FAIL),
        (10 << 20, 20 << 20, Level.FAIL),
    ],
)
def test_little_space_is_told_before_it_is_gone(free: int, total: int, level: Level) -> None:
    assert diagnosis.space("space", free, total).level is level


@pytest.mark.parametrize(
    ("limit", "directories", "level"),
    [(65536, 100, Level.OK), (65536, 60000, Level.WARN), (8192, 9000, Level.FAIL), (None, 1, Level.WARN)],
)
def test_watches_run_out_with_the_command_that_allows_more(limit: int | None, directories: int, level: Level) -> None:
    check = diagnosis.watches(limit, directories)
    assert check.level is level
    if limit is not None and level is not Level.OK:
        assert int(check.remedy.split("max_user_watches=")[1].split()[0]) >= 2 * directories


def test_a_host_without_fuse_still_syncs_folders() -> None:
    old = diagnosis.fuse(device=True, library=True, helper=False, root=True, release="4.19.0")
    assert (old.level, old.text) == (Level.OK, "volumes can be mounted, by the front-end pyfuse3")
    for lacking in ("device", "library", "helper"):
        have = {"device": True, "library": True, "helper": True, lacking: False}
        check = diagnosis.fuse(root=False, release="4.19.0-1-amd64", **have)
        assert (check.level, bool(check.remedy)) == (Level.WARN, True)


def test_a_host_without_pyfuse3_mounts_by_the_kernels_own_protocol() -> None:
    for library in (True, False):
        check = diagnosis.fuse(device=True, library=library, helper=True, root=False, release="5.4.0")
        assert (check.level, check.text) == (Level.OK, "volumes can be mounted, by the front-end kernel")


def test_filesystems_and_the_worst_of_all() -> None:
    assert diagnosis.exchange("ext4").level is Level.OK
    nfs = diagnosis.exchange("nfs4")
    assert nfs.level is Level.WARN
    assert diagnosis.worst([diagnosis.exchange("xfs"), nfs]) is Level.WARN
    assert diagnosis.worst([]) is Level.OK
