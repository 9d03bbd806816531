"""What a user does with the trash: list, restore, put in, delete."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from syncer.core.model import RelPath
from syncer.errors import NotFoundError, UsageError
from syncer.local.verbs import trash as trash_module
from syncer.local.verbs.retention import KEEP_S, Retention
from syncer.local.verbs.trash import Why
from syncer.local.verbs.trashcan import TrashCan, find_kept
from tests.kit.state import MemoryState
from tests.unit.syncer.local.folders import Place, copy_name, new_place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return new_place(tmp_path)


@pytest.fixture
def can(place: Place) -> TrashCan:
    return TrashCan(os.fsencode(place.path))


def trash(place: Place) -> Path:
    return place.path / ".blocksync/trash"


def put(place: Place, can: TrashCan, name: bytes, data: bytes) -> None:
    path = os.path.join(os.fsencode(place.path), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(os.fsdecode(path)).write_bytes(data)
    can.put(RelPath(name))


def test_a_version_that_was_put_in_is_listed_and_comes_back_to_its_place(place: Place, can: TrashCan) -> None:
    put(place, can, b"d/sub/file\xff.txt", b"version")
    (place.path / "d/sub").rmdir()
    (kept,) = can.entries()
    assert (kept.origin, kept.kind, kept.size_bytes, kept.settled) == (b"d/sub/file\xff.txt", "file", 7, True)
    assert place.visible() == {}
    assert kept.origin is not None
    can.restore(kept, kept.origin)
    assert list(place.visible().values()) == [b"version"]
    assert (can.entries(), list(trash(place).iterdir())) == ([], [])


def test_restoring_never_overwrites(place: Place, can: TrashCan) -> None:
    put(place, can, b"file", b"old")
    (place.path / "file").write_bytes(b"new")
    (kept,) = can.entries()
    with pytest.raises(UsageError, match="exists: restoring never overwrites"):
        can.restore(kept, RelPath(b"file"))
    assert place.visible() == {"file": b"new"}
    assert can.entries() == [kept]
    can.restore(kept, RelPath(b"other"))
    assert place.visible() == {"file": b"new", "other": b"old"}


def test_restoring_goes_through_no_symlink_and_no_file(place: Place, can: TrashCan, tmp_path: Path) -> None:
    put(place, can, b"d/file", b"old")
    (place.path / "d").rmdir()
    (kept,) = can.entries()
    (tmp_path / "outside").mkdir()
    (place.path / "d").symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match="no directory"):
        can.restore(kept, RelPath(b"d/file"))
    (place.path / "d").unlink()
    (place.path / "d").write_bytes(b"a file")
    with pytest.raises(UsageError, match="no directory"):
        can.restore(kept, RelPath(b"d/file"))
    assert list((tmp_path / "outside").iterdir()) == []
    assert can.entries() == [kept]


def test_versions_of_one_file_are_listed_newest_first_and_found_by_the_beginning_of_their_name(
    place: Place, can: TrashCan
) -> None:
    for number in range(3):
        put(place, can, b"file", b"%d" % number)
    entries = can.entries()
    assert [kept.ident for kept in entries] == sorted((kept.ident for kept in entries), reverse=True)
    assert find_kept(entries, entries[1].ident) == entries[1]
    with pytest.raises(NotFoundError, match="may be"):
        find_kept(entries, entries[0].ident[:3])
    with pytest.raises(NotFoundError, match="no entry"):
        find_kept(entries, "x")


def test_deleting_leaves_pending_entries_and_folders_of_somebody_elses(place: Place, can: TrashCan) -> None:
    put(place, can, b"file", b"old")
    put(place, can, b"link", b"")
    (place.path / "folder").mkdir()
    (place.path / "folder/file").write_bytes(b"kept")
    can.put(RelPath(b"folder"))
    with _a_cycles_trash(place) as cycles:
        (place.path / "pending").write_bytes(b"may be written to")
        _, folder = cycles.begin(RelPath(b"pending"), trash_module.tag_of(_status(place, b"pending")), Why.DELETED)
        os.rename(place.path / "pending", b"item", dst_dir_fd=folder)
        os.close(folder)
    deleted = {kept.origin: can.delete(kept) for kept in can.entries()}
    assert deleted == {b"file": True, b"link": True, b"folder": False, b"pending": False}
    assert {kept.origin for kept in can.entries()} == {b"folder", b"pending"}


def test_what_a_killed_cycle_left_in_an_entry_is_no_version(place: Place, can: TrashCan) -> None:
    """Our own staged file, moved into the entry before the exchange; and an entry that never got an item."""
    with _a_cycles_trash(place) as cycles:
        (place.path / "file").write_bytes(b"old")
        staged = place.path / ".blocksync/tmp/staged"
        staged.write_bytes(b"new")
        expect = trash_module.tag_of(_status(place, b"file"))
        for item in (staged, None):
            _, folder = cycles.begin(RelPath(b"file"), expect, Why.REPLACED, staged.stat().st_ino if item else 0)
            if item is not None:
                os.rename(item, b"item", dst_dir_fd=folder)
            os.close(folder)
    assert can.entries() == []


def test_entries_expire_and_empty_ones_go_with_them(
    place: Place, can: TrashCan, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(place, can, b"file", b"old")
    name, folder = trash_module.new_folder(_open(trash(place)), RelPath(b"never came"), Why.DELETED)
    os.close(folder)
    retention = Retention(3600, MemoryState())
    for _ in range(2):
        can.expire(retention)
    assert len(list(trash(place).iterdir())) == 2
    (trash(place) / "notes of a user").write_bytes(b"")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    can.expire(retention)
    monkeypatch.setattr(time, "time", lambda: now + 3602)
    can.expire(retention)
    assert name.decode() not in os.listdir(trash(place))
    assert os.listdir(trash(place)) == ["notes of a user"]


def test_entries_of_the_first_release_of_volumes_can_be_restored_by_name(place: Place, can: TrashCan) -> None:
    (trash(place) / "1760000000-0000002a-lost-name.img").write_bytes(b"old")
    (kept,) = can.entries()
    assert (kept.ident, kept.origin, kept.fallback) == ("1760000000-0000002a", None, b"lost-name.img")
    can.restore(kept, RelPath(kept.fallback))
    assert place.visible() == {"lost-name.img": b"old"}
    assert can.entries() == []


def test_what_a_user_gave_up_says_so_and_is_named_by_its_time_alone(place: Place, can: TrashCan) -> None:
    (place.path / "file").write_bytes(b"old")
    ident = can.put(RelPath(b"file"))
    (kept,) = can.entries()
    assert (kept.why, kept.ident) == (Why.RESOLVED, ident)
    assert ident.replace("-", "").isalnum()
    assert kept.name == f"{ident}.resolved".encode()


@pytest.mark.parametrize(
    ("name", "ident", "why"),
    [
        ("1760000000-0000002a", "1760000000-0000002a", None),  # of an earlier release
        ("1760000000-0000002a-1.1.1.1.0", "1760000000-0000002a", None),
        ("1760000000-0000002a.doubled", "1760000000-0000002a", Why.DOUBLED),
        ("1760000000-0000002a.deleted-1.1.1.1.0", "1760000000-0000002a", Why.DELETED),
        ("1760000000-0000002a.DELETED", "1760000000-0000002a.DELETED", None),
        ("1760000000-0000002a.", "1760000000-0000002a.", None),
        ("1760000000-0000002a.deleted.deleted", "1760000000-0000002a.deleted.deleted", None),
        ("1760000000-\x1b[31m.\udcff", "1760000000-\x1b[31m.\\xff", None),
        ("1760000000-.replaced", "1760000000-", Why.REPLACED),
    ],
)
def test_a_name_that_says_no_known_word_says_nothing_and_its_version_comes_back(
    place: Place, can: TrashCan, name: str, ident: str, why: Why | None
) -> None:
    """Anybody may have made the entry."""
    (trash(place) / name).mkdir()
    (trash(place) / name / "item").write_bytes(b"old")
    (trash(place) / name / "origin").symlink_to("file")
    (kept,) = can.entries()
    assert (kept.ident, kept.why) == (ident, why)
    can.restore(find_kept([kept], ident), RelPath(b"file"))
    assert place.visible() == {"file": b"old"}
    assert can.entries() == []


def test_a_root_without_a_trash_has_nothing_in_it(tmp_path: Path) -> None:
    with TrashCan(os.fsencode(tmp_path)) as can:
        assert can.entries() == []
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotFoundError):
        TrashCan(b"/nowhere/at/all")


def _status(place: Place, name: bytes) -> trash_module.Status:
    return trash_module.status(name, _open(place.path))


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


class _a_cycles_trash:  # noqa: N801 - a context manager
    def __init__(self, place: Place) -> None:
        self._descriptors = (_open(place.path), _open(trash(place)))

    def __enter__(self) -> trash_module.Trash:
        return trash_module.Trash(*self._descriptors, 4096, copy_name, Retention(KEEP_S, MemoryState()))

    def __exit__(self, *exc_info: object) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
