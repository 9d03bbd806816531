"""A Swift that a test plays, with a sign-in of each kind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, Final

from syncer.remote.http.address import parse_address
from syncer.remote.stores.swift import Keystone, TempAuth
from tests.fakes.httpscript import Answer, Arrived, Script

STAMP: Final = "1700000000.12345"
"""When all objects were written."""


class Cloud:
    """A script with a sign-in of each kind, and answers for the account that a test gives."""

    def __init__(self, answer: Callable[[Arrived], Answer]) -> None:
        self.answer = answer
        self.tokens = 0
        self.storage = ""
        self.catalogue: list[dict[str, Any]] | None = None
        self.asked: list[dict[str, Any]] = []
        self.more: dict[str, str] = {}  # headers of a sign-in
        self.times: dict[str, str] = {}  # of a token of Keystone

    def __call__(self, arrived: Arrived) -> Answer:
        if arrived.path == "/auth/v1.0":
            if arrived.headers["x-auth-key"] != "key":
                return Answer(401, b"<html>no</html>")
            self.tokens += 1
            given = {"X-Auth-Token": f"token-{self.tokens}", "X-Storage-Url": self.storage}
            return Answer(200, headers={**given, **self.more})
        if arrived.path == "/identity/v3/auth/tokens":
            self.asked.append(json.loads(arrived.body or b""))
            self.tokens += 1
            catalogue = [{"type": "object-store", "endpoints": [endpoint(self.storage)]}]
            token = {"catalog": catalogue if self.catalogue is None else self.catalogue, **self.times}
            body = {"token": token}
            return Answer(201, json.dumps(body).encode(), {"X-Subject-Token": f"token-{self.tokens}"})
        if arrived.headers.get("x-auth-token") != f"token-{self.tokens}":
            return Answer(401, early=True)
        if arrived.path == "/v1/AUTH_a/box" and arrived.method == "HEAD":
            return Answer(204, headers={"X-Container-Object-Count": "0"})
        return self.answer(arrived)


def endpoint(url: str, interface: str = "public", region: str = "one") -> dict[str, str]:
    return {"url": url, "interface": interface, "region": region, "region_id": region}


def temp_auth(script: Script, key: str = "key") -> TempAuth:
    return TempAuth(address=parse_address(f"{script.url}/auth/v1.0"), user="a:b", key=key)


def keystone(script: Script, **more: Any) -> Keystone:
    identity = {"methods": ["password"], "password": {"user": {"id": "u", "password": "secret"}}}
    address = parse_address(f"{script.url}/identity/v3")
    return Keystone(**{"address": address, "identity": identity, "who": "u", "scope": {"project": {"id": "p"}}, **more})


def stored(body: bytes = b"data") -> Answer:
    return Answer(200, body, {"ETag": hashlib.md5(body).hexdigest(), "X-Timestamp": STAMP})
