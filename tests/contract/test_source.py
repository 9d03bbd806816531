"""The remote as a source on the board: what is open together travels together, and every way to fail is one block's."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from blockfs.blocks.hashing import canonical
from blockfs.blocks.ids import BlockId
from syncer.blocks.board import Blocks
from syncer.core.model import Kind, RemoteStat
from syncer.engine.fetch import serving
from syncer.errors import ConflictOnRemoteError, NotFoundError, SyncerError
from syncer.ports.blocks import Place, Priority, VersionRef, Want
from syncer.ports.localvalues import content_of
from syncer.ports.remote import Remote
from syncer.remote.pithos.client import PithosClient
from tests.contract.remotes import (
    BLOCK,
    Loss,
    LossyTransport,
    ServeRemote,
    Subject,
    list_of,
    must_head,
    put_many,
    run,
    run_through,
    store,
)

FILES = 200


def noise(seed: int, size: int) -> bytes:
    return hashlib.shake_128(b"source %d" % seed).digest(size)


async def places_of(client: Remote, stat: RemoteStat) -> list[Place]:
    blocks = await list_of(client, stat)
    version = VersionRef(path=stat.path, tag=stat.tag, content=content_of(blocks))
    return [Place(version=version, blocks=blocks, index=index) for index in range(len(blocks))]


def want(*places: Place) -> Want:
    return Want(id=places[0].blocks[places[0].index], length=BLOCK, places=places)


async def fetched(client: Remote, wants: Sequence[Want]) -> tuple[dict[BlockId, bytes], Mapping[BlockId, SyncerError]]:
    found: dict[BlockId, bytes] = {}

    async def receive(got: Sequence[tuple[BlockId, bytes]]) -> None:
        found.update(got)

    board = Blocks([client.source])
    async with serving(board):
        return found, await board.fetch(wants, receive, priority=Priority.SMALL)


async def small_wants(client: Remote) -> list[Want]:
    stats = (await client.list_objects()).objects
    return [want(*await places_of(client, stat)) for stat in stats if stat.kind is Kind.FILE]


def test_small_contents_that_are_wanted_together_share_requests(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        await put_many(client, FILES)
        wants = await small_wants(client)
        before = client.counters.snapshot()
        found, failed = await fetched(client, wants)
        spent = client.counters.since(before)
        assert not failed
        assert sorted(found.values()) == sorted(b"%d" % number for number in range(FILES))
        assert (spent.mutating_requests, spent.blocks_received) == (0, FILES)
        if remote.name == "serve":
            assert spent.requests == 1

    run(remote, scenario)


def test_small_and_long_files_and_their_common_blocks_come_once(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        data = noise(1, 9 * BLOCK + 5)
        await store(client, "one", data)
        await store(client, "two", data[: 4 * BLOCK] + noise(2, 3 * BLOCK))
        await store(client, "three", data[:BLOCK])
        places = [await places_of(client, await must_head(client, name)) for name in ("one", "two", "three")]
        wants = [want(place) for found in places for place in found]
        before = client.counters.snapshot()
        found, failed = await fetched(client, wants)
        assert not failed
        assert client.counters.since(before).blocks_received == len(found) == 13
        whole = b"".join(found[block] for block in places[0][0].blocks)
        assert whole == canonical(data)

    run(remote, scenario)


def test_a_version_that_is_gone_fails_only_what_is_nowhere_else(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        data = noise(3, 3 * BLOCK)
        await store(client, "one", data)
        await store(client, "two", data[:BLOCK] + noise(4, BLOCK))
        (first, second, third) = await places_of(client, await must_head(client, "one"))
        (elsewhere, _) = await places_of(client, await must_head(client, "two"))
        tag = first.version.tag
        never = VersionRef(
            path=first.version.path, tag=replace(tag, version=tag.version + 10_000_000), content=first.version.content
        )
        gone = [Place(version=never, blocks=first.blocks, index=index) for index in range(3)]
        found, failed = await fetched(client, [want(gone[0], elsewhere), want(gone[1], second), want(gone[2])])
        assert set(found) == {first.blocks[0], first.blocks[1]}
        assert isinstance(failed[third.blocks[2]], ConflictOnRemoteError)

    run(remote, scenario)


def test_of_small_contents_only_the_one_that_is_gone_fails(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        await put_many(client, 20)
        wants = await small_wants(client)
        (place,) = wants[5].places
        tag = replace(place.version.tag, version=place.version.tag.version + 10_000_000)
        never = VersionRef(path=place.version.path, tag=tag, content=place.version.content)
        wants[5] = want(Place(version=never, blocks=place.blocks, index=0))
        found, failed = await fetched(client, wants)
        assert len(found) == 19
        assert set(failed) == {wants[5].id}
        assert isinstance(failed[wants[5].id], ConflictOnRemoteError)

    run(remote, scenario)


def test_a_want_without_a_place_is_lacked(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        block = BlockId(hashlib.sha256(b"nowhere").digest())
        found, failed = await fetched(client, [Want(id=block, length=BLOCK)])
        assert not found
        assert isinstance(failed[block], NotFoundError)

    run(remote, scenario)


@pytest.mark.parametrize("loss", Loss)
def test_a_lost_message_costs_no_block(serve: ServeRemote, loss: Loss) -> None:
    async def scenario(client: PithosClient, transport: LossyTransport) -> None:
        await put_many(client, 50)
        wants = await small_wants(client)
        for place in range(3):
            transport.lose(loss, place)
            found, failed = await fetched(client, wants)
            assert (len(found), len(failed)) == (50, 0)

    run_through(serve, LossyTransport, scenario)
