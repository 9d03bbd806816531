from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

import pytest

from blockfs.runtime import space
from blockfs.runtime.space import Space, has_block_limit, host_space

MIB = 1 << 20


@pytest.fixture
def qgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "qgroup"
    folder.mkdir()
    monkeypatch.setattr(space, "_qgroup", lambda _path: folder)
    return folder


def tell(folder: Path, **numbers: int) -> None:
    usual = {
        "limit_flags": 1,
        "max_referenced": 100 * MIB,
        "referenced": 0,
        "max_exclusive": 0,
        "exclusive": 0,
        "rsv_data": 0,
        "rsv_meta_pertrans": 0,
        "rsv_meta_prealloc": 0,
    }
    for name, number in {**usual, **numbers}.items():
        (folder / name).write_text(f"{number}\n")


def quota(total_bytes: int, left_bytes: int) -> Space:
    return Space(total_bytes=total_bytes, free_bytes=left_bytes, available_bytes=left_bytes, is_quota=True)


def test_without_a_quota_it_is_what_statvfs_tells(tmp_path: Path) -> None:
    found, told = host_space(tmp_path.as_posix()), os.statvfs(tmp_path)
    assert found.total_bytes == told.f_blocks * told.f_frsize
    assert not found.is_quota


def test_what_is_reserved_is_used(tmp_path: Path, qgroup: Path) -> None:
    tell(qgroup, referenced=50 * MIB, rsv_data=20 * MIB, rsv_meta_pertrans=3 * MIB, rsv_meta_prealloc=2 * MIB)
    assert host_space(tmp_path.as_posix()) == quota(100 * MIB, 25 * MIB)


def test_the_tighter_of_two_limits_counts(tmp_path: Path, qgroup: Path) -> None:
    tell(qgroup, limit_flags=3, referenced=50 * MIB, max_exclusive=30 * MIB, exclusive=20 * MIB)
    assert host_space(tmp_path.as_posix()) == quota(30 * MIB, 10 * MIB)


def test_a_quota_that_is_exceeded_leaves_nothing(tmp_path: Path, qgroup: Path) -> None:
    tell(qgroup, referenced=101 * MIB)
    assert host_space(tmp_path.as_posix()) == quota(100 * MIB, 0)


@pytest.mark.parametrize("numbers", [{"limit_flags": 0}, {"max_referenced": 1 << 60}], ids=["no limit", "a huge one"])
def test_a_quota_that_leaves_more_than_the_disk_does_not_count(
    tmp_path: Path, qgroup: Path, numbers: dict[str, int]
) -> None:
    tell(qgroup, **numbers)
    assert not host_space(tmp_path.as_posix()).is_quota


def test_a_kernel_that_tells_nothing_has_no_quota(tmp_path: Path, qgroup: Path) -> None:
    assert not host_space(tmp_path.as_posix()).is_quota


class Quotas:
    """A kernel with quotas: hard and soft limits by kind (0 users, 1 groups) and number, as in linux/dqblk_xfs.h."""

    def __init__(self, limits: dict[tuple[int, int], tuple[int, int]]) -> None:
        self.limits = limits

    def syscall(self, number: int, _descriptor: int, command: int, who: int, found: ctypes.Array[ctypes.c_char]) -> int:
        assert (number, command >> 8) == (443, 0x5803)
        limits = self.limits.get((command & 0xFF, who))
        if limits is None:
            return -1
        struct.pack_into("=bbHIQQ", found, 0, 1, 1, 0, who, *limits)
        return 0


@pytest.mark.parametrize(
    ("limits", "expect"),
    [
        ({}, False),
        ({(0, 1000): (0, 0), (1, 100): (0, 0)}, False),
        ({(0, 1000): (7, 0)}, True),
        ({(0, 1000): (0, 7)}, True),
        ({(1, 100): (7, 0)}, True),
        ({(0, 0): (7, 7), (1, 0): (7, 7), (0, 1001): (7, 7)}, False),
    ],
)
def test_a_quota_on_blocks_of_a_user_or_his_group_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[tuple[int, int], tuple[int, int]], expect: bool
) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    assert not has_block_limit(descriptor, 1000, 100)
    monkeypatch.setattr(space, "_libc", Quotas(limits))
    assert has_block_limit(descriptor, 1000, 100) is expect
    assert not has_block_limit(descriptor, 0, 0)
    os.close(descriptor)
