"""Attacks by those who have no token, on a real server process: what they cost it, and that nobody is locked out."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.live_server import BEFORE_THEY_GO_S, BLOCKSYNC, TOKENS, ServerProcess, private_text

SILENT = 1300
MEBIBYTE = 1 << 20


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that was given 1,024 descriptors and may have more."""
    file = private_text(tmp_path / "tokens", TOKENS)
    command = ["prlimit", "--nofile=1024:8192", BLOCKSYNC, "serve", str(tmp_path / "s"), "--token-file", str(file)]
    with ServerProcess([*command, "--listen", "127.0.0.1:0", "--block-size", "4096"]) as started:
        assert started.client()("PUT", "/c").status == 201
        yield started


def connect(server: ServerProcess) -> socket.socket:
    host, port = server.address.split(":")
    return socket.create_connection((host, int(port)), timeout=120)


def push(line: socket.socket, piece: bytes, total: int) -> int:
    """Send a piece again and again until so much is sent, or the server hangs up, or takes no more for a while."""
    line.settimeout(3)
    sent = 0
    try:
        while sent < total:
            line.sendall(piece)
            sent += len(piece)
    except OSError:
        pass
    return sent


def answered_within(server: ServerProcess, seconds: float) -> bool:
    host, port = server.address.split(":")
    line = http.client.HTTPConnection(host, int(port), timeout=seconds)
    began = time.monotonic()
    try:
        line.request("HEAD", "/v1/alice/c", headers={"X-Auth-Token": "token-alice"})
        return line.getresponse().status == 204 and time.monotonic() - began < seconds
    except OSError:
        return False
    finally:
        line.close()


@pytest.mark.parametrize("hard", [1024, 8192])
def test_a_client_gets_in_beside_1300_silent_connections_from_its_own_address(tmp_path: Path, hard: int) -> None:
    """Also where the host does not let us have more than 1,024 descriptors."""
    file = private_text(tmp_path / "tokens", TOKENS)
    command = ["prlimit", f"--nofile=1024:{hard}", BLOCKSYNC, "serve", str(tmp_path / "s"), "--token-file", str(file)]
    with ServerProcess([*command, "--listen", "127.0.0.1:0"]) as server:
        known = server.client()
        known("PUT", "/c")
        lines = [connect(server) for _ in range(SILENT)]
        try:
            # Three in a row of 30 tries: a busy machine is slow now and then, who is kept out is so each time.
            assert "yyy" in "".join("ny"[answered_within(server, 2.0)] for _ in range(30))
            before = known("HEAD", "/c")  # on the connection from before all of them, which was never ended
            assert before.status == 204
            assert known.reconnects == 0
        finally:
            for line in lines:
                line.close()
        _, errors = server.end(signal.SIGTERM)
    assert len(errors) < 20_000
    refused = [line for line in errors.splitlines() if "connection.refused" in line]
    if hard == 1024:
        assert json.loads(refused[0])["client"] == "127.0.0.1"


def test_new_silent_connections_all_the_time_do_not_keep_a_client_out(server: ServerProcess) -> None:
    """A client shows its token within its first bytes: the flood would have to replace all strangers meanwhile."""
    stop = threading.Event()

    def flood() -> None:
        lines: list[socket.socket] = []
        while not stop.is_set():
            try:
                lines.append(connect(server))
            except OSError:
                continue
            if len(lines) > SILENT:
                lines.pop(0).close()
        for line in lines:
            line.close()

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        # On a busy machine the flood may run while the client does not.
        assert "y" * 10 in "".join("ny"[answered_within(server, 5.0)] for _ in range(100))
    finally:
        stop.set()
        thread.join()


def test_pipelined_requests_are_not_collected(server: ServerProcess) -> None:
    before = server.anonymous_bytes()
    with connect(server) as line:
        push(line, b"GET / HTTP/1.1\r\n\r\n" * 10_000, 20 * MEBIBYTE)
        assert server.anonymous_bytes() - before < 64 * MEBIBYTE
    assert server.client()("HEAD", "/c").status == 204


def test_a_few_pipelined_requests_are_answered_in_order(server: ServerProcess) -> None:
    with connect(server) as line:
        for number in range(8):
            line.sendall(b"GET /v1/alice/c?limit=%d HTTP/1.1\r\nX-Auth-Token: token-alice\r\n\r\n" % (number % 2))
        received = b""
        while received.count(b"HTTP/1.1 ") < 8:
            received += line.recv(65536)
    statuses = [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"400", b"204"] * 4


def test_too_many_pipelined_requests_end_the_connection_behind_the_replies_to_the_first(server: ServerProcess) -> None:
    with connect(server) as line:
        line.sendall(b"GET /v1/alice/c HTTP/1.1\r\nX-Auth-Token: token-alice\r\n\r\n" * 100)
        received = b""
        while piece := line.recv(65536):
            received += piece
    assert 16 <= received.count(b"HTTP/1.1 204") < 100
    assert b"connection: close" in received.rpartition(b"HTTP/1.1 ")[2]


CHUNKED = b"POST /v1/alice/c HTTP/1.1\r\nX-Auth-Token: %s\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("token", [b"token-alice", b"wrong"])
@pytest.mark.parametrize(
    "endless", [b"0\r\nA: " + b"x" * 65536, b"0\r\n" + b"A: b\r\n" * 8192, b"1;" + b"x" * 65536, b"0" * 65536]
)
def test_what_stands_around_a_body_has_a_bound(server: ServerProcess, token: bytes, endless: bytes) -> None:
    """A trailer, many trailers, the extension of a chunk, the digits of its length: none of them may be endless."""
    before = server.anonymous_bytes()
    with connect(server) as line:
        line.sendall(CHUNKED % token + endless)
        assert push(line, endless[4:], 64 * MEBIBYTE) < 64 * MEBIBYTE
    assert server.anonymous_bytes() - before < 32 * MEBIBYTE


def test_a_trailer_is_no_header(server: ServerProcess) -> None:
    """Behind the body nothing is told of the request any more: least of all who asks."""
    head = b"PUT /v1/alice/c/f HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connect(server) as line:
        line.sendall(head + b"1\r\nx\r\n0\r\nX-Auth-Token: token-alice\r\n\r\n")
        assert line.recv(1000).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    "head", [b"A: b\r\n" * 5000, b"A: " + b"x" * 300_000, b"".join(b"A%d: b\r\n" % n for n in range(200))]
)
def test_unfinished_heads_of_many_connections_have_a_bound_together(server: ServerProcess, head: bytes) -> None:
    before = server.anonymous_bytes()
    lines = [connect(server) for _ in range(600)]
    try:
        for line in lines:
            push(line, b"GET / HTTP/1.1\r\n" + head[: 250 * 1024], 1)
        assert server.anonymous_bytes() - before < 256 * MEBIBYTE
        assert any(answered_within(server, BEFORE_THEY_GO_S) for _ in range(5))
    finally:
        for line in lines:
            line.close()


FIELDS = b"".join(b"h%d: %s\r\n" % (number, b"x" * 2000) for number in range(120))


def lingering(server: ServerProcess, target: bytes, body: bytes, said: bytes) -> int:
    """Bytes that 500 strangers cost whose heads are complete and whose bodies are not."""
    before = server.anonymous_bytes()
    lines = [connect(server) for _ in range(500)]
    try:
        for line in lines:
            push(line, target + b" HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n" + FIELDS + b"\r\n" + body, 1)
            if said:
                assert line.recv(12) == said
        assert any(answered_within(server, BEFORE_THEY_GO_S) for _ in range(5))
        return server.anonymous_bytes() - before
    finally:
        for line in lines:
            line.close()


@pytest.mark.parametrize("body", [b"", b"x" * 60_000])
def test_what_was_refused_is_not_kept_while_the_rest_of_its_body_is_waited_for(
    server: ServerProcess, body: bytes
) -> None:
    """Breaks when heads, or what came of bodies, stay with connections that linger: 1,500 of them were 400 MiB."""
    assert lingering(server, b"PUT /v1/a/c/o", body, b"HTTP/1.1 401") < 48 * MEBIBYTE


def test_complete_heads_that_wait_for_their_replies_have_a_bound_together(server: ServerProcess) -> None:
    """Breaks when a head counts only until it is complete: a token request waits for its body."""
    assert lingering(server, b"POST /identity/v2.0/tokens", b"", b"") < 112 * MEBIBYTE


def test_a_client_that_sends_its_body_before_it_reads_gets_its_401(server: ServerProcess) -> None:
    """Breaks when a refused connection is reset, not read out: the reply would be lost."""
    body = bytes(8 * MEBIBYTE)
    with connect(server) as line:
        for _ in range(2):  # the connection goes on behind it
            line.sendall(b"PUT /v1/alice/c/o HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            assert line.recv(65536).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip", "identity", "chunked, chunked", "deflate,chunked"])
def test_a_packed_body_is_501_and_nothing_is_stored(server: ServerProcess, coding: str) -> None:
    with connect(server) as line:
        head = f"PUT /v1/alice/c/packed HTTP/1.1\r\nX-Auth-Token: token-alice\r\nTransfer-Encoding: {coding}\r\n\r\n"
        line.sendall(head.encode() + b"1\r\nx\r\n0\r\n\r\n")
        answer = line.recv(1000)
    # Where the last coding is not `chunked`, or another one is, the body has no end that one could rely on: 400.
    assert answer[9:12] == b"501" or (coding in {"gzip", "identity", "chunked, chunked"} and answer[9:12] == b"400")
    assert server.client()("HEAD", "/c/packed").status == 404


def test_two_lengths_of_one_body_are_refused(server: ServerProcess) -> None:
    for fields in (b"Content-Length: 1\r\nTransfer-Encoding: chunked", b"Content-Length: 1\r\nContent-Length: 2"):
        with connect(server) as line:
            line.sendall(
                b"PUT /v1/alice/c/two HTTP/1.1\r\nX-Auth-Token: token-alice\r\n" + fields + b"\r\n\r\n0\r\n\r\n"
            )
            assert line.recv(1000).startswith(b"HTTP/1.1 400")
    assert server.client()("HEAD", "/c/two").status == 404


def test_what_strangers_cause_is_logged_with_their_address_and_not_without_end(server: ServerProcess) -> None:
    for _ in range(200):
        with connect(server) as line:
            line.sendall(b"\0\0\r\n\r\n")
            line.recv(100)
        assert server.client(token="wrong")("HEAD", "/c").status == 401
    _, errors = server.end(signal.SIGTERM)
    lines = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    assert 2 <= len(lines) <= 20
    assert {line["event"] for line in lines} == {"request.refused", "token.refused"}
    assert {line["client"] for line in lines} == {"127.0.0.1"}
    assert "wrong" not in errors


@pytest.mark.parametrize("target", [b"GET http://host", b"GET http://[::1", b"GET http://host?x", b"CONNECT host:1"])
def test_a_target_without_a_path_is_400_and_logged_like_all_that_strangers_cause(
    server: ServerProcess, target: bytes
) -> None:
    for _ in range(30):
        with connect(server) as line:
            line.sendall(target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            assert line.recv(1000).startswith(b"HTTP/1.1 400")
    with connect(server) as line:  # behind a request: its reply comes, then the end
        line.sendall(b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n" + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert line.makefile("rb").read().count(b"HTTP/1.1 200 OK") == 1
    _, errors = server.end(signal.SIGTERM)
    lines = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    assert 1 <= len(lines) <= 10
    assert {line["event"] for line in lines} == {"request.refused"}


# --- time, on a server that is less patient


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess.impatient(tmp_path / "s") as started:
        assert started.client()("PUT", "/c").status == 201
        yield started


def drip(line: socket.socket, data: Callable[[], bytes]) -> bytes:
    """Send a byte now and then until the server hangs up; what it said."""
    line.settimeout(0.05)
    said = b""
    while True:
        try:
            line.sendall(data())
            piece = line.recv(1000)
            if not piece:
                return said
            said += piece
        except TimeoutError:
            continue
        except OSError:
            return said


@pytest.mark.parametrize(
    ("before", "piece", "status"),
    [
        (b"", b"", b""),  # silence
        (b"GET /v1/alice HTTP/1.1\r\nA: ", b"x", b"408"),
        (b"GET /v1/alice HTTP/1.1\r\n\r\n", b"", b"401"),  # silence after a reply
        (b"GET /v1/alice HTTP/1.1\r\n\r\n", b"\r\n", b"401"),  # what is no request yet
        (b"GET /v1/alice HTTP/1.1\r\n\r\nGET /", b"x", b"401"),
        (b"PUT /v1/alice/c/f HTTP/1.1\r\nContent-Length: 100000\r\n\r\n", b"x", b"401"),  # a body that nobody reads
        (b"PUT /v1/alice/c/f HTTP/1.1\r\nX-Auth-Token: token-alice\r\nContent-Length: 100000\r\n\r\n", b"x", b"408"),
        (b"POST /identity/v2.0/tokens HTTP/1.1\r\nContent-Length: 10000\r\n\r\n", b"x", b"408"),
    ],
)
def test_whoever_goes_on_too_slowly_is_hung_up(
    impatient: ServerProcess, before: bytes, piece: bytes, status: bytes
) -> None:
    with connect(impatient) as line:
        line.sendall(before)
        assert drip(line, lambda: piece)[9:12] == status


def test_a_reader_that_takes_nothing_is_hung_up(impatient: ServerProcess) -> None:
    impatient.client()("PUT", "/c/big", bytes(range(256)) * (64 << 10))
    with connect(impatient) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.sendall(b"GET /v1/alice/c/big HTTP/1.1\r\nX-Auth-Token: token-alice\r\n\r\n")
        assert impatient.says("reader.stalled")
        impatient.client()("GET", "/c")  # it is closed in the same turn of the loop, or the next
        assert not impatient.is_connected_to(line)


def test_connections_that_ended_hold_no_heads(server: ServerProcess) -> None:
    """Breaks when the head of a request stays with its connection until Python looks for cycles: 3,000 were 640 MB."""
    fields = b"".join(b"X-%d: %s\r\n" % (number, bytes([97]) * 60_000) for number in range(4))
    before = server.anonymous_bytes()
    for _ in range(200):
        with connect(server) as line:
            line.sendall(b"GET /v1/alice HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n")
            assert line.recv(12) == b"HTTP/1.1 401"
    assert server.anonymous_bytes() - before < 20 << 20
