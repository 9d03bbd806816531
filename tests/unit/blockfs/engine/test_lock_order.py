"""The order in which a mount takes its locks is the one of the page."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from blockfs.engine import volume
from blockfs.engine.config import EngineConfig
from blockfs.engine.filesystem import Filesystem
from blockfs.service import maintenance
from blockfs.tree.schema import ROOT_INO
from tests.kit.locks import Order
from tests.unit.blockfs.engine.volumes import USER, create

PROJECT = Path(__file__).parents[4]
PAGE = PROJECT / "docs/design/concurrency.md"
ROUNDS = 12


def page() -> dict[str, int]:
    """Each lock's place in the order, as the page's table has it."""
    section = PAGE.read_text().partition("## 2. ")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (`[^|]*) \|", section, re.MULTILINE)
    return {name: int(number) for number, names in rows for name in re.findall(r"`([\w.]+)`", names)}


def live(filesystem: Filesystem, number: int) -> None:
    """Everything that takes locks, in one of several threads."""
    f, name = filesystem, b"%d" % number
    directory = f.namespace.mkdir(ROOT_INO, name, mode=0o755, caller=USER).ino
    for turn in range(ROUNDS):
        ino = create(f, b"%d-%d" % (number, turn))
        f.files.write(ino, 0, os.urandom(3 * 4096), may_block=True)
        f.files.fsync(ino)
        f.files.write(ino, 4096, b"x" * 100, may_block=True)
        f.files.truncate(ino, 5000, may_block=True)
        f.namespace.rename(ROOT_INO, b"%d-%d" % (number, turn), directory, b"same", may_block=True)
        f.clone(ino, directory, b"clone %d" % turn)
        f.files.zero(ino, 1000, 3500, keeps_size=True)
        f.copy_range(ino, 0, ino, 2 * 4096, 4096)
        f.files.flush()
    snapshot = b"of %d" % number
    f.snapshots.create(directory, snapshot)
    f.snapshots.restore(snapshot, b"", ROOT_INO, b"again %d" % number)
    f.sync()
    maintenance.gc(f.blocks, f.tree, f.ballast, commit=f.commit)


def test_locks_are_taken_in_the_order_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a lock is taken while one that comes after it is held, or is not on the page: two threads may then
    wait for each other for ever.
    """
    order = Order()
    order.watch(monkeypatch)
    path = volume.init(os.fsencode(tmp_path / "volume"), block_size=4096).path
    filesystem = Filesystem.open(path, EngineConfig(ballast_bytes=0, reserve_bytes=0, quiet_s=0.01))
    threads = [threading.Thread(target=live, args=(filesystem, number)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    filesystem.close()
    places = page()
    assert {each for edge in order.edges for each in edge} <= places.keys()
    wrong = {
        f"{held} > {taken}": where for (held, taken), where in order.edges.items() if places[held] >= places[taken]
    }
    assert not wrong
    assert len(order.edges) >= 12


def test_the_page_has_every_lock() -> None:
    makes = re.compile(r"^\s*(?:self\.)?_?(\w+)(?:: Final)? = threading\.(?:Lock|Condition)\(", re.MULTILINE)
    made = {
        f"{source.stem}.{name}"
        for source in (PROJECT / "blockfs").rglob("*.py")
        for name in makes.findall(source.read_text())
    }
    assert made | {"engine"} == page().keys()
