"""The ASGI application: who asks, for what, and how failures are told. No rules about objects here."""

from __future__ import annotations

import time
import uuid as uuids
from collections.abc import Mapping, Sequence
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from blockfs.errors import BlockfsError, CorruptBlockError, MissingBlockError, NoSpaceError
from blockfs.runtime.logs import Log
from syncer.errors import CorruptionError, SyncerError
from syncer.protocol import astakos, swift
from syncer.protocol.pithos import faults, hashmap, headers
from syncer.server import oversight
from syncer.server.budget import Budgets, Purse
from syncer.server.calls import identity
from syncer.server.calls.blocklists import missing_reply
from syncer.server.calls.call import JSON, Call, reply
from syncer.server.calls.routes import route_of
from syncer.server.catalogue.commits import StoreClosedError
from syncer.server.errors import (
    BadRequest,
    MissingBlocks,
    NotFound,
    NotImplementedHere,
    NotModified,
    OverQuota,
    Refusal,
    Unauthorized,
    UnsafeName,
)
from syncer.server.http.asked import Asked, header_fields
from syncer.server.http.container_orders import BULK_DELETE
from syncer.server.http.urls import SWIFT_PREFIX, Level, Target, parse_target
from syncer.server.http.visitor import Visitor
from syncer.server.oversight import Oversight
from syncer.server.store.store import Store
from syncer.server.tokens import Tokens

ROOT_PATHS: Final = frozenset({b"/", b"/v1", b"/v1/", b"/swift/v1", b"/swift/v1/"})
"""Where it is told who shares something with the caller."""

_ONLY_FOR: Final = {
    "until": {(Level.CONTAINER, "GET"), (Level.CONTAINER, "DELETE"), (Level.OBJECT, "DELETE")},
    "meta": {(Level.CONTAINER, "GET")},
    BULK_DELETE: {(Level.ACCOUNT, "DELETE"), (Level.ACCOUNT, "POST")},
}

_ABOUT_WHAT_IS: Final = frozenset({"GET", "HEAD", "POST", "DELETE"})

_TOKEN: Final = headers.AUTH_TOKEN.lower()
_OLDER_TOKEN: Final = swift.STORAGE_TOKEN.lower()

_log = Log()


class App:
    """The server as ASGI calls it.

    Attributes:
        tokens: Who may; replaced as a whole when they are read anew.
    """

    def __init__(self, store: Store, tokens: Tokens, budgets: Budgets | None = None) -> None:
        self._store = store
        self._budgets = budgets or Budgets()
        self._oversight = Oversight(store)
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
        took_s = time.monotonic() - began
        self._oversight.requests.note(request.method, response.status_code, took_s)
        _log.info(
            "request.served",
            client=visitor.address,
            method=request.method,
            path=scope["raw_path"],
            status=response.status_code,
            seconds=round(took_s, 6),
        )
        if scope["raw_path"].startswith(SWIFT_PREFIX):
            name = f"tx{uuids.uuid4().hex}"
            response.headers.update({swift.TRANSACTION: name, swift.REQUEST_ID: name})
        await response(scope, request.receive, send)

    async def _answer(self, request: Request, visitor: Visitor) -> Response:
        try:
            pairs = header_fields(request.scope["headers"])
            _require_chunks(pairs)
            return await self._handle(request, visitor, pairs)
        except Refusal as refusal:
            if isinstance(refusal, Unauthorized) and visitor.shown:
                visitor.warn("token.refused", method=request.method, path=request.scope["raw_path"][:200])
            return _refused(refusal)
        except (hashmap.HashmapError, headers.HeaderError) as error:
            return _fault(400, str(error))
        except TimeoutError:
            return _fault(408, "The body did not come", {"Connection": "close"})
        except (BlockfsError, SyncerError, OSError) as error:
            return _failed(request, visitor, error)

    async def _handle(self, request: Request, visitor: Visitor, pairs: Sequence[tuple[str, str]]) -> Response:
        path, fields = request.scope["raw_path"], dict(reversed(pairs))
        response = await self._answer_without_account(request, visitor, fields)
        if response is not None:
            return response
        older = fields.get(_OLDER_TOKEN) if path.startswith(SWIFT_PREFIX) else None
        account = _authenticate(fields.get(_TOKEN, older), visitor)
        if path in ROOT_PATHS:
            return await identity.list_sharers(request, self._store, account)
        target = _target(request)
        _require_meaning(request.method, target)
        purse = visitor.purse = Purse(self._budgets, account)
        asked = Asked(method=request.method, target=target, account=account, fields=fields, pairs=pairs)
        route = route_of(asked)
        call = Call(
            request=request,
            target=target,
            account=account,
            length=asked.length,
            store=self._store,
            purse=purse,
            needs=route.needs,
        )
        return await route.serve(call, asked)

    async def _answer_without_account(
        self, request: Request, visitor: Visitor, fields: Mapping[str, str]
    ) -> Response | None:
        """What is asked before anybody has shown whose he is; None: this is nothing of the kind."""
        path, token = request.scope["raw_path"], fields.get(_TOKEN)
        if path == astakos.TOKENS_PATH.encode():
            return await identity.answer_token_request(request, visitor)
        if path == astakos.CATALOGS_PATH.encode():
            return await identity.answer_catalogs_request(request, visitor)
        if path in swift.AUTH_PATHS and token is None:
            return identity.answer_login(request, visitor)
        if path in swift.INFO_PATHS:
            limit = hashmap.MAX_BLOCKS * self._store.block_size
            return reply(200, swift.encode_info(limit), content_type=JSON)
        if path in oversight.PATHS and token is None:
            return await self._oversight.answer(path, request.method, fields, visitor, len(self.tokens.known))
        return None


def _target(request: Request) -> Target:
    """What the URL names.

    Raises:
        NotFound: OpenStack's clients look whether there is a `directory/`: nothing is called so.
        BadRequest: As `parse_target`.
    """
    path = request.scope["raw_path"]
    try:
        return parse_target(path, request.scope["query_string"])
    except UnsafeName as refusal:
        if path.startswith(SWIFT_PREFIX) and request.method in _ABOUT_WHAT_IS:
            raise NotFound(refusal.message) from None
        raise


def _authenticate(token: str | None, visitor: Visitor) -> str:
    """The account whose token the request carries."""
    if token is None:
        raise Unauthorized("Access denied. No authentication token")
    account = visitor.account(token.encode("latin-1"))
    if account is None:
        raise Unauthorized("Access denied. This token is not known")
    return account


def _require_chunks(pairs: Sequence[tuple[str, str]]) -> None:
    """Refuse a body that is packed: the parser undoes chunks only, and what is inside would be stored as it is.

    Raises:
        NotImplementedHere: There is a Transfer-Encoding other than `chunked`.
    """
    codings = ",".join([value for name, value in pairs if name == "transfer-encoding"])
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
        return missing_reply(refusal)
    if isinstance(refusal, NotModified):
        return reply(304, fields={} if refusal.tag is None else {"ETag": refusal.tag})
    if isinstance(refusal, OverQuota) and refusal.details:
        fault = faults.Fault(code=refusal.status, message=refusal.message, details=refusal.details, name="fault")
        return reply(refusal.status, faults.encode_fault(fault), content_type=JSON)
    return _fault(refusal.status, refusal.message, refusal.headers)


def _failed(request: Request, visitor: Visitor, error: BlockfsError | SyncerError | OSError) -> Response:
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
        fault = faults.Fault(code=500, message=text, name=faults.CORRUPT_BLOCK)
        return reply(500, faults.encode_fault(fault), content_type=JSON)
    return _fault(500, "The server failed; its log says why")


def _fault(code: int, message: str, fields: dict[str, str] | None = None) -> Response:
    body = faults.encode_fault(faults.Fault(code=code, message=message))
    return reply(code, body, content_type=JSON, fields=fields)
