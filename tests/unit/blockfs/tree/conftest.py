from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blockfs.tree.schema import Inode, Kind
from blockfs.tree.store import Tree


@pytest.fixture
def path(tmp_path: Path) -> bytes:
    return bytes(tmp_path / "tree")


@pytest.fixture
def tree(path: bytes) -> Iterator[Tree]:
    tree = Tree.create(path, now_ns=5, uid=1, gid=2)
    tree.begin_mount()
    yield tree
    tree.close()


MakeInode = Callable[..., Inode]


@pytest.fixture
def make(tree: Tree) -> MakeInode:
    """Store a new inode; without a name unless the test links it."""

    def make_inode(kind: Kind = Kind.FILE, **values: int) -> Inode:
        fields = {"mode": 0o644, "uid": 0, "gid": 0, "nlink": 1, "atime_ns": 1, "mtime_ns": 1, "ctime_ns": 1}
        inode = Inode(ino=tree.new_ino(), kind=kind, btime_ns=1, **{**fields, **values})
        return tree.put_inode(inode, content_changed=True)

    return make_inode
