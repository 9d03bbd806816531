"""Every kind of local root, empty: an ordinary directory, volumes (the share's blocks, and others), one in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    """A root that is tested. It has a directory `d`. Contents are numbered, see `data_of`.

    Attributes:
        open: The root, in the test's event loop.
        put: Somebody else makes a file, or writes over one.
        files: What is there, by path.
        trashed: Contents of files in the trash.
    """

    open: Callable[[], LocalRoot]
    put: Callable[[str, int], None]
    files: Callable[[], dict[str, bytes]]
    trashed: Callable[[], list[bytes]]


def _on_disk(root: Path, open_root: Callable[[], LocalRoot]) -> Subject:
    (root / "d").mkdir()

    def files() -> dict[str, bytes]:
        paths = (path for path in root.rglob("*") if path.is_file() and ".blocksync" not in path.parts)
        return {str(path.relative_to(root)): path.read_bytes() for path in paths}

    return Subject(
        open=open_root,
        put=lambda name, of: (root / name).write_bytes(data_of(of)) and None,
        files=files,
        trashed=lambda: sorted(path.read_bytes() for path in (root / ".blocksync/trash").glob("*/item")),
    )


@contextmanager
def folder(home: Path) -> Iterator[Subject]:
    place = new_place(home)
    yield _on_disk(place.path, place.open)


@contextmanager
def memory(home: Path) -> Iterator[Subject]:
    replica = Replica(Side.LOCAL)
    replica.put(b"d", Entry(7, Kind.DIRECTORY, 0, 0o755, 0, replica.tick()))
    made = []

    async def nothing(_: str) -> None:
        await trio.lowlevel.checkpoint()

    def opened() -> MemoryRoot:
        made.append(MemoryRoot(replica, nothing))
        return made[-1]

    def put(name: str, payload: int) -> None:
        old = replica.entries.pop(name.encode(), None)
        number = 100 + len(replica.entries) if old is None else old.identity
        replica.put(name.encode(), Entry(number, Kind.FILE, payload, 0o644, 0, replica.tick()))

    def files() -> dict[str, bytes]:
        entries = replica.entries.items()
        return {path.decode(): data_of(entry.payload) for path, entry in entries if entry.kind is Kind.FILE}

    yield Subject(
        open=opened,
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
        yield _on_disk(point, lambda: BlockfsRoot(bytes(point), status.uuid, options))
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
