"""The token request and the service catalogue."""

from __future__ import annotations

import json

import pytest

from syncer.protocol.astakos import TokenRequestError, decode_token_request, encode_access


def test_a_token_request_names_a_token_and_perhaps_an_account() -> None:
    assert decode_token_request(b'{"auth": {"token": {"id": "t"}}}') == ("t", None)
    assert decode_token_request(b'{"auth": {"token": {"id": "t"}, "tenantName": "alice"}}') == ("t", "alice")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"\xff", b'{"auth": {"passwordCredentials": {"username": "a", "password": "b"}}}']
)
def test_anything_else_is_refused(body: bytes) -> None:
    with pytest.raises(TokenRequestError):
        decode_token_request(body)


def test_the_catalogue_has_the_storage_and_what_kamaki_insists_on() -> None:
    access = json.loads(encode_access("t", "alice", "http://host:1"))["access"]
    assert access["token"]["tenant"]["id"] == access["user"]["id"] == "alice"
    services = {service["name"]: service["endpoints"] for service in access["serviceCatalog"]}
    assert [(e["publicURL"], e["versionId"]) for e in services["pithos_object-store"]] == [("http://host:1/v1", "v1")]
    account = services["astakos_account"][0]
    assert account["versionId"] == "v1.0"
    assert account["SNF:uiURL"].startswith("http://host:1/")
