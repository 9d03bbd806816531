"""`mount --read-only`: nothing can be written, everything can be asked."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Mounted
from tests.system.machines import BLOCKSYNC

BESIDE = {"lock", "lock.mdb", "mount.log", "control.sock"}
"""What every mount process writes: locks, its log, its socket."""


def digests(volume: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in volume.rglob("*")
        if path.is_file() and path.name not in BESIDE
    }


@pytest.fixture
def read_only(mounted: Mounted) -> Mounted:
    (mounted.path / "file").write_bytes(os.urandom(200_000))
    (mounted.path / "folder").mkdir()
    mounted.run("flush", mounted.path)
    (mounted.path / "staged").write_bytes(b"not sealed yet")
    mounted.umount()
    mounted.run("mount", "--read-only", mounted.volume, mounted.path)
    return mounted


def test_no_change_is_possible_and_none_is_made(read_only: Mounted) -> None:
    path = read_only.path
    before = digests(read_only.volume)
    changes: list[Callable[[], object]] = [
        (path / "new").touch,
        lambda: (path / "file").open("ab"),
        (path / "file").unlink,
        (path / "folder").rmdir,
        (path / "more").mkdir,
        lambda: (path / "file").rename(path / "other"),
        lambda: (path / "file").chmod(0o600),
        lambda: os.truncate(path / "file", 0),
        lambda: os.utime(path / "file"),
        lambda: os.setxattr(path / "file", "user.x", b"y"),
        lambda: os.link(path / "file", path / "link"),
        lambda: os.symlink("file", path / "symlink"),
    ]
    for change in changes:
        with pytest.raises(OSError) as refused:  # noqa: PT011 - the errno is what is looked at
            change()
        assert refused.value.errno == errno.EROFS
    assert len((path / "file").read_bytes()) == 200_000
    assert (path / "staged").read_bytes() == b"not sealed yet"
    subprocess.run(["sync", "-f", path], check=True)
    read_only.umount()
    assert digests(read_only.volume) == before


def test_questions_are_answered_and_changes_refused(read_only: Mounted) -> None:
    path = read_only.path
    before = digests(read_only.volume)
    for question in ("stats", "fsck", "scrub"):
        read_only.run(question, path)
    for arguments in (("flush", path), ("gc", path), ("umount", path, "--seal")):
        assert "read-only" in read_only.run(*arguments, expect=2).stderr
    assert "read-only" in read_only.run("clone", path / "file", path / "copy", expect=2).stderr
    read_only.umount()
    assert digests(read_only.volume) == before


def test_an_unclean_volume_is_recovered_and_then_left_alone(mounted: Mounted) -> None:
    with (mounted.path / "file").open("wb") as file:
        file.write(b"fsynced")
        file.flush()
        os.fsync(file.fileno())
    mounted.kill()
    mounted.run("mount", "--read-only", mounted.volume, mounted.path)
    recovered = digests(mounted.volume)
    assert (mounted.path / "file").read_bytes() == b"fsynced"
    mounted.kill()
    subprocess.run([BLOCKSYNC, "mount", "-o", "ro", mounted.volume, mounted.path], check=True)
    assert (mounted.path / "file").read_bytes() == b"fsynced"
    mounted.umount()
    assert digests(mounted.volume) == recovered
