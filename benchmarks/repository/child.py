"""A device of a repository in a process of its own, that tells more than the command: a `cycle`, or many of them.

What it keeps lies in its home: the state, the mark of its folder. A root that was never here is linked. `chunks` tells
which chunks the files of the newest commit need.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import uuid as uuids
from collections import Counter
from collections.abc import Container, Sequence
from pathlib import Path
from typing import cast

import msgspec
import trio

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ObjectHash
from blockfs.control.client import ControlClient
from syncer.cli.interpreter import look_rarely
from syncer.core.model import Action, Kind, Plan, RelPath, RemoteTag, meta_of
from syncer.core.model import Content as FileContent
from syncer.core.planner.merge import Policy
from syncer.core.planner.safety import ContainerIdentity
from syncer.engine.cycle import Cycle, Options
from syncer.engine.report import Failure
from syncer.engine.root_state import RootState
from syncer.local.folder.identity import Folder, look_at_folder, write_marker
from syncer.local.folder.private import PrivateFolder
from syncer.local.folder.root import LocalDirectory
from syncer.local.options import RootOptions
from syncer.local.volume.mount import find_mount
from syncer.local.volume.root import BlockfsRoot
from syncer.ports.localvalues import Hints
from syncer.ports.orders import Reader, Store, Stored
from syncer.ports.remote import Remote
from syncer.remote.repository import opening
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.format.keys import Content, Keys, MasterKey, derive
from syncer.remote.repository.format.lists import chunks_of
from syncer.remote.repository.format.packs import PackReader, PackRef
from syncer.remote.repository.format.prolly import Root
from syncer.remote.repository.objects import Objects, ThreadNodes
from syncer.remote.repository.tree import Tree
from syncer.remote.stores.opening import make_store
from syncer.remote.stores.port import MAX_BLOB_BYTES, BlobStore
from syncer.remote.stores.wrapped import WrappedStore
from syncer.state.statedb import StateDB

GRID = 65536
SMALL_FILES, SMALL_BYTES = 250, 1024


class Linked(msgspec.Struct, kw_only=True):
    """What a device keeps of its root.

    Attributes:
        uuid: Of the root.
        folder: What it is recognised by; None: it is a mounted volume.
        volume: The volume's uuid; None: it is a folder.
    """

    uuid: str
    folder: Folder | None = None
    volume: str | None = None


class Deaf:
    """A listener that does nothing."""

    def planned(self, plan: Plan) -> None:
        """See Listener."""

    def done(self, action: Action, path: RelPath) -> None:
        """See Listener."""

    def failed(self, failure: Failure) -> None:
        """See Listener."""
        raise AssertionError(failure)

    def noted(self, path: bytes, text: str) -> None:
        """See Listener."""


class Books(RootState):
    """A root's state; which container it is of is kept in memory only."""

    _seen: ContainerIdentity | None = None

    def container(self) -> ContainerIdentity | None:
        """See RootState."""
        return self._seen

    def set_container(self, found: ContainerIdentity) -> None:
        """See RootState."""
        self._seen = found


class Watched(WrappedStore):
    """A store; how many bytes came of each object is noted."""

    def __init__(self, inner: BlobStore) -> None:
        super().__init__(inner)
        self.received: Counter[str] = Counter()

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        """See BlobStore."""
        data = await super().get(name, span, most_bytes=most_bytes)
        self.received[name] += len(data)
        return data


class WatchedObjects(Objects):
    """A repository's objects; which packs of files were read is noted."""

    def __init__(self, store: BlobStore, keys: Keys) -> None:
        super().__init__(store, keys)
        self.files: set[str] = set()

    def _reader(self, content: Content, pack: PackRef) -> PackReader:
        if content is Content.FILES:
            self.files.add(pack.name)
        return super()._reader(content, pack)


async def _opened(url: str, key: Path, device: bytes) -> tuple[RepositoryClient, WatchedObjects, Watched]:
    store = Watched(make_store(url))
    await store.open()
    kept = await opening.unlock(store, key.read_text())
    objects = WatchedObjects(store, derive(MasterKey(kept.master), kept.repository))
    writer = Writer(device=DeviceId(device), name="bench", tool="bench")
    return RepositoryClient(objects, kept.config, writer), objects, store


def cycle(root: Path, home: Path, url: str, key: Path) -> dict[str, float]:
    """One cycle, linked before if need be."""
    linked = _linked(root, home)
    look_rarely()
    with StateDB.open(str(home / "state")) as database:
        return trio.run(_cycle, root, home, linked, url, key, Books(database))


class Written:
    """A `Reader` of small contents in memory."""

    def __init__(self) -> None:
        self.data: dict[RelPath, bytes] = {}

    async def contents(self, stores: Sequence[Store]) -> list[bytes | Exception]:
        """See Reader."""
        return [self.data[store.path] for store in stores]


def generations(folder: Path, url: str, key: Path, count: int) -> None:
    """As many commits, each of which replaces all files but one, 250 of 1 KiB; the last ones also into a folder."""
    look_rarely()
    rng, reader = random.Random(1), Written()
    tags: dict[RelPath, RemoteTag | None] = {}
    names = [RelPath(b"f%d" % number) for number in range(SMALL_FILES)]

    async def run() -> None:
        client, _, _ = await _opened(url, key, rng.randbytes(16))
        await client.list_objects()
        for generation in range(count):
            changed = [name for at, name in enumerate(names) if not generation or at != generation % SMALL_FILES]
            reader.data.update((name, rng.randbytes(SMALL_BYTES)) for name in changed)
            orders = [_store(name, reader.data[name], tags.get(name)) for name in changed]

            async def done(at: int, outcome: Stored | Exception, changed: list[RelPath] = changed) -> None:
                assert isinstance(outcome, Stored), outcome
                tags[changed[at]] = outcome.tag

            await client.write(orders, cast("Reader", reader), done)
            await client.commit()
        await client.close()

    trio.run(run)
    for name, data in reader.data.items():
        (folder / name.decode()).write_bytes(data)


def _store(name: RelPath, data: bytes, replaces: RemoteTag | None) -> Store:
    content = FileContent(size_bytes=len(data), object_hash=ObjectHash(block_id(data)))
    return Store(path=name, kind=Kind.FILE, meta=meta_of(0o644), replaces=replaces, content=content)


async def _cycle(root: Path, home: Path, linked: Linked, url: str, key: Path, books: Books) -> dict[str, float]:
    options = RootOptions(block_size=GRID, lists=str(home / "lists"), state=books)
    path = os.fsencode(root)
    local: LocalDirectory | BlockfsRoot
    if linked.folder is None:
        assert linked.volume is not None
        local = BlockfsRoot(path, linked.volume, options)
    else:
        blocks = str(home / "blocks")
        local = LocalDirectory(path, linked.folder, options, _same_name, lambda: BlockDirectory.open(blocks))
    client, objects, store = await _opened(url, key, uuids.UUID(linked.uuid).bytes)
    policy = Policy(host="bench", utc="20260101T000000Z")
    began = time.perf_counter()
    try:
        report = await Cycle(local, cast("Remote", client), books, Deaf(), Options(policy=policy, hints=Hints())).run()
    finally:
        await local.close()
        await client.close()
    assert report.exit_code == 0, report.failures
    figures: dict[str, float] = {**report.counts(), "cycle_s": time.perf_counter() - began}
    figures["packs_received"] = sum(size for name, size in store.received.items() if name in objects.files)
    figures["rest_received"] = sum(store.received.values()) - figures["packs_received"]
    return figures


def chunks(url: str, key: Path) -> dict[str, int]:
    """Chunks that files of the newest commit need, by id in hex, and how long each is in its pack."""
    found: dict[str, int] = {}

    async def run() -> None:
        _, objects, store = await _opened(url, key, bytes(16))
        heads = await objects.heads()
        commits = await objects.commits([head.commit for head in heads.values()])
        newest = max(commits.values(), key=lambda commit: commit.number)

        def walk() -> None:
            nodes = ThreadNodes(objects)
            for each in Tree(nodes, msgspec.msgpack.decode(newest.root, type=Root)).entries():
                if each.entry.file is not None:
                    found.update((chunk.id.hex(), chunk.stored) for chunk in chunks_of(nodes, each.entry.file))

        await trio.to_thread.run_sync(walk)
        await store.close()

    trio.run(run)
    return found


def _linked(root: Path, home: Path) -> Linked:
    record = home / "linked.json"
    if record.exists():
        return msgspec.json.decode(record.read_bytes(), type=Linked)
    home.mkdir(parents=True, exist_ok=True)
    StateDB.create(str(home / "state")).close()
    uuid = str(uuids.uuid4())
    mount = find_mount(os.fsencode(root))
    if mount is not None:
        with ControlClient(mount.source) as client:
            linked = Linked(uuid=uuid, volume=client.status().uuid)
    else:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        private = PrivateFolder(descriptor)
        write_marker(private.top, uuid)
        private.close()
        linked = Linked(uuid=uuid, folder=look_at_folder(descriptor, uuid))
        os.close(descriptor)
        BlockDirectory.create(str(home / "blocks"), block_size=GRID).close()
    record.write_bytes(msgspec.json.encode(linked))
    return linked


def _same_name(name: bytes, content: FileContent | None, taken: Container[bytes]) -> bytes:  # noqa: ARG001 - a CopyName
    return name


if __name__ == "__main__":
    what, url, key, *rest = sys.argv[1:]
    if what == "chunks":
        print(json.dumps(chunks(url, Path(key))))
    elif what == "generations":
        generations(Path(rest[0]), url, Path(key), int(rest[1]))
    else:
        print(json.dumps(cycle(Path(rest[0]), Path(rest[1]), url, Path(key))))
