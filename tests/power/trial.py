"""Record a load on a volume, then cut the power at many places and look at what is left."""

from __future__ import annotations

import errno
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Protocol

import msgspec

from blockfs.control.client import ControlClient
from blockfs.engine.config import EngineConfig
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import BlockfsError, FsError
from blockfs.service import maintenance
from tests.power.disk import HOSTS, MountedImage, RecordedDisk
from tests.power.load import Log, run_load
from tests.power.promises import BrokenPromiseError
from tests.power.recording import Cut, Loss, Replay, choose_cuts, read_entries

_COMMAND = ("-c", "import sys; from syncer.cli.main import main; sys.argv[0] = 'blocksync'; main()")


def blocksync(*arguments: str | Path, before: str = "") -> None:
    """Run blocksync; `before` is Python that is run in its process first: a planted fault."""
    program = (_COMMAND[0], f"{before}\n{_COMMAND[1]}", *arguments)
    ended = subprocess.run([sys.executable, *program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{arguments}: {ended.returncode} {ended.stderr}"


class Trial(msgspec.Struct, frozen=True):
    """A recorded load.

    Attributes:
        home: Holds the recording.
        log: What was promised.
        host: Kind of the filesystem below the volume, see `HOSTS`.
    """

    home: Path
    log: Log
    host: str = "ext4"

    @property
    def recording(self) -> Path:
        """The recording."""
        return self.home / "recording"


def record(
    home: Path, *, rounds: int, seed: int, compression: str = "none", fault: str = "", host: str = "ext4"
) -> Trial:
    """Run a load on a new volume on a recording disk.

    Args:
        home: An empty folder.
        rounds: See `run_load`.
        seed: Of the load.
        compression: Of the volume.
        fault: Python that is run in the mount process before it mounts.
        host: Kind of the filesystem below the volume. The mount is native where it can be.
    """
    mountpoint = home / "mount"
    mountpoint.mkdir()
    with RecordedDisk(home, host) as disk:
        volume = disk.path / "volume"
        blocksync("init", volume, "--block-size", "16KiB", "--compression", compression)
        asked = ("--native",) if HOSTS[host].has_natives else ()
        blocksync("mount", *asked, volume, mountpoint, before=fault)
        try:
            with ControlClient(os.fsencode(volume)) as client:
                assert client.stats().mode == ("native" if HOSTS[host].has_natives else "writeback")
            log = run_load(mountpoint, volume, disk.position, rounds=rounds, seed=seed)
            log.is_native = HOSTS[host].has_natives
        finally:
            blocksync("umount", mountpoint)
    return Trial(home, log, host)


Look = Callable[[Path, Log, int], None]
"""Checks the volume at a path after a cut at a position; raises if it is not as promised."""


def failures_of(trial: Trial, cuts: Sequence[Cut], look: Look, scratch: Path) -> list[str]:
    """Make the disk of each cut and look at it; says what was wrong with which."""
    entries = read_entries(trial.recording)
    replay = Replay(trial.recording, entries, scratch / "certain", HOSTS[trial.host].size_bytes)
    failures = []
    try:
        for cut in cuts:
            replay.make(cut, scratch / "image")
            with MountedImage(scratch / "image", scratch / "host", trial.host) as image:
                try:
                    look(image.path / "volume", trial.log, replay.position(cut))
                except (AssertionError, BlockfsError, OSError) as failure:
                    # As text, and in here: its traceback may keep descriptors open that keep the image mounted.
                    failures.append(f"{cut}: {type(failure).__name__}: {failure}")
    finally:
        replay.close()
    return failures


def cut_power(trial: Trial, count: int, look: Look, *, seed: int, processes: int = 1) -> list[str]:
    """Cut the power `count` times at random places of a recorded load; returns what was wrong.

    btrfs takes it for granted that a disk does whole pages, and mounts one image of a filesystem at a time.
    """
    is_btrfs = trial.host == "btrfs"
    losses = [loss for loss in Loss if not (is_btrfs and loss is Loss.TORN_SECTORS)]
    cuts = choose_cuts(read_entries(trial.recording), trial.log.started, count, seed, losses)
    processes = 1 if is_btrfs else processes
    if processes == 1:
        return _failures_in_memory(trial, cuts, look)
    share = -(-len(cuts) // processes)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        parts = [
            pool.submit(_failures_in_memory, trial, cuts[at : at + share], look) for at in range(0, len(cuts), share)
        ]
        return [failure for part in parts for failure in part.result()]


def _failures_in_memory(trial: Trial, cuts: Sequence[Cut], look: Look) -> list[str]:
    with tempfile.TemporaryDirectory(dir=trial.home) as scratch:
        return failures_of(trial, cuts, look, Path(scratch))


def look_with_engine(volume: Path, log: Log, cut: int) -> None:
    """Open the volume without FUSE, check all content, before and after sealing what was staged; fsck and scrub.

    Hot files are taken as they are first, then sealed, then given up.
    """
    filesystem = Filesystem.open(os.fsencode(volume), EngineConfig(background=False, native=True))
    try:
        files = _EngineFiles(filesystem)
        check_content(files, log, cut)
        filesystem.files.flush()
        filesystem.snapshots.remove_unfinished()
        check_content(files, log, cut)
        filesystem.hot.give_up_all()
        check_content(files, log, cut)
        findings = maintenance.fsck(filesystem.blocks, filesystem.tree, filesystem.volume.staging_path).findings
        if findings:
            raise BrokenPromiseError(f"fsck: {findings}")
        scrubbed = maintenance.scrub(filesystem.blocks, filesystem.tree)
        if not scrubbed.clean:
            raise BrokenPromiseError(f"scrub: {scrubbed}")
        left = filesystem.staged_bytes
        if left:
            raise BrokenPromiseError(f"{left} bytes are still staged after a flush")
    finally:
        filesystem.close()


class Looking(Protocol):
    """What can be looked at after a cut."""

    def read(self, path: str) -> bytes | None:
        """A file; None: there is none."""
        ...

    def names(self, path: str) -> list[str] | None:
        """What is in a folder; None: there is none."""
        ...


class _EngineFiles:
    def __init__(self, filesystem: Filesystem) -> None:
        self._filesystem = filesystem

    def _ino(self, path: str) -> int | None:
        try:
            return self._filesystem.namespace.resolve(path.encode()).ino
        except FsError as error:
            if error.errno != errno.ENOENT:
                raise
            return None

    def read(self, path: str) -> bytes | None:
        ino = self._ino(path)
        if ino is None:
            return None
        size = self._filesystem.namespace.getattr(ino).size_bytes
        return self._filesystem.files.read(ino, 0, size, may_block=True)

    def names(self, path: str) -> list[str] | None:
        ino = self._ino(path)
        return (
            None if ino is None else [entry.name.decode() for entry in self._filesystem.namespace.listing(ino).read()]
        )


def look_with_mount(volume: Path, log: Log, cut: int) -> None:
    """Mount the volume for real, check all content, and check the volume offline afterwards."""
    with tempfile.TemporaryDirectory() as mountpoint:
        blocksync("mount", volume, mountpoint)
        try:
            check_content(_MountedFiles(Path(mountpoint)), log, cut)
        finally:
            blocksync("umount", mountpoint)
    blocksync("fsck", volume)
    blocksync("scrub", volume)


class _MountedFiles:
    def __init__(self, mountpoint: Path) -> None:
        self._mountpoint = mountpoint

    def read(self, path: str) -> bytes | None:
        try:
            return (self._mountpoint / path).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, path: str) -> list[str] | None:
        try:
            return os.listdir(self._mountpoint / path)
        except FileNotFoundError:
            return None


def check_content(files: Looking, log: Log, cut: int) -> None:
    """Compare every file, and every snapshot, with what may be there.

    Raises:
        BrokenPromiseError: One is not as promised.
    """
    for name, file in log.cells.items():
        file.check(files.read(name), cut, grows_with_nuls=log.is_native)
    for name, history in log.names.items():
        history.check(name, files.read(f"names/{name}"), cut, grows_with_nuls=log.is_native)
    for name, snapshot in log.snapshots.items():
        names = files.names(f".snapshots/{name}")
        found = None if names is None else {one: files.read(f".snapshots/{name}/{one}") or b"" for one in names}
        snapshot.check(name, found, cut)
