"""The same requests to a real OpenStack Swift and to ours: statuses, headers that clients read, and bodies.

What differs on purpose is in the reference (OpenStack's clients) and is not asked for here.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.integration.live_server import server_in_thread
from tests.kit import swift as swifts
from tests.kit.swift import KEY, USER

TOLD: Final = frozenset(
    {"etag", "content-length", "content-type", "content-range", "accept-ranges", "content-encoding"}
    | {
        "content-disposition",
        "cache-control",
        "content-language",
        "expires",
        "x-copied-from",
        "x-object-manifest",
        "x-static-large-object",
    }
)
PREFIXES: Final = ("x-object-meta-", "x-container-meta-", "x-account-meta-", "x-container-object-", "x-account-object-")

Ask = tuple[str, str, dict[str, str], bytes]


class Session:
    """One of the two, after a login."""

    def __init__(self, address: str, user: str, key: str) -> None:
        self._address = address
        login = self._raw("GET", "/auth/v1.0", {"X-Auth-User": user, "X-Auth-Key": key})
        self._token = login[1]["x-auth-token"]
        self._base = urlsplit(login[1]["x-storage-url"]).path

    def _raw(
        self, method: str, path: str, fields: dict[str, str], body: bytes = b""
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self._address, timeout=60)
        connection.request(method, path, body, fields)
        reply = connection.getresponse()
        found = reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
        connection.close()
        return found

    def __call__(self, ask: Ask) -> tuple[int, dict[str, str], Any]:
        """What matters of a reply: its status, headers of which both know something to tell, and what the body says."""
        method, path, fields, body = ask
        status, headers, told = self._raw(method, self._base + path, {"X-Auth-Token": self._token, **fields}, body)
        if status >= 300 or method in {"PUT", "POST", "COPY", "DELETE"}:  # the bodies of these are for people
            etag = {"etag": headers["etag"]} if status == 201 and "etag" in headers and "=get" not in path else {}
            return status, etag, b""
        found = {name: value for name, value in headers.items() if name in TOLD or name.startswith(PREFIXES)}
        if status == 204:  # of no body, one says how long it is
            found.pop("content-length", None)
            found.pop("content-type", None)
        for name in ("content-length", "accept-ranges") if not path.partition("?")[0].count("/") > 1 else ():
            found.pop(name, None)
        return status, found, _said(headers.get("content-type", ""), told)


def _said(kind: str, body: bytes) -> Any:
    if "json" in kind and body:
        rows = json.loads(body)
        return [
            {key: value for key, value in row.items() if key not in {"last_modified", "storage_policy"}} for row in rows
        ]
    if "xml" in kind:
        return re.findall(rb"<(?:name|hash|bytes|count|subdir)[^>]*>[^<\n]*", body)
    return body


class Pair(msgspec.Struct, frozen=True):
    """Both."""

    real: Session
    ours: Session

    def agree(self, *asked: Ask) -> None:
        for ask in asked:
            assert self.ours(ask) == self.real(ask), ask


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("alike")
    (folder / "swift").mkdir()
    with swifts.running(folder / "swift") as found, server_in_thread(Path(folder) / "s") as address:
        pair = Pair(Session(urlsplit(found.url).netloc, USER, KEY), Session(address, "alice", "token-alice"))
        pair.agree(ask("PUT", "/c"))
        yield pair


def ask(method: str, path: str, body: bytes = b"", **fields: str) -> Ask:
    return method, path, {name.replace("_", "-"): value for name, value in fields.items()}, body


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def test_containers_and_accounts(both: Pair) -> None:
    both.agree(
        ask("PUT", "/k", X_Container_Meta_A="one two", X_Container_Meta_B="50%25"),
        ask("PUT", "/k"),
        ask("HEAD", "/k"),
        ask("POST", "/k", X_Container_Meta_C="3", X_Remove_Container_Meta_A="x"),
        ask("HEAD", "/k"),
        ask("GET", "/k?format=json"),
        *(ask("PUT", f"/{name}") for name in ("g", "g-1", "g-2", "g_1")),
        *(
            ask("GET", f"?prefix=g&delimiter=-{query}{form}")
            for query in ("", "&marker=g-", "&marker=g-1", "&end_marker=g-2", "&limit=2", "&reverse=on")
            for form in ("", "&format=json", "&format=xml")
        ),
        *(ask("DELETE", f"/{name}") for name in ("g", "g-1", "g-2", "g_1")),
        ask("DELETE", "/k"),
        ask("DELETE", "/k"),
        ask("HEAD", "/k"),
        ask("POST", "", X_Account_Meta_A="one two"),
        ask("HEAD", ""),
        ask("POST", "", X_Remove_Account_Meta_A="x"),
        *(ask("GET", query) for query in ("", "?format=json", "?format=xml", "?reverse=on", "?limit=0", "?prefix=z")),
    )


def test_objects_and_what_is_told_of_them(both: Pair) -> None:
    fields = {"Content_Encoding": "gzip", "Content_Disposition": 'attachment; filename="a b"', "Expires": "0"}
    both.agree(
        ask("PUT", "/c/a.txt", b"hello"),
        ask("HEAD", "/c/a.txt"),
        ask("PUT", "/c/f", b"0123", Content_Type="t/t", X_Object_Meta_A="one two", X_Object_Meta_B="50%", **fields),
        ask("HEAD", "/c/f"),
        ask("GET", "/c/f"),
        ask("POST", "/c/f", X_Object_Meta_C="3"),
        ask("HEAD", "/c/f"),
        ask("POST", "/c/f", Content_Type="u/u", Cache_Control="no-cache"),
        ask("HEAD", "/c/f"),
        ask("PUT", "/c/f", b"x", ETag=md5(b"y")),
        ask("PUT", "/c/f", b"x", If_None_Match="*"),
        ask("PUT", "/c/p.png", b"x", Content_Type="x/y", X_Detect_Content_Type="true"),
        ask("HEAD", "/c/p.png"),
        ask("PUT", "/none/f", b"x"),
        ask("POST", "/c/none"),
        ask("DELETE", "/c/p.png"),
        ask("GET", "/c/p.png"),
        *(ask(method, f"/c/{name}") for method in ("GET", "HEAD", "DELETE") for name in ("d/", "a//b", "a/../b")),
        ask("DELETE", "/c"),
    )


def test_ranges_and_conditions(both: Pair) -> None:
    both.agree(ask("PUT", "/c/r", b"0123456789", Content_Type="t/t"), ask("PUT", "/c/e", b""))
    for value in ("0-3", "5-", "-3", "-30", "5-100", "10-", "10-20", "-0", "3-1", "x", "0-1,100-", "100-,200-"):
        both.agree(ask("GET", "/c/r", Range=f"bytes={value}"))
    for value in ("bytes=0-", "bytes=-5", "lines=0-1"):
        both.agree(ask("GET", "/c/e", Range=value))
    etag, past, future = md5(b"0123456789"), "Mon, 01 Jan 2024 00:00:00 GMT", "Fri, 01 Jan 2038 00:00:00 GMT"
    for name in ("If_Match", "If_None_Match"):
        both.agree(*(ask(method, "/c/r", **{name: value}) for method in ("GET", "HEAD") for value in (etag, "x", "*")))
    for name in ("If_Modified_Since", "If_Unmodified_Since"):
        both.agree(*(ask("GET", "/c/r", **{name: value}) for value in (past, future, "garbage")))


def test_copies(both: Pair) -> None:
    both.agree(
        ask("PUT", "/c/s", b"copy me", Content_Type="t/t", Content_Encoding="gzip", X_Object_Meta_A="1"),
        ask("COPY", "/c/s", Destination="c/c1", X_Object_Meta_B="2"),
        ask("HEAD", "/c/c1"),
        ask("COPY", "/c/s", Destination="/c/c2", X_Fresh_Metadata="true", X_Object_Meta_B="2"),
        ask("HEAD", "/c/c2"),
        ask("PUT", "/c/c3", X_Copy_From="c/%73", Content_Disposition="inline", Content_Type="u/u"),
        ask("GET", "/c/c3"),
        ask("COPY", "/c/s", Destination="c/c4", Range="bytes=1-3"),
        ask("GET", "/c/c4"),
        ask("COPY", "/c/s", Destination="c/c5", Range="bytes=100-"),
        ask("HEAD", "/c/c5"),
        ask("COPY", "/c/s", Destination="none/f"),
        ask("PUT", "/c/c5", X_Copy_From="/c/none"),
        ask("COPY", "/c/s", Destination="c/c5", Destination_Account="somebody"),
        ask("COPY", "/c/s", Destination="c/c5", If_Match="x"),
    )


def test_objects_of_segments(both: Pair) -> None:
    both.agree(
        *(ask("PUT", f"/c/seg/{number}", data) for number, data in enumerate((b"aaaa", b"bbb", b"cc"))),
        ask("PUT", "/c/d", X_Object_Manifest="c/seg/", Content_Type="t/t", X_Object_Meta_A="1"),
        ask("HEAD", "/c/d"),
        ask("GET", "/c/d"),
        ask("GET", "/c/d", Range="bytes=3-50"),
        ask("GET", "/c/d", Range="bytes=30-"),
        ask("GET", "/c/d?multipart-manifest=get"),
        ask("GET", "/c/d", If_None_Match=md5((md5(b"aaaa") + md5(b"bbb") + md5(b"cc")).encode())),
        ask("COPY", "/c/d", Destination="c/d1"),
        ask("GET", "/c/d1"),
        ask("COPY", "/c/d?multipart-manifest=get", Destination="c/d2"),
        ask("HEAD", "/c/d2"),
        ask("PUT", "/c/d3", X_Copy_From="c/d", Range="bytes=3-5"),
        ask("GET", "/c/d3"),
        ask("PUT", "/c/d4", X_Object_Manifest="c"),
        ask("PUT", "/c/d5", X_Object_Manifest="none/seg/"),
        ask("GET", "/c/d5"),
        ask("HEAD", "/c/d5"),
    )


def test_objects_of_listed_segments(both: Pair) -> None:
    pieces = (b"aaaa", b"bbb", b"cc")
    rows = [{"path": f"/s/{at}", "etag": md5(piece), "size_bytes": len(piece)} for at, piece in enumerate(pieces)]
    manifest = json.dumps(rows).encode()
    both.agree(
        ask("PUT", "/s"),
        *(ask("PUT", f"/s/{at}", piece, Content_Type="t/t") for at, piece in enumerate(pieces)),
        ask("PUT", "/s/f?multipart-manifest=put", manifest, Content_Type="x/y", X_Object_Meta_A="1"),
        ask("HEAD", "/s/f"),
        ask("GET", "/s/f"),
        ask("GET", "/s/f", Range="bytes=3-50"),
        ask("GET", "/s/f", Range="bytes=30-"),
        ask("GET", "/s/f", If_None_Match=md5("".join(map(md5, pieces)).encode())),
        ask("POST", "/s/f", X_Object_Meta_B="2"),
        ask("HEAD", "/s/f"),
        ask("COPY", "/s/f", Destination="s/g"),
        ask("GET", "/s/g"),
        ask("COPY", "/s/f?multipart-manifest=get", Destination="s/h"),
        ask("GET", "/s/h"),
        ask("PUT", "/s/i?multipart-manifest=put", b"no manifest"),
        ask("PUT", "/s/i?multipart-manifest=put", b'[{"path":"/s/none"}]'),
        ask("PUT", "/s/i?multipart-manifest=put", b'[{"path":"/s/0","size_bytes":9}]'),
        ask("PUT", "/s/i?multipart-manifest=put", manifest, ETag="0" * 32),
        ask("PUT", "/s/2?multipart-manifest=put", manifest),
        ask("GET", "/s/2"),
        ask("DELETE", "/s/f?multipart-manifest=delete"),
        ask("GET", "/s"),
        ask("GET", "/s/h"),
    )


NAMES: Final = ("a", "a/1", "a/2", "a/b/3", "b", "c/1", "c/2", "d%20%3C&%3E", "e-1", "%C3%A9%25")
QUERIES: Final = (
    "format=plain",
    "format=other",
    "prefix=a",
    "prefix=a/&delimiter=/",
    "delimiter=/",
    "prefix=a&delimiter=/",
    "delimiter=-",
    "delimiter=e-",
    "path=a",
    "path=a/",
    "path=",
    "marker=b",
    "marker=b&limit=2",
    "end_marker=b",
    "marker=a&end_marker=c",
    "limit=0",
    "limit=x",
    "reverse=true",
    "reverse=true&limit=3",
    "reverse=on&marker=c",
    "reverse=1&marker=c&end_marker=a",
    "reverse=true&delimiter=/",
    "reverse=true&prefix=a",
    "reverse=true&delimiter=/&limit=2",
    "reverse=true&path=a",
    "reverse=true&delimiter=/&marker=c/",
    "reverse=true&delimiter=/&end_marker=c/",
    "reverse=true&delimiter=/&end_marker=c/1",
    "reverse=false",
    "marker=zz",
    "prefix=zz",
    "delimiter=/&marker=a/",
    "delimiter=/&marker=a/1",
    "delimiter=/&marker=c/2",
    "delimiter=/&marker=a",
    "delimiter=/&marker=c/&limit=1",
)


def test_lists(both: Pair) -> None:
    both.agree(ask("PUT", "/l"), *(ask("PUT", f"/l/{name}", b"x", Content_Type="t/t") for name in NAMES))
    for query in QUERIES:
        both.agree(*(ask("GET", f"/l?{query}{form}") for form in ("", "&format=json", "&format=xml")))
    for accept in (
        "application/json",
        "application/xml",
        "*/*",
        "application/json, */*",
        "text/plain;q=0.5, application/json",
    ):
        both.agree(ask("GET", "/l?limit=2", Accept=accept))
