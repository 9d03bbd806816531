"""What only a real Swift can show."""

from __future__ import annotations

import http.client
import urllib.request

import pytest
import trio

from syncer.remote.http.transport import HttpSettings
from syncer.remote.stores.opening import make_store
from syncer.remote.stores.swift import SwiftStore
from tests.contract.blobplaces import WITHIN_S, SwiftPlace, within
from tests.kit import secrecy
from tests.kit.swift import KEY, USER, Swift

PACK = bytes(range(256)) * (16 << 10)  # 4 MiB


def test_a_pack_that_is_there_is_not_sent_again(swift: Swift, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when Swift, or we, do not keep to `Expect: 100-continue`."""
    sent = [0]
    real = http.client.HTTPConnection.send

    def counting(self: http.client.HTTPConnection, data: bytes) -> None:
        sent[0] += len(data)
        real(self, data)

    monkeypatch.setattr(http.client.HTTPConnection, "send", counting)

    async def test(store: object) -> None:
        assert await store.put("packs/x", PACK, absent=True)
        assert sent[0] >= len(PACK)
        sent[0] = 0
        for _ in range(3):
            assert not await store.put("packs/x", PACK, absent=True)
        assert sent[0] < 10_000

    within(SwiftPlace(swift), test)


def test_a_container_that_keeps_versions_keeps_one_of_what_is_written_once(swift: Swift) -> None:
    """Breaks when a rejected body is stored as the newest version, which Swift does on a condition."""
    account = f"{swift.url}/v1/AUTH_test"
    token = ask(f"{swift.url}/auth/v1.0", "GET", {"X-Auth-User": USER, "X-Auth-Key": KEY})["X-Auth-Token"]
    ask(f"{account}/kept", "PUT", {"X-Auth-Token": token, "X-Versions-Enabled": "true"})

    async def main() -> None:
        store = SwiftStore(swift.credentials, "kept", settings=HttpSettings())
        with trio.fail_after(WITHIN_S):
            assert (await store.open()).absent == "never"
            assert await store.put("packs/x", b"data", absent=True)
            assert not await store.put("packs/x", b"rejected", absent=True)
            assert await store.get("packs/x") == b"data"
            assert await store.put("heads/x", b"1")
            assert await store.put("heads/x", b"2")
            assert await store.get("heads/x") == b"2"
            assert [blob.name for blob in await store.listing("")] == ["heads/x", "packs/x"]
        await store.close()

    trio.run(main)


def test_the_door_finds_a_swift_by_the_variables_of_its_clients(swift: Swift) -> None:
    environ = {"ST_AUTH": f"{swift.url}/auth/v1.0", "ST_USER": USER, "ST_KEY": KEY}

    async def main() -> None:
        store = make_store("swift://127.0.0.1/by-url/some/prefix", environ=environ)
        with trio.fail_after(WITHIN_S):
            assert "by-url" in (await store.open(create=True)).text
            await store.put("x", b"data")
            above = make_store("swift://127.0.0.1/by-url", environ=environ)
            assert await above.get("some/prefix/x") == b"data"
            await above.close()
        await store.close()

    trio.run(main)


def test_the_door_finds_the_same_by_its_s3_api(swift: Swift) -> None:
    async def main() -> None:
        native = SwiftStore(swift.credentials, "both", "sub/", settings=HttpSettings())
        await native.open(create=True)
        await native.put("x", PACK)
        store = make_store("s3://both/sub", environ=swift.s3)
        with trio.fail_after(WITHIN_S):
            await store.open()
            assert await store.get("x", (1000, 50_000)) == PACK[1000:51_000]
            await store.put("y", [PACK[:10], PACK[10:20]])
            assert await native.get("y") == PACK[:20]
            assert [blob.name for blob in await store.listing("")] == [blob.name for blob in await native.listing("")]
        await store.close()
        await native.close()

    trio.run(main)


def test_nothing_that_goes_to_a_swift_says_what_is_in_a_repository(
    swift: Swift, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte that is sent, with all headers: no content, no name, no hash, no length of a content, no key."""
    sent: list[bytes] = []
    real = http.client.HTTPConnection.send

    def watching(self: http.client.HTTPConnection, data: bytes) -> None:
        sent.append(bytes(data))
        real(self, data)

    monkeypatch.setattr(http.client.HTTPConnection, "send", watching)

    async def main() -> None:
        with trio.fail_after(WITHIN_S):
            place = SwiftPlace(swift)
            stores = [place.client(), place.client()]
            for store in stores:
                await store.open(create=True)
            await secrecy.happen(*(secrecy.client_on(store, number) for number, store in enumerate(stores, 1)))
            for store in stores:
                await store.close()

    trio.run(main)
    wire = b"".join(sent)
    assert wire.count(b"PUT /") > 10
    assert secrecy.found_in(wire) == []
    headers = {line.partition(b":")[0].lower() for line in wire.split(b"\r\n") if line.startswith(b"X-")}
    assert not {name for name in headers if b"meta" in name}


def ask(url: str, method: str, headers: dict[str, str]) -> dict[str, str]:
    with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers)) as reply:
        return dict(reply.headers)
