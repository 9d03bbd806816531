"""The token request and the service catalogue."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.protocol.astakos import (
    AccessError,
    TokenRequestError,
    decode_access,
    decode_token_request,
    encode_access,
    encode_token_request,
)


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


@given(st.text(min_size=1), st.text(min_size=1))
def test_what_a_server_tells_a_client_reads(token: str, account: str) -> None:
    found = decode_access(encode_access(token, account, "http://h:1"))
    assert (found.account, found.storage_url) == (account, "http://h:1/v1")
    assert decode_token_request(encode_token_request(token)) == (token, None)


@given(st.binary(max_size=100))
def test_nothing_else_is_taken_for_an_answer(body: bytes) -> None:
    with pytest.raises(AccessError):
        decode_access(body)


def test_an_answer_without_a_storage_is_none() -> None:
    with pytest.raises(AccessError, match="object-store"):
        decode_access(b'{"access":{"user":{"id":"u"},"serviceCatalog":[{"type":"compute","endpoints":[]}]}}')
