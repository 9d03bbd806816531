"""Volumes on hosts with reflinks, for the tests of hot files."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

from blockfs.blocks.ids import BlockId
from blockfs.engine import volume
from blockfs.engine.config import EngineConfig, no_checkpoint
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.attributes import Caller
from blockfs.tree.schema import ROOT_INO, Table, decode_format

BLOCK = 65536
PAGE = 4096
USER = Caller(uid=0, gid=0)


def config(checkpoint: Callable[[str], None] = no_checkpoint, *, native: bool = True) -> EngineConfig:
    return EngineConfig(
        background=False, checkpoint=checkpoint, reserve_bytes=0, ballast_bytes=0, quiet_s=0.0, native=native
    )


def make(path: Path, *, block_size: int = BLOCK) -> bytes:
    """A new volume; returns its path."""
    return volume.init(os.fsencode(path), block_size=block_size).path


def create(filesystem: Filesystem, name: bytes) -> int:
    """An empty file in the root; returns its inode."""
    return filesystem.namespace.create(ROOT_INO, name, mode=0o644, caller=USER).ino


def find(filesystem: Filesystem, name: bytes) -> int:
    """The inode of a name in the root."""
    found = filesystem.tree.lookup(ROOT_INO, name)
    assert found is not None
    return found


def hot(filesystem: Filesystem, ino: int) -> int:
    """Open a file as the kernel does; the descriptor to write to."""
    fd = filesystem.hot.open(ino, may_block=True)
    assert fd is not None
    return fd


def sealed(filesystem: Filesystem, ino: int) -> bytes:
    """What the leaves tell of a file, and its row's size. Each block's bytes are those of its id."""
    filesystem.commit()
    with filesystem.tree.committed() as view:
        row = view.inode(ino)
        assert row is not None
        size, found = row.size_bytes, bytearray()
        while len(found) < size:
            block_id = view.block_ids(ino, len(found) // filesystem.blocks.block_size, 1)
            found += filesystem.blocks.get(BlockId(block_id), verify=True).ljust(filesystem.blocks.block_size, b"\0")
        return bytes(found[:size])


def content(filesystem: Filesystem, name: bytes) -> bytes:
    """All of a file, by whatever way it is read now."""
    ino = find(filesystem, name)
    return filesystem.files.read(ino, 0, filesystem.namespace.getattr(ino).size_bytes, may_block=True)


def format_of(filesystem: Filesystem) -> int:
    """The format number on the disk."""
    filesystem.commit()
    with filesystem.tree.committed() as view:
        return decode_format(view.rows.get(Table.META, b"format"))


def killed(filesystem: Filesystem) -> bytes:
    """Let go of a volume as a killed process does; returns its path."""
    path = filesystem.volume.path
    filesystem.abandon()
    gc.collect()
    return path


def segment_bytes(filesystem: Filesystem) -> int:
    """The length of all segments."""
    folder = filesystem.blocks.layout.segments
    return sum(os.stat(os.path.join(folder, name)).st_size for name in os.listdir(folder) if name.endswith(".seg"))
