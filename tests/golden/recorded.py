"""What a real Pithos answered, request by request: `pithos-0.21.json.xz`, read."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

RECORD = Path(__file__).parent / "pithos-0.21.json.xz"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A request or a reply.

    Attributes:
        headers: In order, names as they were sent.
        body: Its bytes; of a long reply they were not kept.
        sha256: Of the body, in hex.
    """

    headers: tuple[tuple[str, str], ...]
    body: bytes
    sha256: str

    def header(self, name: str) -> str | None:
        """The first of that name, in whatever case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request and its reply.

    Attributes:
        name: Of this exchange, unique.
        why: What it was made for.
        uses: Values of earlier replies that are in the request.
    """

    name: str
    why: str
    method: str
    path: str
    request: Message
    status: int
    reply: Message
    uses: tuple[Mapping[str, Any], ...] = ()


@cache
def exchanges() -> tuple[Exchange, ...]:
    """All of them but the two of a stand-in for Astakos, in order."""
    found = json.loads(lzma.decompress(RECORD.read_bytes()))
    return tuple(_exchange(one) for one in found if not one["name"].startswith("astakos "))


def _exchange(one: dict[str, Any]) -> Exchange:
    asked, answered = one["request"], one["response"]
    return Exchange(
        name=one["name"],
        why=one["why"],
        method=asked["method"],
        path=asked["path"],
        request=_message(asked),
        status=answered["status"],
        reply=_message(answered),
        uses=tuple(one.get("uses", ())),
    )


def _message(form: dict[str, Any]) -> Message:
    body = form["body"]
    if isinstance(body, dict) and "sha256" in body:
        data, digest = b"", body["sha256"]
    else:
        data = _body(body)
        digest = hashlib.sha256(data).hexdigest()
    return Message(headers=tuple((name, value) for name, value in form["headers"]), body=data, sha256=digest)


def _body(form: str | dict[str, Any]) -> bytes:
    if isinstance(form, str):
        return form.encode()
    if "hex" in form:
        return bytes.fromhex(form["hex"])
    text, count = form["repeat"]
    return bytes.fromhex(text) * int(count)
