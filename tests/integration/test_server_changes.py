"""`?changes` over real sockets: many waits, clients that go away, a server that stops."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from syncer.server.budget import Purse
from syncer.server.calls.memory import HEAVY_ROW_BYTES, ROW_BYTES
from syncer.server.folder import ServerFolder
from syncer.server.notifier import Wake
from syncer.server.store.store import Store
from tests.integration.live_server import BLOCK, Client, Reply, server_in_thread, serving

WAITS = 60  # more than there are worker threads in the server


class Waits:
    """Tells when waits have begun and ended on the server."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self._began, self._ended = threading.Semaphore(0), threading.Semaphore(0)
        listening = store.notifier.listening

        @contextmanager
        def watched(container_id: int, wake: Wake) -> Iterator[None]:
            with listening(container_id, wake):
                self._began.release()
                try:
                    yield
                finally:
                    self._ended.release()

        monkeypatch.setattr(store.notifier, "listening", watched)

    def begun(self, count: int) -> None:
        for _ in range(count):
            assert self._began.acquire(timeout=60)

    def ended(self, count: int) -> None:
        for _ in range(count):
            assert self._ended.acquire(timeout=60)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(ServerFolder.open(str(tmp_path / "s"), block_size=BLOCK)) as found:
        yield found


def ask(address: str, query: str, container: str = "c") -> Reply:
    client = Client(address)
    try:
        return client("GET", f"/{container}?changes&{query}")
    finally:
        client.close()


def names(reply: Reply) -> list[str]:
    assert reply.status == 200
    found: dict[str, Any] = reply.json
    return [row["name"] for row in found["objects"]]


def test_a_client_follows_a_container_by_its_headers(tmp_path: Path) -> None:
    with server_in_thread(tmp_path / "s") as address:
        client = Client(address)
        head = client("PUT", "/c")
        assert "changes" in head.headers["X-Blocksync-Extensions"]
        fields = [head.headers[f"X-Container-{name}"] for name in ("Version", "Version-Timestamp", "Identity")]
        query = "since={}&timestamp={}&identity={}".format(*fields)
        assert names(ask(address, query)) == []
        client("PUT", "/c/b", b"1")
        client("PUT", "/c/a", b"2", X_Object_Meta_Mode="644")
        client("DELETE", "/c/b")
        reply = ask(address, query).json
        assert [(row["name"], row["x_object_meta"]) for row in reply["objects"]] == [("a", {"mode": "644"})]
        assert (reply["deleted"], reply["count"], reply["bytes"], reply["more"]) == (["b"], 1, 1, False)
        again = "since={version}&timestamp={timestamp}&identity={identity}".format(**reply)
        assert names(ask(address, again)) == []
        head = client("HEAD", "/c")
        assert (int(head.headers["X-Container-Version"]), head.headers["X-Container-Version-Timestamp"]) == (
            reply["version"],
            reply["timestamp"],
        )
        client.close()


def test_waits_hold_no_thread_and_end_with_the_change(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits(store, monkeypatch)
    with serving(store) as address, ThreadPoolExecutor(WAITS) as pool:
        client = Client(address)
        for name in ("c", "other"):
            client("PUT", f"/{name}")
        replies = [pool.submit(ask, address, "since=0&wait=300") for _ in range(WAITS)]
        waits.begun(WAITS)
        assert client("PUT", "/other/f", b"not yours").status == 201
        assert client("PUT", "/c/f", b"!").status == 201
        assert [names(reply.result()) for reply in replies] == [["f"]] * WAITS
        waits.ended(WAITS)
        assert not store.notifier._waiting
        client.close()


def test_a_client_that_goes_away_is_not_waited_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits(store, monkeypatch)
    with serving(store) as address:
        client = Client(address)
        client("PUT", "/c")
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(
                b"GET /v1/alice/c?changes&since=0&wait=300 HTTP/1.1\r\nHost: x\r\nX-Auth-Token: token-alice\r\n\r\n"
            )
            waits.begun(1)
        waits.ended(1)
        assert not store.notifier._waiting
        client.close()


def test_a_server_that_stops_lets_nobody_wait(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits(store, monkeypatch)
    with ThreadPoolExecutor(2) as pool:
        with serving(store) as address:
            client = Client(address)
            client("PUT", "/c")
            client.close()
            reply = pool.submit(ask, address, "since=0&wait=300")
            waits.begun(1)
            store.notifier.close()  # what `process.serve` does first
        assert names(reply.result()) == []


def test_a_container_that_is_deleted_ends_the_wait(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits(store, monkeypatch)
    with serving(store) as address, ThreadPoolExecutor(1) as pool:
        client = Client(address)
        client("PUT", "/c")
        reply = pool.submit(ask, address, "since=0&wait=300")
        waits.begun(1)
        client("DELETE", "/c")
        assert reply.result().fault == "itemNotFound"
        client.close()


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("since=x", 400),
        ("since=-1", 400),
        ("since=99999999999999999999", 400),
        ("since=9999999999999999999", 410),
        ("since=0&wait=x", 400),
        ("since=0&wait=99999999999999999999", 400),
        ("since=0&limit=0", 400),
        ("since=0&timestamp=x", 400),
        ("since=0&timestamp=99999999999999999999.9", 400),
        ("since=0&identity=other", 410),
        ("since=1", 410),
        ("since=0&without=", 400),
        ("since=0&without=9-5", 400),
    ],
)
def test_questions_that_make_no_sense(tmp_path_factory: pytest.TempPathFactory, query: str, status: int) -> None:
    with server_in_thread(tmp_path_factory.mktemp("s") / "s") as address:
        client = Client(address)
        client("PUT", "/c")
        reply = ask(address, query)
        assert reply.status == status
        assert json.loads(reply.body)[reply.fault]["message"]
        assert ask(address, "since=0", "nowhere").status == 404
        assert client("GET", "/c/o?changes&since=0").status == 400
        assert client("GET", "?changes&since=0").status == 400
        client.close()


def test_a_listing_with_much_metadata_is_begun_again_with_the_memory_for_it(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved: list[int] = []
    real = Purse.reserve

    async def reserve(self: Purse, size_bytes: int) -> None:
        reserved.append(size_bytes)
        await real(self, size_bytes)

    monkeypatch.setattr(Purse, "reserve", reserve)
    with server_in_thread(tmp_path_factory.mktemp("s") / "s") as address:
        client = Client(address)
        client("PUT", "/c")
        long = {f"X-Object-Meta-K{number}": "v" * 256 for number in range(32)}
        for name in "abc":
            client("PUT", f"/c/{name}", b"x", **long)
        reserved.clear()
        assert [row["name"] for row in client("GET", "/c?format=json&limit=3").json] == ["a", "b", "c"]
        assert reserved == [3 * ROW_BYTES, 3 * HEAVY_ROW_BYTES]
        assert [row["name"] for row in client("GET", "/c?format=json").json] == ["a", "b", "c"]
        assert len(reserved) == 3  # 10,000 rows may take as much as these few
        client.close()
