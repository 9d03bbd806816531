"""`LocalRoot.create_all`, on every root: an ordinary directory, a mounted volume, and the simulation's in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from blockfs.control.client import ControlClient
from syncer.core.model import Kind, Meta, RelPath, Side
from syncer.core.rows import Origin
from syncer.errors import ConflictOnRemoteError, LocalChangedError
from syncer.local.options import RootOptions
from syncer.local.volume.mount import find_mount
from syncer.local.volume.root import BlockfsRoot
from syncer.ports.blocks import Receive
from syncer.ports.local import LocalRoot
from syncer.ports.localvalues import Applied, Wanted, content_of
from tests.kit.state import MemoryState
from tests.simulation.disk import MemoryRoot, content, data_of
from tests.simulation.world import Entry, Replica
from tests.unit.syncer.local.folders import NO_BASE, by_path, made_all, new_place

_BLOCKSYNC: Final = Path(sys.executable).with_name("blocksync")
_META: Final = Meta(mode=0o640, mtime_ns=1_000_000_001)
ONE, TWO, THREE = 1, 2, 3  # contents of one block, see `data_of`


@dataclass(kw_only=True)
class Subject:
    """A root that is tested.

    Attributes:
        open: The root, in the test's event loop.
        put: Somebody else makes a file.
        files: What is there.
    """

    open: Callable[[], LocalRoot]
    put: Callable[[str, int], None]
    files: Callable[[], dict[str, bytes]]


@dataclass
class Server:
    """What is fetched, and how often. Contents in `gone` can't be."""

    gone: set[bytes] = field(default_factory=set)
    served: list[int] = field(default_factory=list)

    def wanted(self, root: LocalRoot, path: bytes, payload: int, origins: tuple[Origin, ...] = ()) -> Wanted:
        data = data_of(payload)
        blocks = BlockList(block_size=root.block_size, size_bytes=len(data), ids=bytes(block_id(data)))
        assert content_of(blocks) == content(payload)  # the simulation's contents are numbered when first asked for

        async def fetch(indexes: Sequence[int], receive: Receive) -> None:
            assert list(indexes) == [0]
            await trio.lowlevel.checkpoint()
            if path in self.gone:
                raise ConflictOnRemoteError(RelPath(path), "a version", "nothing")
            self.served.append(payload)
            await receive([(BlockId(block_id(data)), data)])

        return Wanted(
            path=RelPath(path),
            content=content_of(blocks),
            blocks=blocks,
            meta=_META,
            origins=origins,
            fetch=fetch,
        )


def ordinary(home: Path) -> Iterator[Subject]:
    place = new_place(home)
    (place.path / "d").mkdir()
    yield Subject(open=place.open, put=lambda name, of: _write(place.path / name, of), files=place.visible)


def in_memory(home: Path) -> Iterator[Subject]:
    replica = Replica(Side.LOCAL)
    replica.put(b"d", Entry(7, Kind.DIRECTORY, 0, 0o755, 0, replica.tick()))

    async def nothing(_: str) -> None:
        await trio.lowlevel.checkpoint()

    def put(name: str, payload: int) -> None:
        replica.put(name.encode(), Entry(8, Kind.FILE, payload, 0o644, 0, replica.tick()))

    def files() -> dict[str, bytes]:
        entries = replica.entries.items()
        return {path.decode(): data_of(entry.payload) for path, entry in entries if entry.kind is Kind.FILE}

    yield Subject(open=lambda: MemoryRoot(replica, nothing), put=put, files=files)


def mounted(home: Path) -> Iterator[Subject]:
    point = home / "mount"
    point.mkdir()
    _command("init", home / "volume")
    _command("mount", home / "volume", point)
    try:
        (point / "d").mkdir()
        mount = find_mount(bytes(point))
        assert mount is not None
        with ControlClient(mount.source) as control:
            uuid, size = control.status().uuid, control.status().block_size
        options = RootOptions(block_size=size, lists=str(home / "lists"), state=MemoryState())
        yield Subject(
            open=lambda: BlockfsRoot(bytes(point), uuid, options),
            put=lambda name, of: _write(point / name, of),
            files=lambda: {
                str(path.relative_to(point)): path.read_bytes()
                for path in point.rglob("*")
                if path.is_file() and ".blocksync" not in path.parts
            },
        )
    finally:
        _command("umount", point)


def _write(path: Path, payload: int) -> None:
    path.write_bytes(data_of(payload))


def _command(*arguments: str | Path) -> None:
    subprocess.run([_BLOCKSYNC, *arguments], capture_output=True, check=True)


@pytest.fixture(params=[ordinary, in_memory, mounted], ids=lambda make: make.__name__)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    yield from request.param(tmp_path)


def with_root(subject: Subject, work: Callable[[LocalRoot, Server], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        root = subject.open()
        try:
            await work(root, Server())
        finally:
            await root.close()

    trio.run(main)


def made(outcome: Applied | Exception) -> Applied:
    assert isinstance(outcome, Applied), outcome
    return outcome


def test_all_arrive_and_no_content_is_fetched_twice(subject: Subject) -> None:
    async def work(root: LocalRoot, server: Server) -> None:
        wanted = [
            server.wanted(root, path, payload)
            for path, payload in ((b"a", ONE), (b"d/b", TWO), (b"d/c", ONE), (b"e", THREE))
        ]
        applied = [made(each) for each in await made_all(root, wanted)]
        await root.barrier()
        assert sorted(server.served) == [ONE, TWO, THREE]
        seen = by_path(await root.observe(NO_BASE))
        for want, got in zip(wanted, applied, strict=True):
            found = seen[want.path]
            assert (found.content, found.meta.mode, found.tag.mtime_ns) == (want.content, _META.mode, _META.mtime_ns)
            # What is recorded as our own write: another tag would be taken for a user's.
            assert got.tag == found.tag
            assert got.lacking is None
            assert got.copied_to is None

    with_root(subject, work)
    first, second, third = map(data_of, (ONE, TWO, THREE))
    assert subject.files() == {"a": first, "d/b": second, "d/c": first, "e": third}


def test_a_name_that_is_taken_keeps_what_it_has_and_stops_no_other(subject: Subject) -> None:
    subject.put("d/taken", THREE)

    async def work(root: LocalRoot, server: Server) -> None:
        wanted = [server.wanted(root, path, ONE) for path in (b"a", b"d/taken", b"nowhere/b", b"d/c")]
        first, taken, nowhere, last = await made_all(root, wanted)
        made(first)
        made(last)
        assert isinstance(taken, LocalChangedError)
        assert isinstance(nowhere, LocalChangedError)
        await root.barrier()

    with_root(subject, work)
    assert subject.files() == {"a": data_of(ONE), "d/taken": data_of(THREE), "d/c": data_of(ONE)}


def test_a_content_that_comes_for_one_file_is_there_for_all_and_one_that_does_not_stops_no_other(
    subject: Subject,
) -> None:
    async def work(root: LocalRoot, server: Server) -> None:
        server.gone = {b"a", b"lost"}
        wanted = [
            server.wanted(root, path, of) for path, of in ((b"a", ONE), (b"b", ONE), (b"lost", TWO), (b"c", THREE))
        ]
        outcomes = await made_all(root, wanted)
        assert [isinstance(outcome, Applied) for outcome in outcomes] == [True, True, False, True]
        assert isinstance(outcomes[2], ConflictOnRemoteError)
        await root.barrier()

    with_root(subject, work)
    assert subject.files() == {"a": data_of(ONE), "b": data_of(ONE), "c": data_of(THREE)}


def test_what_is_here_is_not_fetched(subject: Subject) -> None:
    async def work(root: LocalRoot, server: Server) -> None:
        (first,) = await made_all(root, [server.wanted(root, b"a", ONE)])
        origin = Origin(path=RelPath(b"a"), tag=made(first).tag, content=server.wanted(root, b"a", ONE).content)
        assert server.served == [ONE]
        (second,) = await made_all(root, [server.wanted(root, b"d/b", ONE, (origin,))])
        made(second)
        assert server.served == [ONE]
        await root.barrier()

    with_root(subject, work)
    assert subject.files() == {"a": data_of(ONE), "d/b": data_of(ONE)}
