"""What our handlers take, without a kernel: from the bytes of a request to the bytes of the answer, in one thread."""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

import msgspec

from benchmarks.rows import Row
from benchmarks.targets.places import Places
from benchmarks.targets.sizes import MIB, Sizes
from blockfs.engine import volume
from blockfs.engine.config import EngineConfig
from blockfs.engine.filesystem import Filesystem
from blockfs.fuse.answering import Answering
from blockfs.fuse.calls import Calls
from blockfs.fuse.kernel import wire
from blockfs.fuse.kernel.serving import Refused, Serving
from blockfs.fuse.kernel.translation import Translation
from blockfs.fuse.kernel.wire import Opcode
from blockfs.service.counters import Counters
from tests.kit.kernel_requests import Wireless, request

PAGE: Final = 4096
FILE_BYTES: Final = 8 * MIB


class Kernel(Wireless):
    """Asks one thing after another, and keeps the last answer."""

    last: bytes | memoryview = b""

    def answer(self, unique: int, body: bytes | memoryview) -> None:
        """See `Channel`."""
        self.last = body


class Asker:
    """Asks a volume that is not mounted; notes what each kind of request takes, in µs of processor time."""

    def __init__(self, filesystem: Filesystem) -> None:
        counters = Counters()
        calls = Calls(filesystem, counters)
        answering = Answering(filesystem, calls, counters, Refused)
        self.kernel = Kernel()
        self.serving = Serving(self.kernel, Translation(calls, tells_privileges=True).rows, answering)
        self.taken_us: list[float] = []

    def ask(self, opcode: Opcode, body: bytes, node: int = 1) -> bytes | memoryview:
        """The answer to one request."""
        message = memoryview(request(opcode, body, node=node, uid=0))
        began_ns = time.thread_time_ns()
        left = self.serving.answer(message)
        self.taken_us.append((time.thread_time_ns() - began_ns) / 1000)
        assert left is None, "everything is in the page cache"
        return self.kernel.last

    def median_us(self, work: Callable[[], object]) -> float:
        """Of the requests of a work."""
        self.taken_us = []
        work()
        return statistics.median(self.taken_us)


class Opened(msgspec.Struct, frozen=True):
    """A file: its inode and a handle."""

    ino: int
    handle: int


def run(_places: Places, sizes: Sizes) -> list[Row]:
    """Rows about single requests."""
    found: dict[str, list[float]] = {}
    for _ in range(sizes.repetitions):
        with tempfile.TemporaryDirectory(prefix="blocksync-bench-") as home:
            path = os.path.join(os.fsencode(home), b"volume")
            volume.init(path)
            with closing(Filesystem.open(path, EngineConfig(background=False))) as filesystem:
                for work, took_us in once(filesystem, sizes).items():
                    found.setdefault(work, []).append(took_us)
    limits = {"read of 4 KiB": 12.0, "write of 4 KiB": 15.0, "getattr": 8.0, "create": 60.0}
    return [
        Row(part="handlers", work=f"handler: {work}", unit="µs", values=values, limit=limits.get(work))
        for work, values in found.items()
    ]


def once(filesystem: Filesystem, sizes: Sizes) -> dict[str, float]:
    """Each kind of request, some hundred times."""
    asker, count = Asker(filesystem), sizes.names
    data = os.urandom(MIB)
    made = [b"small-%d" % number for number in range(count)]
    took = {
        "lookup of a name that is not there": asker.median_us(lambda: _each(asker, Opcode.LOOKUP, made)),
        "create": asker.median_us(lambda: [create(asker, name) for name in made]),
        "lookup": asker.median_us(lambda: _each(asker, Opcode.LOOKUP, made)),
    }
    file = create(asker, b"file")
    for offset in range(0, FILE_BYTES, MIB):
        _write(asker, file, offset, data[offset // MIB * PAGE :] + data[: offset // MIB * PAGE])
    filesystem.files.flush()
    filesystem.files.read(file.ino, 0, FILE_BYTES, may_block=True)  # opens the segment, which is not done inline
    offsets = [random.randrange(FILE_BYTES // PAGE) * PAGE for _ in range(count)]
    for length, name in ((PAGE, "4 KiB"), (512 << 10, "512 KiB")):
        places = [offset // length * length for offset in offsets]
        work = [wire.READ_IN.pack(file.handle, offset, length) + bytes(20) for offset in places]
        took[f"read of {name}"] = asker.median_us(lambda: _each(asker, Opcode.READ, work, file.ino))  # noqa: B023 - now
    took["write of 4 KiB"] = asker.median_us(lambda: _write_at(asker, file, offsets, data[:PAGE]))
    took["getattr"] = asker.median_us(lambda: _each(asker, Opcode.GETATTR, [bytes(16)] * count, file.ino))
    took["unlink"] = asker.median_us(lambda: _each(asker, Opcode.UNLINK, made))
    return took


def create(asker: Asker, name: bytes) -> Opened:
    """Make a file, and open it."""
    body = wire.CREATE_IN.pack(os.O_CREAT | os.O_RDWR, 0o100644, 0, 0) + name + b"\0"
    made = asker.ask(Opcode.CREATE, body)
    handle_at = wire.ENTRY.size + wire.ATTR.size
    return Opened(wire.ENTRY.unpack_from(made)[0], wire.OPEN_OUT.unpack_from(made, handle_at)[0])


def _write(asker: Asker, file: Opened, offset: int, data: bytes) -> None:
    asker.ask(Opcode.WRITE, wire.WRITE_IN.pack(file.handle, offset, len(data), 0, 0, 0, 0) + data, file.ino)


def _write_at(asker: Asker, file: Opened, offsets: list[int], data: bytes) -> None:
    for offset in offsets:
        _write(asker, file, offset, data)


def _each(asker: Asker, opcode: Opcode, bodies: list[bytes], node: int = 1) -> None:
    for body in bodies:
        asker.ask(opcode, body if opcode in {Opcode.READ, Opcode.GETATTR} else body + b"\0", node)
