"""Every kind of local root, empty: an ordinary directory, volumes (the share's blocks, and others), one in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import trio

from blockfs.control.client import ControlClient
from syncer.core.model import Kind, Side
from syncer.local.options import RootOptions
from syncer.local.volume.mount import find_mount
from syncer.local.volume.root import BlockfsRoot
from syncer.ports.local import LocalRoot
from tests.kit.state import MemoryState
from tests.simulation.disk import MemoryRoot, data_of
from tests.simulation.world import Entry, Replica
from tests.unit.syncer.local.folders import new_place

_BLOCKSYNC: Final = Path(sys.executable).with_name("blocksync")


@dataclass(kw_only=True)
class Subject:
    """A root that is tested. Contents are numbered, see `data_of`.

    Attributes:
        open: The root, in the test's event loop.
        make: Somebody else makes a directory.
        put: Somebody else makes a file, or writes over one.
        files: What is there, by path.
        trashed: Contents of files in the trash.
        left_over: Names of files that are nowhere to be seen.
        collect: The blocks that nobody refers to are collected.
    """

    open: Callable[[], LocalRoot]
    make: Callable[[str], None]
    put: Callable[[str, int], None]
    files: Callable[[], dict[str, bytes]]
    trashed: Callable[[], list[bytes]]
    left_over: Callable[[], list[str]] = list
    collect: Callable[[], object] = list


def _on_disk(root: Path, open_root: Callable[[], LocalRoot]) -> Subject:
    def files() -> dict[str, bytes]:
        paths = (path for path in root.rglob("*") if path.is_file() and ".blocksync" not in path.parts)
        return {str(path.relative_to(root)): path.read_bytes() for path in paths}

    return Subject(
        open=open_root,
        make=lambda name: (root / name).mkdir(),
        put=lambda name, of: (root / name).write_bytes(data_of(of)) and None,
        files=files,
        trashed=lambda: sorted(path.read_bytes() for path in (root / ".blocksync/trash").glob("*/item")),
        left_over=lambda: [path.name for path in (root / ".blocksync/tmp").glob("*")],
    )


@contextmanager
def folder(home: Path) -> Iterator[Subject]:
    place = new_place(home)
    yield _on_disk(place.path, place.open)


@contextmanager
def memory(home: Path) -> Iterator[Subject]:
    replica = Replica(Side.LOCAL)
    made: list[MemoryRoot] = []

    async def nothing(_: str) -> None:
        await trio.lowlevel.checkpoint()

    def opened() -> MemoryRoot:
        made.append(MemoryRoot(replica, nothing))
        return made[-1]

    def make(name: str) -> None:
        number = 100 + len(replica.entries)
        replica.put(name.encode(), Entry(number, Kind.DIRECTORY, 0, 0o755, 0, replica.tick()))

    def put(name: str, payload: int) -> None:
        old = replica.entries.pop(name.encode(), None)
        number = 100 + len(replica.entries) if old is None else old.identity
        replica.put(name.encode(), Entry(number, Kind.FILE, payload, 0o644, 0, replica.tick()))

    def files() -> dict[str, bytes]:
        entries = replica.entries.items()
        return {path.decode(): data_of(entry.payload) for path, entry in entries if entry.kind is Kind.FILE}

    yield Subject(
        open=opened,
        make=make,
        put=put,
        files=files,
        trashed=lambda: sorted(data_of(payload) for root in made for payload in root.trashed),
    )


@contextmanager
def volume(home: Path, share_size: int | None = None) -> Iterator[Subject]:
    point = home / "mount"
    point.mkdir()
    _command("init", home / "volume")
    _command("mount", home / "volume", point)
    try:
        mount = find_mount(bytes(point))
        assert mount is not None
        with ControlClient(mount.source) as control:
            status = control.status()
        size = share_size or status.block_size
        options = RootOptions(block_size=size, lists=str(home / "lists"), state=MemoryState())
        subject = _on_disk(point, lambda: BlockfsRoot(bytes(point), status.uuid, options))

        def collect() -> None:
            with ControlClient(mount.source) as control:
                control.gc()

        yield replace(subject, collect=collect)
    finally:
        _command("umount", point)


@contextmanager
def longer(home: Path) -> Iterator[Subject]:
    """A volume whose share has longer blocks."""
    with volume(home, 256 << 10) as subject:
        yield subject


@contextmanager
def shorter(home: Path) -> Iterator[Subject]:
    """A volume whose share has shorter blocks, so that some files are of several."""
    with volume(home, 4 << 10) as subject:
        yield subject


def _command(*arguments: str | Path) -> None:
    subprocess.run([_BLOCKSYNC, *arguments], capture_output=True, check=True)


KINDS: Final = (folder, memory, volume, longer, shorter)
DISKS: Final = (folder, volume)
