from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from blockfs.errors import NoSpaceError, QuotaError
from blockfs.runtime import atomic
from blockfs.runtime.atomic import space_errors, write_all, write_atomically


class Died(BaseException):
    """The process ends here."""


def dying(name: str, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def die(*_: object) -> None:
        raise error

    monkeypatch.setattr(atomic.os, name, die)


def test_a_file_is_created_and_replaced_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(str(path), b"one")
    write_atomically(bytes(path), b"two", mode=0o644)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    """Breaks when root, who writes in a folder of somebody else, can be led to any file."""
    (tmp_path / "victim").write_bytes(b"old")
    (tmp_path / "file.tmp").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        write_atomically(str(tmp_path / "file"), b"new")
    assert (tmp_path / "victim").read_bytes() == b"old"


@pytest.mark.parametrize("step", ["open", "fchmod", "pwrite", "fsync", "rename"])
def test_a_crash_at_any_step_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "file"
    write_atomically(str(path), b"old")
    dying(step, monkeypatch, Died())
    with pytest.raises(Died):
        write_atomically(str(path), b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    write_atomically(str(path), b"newer")
    assert path.read_bytes() == b"newer"
    assert os.listdir(tmp_path) == ["file"]


def test_content_is_synced_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other orders lose the file in a power cut."""
    steps: list[str] = []

    def noting(name: str) -> Callable[..., object]:
        real = getattr(os, name)

        def call(*arguments: object) -> object:
            steps.append(name)
            return real(*arguments)

        return call

    for name in ("pwrite", "fsync", "rename"):
        monkeypatch.setattr(atomic.os, name, noting(name))
    write_atomically(str(tmp_path / "file"), b"x")
    assert steps == ["pwrite", "fsync", "rename", "fsync"]


@pytest.mark.parametrize(("code", "expected"), [(errno.ENOSPC, NoSpaceError), (errno.EDQUOT, QuotaError)])
def test_a_full_disk_keeps_the_old_content_and_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: type[NoSpaceError]
) -> None:
    path = tmp_path / "file"
    write_atomically(str(path), b"old")
    dying("pwrite", monkeypatch, OSError(code, os.strerror(code)))
    with pytest.raises(expected, match="file") as caught:
        write_atomically(str(path), b"new")
    assert caught.value.errno == code
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_other_errors_pass_unchanged() -> None:
    with pytest.raises(OSError, match="I/O"), space_errors("x"):
        raise OSError(errno.EIO, "I/O error")


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(atomic.os, "pwrite", lambda fd, data, offset: real(fd, bytes(data)[:3], offset))
    with open(tmp_path / "file", "wb") as file:
        write_all(file.fileno(), b"0123456789", 2)
    assert (tmp_path / "file").read_bytes() == b"\0\0" + b"0123456789"


def test_long_data_are_written_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a MiB by one call is now and then ten times as dear."""
    real, sizes = os.pwrite, list[int]()

    def noted(fd: int, data: bytes, offset: int) -> int:
        sizes.append(len(data))
        return real(fd, data, offset)

    monkeypatch.setattr(atomic.os, "pwrite", noted)
    data = random.Random(1).randbytes(2 * atomic.WRITE_BYTES + 5)
    with open(tmp_path / "file", "wb") as file:
        write_all(file.fileno(), data, 3)
    assert sizes == [atomic.WRITE_BYTES, atomic.WRITE_BYTES, 5]
    assert (tmp_path / "file").read_bytes() == b"\0\0\0" + data
