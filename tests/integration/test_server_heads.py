"""Request lines and headers without end: answered with 431, not collected in memory."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncer.server.http.bounded_protocol import MAX_HEAD_BYTES
from tests.integration.live_server import Client, server_in_thread


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_in_thread(tmp_path_factory.mktemp("server") / "s") as found:
        yield found


def send(address: str, *pieces: bytes) -> bytes:
    """The first bytes of the answer; b"" if the server hangs up before the end of what is sent."""
    host, port = address.split(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
            answer = connection.recv(1000)
        except (ConnectionResetError, BrokenPipeError):
            pass
    return answer


HEAD = b"GET /v1/alice HTTP/1.1\r\nHost: h\r\n"
LONG = b"x" * (MAX_HEAD_BYTES // 4)


@pytest.mark.parametrize(
    "pieces",
    [
        [HEAD, *[b"A: " + LONG + b"\r\n"] * 5, b"\r\n"],
        [HEAD, b"A: ", *[LONG] * 5, b"\r\n\r\n"],
        [HEAD, *[b"A: " + LONG + b"\r\n"] * 100],
        [b"GET /", *[LONG] * 5, b" HTTP/1.1\r\nHost: h\r\n\r\n"],
    ],
)
def test_a_head_that_is_too_long_is_refused(address: str, pieces: list[bytes]) -> None:
    assert send(address, *pieces)[:12] in {b"HTTP/1.1 431", b""}


def test_what_is_no_request_is_still_told_so(address: str) -> None:
    assert send(address, b"\0\0\0\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_the_longest_head_that_is_allowed_is_taken(address: str) -> None:
    client = Client(address)
    client("PUT", "/c")
    meta = {f"X-Object-Meta-{number:0128d}": "%C3%A9" * 256 for number in range(32)}
    assert client("PUT", "/c/f", b"x", **meta).status == 201
    for _ in range(20):  # each request has its own bound
        assert client("POST", "/c/f", **meta).status == 202
    client("PUT", "/c/big", bytes(2 * MAX_HEAD_BYTES))  # a body does not count
    assert client("HEAD", "/c/big").headers["Content-Length"] == str(2 * MAX_HEAD_BYTES)
    client.close()


def test_blanks_around_a_value_are_not_of_it(address: str) -> None:
    client = Client(address)
    assert client("PUT", "/c").status in {201, 202}
    assert client("PUT", "/c/blanks", b"x", X_Object_Meta_K=" a b \t", Content_Type="t/t ").status == 201
    told = client("HEAD", "/c/blanks").headers
    assert (told["X-Object-Meta-K"], told["Content-Type"]) == ("a%20b", "t/t")
    client.token = "token-alice\t"
    assert client("HEAD", "/c/blanks").status == 200
    client.close()


def _unread(connection: socket.socket, port: int) -> int:
    """Bytes that the server at this port has not read yet; 0 also where it has hung up."""
    ends = [f":{each:04X}" for each in (port, connection.getsockname()[1])]
    for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, here, there, _, queues, *_ = row.split()
        if here.endswith(ends[0]) and there.endswith(ends[1]):
            return int(queues.partition(":")[2], 16)
    return 0


def talk(address: str, *pieces: bytes) -> bytes:
    """All that is answered until the server hangs up, or is silent."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        for piece in pieces:
            connection.sendall(piece)
            while _unread(connection, int(port)):  # each is read by itself
                time.sleep(0.005)
        answer = b""
        with contextlib.suppress(TimeoutError):
            while piece := connection.recv(1 << 16):
                answer += piece
    return answer


AUTH = b"Host: h\r\nX-Auth-Token: token-alice\r\n"
OFFER = AUTH + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


@pytest.mark.parametrize("method", [b"GET", b"PUT", b"DELETE"])
def test_a_name_with_a_bare_hash_sign_is_not_the_name_in_front_of_it(address: str, method: bytes) -> None:
    client = Client(address)
    client("PUT", "/c")
    client("PUT", "/c/a", b"mine")
    head = b" /v1/alice/c/a#b HTTP/1.1\r\n" + AUTH + b"Content-Length: 0\r\n\r\n"
    assert send(address, method + head).startswith(b"HTTP/1.1 400")
    assert client("GET", "/c/a").body == b"mine"
    client.close()


@pytest.mark.parametrize(
    "pieces",
    [
        [b"Content-Length: 11\r\n\r\nhello world"],
        [b"Content-Length: 11\r\n\r\n", b"hello ", b"world"],
        [b"Content-Length: 11\r\n\r\nhello ", b"world"],
        [b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"6\r\n world\r\n0\r\n\r\n"],
    ],
)
def test_a_body_behind_an_offer_of_http_2_is_stored(address: str, pieces: list[bytes]) -> None:
    client = Client(address)
    assert client("PUT", "/c").status in {201, 202}
    get = b"GET /v1/alice/c/offer HTTP/1.1\r\n" + AUTH + b"Connection: close\r\n\r\n"
    head = b"PUT /v1/alice/c/offer HTTP/1.1\r\n" + OFFER + pieces[0]
    answer = talk(address, head, *pieces[1:], get)
    assert answer.startswith(b"HTTP/1.1 201")
    assert answer.endswith(b"\r\n\r\nhello world")
    assert client("GET", "/c/offer").body == b"hello world"
    client.close()


def test_an_offer_of_http_2_with_an_empty_body_is_answered(address: str) -> None:
    assert talk(address, b"PUT /v1/alice/c HTTP/1.1\r\n" + OFFER + b"Content-Length: 0\r\n\r\n").startswith(
        b"HTTP/1.1 20"
    )


def test_a_broken_body_of_a_request_that_waits_is_not_the_reply_to_the_one_before(address: str) -> None:
    client = Client(address)
    assert client("PUT", "/c").status in {201, 202}
    content = bytes(8 << 20)
    client("PUT", "/c/long", content)
    client.close()
    broken = b"PUT /v1/alice/c/broken HTTP/1.1\r\n" + AUTH + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n"
    answer = talk(address, b"GET /v1/alice/c/long HTTP/1.1\r\n" + AUTH + b"\r\n" + broken)
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.partition(b"\r\n\r\n")[2] == content
