"""Folders nested deeper than a recursive program's calls go, at a path that is longer than the kernel takes one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

LEVELS: Final = 520
NAME: Final = "deeper-yet"  # so often it is longer than PATH_MAX


def make(root: Path) -> None:
    """Nest folders in another one."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(LEVELS):
        os.mkdir(NAME, dir_fd=folder)
        folder = _below(folder)
    os.close(folder)


def open_last(root: Path) -> int:
    """Descriptor of the last of the folders that were nested in another one."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(LEVELS):
        folder = _below(folder)
    return folder


def _below(folder: int) -> int:
    try:
        return os.open(NAME, os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
    finally:
        os.close(folder)
