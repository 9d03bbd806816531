"""HTTP for OpenStack's first login (`GET /auth/v1.0`): user and key in, the storage's URL and a token out.

The key *is* the token. The user is the account, or `ACCOUNT:ANYTHING` as OpenStack's clients like it. The URL that is
told has a path of its own: what is asked below it is answered as Swift does (syncer/protocol/swift.py).
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from syncer.protocol import swift
from syncer.protocol.pithos import headers
from syncer.protocol.pithos.names import quote_name
from syncer.server.calls.call import reply
from syncer.server.errors import NotAllowed, Unauthorized
from syncer.server.http.visitor import Visitor


def answer_login(request: Request, visitor: Visitor) -> Response:
    """Answer a login.

    Raises:
        NotAllowed: Not a GET.
        Unauthorized: No user or key, an unknown key, or one of another account.
    """
    if request.method not in {"GET", "HEAD"}:
        raise NotAllowed("Only GET does something here", {"Allow": "GET, HEAD"})
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


def _first(request: Request, names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := request.headers.get(name)) is not None), None)
