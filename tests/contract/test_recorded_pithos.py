"""The recorded session of a real Pithos 0.21 against the fake and, where we promise it, our own server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tests.contract.remotes import serve_process
from tests.contract.replay import Heard, Player, form, shape
from tests.fakes.pithos import FakePithos
from tests.golden.recorded import Exchange, exchanges

OTHER_STATUS: Final = {
    "no endpoint": 403,
    "container missing POST blocks": 404,
    "PUT no content type": 201,
    "PUT no length": 201,
    "PUT meta raw UTF-8": 201,
    "HEAD meta raw UTF-8": 200,
    "PUT If-Match upper case": 412,
    "GET range past the end": 206,
    "GET range backwards": 416,
    "GET range nonsense": 416,
    "GET range other unit": 416,
    "GET range If-Range right": 206,
    "GET version nonsense": 400,
    "versions HEAD": 400,
    "hashmap as text": 400,
    "POST blocks wrong type": 400,
    "POST blocks wrong type, long body": 400,
    "POST blocks no type": 400,
    "PUT hashmap shorter than its block": 400,
    "GET hashmap shorter than its block": 404,
    "PUT hashmap short hash": 400,
    "PUT hashmap other block size": 400,
    "PUT hashmap other block hash": 400,
    "PUT hashmap text size": 400,
    "POST meta If-Match missing": 412,
    "versions of another spelling": 400,
    "MOVE missing If-Match": 412,
    "MOVE onto itself": 400,
    "PUT X-Move-From no length": 201,
    "DELETE If-Match wrong": 412,
    "HEAD after DELETE If-Match wrong": 200,
    "versions purged": 200,
    "list all XML": 400,
    "list limit 0": 400,
    "list limit negative": 400,
    "list limit nonsense": 400,
    "list until nonsense": 400,
    "names HEAD until": 400,
    "name dot PUT": 400,
    "name dot HEAD": 400,
    "name dot dot PUT": 400,
    "name dot dot HEAD": 400,
    "name dot dot within PUT": 400,
    "name dot dot within HEAD": 400,
    "name double slash PUT": 400,
    "name double slash HEAD": 400,
    "name leading slash PUT": 400,
    "name leading slash HEAD": 400,
    "name trailing slash PUT": 400,
    "name trailing slash HEAD": 400,
    "name only slash PUT": 400,
    "name only slash HEAD": 400,
    "name tab PUT": 400,
    "name tab HEAD": 400,
    "name carriage return PUT": 400,
    "name carriage return HEAD": 400,
    "name DEL PUT": 400,
    "name DEL HEAD": 400,
    "name 1024 umlauts PUT": 201,
    "name 1024 umlauts HEAD": 200,
    "name raw UTF-8 PUT": 400,
    "name slash unquoted HEAD": 400,
    "name 1024 umlauts DELETE": 204,
    "shared versions by other": 403,
    "shared write POST": 400,
    "shared folder PUT by other": 403,
    "shared folder HEAD": 404,
    "public POST": 400,
}
"""What `blocksync serve` answers otherwise: it refuses names and conditions that Synnefo takes."""

BY_THE_CLOCK: Final = {"list If-Modified-Since", "names HEAD If-Modified-Since"}
"""It heeds a date of full seconds only when no further change could hide behind it."""

OWN_WAY: Final = {
    # It keeps tildes and underscores, quotes spaces, and drops empty items.
    *("HEAD meta quoted", "HEAD meta empty value"),
    # The hash of an object that was cut is that of its content.
    *("GET after append and truncate", "hashmap after append and truncate", "GET after truncate by source"),
    *("HEAD after truncate by source", "hashmap after truncate by source", "GET append after truncate"),
    "GET content without range",
    # Odd names were refused; the session takes less than a second here.
    *("names list odd 1", "names list odd 2", "list until"),
}
"""Reads whose reply differs though the status does not."""

PROMISED_HEADERS: Final = (
    *("content-length", "content-range", "etag", "available", "x-object-hash", "x-object-uuid", "x-object-modified-by"),
    *("x-object-allowed-to", "x-container-block-size", "x-container-block-hash", "x-container-policy-versioning"),
)
PROMISED_KEYS: Final = (
    *("name", "bytes", "subdir", "content_type", "x_object_hash", "x_object_uuid", "x_object_version"),
    *("x_object_version_timestamp", "x_object_modified_by"),
)


def test_the_fake_answers_each_request_as_the_real_one_did() -> None:
    differ: list[str] = []
    with FakePithos(block_size=4 << 20, closes=True) as fake:
        fake.others["other-token"] = "bob"
        player = Player(("127.0.0.1", fake.port), {"TOKEN": fake.token, "OTHERTOKEN": "other-token"})
        for one in exchanges():
            heard = player.play(one)
            if heard.status != one.status:
                differ.append(f"{one.name}: status {heard.status}, not {one.status}: {heard.body[:100]!r}")
                continue
            want, got = shape(one.reply.body), shape(heard.body)
            if want != got and one.reply.sha256 != heard.sha256:
                differ.append(f"{one.name}: body {got!r}, not {want!r}")
            same = one.reply.sha256 == heard.sha256
            told = form(one.reply.headers, exact_length=same), form(heard.headers, exact_length=same)
            differ += [
                f"{one.name}: {name} is {told[1].get(name)!r}, not {told[0].get(name)!r}"
                for name in sorted(told[0].keys() | told[1].keys())
                if told[0].get(name) != told[1].get(name)
            ]
    assert not differ, f"{len(differ)} differences:\n" + "\n".join(differ)


def promised(headers: tuple[tuple[str, str], ...], body: bytes) -> tuple[dict[str, str], object]:
    """Of a reply to a reading request: headers and rows that we promise, as far as they are there."""
    told = form(headers, exact_length=True)
    told = {name: value.strip('"') for name, value in told.items() if name in PROMISED_HEADERS or "-meta-" in name}
    told.pop("x-container-object-meta", None)
    kind = next((value for name, value in headers if name.lower() == "content-type"), "")
    if "multipart" in kind or "x-object-uuid" not in told:
        told.pop("content-length", None)  # it is another one, or needs not be told
    try:
        found: Any = json.loads(body)
    except ValueError:
        return told, None
    told.pop("content-length", None)
    if isinstance(found, list) and all(isinstance(row, dict) for row in found):
        rows = [{key: value for key, value in row.items() if key in PROMISED_KEYS} for row in found]
        return told, shape(json.dumps(rows).encode())
    return told, shape(body) if isinstance(found, dict) and {"versions", "hashes"} & found.keys() else None


def difference(one: Exchange, heard: Heard) -> str | None:
    """What a successful read of our own server lacks of what the real one has."""
    if one.method not in {"HEAD", "GET"} or not 200 <= one.status < 300:
        return None
    wanted, got = promised(one.reply.headers, one.reply.body), promised(heard.headers, heard.body)
    if wanted != got:
        return f"{one.name}: {got}, not {wanted}"
    plain = wanted[1] is None and "multipart" not in dict(one.reply.headers).get("Content-Type", "")
    return f"{one.name}: another body" if plain and one.reply.sha256 != heard.sha256 else None


def test_our_own_server_answers_as_the_real_one_did_where_we_promise_it(tmp_path: Path) -> None:
    differ: list[str] = []
    with serve_process(tmp_path, "4MiB", {"other-token": "bob"}) as serve:
        host, _, port = serve.address.partition(":")
        tokens = {"TOKEN": serve.token, "OTHERTOKEN": "other-token"}
        player = Player((host, int(port)), tokens, lambda path: path.replace("/pithos/object-store/v1", "/v1"))
        for one in exchanges():
            heard = player.play(one)
            if one.name in BY_THE_CLOCK:
                continue
            expected = OTHER_STATUS.get(one.name, one.status)
            if heard.status != expected:
                differ.append(f"{one.name}: status {heard.status}, not {expected}")
            elif one.name not in OTHER_STATUS.keys() | OWN_WAY and (found := difference(one, heard)) is not None:
                differ.append(found)
    assert not differ, f"{len(differ)} differences:\n" + "\n".join(differ)
    assert OTHER_STATUS.keys() | OWN_WAY | BY_THE_CLOCK <= {one.name for one in exchanges()}
