"""Make the golden repository of a share with a past: `python -m tests.golden.make_share ARCHIVE`, by a checkout's code.

What `make_repository.py` lays down byte by byte is all kinds of objects; this is what devices leave behind: links,
attributes, special bits, a sparse file, wide names, a conflict that was committed, a directory that nobody made, a file
that only an older commit has, packs that were written anew and such as are condemned, a device that was forgotten.
Nothing in it is random: what the system would draw is drawn from a seed.
"""

from __future__ import annotations

import io
import os
import random
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec
import trio

from syncer.core.model import Kind, Meta, RelPath, RemoteStat, meta_of
from syncer.ports.orders import Delete, Move, SetMeta, write_one
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.format.keys import MasterKey, derive
from syncer.remote.repository.format.slots import Secret
from syncer.remote.repository.maintenance import keys as slots
from syncer.remote.repository.maintenance.collecting import Collector
from syncer.remote.repository.maintenance.devices import forget
from syncer.remote.repository.maintenance.marking import GRACE_NS
from syncer.remote.repository.maintenance.repacking import Repacker
from syncer.remote.repository.making import create
from syncer.remote.repository.objects import Objects
from syncer.remote.repository.opening import Kept
from syncer.remote.stores.memory import MemoryStore
from tests.contract.writing import Shelf, store_order

PASSPHRASE: Final = "correct horse battery staple"
ANOTHER: Final = "a second passphrase, of Berta's"
GRID: Final = 65536
WIDE: Final = "\N{GRINNING FACE}" * 63 + "abc"  # 255 bytes
ACCENT: Final = "cafe\u0301"  # as some systems write it, in two characters
XATTRS: Final = ((b"colour", b"\0r\xff" * 90), (b"empty", b""))
MTIME_NS: Final = 1_790_000_000_123_456_789
DELETED: Final = "only-before", b"a file that only an older commit has " * 40
CONFLICT: Final = b"first, by the one", b"second, by the other, at the same time"
_START_NS: Final = 1_790_000_000 * 10**9
_DAY_NS: Final = 86_400 * 10**9


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    """What is at a path."""

    kind: Kind
    meta: Meta
    data: bytes = b""


def _noise(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def _file(
    data: bytes, mode: int = 0o640, mtime_ns: int = MTIME_NS, xattrs: tuple[tuple[bytes, bytes], ...] = ()
) -> Thing:
    return Thing(kind=Kind.FILE, meta=meta_of(mode, mtime_ns=mtime_ns, xattrs=xattrs or None), data=data)


THINGS: Final[dict[str, Thing]] = {
    "documents": Thing(kind=Kind.DIRECTORY, meta=meta_of(0o2750, xattrs=XATTRS)),
    "documents/note": _file(b"a note"),
    "documents/empty": _file(b"", 0o444),
    "documents/tool": _file(b"#!/bin/sh\nexit 0\n", 0o4755),
    "documents/marked": _file(b"with attributes", xattrs=XATTRS),
    "documents/old": _file(b"of before 1970", mtime_ns=-86_400 * 10**9 - 1),
    "image": _file(_noise(1, 60_000) + bytes(5 << 20) + _noise(2, 30_000)),
    "compressible": _file(b"again and again " * 40_000),
    "one-block": _file(_noise(3, GRID)),
    "nobody/made/this/file": _file(b"below directories that are implied"),
    "link": Thing(kind=Kind.SYMLINK, meta=meta_of(None), data=b"documents/note"),
    "dangling": Thing(kind=Kind.SYMLINK, meta=meta_of(None), data=b"/nowhere/at all"),
    WIDE: _file(b"a wide name"),
    ACCENT: _file(b"an accent"),
    "moved/to": _file(b"was elsewhere"),
    "shared": _file(_noise(1, 60_000)),
}
"""What the share holds in the end, besides both versions of the conflict, which is called `both`."""


class Making:
    """A repository in memory on which time passes."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.now_ns = _START_NS
        self.kept: Kept | None = None

    def store(self) -> MemoryStore:
        return MemoryStore(self.objects, clock=lambda: self.now_ns)

    def all(self) -> Objects:
        assert self.kept is not None
        return Objects(self.store(), derive(MasterKey(self.kept.master), self.kept.repository), self.clock_s)

    def clock_s(self) -> float:
        return self.now_ns / 1e9

    def client(self, number: int) -> RepositoryClient:
        assert self.kept is not None
        writer = Writer(device=DeviceId(bytes([number]) * 16), name=f"device{number}", tool="0.1.0")
        clocks = {"clock_ns": lambda: self.now_ns, "clock_s": self.clock_s}
        return RepositoryClient(self.all(), self.kept.config, writer, **clocks)

    async def write(self, client: RepositoryClient, path: str, thing: Thing, old: RemoteStat | None = None) -> None:
        order = store_order(
            RelPath(path.encode()), thing.kind, thing.data, thing.meta, None if old is None else old.tag, GRID
        )
        await write_one(client, order, Shelf([thing.data], GRID))

    async def commit(self, client: RepositoryClient) -> None:
        await client.commit()
        self.now_ns += 3600 * 10**9

    async def run(self) -> None:
        """All that happened."""
        self.kept, _ = await create(self.store(), PASSPHRASE, grid=GRID, label="anna", log2_n=10, clock=self.clock_s)
        await slots.add(self.store(), self.kept, ANOTHER, Secret.PASSPHRASE, "berta", log2_n=10, clock=self.clock_s)
        one, other, lost = (self.client(number) for number in (1, 2, 3))
        await self.write(lost, "gone-soon", _file(_noise(9, 90_000)))
        await self.write(lost, "stays-a-while", _file(_noise(10, 20_000)))
        await self.commit(lost)
        for path, thing in THINGS.items():
            if path not in ("moved/to", "documents/tool"):
                await self.write(one, path, thing)
        await self.write(one, "from", THINGS["moved/to"])
        await self.write(one, "documents/tool", _file(THINGS["documents/tool"].data, 0o600))
        await self.write(one, *_named(DELETED))
        await self.write(one, "both", _file(b"the same for all"))
        await self.commit(one)
        await listed(other)
        await self._both(one, other)
        there = await listed(other)
        await write_one(other, Delete(path=RelPath(DELETED[0].encode()), expect=there[DELETED[0]].tag))
        await write_one(other, Move(source=there["from"].path, target=RelPath(b"moved/to"), expect=there["from"].tag))
        tool = there["documents/tool"]
        await write_one(other, SetMeta(path=tool.path, meta=THINGS["documents/tool"].meta, expect=tool.tag))
        for name in ("gone-soon", "stays-a-while"):
            await write_one(other, Delete(path=there[name].path, expect=there[name].tag))
        await self.commit(other)
        await forget(self.all(), (b"\3" * 16).hex())
        await self.age()

    async def _both(self, one: RepositoryClient, other: RepositoryClient) -> None:
        """Two who write one name without knowing of each other."""
        for client, data in zip((one, other), CONFLICT, strict=True):
            await self.write(client, "both", _file(data), (await listed(client))["both"])
        await self.commit(one)
        await self.commit(other)

    async def age(self) -> None:
        """Collections, and a repacking: of what nobody keeps some is condemned, and some of it is gone."""
        for keep_ns in (30 * _DAY_NS, 4 * _DAY_NS):
            self.now_ns += GRACE_NS + _DAY_NS
            await Repacker(self.all(), DeviceId(b"r" * 16), keep_ns=keep_ns).run()
            await Collector(self.all(), DeviceId(b"g" * 16), keep_ns=keep_ns).run()


def _named(pair: tuple[str, bytes]) -> tuple[str, Thing]:
    return pair[0], _file(pair[1])


async def listed(client: RepositoryClient) -> dict[str, RemoteStat]:
    """By path."""
    return {stat.path.decode(): stat for stat in (await client.list_objects()).objects}


@contextmanager
def drawn(seed: int) -> Iterator[None]:
    """What the system draws is drawn from a seed."""
    real, os.urandom = os.urandom, random.Random(seed).randbytes
    try:
        yield
    finally:
        os.urandom = real


def make() -> Mapping[str, bytes]:
    """All objects of the repository, by name."""
    making = Making()
    with drawn(16):
        trio.run(making.run)
    return {name: raw for name, (raw, _) in making.objects.items()}


def main() -> None:
    """Write the archive."""
    with tarfile.open(sys.argv[1], "w:xz") as archive:
        for name, raw in sorted(make().items()):
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))


if __name__ == "__main__":
    main()
