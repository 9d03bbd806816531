"""A list of orders on its way to a server with `bulk`: few requests, bounded, each order its own fate."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from syncer.core.model import Kind, Meta, RelPath, RemoteTag
from syncer.errors import AuthError, ConflictOnRemoteError, OverQuotaError
from syncer.ports.orders import Delete, Order, Store, Stored
from syncer.ports.remote import Counters
from syncer.protocol.extensions.bulk import (
    MAX_CONTENT_BYTES,
    MAX_OPERATIONS,
    Operation,
    Put,
    Result,
    decode_operations,
    encode_results,
)
from syncer.protocol.pithos import headers as wire
from syncer.remote.http.retry import Retry, RetryPolicy
from syncer.remote.http.transport import Reply, Request
from syncer.remote.pithos.client import PithosClient
from syncer.remote.url import parse_url
from tests.contract.writing import Shelf, store_order

BLOCK = 1 << 20
META = Meta(mode=0o600, special=0)
TAG = RemoteTag(uuid="u", version=7, etag="00" * 32, size_bytes=1)
LIVE = {
    wire.CONTAINER_BLOCK_SIZE.lower(): str(BLOCK),
    wire.CONTAINER_BLOCK_HASH.lower(): "sha256",
    wire.ATOMIC_CONDITIONS.lower(): "1",
    wire.EXTENSIONS.lower(): wire.EXTENSION_BULK,
}


class Server:
    """Answers what it is asked, behind a gate. Names with "!" are refused, those with "~" are too large."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []  # names of each request
        self.sizes: list[int] = []
        self.under_way = self.most = 0
        self.gate = trio.Event()
        self.too_long = False  # says so of whatever is more than one
        self.unauthorized: set[int] = set()  # requests by number
        self.refusal = trio.Event()  # these wait for it

    async def send(self, request: Request) -> Reply:
        if request.method == "HEAD" and request.target.count("/") == 3:
            return Reply(status=204, headers=LIVE, body=b"")
        name = request.target.partition("?")[0].rpartition("/")[2]
        operations: list[Operation] = []
        if request.target.endswith("?bulk"):
            operations = decode_operations(request.body, BLOCK)
        number = len(self.groups)
        self.groups.append([one.name for one in operations] or [name])
        self.sizes.append(len(request.body))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self.gate.wait()
        self.under_way -= 1
        if number in self.unauthorized:
            await self.refusal.wait()
        return self._reply(request, name, operations, is_known=number not in self.unauthorized)

    def _reply(self, request: Request, name: str, operations: list[Operation], *, is_known: bool) -> Reply:
        if operations and is_known and not self.too_long:
            return Reply(status=200, headers={}, body=encode_results([_result(one) for one in operations]))
        if request.method == "HEAD":  # of an object that somebody else has
            return Reply(status=200, headers=_state(b"theirs"), body=b"")
        if request.method == "PUT":
            made = _result(Put(name=name.replace("%21", "!"), data=request.body, meta={}))
            return Reply(status=made.status, headers=_state(request.body), body=b"")
        too_long = bool(operations) or "~" in name or "%7E" in name
        return Reply(status=(413 if too_long else 204) if is_known else 401, headers={}, body=b"")

    def close(self) -> None:
        """Nothing is open."""


def _result(operation: Operation) -> Result:
    if operation.name.endswith("!"):
        return Result(status=412, message="no")
    if isinstance(operation, Put):
        return Result(status=201, version=5, uuid="u", object_hash=_etag(operation.data))
    return Result(status=204, version=5)


def _state(data: bytes) -> dict[str, str]:
    """Headers of a version."""
    return {
        wire.OBJECT_VERSION.lower(): "5",
        wire.OBJECT_UUID.lower(): "u",
        wire.OBJECT_HASH.lower(): _etag(data),
        wire.OBJECT_VERSION_TIMESTAMP.lower(): "1.5",
        "etag": _etag(data),
        "content-length": str(len(data)),
    }


def _etag(data: bytes) -> str:
    return store_order(RelPath(b"x"), Kind.FILE, data, META, block_size=BLOCK).hash_hex


def _client(server: Server) -> PithosClient:
    url = parse_url("pithos+http://server/v1/a/c")
    retry = Retry(policy=RetryPolicy(attempts=1), draw=lambda: 0.5, host="server")
    return PithosClient(url, server, retry, Counters(), 16)


class Ears:
    """What was told, each place once."""

    def __init__(self) -> None:
        self.told: dict[int, Stored | Exception] = {}
        self.first = trio.Event()  # was told

    async def __call__(self, at: int, outcome: Stored | Exception) -> None:
        assert at not in self.told
        self.told[at] = outcome
        self.first.set()
        await trio.lowlevel.checkpoint()


def deletions(count: int) -> list[Order]:
    return [Delete(path=RelPath(b"%d" % number), expect=TAG) for number in range(count)]


def files(contents: Sequence[bytes]) -> tuple[list[Order], Shelf]:
    orders: list[Order] = [
        store_order(RelPath(b"f%d" % number), Kind.FILE, data, META, block_size=BLOCK)
        for number, data in enumerate(contents)
    ]
    return orders, Shelf(contents, BLOCK)


async def until_asked(server: Server, count: int) -> None:
    """Requests are put together in threads."""
    with trio.fail_after(60):
        while len(server.groups) < count:
            await trio.sleep(0)


def test_a_long_list_goes_in_few_requests_that_begin_small_and_end_small() -> None:
    async def main() -> None:
        server, ears = Server(), Ears()
        count = 6 * MAX_OPERATIONS
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_client(server).write, deletions(count), Shelf([]), ears)
            await until_asked(server, 4)
            assert sorted(len(group) for group in server.groups) == [MAX_OPERATIONS // share for share in (8, 4, 2, 2)]
            server.gate.set()
        sizes = [len(group) for group in server.groups]
        assert sum(sizes) == len({name for group in server.groups for name in group}) == count
        assert max(sizes) == MAX_OPERATIONS
        assert min(sizes[-4:]) <= MAX_OPERATIONS // 4
        assert server.most == 4
        assert ears.told == {at: Stored() for at in range(count)}

    trio.run(main)


def test_contents_of_a_request_are_bounded_however_long_the_list() -> None:
    """Memory: four requests of 8 MiB, and no more is read."""

    async def main() -> None:
        server, ears = Server(), Ears()
        orders, shelf = files([b"%d" % number * (BLOCK // 2) for number in range(10)] * 10)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_client(server).write, orders, shelf, ears)
            await until_asked(server, 4)
            await trio.testing.wait_all_tasks_blocked()
            assert len(server.groups) == 4
            server.gate.set()
        assert max(server.sizes) <= MAX_CONTENT_BYTES + BLOCK
        assert server.most == 4
        assert len(ears.told) == len(orders)
        assert all(isinstance(one, Stored) for one in ears.told.values())

    trio.run(main)


def test_of_a_request_that_is_too_long_each_order_goes_alone_and_has_its_own_fate() -> None:
    """Breaks when one that is too large takes along all that came with it."""

    async def main() -> None:
        server, ears = Server(), Ears()
        server.too_long = True
        server.gate.set()
        names = (b"one", b"large~", b"two")
        await _client(server).write([Delete(path=RelPath(name), expect=TAG) for name in names], Shelf([]), ears)
        assert sorted(map(len, server.groups)) == [1, 1, 1, 3]
        assert ears.told[0] == ears.told[2] == Stored()
        assert isinstance(ears.told[1], OverQuotaError)

    trio.run(main)


def test_what_is_known_is_told_also_when_the_call_raises() -> None:
    """R1: one request ends the run while what another one did is being told."""

    async def main() -> None:
        server, ears = Server(), Ears()
        server.unauthorized, server.refusal = {3}, ears.first
        server.gate.set()
        with pytest.raises(AuthError):
            await _client(server).write(deletions(3 * MAX_OPERATIONS), Shelf([]), ears)
        told = {str(at) for at in ears.told}
        whole = [group for group in server.groups if told.issuperset(group)]
        assert whole
        assert told == {name for group in whole for name in group}
        assert all(outcome == Stored() for outcome in ears.told.values())

    trio.run(main)


@given(st.lists(st.sampled_from(["file", "refused", "gone", "unsafe", "delete"]), max_size=30))
def test_each_order_is_told_once(kinds: list[str]) -> None:
    async def main() -> None:
        server, ears = Server(), Ears()
        server.gate.set()
        orders: list[Order] = []
        for number, kind in enumerate(kinds):
            path = RelPath(b"../x" if kind == "unsafe" else b"%d%s" % (number, b"!" if kind == "refused" else b""))
            if kind == "delete":
                orders.append(Delete(path=path, expect=TAG))
            else:
                orders.append(store_order(path, Kind.FILE, b"gone" if kind == "gone" else b"here", META))
        await _client(server).write(orders, Lacking([b"here"], BLOCK), ears)
        told = {at: isinstance(outcome, Stored) for at, outcome in ears.told.items()}
        assert told == {at: kind in {"file", "delete"} for at, kind in enumerate(kinds)}

    trio.run(main)


class Lacking(Shelf):
    """Has not all that is wanted."""

    async def contents(self, stores: Sequence[Store]) -> list[bytes | Exception]:
        return [
            (await super(Lacking, self).contents([one]))[0]
            if one.content in self.held
            else ConflictOnRemoteError(one.path, "a content", "none")
            for one in stores
        ]
