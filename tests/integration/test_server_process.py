"""`blocksync serve` as a process: readiness, signals, locks, and being killed at any moment."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.live_server import BLOCK, BLOCKSYNC, Client, ServerProcess


def serve(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A start that is to fail."""
    command = [BLOCKSYNC, "serve", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_cleanly_and_nothing_is_lost(tmp_path: Path, number: int, code: int) -> None:
    with ServerProcess.serve(tmp_path / "s") as server:
        client = server.client()  # its connection stays open: that must not hold the end up
        client("PUT", "/c")
        version = client("PUT", "/c/f", b"data").version
        assert server.end(number) == (code, f"tokens: {tmp_path / 'tokens'}\n")
    with ServerProcess.serve(tmp_path / "s") as again:
        reply = again.client()("GET", "/c/f")
        assert (reply.body, reply.version) == (b"data", version)


def test_without_a_token_file_it_makes_one(tmp_path: Path) -> None:
    with ServerProcess([BLOCKSYNC, "serve", str(tmp_path / "s"), "--listen", "127.0.0.1:0", "--json"]) as server:
        ready = json.loads(server.ready_line)
        assert (ready["type"], ready["version"]) == ("listening", 1)
        token_file = Path(ready["token_file"])
        assert token_file == tmp_path / "s" / "token"
        assert token_file.stat().st_mode & 0o777 == 0o600
        server.address = ready["url"].removeprefix("http://")
        reply = server.client(*token_file.read_text().split())("PUT", "/c")
        assert reply.headers["X-Container-Block-Size"] == "65536"
        assert server.end(signal.SIGTERM)[0] == 0


def test_requests_are_logged_only_when_asked_for(tmp_path: Path) -> None:
    for options, logged in (((), False), (("--verbose",), True)):
        with ServerProcess.serve(tmp_path / "s", *options) as server:
            server.client()("PUT", "/c/secret-name", b"secret-data")
            _, errors = server.end(signal.SIGTERM)
        assert ("request.served" in errors) == logged
        assert "token-alice" not in errors
        assert "secret-data" not in errors


def test_a_second_server_on_the_folder_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    with ServerProcess.serve(tmp_path / "s") as server:
        second = serve(tmp_path / "s", "--listen", "127.0.0.1:0")
        assert (second.returncode, second.stdout) == (11, "")
        assert str(server.process.pid) in second.stderr
        assert server.client()("PUT", "/c").status == 201


def _check_refused(code: int, arguments: Sequence[str | Path]) -> None:
    ended = serve(*arguments)
    assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
    assert "Traceback" not in ended.stderr


def test_what_is_wrong_with_the_start_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad-tokens").write_text("only-a-token\n")
    (tmp_path / "file").write_text("no folder")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cases = [
            (2, (tmp_path / "s", "--listen", "nowhere")),
            (2, (tmp_path / "s", "--listen", f"127.0.0.1:{5000 * '9'}")),
            (2, (tmp_path / "s", "--listen", "127.0.0.1:0", "--block-size", "5000")),
            (2, (tmp_path / "s", "--listen", "127.0.0.1:0", "--token-file", tmp_path / "bad-tokens")),
            (10, (tmp_path / "s", "--listen", "127.0.0.1:0", "--token-file", tmp_path / "none")),
            (2, (tmp_path / "file", "--listen", "127.0.0.1:0")),
            (2, (tmp_path / "file" / "s", "--listen", "127.0.0.1:0")),
        ]
        later = [
            (11, (tmp_path / "s", "--listen", f"127.0.0.1:{port}")),
            (2, (tmp_path / "s", "--listen", "192.0.2.1:0")),
            (2, (tmp_path / "s", "--listen", "127.0.0.1:0", "--block-size", "4KiB")),
        ]
        for code, arguments in cases:
            _check_refused(code, arguments)
            assert not (tmp_path / "s").exists(), "a mistake on the command line makes no folder"
        for code, arguments in later:
            _check_refused(code, arguments)


def test_a_damaged_catalogue_is_exit_15(tmp_path: Path) -> None:
    with ServerProcess.serve(tmp_path / "s") as server:
        server.end(signal.SIGTERM)
    (tmp_path / "s" / "catalogue" / "data.mdb").write_bytes(os.urandom(1 << 16))
    ended = serve(tmp_path / "s", "--listen", "127.0.0.1:0")
    assert ended.returncode == 15
    assert "data.mdb" in ended.stderr


# --- kill -9


@dataclass
class Pusher:
    """One client with names of its own, and what the server has promised it.

    Attributes:
        promised: Every version that was acknowledged: (name, version) → its bytes.
        current: Name → bytes that the last acknowledged request left there, None for deleted.
        pending: What the request in flight would leave there.
    """

    number: int
    random: random.Random
    promised: dict[tuple[str, int], bytes] = field(default_factory=dict)
    current: dict[str, bytes | None] = field(default_factory=dict)
    pending: dict[str, bytes | None] = field(default_factory=dict)
    acknowledged: int = 0

    def run(self, client: Client, counted: threading.Semaphore) -> None:
        """Push until the server is gone."""
        try:
            while True:
                self.step(client)
                self.pending = {}
                self.acknowledged += 1
                counted.release()
        except (ConnectionError, http.client.HTTPException):
            return

    def step(self, client: Client) -> None:
        name = f"{self.number}/{self.random.randrange(6)}"
        act = self.random.choice([self.put, self.put, self.hashmap, self.hashmap, self.move, self.delete])
        act(client, name)

    def content(self) -> bytes:
        """Blocks that are partly shared between objects and pushers, now and then more than a leaf of them."""
        letters = [self.random.choice(b"abcdefgh") for _ in range(self.random.choice([1, 3, 10, 300]))]
        blocks = [bytes([letter]) * 8 + bytes(BLOCK - 8) for letter in letters]
        return b"".join(blocks)[: -self.random.randrange(BLOCK)] if len(blocks) > 1 else self.random.randbytes(5000)

    def put(self, client: Client, name: str) -> None:
        data = self.content()
        self.pending = {name: data}
        reply = client("PUT", f"/c/{name}", data)
        assert reply.status == 201
        self.promise(name, reply.version, data)

    def hashmap(self, client: Client, name: str) -> None:
        data = self.content()
        blocks = [data[start : start + BLOCK] for start in range(0, len(data), BLOCK)]
        by_id = {hashlib.sha256(block.rstrip(b"\0")).hexdigest(): block for block in blocks}
        ids = [hashlib.sha256(block.rstrip(b"\0")).hexdigest() for block in blocks]
        self.pending = {name: data}
        while True:
            reply = client.put_hashmap(f"/c/{name}", len(data), ids)
            if reply.status == 201:
                break
            assert reply.status == 409, reply
            client.upload("c", *(by_id[one] for one in reply.json))
        self.promise(name, reply.version, data)

    def move(self, client: Client, name: str) -> None:
        data = self.current.get(name)
        target = f"{name}/moved"
        self.pending = {name: None, target: data}
        reply = client("MOVE", f"/c/{name}", Destination=f"/c/{target}")
        assert reply.status == (404 if data is None else 201)
        if data is not None:
            self.current[name] = None
            self.promise(target, reply.version, data)

    def delete(self, client: Client, name: str) -> None:
        self.pending = {name: None}
        reply = client("DELETE", f"/c/{name}")
        assert reply.status == (404 if self.current.get(name) is None else 204)
        self.current[name] = None

    def promise(self, name: str, version: int, data: bytes) -> None:
        self.promised[name, version] = data
        self.current[name] = data

    def settle(self, client: Client, listed: set[str]) -> None:
        """After the restart: each name is as promised or as the request in flight would have left it, and all of it."""
        as_promised = {name: self.current.get(name) for name in self.pending}
        for outcome in (as_promised, self.pending):
            if all(self.is_so(client, name, data, listed) for name, data in outcome.items()):
                self.current.update(outcome)
                break
        else:
            raise AssertionError(f"half a request was done: {self.pending.keys()}")
        self.pending = {}
        for name, data in self.current.items():
            assert self.is_so(client, name, data, listed), name
        for (name, version), data in list(self.promised.items())[-60:]:
            assert client("GET", f"/c/{name}?version={version}").body == data

    def is_so(self, client: Client, name: str, data: bytes | None, listed: set[str]) -> bool:
        if data is None:
            return name not in listed
        return name in listed and client("GET", f"/c/{name}").body == data


@pytest.mark.parametrize("kind", ["serve", "collecting"])
def test_a_server_killed_at_any_moment_keeps_every_promise(tmp_path: Path, kind: str) -> None:
    """SIGKILL under a load of puts, hashmaps, moves and deletes; in one case while it collects garbage all the time.

    Breaks when a reply is sent before its commit is durable, when a commit names blocks that are not, when half a move
    is visible, or when the collector takes what a version needs.
    """
    dice = random.Random(7)
    pushers = [Pusher(number, random.Random(number)) for number in range(3)]
    start = ServerProcess.serve if kind == "serve" else ServerProcess.collecting
    for kill in (True, True, True, True, False):
        with start(tmp_path / "s") as server:
            client = server.client()
            client("PUT", "/c")
            listed = set(client.names("c"))
            for pusher in pushers:
                pusher.settle(client, listed)
            if kill:
                push_until_killed(server, pushers, dice.randrange(10, 80))
            else:
                assert server.end(signal.SIGTERM)[0] == 0
    assert all(pusher.acknowledged for pusher in pushers)


def push_until_killed(server: ServerProcess, pushers: list[Pusher], requests: int) -> None:
    """All push at once; after so many acknowledged requests the server is killed."""
    counted = threading.Semaphore(0)
    threads = [threading.Thread(target=pusher.run, args=(server.client(), counted)) for pusher in pushers]
    for thread in threads:
        thread.start()
    for _ in range(requests):
        assert counted.acquire(timeout=120)
    server.process.kill()
    for thread in threads:
        thread.join()
