"""How long a snapshot takes, by files and by bytes, and how long others wait. On the engine, without a kernel."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness import Result, seconds
from blockfs.engine import volume
from blockfs.engine.config import EngineConfig
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.attributes import Caller
from blockfs.tree.schema import ROOT_INO

COUNTS: Final = (1_000, 10_000, 100_000)
SIZES: Final = {"64 MiB": 64 << 20, "1 GiB": 1 << 30}
_CALLER: Final = Caller(uid=0, gid=0)


def run() -> list[Result]:
    """All rows."""
    results = [row for count in COUNTS for row in _many_files(count)]
    for name, size in SIZES.items():
        results += _measured(f"one file of {name}", partial(_one_file, size=size))
    return results + _measured("one sparse file of 1 TiB, 1,000 blocks in it", _sparse)


def _many_files(count: int) -> list[Result]:
    def fill(filesystem: Filesystem) -> None:
        for number in range(count):
            if number % 1000 == 0:
                folder = filesystem.namespace.mkdir(ROOT_INO, b"%d" % number, mode=0o755, caller=_CALLER).ino
                filesystem.commit()
            filesystem.namespace.create(folder, b"%d" % number, mode=0o644, caller=_CALLER)

    return _measured(f"{count:,} files", fill)


def _one_file(filesystem: Filesystem, size: int) -> None:
    ino = filesystem.namespace.create(ROOT_INO, b"f", mode=0o644, caller=_CALLER).ino
    for offset in range(0, size, 1 << 20):
        filesystem.files.write(ino, offset, os.urandom(1 << 20), may_block=True)


def _sparse(filesystem: Filesystem) -> None:
    ino = filesystem.namespace.create(ROOT_INO, b"f", mode=0o644, caller=_CALLER).ino
    for number in range(1000):
        filesystem.files.write(ino, number << 30, b"%d" % number, may_block=True)


def _measured(work: str, fill: Callable[[Filesystem], None]) -> list[Result]:
    """Take and delete a snapshot of the root, all of it sealed before, while somebody looks and somebody writes."""
    with tempfile.TemporaryDirectory() as home:
        path = volume.init(os.fsencode(Path(home) / "v")).path
        filesystem = Filesystem.open(path, EngineConfig(reserve_bytes=0))
        try:
            fill(filesystem)
            filesystem.files.flush()
            before = _rss_anon_bytes()
            with _waiting(filesystem) as waits:
                taken = seconds(lambda: filesystem.snapshots.create(ROOT_INO, b"s"))
            grown = max(0, _rss_anon_bytes() - before)
            deleted = seconds(lambda: filesystem.snapshots.remove(filesystem.snapshots.take_away(b"s")))
        finally:
            filesystem.close()
    figures = {
        ("take", "s"): taken,
        ("delete", "s"): deleted,
        ("longest wait of a lookup", "ms"): waits["lookup"] * 1000,
        ("longest wait of a write", "ms"): waits["write"] * 1000,
        ("memory", "MiB"): grown / (1 << 20),
    }
    return [
        Result(work=work, subject=f"{name}, {unit}", unit="", values=[value]) for (name, unit), value in figures.items()
    ]


@contextmanager
def _waiting(filesystem: Filesystem) -> Iterator[dict[str, float]]:
    """The longest time that a lookup and a 4 KiB write took in the block inside."""
    waits = {"lookup": 0.0, "write": 0.0}
    ino = filesystem.namespace.create(ROOT_INO, b"written", mode=0o644, caller=_CALLER).ino
    calls = {
        "lookup": lambda: filesystem.namespace.lookup(ROOT_INO, b"written"),
        "write": lambda: filesystem.files.write(ino, 0, bytes(4096), may_block=True),
    }
    ended = threading.Event()

    def repeat(name: str) -> None:
        while not ended.is_set():
            waits[name] = max(waits[name], seconds(calls[name]))
            time.sleep(0.001)

    threads = [threading.Thread(target=repeat, args=(name,)) for name in calls]
    for thread in threads:
        thread.start()
    try:
        yield waits
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _rss_anon_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024
