"""Fixtures for all tests: volumes, mounts, and the promise that nothing is left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings

from blockfs.runtime.mountinfo import is_below, read_mounts
from tests import effort
from tests.system.machines import Ended, Machines

PROJECT = Path(__file__).parents[1]

# What the tests start keeps its byte code, wherever pytest was started from: else most of its start is compiling.
os.environ.setdefault("PYTHONPYCACHEPREFIX", str(PROJECT / ".pycache"))
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Nothing that the tests start sends anything on this machine's network; who tests that has a namespace of its own.
os.environ["BLOCKSYNC_PEERS"] = "off"

# setup.cfg's bound on a hang is for the counts of every day; those of CI take minutes, beside three other workers.
if effort.chosen() is effort.Effort.FULL:
    os.environ.setdefault("PYTEST_TIMEOUT", "1200")

# A machine that is busy is no failure: no test asserts on time.
settings.register_profile("effort", max_examples=effort.count("properties"), deadline=None)
settings.load_profile("effort")


class Mounted(msgspec.Struct, frozen=True):
    """A mounted volume."""

    machines: Machines
    name: str
    volume: Path
    path: Path

    def run(self, *arguments: str | Path | bytes, expect: int | None = 0) -> Ended:
        """Run blocksync."""
        return self.machines.run(*arguments, expect=expect)

    @property
    def pid(self) -> int:
        """The mount process."""
        return self.machines.mount_pid(self.name)

    def umount(self, *options: str) -> None:
        """Unmount."""
        self.run("umount", self.path, *options)

    def remount(self) -> None:
        """Mount again."""
        self.machines.remount(self.name)

    def kill(self) -> None:
        """SIGKILL the mount process."""
        self.machines.kill_mount(self.name)


@pytest.fixture(scope="session")
def fuse() -> None:
    """What a mount needs."""
    check_fuse()


def check_fuse() -> None:
    """A host that lacks what a mount needs fails the tests: a skip would look like a pass."""
    assert os.access("/dev/fuse", os.R_OK | os.W_OK), "/dev/fuse is missing or not accessible: system tests need FUSE"
    assert os.geteuid() == 0 or shutil.which("fusermount3"), "fusermount3 is not installed (Debian: fuse3)"


def mounted_below(home: Path, *options: str, name: str = "m") -> Iterator[Mounted]:
    """A new volume, mounted with these options, until the fixture that yields from this ends."""
    machines = Machines(home)
    try:
        machines.run("init", home / f"volume-{name}")
        (home / name).mkdir()
        path = machines.remount(name, *options)
        yield Mounted(machines, name, home / f"volume-{name}", path)
    finally:
        machines.close()


@pytest.fixture(scope="module")
def host() -> Path | None:
    """A filesystem for volumes, where the temporary folders' own is not wanted."""
    return None


@pytest.fixture
def home(host: Path | None, tmp_path: Path) -> Path:
    """An empty folder for volumes."""
    if host is None:
        return tmp_path
    path = host / tmp_path.name
    path.mkdir()
    return path


@pytest.fixture
def machines(fuse: None, home: Path) -> Iterator[Machines]:
    """A folder in which volumes can be made and mounted."""
    made = Machines(home)
    yield made
    made.close()


@pytest.fixture
def volume(machines: Machines) -> Path:
    """A new volume that is not mounted."""
    path = machines.home / "volume"
    machines.run("init", path)
    return path


@pytest.fixture
def mounted(fuse: None, home: Path) -> Iterator[Mounted]:
    """A mount of this test's own."""
    yield from mounted_below(home)


@pytest.fixture(scope="module")
def shared_mount(fuse: None, host: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    """One mount for all tests of a module; each works in a folder of its own."""
    yield from mounted_below(module_home(host, tmp_path_factory, "shared"))


def module_home(host: Path | None, tmp_path_factory: pytest.TempPathFactory, name: str) -> Path:
    """An empty folder for a volume of all tests of a module."""
    if host is None:
        return tmp_path_factory.mktemp(name)
    path = host / name
    path.mkdir()
    return path


@pytest.fixture
def place(shared_mount: Mounted, request: pytest.FixtureRequest) -> Path:
    """An empty folder on the module's mount."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:100]
    path = shared_mount.path / name
    path.mkdir()
    return path


def mounts_below(path: Path) -> list[str]:
    """Mountpoints below a path."""
    return [os.fsdecode(mount.mountpoint) for mount in read_mounts() if is_below(mount.mountpoint, os.fsencode(path))]


def processes_about(path: Path) -> dict[int, str]:
    """Processes whose command line names a path."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if os.fsencode(path) in command:
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """After the test: no mount and no process that knows its folder. What is left is taken away, and fails the test."""
    yield
    mounts = mounts_below(tmp_path)
    processes = processes_about(tmp_path)
    for pid in processes:
        os.kill(pid, signal.SIGKILL)
    for mountpoint in reversed(mounts):
        subprocess.run(["umount", "-l", mountpoint], check=False)
    assert not mounts, f"mounts left behind: {mounts}"
    assert not processes, f"processes left behind: {processes}"
