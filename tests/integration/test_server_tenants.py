"""What one account can do to a server's memory and to the others, on a real process: bounds, and latency as a ratio."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Self

import pytest

from tests import effort
from tests.integration.live_server import BLOCK, Client, ServerProcess

MEBIBYTE = 1 << 20
TRIALS = 8  # at most
EMPTY = sha256(b"").hexdigest()
BLOCKS = effort.count("hashmaps at once")
LONGEST = effort.count("a file as long as may be")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess.serve(tmp_path / "s") as started:
        for token, account in (("token-alice", "alice"), ("token-bob", "bob")):
            assert started.client(token, account)("PUT", "/c").status == 201
        yield started


class Peak:
    """The most memory of a process while a block runs, looked at all the time."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._before = self._most = server.anonymous_bytes()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            self._most = max(self._most, self._server.anonymous_bytes())

    @property
    def grown(self) -> int:
        return self._most - self._before

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def hashmap(blocks: int, item: Callable[[int], str]) -> Iterator[bytes]:
    """A hashmap, piece by piece: ours is not the memory that is measured."""
    yield b'{"bytes":%d,"hashes":["' % (blocks * BLOCK)
    step = 4096
    for first in range(0, blocks, step):
        if first:
            yield b'","'
        yield '","'.join([item(index) for index in range(first, min(blocks, first + step))]).encode()
    yield b'"]}'


def put_hashmap(server: ServerProcess, path: str, blocks: int, item: Callable[[int], str]) -> tuple[int, int]:
    """Status, and how many blocks are missing. Who is told to come back later (429) does, as every client should.

    A client that still sends half a minute after that answer, as this one may on a slow machine, is hung up instead.
    """
    while True:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            told = put_hashmap_once(server, path, blocks, item)
            if told[0] != HTTPStatus.TOO_MANY_REQUESTS:
                return told


def put_hashmap_once(server: ServerProcess, path: str, blocks: int, item: Callable[[int], str]) -> tuple[int, int]:
    line = http.client.HTTPConnection(server.address, timeout=280)
    try:
        fields = {"X-Auth-Token": "token-bob", "Content-Type": "application/octet-stream"}
        line.request("PUT", f"/v1/bob{path}?hashmap&format=json", hashmap(blocks, item), fields, encode_chunked=True)
        reply = line.getresponse()
        missing = 0
        while piece := reply.read(MEBIBYTE):
            missing += piece.count(b",")
        return reply.status, missing + (reply.status == 409)
    finally:
        line.close()


def distinct(index: int) -> str:
    return f"{index + 1:064x}"


def test_a_file_of_very_many_blocks_is_taken_and_given_in_bounded_memory(server: ServerProcess) -> None:
    """2^24 of them are 1 TiB in blocks of 64 KiB. Most are holes; the rest is here one leaf's worth of blocks."""
    bob = server.client("token-bob", "bob")
    ids = bob.upload("c", *(b"%d" % number for number in range(256)))
    with Peak(server) as peak:
        status, _ = put_hashmap(
            server, "/c/big", LONGEST, lambda index: ids[index % 256] if index % 8192 < 256 else EMPTY
        )
        assert status == 201
        assert bob("HEAD", "/c/big").headers["Content-Length"] == str(BLOCK * LONGEST)
        line = http.client.HTTPConnection(server.address, timeout=280)
        line.request("GET", "/v1/bob/c/big?hashmap&format=json", headers={"X-Auth-Token": "token-bob"})
        reply, total = line.getresponse(), 0
        while piece := reply.read(MEBIBYTE):
            total += piece.count(b",")
        line.close()
        part = bob("GET", "/c/big", Range=f"bytes={(8192 + 7) * BLOCK}-{(8192 + 7) * BLOCK}")
        assert part.body == b"7"
    assert total == LONGEST + 2  # those between the ids, and three more
    print(f"grown by {peak.grown >> 20} MiB")
    assert peak.grown < 192 * MEBIBYTE


def test_long_hashmaps_at_once_cost_neither_memory_nor_the_others_their_answers(server: ServerProcess) -> None:
    """Three at once, each of whose blocks is missing: they were 4.9 GB, and others waited for 22 s."""
    alice = server.client()
    alice("PUT", "/c/small", b"x")

    def trial() -> tuple[list[float], list[float]]:
        quiet = latencies(alice, 400)
        with Peak(server) as peak, ThreadPoolExecutor(3) as pool:
            running = [pool.submit(put_hashmap, server, f"/c/{n}", BLOCKS, distinct) for n in range(3)]
            busy = []
            while not all(one.done() for one in running):
                busy += latencies(alice, 20)
            for one in running:
                assert one.result() == (409, BLOCKS)
        print(f"grown by {peak.grown >> 20} MiB")
        assert peak.grown < 384 * MEBIBYTE
        return quiet, busy

    assert_not_disturbed(trial)


def test_a_hundred_bytes_about_2_24_holes_do_not_cost_the_others_their_answers(server: ServerProcess) -> None:
    """Breaks when a request is short because its body is: another account's p99 went from 13 to 647 ms."""
    alice = server.client()
    alice("PUT", "/c/small", b"x")
    head = json.dumps({"bytes": BLOCK << 24, "block_size": BLOCK, "block_hash": "sha256"}).encode() + b"\n"

    def trial() -> tuple[list[float], list[float]]:
        quiet, stop = latencies(alice, 400), threading.Event()

        def puts(number: int) -> None:
            bob = server.client("token-bob", "bob")
            while not stop.is_set():
                made = bob("PUT", f"/c/{number}?hashmap&format=binary", head, Content_Type="a/b")
                assert made.status == 201

        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(puts, number) for number in range(4)]
            try:
                busy = latencies(alice, 400)
            finally:
                stop.set()
            for one in running:
                one.result()
        return quiet, busy

    assert_not_disturbed(trial)


def test_a_long_list_in_binary_is_read_as_it_comes_too(server: ServerProcess) -> None:
    """Also what it has for holes: a splice at the end of 2^24 blocks is 16 bytes of body and 512 MiB of ids."""
    bob = server.client("token-bob", "bob")
    (own,) = bob.upload("c", b"x")

    def body(size: int, *splices: tuple[int, bytes]) -> bytes:
        head = {"bytes": size * BLOCK, "block_size": BLOCK, "block_hash": "sha256"}
        parts = [b"%s%s%s" % (at.to_bytes(8), (len(ids) // 32).to_bytes(8), ids) for at, ids in splices]
        return json.dumps(head).encode() + b"\n" + b"".join(parts)

    unknown = b"".join(sha256(b"%d" % number).digest() for number in range(1 << 17))
    known = bytes.fromhex(own) * (1 << 17)
    with Peak(server) as peak:
        query = "?hashmap&format=binary"
        reply = bob("PUT", f"/c/f{query}", body(LONGEST, (5, unknown)), Content_Type="a/b")
        assert (reply.status, reply.body) == (409, unknown)
        end = LONGEST - (1 << 17)
        assert bob("PUT", f"/c/f{query}", body(LONGEST, (end, known)), Content_Type="a/b").status == 201
        assert bob("GET", "/c/f", Range=f"bytes={end * BLOCK - 1}-{end * BLOCK}").body == b"\0x"
        assert bob("PUT", f"/c/g{query}", body(LONGEST, (end, known[:64])), Content_Type="a/b").status == 201
    assert peak.grown < 192 * MEBIBYTE


def latencies(client: Client, requests: int) -> list[float]:
    """Seconds of small requests, reading and writing."""
    found = []
    for number in range(requests):
        began = time.perf_counter()
        if number % 4:
            assert client("HEAD", "/c/small").status == 200
        else:
            assert client("PUT", "/c/small", b"%d" % number).status == 201
        found.append(time.perf_counter() - began)
    return found


def assert_not_disturbed(trial: Callable[[], tuple[list[float], list[float]]]) -> None:
    """The p99 of a trial is at most five times the quiet one, or 50 ms.

    What holds others up (it was 22 s) does so in each trial; what else the machine does, it does not.
    """
    told: list[str] = []
    for _ in range(TRIALS):
        before, then = (statistics.quantiles(times, n=100)[98] for times in trial())
        told.append(f"p99 {before:.4f} s, then {then:.4f} s")
        if then <= 5 * max(before, 0.01):
            print(told)
            return
    raise AssertionError(told)


def test_a_head_of_a_manifest_over_a_thousand_long_segments_makes_no_lists(server: ServerProcess) -> None:
    """Each segment has 2^22 blocks of holes: together 128 MiB of ids' names, or 128 GiB of ids."""
    bob = server.client("token-bob", "bob")
    body = b"".join(hashmap(1 << 20, lambda _: EMPTY))
    assert bob("PUT", "/c/seg/0000?hashmap&format=json", body, Content_Type="a/b").status == 201
    for number in range(1, 300):
        assert bob("COPY", "/c/seg/0000", Destination=f"/c/seg/{number:04d}").status == 201
    line = http.client.HTTPConnection(server.address, timeout=280)
    fields = {"X-Auth-Token": "token-bob"}
    line.request("PUT", "/swift/v1/bob/c/all", b"", {**fields, "X-Object-Manifest": "c/seg/"})
    assert line.getresponse().read() == b""

    def head(_: int) -> str | None:
        other = http.client.HTTPConnection(server.address, timeout=280)
        other.request("HEAD", "/swift/v1/bob/c/all", headers=fields)
        length = other.getresponse().headers["Content-Length"]
        other.close()
        return length

    with Peak(server) as peak, ThreadPoolExecutor(20) as pool:
        assert set(pool.map(head, range(100))) == {str(300 * BLOCK << 20)}
    line.close()
    assert peak.grown < 64 * MEBIBYTE


def test_200_slow_readers_have_a_bound_together_and_the_others_are_served(server: ServerProcess) -> None:
    bob, alice = server.client("token-bob", "bob"), server.client()
    assert bob("PUT", "/c/big", bytes(range(256)) * (64 << 10)).status == 201
    alice("PUT", "/c/small", b"x")
    host, port = server.address.split(":")

    def trial() -> tuple[list[float], list[float]]:
        quiet = latencies(alice, 200)
        with Peak(server) as peak:
            lines = []
            for _ in range(200):
                line = socket.socket()
                line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                line.connect((host, int(port)))
                line.sendall(b"GET /v1/bob/c/big HTTP/1.1\r\nX-Auth-Token: token-bob\r\n\r\n")
                lines.append(line)
            busy = latencies(alice, 600)
            assert alice("GET", "/c/small").status == 200
            for line in lines:
                line.close()
        assert peak.grown < 400 * MEBIBYTE
        return quiet, busy

    assert_not_disturbed(trial)
    assert bob("HEAD", "/c/big").status == 200


def test_an_account_that_uses_all_its_memory_is_told_to_come_back(tmp_path: Path) -> None:
    """429 with Retry-After, after a while, and only for this account; then it goes on."""
    with ServerProcess.impatient(tmp_path / "s") as server:
        bob, alice = server.client("token-bob", "bob"), server.client()
        for client in (bob, alice):
            client("PUT", "/c")
        host, port = server.address.split(":")
        head = b"POST /v1/bob/c?bulk HTTP/1.1\r\nX-Auth-Token: token-bob\r\nContent-Length: 60000000\r\n\r\n{"
        while True:  # until the server has read this head before it reads bob's, and has not given it up meanwhile
            with socket.create_connection((host, int(port))) as held:
                held.sendall(head)
                seen = bob("POST", "/c?bulk", b"x" * 30_000_000)
                if seen.status == 429:
                    assert alice("POST", "/c?bulk", b"x\n").status == 400
                    break
        assert seen.fault == "tooManyRequests"
        assert int(seen.headers["Retry-After"]) > 0
        while bob("POST", "/c?bulk", b"x" * 30_000_000).status == 429:
            pass  # until the server has seen that the other one is gone


def test_contents_that_announce_nothing_are_bounded_too(server: ServerProcess) -> None:
    """Bodies without a length, sent slowly, at once: each waits for its share."""
    with Peak(server) as peak:
        lines = []
        host, port = server.address.split(":")
        for number in range(100):
            line = socket.create_connection((host, int(port)))
            line.sendall(
                b"POST /v1/bob/c?bulk HTTP/1.1\r\nX-Auth-Token: token-bob\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            line.settimeout(0.2)
            try:
                for _ in range(10):
                    line.sendall(b"100000\r\n" + bytes(MEBIBYTE) + b"\r\n")
            except TimeoutError:
                pass
            lines.append(line)
            if number > 20:
                break
        for line in lines:
            line.close()
    assert peak.grown < 384 * MEBIBYTE
    _, errors = server.end(signal.SIGTERM)
    assert json.dumps("Traceback") not in errors
