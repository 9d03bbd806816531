"""Ballast: thrown off when nothing else makes room, taken back when there is plenty."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from blockfs.engine.config import EngineConfig
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.space import ballast as ballast_module
from blockfs.engine.space.ballast import Ballast
from blockfs.errors import NoSpaceError, QuotaError
from blockfs.tree.store import Tree
from tests.unit.blockfs.engine.volumes import create, make

SIZE = 1 << 20


@pytest.fixture
def ballast(tmp_path: Path) -> Ballast:
    made = Ballast(bytes(tmp_path), SIZE)
    made.take_back()
    return made


def allocated(path: Path) -> int:
    file = path / "ballast"
    return file.stat().st_blocks * 512 if file.exists() else 0


def throw_off(ballast: Ballast) -> None:
    failures = [NoSpaceError("full")]

    def action() -> None:
        if failures:
            raise failures.pop()

    ballast.spend(action)


def test_ballast_occupies_its_space(ballast: Ballast, tmp_path: Path) -> None:
    assert allocated(tmp_path) >= SIZE


@pytest.mark.parametrize("error", [NoSpaceError("full"), QuotaError("quota")])
def test_what_finds_no_room_is_done_again_without_the_ballast(
    ballast: Ballast, tmp_path: Path, error: NoSpaceError
) -> None:
    failures = [error]

    def action() -> str:
        if failures:
            raise failures.pop()
        return f"done with {allocated(tmp_path)}"

    assert ballast.spend(action) == "done with 0"


def test_without_ballast_it_fails_as_it_did(ballast: Ballast) -> None:
    calls = []

    def action() -> None:
        calls.append(1)
        raise NoSpaceError("full")

    for expected in (2, 3):  # thrown off and tried again; then there is none
        with pytest.raises(NoSpaceError):
            ballast.spend(action)
        assert len(calls) == expected


def test_a_host_that_can_not_remove_it_is_told_as_full(ballast: Ballast, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: bytes) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def action() -> None:
        raise NoSpaceError("full")

    monkeypatch.setattr(ballast_module.os, "unlink", fail)
    with pytest.raises(NoSpaceError):
        ballast.spend(action)


def test_other_failures_cost_no_ballast(ballast: Ballast, tmp_path: Path) -> None:
    def action() -> None:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - any will do
        ballast.spend(action)
    assert allocated(tmp_path) >= SIZE


def test_it_is_taken_back_only_when_there_is_plenty(
    ballast: Ballast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    throw_off(ballast)
    assert allocated(tmp_path) == 0
    real = os.statvfs(tmp_path)
    nearly_full = os.statvfs_result((real.f_bsize, 4096, real.f_blocks, 300, 300, *list(real)[5:]))
    with monkeypatch.context() as patched:
        patched.setattr(ballast_module.os, "statvfs", lambda _: nearly_full)
        with pytest.raises(NoSpaceError):
            ballast.take_back()
    assert allocated(tmp_path) == 0
    ballast.take_back()
    assert allocated(tmp_path) >= SIZE


def test_a_quota_that_forbids_it_leaves_nothing_occupied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ballast = Ballast(bytes(tmp_path), SIZE)

    def refuse(fd: int, _offset: int, _length: int) -> None:
        os.truncate(fd, SIZE // 2)
        raise OSError(122, "Disk quota exceeded")

    monkeypatch.setattr(ballast_module.os, "posix_fallocate", refuse)
    with pytest.raises(QuotaError):
        ballast.take_back()
    assert not (tmp_path / "ballast").exists()


def test_a_commit_that_finds_no_room_takes_the_ballast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "volume")
    filesystem = Filesystem.open(path, EngineConfig(background=False, ballast_bytes=SIZE))
    filesystem.ballast.take_back()
    real = Tree.write
    failures = [NoSpaceError("full")]

    def write(tree: Tree, change_set: object) -> None:
        if failures:
            raise failures.pop()
        real(tree, change_set)  # type: ignore[arg-type]

    monkeypatch.setattr(Tree, "write", write)
    create(filesystem, b"name")
    filesystem.commit()
    assert allocated(tmp_path / "volume") == 0
    assert filesystem.tree.is_clean
    filesystem.close()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "ballast").symlink_to("precious")
    with pytest.raises(OSError, match="symbolic links"):
        Ballast(bytes(tmp_path), SIZE).take_back()
    assert (tmp_path / "precious").read_bytes() == b"precious"
