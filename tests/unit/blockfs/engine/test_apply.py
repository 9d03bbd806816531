from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import PADDING_ID, ZERO_BLOCK, BlockId
from blockfs.engine.copies.apply import Apply
from blockfs.engine.copies.conditions import Applied, Expectation, Place, Reason, RefusedError
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import UsageError
from blockfs.tree.schema import ROOT_INO, Kind
from tests.unit.blockfs.engine.volumes import USER, config, content, create, find, findings, make

NEW = Expectation(ino=None)
TRASH = Place(parent=ROOT_INO, name=b"trash")


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[Filesystem]:
    opened = Filesystem.open(make(tmp_path / "volume"), config())
    yield opened
    opened.commit()
    assert findings(opened) == []
    opened.close()


@pytest.fixture
def apply(filesystem: Filesystem) -> Apply:
    return filesystem.apply


def at(name: bytes) -> Place:
    return Place(parent=ROOT_INO, name=name)


def stored(filesystem: Filesystem, *contents: bytes) -> bytes:
    """Blocks that the syncer has put: pinned there, so a hold is enough here."""
    with filesystem.blocks.hold() as hold:
        ids = [filesystem.blocks.put(data, hold) for data in contents]
        filesystem.blocks.sync()
    return b"".join(ids)


def written(filesystem: Filesystem, name: bytes, data: bytes) -> Expectation:
    """A sealed, committed file; returns what to expect of it."""
    ino = create(filesystem, name)
    filesystem.files.write(ino, 0, data)
    filesystem.files.flush()
    return expected(filesystem, ino)


def expected(filesystem: Filesystem, ino: int) -> Expectation:
    inode = filesystem.tree.inode(ino)
    assert inode is not None
    return Expectation(ino=ino, content_version=inode.content_version)


def prepared(apply: Apply, size_bytes: int, base: tuple[int, int] | None = None) -> int:
    return apply.prepare_file(size_bytes=size_bytes, mode=0o640, caller=USER, mtime_ns=77, base=base)


def reason_of(call: object) -> Reason:
    with pytest.raises(RefusedError) as caught:
        call()  # type: ignore[operator]  # a lambda
    return caught.value.reason


def test_a_received_file_appears_with_its_content_and_meta(filesystem: Filesystem, apply: Apply) -> None:
    handle = prepared(apply, 4096 * 2 + 5)
    assert (
        apply.set_blocks(handle, 0, stored(filesystem, b"a" * 4096) + ZERO_BLOCK + stored(filesystem, b"tail5")) == []
    )
    done = apply.install_file(handle, at(b"f"), NEW)
    assert content(filesystem, b"f") == b"a" * 4096 + bytes(4096) + b"tail5"
    found = filesystem.namespace.getattr(done.ino)
    assert (found.mode, found.mtime_ns, found.nlink) == (0o640, 77, 1)


def test_versions_are_those_of_the_committed_row(filesystem: Filesystem, apply: Apply) -> None:
    done = apply.install_file(prepared(apply, 0), at(b"f"), NEW)
    filesystem.commit()
    with filesystem.tree.committed() as view:
        row = view.inode(done.ino)
    assert row is not None
    assert (row.version, row.content_version) == (done.version, done.content_version)


def test_the_displaced_inode_keeps_its_content_in_the_trash(filesystem: Filesystem, apply: Apply) -> None:
    old = written(filesystem, b"f", b"old")
    done = apply.install_file(prepared(apply, 9), at(b"f"), old, trash=TRASH)
    assert done.displaced == old.ino
    assert content(filesystem, b"f") == bytes(9)
    assert content(filesystem, b"trash") == b"old"


def test_late_writes_reach_the_displaced_inode_only(filesystem: Filesystem, apply: Apply) -> None:
    """Content swapped under a live inode ends as a mixture of two versions: see architecture, section 6."""
    old = written(filesystem, b"f", b"old")
    assert old.ino is not None
    apply.install_file(prepared(apply, 3), at(b"f"), old, trash=TRASH)
    filesystem.files.write(old.ino, 0, b"late")
    assert content(filesystem, b"f") == bytes(3)
    assert content(filesystem, b"trash") == b"late"


def test_a_new_file_starts_with_the_blocks_of_its_base(filesystem: Filesystem, apply: Apply) -> None:
    old = written(filesystem, b"f", b"1" * 4096 + b"2" * 4096 + b"3" * 4096)
    assert old.ino is not None
    assert old.content_version is not None
    handle = prepared(apply, 4096 * 2, base=(old.ino, old.content_version))
    assert apply.set_blocks(handle, 1, stored(filesystem, b"x" * 4096)) == []
    apply.install_file(handle, at(b"f"), old, trash=TRASH)
    assert content(filesystem, b"f") == b"1" * 4096 + b"x" * 4096


def test_a_base_that_has_staged_data_is_refused(filesystem: Filesystem, apply: Apply) -> None:
    old = written(filesystem, b"f", b"1" * 4096)
    assert old.ino is not None
    assert old.content_version is not None
    filesystem.files.write(old.ino, 0, b"new", may_block=True)
    base = (old.ino, old.content_version)
    assert reason_of(lambda: prepared(apply, 4096, base=base)) is Reason.CHANGED
    filesystem.files.fsync(old.ino)
    assert reason_of(lambda: prepared(apply, 4096, base=base)) is Reason.CHANGED


def test_blocks_that_are_not_stored_are_named_and_nothing_changes(filesystem: Filesystem, apply: Apply) -> None:
    handle = prepared(apply, 4096 * 3)
    absent = block_id(b"absent")
    ids = stored(filesystem, b"here") + absent + absent
    assert apply.set_blocks(handle, 0, ids) == [absent]
    apply.install_file(handle, at(b"f"), NEW)
    assert content(filesystem, b"f") == bytes(4096 * 3)


@pytest.mark.parametrize(("first", "ids"), [(0, b"short"), (3, ZERO_BLOCK), (-1, ZERO_BLOCK), (0, bytes(PADDING_ID))])
def test_ids_that_can_not_be_are_refused(apply: Apply, first: int, ids: bytes) -> None:
    handle = prepared(apply, 4096 * 3)
    with pytest.raises(UsageError):
        apply.set_blocks(handle, first, ids)


def test_a_last_block_with_bytes_past_the_end_is_refused(filesystem: Filesystem, apply: Apply) -> None:
    """They would come to light when the file grows."""
    handle = prepared(apply, 5)
    apply.set_blocks(handle, 0, stored(filesystem, b"longer than five"))
    with pytest.raises(UsageError):
        apply.install_file(handle, at(b"f"), NEW)
    apply.set_blocks(handle, 0, stored(filesystem, b"five."))
    apply.install_file(handle, at(b"f"), NEW)
    assert content(filesystem, b"f") == b"five."


def test_a_block_that_a_seal_has_not_made_durable_yet_is_before_a_leaf_names_it(tmp_path: Path) -> None:
    """It counts as stored. Did the seal's sync fail, or a crash come first, the file had a block that is nowhere."""
    filesystem = Filesystem.open(make(tmp_path / "volume"), config())
    hold = filesystem.blocks.hold()
    block_id = filesystem.blocks.put(b"data", hold)
    handle = prepared(filesystem.apply, 4)
    assert filesystem.apply.set_blocks(handle, 0, block_id) == []
    filesystem.apply.install_file(handle, at(b"f"), NEW)
    filesystem.commit()
    filesystem.abandon()
    again = Filesystem.open(filesystem.volume.path, config())
    assert findings(again) == []
    assert content(again, b"f") == b"data"
    again.close()


def test_many_blocks_are_set_across_leaves(filesystem: Filesystem, apply: Apply) -> None:
    one = stored(filesystem, b"1" * 4096)
    handle = prepared(apply, 4096 * 700)
    apply.set_blocks(handle, 3, one * 600)
    apply.set_blocks(handle, 100, ZERO_BLOCK * 300)
    done = apply.install_file(handle, at(b"f"), NEW)
    assert filesystem.tree.block_ids(done.ino, 0, 700) == (
        ZERO_BLOCK * 3 + one * 97 + ZERO_BLOCK * 300 + one * 203 + ZERO_BLOCK * 97
    )


def test_a_place_that_is_taken_is_occupied(filesystem: Filesystem, apply: Apply) -> None:
    create(filesystem, b"f")
    handle = prepared(apply, 0)
    assert reason_of(lambda: apply.install_file(handle, at(b"f"), NEW)) is Reason.OCCUPIED
    assert reason_of(lambda: apply.mkdir(at(b"f"), mode=0o755, caller=USER)) is Reason.OCCUPIED
    assert reason_of(lambda: apply.symlink(at(b"f"), target=b"t", caller=USER)) is Reason.OCCUPIED
    apply.abandon_file(handle)


def test_another_content_or_inode_is_changed(filesystem: Filesystem, apply: Apply) -> None:
    old = written(filesystem, b"f", b"old")
    assert old.ino is not None
    filesystem.files.write(old.ino, 0, b"newer", may_block=True)
    filesystem.files.fsync(old.ino)
    handle = prepared(apply, 0)
    assert reason_of(lambda: apply.install_file(handle, at(b"f"), old, trash=TRASH)) is Reason.CHANGED
    other = Expectation(ino=4711)
    assert reason_of(lambda: apply.install_file(handle, at(b"f"), other, trash=TRASH)) is Reason.CHANGED
    assert reason_of(lambda: apply.remove(at(b"f"), old)) is Reason.CHANGED
    assert reason_of(lambda: apply.set_meta(old, mode=0o600)) is Reason.CHANGED
    assert content(filesystem, b"f") == b"newer"
    apply.abandon_file(handle)


def test_a_file_open_for_writing_is_busy(filesystem: Filesystem, apply: Apply) -> None:
    old = written(filesystem, b"f", b"old")
    assert old.ino is not None
    opened = filesystem.files.open(old.ino, os.O_RDWR)
    handle = prepared(apply, 0)
    assert reason_of(lambda: apply.install_file(handle, at(b"f"), old, trash=TRASH)) is Reason.BUSY
    assert reason_of(lambda: apply.remove(at(b"f"), old)) is Reason.BUSY
    assert reason_of(lambda: apply.set_meta(old, mode=0o600)) is Reason.BUSY
    filesystem.files.release(opened)
    apply.install_file(handle, at(b"f"), old, trash=TRASH)


def test_a_file_open_for_reading_is_not_busy(filesystem: Filesystem, apply: Apply) -> None:
    old = written(filesystem, b"f", b"old")
    assert old.ino is not None
    opened = filesystem.files.open(old.ino, os.O_RDONLY)
    apply.install_file(prepared(apply, 0), at(b"f"), old, trash=TRASH)
    assert filesystem.files.read(old.ino, 0, 10, may_block=True) == b"old"
    filesystem.files.release(opened)


def test_writes_that_the_journal_does_not_know_are_busy(filesystem: Filesystem, apply: Apply) -> None:
    old = written(filesystem, b"f", b"old")
    assert old.ino is not None
    filesystem.files.write(old.ino, 0, b"new", may_block=True)
    assert reason_of(lambda: apply.remove(at(b"f"), old)) is Reason.BUSY


def test_what_is_not_there_is_gone(filesystem: Filesystem, apply: Apply) -> None:
    some = Expectation(ino=5)
    nowhere = Place(parent=4711, name=b"x")
    handle = prepared(apply, 0)
    assert reason_of(lambda: apply.install_file(handle, at(b"f"), some, trash=TRASH)) is Reason.GONE
    assert reason_of(lambda: apply.install_file(handle, nowhere, NEW)) is Reason.GONE
    assert reason_of(lambda: apply.remove(at(b"f"), some)) is Reason.GONE
    assert reason_of(lambda: apply.move(at(b"f"), at(b"g"), some)) is Reason.GONE
    assert reason_of(lambda: apply.set_meta(Expectation(ino=4711), mode=0o600)) is Reason.GONE
    assert reason_of(lambda: apply.mkdir(nowhere, mode=0o755, caller=USER)) is Reason.GONE
    apply.abandon_file(handle)


def test_a_taken_trash_place_changes_nothing(filesystem: Filesystem, apply: Apply) -> None:
    old = written(filesystem, b"f", b"old")
    create(filesystem, b"trash")
    handle = prepared(apply, 0)
    assert reason_of(lambda: apply.install_file(handle, at(b"f"), old, trash=TRASH)) is Reason.OCCUPIED
    assert content(filesystem, b"f") == b"old"
    apply.abandon_file(handle)


def test_a_move_takes_the_inode_along_open_or_not(filesystem: Filesystem, apply: Apply) -> None:
    old = written(filesystem, b"f", b"old")
    assert old.ino is not None
    opened = filesystem.files.open(old.ino, os.O_RDWR)
    made = apply.mkdir(at(b"d"), mode=0o755, caller=USER)
    done = apply.move(at(b"f"), Place(parent=made.ino, name=b"g"), old)
    assert done.ino == old.ino
    assert done.content_version == old.content_version
    assert filesystem.namespace.resolve(b"d/g").ino == old.ino
    assert find(filesystem, b"f") is None
    filesystem.files.release(opened)


def test_a_move_onto_a_name_is_occupied(filesystem: Filesystem, apply: Apply) -> None:
    old = written(filesystem, b"f", b"old")
    create(filesystem, b"g")
    assert reason_of(lambda: apply.move(at(b"f"), at(b"g"), old)) is Reason.OCCUPIED


def test_removing_without_trash_removes(filesystem: Filesystem, apply: Apply) -> None:
    old = written(filesystem, b"f", b"old")
    assert apply.remove(at(b"f"), old) == Applied(ino=old.ino or 0, version=0, content_version=0)
    assert find(filesystem, b"f") is None


def test_removing_into_the_trash_moves(filesystem: Filesystem, apply: Apply) -> None:
    old = written(filesystem, b"f", b"old")
    assert apply.remove(at(b"f"), old, trash=TRASH).displaced == old.ino
    assert content(filesystem, b"trash") == b"old"


def test_a_directory_with_names_is_not_empty(filesystem: Filesystem, apply: Apply) -> None:
    made = apply.mkdir(at(b"d"), mode=0o755, caller=USER)
    inner = apply.symlink(Place(parent=made.ino, name=b"l"), target=b"t", caller=USER)
    assert filesystem.namespace.getattr(inner.ino).kind is Kind.SYMLINK
    assert reason_of(lambda: apply.remove(at(b"d"), Expectation(ino=made.ino))) is Reason.NOT_EMPTY
    apply.remove(Place(parent=made.ino, name=b"l"), Expectation(ino=inner.ino))
    apply.remove(at(b"d"), Expectation(ino=made.ino))
    assert find(filesystem, b"d") is None


def test_meta_are_set_without_a_new_content_version(filesystem: Filesystem, apply: Apply) -> None:
    old = written(filesystem, b"f", b"old")
    assert old.ino is not None
    done = apply.set_meta(old, mode=0o600, mtime_ns=99)
    found = filesystem.namespace.getattr(old.ino)
    assert (found.mode, found.mtime_ns) == (0o600, 99)
    assert done.content_version == old.content_version


def test_attributes_are_set_as_a_whole_but_for_those_that_do_not_travel(filesystem: Filesystem, apply: Apply) -> None:
    old = written(filesystem, b"f", b"old")
    assert old.ino is not None
    names = filesystem.namespace
    for name, size in ((b"user.gone", 1), (b"user.same", 2), (b"user.large", 200), (b"security.s", 1)):
        names.setxattr(old.ino, name, bytes(size))
    done = apply.set_meta(old, xattrs=((b"large", b"small"), (b"new", b"n"), (b"same", bytes(2))), xattr_bytes=100)
    found = {name: names.getxattr(old.ino, name) for name in names.listxattr(old.ino)}
    assert found == {b"user.same": bytes(2), b"user.large": bytes(200), b"user.new": b"n", b"security.s": b"\0"}
    assert done.content_version == old.content_version


def test_an_attribute_that_somebody_sets_between_the_look_and_the_change_stays(
    filesystem: Filesystem, apply: Apply
) -> None:
    old = written(filesystem, b"f", b"old")
    assert old.ino is not None
    names = filesystem.namespace
    for name, value in ((b"user.gone", b"1"), (b"user.theirs", b"2")):
        names.setxattr(old.ino, name, value)  # neither was there when this was decided
    apply.set_meta(old, xattrs=((b"ours", b"3"),), xattr_bytes=100, seen=((b"gone", b"1"),))
    assert {name: names.getxattr(old.ino, name) for name in names.listxattr(old.ino)} == {
        b"user.theirs": b"2",
        b"user.ours": b"3",
    }


def test_what_replaces_a_file_has_its_attributes_of_users_and_its_acl(filesystem: Filesystem, apply: Apply) -> None:
    old = written(filesystem, b"f", b"old")
    assert old.ino is not None
    names = filesystem.namespace
    names.setxattr(old.ino, b"user.a", b"1")
    names.setxattr(old.ino, b"security.capability", b"of the old content")
    handle = prepared(apply, 0)
    done = apply.install_file(handle, at(b"f"), old, trash=at(b"trash"))
    assert names.listxattr(done.ino) == [b"user.a"]
    assert names.getxattr(done.ino, b"user.a") == b"1"


def test_an_abandoned_file_leaves_nothing(filesystem: Filesystem, apply: Apply) -> None:
    handle = prepared(apply, 4096)
    apply.set_blocks(handle, 0, stored(filesystem, b"x"))
    apply.abandon_file(handle)
    apply.abandon_file(handle)
    assert list(filesystem.tree.orphans()) == []
    with pytest.raises(UsageError):
        apply.set_blocks(handle, 0, ZERO_BLOCK)


def test_a_prepared_file_does_not_survive_its_mount(tmp_path: Path) -> None:
    path = make(tmp_path / "volume")
    first = Filesystem.open(path, config())
    handle = prepared(first.apply, 4096)
    first.apply.set_blocks(handle, 0, stored(first, b"x"))
    first.close()
    second = Filesystem.open(path, config())
    assert second.tree.inode(handle) is None
    assert findings(second) == []
    second.close()


def test_a_displaced_file_without_a_trash_place_is_a_usage_error(filesystem: Filesystem, apply: Apply) -> None:
    old = written(filesystem, b"f", b"old")
    handle = prepared(apply, 0)
    with pytest.raises(UsageError):
        apply.install_file(handle, at(b"f"), old)
    apply.abandon_file(handle)


def test_blocks_named_by_an_id_type_are_accepted(filesystem: Filesystem, apply: Apply) -> None:
    handle = prepared(apply, 4096)
    ids = [BlockId(stored(filesystem, b"q"))]
    assert apply.set_blocks(handle, 0, b"".join(ids)) == []
    apply.abandon_file(handle)
