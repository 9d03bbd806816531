"""Many new files in one go: each is whole under its name or not there, and fails alone."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockfs.blocks.ids import PADDING_ID, ZERO_BLOCK
from blockfs.engine.copies.conditions import Applied, Place, Reason
from blockfs.engine.copies.new_files import NewFile
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import FsError, NoSpaceError, UsageError
from blockfs.tree.schema import ROOT_INO
from tests.unit.blockfs.engine.volumes import USER, config, content, create, find, findings, make

ABSENT = b"\x07" * 32


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[Filesystem]:
    opened = Filesystem.open(make(tmp_path / "volume"), config())
    yield opened
    opened.commit()
    assert findings(opened) == []
    opened.close()


def stored(filesystem: Filesystem, *contents: bytes) -> bytes:
    with filesystem.blocks.hold() as hold:
        ids = [filesystem.blocks.put(data, hold) for data in contents]
        filesystem.blocks.sync()
    return b"".join(ids)


def file(name: bytes, size_bytes: int = 0, ids: bytes = b"", parent: int = ROOT_INO) -> NewFile:
    place = Place(parent=parent, name=name)
    return NewFile(place=place, size_bytes=size_bytes, mode=0o640, caller=USER, mtime_ns=77, ids=ids)


def test_files_appear_with_their_contents_and_metadata(filesystem: Filesystem) -> None:
    ids = stored(filesystem, b"a" * 4096) + ZERO_BLOCK + stored(filesystem, b"tail5")
    made = filesystem.new_files.make([file(b"empty"), file(b"long", 4096 * 2 + 5, ids), file(b"hole", 9, ZERO_BLOCK)])
    assert all(isinstance(each, Applied) for each in made)
    assert content(filesystem, b"empty") == b""
    assert content(filesystem, b"long") == b"a" * 4096 + bytes(4096) + b"tail5"
    assert content(filesystem, b"hole") == bytes(9)
    found = filesystem.namespace.getattr(find(filesystem, b"long"))
    assert (found.mode, found.uid, found.mtime_ns, found.nlink) == (0o640, USER.uid, 77, 1)


def test_a_block_that_a_seal_has_not_made_durable_yet_is_before_a_leaf_names_it(tmp_path: Path) -> None:
    filesystem = Filesystem.open(make(tmp_path / "volume"), config())
    hold = filesystem.blocks.hold()
    (made,) = filesystem.new_files.make([file(b"f", 4, filesystem.blocks.put(b"data", hold))])
    assert isinstance(made, Applied)
    filesystem.commit()
    filesystem.abandon()
    again = Filesystem.open(filesystem.volume.path, config())
    assert findings(again) == []
    assert content(again, b"f") == b"data"
    again.close()


def test_versions_are_those_of_the_committed_rows(filesystem: Filesystem) -> None:
    made = filesystem.new_files.make([file(b"%d" % number) for number in range(100)])
    filesystem.commit()
    with filesystem.tree.committed() as view:
        for each in made:
            assert isinstance(each, Applied)
            row = view.inode(each.ino)
            assert row is not None
            assert (row.version, row.content_version) == (each.version, each.content_version)


def test_the_directory_that_gets_names_gets_times(filesystem: Filesystem) -> None:
    before = filesystem.tree.inode(ROOT_INO)
    filesystem.new_files.make([file(b"f")])
    after = filesystem.tree.inode(ROOT_INO)
    assert before is not None
    assert after is not None
    assert after.version > before.version
    assert after.mtime_ns >= before.mtime_ns


def test_what_fails_takes_no_other_file_with_it(filesystem: Filesystem) -> None:
    taken = create(filesystem, b"taken")
    there = stored(filesystem, b"data")
    made = filesystem.new_files.make(
        [
            file(b"taken", 4, there),
            file(b"lost", 8192, ABSENT + ABSENT),
            file(b"nowhere", parent=99),
            file(b"below", parent=taken),
            file(b"..", 4, there),
            file(b"good", 4, there),
            file(b"good", 4, there),
        ]
    )
    assert made[:4] == [Reason.OCCUPIED, [ABSENT], Reason.GONE, Reason.GONE]
    assert isinstance(made[4], FsError)
    assert made[4].errno == errno.EINVAL
    assert isinstance(made[5], Applied)
    assert made[6] is Reason.OCCUPIED
    assert content(filesystem, b"good") == b"data"


@pytest.mark.parametrize(
    ("size_bytes", "ids"),
    [(-1, b""), (4097, ABSENT), (4096, ABSENT + ABSENT), (4096, b"short"), (1, PADDING_ID), (4096 * 257, ABSENT * 257)],
)
def test_ids_that_fit_no_file_are_refused_before_anything_is_made(
    filesystem: Filesystem, size_bytes: int, ids: bytes
) -> None:
    with pytest.raises(UsageError):
        filesystem.new_files.make([file(b"good"), file(b"bad", size_bytes, ids)])
    assert filesystem.tree.lookup(ROOT_INO, b"good") is None


def test_a_last_block_with_bytes_past_the_end_is_refused(filesystem: Filesystem) -> None:
    """They would come to light when the file grows. A volume may have a block that an object was cut inside of."""
    longer = stored(filesystem, b"longer")
    cut, whole = filesystem.new_files.make([file(b"cut", 4, longer), file(b"whole", 6, longer)])
    assert isinstance(cut, UsageError)
    assert isinstance(whole, Applied)
    assert find(filesystem, b"cut") is None


def test_their_blocks_survive_a_collection_before_the_commit(filesystem: Filesystem) -> None:
    filesystem.new_files.make([file(b"f", 4, stored(filesystem, b"data"))])
    held = filesystem.blocks.epochs._held
    assert held
    filesystem.commit()
    assert not held
    assert content(filesystem, b"f") == b"data"


def test_what_made_nothing_holds_nothing(filesystem: Filesystem) -> None:
    assert filesystem.new_files.make([]) == []
    filesystem.new_files.make([file(b"f", 4096, ABSENT)])
    assert not filesystem.blocks.epochs._held


def test_as_many_are_made_as_there_is_room_for(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    take, left = filesystem.namespace.new_names.take, iter(range(40))

    def take_some(*place: object, more_bytes: int = 0) -> object:
        if next(left, None) is None:
            raise NoSpaceError("full")
        return take(*place, more_bytes=more_bytes)  # type: ignore[arg-type]

    monkeypatch.setattr(filesystem.namespace.new_names, "take", take_some)
    files = [file(b"%d" % number) for number in range(50)]
    made = filesystem.new_files.make(files)
    assert len(made) == 40
    assert all(isinstance(each, Applied) for each in made)
    with pytest.raises(NoSpaceError):
        filesystem.new_files.make(files[40:])
