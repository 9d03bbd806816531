"""SIGKILL of `fsck --repair` before each of its calls that change the host: run again, it loses nothing more."""

from __future__ import annotations

import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.disk import Disk
from blockfs.blocks.environment import close_environment
from blockfs.blocks.hashing import block_id
from blockfs.blocks.pins import Pins
from blockfs.control.protocol import FsckReply
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import BlockfsError
from blockfs.service.repair import fsck
from blockfs.tree.environment import open_tables, open_tree_environment
from blockfs.tree.fsck.repair import TreeRepair
from blockfs.tree.schema import ROOT_INO, SNAPSHOTS_INO, Kind, Table, ino_key, parent_key
from tests import effort
from tests.unit.blockfs.blocks.disks import memory_folder
from tests.unit.blockfs.engine.volumes import config, copy, create, find, make

BLOCK = 4096
CONTENTS = {
    name: b"".join(bytes([number + 1]) * BLOCK for number in numbers)
    for name, numbers in ((b"one", range(5)), (b"two", range(3, 7)), (b"three", (8, 9)))
}
OWNER = "12345678-1234-5678-1234-567812345678"
PINNED = b"pinned"

State = dict[bytes, bytes | str]

STRIDE = 100 // effort.count("deaths of a repair")


def fill(path: bytes) -> None:
    """Files, a snapshot of them, staged data over two of them, a pin."""
    filesystem = Filesystem.open(path, config())
    for name, data in CONTENTS.items():
        filesystem.files.write(create(filesystem, name), 0, data)
    filesystem.files.flush()
    filesystem.snapshots.create(ROOT_INO, b"kept")
    with filesystem.blocks.hold() as hold:
        filesystem.blocks.put(PINNED, hold)
        filesystem.blocks.sync()
        filesystem.blocks.pin(OWNER, [block_id(PINNED)])
    for name in (b"one", b"two"):
        ino = find(filesystem, name)
        assert ino is not None
        filesystem.files.write(ino, BLOCK, name.ljust(BLOCK, b"!"))
        filesystem.files.fsync(ino)
    filesystem.close()


def damage_tree(path: bytes) -> None:
    """One file is named nowhere, another one's staged data neither, a third one's leaf is gone."""
    tree = os.path.join(path, b"tree")
    environment = open_tree_environment(tree)
    try:
        databases = open_tables(environment, tree)
        with environment.begin(write=True) as transaction:

            def lookup(name: bytes) -> int:
                return int.from_bytes(transaction.get(ino_key(ROOT_INO, name), db=databases[Table.DENTRIES]), "big")

            one, two, three = map(lookup, CONTENTS)
            leaf = transaction.get(ino_key(three, bytes(8)), db=databases[Table.LEAF_MAP])
            transaction.delete(leaf, db=databases[Table.LEAVES])
            transaction.delete(ino_key(ROOT_INO, b"one"), db=databases[Table.DENTRIES])
            transaction.delete(parent_key(one, ROOT_INO, b"one"), db=databases[Table.PARENTS])
            with transaction.cursor(db=databases[Table.GENERATIONS]) as cursor:
                assert cursor.set_range(ino_key(two, b""))
                cursor.delete()
    finally:
        close_environment(environment)


def lose_index(path: bytes) -> None:
    """All of the index, and with it the pins."""
    os.truncate(os.path.join(path, b"blocks", b"index", b"data.mdb"), 5000)
    garble_header(path)


def lose_row(path: bytes) -> None:
    """A row of the index: it is made anew, and the pins are taken over."""
    with BlockDirectory.open(os.path.join(os.fsdecode(path), "blocks")) as blocks, blocks.index.writing() as txn:
        txn.delete(block_id(CONTENTS[b"one"][:BLOCK]), db=blocks.index._blocks)
    garble_header(path)


def lose_sidecar(path: bytes) -> None:
    """What a rebuild needs: the index has it still."""
    os.unlink(segment(path, "idx"))
    garble_header(path)


def garble_header(path: bytes) -> None:
    with open(segment(path, "seg"), "r+b") as file:
        file.write(b"garbage")


def segment(path: bytes, kind: str) -> Path:
    (found,) = Path(os.fsdecode(path), "blocks", "segments").glob(f"*.{kind}")
    return found


def repair(path: bytes, *, write: bool = True) -> FsckReply:
    return fsck(path, repair=write, now_ns=10**18, step=lambda _: None)


class Assassin:
    """Kills this process before its Nth call that changes the host."""

    CALLS = ("pwrite", "fsync", "fdatasync", "rename", "link", "unlink", "mkdir", "rmdir", "ftruncate")

    def __init__(self, fatal: int) -> None:
        self.fatal = fatal

    def strike(self, path: bytes) -> None:
        """Repair a volume; does not return."""
        code = 1
        try:
            for name in self.CALLS:
                setattr(os, name, self.watched(getattr(os, name)))
            really_open = os.open
            creating = self.watched(really_open)
            os.open = lambda name, flags, *args, **options: (  # type: ignore[assignment]
                creating if flags & os.O_CREAT else really_open
            )(name, flags, *args, **options)
            for owner, method in ((Disk, "commit"), (TreeRepair, "write")):
                setattr(owner, method, self.watched(getattr(owner, method)))
            repair(path)
            code = 0
        except BaseException:  # noqa: BLE001 - nothing may get back into the process that was forked
            traceback.print_exc()
        finally:
            os._exit(code)

    def watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **options: Any) -> Any:
            if not self.fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            self.fatal -= 1
            return call(*arguments, **options)

        return counting


def is_killed(path: bytes, fatal: int) -> bool:
    """Repair in a process of its own, which is killed before its call number `fatal`; False: it had no such call."""
    pid = os.fork()
    if pid == 0:
        Assassin(fatal).strike(path)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


def state(path: bytes) -> State:
    """All files by path, also those in snapshots, with their content or why it can't be read; and the pins."""
    filesystem = Filesystem.open(path, config())
    try:
        found: State = {b"//pins": repr([found.hex() for found in Pins(filesystem.blocks.index).all()])}
        for name, ino in [*walk(filesystem, ROOT_INO, b""), *walk(filesystem, SNAPSHOTS_INO, b".snapshots/")]:
            size = filesystem.namespace.getattr(ino).size_bytes
            for start in range(0, size, BLOCK):
                place = b"%s at %d" % (name, start)
                try:
                    found[place] = filesystem.files.read(ino, start, min(BLOCK, size - start), may_block=True)
                except BlockfsError as error:
                    found[place] = type(error).__name__
        return found
    finally:
        filesystem.close()


def walk(filesystem: Filesystem, directory: int, above: bytes) -> Iterator[tuple[bytes, int]]:
    for name, ino in filesystem.tree.entries(directory):
        inode = filesystem.tree.inode(ino)
        assert inode is not None
        if inode.kind is Kind.DIRECTORY:
            yield from walk(filesystem, ino, above + name + b"/")
        else:
            yield above + name, ino


def said(reply: FsckReply) -> set[tuple[bytes, str, int | None]]:
    return {(found.path, found.what, found.start) for found in reply.lost if found.start is not None}


@pytest.mark.parametrize("damage", [lose_index, lose_row, lose_sidecar])
def test_a_repair_that_is_killed_anywhere_is_made_good_by_the_next(damage: Callable[[bytes], None]) -> None:
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        damaged = make(Path(folder, "damaged"))
        fill(damaged)
        damage_tree(damaged)
        damage(damaged)
        once = copy(damaged, Path(folder, "once"))
        lost = said(repair(once))
        expected = state(once)
        kept = {name.split(b" ")[0] for name in expected if name.startswith(b"lost+found/")}
        assert kept == {b"lost+found/#2", b"lost+found/staged-3.0.5"}
        assert "MissingBlockError" in expected.values()

        fatal = 0
        while is_killed(path := copy(damaged, Path(folder, f"killed-{fatal}")), fatal):
            assert said(repair(path)) == lost
            left = repair(path, write=False)
            assert {found.kind for found in left.findings} == {"missing-block"}
            assert said(left) == lost
            assert state(path) == expected, f"killed before call {fatal}"
            fatal += STRIDE
        assert fatal > 10
