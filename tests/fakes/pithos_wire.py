"""How a fake Synnefo Pithos writes what it answers: headers, faults, ranges."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from tests.fakes.pithos_store import META, Container, PithosStore, RefusedError, Version, bad_request, http_date

JSON = "application/json; charset=UTF-8"
TEXT = "text/plain; charset=UTF-8"
_SAFE = "".join(chr(code) for code in range(32, 127) if chr(code) not in "%'+")
_CONTAINER_META = "x-container-meta-"


@dataclass
class Answer:
    """A reply. `chunked`: without a Content-Length. `bare`: none of the headers that Django adds."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    chunked: bool = False
    bare: bool = False


def as_json(status: int, value: object, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, {"Content-Type": JSON, **(headers or {})}, json.dumps(value).encode())


def quoted(text: str) -> str:
    return quote(text, safe=_SAFE)


def header_name(key: str) -> str:
    return quote("-".join(word.capitalize() for word in key.split("-")), safe=_SAFE)


def meta_in(headers: Mapping[str, str], prefix: str = META) -> dict[str, str]:
    """Metadata of a request, by lower-case header name; CGI knows no underscores."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        if name.replace("_", "-").startswith(prefix):
            if any(ord(character) > 126 for character in value):
                raise bad_request("Bad character in headers.")
            if len(name) - len(prefix) > 128:
                raise bad_request("Header name too large.")
            if len(value) > 256:
                raise bad_request("Header value too large.")
            found[unquote(name.replace("_", "-")).lower()] = unquote(value).replace("~", "")
    if len(found) > 32:
        raise bad_request("Pithos+ resources cannot have more than 32 metadata items per domain")
    return found


def object_headers(
    store: PithosStore, box: Container, place: tuple[str, str, str], version: Version, reader: str, host: str
) -> dict[str, str]:
    """What a HEAD or GET says of an object."""
    account, box_name, name = place
    headers = {
        "Available": "1",
        "ETag": store.etag(version),
        "X-Object-Hash": version.etag,
        "X-Object-UUID": version.object_uuid,
        "X-Object-Version": str(version.serial),
        "X-Object-Version-Timestamp": http_date(version.seconds),
        "X-Object-Modified-By": version.author,
        "Last-Modified": http_date(version.seconds),
        "Content-Type": version.content_type,
        **{header_name(key): quoted(value) for key, value in version.meta.items()},
        **version.kept,
    }
    shared, by = sharing_of(box, name)
    if shared:
        headers["X-Object-Sharing"] = shared
        if by != name:
            headers["X-Object-Shared-By"] = f"{account}/{box_name}/{by}"
        if reader != account:
            headers["X-Object-Allowed-To"] = "write" if allowed(shared, reader, "write") else "read"
    if name in box.public and reader == account:
        headers["X-Object-Public"] = f"http://{host}/pithos/public/{box.public[name]}"
    return headers


def container_headers(store: PithosStore, box: Container, account: str, reader: str) -> dict[str, str]:
    live = box.live().values()
    keys = sorted({key.removeprefix(META) for version in live for key in version.meta})
    headers = {
        "X-Container-Block-Size": str(store.block_size),
        "X-Container-Block-Hash": "sha256",
        "X-Container-Object-Meta": ",".join(header_name(key) for key in keys),
        "Last-Modified": box.last_modified(),
    }
    if reader != account:
        return headers
    return {
        **headers,
        "X-Container-Object-Count": str(len(live)),
        "X-Container-Bytes-Used": str(sum(version.size for version in live)),
        "X-Container-Policy-Quota": str(box.quota),
        "X-Container-Policy-Versioning": box.versioning,
        "X-Container-Policy-Project": account,
        **{header_name(key): quoted(value) for key, value in box.meta.items()},
    }


def container_meta(headers: Mapping[str, str]) -> dict[str, str]:
    return meta_in(headers, _CONTAINER_META)


def row_of(box: Container, account: str, name: str, version: Version, reader: str, *, past: bool) -> dict[str, object]:
    """A row of a JSON listing."""
    shared, _ = sharing_of(box, name)
    return {
        "available": 1,
        "hash": "",
        "name": name,
        "bytes": version.size,
        **({"x_object_sharing": shared} if shared else {}),
        "x_object_version_timestamp": version.timestamp,
        "x_object_uuid": version.object_uuid,
        **({} if past else {"last_modified": version.iso}),
        "content_type": version.content_type,
        "x_object_hash": version.etag,
        "map_check_timestamp": None,
        "x_object_version": version.serial,
        "x_object_modified_by": version.author,
        **({"x_object_allowed_to": "read"} if reader != account else {}),
    }


def as_xml(name: str, rows: list[dict[str, object]]) -> bytes:
    parts = [
        "  <object>\n  \n"
        + "  \n".join(f"    <{key}>{value}</{key}>\n" for key, value in row.items())
        + "  \n  </object>\n"
        for row in rows
    ]
    gap = "  \n  \n"
    objects = f"{gap}  \n".join(parts)
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n\n<container name="{name}">\n{gap}'
    return f"{head}{objects}{gap}</container>\n".encode()


def sharing_of(box: Container, name: str) -> tuple[str, str]:
    """How a name is shared, and by which: itself, or a directory above it."""
    at = name
    while at:
        if at in box.sharing:
            return box.sharing[at], at
        at = at.rpartition("/")[0]
    return "", ""


def allowed(sharing: str, reader: str, right: str) -> bool:
    grants = dict(part.strip().partition("=")[::2] for part in sharing.split(";") if part)
    rights = {"write"} if right == "write" else {"read", "write"}
    return any(reader in users.split(",") for grant, users in grants.items() if grant in rights)


def ranges_in(wanted: str | None, size: int) -> list[range] | None:
    """The ranges of a header; None if it is to be ignored."""
    if wanted is None or not wanted.startswith("bytes="):
        return None
    found: list[range] = []
    for part in wanted.removeprefix("bytes=").split(","):
        match = re.fullmatch(r"\s*(\d*)-(\d*)\s*", part)
        if match is None or not (match[1] or match[2]):
            return None
        first = int(match[1]) if match[1] else max(0, size - int(match[2]))
        last = int(match[2]) if match[1] and match[2] else size - 1
        if last < first and match[2] and match[1]:
            return None
        if last >= size or first >= size:
            refused = RefusedError(416, "rangeNotSatisfiable", "Requested range exceeds object limits")
            refused.headers["Content-Type"] = TEXT
            raise refused
        found.append(range(first, last + 1))
    return found


def several(data: bytes, ranges: list[range], boundary: str) -> bytes:
    parts = [
        f"--{boundary}\r\nContent-Range: bytes {each.start}-{each.stop - 1}/{len(data)}\r\n"
        "Content-Transfer-Encoding: binary\r\n\r\n".encode()
        + data[each.start : each.stop]
        + b"\r\n"
        for each in ranges
    ]
    return b"".join(parts) + f"--{boundary}--\r\n".encode()
