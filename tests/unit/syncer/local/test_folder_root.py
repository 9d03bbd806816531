from __future__ import annotations

import mmap
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from blockfs.runtime.linux import filesystem_magic
from syncer.core.base import BaseIndex
from syncer.core.model import ROOT, BaseRow, Content, Kind, LocalTag, Meta, Nid, Node
from syncer.core.parts import Parts
from syncer.core.rows import Origin
from syncer.errors import LocalChangedError, RootIdentityError
from syncer.local.folder import identity
from syncer.local.folder.identity import verify_folder
from syncer.local.folder.private import PrivateFolder
from syncer.local.folder.root import LocalDirectory
from syncer.local.safe_open import DIRECTORY_FLAGS
from syncer.ports.local import BlockReader
from syncer.ports.localvalues import (
    ChangeMeta,
    Install,
    MakeDirectory,
    MakeLink,
    Piece,
    Remove,
    Rename,
    content_of,
    settled,
)
from tests.kit.state import MemoryState
from tests.unit.syncer.local.folders import (
    BLOCK,
    NO_BASE,
    Elsewhere,
    P,
    Place,
    adopt,
    blocks_of,
    by_path,
    done,
    look,
    noise,
    staged_by,
    tag,
    wanted,
    with_root,
)

_TMPFS = 0x01021994  # linux/magic.h

# --- observing


def test_everything_below_the_root_is_seen_with_its_content(place: Place) -> None:
    (place.path / "a").mkdir(mode=0o750)
    (place.path / "a" / "file").write_bytes(noise(1, 3 * BLOCK + 5))
    (place.path / "a" / "file").chmod(0o604)
    (place.path / "link").symlink_to("a/nowhere")
    (place.path / "empty").write_bytes(b"")

    async def work(root: LocalDirectory) -> None:
        found = await look(root)
        assert set(found) == {b"a", b"a/file", b"link", b"empty"}
        assert found[b"a"].kind is Kind.DIRECTORY
        assert found[b"a"].meta.mode == 0o750
        assert found[b"a/file"].content == content_of(blocks_of(noise(1, 3 * BLOCK + 5)))
        assert found[b"a/file"].meta.mode == 0o604
        assert found[b"link"].target == b"a/nowhere"
        assert found[b"empty"].content.size_bytes == 0
        assert root.counters.bytes_read == 3 * BLOCK + 5

    with_root(place, work)


def test_an_unchanged_file_is_not_read_again(place: Place) -> None:
    (place.path / "file").write_bytes(noise(1, 9 * BLOCK))

    async def work(root: LocalDirectory) -> None:
        seen = (await look(root))[b"file"]
        node = Node(parent=ROOT, name=b"file", kind=Kind.FILE, content=seen.content)
        base = BaseIndex([BaseRow(nid=Nid(1), node=node, local=seen.tag, remote=None)])
        before = root.counters.bytes_read
        assert by_path(await root.observe(base))[b"file"].content == seen.content
        assert root.counters.bytes_read == before
        os.utime(place.path / "file", ns=(5, 5))
        assert by_path(await root.observe(base))[b"file"].content == seen.content
        assert root.counters.bytes_read == before + 9 * BLOCK

    with_root(place, work)


def test_a_large_file_that_is_not_in_the_base_yet_is_hashed_once(place: Place) -> None:
    """Otherwise a push that is killed again and again never gets beyond the hashing."""
    with (place.path / "large").open("wb") as file:
        file.truncate(16 << 20)
        file.write(b"x")
    (place.path / "small").write_bytes(b"x")
    found: dict[LocalTag, Content] = {}

    class Memory(MemoryState):
        def content(self, tag: LocalTag) -> Content | None:
            return found.get(tag)

        def contents_found(self, results: Sequence[tuple[LocalTag, Content]], clock_ns: int) -> None:
            found.update(results)

    async def main() -> None:
        for expected in ({"large": BLOCK, "small": 1}, {"small": 1}):
            root = place.open(Memory())
            assert all(stat.content is not None for stat in (await look(root)).values())
            assert root.counters.bytes_read == sum(expected.values())
            await root.close()

    trio.run(main)
    assert len(found) == 1


def test_evidence_from_the_tick_of_the_observation_is_not_trusted(place: Place) -> None:
    (place.path / "file").write_bytes(b"1")

    async def work(root: LocalDirectory) -> None:
        observation = await root.observe(NO_BASE)
        found = by_path(observation)[b"file"].tag
        assert settled(found, found.mtime_ns + 1) == found
        racy = settled(found, found.mtime_ns)
        assert racy != found
        assert racy.inode == found.inode

    with_root(place, work)


def test_holes_are_neither_read_nor_hashed(place: Place) -> None:
    with (place.path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
        file.seek(1 << 29)
        file.write(b"x" * BLOCK)

    async def work(root: LocalDirectory) -> None:
        found = (await look(root))[b"sparse"]
        assert found.content.size_bytes == 1 << 30
        assert root.counters.bytes_read <= 16 * BLOCK
        (blocks,) = await root.block_lists([found])
        pieces = [Piece(stat=found, blocks=blocks, index=index) for index in ((1 << 29) // BLOCK, 0)]
        assert await root.reader().read(pieces) == [b"x" * BLOCK, b""]

    with_root(place, work)


def test_a_file_of_too_many_blocks_is_reported_and_not_read(place: Place) -> None:
    with (place.path / "huge").open("wb") as file:
        file.truncate((1 << 24) * BLOCK + 1)

    async def work(root: LocalDirectory) -> None:
        observation = await root.observe(NO_BASE)
        assert by_path(observation)[b"huge"].content is None
        assert [(problem.path, problem.partly) for problem in observation.problems] == [(b"huge", True)]

    with_root(place, work)


def test_special_files_are_noted_and_names_that_are_not_utf8_are_seen(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(place.path / "pipe")
    monkeypatch.chdir(place.path)  # the path of a socket has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    with open(os.path.join(os.fsencode(place.path), b"caf\xe9"), "wb") as file:
        file.write(b"x")

    async def work(root: LocalDirectory) -> None:
        observation = await root.observe(NO_BASE)
        assert set(by_path(observation)) == {b"caf\xe9"}
        assert sorted((problem.path, problem.partly) for problem in observation.problems) == [
            (b"pipe", False),
            (b"socket", False),
        ]

    with_root(place, work)


def test_an_unreadable_directory_is_unknown(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.path / "dark").mkdir()
    (place.path / "dark" / "inside").write_bytes(b"x")
    real = os.open

    def refuse(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if path == b"dark":
            raise PermissionError(13, "Permission denied", path)
        return real(path, flags, *args, **kwargs)

    async def work(root: LocalDirectory) -> None:
        monkeypatch.setattr(os, "open", refuse)
        observation = await root.observe(NO_BASE)
        monkeypatch.undo()
        assert observation.unknown == [b"dark"]
        assert [problem.path for problem in observation.problems] == [b"dark"]

    with_root(place, work)


def test_a_symlink_is_never_followed(place: Place, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"x")
    (place.path / "door").symlink_to(outside)

    async def work(root: LocalDirectory) -> None:
        assert set(await look(root)) == {b"door"}
        elsewhere = Elsewhere(b"data")
        staged = await staged_by(root, wanted(b"door/planted", b"data", elsewhere.fetch))
        with pytest.raises(LocalChangedError):
            await done(root, Install(path=P(b"door/planted"), staged=staged))
        with pytest.raises(LocalChangedError):
            await done(root, MakeDirectory(path=P(b"door/folder"), meta=Meta()))
        assert sorted(os.listdir(outside)) == ["secret"]

    with_root(place, work)


def test_a_file_that_changes_while_it_is_read_has_no_content(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.path / "busy").write_bytes(noise(1, BLOCK))
    real = os.pread

    def write_meanwhile(descriptor: int, length: int, offset: int) -> bytes:
        data = real(descriptor, length, offset)
        with (place.path / "busy").open("ab") as file:
            file.write(b"more")
        return data

    async def work(root: LocalDirectory) -> None:
        monkeypatch.setattr(os, "pread", write_meanwhile)
        observation = await root.observe(NO_BASE)
        monkeypatch.undo()
        assert by_path(observation)[b"busy"].content is None
        assert "changes" in observation.problems[0].reason

    with_root(place, work)


@pytest.mark.parametrize("size", [BLOCK // 2, 3 * BLOCK])
def test_a_store_to_a_page_that_is_mapped_since_before_a_look_changes_the_evidence(place: Place, size: int) -> None:
    """The kernel stamps such a page once, until it is written back: later stores would be overlooked for good."""
    path = place.path / "f"
    path.write_bytes(b"0" * size)

    async def work(root: LocalDirectory) -> None:
        with path.open("rb+") as file, mmap.mmap(file.fileno(), size) as pages:
            if filesystem_magic(file.fileno()) == _TMPFS:
                pytest.skip("pages of a tmpfs are never written back")
            pages[0] = 1
            os.utime(path, ns=(0, 0))  # so that no tick of the clock hides the store
            before = await tag(root, b"f")
            pages[0] = 2
            assert await tag(root, b"f") != before

    with_root(place, work)


# --- pushing


def test_a_file_that_was_written_to_is_not_taken_for_the_observed_one(place: Place) -> None:
    (place.path / "file").write_bytes(noise(1, 4 * BLOCK))

    async def work(root: LocalDirectory) -> None:
        found = (await look(root))[b"file"]
        (blocks,) = await root.block_lists([found])
        assert blocks == blocks_of(noise(1, 4 * BLOCK))
        pieces = [Piece(stat=found, blocks=blocks, index=index) for index in range(4)]
        reader = root.reader()
        assert await reader.read(pieces[:1]) == [noise(1, 4 * BLOCK)[:BLOCK]]
        with (place.path / "file").open("r+b") as file:
            file.seek(2 * BLOCK)
            file.write(b"changed")
        # What was read when it was hashed is in memory; what must be read again is compared.
        assert await reader.read(pieces[1:2]) == [noise(1, 4 * BLOCK)[BLOCK : 2 * BLOCK]]
        assert block_id(await one_of(reader, pieces[2])) == blocks[2]
        with pytest.raises(LocalChangedError):
            await one_of(reader, pieces[2])
        with pytest.raises(LocalChangedError):
            await one_of(root.reader(), pieces[3])
        (changed,) = await root.block_lists([found])
        assert isinstance(changed, LocalChangedError)

    with_root(place, work)


async def one_of(reader: BlockReader, piece: Piece) -> bytes:
    (found,) = await reader.read([piece])
    if isinstance(found, Exception):
        raise found
    return found


# --- pulling


def test_a_new_file_is_fetched_whole_and_has_mode_and_time(place: Place) -> None:
    data = noise(2, 5 * BLOCK + 77)

    async def work(root: LocalDirectory) -> None:
        elsewhere = Elsewhere(data)
        staged = await staged_by(root, wanted(b"new", data, elsewhere.fetch))
        assert place.visible() == {}
        applied = await done(root, Install(path=P(b"new"), staged=staged))
        await root.barrier()
        assert place.visible() == {"new": data}
        found = os.stat(place.path / "new")
        assert (stat.S_IMODE(found.st_mode), found.st_mtime_ns) == (0o640, 1_000_000_001)
        assert applied.tag == await tag(root, b"new")
        assert elsewhere.served == 6

    with_root(place, work)


def test_a_host_that_takes_less_than_it_is_given_is_given_the_rest(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal blocks, a hole and a short end among neighbours: each arrives at all its places."""
    one, two = noise(1, BLOCK), noise(2, BLOCK)
    data = one + two + one + bytes(BLOCK) + two[:-7].ljust(BLOCK, b"\0") + one + two[:1000]
    elsewhere = Elsewhere(data)
    write = os.pwritev

    def grudging(descriptor: int, parts: Sequence[memoryview], at: int) -> int:
        return write(descriptor, [memoryview(b"".join(parts))[:5000]], at)

    async def work(root: LocalDirectory) -> None:
        monkeypatch.setattr(os, "pwritev", grudging)
        staged = await staged_by(root, wanted(b"new", data, elsewhere.fetch))
        await done(root, Install(path=P(b"new"), staged=staged))

    with_root(place, work)
    assert place.visible() == {"new": data}


def test_what_was_pulled_can_be_executed_while_its_blocks_are_kept_for_others(place: Place) -> None:
    """Breaks when a file that others may have blocks of stays open for writing: it is a busy text then."""
    data = b"#!/bin/sh\nexit 7\n" + b"#" * BLOCK  # a small one is not kept open

    async def work(root: LocalDirectory) -> None:
        read = root.keep_received()
        order = wanted(b"program", data, Elsewhere(data).fetch, meta=Meta(mode=0o700))
        await done(root, Install(path=P(b"program"), staged=await staged_by(root, order)))
        assert subprocess.run([place.path / "program"], check=False).returncode == 7
        assert read(BlockId(block_id(data[:BLOCK]))) == data[:BLOCK]

    with_root(place, work)


def test_only_the_changed_block_of_a_replaced_file_is_fetched(place: Place) -> None:
    old = noise(3, 40 * BLOCK)
    new = old[: 7 * BLOCK] + noise(4, BLOCK) + old[8 * BLOCK :]
    (place.path / "image").write_bytes(old)

    async def work(root: LocalDirectory) -> None:
        found = (await look(root))[b"image"]
        elsewhere = Elsewhere(new)
        origin = Origin(path=P(b"image"), tag=found.tag, content=found.content)
        staged = await staged_by(root, wanted(b"image", new, elsewhere.fetch, origins=(origin,)))
        applied = await done(root, Install(path=P(b"image"), staged=staged, expect=found.tag))
        assert elsewhere.served == 1
        assert applied.copied_to is None
        assert place.visible() == {"image": new}
        assert place.trashed() == [old]

    with_root(place, work)


def test_a_source_that_lies_about_its_content_is_not_believed(place: Place) -> None:
    old, new = noise(3, 8 * BLOCK), noise(5, 8 * BLOCK)
    (place.path / "image").write_bytes(old)

    async def work(root: LocalDirectory) -> None:
        found = (await look(root))[b"image"]
        (place.path / "other").write_bytes(new)
        (await look(root))[b"other"]
        elsewhere = Elsewhere(new)
        liar = Origin(path=P(b"image"), tag=found.tag, content=content_of(blocks_of(new)))
        staged = await staged_by(root, wanted(b"image", new, elsewhere.fetch, origins=(liar,)))
        await done(root, Install(path=P(b"image"), staged=staged, expect=found.tag))
        assert place.visible()["image"] == new
        assert elsewhere.served == 8

    with_root(place, work)


def test_an_interrupted_pull_goes_on_where_it_stopped(place: Place) -> None:
    data = noise(6, 20 * BLOCK)

    async def work(root: LocalDirectory) -> None:
        elsewhere = Elsewhere(data)

        async def half(indexes: Any, deliver: Any) -> None:
            await elsewhere.fetch(indexes[:12], deliver)
            raise ConnectionError("gone")

        with pytest.raises(ConnectionError):
            await staged_by(root, wanted(b"new", data, half))
        staged = await staged_by(root, wanted(b"new", data, elsewhere.fetch))
        await done(root, Install(path=P(b"new"), staged=staged))
        assert elsewhere.served == 20
        assert place.visible() == {"new": data}

    with_root(place, work)


def test_a_leftover_temp_file_of_wrong_bytes_is_corrected(place: Place) -> None:
    data = noise(6, 3 * BLOCK) + bytes(2 * BLOCK) + noise(7, 100)

    async def work(root: LocalDirectory) -> None:
        elsewhere = Elsewhere(data)
        staged = await staged_by(root, wanted(b"new", data, elsewhere.fetch))
        (name,) = os.listdir(place.path / ".blocksync/tmp")
        await staged.drop()
        (place.path / ".blocksync/tmp" / name).write_bytes(noise(8, 30 * BLOCK))
        staged = await staged_by(root, wanted(b"new", data, elsewhere.fetch))
        await done(root, Install(path=P(b"new"), staged=staged))
        assert place.visible() == {"new": data}

    with_root(place, work)


@pytest.mark.parametrize(("mode", "fetched"), [("400", 0), ("444", 0), ("555", 0), ("640", 0), ("0", 6), ("200", 6)])
def test_a_leftover_temp_file_that_forbids_writing_stops_nobody(tmp_path: Path, mode: str, fetched: int) -> None:
    """Breaks when a run that was killed between a file's mode and its name keeps later ones from it for a day."""
    command = [sys.executable, "-m", "tests.unit.syncer.local.as_nobody", tmp_path, mode]
    done = subprocess.run(command, cwd=Path(__file__).parents[4], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{fetched} {mode}\n", "")


def test_a_name_that_is_taken_is_never_replaced_by_a_create(place: Place) -> None:
    async def work(root: LocalDirectory) -> None:
        staged = await staged_by(root, wanted(b"new", b"theirs", Elsewhere(b"theirs").fetch))
        (place.path / "new").write_bytes(b"mine")
        with pytest.raises(LocalChangedError):
            await done(root, Install(path=P(b"new"), staged=staged))
        with pytest.raises(LocalChangedError):
            await done(root, MakeDirectory(path=P(b"new"), meta=Meta()))
        with pytest.raises(LocalChangedError):
            await done(root, MakeLink(path=P(b"new"), target=b"x"))
        await staged.drop()
        assert place.visible() == {"new": b"mine"}
        assert os.listdir(place.path / ".blocksync/tmp") == []

    with_root(place, work)


def test_an_edit_between_plan_and_replace_is_left_where_it_is(place: Place) -> None:
    (place.path / "file").write_bytes(b"old")

    async def work(root: LocalDirectory) -> None:
        expect = await tag(root, b"file")
        staged = await staged_by(root, wanted(b"file", b"theirs", Elsewhere(b"theirs").fetch))
        (place.path / "file").write_bytes(b"mine, newer")
        with pytest.raises(LocalChangedError):
            await done(root, Install(path=P(b"file"), staged=staged, expect=expect))
        with pytest.raises(LocalChangedError):
            await done(root, Remove(path=P(b"file"), kind=Kind.FILE, expect=expect))
        with pytest.raises(LocalChangedError):
            await done(root, ChangeMeta(path=P(b"file"), meta=Meta(mode=0o600), expect=expect))
        assert place.visible() == {"file": b"mine, newer"}

    with_root(place, work)


@pytest.mark.parametrize("rewrite", ["in place", "by rename"])
def test_an_edit_in_the_last_instant_becomes_a_conflict_copy(place: Place, rewrite: str) -> None:
    """The look before the exchange can't see it; the look after it must."""
    (place.path / "file.txt").write_bytes(b"old")

    async def work(root: LocalDirectory) -> None:
        expect = await tag(root, b"file.txt")
        staged = await staged_by(root, wanted(b"file.txt", b"theirs", Elsewhere(b"theirs").fetch))

        def edit(step: str) -> None:
            if step == "moved to trash entry":
                target = place.path / ("file.txt" if rewrite == "in place" else "fresh")
                target.write_bytes(b"mine, newer")
                os.replace(target, place.path / "file.txt")

        root.step = edit
        applied = await done(root, Install(path=P(b"file.txt"), staged=staged, expect=expect))
        assert applied.copied_to is not None
        assert applied.copied_to.startswith(b"file (conflict here ")
        assert place.visible() == {"file.txt": b"theirs", applied.copied_to.decode(): b"mine, newer"}

    with_root(place, work)


def test_a_delete_that_hits_a_fresh_edit_puts_it_back(place: Place) -> None:
    (place.path / "file").write_bytes(b"old")

    async def work(root: LocalDirectory) -> None:
        expect = await tag(root, b"file")

        def edit(step: str) -> None:
            if step == "trash entry made":
                (place.path / "file").write_bytes(b"mine, newer")

        root.step = edit
        with pytest.raises(LocalChangedError):
            await done(root, Remove(path=P(b"file"), kind=Kind.FILE, expect=expect))
        assert place.visible() == {"file": b"mine, newer"}
        assert place.trashed() == []

    with_root(place, work)


def test_a_late_write_to_a_displaced_file_is_not_lost(place: Place) -> None:
    """A program holds the file open and goes on writing after it was displaced."""
    (place.path / "file").write_bytes(b"old")

    async def work(root: LocalDirectory) -> None:
        expect = await tag(root, b"file")
        staged = await staged_by(root, wanted(b"file", b"theirs", Elsewhere(b"theirs").fetch))
        with (place.path / "file").open("ab") as writer:
            await done(root, Install(path=P(b"file"), staged=staged, expect=expect))
            writer.write(b" and more")
        (kept,) = await root.settle()
        assert place.visible() == {"file": b"theirs", kept.decode(): b"old and more"}

    with_root(place, work)


def test_a_directory_is_only_removed_when_empty(place: Place) -> None:
    (place.path / "d").mkdir()

    async def work(root: LocalDirectory) -> None:
        expect = await tag(root, b"d")
        (place.path / "d" / "new").write_bytes(b"x")
        with pytest.raises(LocalChangedError):
            await done(root, Remove(path=P(b"d"), kind=Kind.DIRECTORY, expect=expect))
        (place.path / "d" / "new").unlink()
        await done(root, Remove(path=P(b"d"), kind=Kind.DIRECTORY, expect=expect))
        assert not (place.path / "d").exists()

    with_root(place, work)


def test_moves_and_parking_keep_the_inode_and_refuse_taken_names(place: Place) -> None:
    (place.path / "a").write_bytes(b"a")
    (place.path / "b").write_bytes(b"b")

    async def work(root: LocalDirectory) -> None:
        expect = await tag(root, b"a")
        with pytest.raises(LocalChangedError):
            await done(root, Rename(source=P(b"a"), target=P(b"b"), expect=expect))
        parked = await done(root, Rename(source=P(b"a"), target=P(b".blocksync/park/7-a"), expect=expect))
        assert set(await look(root)) == {b"b", b".blocksync/park/7-a"}
        moved = await done(root, Rename(source=P(b".blocksync/park/7-a"), target=P(b"c"), expect=parked.tag))
        assert moved.tag == await tag(root, b"c")
        assert moved.tag.inode == expect.inode
        with pytest.raises(LocalChangedError):
            await done(root, Rename(source=P(b"b"), target=P(b"d"), expect=expect))

    with_root(place, work)


def test_a_symlink_is_made_and_replaced(place: Place) -> None:
    async def work(root: LocalDirectory) -> None:
        first = await done(root, MakeLink(path=P(b"l"), target=b"one"))
        await done(root, MakeLink(path=P(b"l"), target=b"two", expect=first.tag))
        assert os.readlink(place.path / "l") == "two"
        assert os.listdir(place.path / ".blocksync/tmp") == []

    with_root(place, work)


def test_metadata_is_set_without_touching_content(place: Place) -> None:
    (place.path / "f").write_bytes(b"x")
    (place.path / "d").mkdir()

    async def work(root: LocalDirectory) -> None:
        await done(root, ChangeMeta(path=P(b"f"), meta=Meta(mode=0o400, mtime_ns=77), expect=await tag(root, b"f")))
        found = os.stat(place.path / "f")
        assert (stat.S_IMODE(found.st_mode), found.st_mtime_ns) == (0o400, 77)
        directory = await tag(root, b"d")
        (place.path / "d" / "child").write_bytes(b"")
        await done(root, ChangeMeta(path=P(b"d"), meta=Meta(mode=0o711), expect=directory))
        assert stat.S_IMODE(os.stat(place.path / "d").st_mode) == 0o711

    with_root(place, work)


def test_an_attribute_that_a_program_sets_on_a_directory_after_the_look_stays(place: Place) -> None:
    (place.path / "d").mkdir()
    os.setxattr(place.path / "d", "user.old", b"1")

    async def work(root: LocalDirectory) -> None:
        directory = await tag(root, b"d")
        os.setxattr(place.path / "d", "user.theirs", b"2")
        seen, wanted = Meta(xattrs=((b"old", b"1"),)), Meta(xattrs=((b"ours", b"3"),))
        await done(root, ChangeMeta(path=P(b"d"), meta=wanted, expect=directory, seen=seen))
        assert sorted(os.listxattr(place.path / "d")) == ["user.ours", "user.theirs"]

    with_root(place, work, parts=Parts(xattrs=True))


# --- identity


def test_an_empty_mount_point_is_not_the_root(place: Place) -> None:
    with_root(place, look)  # type: ignore[arg-type]  # its result is of no interest
    place.path.rename(place.path.with_name("away"))
    with pytest.raises(RootIdentityError):
        place.open()
    place.path.mkdir()
    with pytest.raises(RootIdentityError):
        place.open()


def test_a_copy_of_the_root_in_its_place_is_not_the_root(place: Place) -> None:
    place.path.rename(place.path.with_name("away"))
    place.path.mkdir()
    adopt(place.path)
    with pytest.raises(RootIdentityError):
        place.open()


@pytest.mark.parametrize(
    ("device", "filesystem", "is_it"),
    [
        (7, 11, True),
        (8, 11, True),  # another number at this boot
        (7, 12, False),  # a new disk in the slot of the old one
        (8, 12, False),
        (7, 0, True),  # linked under a kernel that gave none
        (8, 0, False),
    ],
)
def test_a_copy_on_a_new_disk_is_not_the_root(
    place: Place, monkeypatch: pytest.MonkeyPatch, device: int, filesystem: int, is_it: bool
) -> None:
    """The top of a filesystem has one inode number everywhere: a restored backup would undo what came after it."""
    found = replace(place.folder, device=7, filesystem=11)
    monkeypatch.setattr(identity, "look_at_folder", lambda root, uuid: replace(found, uuid=uuid))
    root = os.open(place.path, DIRECTORY_FLAGS)
    try:
        with nullcontext() if is_it else pytest.raises(RootIdentityError):
            verify_folder(root, b"/x", replace(found, device=device, filesystem=filesystem))
    finally:
        os.close(root)


def test_a_root_without_an_id_of_its_filesystem_is_known_after_a_boot(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FUSE has none, and another device number at each mount."""
    found = replace(place.folder, device=7, filesystem=0)
    monkeypatch.setattr(identity, "look_at_folder", lambda root, uuid: replace(found, uuid=uuid))
    root = os.open(place.path, DIRECTORY_FLAGS)
    try:
        verify_folder(root, b"/x", replace(found, device=8))
    finally:
        os.close(root)


def whole(stat: Any) -> Piece:
    """A file of one block."""
    ids = stat.content.object_hash if stat.content.size_bytes else b""
    return Piece(stat=stat, blocks=BlockList(block_size=BLOCK, size_bytes=stat.content.size_bytes, ids=ids), index=0)


def test_small_files_are_read_at_once_and_each_has_its_own_fate(place: Place) -> None:
    (place.path / "a").mkdir()
    for number, name in enumerate(["a/1", "a/2", "b", "empty", "zeros", "gone", "a/link", "under"]):
        (place.path / name).write_bytes(noise(number, 100) if name != "empty" else b"")
    (place.path / "zeros").write_bytes(bytes(50))

    async def work(root: LocalDirectory) -> None:
        found = await look(root)
        (place.path / "gone").unlink()
        (place.path / "a" / "link").unlink()
        (place.path / "a" / "link").symlink_to("1")
        names = [b"a/1", b"a/2", b"b", b"a/1", b"empty", b"zeros", b"gone", b"a/link"]
        stats = [found[name] for name in names]
        contents = await root.reader().read([whole(stat) for stat in stats])
        assert contents[:6] == [noise(0, 100), noise(1, 100), noise(2, 100), noise(0, 100), b"", b""]
        assert isinstance(contents[6], LocalChangedError)
        assert isinstance(contents[7], LocalChangedError)
        (place.path / "a").rename(place.path / "c")
        (place.path / "a").symlink_to("c")
        (replaced,) = await root.reader().read([whole(found[b"a/1"])])
        assert isinstance(replaced, LocalChangedError)  # never through a link

    with_root(place, work)


# --- the private folder


def test_nothing_is_written_through_a_link_in_the_temp_folder(place: Place) -> None:
    """Who may write there before it is ours could have a sync of root's empty any file."""
    outside = place.path.parent / "outside"
    outside.write_bytes(b"precious")
    names = [f"clock.{os.getpid()}", "probe.1", "probe.2", "probe-fold.a"]
    for name in names:
        (place.path / ".blocksync/tmp" / name).symlink_to(outside)
    (place.path / ".blocksync/tmp/probe.2").unlink()
    (place.path / ".blocksync/tmp/probe.2").symlink_to(place.path.parent / "new")
    with_root(place, lambda root: root.observe(NO_BASE))
    descriptor = os.open(place.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        private = PrivateFolder(descriptor)
        private.probe_renames()
        private.close()
    finally:
        os.close(descriptor)
    assert outside.read_bytes() == b"precious"
    assert not (place.path.parent / "new").exists()


def test_a_folder_that_somebody_made_in_the_temp_folder_stays_and_stops_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncer.local.folder.root._STALE_TEMP_S", -1.0)
    (place.path / ".blocksync/tmp/folder").mkdir()
    (place.path / ".blocksync/tmp/file").touch()
    with_root(place, lambda root: root.settle())
    assert os.listdir(place.path / ".blocksync/tmp") == ["folder"]
