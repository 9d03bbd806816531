"""System tests leave nothing behind. At full effort each runs on both front-ends, every day a few do.

Some run on native mounts, too, always.

A module that has `FRONTENDS` runs on those, always.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockfs.engine import volume as volumes
from blockfs.engine.config import EngineConfig
from blockfs.engine.filesystem import Filesystem
from tests import effort
from tests.conftest import Mounted, check_fuse, module_home, mounted_below
from tests.kit.hostfs import MIB, mounted_file
from tests.system.posix import Pair
from tests.system.worlds import OnCalls, OnMount, World

BOTH = ("pyfuse3", "kernel")
ALONE = "calls"
"""No mount: `Calls` without a kernel. Only for modules that use nothing but `world`."""
NATIVE = "native"
"""Our own front-end, on a host with reflinks."""
EVERY_DAY = {"test_posix_users", "test_posix_files", "test_file_handles", "test_posix_machine"}
"""Modules that run on both every day: they cost seconds, and ask for most of what the kernel can ask for."""
NATIVELY = EVERY_DAY | {
    *("test_posix_names", "test_posix_tools", "test_filesystem", "test_kernel_operations", "test_maps"),
    *("test_semantics", "test_semantics_ours"),
}
"""Modules that run on native mounts, too, every day."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the front-ends."""
    if "frontend" not in metafunc.fixturenames:
        return
    name = metafunc.module.__name__.rpartition(".")[2]
    both = BOTH if name in EVERY_DAY or effort.chosen() is effort.Effort.FULL else ()
    chosen = [*getattr(metafunc.module, "FRONTENDS", both)]
    if name in NATIVELY:
        chosen = [*(chosen or ["kernel"]), NATIVE]
    if chosen:
        metafunc.parametrize("frontend", chosen, indirect=True, scope="module")


@pytest.fixture(scope="module")
def frontend(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The front-end of whatever is mounted, or `NATIVE`; None: what `auto` takes."""
    chosen: str | None = getattr(request, "param", None)
    with pytest.MonkeyPatch.context() as patch:
        if chosen is not None:
            patch.setenv("BLOCKSYNC_FRONTEND", "kernel" if chosen == NATIVE else chosen)
        yield chosen or os.environ.get("BLOCKSYNC_FRONTEND")


@pytest.fixture(scope="module")
def host(frontend: str | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """Of native mounts: an XFS."""
    if frontend != NATIVE:
        yield None
        return
    with mounted_file(tmp_path_factory.mktemp("xfs"), 2048 * MIB, "mkfs.xfs", "-q", "-m", "reflink=1") as path:
        (path / "first").mkdir()
        for mount in mounted_below(path / "first"):
            assert json.loads(mount.run("stats", mount.path, "--json").stdout)["mode"] == NATIVE
        yield path


@pytest.fixture(scope="module")
def fuse(frontend: str | None) -> None:
    """As everywhere, for a front-end."""
    check_fuse()


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
    subprocess.run(["mkfs.ext4", "-q", "-b", "4096", "-I", "256", image, "256M"], check=True)
    subprocess.run(["mount", "-o", "loop", image, mountpoint], check=True)
    yield mountpoint
    subprocess.run(["umount", mountpoint], check=True)


@pytest.fixture(scope="module")
def open_mount(fuse: None, host: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    """One mount for all tests of a module that lets all users in."""
    yield from mounted_below(module_home(host, tmp_path_factory, "open"), "--allow-other")


@pytest.fixture
def pair(open_mount: Mounted, ext4: Path, request: pytest.FixtureRequest) -> Pair:
    """Two empty folders that anyone may write to."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:100]
    made = Pair(open_mount.path / name, ext4 / name)
    for path in (made.mount, made.ext4):
        path.mkdir()
        path.chmod(0o777)
    return made


@pytest.fixture
def world(frontend: str | None, request: pytest.FixtureRequest) -> Iterator[World]:
    """An empty directory, and what a program can do there."""
    if frontend != ALONE:
        mounted = OnMount(request.getfixturevalue("shared_mount"), request.getfixturevalue("place"))
        yield mounted
        mounted.end()
        return
    path = os.fsencode(request.getfixturevalue("tmp_path") / "volume")
    volumes.init(path)
    filesystem = Filesystem.open(path, EngineConfig(background=False))
    yield OnCalls(filesystem)
    filesystem.abandon()


@pytest.fixture
def source(place: Path) -> Path:
    """8 MiB with data at both ends of a large hole, and a hole at the end."""
    noise = random.Random(3)
    path = place / "source"
    with path.open("wb") as file:
        file.write(noise.randbytes(300_000))
        file.seek(5 << 20)
        file.write(noise.randbytes(100_000))
        file.truncate(8 << 20)
    return path
