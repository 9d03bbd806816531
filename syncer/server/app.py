"""The ASGI application: who asks, for what, and how failures are told. No rules about objects here."""

from __future__ import annotations

import time
import uuid as uuids
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from blockfs.errors import BlockfsError, CorruptBlockError, MissingBlockError, NoSpaceError
from blockfs.runtime.logs import Log
from syncer.errors import CorruptionError, SyncerError
from syncer.protocol import astakos, swift
from syncer.protocol.pithos import faults, hashmap, headers
from syncer.protocol.pithos.faults import Fault
from syncer.protocol.pithos.hashmap import HashmapError
from syncer.protocol.pithos.headers import HeaderError
from syncer.server.budget import Budgets, Purse
from syncer.server.calls import containers as container_calls
from syncer.server.calls import foreign as foreign_calls
from syncer.server.calls import identity, swift_bulk
from syncer.server.calls import objects as object_calls
from syncer.server.calls.call import JSON, Call, reply
from syncer.server.calls.swift_auth import answer_login
from syncer.server.catalogue.commits import StoreClosedError
from syncer.server.errors import (
    BadRequest,
    Forbidden,
    MissingBlocks,
    NotAllowed,
    NotImplementedHere,
    NotModified,
    OverQuota,
    Refusal,
    Unauthorized,
)
from syncer.server.http.urls import SWIFT_PREFIX, Level, Target, parse_target
from syncer.server.http.visitor import Visitor
from syncer.server.store.spool import IdSpool
from syncer.server.store.store import Store
from syncer.server.tokens import Tokens

Handler = Callable[[Call], Awaitable[Response]]

HANDLERS: Final[dict[Level, dict[str, Handler]]] = {
    Level.ACCOUNT: {
        "HEAD": container_calls.head_account,
        "GET": container_calls.list_containers,
        "POST": container_calls.post_account,
        "DELETE": swift_bulk.delete_many,
    },
    Level.CONTAINER: {
        "HEAD": container_calls.head_container,
        "GET": container_calls.list_objects,
        "PUT": container_calls.put_container,
        "POST": container_calls.post_container,
        "DELETE": container_calls.delete_container,
    },
    Level.OBJECT: {
        "HEAD": object_calls.head_object,
        "GET": object_calls.get_object,
        "PUT": object_calls.put_object,
        "POST": object_calls.post_object,
        "COPY": object_calls.copy_object,
        "MOVE": object_calls.move_object,
        "DELETE": object_calls.delete_object,
    },
}

ROOT_PATHS: Final = frozenset({b"/", b"/v1", b"/v1/", b"/swift/v1", b"/swift/v1/"})
"""Where it is told who shares something with the caller."""

_ONLY_FOR: Final = {
    "until": {(Level.CONTAINER, "GET"), (Level.CONTAINER, "DELETE"), (Level.OBJECT, "DELETE")},
    "meta": {(Level.CONTAINER, "GET")},
    swift_bulk.PARAMETER: {(Level.ACCOUNT, "DELETE"), (Level.ACCOUNT, "POST")},
}

_log = Log()


class App:
    """The server as ASGI calls it.

    Attributes:
        tokens: Who may; replaced as a whole when they are read anew.
    """

    def __init__(self, store: Store, tokens: Tokens, budgets: Budgets | None = None) -> None:
        self._store = store
        self._budgets = budgets or Budgets()
        self.tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        assert scope["type"] == "http"
        request, visitor = Request(scope, receive), Visitor(self.tokens, scope)
        try:
            await self._serve(request, visitor, send)
        finally:
            visitor.close()

    async def _serve(self, request: Request, visitor: Visitor, send: Send) -> None:
        began, scope = time.monotonic(), request.scope
        try:
            response = await self._answer(request, visitor)
        except ClientDisconnect:
            _log.info("request.abandoned", client=visitor.address, method=request.method, path=scope["raw_path"])
            return
        _log.info(
            "request.served",
            client=visitor.address,
            method=request.method,
            path=scope["raw_path"],
            status=response.status_code,
            seconds=round(time.monotonic() - began, 6),
        )
        if scope["raw_path"].startswith(SWIFT_PREFIX):
            response.headers[swift.TRANSACTION] = f"tx{uuids.uuid4().hex}"
        await response(scope, request.receive, send)

    async def _answer(self, request: Request, visitor: Visitor) -> Response:
        try:
            _require_chunks(request)
            return await self._handle(request, visitor)
        except Refusal as refusal:
            if isinstance(refusal, Unauthorized) and visitor.shown:
                visitor.warn("token.refused", method=request.method, path=request.scope["raw_path"][:200])
            return _refused(refusal)
        except (HashmapError, HeaderError) as error:
            return _fault(400, str(error))
        except TimeoutError:
            return _fault(408, "The body did not come", {"Connection": "close"})
        except (BlockfsError, SyncerError) as error:
            return _failed(request, visitor, error)

    async def _handle(self, request: Request, visitor: Visitor) -> Response:
        if request.scope["raw_path"] == astakos.TOKENS_PATH.encode():
            return await identity.answer_token_request(request, visitor)
        if request.scope["raw_path"] == astakos.CATALOGS_PATH.encode():
            return await identity.answer_catalogs_request(request, visitor)
        wants_login = headers.AUTH_TOKEN not in request.headers
        if request.scope["raw_path"] in swift.AUTH_PATHS and wants_login:
            return answer_login(request, visitor)
        if request.scope["raw_path"] == swift.INFO_PATH:
            limit = hashmap.MAX_BLOCKS * self._store.block_size
            return reply(200, swift.encode_info(limit), content_type=JSON)
        account = _authenticate(request, visitor)
        if request.scope["raw_path"] in ROOT_PATHS:
            return await foreign_calls.list_sharers(request, self._store, account)
        target = parse_target(request.scope["raw_path"], request.scope["query_string"])
        _require_meaning(request.method, target)
        visitor.purse = Purse(self._budgets, account)
        call = Call(request=request, target=target, store=self._store, account=account, purse=visitor.purse)
        handlers = (foreign_calls.HANDLERS if call.is_foreign else HANDLERS)[target.level]
        if call.is_foreign and request.method in HANDLERS[target.level] and request.method not in handlers:
            raise Forbidden("This token is not for that account; what others share is only read")
        handler = handlers.get(request.method)
        if handler is None:
            allowed = ", ".join(sorted(handlers))
            raise NotAllowed(f"{request.method} does nothing here; allowed: {allowed}", {"Allow": allowed})
        return await handler(call)


def _authenticate(request: Request, visitor: Visitor) -> str:
    """The account whose token the request carries."""
    token = request.headers.get(headers.AUTH_TOKEN)
    if token is None:
        raise Unauthorized("Access denied. No authentication token")
    account = visitor.account(token.encode("latin-1"))
    if account is None:
        raise Unauthorized("Access denied. This token is not known")
    return account


def _require_chunks(request: Request) -> None:
    """Refuse a body that is packed: the parser undoes chunks only, and what is inside would be stored as it is.

    Raises:
        NotImplementedHere: There is a Transfer-Encoding other than `chunked`.
    """
    codings = ",".join(request.headers.getlist("Transfer-Encoding"))
    if codings and codings.strip().lower() != "chunked":
        text = f"Transfer-Encoding: expected chunked or nothing, got {codings[:100]!r}"
        raise NotImplementedHere(text, {"Connection": "close"})


def _require_meaning(method: str, target: Target) -> None:
    """Refuse parameters where they mean nothing to us: ignored, they would make e.g. a deletion of a purge.

    Raises:
        BadRequest: There is one.
    """
    for name, meant in _ONLY_FOR.items():
        if name in target.parameters and (target.level, method) not in meant:
            raise BadRequest(f"This server does not support the parameter {name!r} here")


def _refused(refusal: Refusal) -> Response:
    """What a refusal says: mostly a fault."""
    if isinstance(refusal, MissingBlocks):
        if isinstance(refusal.ids, IdSpool):
            return StreamingResponse(_told_ids(refusal.ids), 409, {"Content-Type": JSON})
        return reply(409, hashmap.encode_ids(refusal.ids), content_type=JSON)
    if isinstance(refusal, NotModified):
        return reply(304, fields=refusal.headers)
    if isinstance(refusal, OverQuota) and refusal.details:
        fault = Fault(code=refusal.status, message=refusal.message, details=refusal.details, name="fault")
        return reply(refusal.status, faults.encode_fault(fault), content_type=JSON)
    return _fault(refusal.status, refusal.message, refusal.headers)


def _told_ids(spool: IdSpool) -> Iterator[bytes]:
    """A list of many ids, piece by piece."""
    with spool:
        separator = b"["
        for run in spool.runs():
            yield separator + hashmap.encode_items(run)
            separator = b","
        yield b"]"


def _failed(request: Request, visitor: Visitor, error: BlockfsError | SyncerError) -> Response:
    """Something is wrong on our side."""
    if isinstance(error, StoreClosedError):
        return _fault(503, "The server is shutting down")
    path = request.scope["raw_path"]
    _log.error("request.failed", client=visitor.address, method=request.method, path=path, error=str(error))
    if isinstance(error, NoSpaceError):
        return _fault(507, "The server's disk is full; nothing was stored")
    if isinstance(error, CorruptBlockError | MissingBlockError | CorruptionError):
        text = (
            "A stored block of this object is damaged or gone; the server's log names it, `blocksync scrub` finds all"
        )
        fault = Fault(code=500, message=text, name=faults.CORRUPT_BLOCK)
        return reply(500, faults.encode_fault(fault), content_type=JSON)
    return _fault(500, "The server failed; its log says why")


def _fault(code: int, message: str, fields: dict[str, str] | None = None) -> Response:
    body = faults.encode_fault(Fault(code=code, message=message))
    return reply(code, body, content_type=JSON, fields=fields)
