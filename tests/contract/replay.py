"""Play a recorded session against a server, and compare its answers: some values by their format."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tests.golden.recorded import Exchange

_FORMATS: tuple[tuple[str, str], ...] = (
    (r"\w{3}, \d{2} \w{3} \d{4} \d{2}:\d{2}:\d{2} GMT", "<HTTP date>"),
    (r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{6})?\+00:00", "<ISO date>"),
    (r"\d{10}\.\d{6}", "<seconds>"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uuid>"),
    (r"http://[^/]+/pithos/public/\w+", "<public URL>"),
    (r"multipart/byteranges; boundary=\w+", "<multipart>"),
)


class Heard(msgspec.Struct, frozen=True):
    """A reply."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    sha256: str


class Player:
    """Sends recorded requests, with values of this server's own earlier replies in place of the recorded ones."""

    def __init__(self, address: tuple[str, int], tokens: Mapping[str, str], path: Callable[[str], str] = str) -> None:
        self._address = address
        self._tokens = tokens
        self._path = path
        self._heard: dict[str, Heard] = {}

    def play(self, one: Exchange) -> Heard:
        target, headers = self._path(one.path), list(one.request.headers)
        for use in one.uses:
            mine = self._value(use)
            target = target.replace(str(use["value"]), mine)
            headers = [(name, value.replace(str(use["value"]), mine)) for name, value in headers]
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        connection.putrequest(one.method, target, skip_host=True, skip_accept_encoding=True)
        chunked = False
        for name, value in headers:
            known = self._tokens.get(value, value) if name == "X-Auth-Token" else value
            chunked = chunked or (name, value) == ("Transfer-Encoding", "chunked")
            connection.putheader(name, known.encode() if name != "Host" else f"{self._address[0]}:{self._address[1]}")
        connection.endheaders()
        body = one.request.body
        connection.send((f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n") if chunked else body)
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        heard = Heard(reply.status, tuple(reply.getheaders()), data, hashlib.sha256(data).hexdigest())
        self._heard[one.name] = heard
        return heard

    def _value(self, use: Mapping[str, Any]) -> str:
        """What this server said where the recorded one said the value."""
        heard, where = self._heard[use["of"]], use["in"]
        if isinstance(where, str):
            value = next(value for name, value in heard.headers if name.lower() == where.lower())
        else:
            found: Any = json.loads(heard.body)
            for step in where:
                found = found[step]
            value = str(found)
        if "plus_seconds" in use:
            return str(int(float(value)) + int(use["plus_seconds"]))
        return value


def form(headers: tuple[tuple[str, str], ...], *, exact_length: bool) -> dict[str, str]:
    """Headers by lower-case name, with formats for values that no two servers have alike."""
    return {
        name.lower(): _formed(name.lower(), value) if exact_length or name.lower() != "content-length" else "<number>"
        for name, value in headers
    }


def _formed(name: str, value: str) -> str:
    if name == "x-object-version":
        return re.sub(r"\d{2,}", "<number>", value) if value.startswith("%28") else re.sub(r"\d+", "<number>", value)
    for pattern, text in _FORMATS:
        if re.fullmatch(pattern, value):
            return text
    return value


def shape(body: bytes) -> object:
    """A body, with formats for what no two servers have alike."""
    try:
        return _shaped("", json.loads(body))
    except ValueError:
        text = body.decode("latin-1")
        text = re.sub(r"--[0-9a-f]{32}", "--<boundary>", text)
        text = re.sub(r"Request Line is too large \(\d+", "Request Line is too large (<number>", text)
        text = re.sub(r"<x_object_version>\d+", "<x_object_version><number>", text)
        for pattern, name in _FORMATS:
            text = re.sub(pattern, name, text)
        return text


def _shaped(key: str, value: object) -> object:
    if isinstance(value, dict):
        return {name: _shaped(name, one) for name, one in value.items()}
    if isinstance(value, list):
        return [_shaped(key, one) for one in value]
    if key in {"x_object_version", "versions"} and isinstance(value, int):
        return "<number>"
    return _formed(key, value) if isinstance(value, str) else value
