"""Hostile writers on an ordinary folder, while remote versions are put in the place of their files.

Every version that nobody but the sync can have taken away must be somewhere: under its name, in a conflict copy, or in
the trash.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from syncer.core.model import LocalTag, RelPath
from syncer.errors import LocalChangedError
from syncer.local.folder.changes import Changes
from syncer.local.folder.private import PrivateFolder
from syncer.local.safe_open import DIRECTORY_FLAGS, look, parent_directory, tag_of
from syncer.local.syscalls import status
from syncer.local.verbs.retention import KEEP_S, Retention
from syncer.local.verbs.trash import ITEM, Trash, Why
from syncer.ports.localvalues import Applied
from tests.kit.state import MemoryState
from tests.race.outcome import Outcome
from tests.race.users import KINDS, PAGE, Version, users, version_of
from tests.unit.syncer.local.folders import BLOCK, Place, copy_name, new_place

ROUND: Final = 4000  # installs between two looks at everything; what was kept is thrown away then

Replace = Callable[[Changes, RelPath, bytes, LocalTag, LocalTag], Applied]


def exchange_then_verify(changes: Changes, path: RelPath, temp: bytes, tag: LocalTag, expect: LocalTag) -> Applied:
    """What we do."""
    return changes.replace(path, temp, tag, expect)


def stat_then_rename(changes: Changes, path: RelPath, temp: bytes, tag: LocalTag, expect: LocalTag) -> Applied:
    """Mutant: the last look before a plain rename, with a copy for the trash by hard link. The best of the others."""
    with parent_directory(changes._root, path) as (directory, name):
        changes._require_entry(directory, name, path, expect)
        entry, folder = changes._trash.begin(path, expect, Why.REPLACED)
        try:
            try:
                os.link(name, ITEM, src_dir_fd=directory, dst_dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:  # it was looked up, and then replaced and deleted
                raise LocalChangedError(path, "it was replaced") from None
            if look(folder, ITEM, path).inode != look(directory, name, path).inode:
                raise LocalChangedError(path, "it was replaced")
            os.rename(temp, name, src_dir_fd=changes._private.tmp, dst_dir_fd=directory)
        finally:
            os.close(folder)
        return Applied(tag=tag, copied_to=changes._trash.judge(entry))


MUTANTS: Final[dict[str, Replace]] = {"stat-then-rename": stat_then_rename}


class _Sync:
    """Puts remote versions in the place of the users' files, by the code that every cycle uses."""

    def __init__(self, place: Place, replace: Replace) -> None:
        self._root = os.open(place.path, DIRECTORY_FLAGS)
        self._private = PrivateFolder(self._root)
        self._trash = Trash(self._root, self._private.trash, BLOCK, copy_name, Retention(KEEP_S, MemoryState()))
        self._changes = Changes(self._root, self._private, self._trash)
        self._replace = replace
        self.number = 0

    def install(self, path: RelPath) -> bool:
        """One remote version; False if the file had changed since it was looked at."""
        self.number += 1
        temp = b"staged.%d" % self.number
        descriptor = os.open(temp, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=self._private.tmp)
        os.write(descriptor, (b"SYNC %d\n" % self.number).ljust(PAGE, b"."))
        os.close(descriptor)
        tag = tag_of(status(temp, self._private.tmp))
        try:
            self._replace(self._changes, path, temp, tag, look(self._root, path, path))
        except LocalChangedError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temp, dir_fd=self._private.tmp)
            return False
        return True

    def end_of_cycle(self) -> None:
        """Look at everything that was displaced once more."""
        self._trash.review()

    def close(self) -> None:
        self._changes.close()
        self._private.close()
        os.close(self._root)


@contextmanager
def _without_fsync() -> Iterator[None]:
    """What is durable is another test's matter, and would leave the writers little to race against."""
    fsync = os.fsync
    os.fsync = lambda _: None
    try:
        yield
    finally:
        os.fsync = fsync


def race(folder: Path, displacements: int, replace: Replace = exchange_then_verify, seed: int = 1) -> Outcome:
    """Race until so many versions of users were displaced, or one is lost."""
    outcome, number = Outcome(), 0
    with _without_fsync():
        while not outcome.lost and outcome.displaced < displacements:
            # Some of what is displaced is our own: writers do not get at every file between two installs.
            installs = min(ROUND, (displacements - outcome.displaced) * 5 // 4 + 50)
            _round(folder / f"round{number}", installs, replace, seed + number, outcome)
            number += 1
    return outcome


def _round(folder: Path, installs: int, replace: Replace, seed: int, outcome: Outcome) -> None:
    folder.mkdir()
    place = new_place(folder)
    sync = _Sync(place, replace)
    try:
        with users({kind: [place.path / kind] for kind in KINDS}, seed) as writers:
            done = 0
            while done < installs:
                if sync.install(RelPath(KINDS[sync.number % len(KINDS)].encode())):
                    done += 1
                    if done % 500 == 0:
                        sync.end_of_cycle()
                else:
                    outcome.refused += 1
            writers.end()
            _judge(place, writers.told, outcome)
    finally:
        sync.close()
        shutil.rmtree(folder)


def _judge(place: Place, told: list[tuple[int, set[Version]]], outcome: Outcome) -> None:
    named = {version_of(data) for name, data in place.visible().items() if name in KINDS}
    copies = {version_of(data) for name, data in place.visible().items() if "(conflict " in name}
    trashed = {version_of(data) for data in place.trashed()}
    outcome.unseen += len(copies - {None})
    outcome.judge(told, named, copies | trashed)
