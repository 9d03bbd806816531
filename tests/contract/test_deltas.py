"""Changed files whose older block list is known: what travels, also when that knowledge is wrong or the server lies."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Protocol

import pytest
from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK
from syncer.core.model import Kind
from syncer.errors import ConflictOnRemoteError, CorruptionError
from syncer.ports.orders import InMemory, Store, write_one
from syncer.ports.remote import KnownList, Remote
from syncer.protocol.pithos.headers import EXTENSION_BLOCK_LISTS
from syncer.remote.http.transport import Reply, Request, Transport
from syncer.remote.pithos.client import PithosClient
from tests.contract.remotes import (
    BLOCK,
    META,
    SALT,
    Loss,
    LossyTransport,
    OlderServeRemote,
    ServeRemote,
    Subject,
    WithoutExtensions,
    anew,
    blocks_of,
    content,
    must_head,
    path,
    run,
    run_through,
)
from tests.contract.writing import Made, Shelf, made_of, store_order
from tests.fakes.memory import MemoryContainer

BLOCKS = 300


@pytest.fixture(scope="module")
def older(served: ServeRemote) -> OlderServeRemote:
    return OlderServeRemote(served, EXTENSION_BLOCK_LISTS)


@pytest.fixture(params=["memory", "fake", "serve", "memory-folder", "fake-folder", "serve-folder", "older serve"])
def remote(request: pytest.FixtureRequest, remotes: dict[str, Subject], older: OlderServeRemote) -> Subject:
    return anew({**remotes, older.name: older}[request.param])


def original() -> bytearray:
    return bytearray(content(0, BLOCKS * BLOCK))


def list_of(data: bytes) -> BlockList:
    return MemoryContainer(block_size=BLOCK).store_all(bytes(data))


async def upload(client: Remote, data: bytes, before: bytes | None = None, base: BlockList | None = None) -> Made:
    expect = None if before is None else (await must_head(client, "big")).tag
    order = store_order(path("big"), Kind.FILE, bytes(data), META, expect)
    return made_of(await write_one(client, order, Shelf([bytes(data)], known=base)))


def changed(data: bytearray) -> bytearray:
    new = data[:]
    new[7 * BLOCK : 7 * BLOCK + 10] = b"0123456789"
    return new


def test_a_change_is_pushed_and_pulled(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        old, old_tag = original(), (await upload(client, original())).tag
        new = changed(old)
        before = client.counters.snapshot()
        done = await upload(client, new, old, list_of(old))
        pushed = client.counters.since(before)
        assert pushed.blocks_sent == 1
        before = client.counters.snapshot()
        older = KnownList(tag=old_tag, blocks=list_of(old))
        assert await blocks_of(client, path("big"), done.tag, older) == list_of(new)
        pulled = client.counters.since(before)
        if remote.name in {"serve", "older serve"}:
            assert pushed.bytes_sent < 1.5 * BLOCK
            assert pushed.bytes_received + pulled.bytes_received < 1500
            assert pushed.requests <= 4  # HEAD of the test, PUT, POST, PUT

    run(remote, scenario)


@pytest.mark.parametrize("size", [1, 5 * BLOCK, BLOCKS * BLOCK - 1, BLOCKS * BLOCK + 1, (BLOCKS + 700) * BLOCK + 5])
def test_files_grow_and_shrink(remote: Subject, size: int) -> None:
    async def scenario(client: Remote) -> None:
        old, old_tag = original(), (await upload(client, original())).tag
        new = bytes(old[:size]).ljust(size, b"\0")
        done = await upload(client, new, old, list_of(old))
        older = KnownList(tag=old_tag, blocks=list_of(old))
        assert await blocks_of(client, path("big"), done.tag, older) == list_of(new)

    run(remote, scenario)


def test_wrong_knowledge_does_no_harm(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        old, old_tag = original(), (await upload(client, original())).tag
        new = changed(old)
        wrong = list_of(old).splice(len(old), {3: block_id(b"never"), 250: ZERO_BLOCK})
        done = await upload(client, new, old, wrong)
        assert await blocks_of(client, path("big"), done.tag) == list_of(new)
        for version in (old_tag.version, done.tag.version + 5, 0):
            older = KnownList(tag=replace(old_tag, version=version), blocks=wrong)
            assert await blocks_of(client, path("big"), done.tag, older) == list_of(new)

    run(remote, scenario)


def test_somebody_elses_version_is_not_spliced(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        old = original()
        first = (await upload(client, old)).tag
        other = old[:]
        other[:5] = b"other"
        theirs = (await upload(client, other, old)).tag
        new = bytes(changed(old))
        order = store_order(path("big"), Kind.FILE, new, META, first)
        with pytest.raises(ConflictOnRemoteError):
            await write_one(client, order, Shelf([new], known=list_of(old)))
        assert (await must_head(client, "big")).tag == theirs

    run(remote, scenario)


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("place", range(4))
def test_a_push_of_splices_survives_a_lost_message(serve: ServeRemote, loss: Loss, place: int) -> None:
    async def scenario(client: PithosClient, transport: LossyTransport) -> None:
        old = original()
        await upload(client, old)
        transport.lose(loss, place)
        new = changed(old)
        done = await upload(client, new, old, list_of(old))
        transport.lose(loss, None)
        assert (await must_head(client, "big")).tag == done.tag
        assert await blocks_of(client, path("big"), done.tag) == list_of(new)

    run_through(serve, LossyTransport, scenario)


Twist = Callable[[dict[str, object]], None]


class LyingTransport:
    """Changes the answers to questions for a delta."""

    def __init__(self, inner: Transport, twist: Twist) -> None:
        self._inner, self._twist = inner, twist
        self.lies = 0

    async def send(self, request: Request) -> Reply:
        reply = await self._inner.send(request)
        if "since_version" not in request.target:
            return reply
        self.lies += 1
        form = json.loads(reply.body)
        self._twist(form)
        return replace(reply, body=json.dumps(form).encode())

    def close(self) -> None:
        self._inner.close()


def other_id(form: dict[str, object]) -> None:
    form["splices"] = [[7, [block_id(b"lie").hex()]]]


def out_of_range(form: dict[str, object]) -> None:
    form["splices"] = [[BLOCKS, [block_id(b"lie").hex()]]]


def overlapping(form: dict[str, object]) -> None:
    form["splices"] = [[7, [ZERO_BLOCK.hex()] * 2], [8, [ZERO_BLOCK.hex()]]]


def huge(form: dict[str, object]) -> None:
    form["bytes"] = 1 << 80


def nothing(form: dict[str, object]) -> None:
    form["splices"] = []


def no_json(form: dict[str, object]) -> None:
    form.clear()


class Liar(Protocol):
    """A transport that counts its lies."""

    lies: int


async def sent_and_asked_for(client: PithosClient, liar: Liar) -> tuple[Made, KnownList]:
    """Send two versions and ask for the difference: one lie is found, and the right list comes of it."""
    old, old_tag = original(), (await upload(client, original())).tag
    done = await upload(client, changed(old), old, list_of(old))
    older = KnownList(tag=old_tag, blocks=list_of(old))
    assert await blocks_of(client, path("big"), done.tag, older) == list_of(changed(old))
    assert liar.lies == 1
    return done, older


@pytest.mark.parametrize("twist", [other_id, out_of_range, overlapping, huge, nothing, no_json])
def test_a_lie_about_splices_is_found_and_the_whole_list_asked_for(serve: ServeRemote, twist: Twist) -> None:
    async def scenario(client: PithosClient, liar: LyingTransport) -> None:
        done, older = await sent_and_asked_for(client, liar)
        with pytest.raises(CorruptionError):
            await blocks_of(client, path("big"), replace(done.tag, etag="00" * 32), older)

    lacks = frozenset({EXTENSION_BLOCK_LISTS})
    run_through(serve, lambda inner: LyingTransport(WithoutExtensions(inner, lacks), twist), scenario)


# --- the same in binary, and lists that are based on nothing

Bytes = Callable[[bytes], bytes]


class Garbling:
    """Changes the bodies of answers that are block lists in binary, as often as `times`."""

    def __init__(self, inner: Transport, garble: Bytes, times: int) -> None:
        self._inner, self._garble, self._times = inner, garble, times
        self.lies = 0

    async def send(self, request: Request) -> Reply:
        reply = await self._inner.send(request)
        if request.method != "GET" or "format=binary" not in request.target or self.lies == self._times:
            return reply
        self.lies += 1
        return replace(reply, body=self._garble(reply.body))

    def close(self) -> None:
        self._inner.close()


GARBLED: dict[str, Bytes] = {
    "cut off": lambda body: body[:-5],
    "another id": lambda body: body[:-1] + bytes([body[-1] ^ 1]),
    "another size": lambda body: body.replace(b'"bytes":', b'"bytes":9', 1),
    "based on another version": lambda body: body.replace(b'"base_version":', b'"base_version":9', 1),
    "no head": lambda body: body.replace(b"\n", b" "),
    "the padding": lambda body: body[:-32] + bytes(32),
    "nothing": lambda _body: b"",
}


@pytest.mark.parametrize("garble", GARBLED.values(), ids=GARBLED)
def test_a_garbled_block_list_is_found_and_the_whole_one_asked_for(serve: ServeRemote, garble: Bytes) -> None:
    run_through(serve, lambda inner: Garbling(inner, garble, times=1), sent_and_asked_for)


def test_a_sparse_file_costs_its_blocks_and_not_its_size(serve: ServeRemote) -> None:
    """A hashmap in JSON has 67 bytes a block, hole or not: 1.3 MB each time for this one."""
    count = 20_000
    filled = {0: b"first", 9_999: b"middle", 10_000: b"and its neighbour", count - 1: b"last"}
    known = {index: block_id(data) for index, data in filled.items()}
    ids = b"".join(known.get(index, ZERO_BLOCK) for index in range(count))
    blocks = BlockList(block_size=BLOCK, size_bytes=count * BLOCK, ids=ids)

    async def scenario(client: Remote) -> None:
        held = InMemory(blocks, filled)
        done = await write_one(
            client, Store(path=path("sparse"), kind=Kind.FILE, meta=META, content=held.content), held
        )
        assert done.tag is not None
        assert client.counters.blocks_sent == len(filled)
        assert client.counters.bytes_sent < (len(filled) + 1) * BLOCK
        before = client.counters.snapshot()
        assert await blocks_of(client, path("sparse"), done.tag) == blocks
        assert client.counters.since(before).bytes_received < 1000

    run(serve, scenario)


def test_a_list_in_binary_is_much_shorter_than_in_json(serve: ServeRemote, older: OlderServeRemote) -> None:
    """Of a file without holes, both ways."""
    sent: dict[str, int] = {}
    for remote in (serve, older):

        async def scenario(client: Remote, name: str = remote.name) -> None:
            before = client.counters.snapshot()
            tag = (await upload(client, original())).tag
            assert await blocks_of(client, path("big"), tag) == list_of(original())
            moved = client.counters.since(before)
            sent[name] = moved.bytes_sent + moved.bytes_received - BLOCKS * BLOCK

        run(remote, scenario)
        remote.new_container()
        SALT[0] += 1  # blocks that the server does not have yet
    assert sent["serve"] < 0.6 * sent["older serve"]
