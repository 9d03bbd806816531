"""Where the storage of a cloud is, and whose its token is: one request to Astakos."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from syncer.errors import AuthError, UsageError
from syncer.ports.remote import Counters
from syncer.protocol import astakos
from syncer.protocol.astakos import Access, AccessError
from syncer.protocol.pithos.names import container_name_problem, quote_name
from syncer.remote.http.transport import BadReplyError, HttpSettings, HttpTransport, Request
from syncer.remote.kamaki.kamakirc import Cloud
from syncer.remote.url import RemoteUrl, parse_url


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """One container of a cloud, and how to get at it. Its text form shows no token.

    Attributes:
        url: `pithos+http(s)://…/ACCOUNT/CONTAINER`.
        token: For it.
        settings: How to talk.
    """

    url: str
    token: str
    settings: HttpSettings

    def __repr__(self) -> str:
        return f"Storage({self.url})"


async def find_storage(cloud: Cloud, container: str) -> Storage:
    """Find a container of a cloud; whether it exists is not looked at.

    Raises:
        UsageError: The configuration does not say enough, or the server points from https to http.
        AuthError: The token is not known there.
        RemoteUnavailableError: Astakos can't be reached, or something else answers.
    """
    settings = HttpSettings(ca_file=cloud.ca_certs, ignore_certificates=cloud.ignore_ssl)
    token = cloud.pithos_token or cloud.token
    assert token is not None
    base, account = cloud.pithos_url, cloud.pithos_uuid
    if base is None or account is None:
        if cloud.url is None:
            missing = "pithos_uuid (and pithos_url)" if base is None else "pithos_uuid"
            raise UsageError(f"{cloud.source}: url is missing; without it, {missing} must be there")
        found = await _ask(cloud.url, cloud.token or token, settings)
        if base is None:
            base = found.storage_url
            _refuse_downgrade(cloud, base)
        account = account or found.account
    problem = container_name_problem(container) or container_name_problem(account)
    if problem is not None:
        raise UsageError(f"{cloud.source}: {account!r} and {container!r} make no container: {problem}")
    text = f"pithos+{base}/{quote_name(account)}/{quote_name(container)}"
    try:
        return Storage(url=str(parse_url(text)), token=token, settings=settings)
    except ValueError as error:
        raise UsageError(f"{cloud.source}: {error}") from None


def _refuse_downgrade(cloud: Cloud, base: str) -> None:
    """A token that came over TLS must not leave without it because a server says so."""
    if (cloud.url or "").startswith("https:") and not base.startswith("https:"):
        raise UsageError(
            f"{cloud.source}: {cloud.url} names the storage {base}, without TLS; if that is right, set pithos_url to it"
        )


async def _ask(url: str, token: str, settings: HttpSettings) -> Access:
    parts = urlsplit(f"{url}/tokens")
    if not parts.hostname:
        raise UsageError(f"{url!r} is not a URL of Astakos")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    # The transport wants to know a host; account and container are not asked for.
    host = RemoteUrl(scheme=parts.scheme, host=parts.hostname, port=port, base="", account="-", container="-")
    transport = HttpTransport(host, token, settings, Counters())
    body = astakos.encode_token_request(token)
    request = Request(method="POST", target=parts.path, headers={"Content-Type": "application/json"}, body=body)
    try:
        reply = await transport.send(request)
    finally:
        transport.close()
    if reply.status in {401, 403}:
        raise AuthError(f"{url} does not know the token ({reply.status})")
    if reply.status != 200:
        raise BadReplyError(f"{url} is not the authentication URL of a cloud: it answers {reply.status}")
    try:
        return astakos.decode_access(reply.body)
    except AccessError as error:
        raise BadReplyError(f"{url} is not the authentication URL of a cloud: {error}") from None
