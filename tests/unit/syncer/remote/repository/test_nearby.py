"""What a device has in other blocks is not fetched, and what it has not is; whatever lies there by now."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from syncer.core.model import RemoteStat
from syncer.remote.repository.client import RepositoryClient
from syncer.remote.repository.contents.nearby import Nearby
from syncer.remote.repository.format.keys import ChunkId
from syncer.remote.repository.format.lists import Located
from tests.unit.syncer.remote.repository.nodes import KEYS
from tests.unit.syncer.remote.repository.share import GRID, Owned, Share, fetched, listed, path, put, random_bytes, run

SIZE = 100 * GRID


async def told(client: RepositoryClient, share: Share, name: str, old: bytes, new: bytes) -> RemoteStat:
    """A second version of a file, as a device hears of it that has the first one."""
    writer = share.client(99)
    await put(writer, name, old)
    await writer.commit()
    before = (await client.list_objects()).position
    await put(writer, name, new, (await listed(writer))[path(name)])
    await writer.commit()
    changes = await client.changes(before)
    assert changes is not None
    (stat,) = changes.objects
    return stat


def received(client: RepositoryClient) -> int:
    return client.counters.bytes_received


@pytest.mark.parametrize(
    ("edit", "most"),
    [
        (lambda data: b"x" + data, 24),  # every block is another one, and all chunks but the first are the same
        (lambda data: data[:200_000] + b"changed" + data[200_007:], 40),
        (lambda data: random_bytes(8, 50) + data[: SIZE // 2], 48),
    ],
)
def test_of_a_file_that_was_edited_only_new_chunks_travel(edit: object, most: int) -> None:
    async def scenario(share: Share) -> None:
        client = share.client(1)
        old = random_bytes(1, SIZE)
        new = edit(old)  # type: ignore[operator]
        stat = await told(client, share, "file", old, new)
        before = received(client)
        assert await fetched(client, stat, Owned(old)) == new
        assert received(client) - before < most << 10

    run(scenario)


def test_small_files_that_were_edited_are_made_of_those_before() -> None:
    async def scenario(share: Share) -> None:
        asked = 0
        for seed in range(20):  # few blocks of this length have more than one chunk
            client, old = share.client(seed + 1), random_bytes(seed, GRID - 10)
            stat = await told(client, share, f"file{seed}", old, old + b"more")
            own = Owned(old)
            assert await fetched(client, stat, own) == old + b"more"
            asked += len(own.asked)
        assert asked

    run(scenario)


def test_what_is_another_thing_by_now_is_fetched() -> None:
    async def scenario(share: Share) -> None:
        client = share.client(1)
        old = random_bytes(1, SIZE)
        stat = await told(client, share, "file", old, b"x" + old)
        own = Owned(old, wrong=True)
        assert await fetched(client, stat, own) == b"x" + old
        assert own.asked

    run(scenario)


def test_without_the_version_before_all_is_fetched() -> None:
    async def scenario(share: Share) -> None:
        client = share.client(1)
        old = random_bytes(1, SIZE)
        stat = await told(client, share, "file", old, b"x" + old)
        assert await fetched(client, stat, Owned()) == b"x" + old

    run(scenario)


def test_who_reads_a_list_to_learn_of_it_keeps_nobody_out() -> None:
    """Breaks when a pull hangs: lists are read by the loop, which may just be about to keep what it has fetched."""
    nearby = Nearby(Owned(), KEYS, GRID)

    def chunks() -> Iterator[Located]:
        with ThreadPoolExecutor(1) as other:
            other.submit(nearby.keep, {ChunkId(b"c" * 32): b"data"}).result(60)
        yield from ()

    nearby.learn(b"i" * 32, 0, chunks())
    assert nearby.read([ChunkId(b"c" * 32)]) == {b"c" * 32: b"data"}
