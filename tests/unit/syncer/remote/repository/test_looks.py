"""What a device reads of a repository with many indexes that nobody has collected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from syncer.errors import DamagedObjectError, NotFoundError
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.format.sealed import Kind
from syncer.remote.repository.objects import Objects
from syncer.remote.stores.caching import CachedStore
from syncer.remote.stores.memory import MemoryStore
from tests.unit.syncer.remote.repository.nodes import KEYS
from tests.unit.syncer.remote.repository.share import CONFIG, Share, fetched, listed, path, put, random_bytes, run


def test_of_many_commits_a_new_device_reads_few_indexes() -> None:
    async def scenario(share: Share) -> None:
        writer = share.client(1)
        for number in range(40):
            await put(writer, f"file{number}", random_bytes(number, 3000))
            await writer.commit()
        indexes = [name for name in share.objects if name.startswith("indexes/")]
        assert len(indexes) == 40
        reader, read = share.client(2), set[str]()
        store = reader._objects.store
        get = store.get

        async def noted(name: str, *args: Sequence[object], **more: int) -> bytes:
            read.add(name)
            return await get(name, *args, **more)  # type: ignore[arg-type]

        store.get = noted  # type: ignore[assignment, method-assign]
        found = await listed(reader)
        for number in range(40):
            assert await fetched(reader, found[path(f"file{number}")]) == random_bytes(number, 3000)
        assert len(read.intersection(indexes)) <= 10

    run(scenario)


def command(share: Share, folder: Path, number: int = 1) -> RepositoryClient:
    """A device's next command: a process that remembers nothing but its cache."""
    store = MemoryStore(share.objects)
    cache = CachedStore(store, str(folder), 1 << 30, [kind.folder for kind in Kind if kind.is_named_by_content])
    writer = Writer(device=DeviceId(bytes([number]) * 16), name="host", tool="test")

    async def check() -> None:
        await store.get("config")

    return RepositoryClient(Objects(store, KEYS, cache=cache), CONFIG, writer, check=check)


def test_a_command_asks_for_nothing_that_an_earlier_one_has_had(tmp_path: Path) -> None:
    """A listing, and our head before it is replaced; and pack, nodes, index, commit, head are written."""

    async def scenario(share: Share) -> None:
        share.objects["config"] = (b"", 0)
        for number in range(5):
            client = command(share, tmp_path / "cache")
            there = await listed(client)
            assert len(there) == 10 * number
            for each in range(10):
                await put(client, f"file{number}-{each}", random_bytes(100 * number + each, 3000))
            await client.commit()
            assert client.counters.mutating_requests == 5
            if number:
                assert client.counters.requests == 5 + 3  # of which one opens the store

    run(scenario)


def test_what_a_cache_has_wrong_is_asked_for_again(tmp_path: Path) -> None:
    """Breaks when a file of the cache that holds another object, or an older one, stops a device for ever."""

    async def scenario(share: Share) -> None:
        share.objects["config"] = (b"", 0)
        client = command(share, tmp_path / "cache")
        await put(client, "file", random_bytes(1, 3000))
        await client.commit()
        right = dict(share.objects)
        for name in share.objects:
            if name.startswith(("commits/", "indexes/", "packs/")):
                share.objects[name] = (bytes(len(right[name][0])), 0)
        other = command(share, tmp_path / "other", 2)  # reads what is wrong, and keeps it not
        with pytest.raises(DamagedObjectError):
            await listed(other)
        share.objects.update(right)
        assert list(await listed(command(share, tmp_path / "other", 2))) == [path("file")]

    run(scenario)


def test_no_repository_is_no_empty_one(tmp_path: Path) -> None:
    async def scenario(share: Share) -> None:
        with pytest.raises(NotFoundError):
            await command(share, tmp_path / "cache").list_objects()

    run(scenario)
