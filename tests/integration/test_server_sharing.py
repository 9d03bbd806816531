"""Sharing for reading: who sees what, and that reading gives possession while a hash does not."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator

import pytest

from tests.integration.live_server import BLOCK, Client, Reply, server_in_thread

TOKENS = "token-alice alice\ntoken-bob bob\ntoken-carol carol\n"
DIRECTORY = "application/directory"
STREAM = "application/octet-stream"


@pytest.fixture
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_in_thread(tmp_path_factory.mktemp("server") / "s", TOKENS) as found:
        yield found


@pytest.fixture
def alice(address: str) -> Iterator[Client]:
    client = Client(address)
    client("PUT", "/c")
    yield client
    client.close()


@pytest.fixture
def bob(address: str) -> Iterator[Client]:
    """Bob's token; paths are alice's."""
    client = Client(address, "token-bob", "alice")
    yield client
    client.close()


@pytest.fixture
def own(address: str) -> Iterator[Client]:
    """Bob in his own account."""
    client = Client(address, "token-bob", "bob")
    client("PUT", "/mine")
    yield client
    client.close()


def root(address: str, token: str, query: str = "?format=json") -> Reply:
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", f"/v1{query}", headers={"X-Auth-Token": token})
    response = connection.getresponse()
    reply = Reply(response.status, response.headers, response.read())
    connection.close()
    return reply


def share(client: Client, path: str, readers: str = "read=bob") -> Reply:
    return client("POST", f"{path}?update", X_Object_Sharing=readers)


def test_a_reader_reads_and_does_nothing_else(alice: Client, bob: Client) -> None:
    version = alice("PUT", "/c/f", b"shared", X_Object_Meta_K="v").version
    alice("PUT", "/c/private", b"private")
    assert bob("GET", "/c/f").status == 403
    assert share(alice, "/c/f").status == 202
    got = bob("GET", "/c/f")
    assert (got.status, got.body, got.headers["X-Object-Allowed-To"]) == (200, b"shared", "read")
    assert bob("HEAD", "/c/f").headers["X-Object-Meta-K"] == "v"
    assert bob("GET", f"/c/f?version={version}").body == b"shared"
    assert bob("GET", "/c/f", Range="bytes=1-3").body == b"har"
    assert bob("GET", "/c/f?hashmap&format=json").json["bytes"] == 6
    for method in ("PUT", "POST", "DELETE", "MOVE", "COPY"):
        assert bob(method, "/c/f", b"", Destination="/c/g").status == 403
    for path in ("/c/private", "/c/none", "/none/f"):
        assert bob("GET", path).status == bob("HEAD", path).status == 403
    assert alice("GET", "/c/f").headers.get("X-Object-Allowed-To") is None


def test_only_the_current_version_is_shared(alice: Client, bob: Client) -> None:
    """Breaks when a reader gets at what an object was before it was meant for others."""
    old = alice("PUT", "/c/f", b"secret draft").version
    alice("PUT", "/c/f", b"for bob")
    share(alice, "/c/f")
    for query in (f"?version={old}", "?version=list", f"?hashmap&format=json&since_version={old}"):
        assert bob("GET", f"/c/f{query}").status == 403


def test_sharing_is_told_to_the_owner_and_ends(alice: Client, bob: Client, address: str) -> None:
    alice("PUT", "/c/f", b"x")
    before = alice("HEAD", "/c/f").headers["X-Object-Version"]
    share(alice, "/c/f", "read=carol,bob; write=")
    head = alice("HEAD", "/c/f")
    assert head.headers["X-Object-Sharing"] == "read=bob,carol"
    assert head.headers["X-Object-Version"] == before  # no new version for that
    (row,) = alice("GET", "/c?format=json").json
    assert row["x_object_sharing"] == "read=bob,carol"
    assert [one["name"] for one in root(address, "token-bob").json] == ["alice"]
    assert root(address, "token-bob", "").body == b"alice\n"
    share(alice, "/c/f", "read=")
    assert "X-Object-Sharing" not in alice("HEAD", "/c/f").headers
    assert bob("GET", "/c/f").status == 403
    assert root(address, "token-bob").json == []
    assert root(address, "token-bob", "").status == 204


def test_a_reader_lists_what_is_shared(alice: Client, bob: Client) -> None:
    for name in ("a", "b", "d/1", "d/2", "z"):
        alice("PUT", f"/c/{name}", b"x")
    alice("PUT", "/c/d", b"", Content_Type=DIRECTORY)
    alice("PUT", "/other")
    alice("PUT", "/other/f", b"")
    assert bob("GET", "/c?format=json").status == bob("HEAD", "/c").status == bob("GET", "").status == 403
    share(alice, "/c/b")
    share(alice, "/c/d")
    assert bob.names("c") == ["b", "d", "d/1", "d/2"]
    assert bob.names("c", "&prefix=d/") == ["d/1", "d/2"]
    assert not [row for row in bob("GET", "/c?format=json").json if "x_object_sharing" in row]  # who else may read
    assert "X-Object-Sharing" not in bob("HEAD", "/c/b").headers
    assert bob("GET", "/c").body == b"b\nd\nd/1\nd/2\n"
    assert [row["name"] for row in bob("GET", "?format=json").json] == ["c"]
    head = bob("HEAD", "/c")
    assert head.headers["X-Container-Block-Size"] == str(BLOCK)
    assert "X-Container-Bytes-Used" not in head.headers
    assert alice.names("c", "&shared") == ["b", "d", "d/1", "d/2"]
    assert alice.names("c", "&public") == []
    assert bob("GET", "/c?changes&since=0").status == 403


def test_a_shared_directory_shares_what_is_below_it(alice: Client, bob: Client) -> None:
    alice("PUT", "/c/d", b"", Content_Type=DIRECTORY)
    alice("PUT", "/c/d/e/f", b"x")
    alice("PUT", "/c/dx", b"x")
    share(alice, "/c/d")
    assert bob("GET", "/c/d/e/f").body == b"x"
    assert bob("GET", "/c/dx").status == 403
    assert alice("HEAD", "/c/d/e/f").headers["X-Object-Shared-By"] == "c/d"
    alice("PUT", "/c/file", b"")
    alice("PUT", "/c/file/below", b"x")
    share(alice, "/c/file")
    assert bob("GET", "/c/file/below").status == 403  # only directories share what is below them


def test_everybody_may_be_meant(alice: Client, address: str) -> None:
    alice("PUT", "/c/f", b"x", X_Object_Sharing="read=*")
    for name in ("bob", "carol"):
        reader = Client(address, f"token-{name}", "alice")
        assert reader("GET", "/c/f").body == b"x"
        reader.close()
        assert [one["name"] for one in root(address, f"token-{name}").json] == ["alice"]
    assert root(address, "token-alice").json == []


def test_what_goes_away_is_not_shared_when_it_comes_back(alice: Client, bob: Client) -> None:
    for end in (("DELETE", {}), ("MOVE", {"Destination": "/c/elsewhere"})):
        alice("PUT", "/c/f", b"x")
        share(alice, "/c/f")
        alice(end[0], "/c/f", **end[1])
        alice("PUT", "/c/f", b"new and private")
        assert bob("GET", "/c/f").status == 403
        assert bob("GET", "/c/elsewhere").status == 403


def test_a_put_that_narrows_the_sharing_shows_its_content_to_nobody_else(alice: Client, bob: Client) -> None:
    alice("PUT", "/c/f", b"for all", X_Object_Sharing="read=bob,carol")
    alice("PUT", "/c/f", b"still for all")
    assert bob("GET", "/c/f").body == b"still for all"
    alice("PUT", "/c/f", b"for carol", X_Object_Sharing="read=carol")
    assert bob("GET", "/c/f").status == 403


def test_reading_gives_possession_and_a_hash_does_not(alice: Client, bob: Client, own: Client) -> None:
    secret, data = b"s" * BLOCK, b"d" * BLOCK + b"e" * 10
    (secret_id,) = alice.upload("c", secret)
    alice.put_hashmap("/c/secret", BLOCK, [secret_id])
    alice("PUT", "/c/f", data)
    share(alice, "/c/f")
    ids = bob("HEAD", "/c/f") and alice("GET", "/c/f?hashmap&format=json").json["hashes"]
    assert own.put_hashmap("/mine/f", len(data), ids).json == ids  # a HEAD is not reading
    assert bob("GET", "/c/f?hashmap&format=json").json["hashes"] == ids
    assert own.put_hashmap("/mine/f", len(data), ids).status == 201
    assert own.put_hashmap("/mine/other", BLOCK, [ids[0]]).status == 201
    assert own("GET", "/mine/f").body == data
    assert own.put_hashmap("/mine/secret", BLOCK, [secret_id]).status == 409


def test_a_shared_object_is_copied_into_an_account_of_ones_own(alice: Client, bob: Client, own: Client) -> None:
    alice("PUT", "/c/f", b"c" * BLOCK + b"opied", X_Object_Meta_K="v")
    alice("PUT", "/c/private", b"private")
    share(alice, "/c/f")
    copy = own("PUT", "/mine/f", b"", X_Copy_From="/c/f", X_Source_Account="alice")
    assert copy.status == 201
    got = own("GET", "/mine/f")
    assert (got.body, got.headers["X-Object-Meta-K"]) == (b"c" * BLOCK + b"opied", "v")
    ids = own("GET", "/mine/f?hashmap&format=json").json["hashes"]
    assert own.put_hashmap("/mine/again", BLOCK, ids[:1]).status == 201
    part = own("POST", "/mine/f?update", Content_Range="bytes 0-4/*", X_Source_Object="/c/f", X_Source_Account="alice")
    assert part.status == 204
    for source in ("/c/private", "/c/none", "/none/f"):
        assert own("PUT", "/mine/g", b"", X_Copy_From=source, X_Source_Account="alice").status == 403
    assert own("PUT", "/mine/g", b"", X_Move_From="/c/f", X_Source_Account="alice").status == 403
    assert own("PUT", "/mine/g?delimiter=/", b"", X_Copy_From="/c/f", X_Source_Account="alice").status == 403
    refused = own(
        "POST", "/mine/f?update", Content_Range="bytes */*", X_Source_Object="/c/private", X_Source_Account="alice"
    )
    assert refused.status == 403


@pytest.mark.parametrize("value", ["write=bob", "read=alice:friends", "bob", "execute=bob", "read=a/b", "read=%FF"])
def test_sharing_that_is_not_supported_is_refused(alice: Client, value: str) -> None:
    alice("PUT", "/c/f", b"x")
    assert share(alice, "/c/f", value).status == 400
    assert alice("PUT", "/c/g", b"x", X_Object_Sharing=value).status == 400
    assert alice("HEAD", "/c/g").status == 404
    assert share(alice, "/c/none").status == 404


def test_sharing_is_not_ignored_where_it_can_not_be_set(alice: Client) -> None:
    """Breaks when somebody believes that a move has taken readers away."""
    alice("PUT", "/c/f", b"x")
    for reply in (
        alice("MOVE", "/c/f", Destination="/c/g", X_Object_Sharing="read="),
        alice("COPY", "/c/f", Destination="/c/g", X_Object_Sharing="read="),
        alice("POST", "/c/f?update", b"y", Content_Type=STREAM, Content_Range="bytes */*", X_Object_Sharing="read="),
    ):
        assert reply.status == 400
    assert alice("PUT", "/c/g", b"", X_Copy_From="/c/f", X_Object_Sharing="read=bob").status == 201
    assert alice("HEAD", "/c/g").headers["X-Object-Sharing"] == "read=bob"


def test_names_of_accounts_are_told_to_those_with_a_token(address: str) -> None:
    def ask(body: object, token: str, method: str = "POST") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(address, timeout=60)
        connection.request(method, "/account/v1.0/user_catalogs", json.dumps(body), {"X-Auth-Token": token})
        response = connection.getresponse()
        found = response.status, response.read()
        connection.close()
        return found

    status, body = ask({"uuids": ["alice", "nobody"]}, "token-bob")
    assert (status, json.loads(body)["uuid_catalog"]) == (200, {"alice": "alice", "nobody": "nobody"})
    assert json.loads(ask({"displaynames": ["x"]}, "token-bob")[1])["displayname_catalog"] == {"x": "x"}
    assert ask({}, "wrong")[0] == 401
    assert ask([], "token-bob")[0] == 400
    assert ask({}, "token-bob", "GET")[0] == 405


def test_a_write_that_lacks_blocks_shares_nothing_in_whichever_form_it_came(alice: Client, bob: Client) -> None:
    """Breaks when what was there before is shown to those who are to see only what comes."""
    alice("PUT", "/c/f", b"not for bob")
    splice = (0).to_bytes(8, "big") + (1).to_bytes(8, "big") + b"?" * 32
    head = json.dumps({"bytes": BLOCK, "block_size": BLOCK, "block_hash": "sha256"}).encode() + b"\n"
    wanted = {"X_Object_Sharing": "read=bob", "Content_Type": STREAM}
    listed = alice("PUT", "/c/f?hashmap&format=binary", head + splice, **wanted)
    assert (listed.status, listed.body) == (409, b"?" * 32)
    hashes = json.dumps({"bytes": BLOCK, "hashes": [(b"?" * 32).hex()]}).encode()
    assert alice("PUT", "/c/f?hashmap&format=json", hashes, **wanted).status == 409
    assert bob("GET", "/c/f").status == 403


def test_who_may_read_is_not_changed_where_a_condition_does_not_hold(alice: Client, bob: Client) -> None:
    first = alice("PUT", "/c/f", b"one").version
    alice("PUT", "/c/f", b"two")
    wanted = {"X_Object_Sharing": "read=bob", "X_If_Object_Version": str(first)}
    assert alice("POST", "/c/f?update", **wanted).status == 412
    assert alice("POST", "/c/f?update", X_Object_Meta_A="b", **wanted).status == 412
    assert alice("POST", "/c/f", **wanted).status == 412
    assert bob("GET", "/c/f").status == 403
    assert share(alice, "/c/f").status == 202
    assert alice("PUT", "/c/f", b"three", X_Object_Sharing="read=", If_None_Match="*").status == 412
    assert bob("GET", "/c/f").body == b"two"
    assert alice("POST", "/c/f", X_Object_Meta_A="b", X_Object_Sharing="read=").status == 202
    assert bob("GET", "/c/f").status == 403


def test_a_put_that_is_refused_leaves_the_readers_as_they_were(alice: Client, bob: Client) -> None:
    alice("PUT", "/c/f", b"for bob", X_Object_Sharing="read=bob")
    assert alice("PUT", "/c/f", b"for nobody", X_Object_Sharing="read=", ETag="0" * 32).status == 422
    hashes = json.dumps({"bytes": BLOCK, "hashes": [(b"?" * 32).hex()]}).encode()
    lacking = alice("PUT", "/c/f?hashmap&format=json", hashes, X_Object_Sharing="read=", Content_Type=STREAM)
    assert lacking.status == 409
    assert alice("PUT", "/c/f", b"", X_Object_Sharing="read=", X_Copy_From="/c/none").status == 404
    assert bob("GET", "/c/f").body == b"for bob"
