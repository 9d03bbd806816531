"""POST of a part of an object over HTTP, as kamaki's append, truncate and overwrite send it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.live_server import BLOCK, Client, server_in_thread

STREAM = "application/octet-stream"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_in_thread(tmp_path_factory.mktemp("server") / "s") as found:
        yield found


@pytest.fixture
def alice(address: str) -> Iterator[Client]:
    client = Client(address)
    client("PUT", "/c")
    yield client
    client("DELETE", "/c?delimiter=/")
    client.close()


def test_bytes_are_put_in_place(alice: Client) -> None:
    before = alice("PUT", "/c/f", b"abcdef", X_Object_Meta_K="v")
    reply = alice("POST", "/c/f?update", b"XY", Content_Type=STREAM, Content_Range="bytes 2-3/*")
    assert reply.status == 204
    assert reply.version > before.version
    got = alice("GET", "/c/f")
    assert (got.body, got.headers["X-Object-Meta-K"]) == (b"abXYef", "v")
    assert got.headers["ETag"] == reply.headers["ETag"]
    assert alice("GET", f"/c/f?version={before.version}").body == b"abcdef"


def test_bytes_are_appended(alice: Client) -> None:
    alice("PUT", "/c/f", b"a" * BLOCK)
    for _ in range(2):
        reply = alice("POST", "/c/f?update", b"b" * BLOCK, Content_Type=STREAM, Content_Range="bytes */*")
        assert reply.status == 204
    assert alice("GET", "/c/f").body == b"a" * BLOCK + b"b" * 2 * BLOCK


def test_appends_at_once_are_all_there(address: str, alice: Client) -> None:
    alice("PUT", "/c/f", b"")

    def append(letter: str) -> int:
        client = Client(address)
        body = letter.encode() * 100
        status = client("POST", "/c/f?update", body, Content_Type=STREAM, Content_Range="bytes */*").status
        client.close()
        return status

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(append, "abcdefgh")) == {204}
    body = alice("GET", "/c/f").body
    assert sorted(body[at : at + 100] for at in range(0, 800, 100)) == [letter.encode() * 100 for letter in "abcdefgh"]


def test_an_object_is_cut_as_kamaki_asks_for_it(alice: Client) -> None:
    """Breaks when the range is taken at its word: kamaki asks for one byte more than it wants to keep."""
    for size in (0, 3, BLOCK, 6000):
        alice("PUT", "/c/f", b"k" * 6000, Content_Type="image/png")
        reply = alice(
            "POST",
            "/c/f?update",
            Content_Type="image/png",
            Content_Range=f"bytes 0-{size}/*",
            X_Object_Bytes=str(size),
            X_Source_Object="/c/f",
        )
        assert reply.status == 204
        got = alice("GET", "/c/f")
        assert (got.body, got.headers["Content-Type"]) == (b"k" * size, "image/png")


def test_a_range_of_another_object_is_copied(alice: Client) -> None:
    old = alice("PUT", "/c/source", b"old!").version
    alice("PUT", "/c/source", b"new!")
    alice("PUT", "/c/f", b"0123456789")
    assert alice("POST", "/c/f?update", Content_Range="bytes 2-5/*", X_Source_Object="/c/source").status == 204
    assert alice("GET", "/c/f").body == b"01new!6789"
    reply = alice(
        "POST", "/c/f?update", Content_Range="bytes */*", X_Source_Object="/c/source", X_Source_Version=str(old)
    )
    assert reply.status == 204
    assert alice("GET", "/c/f").body == b"01new!6789old!"


def test_conditions_are_about_the_object(alice: Client) -> None:
    version = alice("PUT", "/c/f", b"abc").version
    fields = {"Content_Type": STREAM, "Content_Range": "bytes 0-0/*"}
    assert alice("POST", "/c/f?update", b"x", X_If_Object_Version=str(version + 1), **fields).status == 412
    assert alice("POST", "/c/f?update", b"x", X_If_Object_Version=str(version), **fields).status == 204


@pytest.mark.parametrize(
    ("where", "body", "status"),
    [
        ("bytes 0-4/*", b"abc", 400),
        ("bytes 4-2/*", b"abc", 416),
        ("bytes 9-11/*", b"abc", 416),
        ("bytes 0-2/7", b"abc", 416),
        ("bytes 1-3/3", b"abc", 416),
        ("lines 0-2/*", b"abc", 416),
        ("bytes 0-2/3", b"abc", 204),
        ("bytes 1-/*", b"abc", 204),
        ("bytes 0-9223372036854775807/*", b"abc", 400),
    ],
)
def test_ranges_that_cannot_be_are_refused(alice: Client, where: str, body: bytes, status: int) -> None:
    alice("PUT", "/c/f", b"xyz")
    assert alice("POST", "/c/f?update", body, Content_Type=STREAM, Content_Range=where).status == status
    if status != 204:
        assert alice("GET", "/c/f").body == b"xyz"


def test_a_part_needs_to_know_where(alice: Client) -> None:
    alice("PUT", "/c/f", b"xyz")
    for fields in ({"Content_Type": STREAM}, {"X_Source_Object": "/c/f"}, {"X_Object_Bytes": "1"}):
        assert alice("POST", "/c/f?update", **fields).status == 400
    assert alice("POST", "/c/f?update", Content_Range="bytes */*", X_Source_Object="/c/none").status == 404
    assert alice("POST", "/c/none?update", b"x", Content_Type=STREAM, Content_Range="bytes */*").status == 404
    assert alice("GET", "/c/f").body == b"xyz"


@pytest.mark.parametrize("method", ["MOVE", "COPY"])
def test_a_subtree_that_goes_to_where_it_lies_below_overtakes_nothing_of_its_own(alice: Client, method: str) -> None:
    names = ["a/b", "a/b/b", "a/b/x", "a/b/b/x", "a/b/b/b/x"]
    for name in names:
        assert alice("PUT", f"/c/{name}", name.encode()).status == 201
    assert alice(method, "/c/a/b?delimiter=/", Destination="/c/a").status == 201
    found = {name: alice("GET", f"/c/{name}").body.decode() for name in alice.names("c")}
    expected = {f"a{name.removeprefix('a/b')}": name for name in names}
    assert found == (expected if method == "MOVE" else dict(zip(names, names, strict=True)) | expected)


def test_a_subtree_that_goes_to_longer_names_overtakes_nothing_of_its_own(alice: Client) -> None:
    names = ["a", "abba", "abbba", "abbbba"]
    for name in names:
        assert alice("PUT", f"/c/{name}", name.encode()).status == 201
    assert alice("MOVE", "/c/a?delimiter=bb", Destination="/c/ab").status == 201
    found = {name: alice("GET", f"/c/{name}").body.decode() for name in alice.names("c")}
    assert found == {f"ab{name[1:]}": name for name in names}
