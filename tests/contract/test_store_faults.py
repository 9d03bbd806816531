"""Every store, with a line to it on which everything goes wrong: what is told as done is done, and nothing else."""

from __future__ import annotations

import hashlib
import random

import msgspec
import pytest
import trio

from syncer.errors import AuthError, NotFoundError, OverQuotaError
from syncer.remote.http.address import parse_address
from syncer.remote.http.retry import Retry, RetryPolicy
from syncer.remote.http.transport import HttpSettings, Transport
from syncer.remote.stores.port import BlobStore
from syncer.remote.stores.retrying import RetryingStore
from syncer.remote.stores.swift import Access, SwiftStore, TempAuth
from tests import effort
from tests.contract.blobplaces import KINDS, WITHIN_S, Place, place_of
from tests.fakes.faulty_store import FaultyStore
from tests.fakes.httpscript import Answer, Arrived, serving
from tests.kit.swift import Swift

POLICY = RetryPolicy(attempts=20, first_delay_s=0.001, max_delay_s=0.01, deadline_s=60.0)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return place_of(request.param, request, tmp_path_factory)


def patient(store: BlobStore) -> RetryingStore:
    return RetryingStore(store, Retry(policy=POLICY, draw=random.random, host="the store"))


def content_of(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest() * 100


async def step(store: BlobStore, model: dict[str, bytes], draws: random.Random, number: int) -> None:
    name = f"packs/{draws.randrange(4)}/{draws.randrange(3)}"
    kind = draws.choice(["absent", "absent", "head", "replace", "delete", "get", "span", "look", "list"])
    if kind == "absent":
        await store.put(name, content_of(name), absent=True)  # False also when it was we, and the reply was lost
        model[name] = content_of(name)
    elif kind == "replace":
        data = b"%d " % number * draws.randrange(1, 50)
        assert await store.put("heads/one", [data[:5], data[5:]])
        model["heads/one"] = data
    elif kind == "delete":
        await store.delete(name)
        model.pop(name, None)
    elif kind in {"get", "span"} and name in model:
        span = (draws.randrange(1000), draws.randrange(1, 1000)) if kind == "span" else None
        expected = model[name] if span is None else model[name][span[0] : sum(span)]
        assert await store.get(name, span) == expected
    elif kind in {"get", "span"}:
        with pytest.raises(NotFoundError):
            await store.get(name)
    elif kind == "look":
        found = await store.head(name)
        assert (None if found is None else found.size_bytes) == (len(model[name]) if name in model else None)
    else:
        assert [blob.name for blob in await store.listing("packs/")] == sorted(
            n for n in model if n.startswith("packs/")
        )


def test_what_is_told_as_done_is_done_and_nothing_else(place: Place) -> None:
    """Breaks when a lost reply is taken for a failure or for a success, or a write is repeated after a newer one."""

    async def main() -> None:
        draws = random.Random(16)
        with trio.fail_after(WITHIN_S):
            await place.make()
            bare = place.client()
            faulty = FaultyStore(bare, draws)
            store = patient(faulty)
            await store.open(create=True)
            model: dict[str, bytes] = {}
            for number in range(effort.count("stores with faults")):
                await step(store, model, draws, number)
            faulty.rate = 0
            assert {blob.name: await store.get(blob.name) for blob in await store.listing("")} == model
            assert faulty.faults
            await store.close()

    trio.run(main)


class Forgetful(msgspec.Struct, frozen=True):
    """Credentials of which every other token is not known."""

    real: TempAuth
    drawn: list[int]

    @property
    def address(self) -> object:
        return self.real.address

    async def sign_in(self, transport: Transport) -> Access:
        access = await self.real.sign_in(transport)
        self.drawn.append(1)
        return access


def test_tokens_that_expire_in_the_middle_of_uploads_cost_nothing_but_a_sign_in(swift: Swift) -> None:
    """Against a real Swift. Breaks when a push that takes longer than a token lives fails, or loses an object."""

    async def main() -> None:
        credentials = Forgetful(swift.credentials, [])
        store = SwiftStore(credentials, "tokens", settings=HttpSettings())  # type: ignore[arg-type]
        await store.open(create=True)
        packs = {f"packs/{number}": bytes([number]) * (3 << 20) for number in range(12)}

        async def push(name: str, data: bytes) -> None:
            expire()
            assert await store.put(name, data, absent=True)

        def expire() -> None:
            access = store._session._access
            assert access is not None
            store._session._access = msgspec.structs.replace(access, token="AUTH_tk_expired")

        with trio.fail_after(WITHIN_S):
            async with trio.open_nursery() as nursery:
                for name, data in packs.items():
                    nursery.start_soon(push, name, data)
            expire()
            assert {name: await store.get(name) for name in packs} == packs
            assert len(credentials.drawn) <= 2 + len(packs)
            store._session._credentials = msgspec.structs.replace(swift.credentials, key="changed")
            expire()
            with pytest.raises(AuthError):
                await store.listing("")
        await store.close()

    trio.run(main)


def test_a_full_account_is_told_as_one(swift: Swift) -> None:
    """Against a real Swift, whose account has a quota: what has room goes on."""

    async def main() -> None:
        store = SwiftStore(swift.account_with_quota(100_000), "box", settings=HttpSettings())
        with trio.fail_after(WITHIN_S):
            await store.open(create=True)
            assert await store.put("small", bytes(1000))
            for size in (200_000, 3_000_000):
                with pytest.raises(OverQuotaError, match="have the quota raised"):
                    await store.put("large", bytes(size), absent=True)
            assert await store.head("large") is None
            assert await store.put("small", bytes(2000))
        await store.close()

    trio.run(main)


def test_a_server_between_us_and_swift_that_answers_503_after_the_deed() -> None:
    """Breaks when an object that a proxy did write is told as not written, or is written over by an older one."""
    objects: dict[str, bytes] = {}
    answered: list[int] = []

    def decide(arrived: Arrived) -> Answer:
        if arrived.path == "/auth":
            return Answer(200, headers={"X-Auth-Token": "t", "X-Storage-Url": f"{script.url}/v1/a"})
        if arrived.path == "/v1/a/box":
            return Answer(204)
        if arrived.method == "PUT":
            objects[arrived.path] = arrived.body or b""
            answered.append(503 if len(answered) < 2 else 201)
            return Answer(answered[-1])
        body = objects.get(arrived.path)
        if body is None:
            return Answer(404)
        return Answer(200, body, {"ETag": hashlib.md5(body).hexdigest(), "X-Timestamp": "1.0"})

    async def main(url: str) -> None:
        bare = SwiftStore(
            TempAuth(address=parse_address(f"{url}/auth"), user="u", key="k"), "box", settings=HttpSettings()
        )
        store = patient(bare)
        await store.open()
        assert await store.put("heads/one", b"1")
        assert answered == [503]  # it was looked for, found, and not written again
        assert await store.put("packs/one", bytes(100_000), absent=True)
        assert answered == [503, 503, 201]
        await store.close()

    with serving(decide) as script:
        trio.run(main, script.url)
