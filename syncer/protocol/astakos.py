"""Astakos's `POST /identity/v2.0/tokens`, as far as Pithos clients need it to find their account and storage. Pure.

Astakos is Synnefo's identity service; its API is OpenStack's Identity v2.0 with a few keys of its own. kamaki asks it
with every command, whether or not its configuration names the storage's URL.
"""

from __future__ import annotations

from typing import Final

import msgspec

from syncer.protocol.jsontext import MALFORMED

IDENTITY_PATH: Final = "/identity/v2.0"
"""The path of the authentication URL that a client is given."""

TOKENS_PATH: Final = f"{IDENTITY_PATH}/tokens"
ACCOUNT_PATH: Final = "/account/v1.0"
CATALOGS_PATH: Final = f"{ACCOUNT_PATH}/user_catalogs"
STORAGE_PATH: Final = "/v1"
STORAGE_TYPE: Final = "object-store"
MAX_REQUEST_BYTES: Final = 16 << 10

_NEVER: Final = "9999-12-31T23:59:59.000000+00:00"  # our tokens don't expire; kamaki shows the date


class TokenRequestError(Exception):
    """The body is not `{"auth": {"token": {"id": …}}}`."""


class _Token(msgspec.Struct):
    id: str


class _Auth(msgspec.Struct):
    token: _Token
    tenant: str | None = msgspec.field(default=None, name="tenantName")


class _TokenRequest(msgspec.Struct):
    auth: _Auth


_DECODER: Final = msgspec.json.Decoder(_TokenRequest)


def decode_token_request(body: bytes) -> tuple[str, str | None]:
    """Read who asks.

    Returns:
        The token, and the account it is expected to be of (None: any).

    Raises:
        TokenRequestError: Another form. Passwords (`passwordCredentials`) are not known here.
    """
    try:
        auth = _DECODER.decode(body).auth
    except MALFORMED as error:
        raise TokenRequestError(f'expected {{"auth": {{"token": {{"id": "…"}}}}}}: {error}') from None
    return auth.token.id, auth.tenant


class AccessError(Exception):
    """The body is not an answer to a token request that names a storage."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What a client learns from Astakos.

    Attributes:
        account: Whose token it is.
        storage_url: Where the accounts of the object store are, without a slash at the end.
    """

    account: str
    storage_url: str


class _Endpoint(msgspec.Struct):
    url: str = msgspec.field(name="publicURL")


class _Service(msgspec.Struct):
    type: str
    endpoints: list[_Endpoint] = []


class _User(msgspec.Struct):
    id: str


class _AccessBody(msgspec.Struct):
    user: _User
    services: list[_Service] = msgspec.field(name="serviceCatalog")


class _AccessReply(msgspec.Struct):
    access: _AccessBody


_ACCESS: Final = msgspec.json.Decoder(_AccessReply)


def encode_token_request(token: str) -> bytes:
    """Ask who a token's owner is."""
    return msgspec.json.encode({"auth": {"token": {"id": token}}})


def decode_access(body: bytes) -> Access:
    """Read the answer.

    Raises:
        AccessError: Not such an answer, or without a storage.
    """
    try:
        access = _ACCESS.decode(body).access
    except MALFORMED as error:
        raise AccessError(f"not an answer of Astakos: {error}") from None
    urls = [endpoint.url for one in access.services if one.type == STORAGE_TYPE for endpoint in one.endpoints]
    if not urls:
        raise AccessError(f"its catalogue has no service of the type {STORAGE_TYPE}")
    return Access(account=access.user.id, storage_url=urls[0].rstrip("/"))


class _CatalogsRequest(msgspec.Struct):
    uuids: list[str] | None = None
    displaynames: list[str] | None = None


_CATALOGS: Final = msgspec.json.Decoder(_CatalogsRequest)


def answer_catalogs(body: bytes) -> bytes:
    """Tell the names of accounts, or the accounts of names: they are the same here, whether they exist or not.

    Raises:
        TokenRequestError: Another form.
    """
    try:
        wanted = _CATALOGS.decode(body)
    except MALFORMED as error:
        raise TokenRequestError(f'expected {{"uuids": […]}} or {{"displaynames": […]}}: {error}') from None
    return msgspec.json.encode(
        {
            "uuid_catalog": {name: name for name in wanted.uuids or []},
            "displayname_catalog": {name: name for name in wanted.displaynames or []},
        }
    )


def encode_access(token: str, account: str, base_url: str) -> bytes:
    """Write who a token's owner is, and where the services are.

    Args:
        token: As asked.
        account: Whose it is; the storage's account has the same name.
        base_url: Scheme and authority of the server, without a slash at the end.
    """
    tenant = {"id": account, "name": account}
    storage = _endpoint(base_url + STORAGE_PATH, "v1")
    # kamaki refuses a catalogue without Astakos's own services, though it needs nothing of them.
    identity = [
        {"name": f"astakos_{kind}", "type": kind, "endpoints": [_endpoint(base_url + path, version)]}
        for kind, path, version in (
            ("identity", IDENTITY_PATH, "v2.0"),
            ("account", ACCOUNT_PATH, "v1.0"),
            ("weblogin", "/weblogin", ""),
        )
    ]
    access = {
        "token": {"id": token, "expires": _NEVER, "tenant": tenant},
        "serviceCatalog": [
            {"name": "pithos_object-store", "type": STORAGE_TYPE, "endpoints": [storage]},
            *identity,
        ],
        "user": {"id": account, "name": account, "roles": [{"id": "1", "name": "default"}], "roles_links": []},
    }
    return msgspec.json.encode({"access": access})


def _endpoint(url: str, version: str) -> dict[str, str]:
    return {"region": "default", "publicURL": url, "versionId": version, "SNF:uiURL": url}
