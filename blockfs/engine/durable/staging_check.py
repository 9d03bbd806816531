"""fsck of staging: every generation that the committed tree names must have its file."""

from __future__ import annotations

import os

from blockfs.engine.content.hostfile import data_extents
from blockfs.engine.content.staging import Key, decode_name, encode_name
from blockfs.tree.fsck.draft import StagedFile
from blockfs.tree.schema import Generation
from blockfs.tree.store import Tree


def missing_staging(tree: Tree, staging_path: bytes) -> list[Generation]:
    """Generations whose staged data are gone. May run beside a mount.

    A file that is missing may have been sealed since the view was taken: it only counts if the newest committed tree
    still names it, because files go after the commit that drops their rows.
    """
    absent = _absent(tree, staging_path)
    return [generation for generation in _absent(tree, staging_path) if generation in absent] if absent else []


def _absent(tree: Tree, staging_path: bytes) -> list[Generation]:
    # The view first, the directory after: a row that is younger than the view does not count, and an older one's file
    # is there unless its row was dropped since.
    with tree.committed() as view:
        named = list(view.all_generations())
    present = set(_entries(staging_path))
    return [one for one in named if encode_name((one.ino, one.range_index, one.generation)) not in present]


def staged_files(staging_path: bytes) -> dict[Key, StagedFile]:
    """The staging files of a volume that is not mounted, with their sizes; of those without data 0.

    Raises:
        OSError: The staging directory can't be read.
    """
    found = {}
    for entry in _entries(staging_path):
        key = decode_name(entry)
        if key is not None:
            fd = os.open(os.path.join(staging_path, entry), os.O_RDONLY | os.O_CLOEXEC)
            try:
                status = os.fstat(fd)
                size_bytes = status.st_size if next(data_extents(fd), None) is not None else 0
                found[key] = StagedFile(size_bytes=size_bytes, identity=status.st_ino)
            finally:
                os.close(fd)
    return found


def _entries(staging_path: bytes) -> list[bytes]:
    """Names in the staging directory; none if the directory itself is gone: the next mount makes it again."""
    try:
        return os.listdir(staging_path)
    except FileNotFoundError:
        return []
