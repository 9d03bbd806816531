"""An HTTP server whose answers a test writes: what arrives is kept, what is answered is decided request by request."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import msgspec

CERTIFICATE: Final = Path(__file__).with_name("tls") / "server.pem"


class Arrived(msgspec.Struct, frozen=True):
    """A request.

    Attributes:
        headers: Names in lower case.
        body: None: it was refused before it was sent.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


class Answer(msgspec.Struct, frozen=True):
    """A reply.

    Attributes:
        early: Before the body, if the client waits for a 100.
        length: The Content-Length, if it is not the body's: of a body that is cut.
        silent: Hang up without a word.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}
    early: bool = False
    length: int | None = None
    silent: bool = False


Decide = Callable[[Arrived], Answer]


class Script:
    """The server.

    Attributes:
        decide: Asked for each request, by threads.
        arrived: All requests so far.
        connections: How many there were.
    """

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.arrived: list[Arrived] = []
        self.connections = 0
        self.url = ""

    def methods(self) -> list[str]:
        return [f"{one.method} {one.path}" for one in self.arrived]


@contextlib.contextmanager
def serving(decide: Decide, *, tls: bool = False) -> Iterator[Script]:
    """Serve; with TLS by a certificate of its own (`CERTIFICATE`)."""
    script = Script(decide)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(script))
    server.daemon_threads = True
    script.url = f"http://127.0.0.1:{server.server_address[1]}"
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(CERTIFICATE, CERTIFICATE.with_name("server.key"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        script.url = f"https://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            script.connections += 1

        def handle_expect_100(self) -> bool:
            answer = script.decide(self._arrived(None))
            if not answer.early:
                return super().handle_expect_100()
            script.arrived.append(self._arrived(None))
            self._answer(answer)
            self.close_connection = True
            return False

        def _arrived(self, body: bytes | None) -> Arrived:
            return Arrived(self.command, self.path, {n.lower(): v for n, v in self.headers.items()}, body)

        def _answer(self, answer: Answer) -> None:
            if answer.silent:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if "Content-Length" not in answer.headers:
                self.send_header("Content-Length", str(len(answer.body) if answer.length is None else answer.length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)
            if answer.length is not None:
                self.close_connection = True

        def _handle(self) -> None:
            arrived = self._arrived(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
            script.arrived.append(arrived)
            self._answer(script.decide(arrived))

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    return Handler
