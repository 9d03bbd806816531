"""`Expect: 100-continue`: who refuses at once is not sent the body."""

from __future__ import annotations

import contextvars
import functools
from http.client import HTTPException

import pytest
import trio

from syncer.ports.remote import Counters
from syncer.remote.http import expecting
from syncer.remote.http.address import parse_address
from syncer.remote.http.transport import HttpSettings, HttpTransport, Reply, Request
from tests.fakes.httpscript import CERTIFICATE, Answer, Arrived, serving

BODY = bytes(range(256)) * 20_000  # 5 MB
EXPECT = {"Expect": "100-continue"}


async def send(url: str, *requests: Request) -> list[Reply]:
    settings = HttpSettings(ca_file=str(CERTIFICATE) if url.startswith("https:") else None)
    transport = HttpTransport(parse_address(url), None, settings, Counters())
    try:
        return [await transport.send(request) for request in requests]
    finally:
        transport.close()


def put(body: object = BODY, headers: dict[str, str] = EXPECT) -> Request:
    return Request(method="PUT", target="/x", headers=headers, body=body)


@pytest.mark.parametrize("tls", [False, True])
def test_a_body_that_is_wanted_arrives(tls: bool) -> None:
    with serving(lambda _: Answer(201, b"made"), tls=tls) as script:
        replies = trio.run(send, script.url, put(), put([BODY, b"", b"more"]), put(b"small", {}))
    assert [(reply.status, reply.body) for reply in replies] == [(201, b"made")] * 3
    assert [one.body for one in script.arrived] == [BODY, BODY + b"more", b"small"]
    assert script.connections == 1


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("body", [b"", b"it is there" * 1000])
def test_a_body_that_is_refused_stays_here_and_the_next_request_is_answered(body: bytes, tls: bool) -> None:
    """Breaks when 16 MiB are sent for nothing, or when a connection is used that waits for them."""

    def decide(arrived: Arrived) -> Answer:
        return Answer(412, body, {"X-Why": "there"}, early=True) if arrived.method == "PUT" else Answer(200, b"yes")

    with serving(decide, tls=tls) as script:
        replies = trio.run(send, script.url, put(), Request(method="GET", target="/y"), put(), put())
    assert [(reply.status, reply.body) for reply in replies] == [(412, body), (200, b"yes"), (412, body), (412, body)]
    assert replies[0].headers["x-why"] == "there"
    assert [one.body for one in script.arrived] == [None, b"", None, None]


def test_a_server_that_knows_nothing_of_it_is_sent_the_body_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expecting, "_ASKED_WITHIN_S", 0.02)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(functools.partial(trio.serve_listeners, old_server, listeners))
            port = listeners[0].socket.getsockname()[1]
            assert (await send(f"http://127.0.0.1:{port}", put()))[0].status == 201
            nursery.cancel_scope.cancel()

    got = bytearray()

    async def old_server(stream: trio.SocketStream) -> None:
        while len(got) < len(BODY) or not got.endswith(BODY[-1000:]):
            got.extend(await stream.receive_some())
        await stream.send_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")

    trio.run(main)
    assert bytes(got).endswith(b"\r\n\r\n" + BODY)


def test_a_request_that_nobody_waits_for_any_more_ends_with_its_connection() -> None:
    """Breaks when a write that was given up arrives later, over a newer one, or keeps its thread until a time-out."""
    got = bytearray()

    async def main() -> None:
        ended, began = trio.Event(), trio.Event()

        async def server(stream: trio.SocketStream) -> None:
            async for data in stream:
                got.extend(data)
                began.set()
                if len(got) > 1000:
                    await trio.sleep(0.001)
            ended.set()

        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(functools.partial(trio.serve_listeners, server, listeners))
            url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            transport = HttpTransport(parse_address(url), None, HttpSettings(read_timeout_s=3600.0), Counters())
            async with trio.open_nursery() as sending:
                sending.start_soon(transport.send, put(BODY * 10, {}))
                await began.wait()
                sending.cancel_scope.cancel()
            with trio.fail_after(60):
                await ended.wait()
            transport.close()
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert len(got) < 10 * len(BODY)


def test_a_request_that_was_given_up_while_it_connects_is_never_sent() -> None:
    leash = expecting.Leash()
    leash.cut()
    with serving(lambda _: Answer(200)) as script:
        address = parse_address(script.url)
        line = expecting.ExpectingConnection(address.host, address.port)
        with pytest.raises(HTTPException, match="nobody waits"):
            contextvars.copy_context().run(sent_on, line, leash)
        line.close()
    assert script.arrived == []


def sent_on(line: expecting.ExpectingConnection, leash: expecting.Leash) -> None:
    expecting.LEASH.set(leash)
    line.request("PUT", "/x", body=b"late")
