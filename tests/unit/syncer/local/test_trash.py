"""The trash after a crash: what its entries' names say must be enough to lose nothing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from syncer.cli.session.opening import open_trash
from syncer.core.model import Kind
from syncer.errors import LocalChangedError
from syncer.local.folder.root import LocalDirectory
from syncer.local.verbs import trash
from syncer.local.verbs.retention import KEEP_S
from syncer.local.verbs.trash import Why
from syncer.local.verbs.trashcan import TrashCan
from syncer.ports.localvalues import Install, MakeLink, Remove
from tests.kit.state import MemoryState
from tests.unit.syncer.local.folders import (
    BLOCK,
    NO_BASE,
    Elsewhere,
    P,
    Place,
    by_path,
    done,
    staged_by,
    wanted,
    with_root,
)


class Killed(BaseException):
    """The process ends here."""


async def look_again(root: LocalDirectory) -> None:
    await root.observe(NO_BASE)


def killed_replace(place: Place, at: str, edit: Callable[[], None] | None) -> None:
    """Replace `file.txt`; edit it after the last look before the exchange; die at a step."""

    def step(name: str) -> None:
        if name == "moved to trash entry" and edit is not None:
            edit()
        if name == at:
            raise Killed

    async def work(root: LocalDirectory) -> None:
        expect = by_path(await root.observe(NO_BASE))[b"file.txt"].tag
        staged = await staged_by(root, wanted(b"file.txt", b"theirs", Elsewhere(b"theirs").fetch))
        root.step = step
        with pytest.raises(Killed):
            await done(root, Install(path=P(b"file.txt"), staged=staged, expect=expect))

    with_root(place, work)


@pytest.mark.parametrize("at", ["trash entry made", "moved to trash entry"])
def test_killed_before_the_exchange_the_old_file_stands_and_ours_is_dropped(place: Place, at: str) -> None:
    (place.path / "file.txt").write_bytes(b"old")
    killed_replace(place, at, None)
    with_root(place, look_again)
    assert place.visible() == {"file.txt": b"old"}
    assert os.listdir(place.path / ".blocksync/trash") == []


def test_killed_after_the_exchange_the_old_version_is_in_the_trash(place: Place) -> None:
    (place.path / "file.txt").write_bytes(b"old")
    killed_replace(place, "exchanged", None)
    with_root(place, look_again)
    assert place.visible() == {"file.txt": b"theirs"}
    assert place.trashed() == [b"old"]


def test_killed_after_displacing_an_unseen_version_it_comes_back_as_a_copy(place: Place) -> None:
    (place.path / "file.txt").write_bytes(b"old")
    killed_replace(place, "exchanged", lambda: (place.path / "file.txt").write_bytes(b"mine, newer") and None)
    with_root(place, look_again)
    found = place.visible()
    assert found.pop("file.txt") == b"theirs"
    ((name, data),) = found.items()
    assert name.startswith("file (conflict here ")
    assert data == b"mine, newer"
    with_root(place, look_again)
    assert place.visible() == {"file.txt": b"theirs", name: data}


def test_killed_after_trashing_an_unseen_version_it_comes_back_to_its_place(place: Place) -> None:
    (place.path / "file.txt").write_bytes(b"old")

    def step(name: str) -> None:
        if name == "trash entry made":
            (place.path / "file.txt").write_bytes(b"mine, newer")
        if name == "trashed":
            raise Killed

    async def work(root: LocalDirectory) -> None:
        expect = by_path(await root.observe(NO_BASE))[b"file.txt"].tag
        root.step = step
        with pytest.raises(Killed):
            await done(root, Remove(path=P(b"file.txt"), kind=Kind.FILE, expect=expect))

    with_root(place, work)
    assert place.visible() == {}
    with_root(place, look_again)
    assert place.visible() == {"file.txt": b"mine, newer"}
    assert place.trashed() == []


def test_an_unseen_version_whose_folder_is_gone_comes_back_to_the_top(place: Place) -> None:
    (place.path / "d").mkdir()
    (place.path / "d" / "file.txt").write_bytes(b"old")

    async def work(root: LocalDirectory) -> None:
        expect = by_path(await root.observe(NO_BASE))[b"d/file.txt"].tag
        with (place.path / "d" / "file.txt").open("ab") as writer:
            await done(root, Remove(path=P(b"d/file.txt"), kind=Kind.FILE, expect=expect))
            (place.path / "d").rmdir()
            writer.write(b" and more")
        (kept,) = await root.settle()
        assert b"/" not in kept

    with_root(place, work)
    assert list(place.visible().values()) == [b"old and more"]


def test_entries_settle_after_a_quiet_time_and_go_after_their_retention(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.path / "file.txt").write_bytes(b"old")

    async def work(root: LocalDirectory) -> None:
        expect = by_path(await root.observe(NO_BASE))[b"file.txt"].tag
        await done(root, Remove(path=P(b"file.txt"), kind=Kind.FILE, expect=expect))
        now = time.time()
        days = [(KEEP_S * day / 30, 1, 2) for day in range(5, 30, 5)]
        for later, entries, parts in ((1.0, 1, 3), (trash.QUIET_S + 1, 1, 2), *days, (KEEP_S + 1, 0, 0)):
            monkeypatch.setattr(trash.time, "time", lambda later=later: now + later)
            assert await root.settle() == []
            names = os.listdir(place.path / ".blocksync/trash")
            assert len(names) == entries
            assert all(name.count("-") == parts - 1 for name in names)

    with_root(place, work)


def test_an_entry_says_what_it_is_there_for_also_when_it_is_settled(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone", "second", "replaced"):
        (place.path / name).write_bytes(name.encode())
    (place.path / "link").symlink_to("old")

    async def work(root: LocalDirectory) -> None:
        tags = {path: found.tag for path, found in by_path(await root.observe(NO_BASE)).items()}
        staged = await staged_by(root, wanted(b"replaced", b"theirs", Elsewhere(b"theirs").fetch))
        for change in (
            Remove(path=P(b"gone"), kind=Kind.FILE, expect=tags[b"gone"]),
            Remove(path=P(b"second"), kind=Kind.FILE, expect=tags[b"second"], is_double=True),
            Install(path=P(b"replaced"), staged=staged, expect=tags[b"replaced"]),
            MakeLink(path=P(b"link"), target=b"new", expect=tags[b"link"]),
        ):
            await done(root, change)
        now = time.time()
        for later, settled in ((0.0, False), (trash.QUIET_S + 1, True)):
            monkeypatch.setattr(trash.time, "time", lambda later=later: now + later)
            assert await root.settle() == []
            with TrashCan(os.fsencode(place.path)) as can:
                found = can.entries()
            assert {kept.origin: kept.why for kept in found} == {
                b"gone": Why.DELETED,
                b"second": Why.DOUBLED,
                b"replaced": Why.REPLACED,
                b"link": Why.REPLACED,
            }
            assert {kept.settled for kept in found} == {settled}

    with_root(place, work)


def test_in_a_copied_folder_what_was_expected_is_trash_and_anything_else_comes_back(place: Place) -> None:
    """A copy has other inodes, one of which may be that of our staged file: what was deleted came back, or was lost."""
    folder = place.path / ".blocksync/trash"

    def entry(number: int, name: str, data: bytes, *, size: int, staged: str = "0") -> None:
        made = folder / f"{number}-00000001.deleted"
        made.mkdir()
        (made / "item").write_bytes(data)
        os.utime(made / "item", ns=(5, 5))
        (made / "origin").symlink_to(name)
        ino = f"{(made / 'item').stat().st_ino:x}"
        made.rename(made.with_name(f"{made.name}-1.1.{size:x}.5.{ino if staged == 'item' else staged}"))

    entry(1, "gone", b"gone", size=4)
    entry(2, "unseen", b"written at the last moment", size=4)
    entry(3, "lost", b"kept", size=4, staged="item")
    entry(4, "written", b"other", size=4, staged="item")
    (folder / "5-00000001.deleted-1.1.1.1.0").mkdir()
    with open_trash(os.fsencode(place.path), BLOCK, KEEP_S, MemoryState()) as found:
        assert found.adopt() == [b"unseen", b"written"]
        assert [each.expect for each in found.entries()] == [None, None]
        assert found.adopt() == []
    assert place.visible() == {"unseen": b"written at the last moment", "written": b"other"}
    assert place.trashed() == [b"gone", b"kept"]


def test_an_entry_that_stayed_empty_for_long_ends_no_cycle(place: Place) -> None:
    (place.path / ".blocksync/trash/5-00000001.deleted-1.1.1.1.0").mkdir()
    with_root(place, look_again)
    assert os.listdir(place.path / ".blocksync/trash") == []


def test_what_is_not_ours_in_the_trash_folder_is_left_alone(place: Place) -> None:
    with_root(place, look_again)
    (place.path / ".blocksync/trash/notes").mkdir()
    (place.path / ".blocksync/trash/1-2-zz").mkdir()
    with_root(place, look_again)
    assert sorted(os.listdir(place.path / ".blocksync/trash")) == ["1-2-zz", "notes"]


@pytest.mark.parametrize("origin", ["../outside", "d/../../outside", "/outside", None])
def test_an_origin_that_leads_out_of_the_root_leads_nowhere(place: Place, origin: str | None) -> None:
    """Who may write to the private folder before it is ours could have a sync of root's put files anywhere."""
    (place.path / "d").mkdir()
    entry = place.path / ".blocksync/trash/1-00000001-1.1.1.1.0"
    entry.mkdir()
    (entry / "item").write_bytes(b"crafted")
    if origin is not None:
        (entry / "origin").symlink_to(origin)
    with_root(place, look_again)
    assert not (place.path.parent / "outside").exists()
    assert place.visible() == {"item": b"crafted"}


def test_what_somebody_puts_into_an_entry_stays_and_stops_nothing(place: Place) -> None:
    """A file manager's own file in an entry must not end every cycle from the end of its retention on."""
    for name in ("1-00000001", "1-00000001-1.1.1.1.0"):
        entry = place.path / ".blocksync/trash" / name
        entry.mkdir()
        (entry / "item").write_bytes(b"old")
        (entry / "origin").symlink_to(f"back from {name}")
        (entry / ".directory").write_bytes(b"a file manager's")

    async def two_cycles(root: LocalDirectory) -> None:
        for _ in range(2):
            await look_again(root)
            await root.settle()

    with_root(place, two_cycles)
    assert place.visible() == {"back from 1-00000001-1.1.1.1.0": b"old"}
    left = sorted(str(path.name) for path in (place.path / ".blocksync/trash").glob("*/*"))
    assert left == [".directory", ".directory"]


def test_an_unseen_version_comes_back_also_where_it_cannot_be_read_or_its_folder_not_be_written(tmp_path: Path) -> None:
    """Else it stays in the trash and each cycle of that user ends with an error."""
    command = [sys.executable, "-m", "tests.unit.syncer.local.nobodys_trash", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "back\n", "")


def test_a_version_that_vanished_between_plan_and_trash_is_a_change(place: Place) -> None:
    (place.path / "file.txt").write_bytes(b"old")

    async def work(root: LocalDirectory) -> None:
        expect = by_path(await root.observe(NO_BASE))[b"file.txt"].tag
        root.step = lambda name: os.unlink(place.path / "file.txt") if name == "trash entry made" else None
        with pytest.raises(LocalChangedError):
            await done(root, Remove(path=P(b"file.txt"), kind=Kind.FILE, expect=expect))
        assert os.listdir(place.path / ".blocksync/trash") == []

    with_root(place, work)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_the_origin_is_noted_also_where_there_are_no_symlinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """FAT: breaks when nothing can be deleted or replaced there."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "symlink", refuse)
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        trash.write_origin(folder, P(b"a folder/na\xffme"))
        assert trash.read_origin(folder) == b"a folder/na\xffme"
    finally:
        os.close(folder)
