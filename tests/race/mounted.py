"""Hostile writers on a mounted volume, while remote versions are installed by conditional changes.

The sync does what the engine does in a cycle: stage a remote version, make the mount commit, ask what the files are,
and install it on the condition that a file still is what was told. Every version that nobody but the sync can have
taken away must be under its name or in the trash.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from blockfs.control.client import ControlClient
from blockfs.control.protocol import CursorMsg, NodeRow
from blockfs.runtime.linux import syncfs
from syncer.core.base import BaseIndex
from syncer.core.model import LocalTag, Meta, RelPath
from syncer.core.paths import PRIVATE
from syncer.errors import LocalChangedError, SyncerError
from syncer.local.options import RootOptions
from syncer.local.safe_open import parent_directory
from syncer.local.verbs.trash import ITEM, Why, new_folder
from syncer.local.volume.mount import find_mount
from syncer.local.volume.root import BlockfsRoot
from syncer.local.volume.tree import ROOT_INO, volume_tag
from syncer.ports.blocks import Priority, Receive, Want
from syncer.ports.localvalues import Install, Staged, StageOrder, content_of
from tests.kit.state import MemoryState
from tests.race.outcome import Outcome
from tests.race.users import KINDS, PAGE, users, version_of

FILES: Final = 32  # of each kind of writer: most of them are left alone for long enough to be replaced
BATCH: Final = 8  # replacements between two looks: what was told is old by then for some, not for most
ROUND: Final = 4000  # replacements between two looks at everything; what was kept is thrown away then

_BLOCKSYNC: Final = Path(sys.executable).with_name("blocksync")

Replace = Callable[["_Sync", RelPath, LocalTag], Awaitable[None]]


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """A new volume, mounted for as long as the context lasts."""
    point = folder / "mount"
    point.mkdir()
    _command("init", folder / "volume")
    _command("mount", folder / "volume", point)
    try:
        yield point
    finally:
        _command("umount", point)


def _command(*arguments: str | Path) -> None:
    subprocess.run([_BLOCKSYNC, *arguments], capture_output=True, text=True, check=True)


class _Sync:
    """Installs remote versions in the place of the users' files, by the code that every cycle uses."""

    def __init__(self, point: Path, seed: int) -> None:
        self.point = os.fsencode(point)
        mount = find_mount(self.point)
        assert mount is not None
        self._control = ControlClient(mount.source)
        status = self._control.status()
        self._lists = tempfile.TemporaryDirectory()
        options = RootOptions(block_size=status.block_size, lists=self._lists.name, state=MemoryState())
        self.root = BlockfsRoot(self.point, status.uuid, options)
        self._cursor: CursorMsg | None = None
        self._rows: dict[int, NodeRow] = {}
        self._staged: Staged | None = None
        self._random = random.Random(seed)
        self.page = b"SYNC".ljust(PAGE, b".")
        self._blocks = BlockList(block_size=status.block_size, size_bytes=PAGE, ids=block_id(self.page))

    def look(self) -> list[tuple[RelPath, LocalTag]]:
        """Some of the users' files that nobody has open, as committed."""
        syncfs(self.point)
        self._control.flush()
        full, rows, gone, self._cursor = self._control.changes(self._cursor, None, None)
        if full:
            self._rows.clear()
        for ino in gone:
            self._rows.pop(ino, None)
        self._rows.update((row.ino, row) for row in rows)
        found = [
            (RelPath(name), volume_tag(row))
            for row in self._rows.values()
            if row.kind == "file" and not row.writers
            for parent, name in row.places
            if parent == ROOT_INO and not name.endswith(b".tmp")
        ]
        return self._random.sample(found, min(BATCH, len(found)))

    async def install(self, path: RelPath, expect: LocalTag) -> None:
        """Put a remote version in the place of what is expected. One that is refused is good for another file."""
        if self._staged is None:
            self._staged = await self._stage(path)
        (made,) = await self.root.apply([Install(path=path, staged=self._staged, expect=expect)])
        if isinstance(made, Exception):
            raise made
        await self._staged.drop()
        self._staged = None

    async def _stage(self, path: RelPath) -> Staged:
        blocks = self._blocks
        order = StageOrder(path=path, content=content_of(blocks), blocks=blocks, meta=Meta())
        (staged,) = await self.root.stage([order], self)
        assert not isinstance(staged, Exception), staged
        return staged

    async def fetch(self, wants: Sequence[Want], receive: Receive, *, priority: Priority) -> dict[BlockId, SyncerError]:
        """See Fetcher."""
        await receive([(want.id, self.page) for want in wants])
        return {}

    async def close(self) -> None:
        if self._staged is not None:
            await self._staged.drop()
        self._control.close()
        await self.root.close()
        self._lists.cleanup()


# --- how a file is replaced


async def conditional_install(sync: _Sync, path: RelPath, expect: LocalTag) -> None:
    """What we do."""
    await sync.install(path, expect)


async def stat_then_rename(sync: _Sync, path: RelPath, expect: LocalTag) -> None:
    """Mutant: through the mount like any program. The last look, a copy for the trash by hard link, a plain rename."""
    root = os.open(sync.point, os.O_PATH)
    trash = os.open(os.path.join(sync.point, PRIVATE, b"trash"), os.O_RDONLY)
    staged = os.path.join(sync.point, PRIVATE, b"staged")
    try:
        Path(os.fsdecode(staged)).write_bytes(sync.page)
        with parent_directory(root, path) as (directory, name):
            _, folder = new_folder(trash, path, Why.REPLACED)
            try:
                _require(directory, name, path, expect)
                try:
                    os.link(name, ITEM, src_dir_fd=directory, dst_dir_fd=folder, follow_symlinks=False)
                except FileNotFoundError:  # what the name led to lost it to a user's rename before it got a second one
                    raise LocalChangedError(path, "it was replaced") from None
                _require(folder, ITEM, path, expect)
                os.rename(staged, name, dst_dir_fd=directory)
            finally:
                os.close(folder)
    finally:
        os.close(trash)
        os.close(root)


def _require(directory: int, name: bytes, path: RelPath, expect: LocalTag) -> None:
    if os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino != expect.ino:
        raise LocalChangedError(path, "it was replaced")


MUTANTS: Final[dict[str, Replace]] = {"stat-then-rename": stat_then_rename}


# --- the race


def race(folder: Path, displacements: int, replace: Replace = conditional_install, seed: int = 1) -> Outcome:
    """Race on a volume of its own until so many versions of users were displaced, or one is lost."""
    outcome, number = Outcome(), 0
    with mounted(folder) as point:
        while not outcome.lost and outcome.displaced < displacements:
            installs = min(ROUND, (displacements - outcome.displaced) * 5 // 4 + 50)
            trio.run(_round, point, installs, replace, seed + number, outcome)
            number += 1
    return outcome


async def _round(point: Path, installs: int, replace: Replace, seed: int, outcome: Outcome) -> None:
    sync = _Sync(point, seed)
    try:
        await sync.root.observe(BaseIndex())  # makes the private folders
        targets = {kind: [point / f"{kind}{number}" for number in range(FILES)] for kind in KINDS}
        with users(targets, seed) as writers:
            done = 0
            while done < installs:
                for path, tag in await trio.to_thread.run_sync(sync.look):
                    try:
                        await replace(sync, path, tag)
                        done += 1
                    except LocalChangedError:
                        outcome.refused += 1
                await sync.root.barrier()
            writers.end()
        _judge(point, writers.told, outcome)
        _empty(point)
    finally:
        await sync.close()


def _judge(point: Path, told: list[tuple[int, set[tuple[int, int]]]], outcome: Outcome) -> None:
    named = {version_of(path.read_bytes()) for path in point.iterdir() if path.is_file()}
    trashed = {version_of(path.read_bytes()) for path in (point / os.fsdecode(PRIVATE) / "trash").glob("*/item")}
    outcome.judge(told, named, trashed)


def _empty(point: Path) -> None:
    for path in point.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
