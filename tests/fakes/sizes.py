"""Stands in for `Files` where only names matter: what the namespace asks of it, recorded."""

from __future__ import annotations

from msgspec.structs import replace

from blockfs.errors import WouldBlock
from blockfs.tree.schema import Inode


class RecordedSizes:
    """A `FileSizes` whose unpublished sizes and mtimes a test sets."""

    def __init__(self) -> None:
        self.unpublished: dict[int, tuple[int, int]] = {}  # ino to size in bytes, mtime
        self.staged: dict[int, int] = {}
        self.discarded: list[int] = []
        self.published: list[int] = []
        self.written: set[int] = set()  # open for writing

    def live(self, inode: Inode) -> Inode:
        if inode.ino not in self.unpublished:
            return inode
        size_bytes, mtime_ns = self.unpublished[inode.ino]
        return replace(inode, size_bytes=size_bytes, mtime_ns=mtime_ns, ctime_ns=max(inode.ctime_ns, mtime_ns))

    def staged_bytes(self, ino: int) -> int:
        return self.staged.get(ino, 0)

    def host_bytes(self, ino: int) -> int | None:
        return None

    def forget_times(self, ino: int, atime_ns: int | None, mtime_ns: int | None) -> None:
        if mtime_ns is not None:
            self.unpublished.pop(ino, None)

    def discard(self, ino: int) -> None:
        self.discarded.append(ino)

    def writers(self, ino: int) -> int:
        return int(ino in self.written)

    def publish_before_replace(self, ino: int, *, may_block: bool) -> None:
        if ino not in self.unpublished:
            return
        if not may_block:
            raise WouldBlock(f"inode {ino} has unpublished data")
        self.published.append(ino)
        del self.unpublished[ino]
