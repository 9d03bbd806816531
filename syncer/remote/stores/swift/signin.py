"""Signing in to Swift: TempAuth v1 and Keystone v3. One request, from which a token and the account's address come."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from syncer.errors import AuthError, RemoteUnavailableError, UsageError
from syncer.protocol.jsontext import MALFORMED
from syncer.remote.http.address import HttpAddress, parse_address
from syncer.remote.http.transport import BadReplyError, Reply, Request, Transport
from syncer.remote.stores.swift.replies import failure

_JSON: Final = {"Content-Type": "application/json", "Accept": "application/json"}
MAX_TOKEN_BYTES: Final = 16 << 10  # a Keystone's PKI tokens were 8 KiB; a reply's line is 64 KiB at most
_SECONDS: Final = re.compile(r"[0-9]{1,9}")


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What a sign-in gives. Its text form shows no token.

    Attributes:
        token: For X-Auth-Token.
        storage: The account.
        lasts_s: For how many seconds the token is said to hold; None: nobody says.
        is_kept: It is of an earlier sign-in.
    """

    token: str
    storage: HttpAddress
    lasts_s: float | None = None
    is_kept: bool = False

    def __repr__(self) -> str:
        return f"Access({self.storage})"


class SignIn(Protocol):
    """Credentials, and what to do with them.

    Attributes:
        address: Where to sign in.
    """

    @property
    def address(self) -> HttpAddress:
        """Where to sign in."""
        ...

    async def sign_in(self, transport: Transport) -> Access:
        """Ask once for a token.

        Args:
            transport: To the server of `address`.

        Raises:
            AuthError: The credentials are not accepted.
            UsageError: They are, but there is no object store for them, or what was given is no address of this kind.
            RemoteUnavailableError: No answer, or none of this protocol.
        """
        ...


class TempAuth(msgspec.Struct, frozen=True, kw_only=True):
    """Swift's own v1: a user and a key in the headers of a GET. Its text form shows no key.

    Attributes:
        address: E.g. `https://swift.example.org/auth/v1.0`.
        user: `ACCOUNT:USER`, mostly.
        key: The password.
        storage: The account, if it is not the one that the server names.
    """

    address: HttpAddress
    user: str
    key: str
    storage: HttpAddress | None = None

    def __repr__(self) -> str:
        return f"TempAuth({self.user!r} at {self.address})"

    async def sign_in(self, transport: Transport) -> Access:
        """See SignIn."""
        headers = {"X-Auth-User": self.user, "X-Auth-Key": self.key}
        request = Request(method="GET", target=self.address.path or "/", headers=headers)
        reply = await _asked(transport, request, self.address, f"the user {self.user!r}")
        if reply.status not in {200, 204}:
            raise BadReplyError(f"{self.address} is not where Swift's v1 signs in: it answers {reply.status}")
        url = reply.headers.get("x-storage-url", "")
        access = _access(self.address, _token(self.address, reply, "x-auth-token"), self.storage, url)
        lasts = reply.headers.get("x-auth-token-expires", "")
        return replace(access, lasts_s=float(lasts)) if _SECONDS.fullmatch(lasts) else access


class Keystone(msgspec.Struct, frozen=True, kw_only=True):
    """OpenStack's Identity v3. Its text form shows no secret.

    Attributes:
        address: With or without `/v3` at its end.
        identity: The `identity` of the request: how somebody proves who he is.
        scope: The `scope`: the project. None: the credential's, or the user's own.
        who: For messages, without secrets.
        region: Of the object store; None: any, if there is one only.
        interface: public, internal or admin.
        storage: The account, if it is not the one that the catalogue names.
    """

    address: HttpAddress
    identity: dict[str, object]
    scope: dict[str, object] | None
    who: str
    region: str | None = None
    interface: str = "public"
    storage: HttpAddress | None = None

    def __repr__(self) -> str:
        return f"Keystone({self.who} at {self.address})"

    async def sign_in(self, transport: Transport) -> Access:
        """See SignIn."""
        auth: dict[str, object] = {"identity": self.identity}
        if self.scope is not None:
            auth["scope"] = self.scope
        request = Request(
            method="POST",
            target=f"{self.address.path.removesuffix('/v3')}/v3/auth/tokens",
            headers=_JSON,
            body=msgspec.json.encode({"auth": auth}),
            only_reads=True,
        )
        reply = await _asked(transport, request, self.address, self.who)
        if reply.status not in {200, 201}:
            raise BadReplyError(
                f"{self.address} is not where a Keystone v3 signs in: it answers {reply.status} to {request.target}"
            )
        token = _token(self.address, reply, "x-subject-token")
        access = _access(self.address, token, self.storage, "" if self.storage else self._endpoint(reply))
        return replace(access, lasts_s=_lasts_s(reply))

    def _endpoint(self, reply: Reply) -> str:
        """The object store's address in the catalogue."""
        try:
            catalogue = _TOKEN.decode(reply.body).token.catalog
        except MALFORMED as error:
            raise BadReplyError(f"{self.address}: this is no token of a Keystone v3: {error}") from None
        stores = [service for service in catalogue if service.type == "object-store"]
        endpoints = [one for service in stores for one in service.endpoints if one.interface == self.interface]
        found = [one for one in endpoints if self.region in {None, one.region, one.region_id}]
        if len({one.url for one in found}) == 1:
            return found[0].url
        regions = ", ".join(sorted({one.region or one.region_id or "?" for one in endpoints}))
        if found:
            raise UsageError(f"{self.address} has several object stores: set OS_REGION_NAME to one of {regions}")
        if endpoints:
            raise UsageError(f"{self.address} has no object store in {self.region}: there are {regions}")
        what = "no project was named (OS_PROJECT_NAME)" if not catalogue else f"its {self.interface} catalogue has none"
        raise UsageError(f"{self.address} names no object store for {self.who}: {what}; or set OS_STORAGE_URL")


class _Endpoint(msgspec.Struct):
    url: str
    interface: str = ""
    region: str | None = None
    region_id: str | None = None


class _Service(msgspec.Struct):
    type: str = ""
    endpoints: list[_Endpoint] = []


class _Token(msgspec.Struct):
    catalog: list[_Service] = []


class _Times(msgspec.Struct):
    issued_at: datetime
    expires_at: datetime


class _Timed(msgspec.Struct):
    token: _Times


class _Tokens(msgspec.Struct):
    token: _Token


_TOKEN: Final = msgspec.json.Decoder(_Tokens)
_TIMED: Final = msgspec.json.Decoder(_Timed)


async def _asked(transport: Transport, request: Request, address: HttpAddress, who: str) -> Reply:
    reply = await transport.send(request)
    if reply.status in {401, 403}:
        raise AuthError(f"{address} does not accept the credentials of {who} ({reply.status}): see that they are right")
    if reply.status >= 500 or reply.status == 429:
        error = failure(address.origin, request, reply)
        assert isinstance(error, RemoteUnavailableError)
        raise error
    return reply


def _lasts_s(reply: Reply) -> float | None:
    """How long a token of Keystone holds, both times by its clock."""
    try:
        times = _TIMED.decode(reply.body).token
        return (times.expires_at - times.issued_at).total_seconds()
    except (*MALFORMED, TypeError):  # one of them without a zone
        return None


def _token(address: HttpAddress, reply: Reply, name: str) -> str:
    token = reply.headers.get(name, "")
    if not token or len(token) > MAX_TOKEN_BYTES or not token.isprintable():
        raise BadReplyError(f"{address} answers {reply.status}, but with no token: is it where one signs in?")
    return token


def _access(address: HttpAddress, token: str, given: HttpAddress | None, url: str) -> Access:
    """Put together what was found.

    Raises:
        UsageError: The token came by TLS and would leave without it, because a server says so.
    """
    if given is not None:
        return Access(token=token, storage=given)
    try:
        storage = parse_address(url)
    except ValueError as error:
        raise BadReplyError(f"{address} names no address of an object store, but {url[:200]!r}: {error}") from None
    if address.scheme == "https" and storage.scheme != "https":
        raise UsageError(
            f"{address} names the object store {storage}, without TLS; if that is right, set OS_STORAGE_URL to it"
        )
    return Access(token=token, storage=storage)
