"""A fake Synnefo Pithos on a real socket, with the real one's quirks and faults on demand.

with FakePithos() as server:
    server.inject(Fault(FaultKind.DROP_AFTER, method="PUT"))
    client = ...(server.url("alice", "vms"), token=server.token)
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qsl, unquote

from tests.fakes.pithos_calls import Call
from tests.fakes.pithos_store import EPOCH, Container, PithosStore, RefusedError, bad_request, http_date
from tests.fakes.pithos_wire import JSON, TEXT, Answer, as_json, row_of

BASE = "/pithos/object-store/v1"
MAX_LINE = 4094  # bytes of a request line, by gunicorn's setting


class FaultKind(Enum):
    """What goes wrong with one request."""

    DROP_BEFORE = auto()  # connection closed, nothing done
    DROP_AFTER = auto()  # done, connection closed without a reply
    STATUS_BEFORE = auto()  # an error status, nothing done
    STATUS_AFTER = auto()  # done, but an error status
    TRUNCATE = auto()  # half of the body, then the connection closes
    WRONG_BYTES = auto()  # first byte of the body flipped
    WRONG_HASHMAP = auto()  # a hashmap with two blocks swapped or one replaced
    SHORT_LISTING = auto()  # it ends before its end, and does not say so
    STALE_LISTING = auto()  # the listing as it was when the fault was injected
    FORGET_BLOCKS = auto()  # POSTed blocks are answered with 202 and their ids but not kept: a second 409 follows
    EMPTY_BODY = auto()  # what Synnefo answers to a block POST with a content type that it doesn't like
    WRONG_IDS = auto()  # a block POST that stored something else
    WHOLE_OBJECT = auto()  # a Range is ignored
    NOT_JSON = auto()  # a proxy's HTML page with status 200


@dataclass
class Fault:
    """Hits requests whose method and target match, `times` times."""

    kind: FaultKind
    method: str | None = None
    containing: str = ""
    times: int = 1
    status: int = 503


class FakePithos:
    """The server. A context manager; all state is in `store`, under `lock`."""

    def __init__(
        self,
        *,
        block_size: int = 4096,
        listing_limit: int = 10000,
        tls: ssl.SSLContext | None = None,
        closes: bool = False,
    ) -> None:
        """Serve on a free port; `closes`: each connection after one reply, as gunicorn does by itself."""
        self.store = PithosStore(block_size=block_size)
        self.token = "fake-token"
        self.others: dict[str, str] = {}  # tokens of other accounts than alice's
        self.closes = closes
        self.unread = 1 << 62  # bytes of a body from which on it is not read before a refusal by its head alone
        self.listing_limit = listing_limit
        self.rests_s = 60  # how long ago every container changed, as its HEAD tells it
        self.lock = self.store.lock
        self.requests: list[tuple[str, str]] = []
        self.on_request: Callable[[str, str], None] | None = None
        self._faults: list[tuple[Fault, object]] = []
        handler = type("Handler", (_Handler,), {"fake": self})
        self._http = _QuietServer(("127.0.0.1", 0), handler)
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    def url(self, account: str = "alice", container: str = "vms") -> str:
        return f"pithos+http://127.0.0.1:{self.port}{BASE}/{account}/{container}"

    def container(self, account: str = "alice", name: str = "vms") -> Container:
        return self.store.container(account, name)

    def inject(self, fault: Fault) -> None:
        """Arm a fault. STALE_LISTING remembers the present listing of all containers."""
        with self.lock:
            snapshot = {
                key: [row_of(box, key[0], name, version, key[0], past=False) for name, version in box.live().items()]
                for key, box in self.store.containers.items()
            }
            self._faults.append((fault, snapshot))

    def clear_faults(self) -> None:
        """Disarm all."""
        with self.lock:
            self._faults.clear()

    def take_fault(self, method: str, target: str) -> tuple[Fault | None, object]:
        with self.lock:
            self.requests.append((method, target))
            if self.on_request is not None:
                self.on_request(method, target)
            for at, (fault, snapshot) in enumerate(self._faults):
                if fault.method in {None, method} and fault.containing in target:
                    fault.times -= 1
                    if fault.times == 0:
                        del self._faults[at]
                    return fault, snapshot
        return None, None

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes, stale: object = None) -> Answer:
        """Serve one request. Raises RefusedError for error replies."""
        token = headers.get("x-auth-token")
        refused = self.refusal(token)
        if token is None or refused is not None:
            raise refused or AssertionError
        path, _, query_text = target.partition("?")
        query = dict(parse_qsl(query_text, keep_blank_values=True))
        if not path.startswith(BASE + "/"):
            raise bad_request("API endpoint not found")
        account, _, rest = path[len(BASE) + 1 :].partition("/")
        box_name, _, name = rest.partition("/")
        key = (unquote(account), unquote(box_name))
        old = stale[key] if isinstance(stale, dict) and key in stale else None
        with self.lock:
            call = Call(
                store=self.store,
                account=key[0],
                box_name=key[1],
                name=unquote(name),
                query=query,
                headers=headers,
                body=body,
                reader=self.others.get(token, "alice"),
                listing_limit=self.listing_limit,
                stale=old,
            )
            return call.answer(method)

    def refusal(self, token: str | None) -> RefusedError | None:
        """Why a token is refused."""
        if token is None:
            return RefusedError(401, "unauthorized", "Access denied. No authentication token")
        if token not in {self.token, *self.others}:
            details = json.dumps({"unauthorized": {"message": "Invalid token", "code": 401, "details": ""}})
            return RefusedError(401, "fault", "Unauthorized", details)
        return None

    def dates(self, method: str, path: str) -> dict[str, str]:
        """What Django and gunicorn add to each reply."""
        now = EPOCH + self.store.last_serial
        parts = path.partition("?")[0].removeprefix(BASE + "/").split("/")
        date = http_date(now)
        with contextlib.suppress(RefusedError, IndexError):
            if method == "HEAD" and len(parts) == 2:
                date = self.store.container(unquote(parts[0]), unquote(parts[1])).last_modified(self.rests_s)
        return {
            "Server": "gunicorn/19.10.0",
            "Date": date,
            "Expires": http_date(now),
            "Vary": "X-Auth-Token",
            "Last-Modified": http_date(now),
            "Cache-Control": "no-cache, no-store, must-revalidate, max-age=0",
            "Content-Type": JSON,
        }


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    """Sockets, faults and framing; what is answered is FakePithos's."""

    fake: FakePithos
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_any(self) -> None:
        self.close_connection = self.close_connection or self.fake.closes
        early = self.early()
        if early is not None:
            return self.reply(early)
        body = self.chunks() if "Transfer-Encoding" in self.headers else self.whole()
        return self.drop() if body is None else self.respond(body)

    def respond(self, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        fault, snapshot = self.fake.take_fault(self.command, self.path)
        kind = fault.kind if fault else None
        if kind is FaultKind.DROP_BEFORE:
            return self.drop()
        if fault and kind is FaultKind.STATUS_BEFORE:
            return self.reply(_failure(fault.status))
        if kind is FaultKind.WHOLE_OBJECT:
            headers.pop("range", None)
        with self.forgetting(kind):
            answer = self.serve(headers, body, snapshot if kind is FaultKind.STALE_LISTING else None)
        if kind is FaultKind.DROP_AFTER:
            return self.drop()
        if fault and kind is FaultKind.STATUS_AFTER:
            return self.reply(_failure(fault.status))
        return self.reply(_damaged(answer, kind), cut=kind is FaultKind.TRUNCATE)

    do_GET = do_HEAD = do_PUT = do_POST = do_MOVE = do_COPY = do_DELETE = do_PATCH = handle_any  # noqa: N815 - names of http.server

    def early(self) -> Answer | None:
        """What is answered before the body is read."""
        if len(self.raw_requestline) > MAX_LINE + 2:
            return _too_long(len(self.raw_requestline) - 2)
        refused = self.fake.refusal(self.headers.get("X-Auth-Token"))
        if refused is None or int(self.headers.get("Content-Length") or 0) < self.fake.unread:
            return None
        self.close_connection = True
        return as_json(refused.status, refused.body)

    def whole(self) -> bytes | None:
        """The body; None if whoever sent it died before its end, and nothing is done: it is no shorter content."""
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        return body if len(body) == length else None

    def chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def serve(self, headers: dict[str, str], body: bytes, stale: object) -> Answer:
        try:
            unquote(self.path, errors="strict")
        except UnicodeDecodeError:
            return Answer(400, {"Content-Type": "text/html; charset=utf-8"}, chunked=True, bare=True)
        try:
            return self.fake.answer(self.command, self.path, headers, body, stale)
        except RefusedError as refused:
            plain = "format=json" not in self.path and "json" not in headers.get("accept", "json")
            kind = {"Content-Type": TEXT} if plain else {}
            return as_json(refused.status, refused.body, {**kind, **refused.headers})

    @contextlib.contextmanager
    def forgetting(self, kind: FaultKind | None) -> Iterator[None]:
        before = dict(self.fake.store.blocks) if kind is FaultKind.FORGET_BLOCKS else None
        yield
        if before is not None:
            self.fake.store.blocks = before

    def reply(self, answer: Answer, *, cut: bool = False) -> None:
        self.send_response_only(answer.status)
        added = self.fake.dates(self.command, self.path)
        if answer.bare:
            added = {name: added[name] for name in ("Server", "Date")} if answer.chunked else {}
        headers = {**added, **answer.headers}
        if answer.chunked:
            headers["Transfer-Encoding"] = "chunked"
        elif self.command == "HEAD" or answer.status not in {204, 304}:
            headers.setdefault("Content-Length", str(len(answer.body)))
        else:
            headers["Content-Length"] = "0"
        if self.close_connection:
            headers["Connection"] = "close"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        body = answer.body
        if answer.chunked:
            body = (f"{len(body):x}\r\n".encode() + body + b"\r\n" if body else b"") + b"0\r\n\r\n"
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.drop()

    def drop(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)


def _too_long(length: int) -> Answer:
    """gunicorn's own."""
    text = (
        "<html>\n  <head>\n    <title>Bad Request</title>\n  </head>\n  <body>\n    <h1><p>Bad Request</p></h1>\n"
        f"    Request Line is too large ({length} &gt; {MAX_LINE})\n  </body>\n</html>\n"
    )
    return Answer(400, {"Content-Type": "text/html"}, text.encode(), bare=True)


def _failure(status: int) -> Answer:
    return as_json(status, {"internalServerError": {"message": "injected", "code": status, "details": ""}})


def _damaged(answer: Answer, kind: FaultKind | None) -> Answer:
    if kind is FaultKind.WRONG_BYTES and answer.body:
        return Answer(answer.status, answer.headers, bytes([answer.body[0] ^ 0x55]) + answer.body[1:])
    if kind is FaultKind.WRONG_HASHMAP:
        form = json.loads(answer.body)
        form["hashes"][0] = "ab" * 32
        return Answer(answer.status, answer.headers, json.dumps(form).encode())
    if kind in (FaultKind.EMPTY_BODY, FaultKind.SHORT_LISTING):
        return Answer(answer.status, answer.headers, b"[]" if kind is FaultKind.SHORT_LISTING else b"")
    if kind is FaultKind.WRONG_IDS:
        return Answer(answer.status, answer.headers, json.dumps(["ab" * 32] * len(json.loads(answer.body))).encode())
    if kind is FaultKind.NOT_JSON:
        return Answer(200, {"Content-Type": "text/html"}, b"<html>please log in</html>")
    return answer
