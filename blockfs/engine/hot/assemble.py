"""Assembling a hot file from the blocks of its file's leaves: by sharing, so nothing is read or written."""

from __future__ import annotations

import os

from blockfs.blocks.segments.reader import SegmentFile
from blockfs.engine.content.hostfile import translated
from blockfs.engine.context import Stores
from blockfs.engine.hot.addresses import PAGE, Run, Stored, runs
from blockfs.engine.hot.compare import leaf_blocks
from blockfs.engine.hot.folder import Descriptor
from blockfs.engine.portions import Stop
from blockfs.runtime.reflink import clone_range
from blockfs.tree.schema import Inode


def assemble(stores: Stores, row: Inode, file: Descriptor, stop: Stop) -> bool:
    """Make an empty hot file what a file's leaves and row say. Nobody changes them meanwhile. Not durable yet.

    Returns:
        False if that can't be: a block is missing, quarantined or compressed; or if `stop` said so.

    Raises:
        NoSpaceError: The host is full.
        HostIoError: The host failed.
    """
    with translated("hot"):
        os.ftruncate(file.fd, row.size_bytes)
        for found in leaf_blocks(stores, row.ino):
            files: dict[int, SegmentFile] = {}
            stored: list[Stored] = []
            # Nothing is given back before the block ends: what is found there is still there when it is shared.
            with stores.blocks.places([block_id for _, block_id in found]) as places:
                for (number, _), place in zip(found, places, strict=True):
                    if place is None or place.quarantined:
                        return False
                    stored.append(Stored(number, place.segment, place.offset, place.length))
                    files[place.segment] = place.file
                for run in runs(stored, stores.block_size):
                    if stop() or not _share(files[run.segment].fd, file.fd, run):
                        return False
            _clear_tails(file.fd, stored, stores.block_size)
        os.ftruncate(file.fd, row.size_bytes)  # whole pages were shared
        os.utime(file.fd, ns=(row.atime_ns, row.mtime_ns))
    return True


def _share(segment: int, fd: int, run: Run) -> bool:
    """Share a run, but for the page with which a segment ends if that is not whole: it is copied."""
    whole = min(run.length, (os.fstat(segment).st_size - run.offset) // PAGE * PAGE)
    if whole > 0 and not clone_range(segment, fd, run.offset, whole, run.start):
        return False
    if whole < run.length:
        os.pwrite(fd, os.pread(segment, run.length - whole, run.offset + whole), run.start + whole)
    return True


def _clear_tails(fd: int, stored: list[Stored], block_size: int) -> None:
    """What follows a block in its last page should be NUL; an append that failed may have left something."""
    for block in stored:
        rest = -block.length % PAGE
        if rest:
            at = block.number * block_size + block.length
            if os.pread(fd, rest, at).strip(b"\0"):
                os.pwrite(fd, bytes(rest), at)
