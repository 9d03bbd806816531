"""Finding hot files again at mount.

A hot file that the tree names is its file's content, with its size and times: nothing is sealed for it, and nothing is
lost, however the last mount ended. What the tree does not name was never promised.

Programs of a mount that died go on writing to hot files that they have open or mapped, also after a lazy unmount. So
one that somebody may write to is left to them: the file goes on with a copy, and another copy tells later what they
wrote. When they have ended, pages that differ make the left one a file of its own beside the original.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from blockfs.blocks.extents import block_count
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.content.hostfile import HostIoError, translated
from blockfs.engine.context import Stores
from blockfs.engine.hot.folder import HotFolder, Key, names
from blockfs.engine.hot.hotfile import HotFile, with_status
from blockfs.errors import CorruptionError
from blockfs.runtime.fiemap import OddMapError
from blockfs.runtime.logs import Log
from blockfs.runtime.output import shown
from blockfs.runtime.reflink import apart, clone_file
from blockfs.tree.schema import NAME_MAX, ROOT_INO, HotRow, HotState, Inode, Kind

log = Log()

_SUFFIX: Final = b".written-after-crash"


def recover_hot(stores: Stores, table: FileTable, folder: HotFolder, *, was_clean: bool) -> list[Key]:
    """Bring back hot files. Changes of the tree are the caller's to commit.

    Returns:
        Files that may be removed once that is durable.

    Raises:
        CorruptionError: A hot file that the tree names is gone.
        NoSpaceError: The host is full.
        HostIoError: The host failed.
    """
    rows = stores.tree.all_hot()
    there = names(folder.path)
    for _, number in there:
        folder.used(number)
    for row in rows:
        folder.used(row.number)
    for row in rows:
        inode = stores.tree.inode(row.ino)
        if inode is None or inode.kind is not Kind.FILE or inode.is_frozen:
            raise CorruptionError(f"tree: a hot file of inode {row.ino}, which is no file; run `blocksync fsck`")
        if row.state is HotState.LEFT:
            continue
        key = row.ino, row.number
        is_left = not stores.config.read_only and folder.is_being_written(key)  # before we open it ourselves
        hot = HotFile(key, folder.open(key))
        hot.is_named = hot.is_durable = True
        if is_left:
            hot = _leave(stores, folder, hot)
        status, state = hot.status(), table.get(row.ino)
        table.heat(state, hot)
        state.size_bytes = status.st_size
        is_known = (inode.size_bytes, inode.mtime_ns) == (status.st_size, status.st_mtime_ns)
        if was_clean and is_known and not is_left:
            hot.is_behind = row.state is HotState.BEHIND
            hot.see(status, is_old=True)
            continue
        # It may have been written to since it was flushed, or sealed: a new version, and its leaves are not believed.
        hot.is_behind = True
        if not stores.config.read_only:
            if status.st_size < inode.size_bytes:  # no leaf lies beyond the end
                stores.tree.truncate_leaves(row.ino, block_count(status.st_size, stores.block_size))
            stores.tree.put_inode(with_status(inode, status), content_changed=True)
            stores.tree.put_hot(hot.row())
    named = {key for row in stores.tree.all_hot() for key in ((row.ino, row.number), (row.ino, row.base))}
    return [key for key in there if key not in named]


def _leave(stores: Stores, folder: HotFolder, old: HotFile) -> HotFile:
    """Go on with a copy of a hot file that others may write to; the copies are durable before any row names them."""
    base, key = folder.new_key(old.ino), folder.new_key(old.ino)
    with translated("hot"):
        kept, hot = folder.create(base), HotFile(key, folder.create(key))
        if not clone_file(old.file.fd, kept.fd) or not clone_file(kept.fd, hot.file.fd):
            raise HostIoError(f"hot file of inode {old.ino}: the host can't share it")
        times = old.status()
        os.utime(hot.file.fd, ns=(times.st_atime_ns, times.st_mtime_ns))
    for file in (kept, hot.file):
        folder.sync(file)
    folder.sync_names()
    log.warning("hot.still_written", ino=old.ino)
    stores.tree.put_hot(HotRow(ino=old.ino, number=old.number, state=HotState.LEFT, base=base[1]))
    hot.is_named = hot.is_durable = True
    return hot


class LeftFiles:
    """Hot files that were left to programs of a mount that died. One thread at a time."""

    def __init__(self, stores: Stores, table: FileTable, folder: HotFolder, commit: Callable[[], None]) -> None:
        self._stores = stores
        self._table = table
        self._folder = folder
        self._commit = commit

    def look(self) -> None:
        """See which of them nobody writes to any more, and what became of those. Commits. Waits for disks.

        Raises:
            BlockfsError: The host failed; the others are done by the next look.
        """
        with self._stores.lock:
            left = [row for row in self._stores.tree.all_hot() if row.state is HotState.LEFT]
        for row in left:
            if not self._folder.is_being_written((row.ino, row.number)):
                self._end(row)

    def _end(self, row: HotRow) -> None:
        old, base = (row.ino, row.number), (row.ino, row.base)
        differs = self._differs(old, base)
        key = old
        if differs:
            self._folder.sync(self._folder.open(old))
            with self._stores.lock:
                key = self._folder.new_key(self._stores.tree.new_ino())
            self._folder.link(old, key)
            self._folder.sync_names()
        with self._stores.lock:
            tree = self._stores.tree
            inode = tree.inode(row.ino)
            if inode is not None:
                if differs:
                    self._keep(inode, key)
                tree.drop_hot(*old)
            for key in (old, base):
                tree.on_durable(partial(self._folder.doom, key))
        self._commit()
        self._folder.sweep()

    def _differs(self, old: Key, base: Key) -> bool:
        """Whether somebody wrote to a left file since its copy was made. In all doubt: yes."""
        ours, theirs = self._folder.open(old), self._folder.open(base)
        with translated("hot"):
            size = os.fstat(ours.fd).st_size
            if size != os.fstat(theirs.fd).st_size:
                return True
            try:
                return any(not _is_equal(ours.fd, theirs.fd, run) for run in apart(theirs.fd, ours.fd, size))
            except OddMapError:
                return not _is_equal(ours.fd, theirs.fd, (0, size))

    def _keep(self, original: Inode, key: Key) -> None:
        """Make a left file a file beside the original. Under the lock; its name in the folder is durable."""
        tree, now_ns = self._stores.tree, self._stores.clock.now_ns()
        hot = HotFile(key, self._folder.open(key))
        hot.is_named = hot.is_behind = True
        parent, name = next(iter(tree.places(original.ino)), (ROOT_INO, b"%d" % original.ino))
        number, free = 0, b""
        while not free or tree.lookup(parent, free) is not None:
            ending = _SUFFIX + (b".%d" % number if number else b"")
            number, free = number + 1, name[: NAME_MAX - len(ending)] + ending
        row = replace(original, ino=key[0], nlink=1, btime_ns=now_ns)
        tree.put_inode(with_status(row, hot.status()), content_changed=True)
        tree.link(parent, free, key[0])
        directory = tree.inode(parent)
        assert directory is not None
        tree.put_inode(replace(directory, mtime_ns=now_ns, ctime_ns=now_ns))
        tree.put_hot(hot.row())
        self._table.heat(self._table.get(key[0]), hot)
        log.warning("hot.written_after_crash", ino=original.ino, kept_as=shown(free))


def _is_equal(one: int, other: int, run: tuple[int, int]) -> bool:
    at, end = run
    while at < end:
        length = min(end - at, 1 << 20)
        if os.pread(one, length, at) != os.pread(other, length, at):
            return False
        at += length
    return True
