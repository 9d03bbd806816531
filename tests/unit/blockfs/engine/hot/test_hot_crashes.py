"""A mount with hot files dies, or the power goes, before every durability step: what was promised is there.

The power cut is XFS's own: it goes down without writing its log or any page, and is mounted again.
"""

from __future__ import annotations

import fcntl
import gc
import os
import random
import struct
from pathlib import Path

from blockfs.engine.filesystem import Filesystem
from blockfs.tree.schema import PLAIN_FORMAT, ROOT_INO
from tests import effort
from tests.kit.hostfs import reflinking, run, umount
from tests.unit.blockfs.engine.hot.hosts import BLOCK, PAGE, config, content, create, find, format_of, hot, make, sealed
from tests.unit.blockfs.engine.volumes import Died, Killer, findings

_GOING_DOWN = 0x8004587D  # XFS_IOC_GOINGDOWN, _IOR('X', 125, __u32)
_NO_LOG = struct.pack("=I", 2)  # XFS_FSOP_GOING_FLAGS_NOLOGFLUSH

OLD = random.Random("old").randbytes(3 * BLOCK + 123)


class Promises:
    """What each file may be: absent (None), or one of these contents."""

    def __init__(self) -> None:
        self.may: dict[bytes, set[bytes | None]] = {b"old": {OLD}}

    def can_be(self, name: bytes, *contents: bytes) -> None:
        self.may.setdefault(name, {None, b""}).update(contents)

    def must_be(self, name: bytes, found: bytes) -> None:
        self.may[name] = {found}


def put(data: bytes, at: int, page: bytes) -> bytes:
    return data[:at] + page + data[at + len(page) :]


def load(filesystem: Filesystem, promises: Promises) -> None:
    """Every way of a hot file: assembled, new, flushed, sealed, cut, renamed over another, given up."""
    old = find(filesystem, b"old")
    fd = hot(filesystem, old)
    now = put(OLD, 3 * PAGE, b"1" * PAGE)
    promises.can_be(b"old", now)
    os.pwrite(fd, b"1" * PAGE, 3 * PAGE)
    filesystem.files.fsync(old)
    promises.must_be(b"old", now)
    new = create(filesystem, b"new")
    text = b"n" * (BLOCK + 5)
    promises.can_be(b"new", text)
    os.pwrite(hot(filesystem, new), text, 0)
    filesystem.files.fsync(new)
    promises.must_be(b"new", text)
    filesystem.files.flush(old)
    later = put(now, BLOCK + PAGE, b"2" * PAGE)
    promises.can_be(b"old", later)
    os.pwrite(fd, b"2" * PAGE, BLOCK + PAGE)
    filesystem.files.flush()
    promises.must_be(b"old", later)
    cut = later[: BLOCK + 100]
    promises.can_be(b"old", cut)
    filesystem.files.truncate(old, len(cut), may_block=True)
    filesystem.files.fsync(old)
    promises.must_be(b"old", cut)
    other = create(filesystem, b"tmp")
    promises.can_be(b"tmp", b"t" * PAGE)
    os.pwrite(hot(filesystem, other), b"t" * PAGE, 0)
    promises.may[b"tmp"] = {None, b"", b"t" * PAGE}
    promises.can_be(b"new", b"t" * PAGE)
    filesystem.namespace.rename(ROOT_INO, b"tmp", ROOT_INO, b"new", may_block=True)
    filesystem.commit()
    promises.must_be(b"new", b"t" * PAGE)
    for ino in (old, new, other):
        filesystem.hot.release(ino)
    filesystem.hot.give_up_all()
    filesystem.close()


def began(path: Path) -> bytes:
    """A volume with a sealed file."""
    volume = make(path)
    filesystem = Filesystem.open(volume, config())
    filesystem.files.write(create(filesystem, b"old"), 0, OLD, may_block=True)
    filesystem.close(seal=True)
    return volume


def steps_of(volume: bytes) -> list[str]:
    killer = Killer()
    filesystem = Filesystem.open(volume, config(killer))
    killer.disarm()
    load(filesystem, Promises())
    return killer.steps


def die(volume: bytes, steps: int) -> Promises:
    """Die before one step; what was promised until then."""
    promises, killer = Promises(), Killer()
    filesystem = Filesystem.open(volume, config(killer))
    killer.arm(steps)
    died = False
    try:
        load(filesystem, promises)
    except Died:
        died = True
    assert died
    killer.disarm()
    filesystem.abandon()
    del filesystem
    gc.collect()
    return promises


def check(volume: bytes, promises: Promises, step: str) -> None:
    filesystem = Filesystem.open(volume, config())
    names = {name for name, _ in filesystem.tree.entries(ROOT_INO)}
    for name, may in promises.may.items():
        found = content(filesystem, name) if name in names else None
        assert found in may, (step, name, None if found is None else len(found))
    assert names <= set(promises.may), step
    before = {name: content(filesystem, name) for name in names}
    filesystem.close()
    # As a mount that is not native goes on.
    filesystem = Filesystem.open(volume, config(native=False))
    for name, data in before.items():
        assert sealed(filesystem, find(filesystem, name)) == content(filesystem, name) == data, (step, name)
    assert findings(filesystem) == [], step
    assert format_of(filesystem) == PLAIN_FORMAT, step
    assert not filesystem.tree.all_hot(), step
    filesystem.close()


def test_a_mount_that_dies_before_any_step_keeps_its_promises(host: Path) -> None:
    steps = steps_of(began(host / "steps"))
    assert {"hot.create", "hot.fdatasync", "hot.sync_names", "hot.capture", "blocks.sync", "tree.write"} <= set(steps)
    share = max(1, 100 // effort.count("deaths of a hot file"))
    for at in range(0, len(steps), share):
        volume = began(host / f"kill{at}")
        check(volume, die(volume, at), f"{at}: {steps[at]}")


def test_a_power_cut_before_any_step_keeps_the_promises(tmp_path: Path) -> None:
    """Breaks if a row tells of a hot file whose name or bytes are not on the disk, as those would not be there then."""
    home = tmp_path / "home"
    home.mkdir()
    with reflinking(home, "xfs") as host:
        steps = steps_of(began(host / "steps"))
    share = max(1, 100 // effort.count("deaths of a hot file"))
    for at in range(0, len(steps), share):
        there = tmp_path / f"cut{at}"
        there.mkdir()
        with reflinking(there, "xfs") as host:
            volume = began(host / "v")
            os.sync()
            promises = die(volume, at)
            fd = os.open(host, os.O_RDONLY)
            fcntl.ioctl(fd, _GOING_DOWN, _NO_LOG)
            os.close(fd)
            umount(host)
            run("mount", "-o", "loop", there / "host.img", host)
            check(volume, promises, f"{at}: {steps[at]}")
        (there / "host.img").unlink()
