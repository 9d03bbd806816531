"""The map of an image of 1 TiB: what the mount takes to make it, and the page to draw it.

The tree is real (65,536 leaves of 256 distinct ids each, in LMDB), the blocks are not there: a map reads none. A second
image shares half of it block by block, a third is a clone.
"""

from __future__ import annotations

import os
import random
import resource
import tempfile
import time

from benchmarks.harness import Result, seconds
from benchmarks.plots import limits
from blockfs.control import protocol
from blockfs.control.maps import BlockMapReply
from blockfs.service.maps import views
from blockfs.tree.schema import ROOT_INO, Inode, Kind
from blockfs.tree.store import Tree
from syncer.ui.ports import MapFacts
from syncer.ui.render import render
from syncer.ui.views.volumes import CELLS, MountView, view_map

GIB = int(os.environ.get("BENCH_MAP_GIB", "1024"))
BLOCK_SIZE = 64 << 10
LEAF = 256
REPETITIONS = 5
_AT_ONCE = 1024  # leaves of one commit
NOTHING = MountView(uuid="1", mountpoint="/srv/images", volume="/srv/volume", doing="", trouble="")


ALLOWED_S = 1.0


def run() -> list[Result]:
    """The image alone, then beside one that shares half of its blocks and a clone; with their plot."""
    found = _run()
    draw(found)
    return found


def draw(found: list[Result]) -> None:
    """Their plot."""
    limits("maps", f"The map of an image of {GIB:,} GiB", found, lambda _row: ALLOWED_S)


def _run() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="blocksync-map-") as home:
        tree = Tree.create(os.fsencode(home) + b"/tree", now_ns=0, uid=0, gid=0)
        tree.begin_mount()
        try:
            image = make_image(tree)
            found = _measure(tree, image, "alone")
            make_others(tree, image)
            return found + _measure(tree, image, "beside one that shares half, and a clone")
        finally:
            tree.close()


def _measure(tree: Tree, image: Inode, what: str) -> list[Result]:
    made: list[float] = []
    drawn: list[float] = []
    listed: list[float] = []
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    frame = page = b""
    for _ in range(REPETITIONS):
        with tree.committed() as view:
            began_s = time.perf_counter()
            subject = views.Subject(inode=image, path=b"image", size_bytes=image.size_bytes)
            reply = views.map_of(view, subject, BLOCK_SIZE, CELLS)
            frame = protocol.encode(reply)
            made.append(time.perf_counter() - began_s)
            began_s = time.perf_counter()
            page = _draw(reply)
            drawn.append(time.perf_counter() - began_s)
            listed.append(seconds(lambda: views.sharers(view, views.sharing_of(view, 30))))
    assert sum(cell.own + cell.shared for cell in reply.cells) == reply.blocks
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    notes: dict[str, float] = {
        "blocks": reply.blocks,
        "frame_bytes": len(frame),
        "page_bytes": len(page),
        "peak_kib": peak_kib,
    }
    about = f"{GIB:,} GiB, {what}"
    return [
        Result(work=f"made by the mount: {about}", subject="map", unit="s", values=made, notes=notes),
        Result(work=f"drawn by the page: {about}", subject="map", unit="s", values=drawn),
        Result(work=f"which files share most: {about}", subject="map", unit="s", values=listed),
    ]


def _draw(reply: BlockMapReply) -> bytes:
    facts = MapFacts(
        size_bytes=reply.size_bytes,
        block_size=reply.block_size,
        blocks=reply.blocks,
        cells=tuple((each.holes, each.staged, each.own, each.shared, each.other) for each in reply.cells),
        others=tuple((each.path, each.blocks) for each in reply.others),
        is_whole=reply.is_whole,
        is_behind=reply.is_behind,
    )
    common = {"here": "volumes", "device": "here", "proof": "", "notices": []}
    text = render("map.html", mount=NOTHING, shown="image", path=b"image", map=view_map(facts), at_s=0.0, **common)
    return text.encode()


def make_image(tree: Tree, gib: int = GIB) -> Inode:
    """An image of distinct blocks, `image`."""
    return _make(tree, b"image", gib, seed=1, like=1.0)


def make_others(tree: Tree, image: Inode, gib: int = GIB) -> None:
    """Beside it one that shares half of its blocks, and a clone."""
    _make(tree, b"half", gib, seed=2, like=0.5)
    clone = _new(tree, b"clone", gib)
    tree.clone_leaves(image.ino, clone.ino)
    tree.commit()


def _make(tree: Tree, name: bytes, gib: int, *, seed: int, like: float) -> Inode:
    """An image of distinct blocks, of which this share is that of seed 1."""
    inode = _new(tree, name, gib)
    ours, first, choose = random.Random(seed), random.Random(1), random.Random(0)
    for index in range(gib * (1 << 30) // BLOCK_SIZE // LEAF):
        ids, others = ours.randbytes(32 * LEAF), first.randbytes(32 * LEAF)
        if like < 1.0:
            cut = 32 * (LEAF if choose.random() < like else 0)
            # Not the whole leaf: one block is its own, so that blocks are compared, and not leaves.
            ids = others[: max(0, cut - 32)] + ids[max(0, cut - 32) :]
        tree.set_leaf(inode.ino, index, ids)
        if not index % _AT_ONCE:
            tree.commit()
    tree.commit()
    return inode


def _new(tree: Tree, name: bytes, gib: int) -> Inode:
    inode = Inode(
        ino=tree.new_ino(), kind=Kind.FILE, mode=0o644, uid=0, gid=0, nlink=1, size_bytes=gib << 30, atime_ns=0,
        mtime_ns=0, ctime_ns=0, btime_ns=0,
    )  # fmt: skip
    tree.put_inode(inode, content_changed=True)
    tree.link(ROOT_INO, name, inode.ino)
    return inode
