"""Which directories are volumes. Looks at names only: every command asks, and most open nothing."""

from __future__ import annotations

import os
from typing import Final

DESCRIPTION: Final = b"volume.toml"


def is_volume(path: bytes) -> bool:
    """Whether a directory is a volume, be it one whose description is gone."""
    return os.path.isfile(os.path.join(path, DESCRIPTION)) or has_stores(path)


def has_stores(path: bytes) -> bool:
    """Whether a directory has the blocks and the tree of a volume. A server's folder has no tree."""
    return all(os.path.isfile(os.path.join(path, mark)) for mark in (b"blocks/blocks.toml", b"tree/data.mdb"))
