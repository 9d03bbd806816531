"""HTTP for OpenStack's bulk deletion (`?bulk-delete` on the account): many objects, each on its own."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from syncer.protocol import swift
from syncer.server.calls.call import JSON, TEXT, Call, reply
from syncer.server.catalogue.conditions import UNCONDITIONAL
from syncer.server.catalogue.objects import Place
from syncer.server.errors import Conflict, NotAllowed, NotFound, Refusal
from syncer.server.http.urls import parse_reference

PARAMETER: Final = "bulk-delete"
_MAX_BODY_BYTES: Final = 16 << 20


async def delete_many(call: Call) -> Response:
    """DELETE or POST /account?bulk-delete: objects and empty containers, one path a line."""
    if not call.is_swift or PARAMETER not in call.target.parameters:
        text = "An account is not deleted; ?bulk-delete is for OpenStack's clients, below /swift/v1"
        raise NotAllowed(text, {"Allow": "GET, HEAD, POST"})
    await call.reserve(2 * _MAX_BODY_BYTES)
    paths = swift.parse_bulk_delete(await call.body(_MAX_BODY_BYTES))
    counted = await call.run(_delete, call, paths)
    as_json = call.header("Accept") == "application/json"
    body = swift.encode_bulk_result(*counted, as_json=as_json)
    return reply(200, body, content_type=JSON if as_json else TEXT)


def _delete(call: Call, paths: list[bytes]) -> tuple[int, int, list[tuple[str, str]]]:
    """How many are gone, how many were not there, and what went wrong."""
    deleted = missing = 0
    errors: list[tuple[str, str]] = []
    for raw in paths:
        path = raw.decode("latin-1")
        try:
            _delete_one(call, path)
            deleted += 1
        except NotFound:
            missing += 1
        except Refusal as refusal:
            errors.append((path, "409 Conflict" if isinstance(refusal, Conflict) else "400 Bad Request"))
    return deleted, missing, errors


def _delete_one(call: Call, path: str) -> None:
    if "/" not in path.rstrip("/"):
        call.store.delete_container(call.target.account, parse_reference(f"{path.rstrip('/')}/-")[0])
        return
    container, name = parse_reference(path)
    call.store.delete(Place(account=call.target.account, container=container, name=name), UNCONDITIONAL)
