"""What evidence of our own changes is worth, and what happens in the instant of one."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from syncer.core.model import Kind, LocalTag, Meta
from syncer.errors import LocalChangedError
from syncer.local.folder import changes as changes_module
from syncer.local.folder.root import LocalDirectory
from syncer.ports.localvalues import ChangeMeta, Install, MakeDirectory, Remove, Rename, settled
from tests.unit.syncer.local.folders import Elsewhere, P, Place, done, staged_by, tag, wanted, with_root


def at(step: str, act: Callable[[], None]) -> Callable[[str], None]:
    """Act once, at that fault point."""
    waiting = [act]

    def reached(name: str) -> None:
        if name == step and waiting:
            waiting.pop()()

    return reached


def test_an_edit_that_hides_itself_from_mtime_and_size_is_not_replaced(place: Place) -> None:
    """A program wrote other bytes and set the time back: only ctime tells."""
    path = place.path / "f"
    path.write_bytes(b"seen")

    async def work(root: LocalDirectory) -> None:
        expect = await tag(root, b"f")
        path.write_bytes(b"mine")
        os.utime(path, ns=(expect.mtime_ns, expect.mtime_ns))
        assert path.stat().st_ctime_ns != expect.ctime_ns
        staged = await staged_by(root, wanted(b"f", b"theirs", Elsewhere(b"theirs").fetch))
        with pytest.raises(LocalChangedError):
            await done(root, Install(path=P(b"f"), staged=staged, expect=expect))
        with pytest.raises(LocalChangedError):
            await done(root, Remove(path=P(b"f"), kind=Kind.FILE, expect=expect))
        with pytest.raises(LocalChangedError):
            await done(root, ChangeMeta(path=P(b"f"), meta=Meta(mode=0o600), expect=expect))

    with_root(place, work)
    assert place.visible() == {"f": b"mine"}
    assert place.trashed() == []


def test_evidence_of_a_file_whose_mtime_we_set_is_not_trusted(place: Place) -> None:
    """A write between the look and the utime has our own mtime: the file must be hashed again."""
    (place.path / "f").write_bytes(b"1")

    async def work(root: LocalDirectory) -> None:
        closed = await done(root, ChangeMeta(path=P(b"f"), meta=Meta(mode=0o600), expect=await tag(root, b"f")))
        assert closed.tag == await tag(root, b"f")
        dated = await done(root, ChangeMeta(path=P(b"f"), meta=Meta(mtime_ns=77), expect=closed.tag))
        assert dated.tag.ctime_ns == 0
        assert dated.tag != await tag(root, b"f")

    with_root(place, work)


def test_a_write_right_after_the_name_was_given_is_not_taken_for_our_own(place: Place) -> None:
    """The evidence found then would say that what a program wrote is what the server has."""
    path = place.path / "f"

    async def work(root: LocalDirectory) -> None:
        staged = await staged_by(root, wanted(b"f", b"theirs", Elsewhere(b"theirs").fetch))
        root.step = at("created", lambda: path.write_bytes(b"mine") and None)
        made = await done(root, Install(path=P(b"f"), staged=staged))
        assert made.tag.ctime_ns == 0
        assert made.tag != await tag(root, b"f")
        expect = await tag(root, b"f")
        staged = await staged_by(root, wanted(b"f", b"theirs again", Elsewhere(b"theirs again").fetch))
        root.step = at("exchanged", lambda: path.write_bytes(b"mine again") and None)
        replaced = await done(root, Install(path=P(b"f"), staged=staged, expect=expect))
        assert replaced.tag.ctime_ns == 0
        assert replaced.tag != await tag(root, b"f")

    with_root(place, work)


def test_a_file_that_takes_the_place_in_the_instant_of_a_move_is_given_it_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.path / "f").write_bytes(b"seen")
    rename = changes_module.rename_noreplace

    def late(name: bytes, old: int, wanted: bytes, new: int) -> None:
        if name == b"f":
            (place.path / "f").rename(place.path / "aside")
            (place.path / "f").write_bytes(b"another")
        rename(name, old, wanted, new)

    async def work(root: LocalDirectory) -> None:
        expect = await tag(root, b"f")
        monkeypatch.setattr(changes_module, "rename_noreplace", late)
        with pytest.raises(LocalChangedError):
            await done(root, Rename(source=P(b"f"), target=P(b"g"), expect=expect))

    with_root(place, work)
    assert place.visible() == {"f": b"another", "aside": b"seen"}


def test_a_write_in_the_instant_of_a_move_is_looked_at_later(place: Place) -> None:
    """It moves along, but nobody has hashed it."""
    (place.path / "f").write_bytes(b"seen")

    async def work(root: LocalDirectory) -> None:
        expect = await tag(root, b"f")
        root.step = at("moved", lambda: (place.path / "g").write_bytes(b"mine") and None)
        moved = await done(root, Rename(source=P(b"f"), target=P(b"g"), expect=expect))
        assert moved.tag.inode == expect.inode
        assert moved.tag.ctime_ns == 0
        assert moved.tag != await tag(root, b"g")

    with_root(place, work)


def test_an_edit_that_hides_itself_from_mtime_and_size_before_a_move_is_looked_at_later(place: Place) -> None:
    """The rename changes ctime, too: afterwards nothing would tell that this content was never hashed."""
    path = place.path / "f"
    path.write_bytes(b"seen")

    async def work(root: LocalDirectory) -> None:
        expect = await tag(root, b"f")
        path.write_bytes(b"mine")
        os.utime(path, ns=(expect.mtime_ns, expect.mtime_ns))
        assert path.stat().st_ctime_ns != expect.ctime_ns
        moved = await done(root, Rename(source=P(b"f"), target=P(b"g"), expect=expect))
        assert moved.tag.inode == expect.inode
        assert moved.tag != await tag(root, b"g")
        again = await done(root, Rename(source=P(b"g"), target=P(b"h"), expect=moved.tag))
        assert again.tag != await tag(root, b"h")

    with_root(place, work)


def test_the_barrier_after_a_replace_makes_its_folder_and_its_trash_entry_durable(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could undo the exchange after the base row was written: it would look like a user's change."""
    (place.path / "d").mkdir()
    (place.path / "d" / "f").write_bytes(b"seen")
    synced: set[int] = set()
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    async def work(root: LocalDirectory) -> None:
        expect = await tag(root, b"d/f")
        staged = await staged_by(root, wanted(b"d/f", b"theirs", Elsewhere(b"theirs").fetch))
        await done(root, Install(path=P(b"d/f"), staged=staged, expect=expect))
        monkeypatch.setattr(os, "fsync", noting)
        await root.barrier()
        monkeypatch.undo()

    with_root(place, work)
    (entry,) = (path.parent for path in (place.path / ".blocksync/trash").glob("*/item"))
    assert {(place.path / "d").stat().st_ino, entry.stat().st_ino} <= synced


@pytest.mark.parametrize(
    ("mtime", "ctime", "known"),
    [(99, 99, True), (99, 100, True), (100, 99, True), (100, 100, False), (150, 101, False)],
)
def test_what_was_written_in_the_tick_of_the_look_proves_nothing(mtime: int, ctime: int, known: bool) -> None:
    """A second write in that tick changes neither of them."""
    found = LocalTag(device=1, ino=2, btime_ns=3, size_bytes=4, mtime_ns=mtime, ctime_ns=ctime)
    kept = settled(found, clock_ns=100)
    assert (kept == found) == known
    assert kept.ctime_ns == (ctime if known else 0)


def test_metadata_of_a_file_that_its_owner_may_not_read_can_be_changed(tmp_path: Path) -> None:
    """Else a file of mode 0 that came from a device of root keeps that mode here for ever."""
    command = [sys.executable, "-m", "tests.unit.syncer.local.nobodys_modes", tmp_path]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (made.returncode, made.stdout, made.stderr) == (0, "0\n0\n604\n", "")


def test_after_a_failed_fsync_the_other_folders_are_fsynced_by_the_next_barrier(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a row is recorded of a rename that the disk has never been asked for, and descriptors are lost."""
    names = [b"a", b"b", b"c", b"d"]
    synced: list[int] = []
    failing = [1]

    def fsync(descriptor: int) -> None:
        if failing and len(synced) == failing[0]:
            failing.clear()
            raise OSError(errno.EIO, "lost")
        synced.append(os.fstat(descriptor).st_ino)

    async def work(root: LocalDirectory) -> None:
        opened = len(os.listdir("/proc/self/fd"))
        for name in names:
            (place.path / os.fsdecode(name)).mkdir()
            await done(root, MakeDirectory(path=P(name + b"/new"), meta=Meta(mode=0o755)))
        with monkeypatch.context() as patched:
            patched.setattr(changes_module.os, "fsync", fsync)
            with pytest.raises(OSError, match="lost"):
                await root.barrier()
            await done(root, MakeDirectory(path=P(b"a/more"), meta=Meta(mode=0o755)))
            await root.barrier()
        assert {(place.path / os.fsdecode(name)).stat().st_ino for name in names} <= set(synced)
        assert len(os.listdir("/proc/self/fd")) == opened

    with_root(place, work)
