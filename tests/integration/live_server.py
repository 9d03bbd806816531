"""A server on a real socket for tests: in a thread of this process, or a process of its own."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from syncer.server import process
from syncer.server.app import App
from syncer.server.folder import ServerFolder
from syncer.server.store.store import Store
from syncer.server.tokens import parse_tokens

_PROJECT: Final = Path(__file__).parents[2]
BLOCKSYNC: Final = str(Path(sys.executable).with_name("blocksync"))
BLOCK = 4096
TOKENS = "token-alice alice\ntoken-bob bob\n"
BEFORE_THEY_GO_S = 8.0
"""A silent connection is hung up after 10 s: who is answered before that did not have to wait for it."""


class Reply(msgspec.Struct, frozen=True):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def version(self) -> int:
        return int(self.headers["X-Object-Version"])

    @property
    def fault(self) -> str:
        """Name of the fault, after a look at its form."""
        ((name, fault),) = self.json.items()
        assert fault["code"] == self.status
        assert set(fault) == {"code", "message", "details"}
        assert fault["message"]
        return str(name)


class Client:
    """One connection of one account. Paths are raw: `/c/o` is below the account."""

    def __init__(self, address: str, token: str | None = "token-alice", account: str = "alice") -> None:
        self.address = address
        self.token = token
        self.account = account
        self._connection = http.client.HTTPConnection(address, timeout=60)
        self._sockets: set[int] = set()

    @property
    def reconnects(self) -> int:
        """How often the server has ended the connection."""
        return len(self._sockets) - 1

    def __call__(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            fields["X-Auth-Token"] = self.token
        self._connection.request(method, f"/v1/{self.account}{path}", body=body, headers=fields)
        if self._connection.sock is not None:
            self._sockets.add(id(self._connection.sock))
        response = self._connection.getresponse()
        return Reply(response.status, response.headers, response.read())

    def close(self) -> None:
        self._connection.close()

    def upload(self, container: str, *blocks: bytes) -> list[str]:
        body = b"".join([*(block.ljust(BLOCK, b"\0") for block in blocks[:-1]), blocks[-1]])
        reply = self("POST", f"/{container}?update&format=json", body, Content_Type="application/octet-stream")
        assert reply.status == 202
        return list(reply.json)

    def put_hashmap(self, path: str, size: int, ids: list[str], **headers: str) -> Reply:
        body = json.dumps({"bytes": size, "hashes": ids}).encode()
        return self(
            "PUT", f"{path}?hashmap&format=json", body, **{"Content_Type": "application/octet-stream", **headers}
        )

    def names(self, container: str, query: str = "") -> list[str]:
        reply = self("GET", f"/{container}?format=json{query}")
        assert reply.status == 200
        return [row["name"] for row in reply.json]


def private_text(path: Path, text: str) -> Path:
    """A file that others can't read, as token files must be."""
    path.touch(mode=0o600)
    path.write_text(text)
    return path


@contextmanager
def server_in_thread(folder: Path, tokens: str = TOKENS) -> Iterator[str]:
    """Serve a folder; yields HOST:PORT."""
    with Store(ServerFolder.open(str(folder), block_size=BLOCK)) as store, serving(store, tokens) as address:
        yield address


@contextmanager
def serving(store: Store, tokens: str = TOKENS) -> Iterator[str]:
    """Serve a store; yields HOST:PORT."""
    known = parse_tokens(tokens, "test")
    store.set_quotas(known.quotas)
    listener = process.bind("127.0.0.1:0")
    ready = threading.Event()
    server = process.Server(App(store, known), ready.set)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        ready.wait()
        yield process.url(listener).removeprefix("http://")
    finally:
        server.should_exit = True
        thread.join()


class ServerProcess:
    """A server in a process of its own, with the clients that talk to it; all gone when the block is left."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=_PROJECT,  # `-m tests.…` is found from there
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._clients: list[Client] = []
        assert self.process.stdout is not None
        self.ready_line = self.process.stdout.readline().strip()
        assert self.ready_line, self.process.communicate()[1]
        self.address = self.ready_line.removeprefix("listening on http://")

    @classmethod
    def serve(cls, folder: Path, *options: str, tokens: str = TOKENS) -> Self:
        """`blocksync serve` as a user starts it."""
        file = private_text(folder.parent / "tokens", tokens)
        fixed = ("--listen", "127.0.0.1:0", "--token-file", str(file), "--block-size", str(BLOCK))
        return cls([BLOCKSYNC, "serve", str(folder), *fixed, *options])

    @classmethod
    def collecting(cls, folder: Path) -> Self:
        """The one that collects garbage all the time."""
        return cls([sys.executable, "-m", "tests.integration.collecting_server", str(folder)])

    @classmethod
    def impatient(cls, folder: Path) -> Self:
        """One whose time-outs are short."""
        return cls([sys.executable, "-m", "tests.integration.impatient_server", str(folder)])

    def says(self, text: str) -> bool:
        """Wait until it writes a line with a text to stderr; False if it ends without."""
        assert self.process.stderr is not None
        return any(text in line for line in self.process.stderr)

    def is_connected_to(self, line: socket.socket) -> bool:
        """Whether the server still has its end of a connection."""
        ours, theirs = (int(address.rpartition(":")[2]) for address in (self.address, str(line.getsockname()[1])))
        rows = [line.split()[1:4] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        ports = [[int(end.rpartition(":")[2], 16) for end in row[:2]] for row in rows if row[2] == "01"]
        return [ours, theirs] in ports

    def anonymous_bytes(self) -> int:
        """Memory of the process that is backed by nothing."""
        status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon:"))

    def client(self, token: str = "token-alice", account: str = "alice") -> Client:
        """Another connection."""
        made = Client(self.address, token, account)
        self._clients.append(made)
        return made

    def end(self, signal_number: int) -> tuple[int, str]:
        """Send a signal; returns the exit status and what it wrote to stderr. Connections stay open meanwhile."""
        self.process.send_signal(signal_number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=60)
        for client in self._clients:
            client.close()
