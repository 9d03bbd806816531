"""An object that a plain Pithos cut within a block: what is proved, what is asked for it, and what is left behind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import pytest

from blockfs.blocks.hashing import block_id
from syncer.core.model import RemoteStat
from syncer.errors import ConflictOnRemoteError, CorruptionError, CutObjectError
from syncer.ports.remote import Remote
from syncer.remote.pithos.client import PithosClient, open_pithos
from tests.contract.remotes import (
    BLOCK,
    QUICK,
    FakeRemote,
    Loss,
    LossyTransport,
    box,
    fetch,
    head,
    list_of,
    must_head,
    path,
    play,
    read_block,
    resolved,
    run,
    through,
    write,
)
from tests.fakes.pithos import Fault, FaultKind
from tests.fakes.pithos_calls import ObjectCall
from tests.fakes.pithos_wire import Answer, as_json

OCTETS = "application/octet-stream"
WHOLE = hashlib.shake_128(b"cut").digest(2 * BLOCK + 900)
SIZES = pytest.mark.parametrize("size", [10, BLOCK + 100, 2 * BLOCK + 7])


@pytest.fixture(autouse=True)
def calm_again(synnefo: FakeRemote) -> Iterator[None]:
    """What a test has armed ends with it: the server is that of all."""
    yield
    synnefo.server.clear_faults()
    synnefo.server.on_request = None


def short(remote: FakeRemote, size: int, data: bytes = WHOLE, kind: str = OCTETS) -> bytes:
    """An object whose last block is longer than it is, and never was whole; returns what it has of that block."""
    hashes = tuple(remote.server.store.put_blocks(data))[: -(-size // BLOCK)]
    remote.server.store.put_hashmap(box(remote), "file", size, hashes, kind, {})
    remote.server.requests.clear()
    return data[(len(hashes) - 1) * BLOCK : size]


def left(remote: FakeRemote) -> list[str]:
    return [name for name in box(remote).live() if name != "file"]


async def one(client: Remote, stat: RemoteStat) -> object:
    """The last block alone."""
    blocks = await list_of(client, stat)
    return await read_block(client, stat, blocks, len(blocks) - 1)


@SIZES
@pytest.mark.parametrize("read", [fetch, one])
def test_a_cut_object_is_proved_by_its_block_and_no_content_is_sent(
    synnefo: FakeRemote, size: int, read: Callable[[Remote, RemoteStat], Awaitable[object]]
) -> None:
    async def scenario(client: PithosClient) -> None:
        data = short(synnefo, size)
        with pytest.raises(CutObjectError) as caught:
            await read(client, await must_head(client, "file"))
        assert (caught.value.path, caught.value.data) == (b"file", data)
        assert not left(synnefo)
        assert client.counters.blocks_sent == 0
        assert [method for method, _ in synnefo.server.requests if method in {"POST", "PUT", "DELETE"}] == [
            "PUT",
            "DELETE",
        ]

    play(synnefo, scenario)


@SIZES
def test_what_an_earlier_version_proves_takes_no_write(synnefo: FakeRemote, size: int) -> None:
    async def scenario(client: PithosClient) -> None:
        write(synnefo, "file", WHOLE)
        synnefo.server.store.change(box(synnefo), "file", 0, WHOLE[:size], size)
        synnefo.server.requests.clear()
        with pytest.raises(CutObjectError):
            await fetch(client, await must_head(client, "file"))
        assert {method for method, _ in synnefo.server.requests} <= {"HEAD", "GET"}

    play(synnefo, scenario)


def test_a_cut_among_nuls_is_proved(synnefo: FakeRemote) -> None:
    """The store has blocks without the NULs at their end."""

    async def scenario(client: PithosClient) -> None:
        data = short(synnefo, 20, bytes(1000) + b"end" + bytes(500))
        with pytest.raises(CutObjectError) as caught:
            await fetch(client, await must_head(client, "file"))
        assert caught.value.data == data == bytes(20)

    play(synnefo, scenario)


@pytest.mark.parametrize("size", [10, BLOCK + 100])
def test_a_damaged_block_is_no_cut_one(synnefo: FakeRemote, size: int) -> None:
    async def scenario(client: PithosClient) -> None:
        short(synnefo, size)
        (version,) = box(synnefo).history["file"]
        blocks = synnefo.server.store.blocks
        blocks[version.hashes[-1]] = b"x" + blocks[version.hashes[-1]][1:]
        with pytest.raises(CorruptionError, match="did not have the id") as caught:
            await fetch(client, await must_head(client, "file"))
        assert not isinstance(caught.value, CutObjectError)
        assert not left(synnefo)

    play(synnefo, scenario)


def test_other_bytes_than_those_of_the_block_are_no_cut_one(synnefo: FakeRemote) -> None:
    """The block is as it should be, what the object answers is not: nothing of that is proved."""

    async def scenario(client: PithosClient) -> None:
        short(synnefo, 10)
        stat = await must_head(client, "file")
        of_it = f"/file?version={stat.tag.version}"
        synnefo.server.inject(Fault(FaultKind.WRONG_BYTES, method="GET", containing=of_it, times=99))
        with pytest.raises(CorruptionError) as caught:
            await fetch(client, stat)
        assert not isinstance(caught.value, CutObjectError)
        assert not left(synnefo)

    play(synnefo, scenario)


REFUSALS = [
    (403, "sync it once with a token of its owner"),
    (413, "make room there"),
    (400, "upload the file again"),
    (409, "upload the file again"),
]


@pytest.mark.parametrize(("status", "advice"), REFUSALS, ids=[str(row[0]) for row in REFUSALS])
def test_a_refusal_says_what_to_do(synnefo: FakeRemote, status: int, advice: str) -> None:
    async def scenario(client: PithosClient) -> None:
        short(synnefo, 10)
        synnefo.server.inject(Fault(FaultKind.STATUS_BEFORE, method="PUT", times=99, status=status))
        with pytest.raises(CorruptionError, match=advice) as caught:
            await fetch(client, await must_head(client, "file"))
        assert not isinstance(caught.value, CutObjectError)
        assert "10 bytes" in str(caught.value)

    play(synnefo, scenario)


def test_a_block_that_the_server_has_lost_is_named(synnefo: FakeRemote, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(call: ObjectCall, *_: object) -> Answer:
        return as_json(409, json.loads(call.body)["hashes"])

    async def scenario(client: PithosClient) -> None:
        short(synnefo, 10)
        monkeypatch.setattr(ObjectCall, "put_hashmap", lacking)
        with pytest.raises(CorruptionError, match="no longer has that block"):
            await fetch(client, await must_head(client, "file"))

    play(synnefo, scenario)


@pytest.mark.parametrize("versioning", ["auto", "none"])
@pytest.mark.parametrize(("times", "error"), [(1, CutObjectError), (2, CutObjectError), (3, ConflictOnRemoteError)])
def test_the_object_is_made_again_if_others_take_it_for_a_left_one(
    synnefo: FakeRemote, versioning: str, times: int, error: type[Exception]
) -> None:
    """That ends: with code 3, and the next cycle tries again."""
    rest = [times]

    def listing_of_others(method: str, target: str) -> None:
        if method == "GET" and "/.blocksync/whole/" in target and rest[0]:
            rest[0] -= 1
            synnefo.server.store.delete(box(synnefo), left(synnefo)[0])

    async def scenario(client: PithosClient) -> None:
        box(synnefo).versioning = versioning
        short(synnefo, 10)
        synnefo.server.on_request = listing_of_others
        with pytest.raises(error):
            await fetch(client, await must_head(client, "file"))
        assert not left(synnefo)

    play(synnefo, scenario)


@pytest.mark.parametrize("loss", list(Loss))
def test_whatever_is_lost_the_proof_is_found_and_nothing_is_left(synnefo: FakeRemote, loss: Loss) -> None:
    async def main(_: Remote) -> None:
        short(synnefo, 10)
        client, transport = through(synnefo, LossyTransport)
        stat = await must_head(client, "file")
        place, count = 0, 1
        while place < count:
            transport.lose(loss, place)
            with pytest.raises(CutObjectError):
                await fetch(client, stat)
            assert not left(synnefo)
            place, count = place + 1, transport.sent - 1
        assert place > 6
        await client.close()

    run(synnefo, main)


def test_what_a_kill_has_left_goes_with_the_next_listing(synnefo: FakeRemote) -> None:
    """And nothing else that lies there."""

    async def scenario(client: PithosClient) -> None:
        short(synnefo, 10)
        store = synnefo.server.store
        ours = f".blocksync/whole/{block_id(WHOLE[:BLOCK]).hex()}"
        store.put_body(box(synnefo), ours, WHOLE[:BLOCK], OCTETS, {})
        others = [".blocksync/whole/note", f".blocksync/whole/{'0' * 64}"]
        for name in others:
            write(synnefo, name, b"?")
        listing = await client.list_objects()
        assert [stat.path for stat in listing.objects] == [b"file"]
        assert left(synnefo) == sorted(others)

    play(synnefo, scenario)


def test_a_look_at_a_cut_symlink_writes_nothing(synnefo: FakeRemote) -> None:
    """A plan is made so, also of a dry run."""

    async def scenario(client: PithosClient) -> None:
        short(synnefo, 10, b"the-target/of-a-link", "application/x-symlink")
        (stat,) = (await client.list_objects()).objects
        bare = msgspec.structs.replace(stat, meta=None, target=None)
        with pytest.raises(CorruptionError):
            await resolved(client, bare)
        with pytest.raises(CorruptionError):
            await head(client, path("file"))
        assert {method for method, _ in synnefo.server.requests} <= {"HEAD", "GET"}

    play(synnefo, scenario)


def test_who_may_only_read_writes_nothing(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        short(synnefo, 10)
        stat = await must_head(client, "file")
        synnefo.server.others["bobs-token"] = "bob"
        box(synnefo).sharing["file"] = "read=bob"
        bob = open_pithos(synnefo.url, "bobs-token", policy=QUICK)
        with pytest.raises(CorruptionError, match=r"this token may not find that out \(403\)"):
            await fetch(bob, stat)
        await bob.close()
        assert synnefo.server.store.last_serial == stat.tag.version

    play(synnefo, scenario)
