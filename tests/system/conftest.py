"""System tests leave nothing behind."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Mounted, mounted_below
from tests.system.posix import Pair


@pytest.fixture(autouse=True)
def checked(nothing_left: None) -> None:
    """Every system test is checked for leftovers; this fixture ends after all others of the test."""


EXT4_MAGIC = 0xEF53


@pytest.fixture(scope="module")
def ext4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on ext4: the temporary folder if it is on one, else an image of its own."""
    folder = tmp_path_factory.mktemp("ext4")
    kind = subprocess.run(["stat", "-f", "-c", "%t", folder], capture_output=True, text=True, check=True).stdout.strip()
    if int(kind, 16) == EXT4_MAGIC:
        yield folder
        return
    image, mountpoint = folder / "image", folder / "mount"
    mountpoint.mkdir()
    subprocess.run(["mkfs.ext4", "-q", image, "256M"], check=True)
    subprocess.run(["mount", "-o", "loop", image, mountpoint], check=True)
    yield mountpoint
    subprocess.run(["umount", mountpoint], check=True)


@pytest.fixture(scope="module")
def open_mount(fuse: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    """One mount for all tests of a module that lets all users in."""
    yield from mounted_below(tmp_path_factory.mktemp("open"), "--allow-other")


@pytest.fixture
def pair(open_mount: Mounted, ext4: Path, request: pytest.FixtureRequest) -> Pair:
    """Two empty folders that anyone may write to."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:100]
    made = Pair(open_mount.path / name, ext4 / name)
    for path in (made.mount, made.ext4):
        path.mkdir()
        path.chmod(0o777)
    return made
