"""HTTP for `POST /identity/v2.0/tokens`: which account a token is of, and where its storage is."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from syncer.protocol import astakos
from syncer.protocol.pithos import headers
from syncer.server.calls.call import JSON, reply
from syncer.server.errors import BadRequest, NotAllowed, Unauthorized
from syncer.server.http.arriving import read_body
from syncer.server.http.visitor import Visitor


async def answer_token_request(request: Request, visitor: Visitor) -> Response:
    """Answer Astakos's one call.

    The token is in the body, or in X-Auth-Token when there is no body.

    Raises:
        NotAllowed: Not a POST.
        BadRequest: A body that is no token request.
        Unauthorized: A token that is not known, or of another account than the one asked for.
        TooLarge: A body beyond 16 KiB.
    """
    if request.method != "POST":
        raise NotAllowed("Only POST does something here", {"Allow": "POST"})
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
    if request.method != "POST":
        raise NotAllowed("Only POST does something here", {"Allow": "POST"})
    token = request.headers.get(headers.AUTH_TOKEN)
    if token is None or visitor.account(token.encode("latin-1")) is None:
        raise Unauthorized("Access denied. This token is not known")
    try:
        answer = astakos.answer_catalogs(await read_body(request, astakos.MAX_REQUEST_BYTES))
    except astakos.TokenRequestError as error:
        raise BadRequest(str(error)) from None
    return reply(200, answer, content_type=JSON)
