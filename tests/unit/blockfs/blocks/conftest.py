from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from blockfs.blocks.codec import Compression
from blockfs.blocks.directory import BlockDirectory

BLOCK_SIZE = 4096


@pytest.fixture
def blocks(tmp_path: Path) -> Iterator[BlockDirectory]:
    """An empty block directory of 4 KiB blocks, stored raw."""
    with BlockDirectory.create(str(tmp_path / "blocks"), block_size=BLOCK_SIZE) as directory:
        yield directory


@pytest.fixture
def packed(tmp_path: Path) -> Iterator[BlockDirectory]:
    """An empty block directory of 64 KiB blocks, compressed."""
    path = str(tmp_path / "packed")
    with BlockDirectory.create(path, block_size=65536, compression=Compression.ZSTD) as directory:
        yield directory
