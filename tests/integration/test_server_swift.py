"""OpenStack's way of asking: its login, its ETags and rows, its meaning of POST."""

from __future__ import annotations

import hashlib
import http.client
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncer.server.folder import ServerFolder
from syncer.server.store.store import Store
from tests.integration.live_server import BLOCK, Client, Reply, server_in_thread, serving

STREAM = "application/octet-stream"


def ask(address: str, method: str, path: str, **headers: str) -> Reply:
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    reply = Reply(response.status, response.headers, response.read())
    connection.close()
    return reply


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_in_thread(tmp_path_factory.mktemp("server") / "s") as found:
        yield found


class Swift:
    """A session after a login."""

    def __init__(self, address: str) -> None:
        self.address = address
        login = ask(address, "GET", "/auth/v1.0", X_Auth_User="alice:anybody", X_Auth_Key="token-alice")
        assert login.status == 204
        self.token = login.headers["X-Auth-Token"]
        self.base = login.headers["X-Storage-Url"].removeprefix(f"http://{address}")

    def __call__(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        connection = http.client.HTTPConnection(self.address, timeout=60)
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, self.base + path, body, {"X-Auth-Token": self.token, **fields})
        response = connection.getresponse()
        reply = Reply(response.status, response.headers, response.read())
        connection.close()
        return reply


@pytest.fixture
def swift(address: str) -> Iterator[Swift]:
    session = Swift(address)
    assert session("PUT", "/c").status == 201
    yield session
    session("DELETE", "/c?delimiter=/")
    session("DELETE", "/c")


@pytest.fixture
def pithos(address: str) -> Iterator[Client]:
    client = Client(address)
    yield client
    client.close()


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


@pytest.mark.parametrize("path", ["/auth/v1.0", "/v1", "/v1.0"])
def test_the_key_is_the_token_and_the_user_its_account(address: str, path: str) -> None:
    reply = ask(address, "GET", path, X_Auth_User="alice", X_Auth_Key="token-alice")
    assert (reply.status, reply.headers["X-Auth-Token"]) == (204, "token-alice")
    assert reply.headers["X-Storage-Url"] == f"http://{address}/swift/v1/alice"
    for user, key in (("bob", "token-alice"), ("alice", "token-bob"), ("", "token-alice"), ("alice", "")):
        assert ask(address, "GET", path, X_Auth_User=user, X_Auth_Key=key).status == 401
    assert ask(address, "GET", path, X_Auth_User="alice").status == 401
    assert ask(address, "DELETE", path).status == 405


def test_an_etag_is_the_md5(swift: Swift, pithos: Client) -> None:
    put = swift("PUT", "/c/f", b"data")
    head, got = swift("HEAD", "/c/f"), swift("GET", "/c/f")
    assert [reply.headers["ETag"] for reply in (put, head, got)] == [md5(b"data")] * 3
    assert pithos("HEAD", "/c/f").headers["ETag"] == f'"{head.headers["X-Object-Hash"]}"'
    assert swift("PUT", "/c/f", b"other", ETag=md5(b"data")).status == 422
    assert swift("GET", "/c/f", If_None_Match=f'"{md5(b"data")}"').status == 304
    assert swift("PUT", "/c/f", b"other", If_Match=md5(b"other")).status == 412
    assert swift("PUT", "/c/f", b"other", If_Match=md5(b"data")).status == 201


def test_an_md5_that_is_not_known_is_not_told(swift: Swift, pithos: Client) -> None:
    """Breaks when a hash that is no MD5 stands for one: clients would take the content for damaged."""
    ids = pithos.upload("c", b"by blocks")
    pithos.put_hashmap("/c/f", 9, ids)
    swift("PUT", "/c/g", b"abc")
    pithos("POST", "/c/g?update", b"X", Content_Type=STREAM, Content_Range="bytes 0-0/*")
    for name in ("f", "g"):
        assert "ETag" not in swift("HEAD", f"/c/{name}").headers
        assert "ETag" not in swift("GET", f"/c/{name}").headers
    assert [row["hash"] for row in swift("GET", "/c?format=json").json] == ["", ""]
    assert swift("GET", "/c/f", If_Match=md5(b"by blocks")).status == 412
    assert swift("GET", "/c/f", If_Match="*").status == 200


def test_the_md5_goes_with_the_content(swift: Swift) -> None:
    swift("PUT", "/c/f", b"data")
    swift("COPY", "/c/f", Destination="c/g")
    swift("PUT", "/c/h", b"", X_Copy_From="/c/g")
    swift("POST", "/c/h", X_Object_Meta_K="v")
    assert {row["hash"] for row in swift("GET", "/c?format=json").json} == {md5(b"data")}


def test_rows_have_swifts_form(swift: Swift) -> None:
    swift("PUT", "/c/d/f", b"data", Content_Type="text/x")
    (row,) = swift("GET", "/c?format=json").json
    assert set(row) == {"name", "hash", "bytes", "content_type", "last_modified"}
    assert len(row["last_modified"]) == len("2026-11-21T00:00:00.000000")
    assert swift("GET", "/c?format=json&delimiter=/").json == [{"subdir": "d/"}]
    (container,) = swift("GET", "?format=json").json
    assert (container["name"], container["count"], container["bytes"]) == ("c", 1, 4)


def test_a_post_merges_a_containers_metadata_and_replaces_an_objects(swift: Swift) -> None:
    swift("PUT", "/c/f", b"", X_Object_Meta_A="1")
    swift("POST", "/c", X_Container_Meta_A="1")
    swift("POST", "/c", X_Container_Meta_B="2")
    assert swift("HEAD", "/c").headers["X-Container-Meta-A"] == "1"
    assert swift("POST", "/c/f", X_Object_Meta_B="2", Content_Type=STREAM).status == 202
    head = swift("HEAD", "/c/f")
    assert "X-Object-Meta-A" not in head.headers
    assert head.headers["X-Object-Meta-B"] == "2"


def test_what_is_to_be_removed_from_a_containers_or_an_accounts_metadata_is(swift: Swift) -> None:
    for path, kind in (("/c", "Container"), ("", "Account")):
        name = f"X_{kind}_Meta_A"
        assert swift("POST", path, **{name: "1"}).status == 204
        assert swift("POST", path, **{f"X_Remove_{kind}_Meta_A": "x"}).status == 204
        assert name.replace("_", "-") not in swift("HEAD", path).headers


def test_a_prefix_is_a_prefix_also_with_a_delimiter(swift: Swift) -> None:
    for name in ("d/1", "d/2/x", "dd", "e"):
        swift("PUT", f"/c/{name}", b"")

    def listed(query: str) -> list[str]:
        return swift("GET", f"/c?{query}").body.decode().split()

    assert listed("prefix=d&delimiter=/") == ["d/", "dd"]
    assert listed("prefix=d/&delimiter=/") == ["d/1", "d/2/"]
    assert listed("path=d") == listed("path=d/") == ["d/1"]
    assert listed("path=") == ["dd", "e"]


def test_a_name_that_ends_with_the_delimiter_is_in_its_group(swift: Swift) -> None:
    """As a row beside a group of its name it would be the marker of the next page, which left the group out."""
    for name in ("a-", "a-1", "b"):
        swift("PUT", f"/c/{name}", b"")
    assert swift("GET", "/c?delimiter=-").body == b"a-\nb\n"
    assert swift("GET", "/c?delimiter=-&limit=1").body == b"a-\n"
    assert swift("GET", "/c?delimiter=-&limit=1&marker=a-").body == b"b\n"
    assert swift("GET", "/c?delimiter=-&reverse=on").body == b"b\na-\n"


def test_a_listing_ends_where_it_is_to_end_and_never_goes_back(swift: Swift) -> None:
    """Breaks when a client that deletes what it lists is told more than it asked for."""
    for name in ("a", "b", "c/x", "d"):
        swift("PUT", f"/c/{name}", b"")
    swift("PUT", "/d")
    assert swift("GET", "/c?end_marker=b").body == b"a\n"
    assert swift("GET", "/c?marker=a&end_marker=d&delimiter=/").body == b"b\nc/\n"
    assert swift("GET", "?end_marker=d").body == b"c\n"
    swift("DELETE", "/d")


def test_a_listing_goes_back(swift: Swift) -> None:
    for name in ("a", "b", "c/x", "c/y", "d"):
        swift("PUT", f"/c/{name}", b"")
    swift("PUT", "/d")

    def listed(query: str) -> list[str]:
        return swift("GET", f"/c?reverse=true&{query}").body.decode().split()

    assert listed("") == ["d", "c/y", "c/x", "b", "a"]
    assert listed("limit=2") == ["d", "c/y"]
    assert listed("marker=c/y&limit=1") == ["c/x"]
    assert listed("marker=c&end_marker=a") == ["b"]
    assert listed("delimiter=/") == ["d", "c/", "b", "a"]
    assert listed("delimiter=/&marker=c/") == ["b", "a"]
    assert listed("path=c") == ["c/y", "c/x"]
    assert swift("GET", "?reverse=true").body == b"d\nc\n"
    assert swift("GET", "/c?reverse=no&limit=1").body == b"a\n"
    swift("DELETE", "/d")


def test_a_copy_may_be_of_a_part(swift: Swift) -> None:
    swift("PUT", "/c/f", b"0123456789", X_Object_Meta_A="1", Content_Type="t/t")
    assert swift("COPY", "/c/f", Destination="c/g", Range="bytes=2-4").status == 201
    got = swift("GET", "/c/g")
    assert (got.body, got.headers["ETag"], got.headers["Content-Type"]) == (b"234", md5(b"234"), "t/t")
    assert got.headers["X-Object-Meta-A"] == "1"
    assert swift("PUT", "/c/h", b"", X_Copy_From="c/f", Range="bytes=-3").status == 201
    assert swift("GET", "/c/h").body == b"789"
    assert swift("COPY", "/c/f", Destination="c/i", Range="bytes=10-").status == 416
    assert swift("COPY", "/c/f", Destination="c/i", Range="bytes=0-0,2-2").status == 400
    assert swift("COPY", "/c/f", Destination="c/i", Range="bytes=0-0", If_Match="x").status == 412
    assert swift("HEAD", "/c/i").status == 404


def test_a_copy_with_fresh_metadata_leaves_the_old_ones_behind(swift: Swift) -> None:
    swift("PUT", "/c/f", b"x", X_Object_Meta_A="1", Content_Type="t/t", Content_Encoding="gzip")
    swift("COPY", "/c/f", Destination="c/g", X_Fresh_Metadata="true", X_Object_Meta_B="2", Expires="never")
    head = swift("HEAD", "/c/g").headers
    assert (head["X-Object-Meta-A"], head["X-Object-Meta-B"], head["Content-Encoding"]) == (None, "2", None)
    assert (head["Content-Type"], head["Expires"]) == ("t/t", "never")
    swift("COPY", "/c/f", Destination="c/g", X_Fresh_Metadata="False", Cache_Control="no-cache")
    head = swift("HEAD", "/c/g").headers
    assert (head["X-Object-Meta-A"], head["Content-Encoding"], head["Cache-Control"]) == ("1", "gzip", "no-cache")


def test_a_copy_tells_of_what_it_is_and_is_of_the_account_that_is_named(swift: Swift) -> None:
    swift("PUT", "/c/f%C3%A9", b"x")
    copied = swift("COPY", "/c/f%C3%A9", Destination="c/g", Destination_Account="alice")
    assert (copied.headers["X-Copied-From"], copied.headers["X-Copied-From-Account"]) == ("c/f%C3%A9", "alice")
    assert swift("PUT", "/c/h", b"", X_Copy_From="c/g", X_Copy_From_Account="alice").status == 201
    assert swift("COPY", "/c/g", Destination="c/i", Destination_Account="bob").status == 403
    assert swift("PUT", "/c/i", b"", X_Copy_From="c/g", X_Copy_From_Account="bob").status == 403
    assert swift("HEAD", "/c/i").status == 404


def test_a_copy_of_an_object_of_segments_joins_them_or_is_of_the_manifest(swift: Swift) -> None:
    pieces = [b"a" * 5000, b"b" * 10, b"c" * 9000]
    for number, piece in enumerate(pieces):
        swift("PUT", f"/c/parts/{number}", piece)
    swift("PUT", "/c/f", b"", X_Object_Manifest="c/parts/", Content_Type="x/y", X_Object_Meta_A="1")
    whole = b"".join(pieces)
    assert swift("COPY", "/c/f", Destination="c/g").headers["ETag"] == md5(whole)
    assert swift("PUT", "/c/h", b"", X_Copy_From="c/f", Range="bytes=4990-5020").status == 201
    assert swift("COPY", "/c/f?multipart-manifest=get", Destination="c/i").status == 201
    assert swift("PUT", "/c/j?multipart-manifest=get", b"", X_Copy_From="c/f").status == 201
    swift("DELETE", "/c/parts/2")
    joined = swift("GET", "/c/g")
    assert (joined.body, joined.headers["X-Object-Manifest"]) == (whole, None)
    assert (joined.headers["Content-Type"], joined.headers["X-Object-Meta-A"]) == ("x/y", "1")
    assert swift("GET", "/c/h").body == whole[4990:5021]
    assert swift("GET", "/c/i").body == swift("GET", "/c/j").body == whole[:5010]


def test_a_copy_of_what_another_account_shares_has_nothing_of_segments_that_it_does_not_share(
    swift: Swift, address: str
) -> None:
    """Breaks when one range, from the first byte on, gives what a GET does not."""
    manifest = listed(swift, b"secret", b"too")
    shared = "read=bob"
    swift("PUT", "/c/d", b"own body", X_Object_Manifest="c/parts/", X_Object_Sharing=shared)
    swift("PUT", "/c/s?multipart-manifest=put", manifest, X_Object_Sharing=shared)
    bob = {"X_Auth_Token": "token-bob"}
    ask(address, "PUT", "/swift/v1/bob/mine", **bob)
    for name, fields in itertools.product("ds", ({}, {"Range": "bytes=0-"}, {"Range": "bytes=2-5"}, {"Range": "x"})):
        source = {"X_Copy_From": f"c/{name}", "X_Copy_From_Account": "alice", **bob, **fields}
        assert ask(address, "PUT", "/swift/v1/bob/mine/f", **source).status == 201
        start = 2 if fields.get("Range") == "bytes=2-5" else 0
        stored = swift("GET", f"/c/{name}?multipart-manifest=get").body[start : 6 if start else None]
        assert ask(address, "GET", "/swift/v1/bob/mine/f?multipart-manifest=get", **bob).body == stored


def test_no_name_of_an_account_is_the_own_one(swift: Swift, pithos: Client) -> None:
    swift("PUT", "/c/f", b"x")
    assert swift("PUT", "/c/g", b"", X_Copy_From="c/f", X_Copy_From_Account="").status == 201
    assert pithos("PUT", "/c/g", b"", X_Copy_From="/c/f", X_Source_Account="").status == 201


def test_a_copy_that_is_stored_anew_is_no_larger_than_a_put_may_be(
    swift: Swift, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncer.server.store.writing.MAX_COPIED_BYTES", 3)
    swift("PUT", "/c/f", b"0123456789")
    assert swift("COPY", "/c/f", Destination="c/g", Range="bytes=0-3").status == 413
    assert swift("COPY", "/c/f", Destination="c/g", Range="bytes=0-2").status == 201
    assert swift("COPY", "/c/f", Destination="c/h").status == 201  # its blocks are there


def test_header_fields_are_kept_as_they_came_until_a_post_replaces_them(swift: Swift, pithos: Client) -> None:
    name = 'attachment; filename="a b.gz"'
    swift("PUT", "/c/f", b"0123", Content_Encoding="gzip", Content_Disposition=name, X_Object_Meta_A="1")
    for reply in (swift("HEAD", "/c/f"), swift("GET", "/c/f"), swift("GET", "/c/f", Range="bytes=1-2")):
        assert (reply.headers["Content-Encoding"], reply.headers["Content-Disposition"]) == ("gzip", name)
    told = pithos("GET", "/c/f")  # a library that undoes the encoding would spoil what is synced
    assert (told.headers["Content-Encoding"], told.headers["X-Object-Meta-Content-Encoding"]) == (None, None)
    assert pithos("POST", "/c/f?update", X_Object_Meta_B="2").status == 202
    pithos("POST", "/c/f?update", b"X", Content_Type=STREAM, Content_Range="bytes 0-0/*")
    pithos("MOVE", "/c/f", Destination="/c/g")
    assert swift("HEAD", "/c/g").headers["Content-Encoding"] == "gzip"
    (row,) = pithos("GET", "/c?format=json").json
    assert row["x_object_meta"] == {"a": "1", "b": "2"}
    swift("POST", "/c/g", Content_Disposition="inline")
    head = swift("HEAD", "/c/g").headers
    assert (head["Content-Encoding"], head["Content-Disposition"]) == (None, "inline")
    swift("PUT", "/c/g", b"new")
    assert "Content-Disposition" not in swift("HEAD", "/c/g").headers


def test_a_post_may_tell_another_type(swift: Swift) -> None:
    swift("PUT", "/c/f", b"x", Content_Type="text/a")
    swift("POST", "/c/f", Content_Type="text/b")
    assert swift("HEAD", "/c/f").headers["Content-Type"] == "text/b"
    swift("POST", "/c/f", Content_Type="", X_Object_Meta_A="1")
    assert swift("HEAD", "/c/f").headers["Content-Type"] == "text/b"


def test_a_type_that_is_not_told_is_that_of_the_name(swift: Swift, pithos: Client) -> None:
    def kind(name: str, **headers: str) -> str:
        swift("PUT", f"/c/{name}", b"x", **headers)
        return str(swift("HEAD", f"/c/{name}").headers["Content-Type"])

    assert kind("a.txt") == "text/plain"
    assert kind("a") == STREAM
    assert kind("b.txt", Content_Type="t/t") == "t/t"
    assert kind("b.txt", Content_Type="t/t", X_Detect_Content_Type="true") == "text/plain"
    pithos("PUT", "/c/p.txt", b"x")
    assert pithos("HEAD", "/c/p.txt").headers["Content-Type"] == STREAM


def test_metadata_are_told_as_they_came_and_quoted_in_pithoss_way(swift: Swift, pithos: Client) -> None:
    swift("PUT", "/c/f", b"", X_Object_Meta_A="one two", X_Object_Meta_B="50%", X_Object_Meta_C="a%20b")
    swift("POST", "/c", X_Container_Meta_A="one two", X_Container_Meta_B="\u00e9".encode().decode("latin-1"))
    swift("POST", "", X_Account_Meta_A="one two")
    head = swift("HEAD", "/c/f").headers
    assert [head[f"X-Object-Meta-{key}"] for key in "ABC"] == ["one two", "50%", "a%20b"]
    assert (
        swift("HEAD", "/c").headers["X-Container-Meta-A"] == swift("HEAD", "").headers["X-Account-Meta-A"] == "one two"
    )
    assert swift("HEAD", "/c").headers["X-Container-Meta-B"].encode("latin-1") == "\u00e9".encode()
    assert pithos("HEAD", "/c/f").headers["X-Object-Meta-A"] == "one%20two"
    assert pithos("HEAD", "/c").headers["X-Container-Meta-B"] == "%C3%A9"
    swift("POST", "", X_Remove_Account_Meta_A="x")


def test_a_list_has_swifts_forms(swift: Swift) -> None:
    swift("PUT", "/c/f", b"x")
    for query, accept in (("?format=xml", "*/*"), ("", "text/xml")):
        told = swift("GET", f"/c{query}", Accept=accept)
        assert told.headers["Content-Type"] == "application/xml; charset=utf-8"
        assert b'<container name="c"><object><name>f</name>' in told.body
    assert b'<account name="alice"><container><name>c</name><count>1</count>' in swift("GET", "?format=xml").body
    assert swift("GET", "/c?format=plain").body == swift("GET", "/c?format=other").body == b"f\n"
    assert [row["name"] for row in swift("GET", "/c", Accept="application/json, */*").json] == ["f"]
    assert swift("GET", "/c?limit=0").status == 204
    assert swift("GET", "/c?limit=0&format=json").json == []
    assert swift("GET", "/c?limit=x").body == b"f\n"
    assert swift("GET", "").headers["X-Account-Object-Count"] == "1"


def test_a_range_that_is_none_is_not_there(swift: Swift) -> None:
    swift("PUT", "/c/f", b"0123")
    for value in ("bytes=x", "bytes=3-1", "lines=1-2"):
        assert (swift("GET", "/c/f", Range=value).status, swift("GET", "/c/f", Range=value).body) == (200, b"0123")
    assert swift("GET", "/c/f", Range="bytes=0-1,9-").body == b"01"
    assert swift("GET", "/c/f", Range="bytes=2-9").headers["Content-Range"] == "bytes 2-3/4"
    assert swift("GET", "/c/f", Range="bytes=4-9").status == 416


def test_conditions_on_an_object_of_segments_are_on_the_etag_that_is_told(swift: Swift) -> None:
    swift("PUT", "/c/parts/1", b"abc")
    swift("PUT", "/c/f", b"", X_Object_Manifest="c/parts/")
    etag = swift("HEAD", "/c/f").headers["ETag"]
    known = swift("GET", "/c/f", If_None_Match=etag)
    assert (known.status, known.headers["ETag"]) == (304, etag)
    assert swift("GET", "/c/f", If_Match=etag).body == b"abc"
    swift("PUT", "/c/parts/2", b"d")
    assert swift("GET", "/c/f", If_None_Match=etag).body == b"abcd"
    assert swift("GET", "/c/f", If_Match=etag).status == 412


@pytest.mark.parametrize("name", ["d/", "a//b", "%2Fa", "a/../b", "..", "a%0Ab"])
def test_what_nothing_may_be_called_is_not_there(swift: Swift, pithos: Client, name: str) -> None:
    """Breaks when a client that looks for a directory's object stops at a 400."""
    for method in ("GET", "HEAD", "POST", "DELETE"):
        assert swift(method, f"/c/{name}").status == 404
    assert swift("PUT", f"/c/{name}", b"").status == 400
    assert pithos("HEAD", f"/c/{name}").status == 400
    assert swift("GET", "/c/%FF").status == 400


def test_what_would_be_something_else_is_refused(swift: Swift) -> None:
    assert swift("PUT", "/c/f", b"", X_Symlink_Target="c/g").status == 400
    assert swift("PUT", "/d", X_Versions_Location="e").status == 400
    assert swift("POST", "/c", X_Container_Read=".r:*").status == 400
    assert swift("POST", "/c", X_Container_Read="").status == 204
    assert swift("POST", "", X_Account_Access_Control="{}").status == 400
    assert swift("HEAD", "/c/f").status == swift("HEAD", "/d").status == 404


def test_a_put_says_how_long_it_is(swift: Swift, address: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.putrequest("PUT", f"{swift.base}/c/f")
    connection.putheader("X-Storage-Token", swift.token)  # the older name
    connection.endheaders()
    assert connection.getresponse().status == 411
    connection.close()
    assert swift("HEAD", "/c/f").status == 404
    assert swift("POST", "/c", b"a body means nothing", X_Container_Meta_A="1").status == 204


def test_what_has_not_changed_has_the_same_etag(swift: Swift, pithos: Client) -> None:
    swift("PUT", "/c/f", b"data")
    assert swift("GET", "/c/f", If_None_Match=md5(b"data")).headers["ETag"] == md5(b"data")
    etag = pithos("HEAD", "/c/f").headers["ETag"]
    assert pithos("GET", "/c/f", If_None_Match=etag).headers["ETag"] == etag
    pithos.put_hashmap("/c/g", 9, pithos.upload("c", b"by blocks"))
    reply = swift("GET", "/c/g", If_None_Match="*")
    assert (reply.status, reply.headers["ETag"]) == (304, None)


def test_replies_have_swifts_headers(swift: Swift) -> None:
    reply = swift("PUT", "/c/f", b"x")
    assert reply.headers["X-Trans-Id"].startswith("tx")
    head = swift("HEAD", "/c/f")
    assert float(head.headers["X-Timestamp"]) > 1e9
    assert head.headers["X-Trans-Id"] != reply.headers["X-Trans-Id"]
    assert float(swift("HEAD", "/c").headers["X-Timestamp"]) > 1e9
    assert swift("HEAD", "").headers["X-Account-Object-Count"] == "1"


@pytest.mark.parametrize("path", ["/info", "/swift/info"])
def test_what_the_server_can_is_told_to_anybody_also_beside_the_storage_url(address: str, path: str) -> None:
    """Breaks when openstacksdk uploads nothing: it asks there first how long a part may be."""
    for fields in ({}, {"X_Auth_Token": "token-alice"}):
        assert ask(address, "GET", path, **fields).json["swift"]["container_listing_limit"] == 10_000


def listed(swift: Swift, *pieces: bytes, **more: object) -> bytes:
    """A manifest of pieces, which are put."""
    for number, piece in enumerate(pieces):
        swift("PUT", f"/c/parts/{number}", piece, Content_Type="t/part")
    rows = [
        {"path": f"/c/parts/{number}", "etag": md5(piece), "size_bytes": len(piece)}
        for number, piece in enumerate(pieces)
    ]
    return json.dumps([{**row, **more} for row in rows]).encode()


def test_listed_segments_are_one_object(swift: Swift, pithos: Client) -> None:
    pieces = [b"a" * 5000, b"b" * 10, b"c" * 9000]
    whole, etag = b"".join(pieces), f'"{md5("".join(map(md5, pieces)).encode())}"'
    manifest = listed(swift, *pieces)
    put = swift("PUT", "/c/f?multipart-manifest=put", manifest, Content_Type="x/y", X_Object_Meta_A="1")
    assert (put.status, put.headers["ETag"]) == (201, etag)
    head, got = swift("HEAD", "/c/f"), swift("GET", "/c/f")
    assert got.body == whole
    for reply in (head, got):
        assert (reply.headers["ETag"], reply.headers["X-Static-Large-Object"]) == (etag, "True")
        assert (reply.headers["Content-Length"], reply.headers["X-Object-Manifest"]) == (str(len(whole)), None)
        assert (reply.headers["Content-Type"], reply.headers["X-Object-Meta-A"]) == ("x/y", "1")
    assert swift("GET", "/c/f", Range="bytes=4990-5020").body == whole[4990:5021]
    assert swift("GET", "/c/f", If_None_Match=etag).status == swift("HEAD", "/c/f", If_None_Match=etag).status == 304
    told = swift("GET", "/c/f?multipart-manifest=get")
    assert told.headers["Content-Type"] == "application/json; charset=utf-8"
    assert told.headers["ETag"] == md5(told.body)
    assert [(row["name"], row["bytes"], row["hash"], row["content_type"]) for row in told.json] == [
        (f"/c/parts/{number}", len(piece), md5(piece), "t/part") for number, piece in enumerate(pieces)
    ]
    (row,) = [row for row in swift("GET", "/c?format=json").json if row["name"] == "f"]
    assert (row["bytes"], row["slo_etag"], row["content_type"]) == (len(whole), etag, "x/y")
    swift("POST", "/c/f", X_Object_Meta_B="2")
    assert swift("GET", "/c/f").body == whole
    assert pithos("GET", "/c/f").body == told.body  # the other dialect shows what is stored


def test_a_listed_segment_that_has_changed_is_not_sent_for_what_it_was(swift: Swift) -> None:
    """Breaks when what is read of the object looks whole and is not."""
    swift("PUT", "/c/f?multipart-manifest=put", listed(swift, b"aa", b"bb"))
    swift("PUT", "/c/parts/1", b"cc")
    assert swift("GET", "/c/f").status == 409
    assert swift("HEAD", "/c/f").headers["Content-Length"] == "4"
    swift("PUT", "/c/parts/1", b"bb")
    assert swift("GET", "/c/f").body == b"aabb"
    swift("DELETE", "/c/parts/1")
    assert swift("GET", "/c/f").status == 409


def test_a_listed_segment_without_an_md5_that_has_changed_is_not_sent_either(swift: Swift, pithos: Client) -> None:
    pithos.put_hashmap("/c/g", 2, pithos.upload("c", b"aa"))
    swift("PUT", "/c/f?multipart-manifest=put", b'[{"path":"/c/g"}]')
    assert swift("GET", "/c/f").body == b"aa"
    pithos.put_hashmap("/c/g", 2, pithos.upload("c", b"bb"))
    assert swift("GET", "/c/f").status == 409


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'[{"path":"/c/parts/0","etag":"0"}]',
        b'[{"path":"/c/parts/0","size_bytes":1}]',
        b'[{"path":"/c/parts/0","range":"0-1"}]',
        b'[{"path":"/c/parts/none"}]',
        b'[{"path":"/none/f"}]',
        b'[{"path":"c"}]',
        b'[{"path":"/c/empty"}]',
        b'[{"path":"/c/static"}]',
        b'[{"data":"YQ=="}]',
        b"[" + b",".join([b'{"path":"/c/parts/0"}'] * 1001) + b"]",
    ],
)
def test_a_list_of_segments_that_are_not_so_is_refused(swift: Swift, manifest: bytes) -> None:
    swift("PUT", "/c/static?multipart-manifest=put", listed(swift, b"aa"))
    swift("PUT", "/c/empty", b"")
    assert swift("PUT", "/c/f?multipart-manifest=put", manifest).status == 400
    assert swift("HEAD", "/c/f").status == 404


def test_a_list_of_segments_does_not_replace_one_of_them(swift: Swift) -> None:
    """Breaks when the content of that segment goes, and the object can't be read."""
    manifest = listed(swift, b"aa", b"bb")
    assert swift("PUT", "/c/parts/1?multipart-manifest=put", manifest).status == 400
    assert swift("GET", "/c/parts/1").body == b"bb"


def test_a_list_of_segments_keeps_to_conditions(swift: Swift, pithos: Client) -> None:
    manifest = listed(swift, b"aa")
    query = "?multipart-manifest=put"
    assert swift("PUT", f"/c/f{query}", manifest, ETag="0" * 32).status == 422
    assert swift("PUT", f"/c/f{query}", manifest, ETag=md5(md5(b"aa").encode()), If_None_Match="*").status == 201
    assert swift("PUT", f"/c/f{query}", manifest, If_None_Match="*").status == 412
    assert swift("PUT", f"/none/f{query}", manifest).status == 404
    assert swift("PUT", f"/c/g{query}", manifest, X_Object_Manifest="c/x").status == 400
    assert swift("PUT", f"/c/g{query}", b"[" + b" " * (2 << 20) + b"]").status == 413
    assert pithos("PUT", f"/c/g{query}", manifest).status == 400


def test_a_copy_of_listed_segments_joins_them_and_a_deletion_may_take_them_along(swift: Swift) -> None:
    swift("PUT", "/c/f?multipart-manifest=put", listed(swift, b"aa", b"bb"), Content_Type="x/y")
    assert swift("COPY", "/c/f", Destination="c/g").headers["ETag"] == md5(b"aabb")
    swift("COPY", "/c/f?multipart-manifest=get", Destination="c/h")
    assert swift("GET", "/c/h").body == b"aabb"
    assert swift("DELETE", "/c/h").status == 204
    assert swift("GET", "/c/f").body == b"aabb"
    gone = swift("DELETE", "/c/f?multipart-manifest=delete")
    assert (gone.status, gone.body.splitlines()[0]) == (200, b"Number Deleted: 3")
    assert swift("GET", "/c").body == b"g\n"
    joined = swift("GET", "/c/g")
    assert (joined.body, joined.headers["X-Static-Large-Object"]) == (b"aabb", None)
    assert swift("DELETE", "/c/g?multipart-manifest=delete").status == 204
    assert swift("GET", "/c").status == 204


def test_a_deletion_takes_along_what_is_listed_now_not_what_was(swift: Swift) -> None:
    listing = swift("PUT", "/c/f?multipart-manifest=put", listed(swift, b"aa"))
    swift("PUT", "/c/f", b"plain")
    old = listing.headers["X-Object-Version"]
    assert swift("DELETE", f"/c/f?multipart-manifest=delete&version={old}").status == 204
    assert swift("GET", "/c").body == b"parts/0\n"


def test_below_pithoss_path_a_deletion_takes_no_segments_along(swift: Swift, pithos: Client) -> None:
    swift("PUT", "/c/f?multipart-manifest=put", listed(swift, b"aa"))
    gone = pithos("DELETE", "/c/f?multipart-manifest=delete")
    assert (gone.status, gone.version > 0) == (204, True)
    assert swift("GET", "/c").body == b"parts/0\n"


@pytest.mark.parametrize("query", ["bulk-delete", "extract-archive=tar"])
def test_what_would_be_misunderstood_is_refused(swift: Swift, query: str) -> None:
    assert swift("PUT", f"/c/f?{query}", b"[]").status == 400
    assert swift("HEAD", "/c/f").status == 404


def test_the_token_is_for_its_account_here_too(swift: Swift, address: str) -> None:
    assert ask(address, "GET", "/swift/v1/bob", X_Auth_Token="token-alice").status == 403
    assert ask(address, "GET", "/swift/v1/alice").status == 401
    assert ask(address, "GET", "/swift/v1/", X_Auth_Token="token-alice").status == 204  # nobody shares anything


def test_a_list_of_what_another_account_shares_goes_back_too(swift: Swift, address: str) -> None:
    """Breaks when a client that lists page by page gets the same page for ever."""
    swift("PUT", "/d")
    for container in ("c", "d"):
        swift("PUT", f"/{container}/f", b"", X_Object_Sharing="read=bob")

    def told(query: str) -> bytes:
        return ask(address, "GET", f"/swift/v1/alice?{query}", X_Auth_Token="token-bob").body

    assert told("reverse=true") == b"d\nc\n"
    assert told("reverse=true&limit=1&marker=d") == b"c\n"
    assert told("reverse=true&marker=c") == b""
    assert told("end_marker=d") == b"c\n"
    swift("DELETE", "/d/f")
    swift("DELETE", "/d")


def test_segments_are_one_object(swift: Swift, pithos: Client) -> None:
    pieces = [b"a" * 5000, b"", b"b" * 10, b"c" * 9000]
    for number, piece in enumerate(pieces):
        swift("PUT", f"/c/parts/f/{number:03}", piece)
    swift("PUT", "/c/parts/g", b"another")
    assert swift("PUT", "/c/f", b"", X_Object_Manifest="c/parts/f/", Content_Type="x/y").status == 201
    whole = b"".join(pieces)
    head, got = swift("HEAD", "/c/f"), swift("GET", "/c/f")
    assert got.body == whole
    assert head.headers["Content-Length"] == str(len(whole))
    assert head.headers["X-Object-Manifest"] == "c/parts/f/"
    assert head.headers["ETag"] == got.headers["ETag"] == f'"{md5("".join(map(md5, pieces)).encode())}"'
    for start, end in ((0, 0), (4990, 5020), (5005, 5005), (5010, 14009), (14000, 14009)):
        assert swift("GET", "/c/f", Range=f"bytes={start}-{end}").body == whole[start : end + 1]
    swift("PUT", "/c/parts/f/004", b"more")
    assert swift("GET", "/c/f").body == whole + b"more"
    assert swift("POST", "/c/f", X_Object_Meta_K="v", X_Object_Manifest="c/parts/f/").status == 202
    assert swift("GET", "/c/f").body == whole + b"more"
    assert swift("GET", "/c/f?hashmap&format=json").status == 400
    assert pithos("GET", "/c/f").body == b""  # the other dialect shows what is stored


def test_segments_that_are_gone_leave_nothing(swift: Swift) -> None:
    swift("PUT", "/c/f", b"", X_Object_Manifest="c/%C3%A9")
    assert swift("GET", "/c/f").body == b""
    assert swift("HEAD", "/c/f").headers["X-Object-Manifest"] == "c/%C3%A9"


def test_an_object_whose_container_of_segments_is_gone_is_not_told_as_empty(swift: Swift) -> None:
    """Breaks when what is read of it looks whole and is not."""
    swift("PUT", "/c/f", b"", X_Object_Manifest="later/f/")
    assert swift("GET", "/c/f").status == swift("HEAD", "/c/f").status == 404
    assert swift("COPY", "/c/f", Destination="c/g").status == 404
    assert swift("GET", "/c/f?multipart-manifest=get").headers["X-Object-Manifest"] == "later/f/"
    swift("PUT", "/later")
    assert swift("GET", "/c/f").status == 200
    swift("DELETE", "/later")


def test_a_manifest_is_had_by_itself(swift: Swift) -> None:
    swift("PUT", "/c/parts/f/1", b"abc")
    swift("PUT", "/c/f", b"own", X_Object_Manifest="c/parts/f/")
    got = swift("GET", "/c/f?multipart-manifest=get")
    assert (got.body, got.headers["ETag"], got.headers["X-Object-Manifest"]) == (b"own", md5(b"own"), "c/parts/f/")


def test_an_object_of_too_many_segments_is_not_cut(swift: Swift, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when what is read of it looks whole and is not."""
    monkeypatch.setattr("syncer.server.store.reading.MAX_ROWS", 2)
    for number in range(3):
        swift("PUT", f"/c/parts/f/{number}", b"x")
    swift("PUT", "/c/f", b"", X_Object_Manifest="c/parts/f/")
    assert swift("GET", "/c/f").status == swift("HEAD", "/c/f").status == 409
    swift("DELETE", "/c/parts/f/2")
    assert swift("GET", "/c/f").body == b"xx"


@pytest.mark.parametrize("value", ["", "c", "c/", "/", "../x", "%FF/x"])
def test_a_manifest_that_names_nothing_is_refused(swift: Swift, value: str) -> None:
    assert swift("PUT", "/c/f", b"", X_Object_Manifest=value).status == 400
    assert swift("HEAD", "/c/f").status == 404


def test_only_a_body_of_its_own_makes_an_object_of_segments(swift: Swift, pithos: Client) -> None:
    swift("PUT", "/c/f", b"")
    assert swift("PUT", "/c/g", b"", X_Copy_From="/c/f", X_Object_Manifest="c/x").status == 400
    assert swift("PUT", "/c/g?hashmap&format=json", b"{}", X_Object_Manifest="c/x", Content_Type="t").status == 400
    assert pithos("PUT", "/c/g", b"", X_Object_Manifest="c/x").status == 400


def test_many_are_deleted_at_once_each_on_its_own(swift: Swift) -> None:
    for name in ("a", "b", "d/c", "kept"):
        swift("PUT", f"/c/{name}", b"")
    swift("PUT", "/empty")
    body = b"/c/a\nc/d%2Fc\nc/none\n\nempty\nnone\nc\n/c/../b\n"
    reply = swift("DELETE", "?bulk-delete=1", body, Accept="application/json")
    assert reply.status == 200
    assert reply.json == {
        "Number Deleted": 3,
        "Number Not Found": 2,
        "Errors": [["c", "409 Conflict"], ["/c/../b", "400 Bad Request"]],
        "Response Status": "400 Bad Request",
        "Response Body": "",
    }
    assert swift("GET", "/c").body == b"b\nkept\n"
    text = swift("POST", "?bulk-delete", b"c/b").body
    assert b"Number Deleted: 1\n" in text
    assert b"Response Status: 200 OK\n" in text


def test_many_deletions_wait_for_the_disk_a_few_times_only(tmp_path: Path) -> None:
    """Each in a transaction of its own, 10,000 took longer than clients wait for an answer."""
    with Store(ServerFolder.open(str(tmp_path / "s"), block_size=BLOCK)) as store, serving(store) as address:
        swift = Swift(address)
        names = [f"f{number:04d}" for number in range(2000)]
        operations = [{"op": "put", "name": name, "type": "t/t", "bytes": 0} for name in names]
        swift("PUT", "/c")
        client = Client(address)
        for half in (operations[:1000], operations[1000:]):
            assert client("POST", "/c?bulk", json.dumps({"operations": half}).encode() + b"\n").status == 200
        client.close()
        before = store._catalogue._environment.info()["last_txnid"]
        body = "".join(f"c/{name}\n" for name in [*names, "none"]).encode() + b"c\n"
        reply = swift("POST", "?bulk-delete", body, Accept="application/json").json
        assert (reply["Number Deleted"], reply["Number Not Found"], reply["Errors"]) == (2001, 1, [])
        assert store._catalogue._environment.info()["last_txnid"] - before <= 4
        assert swift("HEAD", "/c").status == 404


def test_an_account_is_not_deleted_by_mistake(swift: Swift, pithos: Client) -> None:
    swift("PUT", "/c/f", b"x")
    assert swift("DELETE", "").status == 405
    assert pithos("DELETE", "").status == 405
    assert pithos("DELETE", "?bulk-delete", b"c/f").status == 405
    assert swift("GET", "/c/f").body == b"x"
