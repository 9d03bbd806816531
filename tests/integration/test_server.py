"""The HTTP interface, through real sockets: what docs/reference/server.md promises."""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from blockfs.errors import BlockfsError, CorruptBlockError, NoSpaceError
from syncer.errors import CorruptionError
from syncer.server.catalogue.commits import StoreClosedError
from syncer.server.folder import ServerFolder
from syncer.server.http import arriving
from syncer.server.store.store import Store
from tests.integration.live_server import BLOCK, Client, server_in_thread, serving

EMPTY = hashlib.sha256(b"").hexdigest()
STREAM = "application/octet-stream"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_in_thread(tmp_path_factory.mktemp("server") / "s") as found:
        yield found


@pytest.fixture
def alice(address: str) -> Iterator[Client]:
    client = Client(address)
    yield client
    client.close()


@pytest.fixture
def c(alice: Client, request: pytest.FixtureRequest) -> str:
    """An empty container of this test's own."""
    name = f"c{abs(hash(request.node.nodeid))}"
    assert alice("PUT", f"/{name}").status == 201
    return name


def block_id(data: bytes) -> str:
    return hashlib.sha256(data.rstrip(b"\0")).hexdigest()


# --- who may


def test_without_a_known_token_nothing_is_told(address: str) -> None:
    for token in (None, "", "wrong", "token-alic"):
        client = Client(address, token=token)
        for method, path in (("GET", "/c?format=json"), ("PUT", "/c"), ("GET", "/../x"), ("COPY", "/c")):
            reply = client(method, path)
            assert reply.status == 401
            assert reply.fault == "unauthorized"
        client.close()


def test_a_token_is_for_one_account(address: str) -> None:
    client = Client(address, token="token-bob", account="alice")
    reply = client("PUT", "/c")
    assert (reply.status, reply.fault) == (403, "forbidden")
    client.close()


def test_the_identity_call_tells_where_the_account_of_a_token_is(address: str) -> None:
    client = http.client.HTTPConnection(address, timeout=60)

    def ask(body: object | None, method: str = "POST", **fields: str) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        client.request(method, "/identity/v2.0/tokens", data, fields)
        reply = client.getresponse()
        return reply.status, reply.read()

    def token(name: str, **more: str) -> dict[str, object]:
        return {"auth": {"token": {"id": name}, **more}}

    status, body = ask(token("token-alice"))
    assert status == 200
    access = json.loads(body)["access"]
    assert access["user"]["id"] == "alice"
    assert access["serviceCatalog"][0]["endpoints"][0]["publicURL"] == f"http://{address}/v1"
    assert ask(None, **{"X-Auth-Token": "token-alice"}) == (200, body)
    assert ask(token("token-alice", tenantName="alice")) == (200, body)
    assert ask(token("token-alice", tenantName="bob"))[0] == 401
    assert ask(token("nobody"))[0] == ask(None)[0] == 401
    assert ask({"auth": {}})[0] == 400
    assert ask(None, "GET")[0] == 405
    assert ask(token("x" * 20_000))[0] == 413
    client.close()


def test_the_version_segment_is_optional(alice: Client, c: str, address: str) -> None:
    bare = Client(address)
    bare._connection.request("HEAD", f"/alice/{c}", headers={"X-Auth-Token": "token-alice"})
    assert bare._connection.getresponse().status == 204
    bare.close()


# --- containers


def test_a_container_tells_its_block_size_and_identity(alice: Client, c: str) -> None:
    again = alice("PUT", f"/{c}")
    head = alice("HEAD", f"/{c}")
    assert (again.status, head.status) == (202, 204)
    assert head.headers["X-Container-Block-Size"] == str(BLOCK)
    assert head.headers["X-Container-Block-Hash"] == "sha256"
    assert head.headers["X-Container-Object-Count"] == "0"
    assert head.headers["X-Blocksync-Atomic"] == "1"
    identity = head.headers["X-Container-Identity"]
    assert again.headers["X-Container-Identity"] == identity
    assert alice("DELETE", f"/{c}").status == 204
    assert alice("HEAD", f"/{c}").status == 404
    assert alice("PUT", f"/{c}").headers["X-Container-Identity"] != identity


def test_a_container_with_objects_is_not_deleted(alice: Client, c: str) -> None:
    alice("PUT", f"/{c}/f", b"x")
    reply = alice("DELETE", f"/{c}")
    assert (reply.status, reply.fault) == (409, "conflict")
    alice("DELETE", f"/{c}/f")
    assert alice("DELETE", f"/{c}").status == 204


def test_an_account_lists_its_containers(alice: Client, c: str) -> None:
    alice("PUT", f"/{c}/f", b"12345")
    rows = {row["name"]: row for row in alice("GET", "?format=json").json}
    assert (rows[c]["count"], rows[c]["bytes"]) == (1, 5)
    assert f"{c}\n" in alice("GET", "").body.decode()
    assert alice("GET", f"?format=json&prefix={c}&limit=1").json[0]["name"] == c
    head = alice("HEAD", "")
    assert head.status == 204
    assert int(head.headers["X-Account-Container-Count"]) == len(rows)


def test_an_account_that_never_wrote_is_empty(address: str) -> None:
    bob = Client(address, token="token-bob", account="bob")
    assert bob("HEAD", "").headers["X-Account-Container-Count"] == "0"
    assert bob("GET", "?format=json").json == []
    assert bob("GET", "").status == 204
    bob.close()


def test_listings_page_by_marker_in_json_and_text(alice: Client, c: str) -> None:
    for name in ("a", "a/1", "a/2", "b", "%C3%A9"):
        alice("PUT", f"/{c}/{name}", b"")
    assert alice.names(c) == ["a", "a/1", "a/2", "b", "é"]
    assert alice.names(c, "&limit=2&marker=a%2F1") == ["a/2", "b"]
    assert alice.names(c, "&prefix=a%2F") == ["a/1", "a/2"]
    assert alice.names(c, "&marker=gone") == ["é"]
    assert alice("GET", f"/{c}?limit=2").body == b"a\na/1\n"
    assert alice("GET", f"/{c}?prefix=zz").status == 204
    assert alice("GET", f"/{c}", Accept="application/json").json[0]["name"] == "a"
    for query in ("limit=0", "limit=x", "limit=-1", "format=xml", "until=x"):
        assert alice("GET", f"/{c}?{query}").status == 400


def test_several_ranges_come_as_parts_of_one_reply(alice: Client, c: str) -> None:
    data = os.urandom(5 << 20)
    alice("PUT", f"/{c}/f", data, Content_Type="text/x")
    reply = alice("GET", f"/{c}/f", Range="bytes=4194300-5000000,0-9")
    assert reply.status == 206
    kind, _, boundary = reply.headers["Content-Type"].partition("; boundary=")
    assert kind == "multipart/byteranges"
    nothing, *parts, end = reply.body.split(b"\r\n--" + boundary.encode())
    assert (nothing, end) == (b"", b"--\r\n")
    heads, bodies = zip(*(part.split(b"\r\n\r\n", 1) for part in parts), strict=True)
    assert heads[1] == b"\r\nContent-Type: text/x\r\nContent-Range: bytes 0-9/5242880"
    assert list(bodies) == [data[4194300:5000001], data[:10]]


def test_a_delimiter_groups_a_listing_and_widens_other_requests(alice: Client, c: str) -> None:
    for name in ("a", "a/1", "a/2/x", "b"):
        alice("PUT", f"/{c}/{name}", b"")
    rows = alice("GET", f"/{c}?format=json&delimiter=%2F").json
    assert [row.get("name") or row["subdir"] for row in rows] == ["a", "a/", "b"]
    assert alice("GET", f"/{c}?delimiter=%2F&prefix=a").body == b"a/1\na/2/\n"
    assert alice("GET", f"/{c}?path=a").body == b"a/1\n"
    assert alice("COPY", f"/{c}/a?delimiter=%2F", Destination=f"/{c}/k").status == 201
    assert alice("PUT", f"/{c}/m?delimiter=%2F", X_Move_From=f"/{c}/a").status == 201
    assert alice.names(c) == ["b", "k", "k/1", "k/2/x", "m", "m/1", "m/2/x"]
    assert alice("DELETE", f"/{c}/k?delimiter=%2F").status == 204
    assert alice("DELETE", f"/{c}?delimiter=%2F").status == 204
    assert alice.names(c) == []


def test_a_row_tells_what_a_client_needs(alice: Client, c: str) -> None:
    put = alice("PUT", f"/{c}/f", b"data", Content_Type="text/x", X_Object_Meta_Mode="644", X_Object_Meta_Name="%C3%A9")
    (row,) = alice("GET", f"/{c}?format=json").json
    assert row["name"] == "f"
    assert row["bytes"] == 4
    assert row["x_object_hash"] == block_id(b"data")
    assert row["x_object_version"] == put.version
    assert row["x_object_uuid"] == put.headers["X-Object-UUID"]
    assert row["content_type"] == "text/x"
    assert row["x_object_modified_by"] == "alice"
    assert row["x_object_meta"] == {"mode": "644", "name": "é"}


def test_an_unchanged_listing_is_304_and_a_changed_one_never(alice: Client, c: str) -> None:
    alice("PUT", f"/{c}/f", b"x")
    since = alice("GET", f"/{c}?format=json").headers["Last-Modified"]
    alice("PUT", f"/{c}/g", b"x")  # most likely within the same second
    assert alice("GET", f"/{c}?format=json", If_Modified_Since=since).status == 200
    far = "Fri, 31 Dec 2100 00:00:00 GMT"
    assert alice("GET", f"/{c}?format=json", If_Modified_Since=far).status == 304
    assert alice("GET", f"/{c}?format=json", If_Modified_Since="nonsense").status == 200


def test_the_containers_version_rises_with_every_change(alice: Client, c: str) -> None:
    seen = [int(alice("HEAD", f"/{c}").headers["X-Container-Version"])]
    for change in (
        lambda: alice("PUT", f"/{c}/f", b"x"),
        lambda: alice("POST", f"/{c}/f?update", X_Object_Meta_A="1"),
        lambda: alice("MOVE", f"/{c}/f", Destination=f"/{c}/g"),
        lambda: alice("DELETE", f"/{c}/g"),
    ):
        change()
        seen.append(int(alice("HEAD", f"/{c}").headers["X-Container-Version"]))
    assert seen == sorted(set(seen))


# --- blocks


def test_blocks_are_stored_in_order_and_answered_by_id(alice: Client, c: str) -> None:
    blocks = [os.urandom(BLOCK), bytes(BLOCK), b"short" + bytes(BLOCK - 5), b"tail"]
    assert alice.upload(c, *blocks) == [block_id(block) for block in blocks]
    text = alice("POST", f"/{c}?update", b"tail", Content_Type=STREAM)
    assert (text.status, text.body.decode()) == (202, block_id(b"tail") + "\n")
    empty = alice("POST", f"/{c}?update&format=json", b"", Content_Type=STREAM)
    assert (empty.status, empty.json) == (202, [])


@pytest.mark.parametrize("content_type", [None, "application/octet-stream; charset=x", "text/plain", ""])
def test_blocks_of_another_type_are_refused_and_not_silently_dropped(
    alice: Client, c: str, content_type: str | None
) -> None:
    fields = {} if content_type is None else {"Content_Type": content_type}
    reply = alice("POST", f"/{c}?update&format=json", b"x", **fields)
    assert (reply.status, reply.fault) == (400, "badRequest")


def test_blocks_need_a_container_and_the_update_parameter(alice: Client, c: str) -> None:
    assert alice("POST", "/none?update&format=json", b"x", Content_Type=STREAM).status == 404
    assert alice("POST", f"/{c}?format=json", b"x", Content_Type=STREAM).status == 400


def test_too_long_bodies_are_refused_before_they_are_read(alice: Client, c: str, address: str) -> None:
    for path in (f"/{c}?update&format=json", f"/{c}/o?hashmap&format=json"):
        method = "POST" if "update" in path else "PUT"
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(
                f"{method} /v1/alice{path} HTTP/1.1\r\nHost: x\r\nX-Auth-Token: token-alice\r\n"
                f"Content-Type: {STREAM}\r\nContent-Length: 999999999999\r\n\r\n".encode()
            )
            assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_a_chunked_body_is_bounded_too(alice: Client, c: str) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(65):
            yield bytes(1 << 20)
        yield b"x"

    assert alice("POST", f"/{c}?update", endless(), Content_Type=STREAM).status == 413  # type: ignore[arg-type]  # sent chunked


def test_a_chunked_body_is_content_like_any_other(alice: Client, c: str) -> None:
    pieces = [os.urandom(1000) for _ in range(20)]
    reply = alice("PUT", f"/{c}/f", iter(pieces), Content_Type=STREAM)  # type: ignore[arg-type]  # sent chunked
    assert reply.status == 201
    assert alice("GET", f"/{c}/f").body == b"".join(pieces)


# --- objects


def test_an_object_by_hashmap_comes_back_whole_and_in_parts(alice: Client, c: str) -> None:
    a, tail = os.urandom(BLOCK), os.urandom(10)
    ids = alice.upload(c, a, tail)
    size = 3 * BLOCK + 20
    put = alice.put_hashmap(f"/{c}/dir/f%20%C3%A9", size, [ids[0], EMPTY, ids[0], ids[1]], Content_Type="a/b")
    assert (put.status, put.body) == (201, b"")
    data = a + bytes(BLOCK) + a + tail + bytes(10)
    whole = alice("GET", f"/{c}/dir/f%20%C3%A9")
    assert (whole.status, whole.body) == (200, data)
    assert whole.headers["Content-Type"] == "a/b"
    assert whole.headers["ETag"] == put.headers["ETag"] == f'"{whole.headers["X-Object-Hash"]}"'
    assert whole.headers["X-Object-UUID"]
    head = alice("HEAD", f"/{c}/dir/f%20%C3%A9")
    assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", str(size))
    assert {*head.headers.items()} - {*whole.headers.items()} <= {("date", head.headers["Date"])}
    assert head.headers["Accept-Ranges"] == whole.headers["Accept-Ranges"] == "bytes"
    for value, part in [("bytes=0-0", data[:1]), (f"bytes={BLOCK - 2}-{BLOCK + 2}", data[BLOCK - 2 : BLOCK + 3])]:
        reply = alice("GET", f"/{c}/dir/f%20%C3%A9", Range=value)
        assert (reply.status, reply.body) == (206, part)
        assert reply.headers["Content-Range"].endswith(f"/{size}")
    hashmap = alice("GET", f"/{c}/dir/f%20%C3%A9?hashmap&format=json")
    assert hashmap.json == {
        "block_hash": "sha256",
        "block_size": BLOCK,
        "bytes": size,
        "hashes": [ids[0], EMPTY, ids[0], ids[1]],
    }


def test_a_large_hashmap_is_streamed(alice: Client, c: str) -> None:
    (a,) = alice.upload(c, b"a")
    ids = [a, EMPTY] * 10_000
    assert alice.put_hashmap(f"/{c}/big", len(ids) * BLOCK, ids).status == 201
    assert alice("GET", f"/{c}/big?hashmap&format=json").json["hashes"] == ids


def test_an_object_of_several_pieces_is_streamed(alice: Client, c: str) -> None:
    data = os.urandom((3 << 20) + 12345)
    assert alice("PUT", f"/{c}/big", data).status == 201
    assert alice("GET", f"/{c}/big").body == data
    start, stop = (1 << 20) - 7, (2 << 20) + 9
    assert alice("GET", f"/{c}/big", Range=f"bytes={start}-{stop - 1}").body == data[start:stop]


def test_an_empty_object_has_one_hash(alice: Client, c: str) -> None:
    assert alice.put_hashmap(f"/{c}/e", 0, [EMPTY], Content_Type="application/directory").status == 201
    assert alice.put_hashmap(f"/{c}/e", 0, []).status == 201
    reply = alice("GET", f"/{c}/e?hashmap&format=json").json
    assert (reply["bytes"], reply["hashes"]) == (0, [EMPTY])
    assert alice("GET", f"/{c}/e").body == b""
    assert alice("GET", f"/{c}/e", Range="bytes=0-0").status == 416


def test_missing_blocks_are_listed_and_nothing_is_made(alice: Client, c: str) -> None:
    (a,) = alice.upload(c, b"a")
    missing = [block_id(b"never sent 1"), block_id(b"never sent 2")]
    reply = alice.put_hashmap(f"/{c}/f", 5 * BLOCK, [missing[1], a, EMPTY, missing[0], missing[1]])
    assert (reply.status, reply.json) == (409, [missing[1], missing[0]])
    assert alice("HEAD", f"/{c}/f").status == 404


def test_a_hash_of_somebody_elses_data_does_not_give_them(alice: Client, c: str, address: str) -> None:
    secret = os.urandom(BLOCK)
    alice("PUT", f"/{c}/secret", secret)
    bob = Client(address, token="token-bob", account="bob")
    bob("PUT", "/loot")
    reply = bob.put_hashmap("/loot/f", BLOCK, [block_id(secret)])
    assert (reply.status, reply.json) == (409, [block_id(secret)])
    assert bob.upload("loot", secret) == [block_id(secret)]
    assert bob.put_hashmap("/loot/f", BLOCK, [block_id(secret)]).status == 201
    bob.close()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b'{"bytes":1}',
        b'{"bytes":1,"hashes":["zz"]}',
        b'{"bytes":9,"hashes":[]}',
        json.dumps({"bytes": 1, "hashes": ["00" * 32]}).encode(),
        json.dumps({"bytes": 1, "hashes": [EMPTY], "block_size": 2 * BLOCK}).encode(),
        b'{"bytes":0,"hashes":["\xff"]}',
        b'{"bytes":0,"hashes":[],"x":' + 50_000 * b"[" + 50_000 * b"]" + b"}",
    ],
)
def test_a_body_that_is_no_hashmap_is_refused(alice: Client, c: str, body: bytes) -> None:
    reply = alice("PUT", f"/{c}/f?hashmap&format=json", body, Content_Type=STREAM)
    assert (reply.status, reply.fault) == (400, "badRequest")


def test_a_size_that_cuts_the_last_block_short_is_refused(alice: Client, c: str) -> None:
    ids = alice.upload(c, b"a" * BLOCK, b"0123456789" + bytes(20))
    for size in (BLOCK + 1, BLOCK + 9):
        reply = alice.put_hashmap(f"/{c}/f", size, ids)
        assert (reply.status, reply.fault) == (400, "badRequest")
    for size in (BLOCK + 10, 2 * BLOCK):
        assert alice.put_hashmap(f"/{c}/f", size, ids).status == 201
        assert alice("GET", f"/{c}/f").body == b"a" * BLOCK + b"0123456789".ljust(size - BLOCK, b"\0")
    assert alice.put_hashmap(f"/{c}/f", BLOCK + 9, ids).status == 400  # also when the account has the whole leaf


def test_a_hashmap_needs_a_content_type(alice: Client, c: str) -> None:
    body = json.dumps({"bytes": 0, "hashes": []}).encode()
    reply = alice("PUT", f"/{c}/f?hashmap&format=json", body)
    assert (reply.status, reply.fault) == (411, "lengthRequired")


def test_a_wrong_md5_stores_nothing(alice: Client, c: str) -> None:
    right = hashlib.md5(b"data").hexdigest()
    reply = alice("PUT", f"/{c}/f", b"data", ETag="0" * 32)
    assert (reply.status, reply.fault) == (422, "unprocessableEntity")
    assert alice("HEAD", f"/{c}/f").status == 404
    assert alice("PUT", f"/{c}/f", b"data", ETag=right).status == 201


@pytest.mark.parametrize("value", ["bytes=4-", "bytes=9-10", "bytes=2-1", "bytes=0-0,4-", "bytes=-0", "lines=1-2", "x"])
def test_a_bad_range_is_416_with_the_size(alice: Client, c: str, value: str) -> None:
    alice("PUT", f"/{c}/f", b"1234")
    reply = alice("GET", f"/{c}/f", Range=value)
    assert (reply.status, reply.fault) == (416, "rangeNotSatisfiable")
    assert reply.headers["Content-Range"] == "bytes */4"


def test_a_number_beyond_all_sizes_is_no_failure_of_the_server(alice: Client, c: str) -> None:
    alice("PUT", f"/{c}/f", b"1234")
    digits = 5000 * "9"
    assert alice("GET", f"/{c}/f", Range=f"bytes=1-{digits}").body == b"234"
    assert alice("GET", f"/{c}/f", Range=f"bytes=-{digits}").body == b"1234"
    assert alice("GET", f"/{c}/f", Range=f"bytes={digits}-").status == 416
    assert alice("GET", f"/{c}?limit={digits}").status == 400
    assert alice("HEAD", f"/{c}/f", If_Unmodified_Since="Mon, 01 Jan 99999999999 00:00:00 GMT").status == 200


def test_a_range_with_if_range_gets_a_part_of_what_the_client_has_and_else_the_whole(alice: Client, c: str) -> None:
    put = alice("PUT", f"/{c}/f", b"1234")
    etag = put.headers["ETag"]
    part = alice("GET", f"/{c}/f", Range="bytes=1-2", If_Range=etag)
    assert (part.status, part.body, part.headers["Content-Range"]) == (206, b"23", "bytes 1-2/4")
    assert alice("GET", f"/{c}/f", Range="bytes=9-", If_Range=etag).status == 416
    for other in ('"0123"', f"W/{etag}", put.headers["Last-Modified"]):
        reply = alice("GET", f"/{c}/f", Range="bytes=1-2", If_Range=other)
        assert (reply.status, reply.body) == (200, b"1234"), other
    assert alice("GET", f"/{c}/f", Range="bytes=9-", If_Range='"0123"').status == 200
    alice("PUT", f"/{c}/f", b"5678")
    reply = alice("GET", f"/{c}/f", Range="bytes=1-2", If_Range=etag)
    assert (reply.status, reply.body) == (200, b"5678")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_objects_are_read_by_the_time_of_their_change(alice: Client, c: str, method: str) -> None:
    put = alice("PUT", f"/{c}/f", b"1234")
    etag, at = put.headers["ETag"], put.headers["Last-Modified"]
    long_ago, nonsense = "Thu, 01 Jan 1970 00:00:00 GMT", "yesterday"

    def status(**conditions: str) -> int:
        reply = alice(method, f"/{c}/f", **conditions)
        assert reply.status == 200 or not reply.body or reply.status == 412
        return reply.status

    assert status(If_Modified_Since=at) == 304
    assert alice(method, f"/{c}/f", If_Modified_Since=at).headers["ETag"] == etag
    assert status(If_Modified_Since=long_ago) == 200
    assert status(If_Modified_Since=nonsense) == 200
    assert status(If_Modified_Since=at, If_None_Match='"0123"') == 200, "the tag counts, not the time"
    assert status(If_Unmodified_Since=at) == 200
    assert status(If_Unmodified_Since=long_ago) == 412
    assert status(If_Unmodified_Since=nonsense) == 200
    assert status(If_Unmodified_Since=long_ago, If_Match=etag) == 200, "the tag counts, not the time"
    assert alice("PUT", f"/{c}/f", b"5678", If_Modified_Since=at).status == 201, "of reads only"


def test_versions_can_be_listed_and_read(alice: Client, c: str) -> None:
    first = alice("PUT", f"/{c}/f", b"one").version
    second = alice("PUT", f"/{c}/f", b"two!").version
    alice("DELETE", f"/{c}/f")
    listed = alice("GET", f"/{c}/f?version=list&format=json").json["versions"]
    assert [row[0] for row in listed] == [first, second]
    assert alice("GET", f"/{c}/f?version={first}").body == b"one"
    assert alice("HEAD", f"/{c}/f?version={second}").headers["Content-Length"] == "4"
    assert alice("GET", f"/{c}/f?version={first}&hashmap&format=json").json["bytes"] == 3
    assert alice("GET", f"/{c}/f?version={second + 1000}").status == 404
    assert alice("GET", f"/{c}/f?version=x").status == 400
    assert alice("GET", f"/{c}/f").status == 404
    assert alice("GET", f"/{c}/never?version=list&format=json").status == 404


def test_a_move_keeps_the_uuid_and_tells_the_new_version(alice: Client, c: str) -> None:
    put = alice("PUT", f"/{c}/f", b"x", X_Object_Meta_Mode="644", Content_Type="a/b")
    moved = alice("MOVE", f"/{c}/f", Destination=f"/{c}/dir/g%20h")
    head = alice("HEAD", f"/{c}/dir/g%20h")
    assert (moved.status, moved.version) == (201, head.version)
    assert head.headers["X-Object-UUID"] == put.headers["X-Object-UUID"]
    assert (head.headers["X-Object-Meta-Mode"], head.headers["Content-Type"]) == ("644", "a/b")
    back = alice("PUT", f"/{c}/f", b"", X_Move_From=f"/{c}/dir/g%20h")
    assert (back.status, alice.names(c)) == (201, ["f"])
    assert alice("MOVE", f"/{c}/f", Destination=f"/{c}/f").status == 400
    assert alice("MOVE", f"/{c}/none", Destination=f"/{c}/g").status == 404
    assert alice("MOVE", f"/{c}/f", Destination="/none/g").status == 404
    assert alice("MOVE", f"/{c}/f").status == 400
    assert alice("MOVE", f"/{c}/f", Destination=f"/{c}/../g").status == 400


def test_metadata_are_merged_replaced_and_dropped(alice: Client, c: str) -> None:
    alice("PUT", f"/{c}/f", b"x", X_Object_Meta_A="1", X_Object_Meta_B="%C3%A9%20")

    def meta() -> dict[str, str]:
        return dict(alice("GET", f"/{c}?format=json").json[0]["x_object_meta"])

    assert meta() == {"a": "1", "b": "é "}
    reply = alice("POST", f"/{c}/f?update", X_Object_Meta_A="", X_Object_Meta_C="3")
    assert (reply.status, reply.version) == (202, alice("HEAD", f"/{c}/f").version)
    assert meta() == {"b": "é ", "c": "3"}
    alice("POST", f"/{c}/f", X_Object_Meta_D="4")
    assert meta() == {"d": "4"}
    alice("PUT", f"/{c}/f", b"y")
    assert meta() == {}
    many = {f"X_Object_Meta_K{number}": "v" for number in range(33)}
    assert alice("POST", f"/{c}/f", **many).status == 400
    assert alice("POST", f"/{c}/f", b"x", Content_Type=STREAM).status == 400


# --- conditions


def test_every_mutating_request_is_conditional(alice: Client, c: str) -> None:
    stale = alice("PUT", f"/{c}/f", b"old")
    current = alice("PUT", f"/{c}/f", b"new")
    alice("PUT", f"/{c}/s", b"source")
    (a,) = alice.upload(c, b"a")
    for fields in (
        {"If_Match": stale.headers["ETag"]},
        {"If_None_Match": "*"},
        {"If_None_Match": f'"aa", {current.headers["X-Object-Hash"]}'},
        {"X_If_Object_Version": str(stale.version)},
        {"X_If_Object_Version": "0"},
        {"If_Unmodified_Since": "Fri, 01 Jan 2010 00:00:00 GMT"},
    ):
        replies = [
            alice("PUT", f"/{c}/f", b"x", **fields),
            alice("PUT", f"/{c}/f", bytes(2 << 20), **fields),
            alice.put_hashmap(f"/{c}/f", 1, [a], **fields),
            alice("POST", f"/{c}/f?update", X_Object_Meta_A="1", **fields),
            alice("DELETE", f"/{c}/f", **fields),
            alice("MOVE", f"/{c}/f", Destination=f"/{c}/g", **fields),
            alice("PUT", f"/{c}/f", b"", X_Move_From=f"/{c}/s", **fields),
        ]
        assert {(reply.status, reply.fault) for reply in replies} == {(412, "preconditionFailed")}
    move = alice("MOVE", f"/{c}/s", Destination=f"/{c}/f", X_If_Destination_Version="0")
    take = alice("PUT", f"/{c}/f", b"", X_Move_From=f"/{c}/s", X_If_Source_Version="1")
    assert (move.status, take.status) == (412, 412)
    assert (alice.names(c), alice("GET", f"/{c}/f").body) == (["f", "s"], b"new")
    good = alice("DELETE", f"/{c}/f", If_Match=current.headers["ETag"], X_If_Object_Version=str(current.version))
    assert good.status == 204
    assert alice("PUT", f"/{c}/f", b"x", X_If_Object_Version="seven").status == 400
    assert alice("PUT", f"/{c}/f", b"again", If_None_Match="*").status == 201


def test_a_read_that_the_client_has_is_304(alice: Client, c: str) -> None:
    etag = alice("PUT", f"/{c}/f", b"x").headers["ETag"]
    for method in ("GET", "HEAD"):
        same = alice(method, f"/{c}/f", If_None_Match=etag)
        assert (same.status, same.body) == (304, b"")
        assert alice(method, f"/{c}/f", If_Match='"aa"').status == 412
    assert alice("GET", f"/{c}/f?hashmap&format=json", If_None_Match="*").status == 304


@pytest.mark.parametrize("condition", ["If-Match", "If-None-Match", "X-If-Object-Version"])
def test_of_six_parallel_writers_exactly_one_gets_201(address: str, alice: Client, c: str, condition: str) -> None:
    """On Synnefo's server all six succeed, in 20 of 20 rounds: lost updates."""
    clients = [Client(address) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        for round_number in range(12):
            path = f"/{c}/{round_number}"
            if condition == "If-None-Match":
                fields = {"If_None_Match": "*"}
            else:
                base = alice("PUT", path, b"base")
                fields = (
                    {"If_Match": base.headers["ETag"]}
                    if condition == "If-Match"
                    else {"X_If_Object_Version": str(base.version)}
                )
            barrier = threading.Barrier(6)

            def write(number: int) -> int:
                barrier.wait()  # noqa: B023 - the pool is done with it before the next round
                return clients[number]("PUT", path, b"by %d" % number, **fields).status  # noqa: B023 - as above

            assert sorted(pool.map(write, range(6))) == [201, 412, 412, 412, 412, 412]
    for client in clients:
        client.close()


# --- what must not get in


UNSAFE = ["..", ".", "../x", "a/../b", "a/./b", "%2E%2E/x", "/x", "%2Fx", "a//b", "a/", "a%0Ab", "%00", "%7F", "%C2%85"]


@pytest.mark.parametrize("name", [*UNSAFE, "%FF", "%zz", "x" * 1025])
def test_an_unsafe_name_is_refused_by_every_method(alice: Client, c: str, name: str) -> None:
    alice("PUT", f"/{c}/f", b"x")
    for reply in (
        alice("PUT", f"/{c}/{name}", b"x"),
        alice.put_hashmap(f"/{c}/{name}", 0, []),
        alice("GET", f"/{c}/{name}"),
        alice("DELETE", f"/{c}/{name}"),
        alice("MOVE", f"/{c}/f", Destination=f"/{c}/{name}"),
        alice("PUT", f"/{c}/g", b"", X_Move_From=f"/{c}/{name}"),
    ):
        assert (reply.status, reply.fault) == (400, "badRequest")
    assert alice.names(c) == ["f"]


def test_a_copy_has_the_content_and_metadata_and_an_identity_of_its_own(alice: Client, c: str) -> None:
    first = alice("PUT", f"/{c}/f", b"one", X_Object_Meta_K="v", Content_Type="text/x")
    alice("PUT", f"/{c}/f", b"two", X_Object_Meta_K="v", Content_Type="text/x")
    put = alice("PUT", f"/{c}/g", X_Copy_From=f"/{c}/f", X_Object_Meta_L="w", Content_Length="0")
    assert put.status == 201
    copy = alice("GET", f"/{c}/g")
    assert (copy.body, copy.headers["X-Object-Meta-K"], copy.headers["X-Object-Meta-L"]) == (b"two", "v", "w")
    assert (copy.headers["Content-Type"], copy.version) == ("text/x", put.version)
    assert copy.headers["X-Object-UUID"] != first.headers["X-Object-UUID"]
    old = alice("COPY", f"/{c}/f", Destination=f"/{c}/g", X_Source_Version=str(first.version))
    assert (old.status, alice("GET", f"/{c}/g").body) == (201, b"one")
    assert old.headers["X-Object-UUID"] == copy.headers["X-Object-UUID"]
    assert alice("COPY", f"/{c}/f", Destination=f"/{c}/f", X_Source_Version=str(first.version)).status == 201
    assert alice("GET", f"/{c}/f").body == b"one"


def test_a_copy_checks_conditions_on_both_sides(alice: Client, c: str) -> None:
    first = alice("PUT", f"/{c}/f", b"one")
    alice("PUT", f"/{c}/g", b"two")
    to_g = {"Destination": f"/{c}/g"}
    assert alice("COPY", f"/{c}/f", If_Match="none", **to_g).status == 412
    assert alice("COPY", f"/{c}/f", X_If_Destination_Version="0", **to_g).status == 412
    assert alice("PUT", f"/{c}/g", X_Copy_From=f"/{c}/f", If_None_Match="*").status == 412
    assert alice("PUT", f"/{c}/g", X_Copy_From=f"/{c}/f", X_If_Source_Version="1").status == 412
    assert alice("GET", f"/{c}/g").body == b"two"
    assert alice("COPY", f"/{c}/f", X_If_Object_Version=str(first.version), **to_g).status == 201
    assert alice("COPY", f"/{c}/none", **to_g).status == 404
    assert alice("COPY", f"/{c}/f", X_Source_Version="999999", **to_g).status == 404
    assert alice("COPY", f"/{c}/f").status == alice("PUT", f"/{c}/h", X_Copy_From="h").status == 400


@pytest.mark.parametrize("container", ["..", "a%2Fb", "a%0Ab", "x" * 257, "%FF", "%C3%A9" * 250])
def test_an_unsafe_container_name_is_refused(alice: Client, container: str) -> None:
    assert alice("PUT", f"/{container}").status == 400


def test_odd_but_safe_names_work(alice: Client, c: str) -> None:
    for name in ("...", "%25", "a%20b", "CON:%7C%3C%3E%3F%2A%22", "e%CC%81", "%C3%A9", "%F0%9F%98%80", "x" * 1024):
        assert alice("PUT", f"/{c}/{name}", b"x").status == 201
        assert alice("GET", f"/{c}/{name}").body == b"x"
    assert len(alice.names(c)) == 8


@pytest.mark.parametrize(
    "header", ["X-Object-Manifest", "X-Object-Sharing", "X-Object-Public", "Content-Range", "X-Delete-At"]
)
def test_what_is_not_supported_is_refused_and_not_ignored(alice: Client, c: str, header: str) -> None:
    assert alice("PUT", f"/{c}/f", b"x", **{header: "x"}).status == 400
    assert alice("PUT", f"/{c}", X_Container_Policy_Project="p").status == 400
    assert alice("PUT", f"/{c}", X_Container_Policy_Versioning="sometimes").status == 400
    assert alice("PUT", f"/{c}", X_Container_Policy_Quota="-1").status == 400
    assert alice("POST", "?update", X_Account_Group_Friends="bob").status == 400


def test_a_method_that_does_nothing_says_what_would(alice: Client, c: str) -> None:
    reply = alice("COPY", f"/{c}", Destination="/g")
    assert (reply.status, reply.fault) == (405, "notAllowed")
    assert "DELETE" in reply.headers["Allow"]


def test_objects_need_a_container(alice: Client) -> None:
    for reply in (
        alice("PUT", "/none/f", b"x"),
        alice("PUT", "/none/f", bytes(2 << 20)),
        alice.put_hashmap("/none/f", 0, []),
        alice("GET", "/none/f"),
        alice("DELETE", "/none/f"),
        alice("GET", "/none?format=json"),
        alice("DELETE", "/none"),
    ):
        assert (reply.status, reply.fault) == (404, "itemNotFound")


def test_a_client_that_goes_away_in_the_middle_disturbs_nobody(alice: Client, c: str, address: str) -> None:
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(
            f"PUT /v1/alice/{c}/f HTTP/1.1\r\nHost: x\r\nX-Auth-Token: token-alice\r\n"
            "Content-Length: 100000\r\n\r\nhalf".encode()
        )
    assert alice.names(c) == []
    assert alice("PUT", f"/{c}/f", b"whole").status == 201


# --- what is wrong on our side


@pytest.mark.parametrize(
    ("error", "status", "fault"),
    [
        (NoSpaceError("/data: disk full"), 507, "insufficientStorage"),
        (OSError(errno.EIO, "Input/output error"), 500, "internalServerError"),
        (CorruptBlockError(b"x" * 32, "flipped"), 500, "corruptBlock"),
        (CorruptionError("the catalogue is damaged"), 500, "corruptBlock"),
        (BlockfsError("anything else"), 500, "internalServerError"),
        (StoreClosedError("closing"), 503, "serviceUnavailable"),
    ],
)
def test_a_failure_of_the_server_is_told_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, fault: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    with Store(ServerFolder.open(str(tmp_path / "s"), block_size=BLOCK)) as store, serving(store) as address:
        client = Client(address)
        client("PUT", "/c")
        client("PUT", "/c/f", b"x")
        with monkeypatch.context() as patch:
            for name in ("put", "put_all", "read"):
                patch.setattr(store._blocks, name, fail)
            for reply in (
                client("PUT", "/c/f", b"new"),
                client("PUT", "/c/f", bytes(3 << 20)),
                client("POST", "/c?update", b"x", Content_Type=STREAM),
                client("GET", "/c/f"),
            ):
                assert (reply.status, reply.fault) == (status, fault)
                assert "/data" not in reply.body.decode()  # no paths to strangers
        assert client("GET", "/c/f").body == b"x"
        client.close()


def test_a_body_that_never_comes_is_given_up(
    alice: Client, c: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when a stalled upload may hold an epoch, and with it the collector, for ever."""
    monkeypatch.setattr(arriving, "IDLE_S", 0.05)
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(
            f"PUT /v1/alice/{c}/f HTTP/1.1\r\nHost: x\r\nX-Auth-Token: token-alice\r\n"
            "Content-Length: 100000\r\n\r\nhalf".encode()
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_the_folder_of_a_server_is_private(tmp_path: Path) -> None:
    with server_in_thread(tmp_path / "s"):
        assert (tmp_path / "s").stat().st_mode & 0o077 == 0
