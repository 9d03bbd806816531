"""Who is who, over HTTP: which account a token is of and where its storage is, for Astakos's clients and OpenStack's.

For OpenStack's first login (`GET /auth/v1.0`) the key *is* the token. The user is the account, or `ACCOUNT:ANYTHING`
as OpenStack's clients like it. The URL that is told has a path of its own: what is asked below it is answered as Swift
does (syncer/protocol/swift.py).
"""

from __future__ import annotations

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from syncer.protocol import astakos, swift
from syncer.protocol.pithos import headers, listing
from syncer.protocol.pithos.names import quote_name
from syncer.server.calls.call import JSON, TEXT, reply
from syncer.server.errors import BadRequest, NotAllowed, Unauthorized
from syncer.server.http.arriving import read_body
from syncer.server.http.urls import parse_parameters
from syncer.server.http.visitor import Visitor
from syncer.server.store.store import Store


async def answer_token_request(request: Request, visitor: Visitor) -> Response:
    """Answer Astakos's one call.

    The token is in the body, or in X-Auth-Token when there is no body.

    Raises:
        NotAllowed: Not a POST.
        BadRequest: A body that is no token request.
        Unauthorized: A token that is not known, or of another account than the one asked for.
        TooLarge: A body beyond 16 KiB.
    """
    _require_method(request, "POST")
    body = await read_body(request, astakos.MAX_REQUEST_BYTES, brief=True)
    token, tenant = request.headers.get(headers.AUTH_TOKEN), None
    if body:
        try:
            token, tenant = astakos.decode_token_request(body)
        except astakos.TokenRequestError as error:
            raise BadRequest(str(error)) from None
    account = None if token is None else visitor.account(token.encode("utf-8"))
    if token is None or account is None or tenant not in {None, account}:
        raise Unauthorized("Access denied. This token is not known")
    base_url = f"{request.url.scheme}://{request.url.netloc}"
    return reply(200, astakos.encode_access(token, account, base_url), content_type=JSON)


async def answer_catalogs_request(request: Request, visitor: Visitor) -> Response:
    """Answer which names accounts have, to those with a token.

    Raises:
        NotAllowed: Not a POST.
        Unauthorized: No token, or one that is not known.
        BadRequest: A body that is no such request.
        TooLarge: A body beyond 16 KiB.
    """
    _require_method(request, "POST")
    token = request.headers.get(headers.AUTH_TOKEN)
    if token is None or visitor.account(token.encode("latin-1")) is None:
        raise Unauthorized("Access denied. This token is not known")
    try:
        answer = astakos.answer_catalogs(await read_body(request, astakos.MAX_REQUEST_BYTES))
    except astakos.TokenRequestError as error:
        raise BadRequest(str(error)) from None
    return reply(200, answer, content_type=JSON)


def answer_login(request: Request, visitor: Visitor) -> Response:
    """Answer a login.

    Raises:
        NotAllowed: Not a GET.
        Unauthorized: No user or key, an unknown key, or one of another account.
    """
    _require_method(request, "GET", "HEAD")
    user, key = _first(request, swift.AUTH_USER), _first(request, swift.AUTH_KEY)
    account = None if key is None else visitor.account(key.encode("latin-1"))
    if user is None or key is None or account is None or account not in {user, user.partition(":")[0]}:
        raise Unauthorized("Access denied. X-Auth-User must be the account and X-Auth-Key its token")
    base_url = f"{request.url.scheme}://{request.url.netloc}"
    fields = {
        swift.STORAGE_URL: f"{base_url}{swift.STORAGE_PATH}/{quote_name(account)}",
        headers.AUTH_TOKEN: key,
        swift.STORAGE_TOKEN: key,
    }
    return reply(204, fields=fields)


async def list_sharers(request: Request, store: Store, account: str) -> Response:
    """GET /: accounts that share something with the caller."""
    _require_method(request, "GET", "HEAD")
    query = parse_parameters(request.scope["query_string"])
    limit = headers.parse_decimal("limit", query.get("limit", str(listing.MAX_ROWS)))
    sharers = await to_thread.run_sync(store.shares.sharers, account)
    rows = [(name, modified_us) for name, modified_us in sharers if name > query.get("marker", "")][:limit]
    if query.get("format") == "json":
        return reply(200, listing.encode_accounts(rows), content_type=JSON)
    return reply(200 if rows else 204, listing.encode_names(name for name, _ in rows), content_type=TEXT)


def _require_method(request: Request, *methods: str) -> None:
    if request.method not in methods:
        raise NotAllowed(f"Only {methods[0]} does something here", {"Allow": ", ".join(methods)})


def _first(request: Request, names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := request.headers.get(name)) is not None), None)
