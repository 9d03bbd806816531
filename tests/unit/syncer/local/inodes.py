"""Short notation for what a volume's journal says of its inodes, and for the base rows they had."""

from __future__ import annotations

from blockfs.control.protocol import NodeRow
from syncer.core.model import ROOT, BaseRow, Kind, LocalTag, Nid, Node, RelPath

ROOTS = {1: RelPath(b""), 90: RelPath(b".blocksync"), 91: RelPath(b".blocksync/park")}


def row(ino: int, *places: tuple[int, bytes], kind: str = "file") -> NodeRow:
    return NodeRow(
        ino=ino, places=list(places), kind=kind, mode=0o644, uid=0, gid=0, size_bytes=5, mtime_ns=7, ctime_ns=8,
        btime_ns=9, version=3, content_version=2, nlink=len(places),
    )  # fmt: skip


def base_row(nid: int, ino: int, name: bytes, parent: int = 0, kind: Kind = Kind.FILE) -> BaseRow:
    tag = LocalTag(device=0, ino=ino, btime_ns=0, size_bytes=5, mtime_ns=7, ctime_ns=0, version=2)
    node = Node(parent=Nid(parent) if parent else ROOT, name=name, kind=kind)
    return BaseRow(nid=Nid(nid), node=node, local=tag, remote=None)
