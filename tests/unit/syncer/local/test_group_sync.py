"""Many new files are made durable as a group, where that promises what an fsync of each does."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from syncer.local.folder import changes, group_sync, small_files
from syncer.local.folder.root import LocalDirectory
from syncer.ports.localvalues import Applied
from tests.unit.syncer.local.folders import Elsewhere, Place, made_all, noise, wanted, with_root

FILES = {f"f{number:02}": noise(number, 300) for number in range(group_sync.LEAST_FILES + 4)}


class Host:
    """What the host is asked for while files are made, in order: a syscall's name and a file's inode number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, int]] = []
        self.magic, self.dirty = 0xEF53, 0
        self.syncfs_fails = False
        fsync, rename = os.fsync, changes.rename_noreplace

        def renamed(source: bytes, source_dir: int, target: bytes, target_dir: int) -> None:
            rename(source, source_dir, target, target_dir)
            self.calls.append(("rename", os.stat(target, dir_fd=target_dir).st_ino))

        monkeypatch.setattr(os, "fsync", self._noting("fsync", fsync))
        monkeypatch.setattr(changes, "rename_noreplace", renamed)
        monkeypatch.setattr(group_sync, "syncfs_descriptor", self._noting("syncfs", self._syncfs))
        monkeypatch.setattr(group_sync, "filesystem_magic", lambda _descriptor: self.magic)
        monkeypatch.setattr(group_sync, "dirty_bytes", lambda: self.dirty)

    def _noting(self, what: str, act: Callable[[int], None]) -> Callable[[int], None]:
        def noted(descriptor: int) -> None:
            act(descriptor)
            self.calls.append((what, os.fstat(descriptor).st_ino))

        return noted

    def _syncfs(self, _descriptor: int) -> None:
        if self.syncfs_fails:
            raise OSError(errno.EIO, "lost")

    def of(self, place: Place, *names: str) -> list[str]:
        """The calls about the files that were made."""
        inos = {(place.path / name).stat().st_ino for name in names}
        return [what for what, ino in self.calls if ino in inos]


def make(place: Place) -> list[Applied | Exception]:
    outcomes: list[Applied | Exception] = []

    async def work(root: LocalDirectory) -> None:
        orders = [wanted(os.fsencode(name), data, Elsewhere(data).fetch) for name, data in FILES.items()]
        outcomes.extend(await made_all(root, orders))

    with_root(place, work)
    return outcomes


def test_all_are_durable_before_the_first_has_its_name(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    make(place)
    assert place.visible() == FILES
    assert host.of(place, *FILES) == ["syncfs", "fsync"] + ["rename"] * len(FILES)


@pytest.mark.parametrize("why", ["another filesystem", "too much of others", "it failed"])
def test_else_each_is_fsynced(place: Place, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    host = Host(monkeypatch)
    if why == "another filesystem":
        host.magic = 0x65735546  # FUSE
    elif why == "too much of others":
        host.dirty = 1 << 30
    else:
        host.syncfs_fails = True
    make(place)
    assert place.visible() == FILES
    assert host.of(place, *FILES) == ["fsync"] * len(FILES) + ["rename"] * len(FILES)


def test_a_file_whose_pages_were_lost_gets_no_name(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    Host(monkeypatch)
    lost: list[int] = []

    def check(descriptor: int) -> None:
        lost.append(descriptor)
        if len(lost) == 3:
            raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(small_files, "check_written", check)
    outcomes = make(place)
    failed = [name for name, outcome in zip(FILES, outcomes, strict=True) if isinstance(outcome, Exception)]
    assert failed == ["f02"]
    assert place.visible() == {name: data for name, data in FILES.items() if name != "f02"}


def test_the_host_itself_can_be_asked(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        assert group_sync.filesystem_magic(file.fileno()) > 0
    assert group_sync.dirty_bytes() >= 0
