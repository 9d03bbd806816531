"""A file that a program still has open takes another one's name, and the mount dies: the old content or the new one."""

from __future__ import annotations

import mmap
import os
import subprocess
import threading
from pathlib import Path

import pytest

from tests.conftest import Mounted
from tests.kit import deep
from tests.system.machines import Machines

FRONTENDS = ("kernel",)
DATA = b"in the kernel's memory" * 5000
THREADS = 40
"""More than the mount has for what waits."""


@pytest.fixture
def mount(machines: Machines) -> Mounted:
    """A mount with a writeback cache."""
    machines.run("init", machines.home / "volume-m")
    machines.folder("m")
    return Mounted(machines, "m", machines.home / "volume-m", machines.remount("m", "--no-native"))


@pytest.mark.parametrize("folder", ["", "folder"])
@pytest.mark.parametrize("way", ["written", "mapped"])
def test_what_was_written_is_there_after_a_kill(mount: Mounted, way: str, folder: str) -> None:
    """Breaks as an empty file: neither the old content nor the new one."""
    (mount.path / folder).mkdir(exist_ok=True)
    temporary, path = mount.path / "temporary", mount.path / folder / "file"
    path.write_bytes(b"old")
    with temporary.open("wb+") as file:
        if way == "written":
            os.pwrite(file.fileno(), DATA, 0)
            mapped = None
        else:
            file.truncate(len(DATA))
            mapped = mmap.mmap(file.fileno(), len(DATA))
            mapped[:] = DATA
        temporary.rename(path)
        directory = os.open(path.parent, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        mount.kill()
        if mapped is not None:
            mapped.close()
        with pytest.raises(OSError, match="not connected"):
            os.fsync(file.fileno())
    subprocess.run(["umount", "--lazy", mount.path], check=True)
    mount.machines.remount("m", "--no-native")
    assert path.read_bytes() == DATA
    mount.umount()
    mount.run("fsck", mount.volume)


def test_a_file_below_very_many_folders_replaces_another(mount: Mounted) -> None:
    """Breaks as the end of the mount, which any user can bring about."""
    deep.make(mount.path)
    folder = deep.open_last(mount.path)
    for name in ("old", "new"):
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=folder))
    with open(os.open("new", os.O_RDWR, dir_fd=folder), "rb+") as file:
        file.write(DATA)
        file.flush()
        os.rename("new", "old", src_dir_fd=folder, dst_dir_fd=folder)
        file.seek(0)
        assert file.read() == DATA
        assert os.listdir(folder) == ["old"]
    os.close(folder)
    mount.umount()
    mount.run("fsck", mount.volume)


def replace(root: Path, number: int, failures: list[BaseException]) -> None:
    """Replace files by such that are open, within a folder and from one to another."""
    try:
        for turn in range(6):
            folder = root / f"folder-{number % 4}"
            temporary, path = folder / f"temporary-{number}", root / f"folder-{(number + turn) % 4}" / f"file-{number}"
            path.touch()
            with temporary.open("wb", buffering=0) as file:
                file.write(b"%04d" % turn * 5000)
                temporary.rename(path)
                file.write(b"more")
            assert path.read_bytes() == b"%04d" % turn * 5000 + b"more"
    except BaseException as error:  # noqa: BLE001 - told by the test
        failures.append(error)


def test_many_at_once_beside_flushes_snapshots_and_forgotten_names_hold_nobody_up(mount: Mounted) -> None:
    """Breaks as a hang if what a rename waits for waits for the rename: for its thread, or for the kernel's locks."""
    for number in range(4):
        (mount.path / f"folder-{number}").mkdir()
    failures: list[BaseException] = []
    programs = [threading.Thread(target=replace, args=(mount.path, number, failures)) for number in range(THREADS)]
    for program in programs:
        program.start()
    number = 0
    while any(program.is_alive() for program in programs):
        mount.run("flush", mount.path)
        mount.run("snapshot", mount.path, f"s{number}")
        Path("/proc/sys/vm/drop_caches").write_text("2")
        number += 1
    assert failures == []
    mount.umount()
    mount.run("fsck", mount.volume)
