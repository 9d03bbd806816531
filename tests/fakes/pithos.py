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
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from syncer.protocol.byteranges import Multipart, parse_ranges
from tests.fakes.pithos_store import META, Container, PithosStore, RefusedError, Version, bad_request

JUNK_MOVE_VERSION = "%28%5B9%5D, 5L, 5L%29"  # M:1844 returns a tuple
BASE = "/pithos/object-store/v1"


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


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes = b""


class FakePithos:
    """The server. A context manager; all state is in `store`, under `lock`."""

    def __init__(
        self, *, block_size: int = 4096, listing_limit: int = 10000, tls: ssl.SSLContext | None = None
    ) -> None:
        self.store = PithosStore(block_size=block_size)
        self.token = "fake-token"
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
            snapshot = {key: self._rows(box.live()) for key, box in self.store.containers.items()}
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
        if headers.get("x-auth-token") != self.token:
            raise RefusedError(401, "unauthorized", "Access denied. No authentication token")
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        if not parts.path.startswith(BASE + "/"):
            raise bad_request("API endpoint not found")
        account, _, rest = parts.path[len(BASE) + 1 :].partition("/")
        box_name, _, name = rest.partition("/")
        key = (unquote(account), unquote(box_name))
        if account != "alice":
            raise RefusedError(403, "forbidden", "You are not allowed to do this")
        with self.lock:
            if name:
                call = _ObjectCall(self, *key, unquote(name), query, headers, body)
                return call.answer(method)
            if method == "GET":
                return self._listing(key, query, stale)
            return self._container(method, key, headers, body)

    def _container(self, method: str, key: tuple[str, str], headers: dict[str, str], body: bytes) -> Answer:
        if method == "PUT":
            return Answer(201 if self.store.make_container(*key) else 202, {})
        if method == "POST":  # a missing container is not noticed
            if headers.get("content-type") != "application/octet-stream":
                return Answer(202, {})  # stores nothing and says so only by its empty body
            return _json(202, self.store.put_blocks(body))
        box = self.store.container(*key)
        if method == "HEAD":
            live = box.live().values()
            return Answer(
                204,
                {
                    "X-Container-Block-Size": str(self.store.block_size),
                    "X-Container-Block-Hash": "sha256",
                    "X-Container-Object-Count": str(len(live)),
                    "X-Container-Bytes-Used": str(sum(version.size for version in live)),
                    "Last-Modified": box.last_modified(),
                    "Date": box.last_modified(self.rests_s),
                },
            )
        raise RefusedError(405, "notAllowed", f"Method not allowed: {method}")

    def _listing(self, key: tuple[str, str], query: dict[str, str], stale: object) -> Answer:
        box = self.store.container(*key)
        limit = min(int(query.get("limit", self.listing_limit)), self.listing_limit)
        marker, prefix = query.get("marker", ""), query.get("prefix", "")
        if isinstance(stale, dict):
            old = [row for row in stale[key] if row["name"] > marker and row["name"].startswith(prefix)]
            return _json(200, old[:limit])
        return _json(200, self._rows(box.live(marker, prefix, limit)))

    def _rows(self, found: dict[str, Version]) -> list[dict[str, Any]]:
        return [
            {
                "available": 1,
                "hash": "",
                "name": name,
                "bytes": version.size,
                "x_object_version_timestamp": version.timestamp,
                "x_object_uuid": version.object_uuid,
                "last_modified": "2026-11-20T04:09:39.316454+00:00",
                "content_type": version.content_type,
                "x_object_hash": version.etag,
                "map_check_timestamp": None,
                "x_object_version": version.serial,
                "x_object_modified_by": "alice",
            }
            for name, version in found.items()
        ]


@dataclass
class _ObjectCall:
    """One request on one object."""

    fake: FakePithos
    account: str
    box_name: str
    name: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def answer(self, method: str) -> Answer:
        call = {
            "HEAD": self.read,
            "GET": self.read,
            "PUT": self.put,
            "POST": self.post,
            "MOVE": self.move,
            "DELETE": self.delete,
        }.get(method)
        if call is None:
            raise RefusedError(405, "notAllowed", f"Method not allowed: {method}")
        if "\n" in self.name:
            raise bad_request("Bad object name")
        return call()

    @property
    def store(self) -> PithosStore:
        return self.fake.store

    @property
    def box(self) -> Container:
        return self.store.container(self.account, self.box_name)

    def read(self) -> Answer:
        if self.query.get("version") == "list":
            if self.name not in self.box.history:
                raise RefusedError(404, "itemNotFound", "Object does not exist")
            rows = [[v.serial, v.timestamp] for v in self.box.history[self.name] if not v.deleted]
            return _json(200, {"versions": rows})
        version = self.store.version(self.box, self.name, self.query.get("version"))
        if "hashmap" in self.query:
            form = {
                "block_hash": "sha256",
                "hashes": list(version.hashes),
                "block_size": self.store.block_size,
                "bytes": version.size,
            }
            return _json(200, form, _object_headers(version, self.store))
        data, headers = self.store.read(version), _object_headers(version, self.store)
        if (wanted := self.headers.get("range")) is None:
            return Answer(200, headers, data)
        if "," in wanted:
            parts = parse_ranges(wanted, len(data))
            several = Multipart(parts, len(data), "application/octet-stream", "a-boundary")
            body = b"".join(several.body(lambda part: [data[part.start : part.stop]]))
            return Answer(206, {**headers, "Content-Type": several.content_type}, body)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last) + 1, len(data))
        if start >= stop:
            raise RefusedError(416, "rangeNotSatisfiable", "Range exceeds object's size")
        return Answer(206, {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}, data[start:stop])

    def put(self) -> Answer:
        self.store.check(self.box, self.name, self.headers)
        source = self.headers.get("x-move-from")
        if source is not None:
            self.store.move(self.box, self.name_in(source), self.name)
            return Answer(201, {"X-Object-Version": JUNK_MOVE_VERSION})
        source = self.headers.get("x-copy-from")
        if source is not None:
            found = self.store.version(self.box, self.name_in(source), self.headers.get("x-source-version"))
            copied = self.store.copy(self.box, found, self.name, self.meta())
            return Answer(201, {"X-Object-Version": str(copied.serial)})
        if "content-type" not in self.headers:
            raise RefusedError(411, "lengthRequired", "Missing Content-Type header")
        kind, meta = self.headers["content-type"], self.meta()
        if "hashmap" not in self.query:
            return self.written(self.store.put_body(self.box, self.name, self.body, kind, meta))
        form = json.loads(self.body)
        result = self.store.put_hashmap(self.box, self.name, form["bytes"], tuple(form["hashes"]), kind, meta)
        return self.written(result) if isinstance(result, Version) else _json(409, result)

    def post(self) -> Answer:
        self.store.check(self.box, self.name, self.headers)
        self.store.change_meta(self.box, self.name, self.meta(), "update" in self.query)
        return Answer(202, {})

    def move(self) -> Answer:
        self.store.version(self.box, self.name, None)
        self.store.check(self.box, self.name, self.headers)
        self.store.move(self.box, self.name, self.name_in(self.headers["destination"]))
        return Answer(201, {"X-Object-Version": JUNK_MOVE_VERSION})

    def delete(self) -> Answer:
        """If-Match is ignored (F:1284-1299)."""
        self.store.delete(self.box, self.name)
        return Answer(204, {})

    def name_in(self, reference: str) -> str:
        box_name, _, name = unquote(reference).removeprefix("/").partition("/")
        assert box_name == self.box_name
        return name

    def meta(self) -> dict[str, str]:
        found = {key: unquote(value) for key, value in self.headers.items() if key.startswith(META)}
        if len(found) > 32 or any(len(value) > 256 for value in found.values()):
            raise bad_request("Too many or too long metadata items")
        return {key: value.replace("~", "") for key, value in found.items()}

    def written(self, version: Version) -> Answer:
        return Answer(201, {"ETag": self.store.etag(version), "X-Object-Version": str(version.serial)})


def _object_headers(version: Version, store: PithosStore) -> dict[str, str]:
    return {
        "ETag": store.etag(version),
        "X-Object-Hash": version.etag,
        "X-Object-UUID": version.object_uuid,
        "X-Object-Version": str(version.serial),
        "X-Object-Version-Timestamp": version.http_date,
        "X-Object-Modified-By": "alice",
        "Content-Type": version.content_type,
        **{key.title(): value for key, value in version.meta.items()},
    }


def _json(status: int, value: object, headers: dict[str, str] | None = None) -> Answer:
    kind = {"Content-Type": "application/json; charset=UTF-8"}
    return Answer(status, {**(headers or {}), **kind}, json.dumps(value).encode())


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
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
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

    do_GET = do_HEAD = do_PUT = do_POST = do_MOVE = do_DELETE = handle_any  # noqa: N815 - names of http.server

    def serve(self, headers: dict[str, str], body: bytes, stale: object) -> Answer:
        try:
            return self.fake.answer(self.command, self.path, headers, body, stale)
        except RefusedError as refused:
            return _json(refused.status, refused.body)

    @contextlib.contextmanager
    def forgetting(self, kind: FaultKind | None) -> Iterator[None]:
        before = dict(self.fake.store.blocks) if kind is FaultKind.FORGET_BLOCKS else None
        yield
        if before is not None:
            self.fake.store.blocks = before

    def reply(self, answer: Answer, *, cut: bool = False) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[: len(answer.body) // 2] if cut else answer.body)
        if cut:
            self.drop()

    def drop(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)


def _failure(status: int) -> Answer:
    return _json(status, {"internalServerError": {"message": "injected", "code": status, "details": ""}})


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
