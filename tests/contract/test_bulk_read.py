"""Many small reads at once: few requests on our server, each verified, none lost with a message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import trio
from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import BlockId
from syncer.blocks.board import Blocks
from syncer.core.base import BaseIndex
from syncer.core.model import Kind, RemoteStat
from syncer.engine.fetch import fetch_small, serving
from syncer.engine.observe import resolve_changed
from syncer.errors import ConflictOnRemoteError
from syncer.ports.blocks import VersionRef
from syncer.remote.client import CloudClient, Counters
from syncer.remote.http.retry import Retry
from syncer.remote.http.transport import HttpSettings, HttpTransport, Reply, Request, Transport
from syncer.remote.pithos.client import PithosClient
from syncer.remote.source import RemoteSource
from syncer.remote.url import parse_url
from tests.contract.remotes import (
    BLOCK,
    META,
    QUICK,
    FakeRemote,
    Loss,
    MemoryRemote,
    Remote,
    ServeRemote,
    lossy,
    path,
    run,
    serve_process,
    with_folders,
)
from tests.fakes.pithos import FakePithos

FILES = 200


@pytest.fixture(scope="module")
def remotes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Remote]]:
    with FakePithos(block_size=BLOCK) as fake, serve_process(tmp_path_factory.mktemp("serve")) as real:
        yield with_folders(memory=MemoryRemote(), fake=FakeRemote(fake), serve=real)


@pytest.fixture(params=["memory", "fake", "serve", "memory-folder", "fake-folder", "serve-folder"])
def remote(request: pytest.FixtureRequest, remotes: dict[str, Remote]) -> Remote:
    found = remotes[request.param]
    found.new_container()
    return found


async def put_all(client: CloudClient, count: int = FILES) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(client.put_small, path(f"d/{number}"), Kind.FILE, b"%d" % number, META, None)


async def read_all(client: CloudClient, stats: Sequence[RemoteStat]) -> dict[bytes, bytes]:
    """As a pull does. Each content is another one."""
    found: dict[bytes, bytes] = {}
    names: dict[bytes, bytes] = {}
    files: list[tuple[VersionRef, BlockList]] = []
    for stat in stats:
        assert stat.content is not None
        blocks = await client.block_list(stat.path, stat.tag)
        files.append((VersionRef(path=stat.path, tag=stat.tag, content=stat.content), blocks))
        names[blocks[0]] = stat.path

    async def receive(got: Sequence[tuple[BlockId, bytes]]) -> None:
        found.update((names[block], data) for block, data in got)

    board = Blocks([RemoteSource(client)])
    async with serving(board):
        for error in (await fetch_small(board, files, receive)).values():
            raise error
    return found


def test_many_small_reads_at_once(remote: Remote) -> None:
    async def scenario(client: CloudClient) -> None:
        await put_all(client)
        stats = (await client.list_objects()).objects
        before = client.counters.snapshot()
        found = await read_all(client, stats)
        spent = client.counters.since(before)
        assert found == {b"d/%d" % number: b"%d" % number for number in range(FILES)}
        assert (spent.mutating_requests, spent.blocks_received) == (0, FILES)
        if remote.name == "serve":
            assert spent.requests <= 10

    run(remote, scenario)


def test_texts_of_many_links_come_together(remote: Remote) -> None:
    async def scenario(client: CloudClient) -> None:
        targets = {path(f"link{number}"): b"%d" % number for number in range(FILES)}
        async with trio.open_nursery() as nursery:
            for link, target in targets.items():
                nursery.start_soon(client.put_small, link, Kind.SYMLINK, target, META, None)
        stats = (await client.list_objects()).objects
        before = client.counters.snapshot()
        found, failures = await resolve_changed(client, stats, BaseIndex())
        assert not failures
        assert {stat.path: stat.target for stat in found} == targets
        if remote.name == "serve":
            assert client.counters.since(before).requests <= 2

    run(remote, scenario)


def test_older_versions_are_read_and_what_is_gone_is_told(remote: Remote) -> None:
    """Those that a shared request can't tell of are asked for alone."""

    async def scenario(client: CloudClient) -> None:
        await put_all(client, 20)
        stats = (await client.list_objects()).objects
        await client.put_small(stats[3].path, Kind.FILE, b"newer", META, stats[3].tag)
        assert (await read_all(client, stats))[stats[3].path] == stats[3].path.rpartition(b"/")[2]
        never = replace(stats[5], tag=replace(stats[5].tag, version=stats[5].tag.version + 10_000_000))
        with pytest.raises(ConflictOnRemoteError):
            await read_all(client, [*stats[:5], never, *stats[6:]])

    run(remote, scenario)


@pytest.mark.parametrize("loss", Loss)
def test_a_lost_message_costs_no_read(remotes: dict[str, Remote], loss: Loss) -> None:
    serve = remotes["serve"]
    assert isinstance(serve, ServeRemote)
    serve.new_container()

    async def main() -> None:
        with trio.fail_after(60):
            client, transport = lossy(serve)
            await client.create_container()
            await put_all(client, 50)
            stats = (await client.list_objects()).objects
            for place in range(3):
                transport.lose(loss, place)
                assert len(await read_all(client, stats)) == 50
            await client.close()

    trio.run(main)


def test_wrong_bytes_in_a_shared_reply_are_asked_for_alone(remotes: dict[str, Remote]) -> None:
    serve = remotes["serve"]
    assert isinstance(serve, ServeRemote)
    serve.new_container()

    class Lying:
        """Changes a byte at the end of every shared reply."""

        def __init__(self, inner: Transport) -> None:
            self.inner = inner
            self.lies = 0

        async def send(self, request: Request) -> Reply:
            reply = await self.inner.send(request)
            if "bulk-read" not in request.target:
                return reply
            self.lies += 1
            return replace(reply, body=reply.body[:-1] + b"?")

        def close(self) -> None:
            self.inner.close()

    async def main() -> None:
        url, counters = parse_url(serve.url), Counters()
        lying = Lying(HttpTransport(url, serve.token, HttpSettings(), counters))
        client = PithosClient(url, lying, Retry(policy=QUICK, draw=lambda: 0.5, host="test"), counters, 4)
        await client.create_container()
        await put_all(client, 50)
        found = await read_all(client, (await client.list_objects()).objects)
        assert found == {b"d/%d" % number: b"%d" % number for number in range(50)}
        assert lying.lies
        await client.close()

    trio.run(main)
