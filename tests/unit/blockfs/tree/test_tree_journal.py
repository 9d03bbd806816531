"""The journal speaks of durable commits only, and its numbers are never used twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from blockfs.blocks.environment import close_environment
from blockfs.tree import journal
from blockfs.tree.environment import open_tables, open_tree_environment
from blockfs.tree.fsck.rows import NUMBER_LIMIT
from blockfs.tree.schema import LINE_BITS, META_BIRTH, ROOT_INO, Cursor, Inode, MountRow, Reserved, Table
from blockfs.tree.store import Tree
from tests.kit.committed import journal_rows

MakeInode = Callable[..., Inode]


def cursor_of(tree: Tree) -> Cursor:
    with tree.committed() as view:
        return view.cursor


def changes(tree: Tree, since: Cursor) -> list[int] | None:
    with tree.committed() as view:
        found = view.changes(since)
        return None if found is None else found[0]


def reopen(tree: Tree, path: bytes, *, cleanly: bool, **options: int) -> Tree:
    if cleanly:
        tree.end_mount()
    tree.close()
    again = Tree.open(path, **options)  # type: ignore[arg-type]  # journal_rows only
    assert again.begin_mount() == cleanly
    return again


def test_changes_are_told_once_each_and_after_their_commit_only(tree: Tree, make: MakeInode) -> None:
    start = cursor_of(tree)
    first, second = make(), make()
    assert changes(tree, start) == []
    tree.commit()
    assert changes(tree, start) == [first.ino, second.ino]
    tree.put_inode(first)
    tree.put_inode(first)
    tree.commit()
    assert changes(tree, start) == [second.ino, first.ino]
    assert changes(tree, cursor_of(tree)) == []


def test_a_removed_inode_is_told_as_a_change(tree: Tree, make: MakeInode) -> None:
    file = make()
    tree.commit()
    before = cursor_of(tree)
    tree.remove_inode(file.ino)
    tree.commit()
    assert changes(tree, before) == [file.ino]
    assert tree.inode(file.ino) is None


def test_an_inode_made_and_removed_between_two_cursors_is_told_as_gone(tree: Tree, make: MakeInode) -> None:
    start = cursor_of(tree)
    file = make()
    tree.remove_inode(file.ino)
    tree.commit()
    assert changes(tree, start) == [file.ino]


def test_atime_is_no_change(tree: Tree, make: MakeInode) -> None:
    file = make()
    tree.commit()
    before = cursor_of(tree)
    stored = tree.put_inode(replace(file, atime_ns=99), journal=False)
    tree.commit()
    assert (stored.version, stored.atime_ns) == (file.version, 99)
    assert changes(tree, before) == []


def test_a_stale_inode_value_moves_the_row_of_the_stored_one(tree: Tree, make: MakeInode) -> None:
    """Callers hold values; if the tree trusted their version, the real row would stay behind."""
    stale = make()
    tree.put_inode(stale)
    latest = tree.put_inode(replace(stale, version=12345))
    tree.commit()
    with tree.committed() as view:
        assert [(seq, ino) for seq, ino in journal_rows(view) if ino == stale.ino] == [(latest.version, stale.ino)]


def test_a_clean_remount_keeps_cursors_and_goes_on_counting(tree: Tree, make: MakeInode, path: bytes) -> None:
    file = make()
    tree.commit()
    before = cursor_of(tree)
    tree = reopen(tree, path, cleanly=True)
    assert changes(tree, before) == []
    assert tree.new_ino() == file.ino + 1
    stored = tree.put_inode(file)
    assert stored.version == file.version + 1
    tree.commit()
    assert changes(tree, before) == [file.ino]
    tree.close()


def test_after_an_unclean_end_cursors_are_void_and_no_number_comes_again(
    tree: Tree, make: MakeInode, path: bytes
) -> None:
    """Without this a power cut reuses versions: an edit is skipped or a pushed version looks older than it is."""
    file = make()
    tree.commit()
    before = cursor_of(tree)
    lost = make()
    tree = reopen(tree, path, cleanly=False)
    assert tree.inode(lost.ino) is None
    assert changes(tree, before) is None
    assert cursor_of(tree).mount_generation == before.mount_generation + 1
    assert tree.new_ino() > lost.ino
    assert tree.put_inode(file).version > lost.version
    tree.close()


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_copy_has_generations_of_its_own_line(
    tree: Tree, make: MakeInode, path: bytes, monkeypatch: pytest.MonkeyPatch, cleanly: bool
) -> None:
    """Without this a volume put back from a backup gives out numbers again that a syncer knows with another meaning."""
    file = make()
    tree.commit()
    original = cursor_of(tree)
    tree = reopen(tree, path, cleanly=cleanly)
    assert cursor_of(tree).mount_generation >> LINE_BITS == 0
    lines = set()
    for birth_ns in (10**18, 2 * 10**18):
        monkeypatch.setattr("blockfs.runtime.linux.birth_ns", lambda _, born=birth_ns: born)
        tree = reopen(tree, path, cleanly=cleanly)
        copied = cursor_of(tree)
        assert changes(tree, original) is None
        assert copied.mount_generation < NUMBER_LIMIT
        lines.add(copied.mount_generation >> LINE_BITS)
        assert tree.put_inode(file).version > original.sequence
        tree.commit()
        tree = reopen(tree, path, cleanly=True)  # the copy goes on as any other
        assert changes(tree, copied) == [file.ino]
        tree = reopen(tree, path, cleanly=False)
        assert cursor_of(tree).mount_generation == copied.mount_generation + 1
    assert len(lines - {0}) == 2
    tree.close()


def test_a_host_without_births_and_a_tree_of_the_release_before_keep_the_line(
    tree: Tree, path: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first mount after an upgrade, or each on such a host, would have to be linked anew."""
    cursor = cursor_of(tree)
    monkeypatch.setattr("blockfs.runtime.linux.birth_ns", lambda _: None)
    tree = reopen(tree, path, cleanly=True)
    assert cursor_of(tree) == cursor
    tree.end_mount()
    tree.close()
    environment = open_tree_environment(path)
    meta = open_tables(environment, path)[Table.META]
    with environment.begin(write=True) as transaction:
        assert transaction.delete(META_BIRTH, db=meta)
    close_environment(environment)
    monkeypatch.setattr("blockfs.runtime.linux.birth_ns", lambda _: 10**18)
    for _ in range(2):
        tree = Tree.open(path)
        assert tree.begin_mount()
        assert cursor_of(tree) == cursor
        tree.end_mount()
        tree.close()


def test_each_unclean_end_is_a_new_generation(tree: Tree, path: bytes) -> None:
    for generation in (2, 3):
        tree = reopen(tree, path, cleanly=False)
        assert tree.mount_row().generation == generation
    tree = reopen(tree, path, cleanly=True)
    assert tree.mount_row().generation == 3
    tree.close()


def test_a_cursor_from_the_future_is_void(tree: Tree) -> None:
    """A volume restored from an older copy."""
    now = cursor_of(tree)
    assert changes(tree, replace(now, sequence=now.sequence + 1)) is None


def test_a_mount_does_not_end_cleanly_with_uncommitted_changes(tree: Tree, make: MakeInode) -> None:
    make()
    with pytest.raises(AssertionError, match="commit first"):
        tree.end_mount()


def test_without_a_mount_nothing_is_numbered(tree: Tree) -> None:
    tree.end_mount()
    with pytest.raises(AssertionError, match="begin_mount"):
        tree.new_ino()


def test_a_read_only_tree_is_not_mounted(tree: Tree, path: bytes) -> None:
    reader = Tree.open(path, read_only=True)
    with pytest.raises(AssertionError):
        reader.begin_mount()
    reader.close()


def test_a_long_journal_is_trimmed_and_older_cursors_are_void(tree: Tree, path: bytes, make: MakeInode) -> None:
    cursors = [cursor_of(tree)]
    files = []
    tree = reopen(tree, path, cleanly=True, journal_rows=16)
    root = tree.inode(ROOT_INO)
    assert root is not None
    for _ in range(40):
        files.append(tree.put_inode(replace(root, ino=tree.new_ino())))
        tree.commit()
        cursors.append(cursor_of(tree))
    with tree.committed() as view:
        rows = journal_rows(view)
        assert 14 <= len(rows) <= 16
        assert view.journal_start() == rows[0][0] - 1
    for at, cursor in enumerate(cursors):
        found = changes(tree, cursor)
        later = [file.ino for file in files[at:]]
        assert found == (later if len(later) <= len(rows) else None)
    # A change of an inode whose row was trimmed is told again.
    tree.put_inode(files[0])
    tree.commit()
    assert changes(tree, cursors[-1]) == [files[0].ino]
    tree.close()


def test_numbers_are_reserved_before_they_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "RESERVE_STEP", 10)
    row = MountRow(generation=1, clean=False, sequence=0, next_ino=2)
    numbers = journal.Numbers(row, Reserved(sequence=10, ino=12))
    durable = Reserved(sequence=10, ino=12)
    reservations = 0
    for step in range(100):
        reservation = numbers.reserve()
        if reservation is not None:
            durable = reservation
            reservations += 1
        if step % 3:
            assert numbers.take_sequence() <= durable.sequence
        else:
            assert numbers.take_ino() < durable.ino
    assert 5 < reservations < 20


def test_a_reservation_is_committed_with_the_numbers_that_need_it(
    tree: Tree, path: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "RESERVE_STEP", 8)
    tree = reopen(tree, path, cleanly=True)
    root = tree.inode(ROOT_INO)
    assert root is not None
    for _ in range(100):
        stored = tree.put_inode(root)
        ino = tree.new_ino()
    tree.commit()
    tree = reopen(tree, path, cleanly=False)
    assert tree.put_inode(root).version > stored.version
    assert tree.new_ino() > ino
    tree.close()
