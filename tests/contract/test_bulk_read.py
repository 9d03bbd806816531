"""Many small reads at once: few requests on our server, each verified, none lost with a message."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import BlockId
from syncer.blocks.board import Blocks
from syncer.blocks.wanting import fetch_files
from syncer.core.base import BaseIndex
from syncer.core.model import Kind, RemoteStat
from syncer.engine.fetch import serving
from syncer.engine.observe import resolve_changed
from syncer.errors import ConflictOnRemoteError
from syncer.ports.blocks import VersionRef
from syncer.ports.remote import Remote
from syncer.remote.http.transport import Reply, Request, Transport
from syncer.remote.pithos.client import PithosClient
from tests.contract.remotes import (
    META,
    ServeRemote,
    Subject,
    list_of,
    path,
    put_many,
    run,
    run_through,
)
from tests.contract.writing import put_small

FILES = 200


async def read_all(client: Remote, stats: Sequence[RemoteStat]) -> dict[bytes, bytes]:
    """As a pull does. Each content is another one."""
    found: dict[bytes, bytes] = {}
    names: dict[bytes, bytes] = {}
    files: list[tuple[VersionRef | None, BlockList]] = []
    for stat in stats:
        assert stat.content is not None
        blocks = await list_of(client, stat)
        files.append((VersionRef(path=stat.path, tag=stat.tag, content=stat.content), blocks))
        names[blocks[0]] = stat.path

    async def receive(got: Sequence[tuple[BlockId, bytes]]) -> None:
        found.update((names[block], data) for block, data in got)

    board = Blocks([client.source])
    async with serving(board):
        for error in (await fetch_files(board, files, dict.fromkeys(range(len(files)), (0,)), receive)).values():
            raise error
    return found


def test_texts_of_many_links_come_together(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        targets = {path(f"link{number}"): b"%d" % number for number in range(FILES)}
        async with trio.open_nursery() as nursery:
            for link, target in targets.items():
                nursery.start_soon(put_small, client, link, Kind.SYMLINK, target, META, None)
        stats = (await client.list_objects()).objects
        before = client.counters.snapshot()
        found, failures = await resolve_changed(client, stats, BaseIndex())
        assert not failures
        assert {stat.path: stat.target for stat in found} == targets
        if remote.name == "serve":
            assert client.counters.since(before).requests <= 2

    run(remote, scenario)


def test_older_versions_are_read_and_what_is_gone_is_told(remote: Subject) -> None:
    """Those that a shared request can't tell of are asked for alone."""

    async def scenario(client: Remote) -> None:
        await put_many(client, 20)
        stats = (await client.list_objects()).objects
        await put_small(client, stats[3].path, Kind.FILE, b"newer", META, stats[3].tag)
        assert (await read_all(client, stats))[stats[3].path] == stats[3].path.rpartition(b"/")[2]
        never = replace(stats[5], tag=replace(stats[5].tag, version=stats[5].tag.version + 10_000_000))
        with pytest.raises(ConflictOnRemoteError):
            await read_all(client, [*stats[:5], never, *stats[6:]])

    run(remote, scenario)


def test_wrong_bytes_in_a_shared_reply_are_asked_for_alone(serve: ServeRemote) -> None:
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

    async def scenario(client: PithosClient, lying: Lying) -> None:
        await put_many(client, 50)
        found = await read_all(client, (await client.list_objects()).objects)
        assert found == {b"d/%d" % number: b"%d" % number for number in range(50)}
        assert lying.lies

    run_through(serve, Lying, scenario)
