"""fsck finds each kind of planted damage, and nothing in a sound tree."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from blockfs.blocks.hashing import leaf_key
from blockfs.blocks.ids import PADDING_ID, ZERO_BLOCK, BlockId
from blockfs.tree.fsck.findings import Finding, Problem
from blockfs.tree.schema import (
    META_JOURNAL_START,
    META_RESERVED,
    ROOT_INO,
    Generation,
    Inode,
    Kind,
    Reserved,
    Table,
    encode_inode,
    encode_leaf_ref,
    encode_reserved,
    ino_key,
    leaf_map_key,
    parent_key,
    u64,
)
from blockfs.tree.store import Tree
from tests.kit.committed import check

BLOCK_SIZE = 4096
MakeInode = Callable[..., Inode]
IDS = hashlib.sha256(b"1").digest() + ZERO_BLOCK + hashlib.sha256(b"2").digest()
KEY = leaf_key(IDS)

FILE, DIRECTORY, LINK, ORPHAN = 2, 3, 4, 5


@pytest.fixture
def sound(tree: Tree, make: MakeInode) -> Tree:
    """A tree with one of everything."""
    file = make(size_bytes=300 * BLOCK_SIZE, nlink=2)
    directory = make(Kind.DIRECTORY, nlink=2)
    link = make(Kind.SYMLINK, size_bytes=5)
    orphan = make(nlink=0)
    assert [file.ino, directory.ino, link.ino, orphan.ino] == [FILE, DIRECTORY, LINK, ORPHAN]
    root = tree.inode(ROOT_INO)
    assert root is not None
    tree.put_inode(replace(root, nlink=3))
    for name, ino in ((b"file", FILE), (b"directory", DIRECTORY), (b"link", LINK)):
        tree.link(ROOT_INO, name, ino)
    tree.link(DIRECTORY, b"also", FILE)
    tree.set_leaf(FILE, 0, IDS)
    tree.set_leaf(FILE, 1, IDS)
    tree.set_symlink_target(LINK, b"there")
    tree.set_xattr(FILE, b"user.x", b"")
    tree.put_generation(Generation(ino=FILE, range_index=0, generation=1))
    tree.add_orphan(ORPHAN)
    tree.commit()
    return tree


def findings(tree: Tree, missing: list[bytes] | None = None) -> list[Finding]:
    tree.commit()
    lacks = {BlockId(block_id) for block_id in missing or ()}
    with tree.committed() as view:
        return check(view, BLOCK_SIZE, None if missing is None else lambda ids: [i for i in ids if i in lacks])


def problems(tree: Tree) -> set[tuple[Problem, int | None]]:
    return {(finding.problem, finding.ino) for finding in findings(tree)}


def overwrite(tree: Tree, ino: int, **values: int | Kind) -> None:
    """Change an inode row behind the journal's back."""
    inode = tree.inode(ino)
    assert inode is not None
    tree._store.put(Table.INODES, u64(ino), encode_inode(replace(inode, **values)))  # type: ignore[arg-type]


def test_a_sound_tree_has_no_findings(sound: Tree) -> None:
    assert findings(sound) == []
    assert findings(sound, missing=[]) == []


def test_a_name_without_an_inode_is_found(sound: Tree) -> None:
    sound._store.put(Table.DENTRIES, ino_key(ROOT_INO, b"ghost"), u64(99))
    assert (Problem.DANGLING_NAME, 99) in problems(sound)


def test_a_name_in_a_file_is_found(sound: Tree) -> None:
    sound.link(FILE, b"inside", LINK)
    assert (Problem.DANGLING_NAME, LINK) in problems(sound)


def test_a_missing_reverse_row_is_found(sound: Tree) -> None:
    sound._store.delete(Table.PARENTS, parent_key(FILE, DIRECTORY, b"also"))
    assert problems(sound) == {(Problem.REVERSE, FILE)}


def test_a_reverse_row_without_a_name_is_found(sound: Tree) -> None:
    sound._store.put(Table.PARENTS, parent_key(FILE, ROOT_INO, b"never"), b"")
    assert problems(sound) == {(Problem.REVERSE, FILE)}


@pytest.mark.parametrize("ino", [ROOT_INO, FILE, DIRECTORY, LINK])
def test_a_wrong_link_count_is_found(sound: Tree, ino: int) -> None:
    overwrite(sound, ino, nlink=7)
    assert (Problem.LINK_COUNT, ino) in problems(sound)


def test_a_directory_with_two_names_is_found(sound: Tree) -> None:
    sound.link(ROOT_INO, b"twin", DIRECTORY)
    overwrite(sound, ROOT_INO, nlink=4)
    assert problems(sound) == {(Problem.LINK_COUNT, DIRECTORY)}


def test_a_name_of_the_root_is_found(sound: Tree) -> None:
    sound.link(DIRECTORY, b"root", ROOT_INO)
    assert (Problem.LINK_COUNT, ROOT_INO) in problems(sound)


def test_an_inode_without_a_name_is_found(sound: Tree) -> None:
    sound.remove_orphan(ORPHAN)
    assert problems(sound) == {(Problem.UNREACHABLE, ORPHAN)}


def test_a_lost_root_is_found(sound: Tree) -> None:
    sound._store.delete(Table.INODES, u64(ROOT_INO))
    assert (Problem.UNREACHABLE, ROOT_INO) in problems(sound)


def test_directories_in_a_cycle_are_found(sound: Tree, make: MakeInode) -> None:
    first, second = make(Kind.DIRECTORY, nlink=3), make(Kind.DIRECTORY, nlink=3)
    sound.link(first.ino, b"down", second.ino)
    sound.link(second.ino, b"up", first.ino)
    assert problems(sound) == {(Problem.UNREACHABLE, first.ino)}


def test_an_orphan_with_names_and_an_orphan_of_nothing_are_found(sound: Tree) -> None:
    sound.add_orphan(FILE)
    sound.add_orphan(77)
    assert problems(sound) == {(Problem.ORPHAN, FILE), (Problem.ORPHAN, 77)}


def test_a_missing_leaf_is_found(sound: Tree) -> None:
    sound._store.delete(Table.LEAVES, KEY)
    assert (Problem.LEAF_MISSING, FILE) in problems(sound)


@pytest.mark.parametrize(
    "ids", [b"", b"x", IDS[:32], IDS + ZERO_BLOCK, IDS * 100], ids=["empty", "ragged", "other", "hole", "long"]
)
def test_a_leaf_with_wrong_content_is_found(sound: Tree, ids: bytes) -> None:
    sound._store.put(Table.LEAVES, KEY, ids)
    assert (Problem.LEAF_CONTENT, None) in problems(sound)


@pytest.mark.parametrize("ids", [IDS + ZERO_BLOCK, IDS + PADDING_ID + IDS[:32]])
def test_a_leaf_that_is_not_canonical_is_found_even_if_its_key_fits(sound: Tree, ids: bytes) -> None:
    sound._store.put(Table.LEAVES, leaf_key(ids), ids)
    assert (Problem.LEAF_CONTENT, None) in problems(sound)


@pytest.mark.parametrize("row", [encode_leaf_ref(3, 2), encode_leaf_ref(2, 1), encode_leaf_ref(0, 2)])
def test_a_wrong_leaf_count_is_found(sound: Tree, row: bytes) -> None:
    sound._store.put(Table.LEAF_REFS, KEY, row)
    assert (Problem.LEAF_COUNT, None) in problems(sound)


def test_a_leaf_that_nobody_uses_is_found(sound: Tree) -> None:
    sound._store.put(Table.LEAVES, leaf_key(IDS[:32]), IDS[:32])
    assert problems(sound) == {(Problem.LEAF_COUNT, None)}


def test_a_wrong_merkle_root_is_found(sound: Tree) -> None:
    sound._store.put(Table.LEAF_ROOTS, KEY, bytes(32))
    assert problems(sound) == {(Problem.LEAF_ROOT, None)}


def test_a_merkle_root_of_no_leaf_is_found(sound: Tree) -> None:
    sound._store.put(Table.LEAF_ROOTS, leaf_key(IDS[:32]), bytes(32))
    assert problems(sound) == {(Problem.LEAF_ROOT, None)}


def test_a_leaf_beyond_the_size_is_found(sound: Tree) -> None:
    overwrite(sound, FILE, size_bytes=258 * BLOCK_SIZE)
    assert problems(sound) == {(Problem.BEYOND_SIZE, FILE)}
    overwrite(sound, FILE, size_bytes=258 * BLOCK_SIZE + 1)
    assert problems(sound) == set()


def test_leaves_of_what_is_no_file_are_found(sound: Tree) -> None:
    sound.set_leaf(DIRECTORY, 0, IDS)
    assert (Problem.BEYOND_SIZE, DIRECTORY) in problems(sound)


def test_a_leaf_map_row_of_no_inode_is_found(sound: Tree) -> None:
    sound._store.put(Table.LEAF_MAP, leaf_map_key(88, 0), KEY)
    assert (Problem.LOST_INODE, 88) in problems(sound)


@pytest.mark.parametrize("blocks", [1, 5])
def test_a_wrong_allocation_is_found(sound: Tree, blocks: int) -> None:
    sound._store.put(Table.ALLOCATIONS, u64(FILE), u64(blocks))
    assert problems(sound) == {(Problem.ALLOCATION, FILE)}


def test_a_missing_block_is_found_with_the_file_it_concerns(sound: Tree) -> None:
    found = findings(sound, missing=[IDS[64:]])
    assert {(finding.problem, finding.ino) for finding in found} == {(Problem.MISSING_BLOCK, FILE)}
    assert IDS[64:].hex() in found[0].detail


@pytest.mark.parametrize("table", [Table.SYMLINKS, Table.XATTRS])
def test_rows_of_no_inode_are_found(sound: Tree, table: Table) -> None:
    sound._store.put(table, ino_key(66, b"" if table is Table.SYMLINKS else b"user.x"), b"x")
    assert problems(sound) == {(Problem.STRAY_ROW, 66)}


def test_a_staging_generation_of_no_file_is_found(sound: Tree) -> None:
    sound.put_generation(Generation(ino=DIRECTORY, range_index=0, generation=1))
    assert problems(sound) == {(Problem.STRAY_ROW, DIRECTORY)}


def test_a_symlink_without_its_target_is_found(sound: Tree) -> None:
    sound._store.delete(Table.SYMLINKS, u64(LINK))
    assert problems(sound) == {(Problem.SYMLINK, LINK)}


def test_a_missing_and_a_stale_journal_row_are_found(sound: Tree) -> None:
    inode = sound.inode(FILE)
    assert inode is not None
    sound._store.delete(Table.JOURNAL, u64(inode.version))
    assert problems(sound) == {(Problem.JOURNAL, FILE)}
    sound._store.put(Table.JOURNAL, u64(1000), u64(FILE))
    assert problems(sound) == {(Problem.JOURNAL, FILE)}


def test_an_old_version_without_a_row_is_no_finding_once_the_journal_is_trimmed(sound: Tree) -> None:
    inode = sound.inode(FILE)
    assert inode is not None
    sound._store.delete(Table.JOURNAL, u64(inode.version))
    sound._store.put(Table.META, META_JOURNAL_START, u64(inode.version))
    assert problems(sound) == set()


def test_numbers_past_the_reserved_ones_are_found(sound: Tree) -> None:
    sound._store.put(Table.META, META_RESERVED, encode_reserved(Reserved(sequence=1, ino=FILE)))
    assert problems(sound) == {(Problem.JOURNAL, None)}


def test_a_content_version_later_than_the_version_is_found(sound: Tree) -> None:
    overwrite(sound, FILE, content_version=10**9)
    assert problems(sound) == {(Problem.JOURNAL, FILE)}
