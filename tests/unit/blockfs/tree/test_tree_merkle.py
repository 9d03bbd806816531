from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockfs.blocks.hashing import LEAF_IDS, leaf_root, object_hash
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK
from blockfs.blocks.merkle import sparse_root
from blockfs.tree.merkle import hash_file
from blockfs.tree.schema import Inode
from blockfs.tree.store import Tree
from tests import effort

BLOCK = 4096
MakeInode = Callable[..., Inode]


def an_id(number: int) -> bytes:
    return hashlib.sha256(b"%d" % number).digest()


@settings(deadline=None, max_examples=effort.count("tree roots"))
@given(
    st.one_of(st.integers(257, 3000), st.sampled_from([512, 513, 768, 1024, 1025, 2048, 2049])),
    st.dictionaries(st.integers(0, 2999), st.integers(1, 9), max_size=5),
)
def test_a_sparse_root_is_the_object_hash_of_the_whole_list(count: int, present: dict[int, int]) -> None:
    ids = b"".join(an_id(present[index]) if index in present else ZERO_BLOCK for index in range(count))
    leaves = [ids[at : at + LEAF_IDS * ID_SIZE] for at in range(0, len(ids), LEAF_IDS * ID_SIZE)]
    hole = ZERO_BLOCK * LEAF_IDS
    roots = {n: leaf_root(leaf) for n, leaf in enumerate(leaves) if leaf != hole or n == len(leaves) - 1}
    assert sparse_root(roots, len(leaves)) == object_hash(ids)


@pytest.mark.parametrize("blocks", [0, 1, 2, 3, 255, 256, 257, 511, 512, 513, 1000])
@pytest.mark.parametrize("tail", [0, 1])
def test_a_file_has_the_object_hash_of_its_block_list(tree: Tree, make: MakeInode, blocks: int, tail: int) -> None:
    if not blocks:
        tail = 0
    file = make(size_bytes=blocks * BLOCK - tail)
    ids = b"".join(an_id(n) if n % 300 < 4 else ZERO_BLOCK for n in range(blocks))
    for index in range(0, blocks, LEAF_IDS):
        tree.set_leaf(file.ino, index // LEAF_IDS, ids[index * ID_SIZE : (index + LEAF_IDS) * ID_SIZE])
    hashed = hash_file(tree, file.ino, file.size_bytes, BLOCK)
    assert hashed.object_hash == object_hash(ids)
    tree.remember_leaf_roots(hashed.computed)
    again = hash_file(tree, file.ino, file.size_bytes, BLOCK)
    assert again.object_hash == hashed.object_hash
    assert not again.computed


def test_growing_a_file_changes_its_hash_but_no_leaf(tree: Tree, make: MakeInode) -> None:
    file = make()
    tree.set_leaf(file.ino, 0, an_id(1))
    hashes = {hash_file(tree, file.ino, size * BLOCK, BLOCK).object_hash for size in (1, 2, 300, 600, 5000)}
    assert len(hashes) == 5


def test_a_petabyte_of_holes_is_hashed_like_what_is_in_it(tree: Tree, make: MakeInode) -> None:
    """15 billion blocks: anything proportional to them would never return."""
    size_bytes = 10**15
    block_size = 65536
    last = (size_bytes - 1) // block_size
    file = make(size_bytes=size_bytes)
    empty = hash_file(tree, file.ino, size_bytes, block_size)
    for block in (0, 7_000_000_000, last):
        tree.set_leaf(file.ino, block // LEAF_IDS, ZERO_BLOCK * (block % LEAF_IDS) + an_id(block))
    full = hash_file(tree, file.ino, size_bytes, block_size)
    assert len(full.computed) == 2
    assert full.object_hash != empty.object_hash
    tree.truncate_leaves(file.ino, 0)
    assert hash_file(tree, file.ino, size_bytes, block_size).object_hash == empty.object_hash
