"""Swift as its worst days make it: expired tokens, proxies with other clocks, replies that are lost, cut or wrong."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
import trio

from syncer.errors import (
    AuthError,
    CorruptionError,
    ForbiddenError,
    NoSpaceError,
    NotFoundError,
    OverQuotaError,
    RemoteUnavailableError,
    UsageError,
)
from syncer.remote.http.address import parse_address
from syncer.remote.http.transport import BadReplyError, HttpSettings, ReplyLostError
from syncer.remote.stores.port import Blob
from syncer.remote.stores.swift import Keystone, SignIn, SwiftStore
from syncer.remote.stores.swift.signin import _access
from tests.fakes.httpscript import Answer, Arrived, Script, serving
from tests.unit.syncer.remote.stores.swift_cloud import STAMP, Cloud, endpoint, keystone, stored, temp_auth

T = TypeVar("T")
STAMP_NS = 1_700_000_000_123_450_000
ISO = "2023-11-14T22:13:20.123450"


def using(
    cloud: Callable[[Arrived], Answer],
    test: Callable[[SwiftStore], Awaitable[T]],
    credentials: Callable[[Script], SignIn] = temp_auth,
    settings: HttpSettings | None = None,
) -> tuple[T, Script]:
    async def main() -> T:
        store = SwiftStore(credentials(script), "box", "sub/", settings=settings or HttpSettings())
        await store.open()
        try:
            return await test(store)
        finally:
            await store.close()

    with serving(cloud) as script:
        if isinstance(cloud, Cloud):
            cloud.storage = f"{script.url}/v1/AUTH_a"
        return trio.run(main), script


def failing(answer: Answer, call: Callable[[SwiftStore], Awaitable[object]]) -> Exception:
    async def test(store: SwiftStore) -> Exception:
        with pytest.raises(Exception) as found:  # noqa: PT011 -- each test says which
            await call(store)
        return found.value

    return using(Cloud(lambda _: answer), test)[0]


# --- signing in


def test_an_expired_token_is_renewed_once_for_all_and_what_was_refused_is_sent_again() -> None:
    """Breaks when a long push ends after a day, or when a hundred tasks sign in a hundred times."""
    cloud = Cloud(lambda arrived: Answer(201) if arrived.method == "PUT" else stored())
    body = bytes(3 << 20)

    async def test(store: SwiftStore) -> None:
        assert await store.get("x") == b"data"
        cloud.tokens += 1  # the one that was given is no longer known
        async with trio.open_nursery() as nursery:
            for number in range(12):
                nursery.start_soon(store.put, f"packs/{number}", body)
                nursery.start_soon(store.get, f"y/{number}")

    _, script = using(cloud, test)
    assert script.methods().count("GET /auth/v1.0") == 2
    written = [one for one in script.arrived if one.method == "PUT" and one.headers["x-auth-token"] == "token-3"]
    assert sorted(one.path for one in written) == sorted(f"/v1/AUTH_a/box/sub/packs/{number}" for number in range(12))
    assert all(one.body == body for one in written)
    refused = [one for one in script.arrived if one.method == "PUT" and one not in written]
    assert all(one.body is None for one in refused)  # nothing was sent for nothing


def test_after_a_listing_the_container_is_not_asked_for_what_it_is() -> None:
    """Breaks when a condition is put to a container with versions because nobody opened it first."""

    def answer(arrived: Arrived) -> Answer:
        if arrived.method == "GET":
            reply = listed("sub/a")
            return Answer(reply.status, reply.body, {**reply.headers, "X-Versions-Enabled": "True"})
        return Answer(404) if arrived.method == "HEAD" else Answer(201)

    async def main(script: Script) -> None:
        cloud.storage = f"{script.url}/v1/AUTH_a"
        store = SwiftStore(temp_auth(script), "box", "sub/", settings=HttpSettings())
        assert [blob.name for blob in await store.listing("")] == ["a"]
        assert (await store.open()).absent == "never"
        assert await store.put("new", b"data", absent=True)
        await store.close()

    cloud = Cloud(answer)
    with serving(cloud) as script:
        trio.run(main, script)
    assert [one.method for one in script.arrived] == ["GET", "GET", "HEAD", "PUT"]  # signs in, lists, looks, writes
    assert script.arrived[2].path.endswith("/new")
    assert not any("if-none-match" in one.headers for one in script.arrived)


def test_a_token_that_is_never_good_is_told() -> None:
    async def test(store: SwiftStore) -> None:
        cloud.answer = lambda _: Answer(401)
        with pytest.raises(AuthError, match="a new token did not help"):
            await store.get("x")

    cloud = Cloud(lambda _: stored())
    _, script = using(cloud, test)
    assert script.methods().count("GET /auth/v1.0") == 2


def test_wrong_credentials_are_told_without_the_key() -> None:
    with pytest.raises(AuthError, match="'a:b'") as found:
        using(Cloud(lambda _: stored()), lambda store: store.get("x"), lambda script: temp_auth(script, "wrong-key"))
    assert "wrong-key" not in str(found.value)


def test_keystone_is_asked_for_a_token_of_the_project_and_names_the_store() -> None:
    cloud = Cloud(lambda _: stored())
    data, _ = using(cloud, lambda store: store.get("x"), keystone)
    assert data == b"data"
    password = {"methods": ["password"], "password": {"user": {"id": "u", "password": "secret"}}}
    assert cloud.asked == [{"auth": {"identity": password, "scope": {"project": {"id": "p"}}}}]


def test_an_application_credential_asks_for_no_project() -> None:
    identity = {"methods": ["application_credential"], "application_credential": {"id": "i", "secret": "s"}}
    cloud = Cloud(lambda _: stored())
    using(cloud, lambda store: store.get("x"), lambda script: keystone(script, identity=identity, scope=None))
    assert cloud.asked == [{"auth": {"identity": identity}}]


def test_a_token_of_keystone_is_renewed_too() -> None:
    cloud = Cloud(lambda _: stored())

    async def test(store: SwiftStore) -> None:
        cloud.tokens += 1
        assert await store.get("x") == b"data"

    using(cloud, test, keystone)
    assert len(cloud.asked) == 2


def test_the_store_is_taken_of_the_region_and_the_interface_that_are_meant() -> None:
    def credentials(script: Script, region: str | None) -> Keystone:
        good = endpoint(f"{script.url}/v1/AUTH_a", region="two")
        bad = endpoint("http://127.0.0.1:1/v1/x")
        inner = endpoint("http://127.0.0.1:2/v1/x", "internal", "two")
        cloud.catalogue = [
            {"type": "identity", "endpoints": [endpoint("http://127.0.0.1:3")]},
            {"type": "object-store", "endpoints": [bad, inner, good]},
        ]
        return keystone(script, region=region)

    cloud = Cloud(lambda _: stored())
    assert using(cloud, lambda store: store.get("x"), lambda script: credentials(script, "two"))[0] == b"data"
    with pytest.raises(UsageError, match="OS_REGION_NAME to one of one, two"):
        using(cloud, lambda store: store.get("x"), lambda script: credentials(script, None))
    with pytest.raises(UsageError, match="no object store in three: there are one, two"):
        using(cloud, lambda store: store.get("x"), lambda script: credentials(script, "three"))


def test_a_catalogue_without_a_store_is_told_with_what_may_be_missing() -> None:
    cloud = Cloud(lambda _: stored())
    cloud.catalogue = []
    with pytest.raises(UsageError, match="OS_PROJECT_NAME"):
        using(cloud, lambda store: store.get("x"), keystone)


@pytest.mark.parametrize("body", [b"", b"[]", b"{" * 10_000, b'{"token": {"catalog": 1}}', b"\xff"])
def test_what_is_no_keystone_is_told(body: bytes) -> None:
    with pytest.raises(BadReplyError):
        using(lambda _: Answer(201, body, {"X-Subject-Token": "t"}), lambda store: store.get("x"), keystone)


def test_a_token_that_came_by_tls_does_not_leave_without_it() -> None:
    with pytest.raises(UsageError, match="without TLS"):
        _access(parse_address("https://swift.example.org/auth"), "t", None, "http://swift.example.org/v1/a")
    given = parse_address("http://swift.example.org/v1/a")
    assert _access(parse_address("https://swift.example.org/auth"), "t", given, "").storage == given


def test_no_text_of_ours_shows_a_secret() -> None:
    with serving(lambda _: Answer(200)) as script:
        shown = f"{temp_auth(script, 'hidden')!r} {keystone(script)!r}"
    assert "hidden" not in shown
    assert "secret" not in shown


# --- writes


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_write_that_the_server_failed_at_may_have_happened(status: int) -> None:
    error = failing(Answer(status, headers={"Retry-After": "7"}), lambda store: store.put("x", b"data"))
    assert isinstance(error, ReplyLostError)
    assert error.retry_after_s == 7.0
    assert isinstance(failing(Answer(status), lambda store: store.delete("x")), ReplyLostError)


def test_a_write_without_an_answer_may_have_happened() -> None:
    assert isinstance(failing(Answer(201, silent=True), lambda store: store.put("x", b"data")), ReplyLostError)


@pytest.mark.parametrize("absent", [True, False])
def test_a_write_that_lost_against_a_newer_one_is_no_success(absent: bool) -> None:
    """Breaks when 202 is taken for a success: what is newer may be a deletion, and the object is not there."""
    error = failing(Answer(202), lambda store: store.put("x", b"data", absent=absent))
    assert isinstance(error, RemoteUnavailableError)
    assert error.retryable


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (403, ForbiddenError, False),
        (404, NotFoundError, False),
        (408, RemoteUnavailableError, True),
        (412, BadReplyError, False),
        (413, OverQuotaError, False),
        (418, BadReplyError, False),
        (422, RemoteUnavailableError, True),
        (429, RemoteUnavailableError, True),
        (498, RemoteUnavailableError, True),
        (507, NoSpaceError, False),
    ],
)
def test_each_refusal_of_a_write_has_its_error(status: int, kind: type[Exception], retryable: bool) -> None:
    body = b"<html><h1>No</h1><p>Upload\x1b exceeds quota.</p></html>"
    error = failing(Answer(status, body), lambda store: store.put("x", b"data"))
    assert type(error) is kind
    assert error.retryable is retryable
    assert "No Upload exceeds quota." in str(error)


def test_a_write_carries_its_md5_and_a_large_one_waits_until_it_is_wanted() -> None:
    def answer(arrived: Arrived) -> Answer:
        return Answer(412, early=True) if "if-none-match" in arrived.headers else Answer(201)

    async def test(store: SwiftStore) -> None:
        assert not await store.put("packs/x", bytes(2 << 20), absent=True)
        assert not await store.put("packs/y", b"small", absent=True)
        assert await store.put("heads/z", [b"so ", b"small"])

    _, script = using(Cloud(answer), test)
    large, small, head = [one for one in script.arrived if one.method == "PUT"]
    assert (large.body, small.body, head.body) == (None, b"small", b"so small")
    assert large.headers["if-none-match"] == small.headers["if-none-match"] == "*"
    assert "if-none-match" not in head.headers
    assert head.headers["etag"] == hashlib.md5(b"so small").hexdigest()


def test_in_a_container_with_versions_nothing_is_written_on_a_condition() -> None:
    """Breaks when `If-None-Match` meets a versioned container: there Swift says 412, and stores the body."""

    def answer(arrived: Arrived) -> Answer:
        if arrived.method == "HEAD":
            there = arrived.path.endswith("/there")
            headers = {"X-Timestamp": STAMP, "Content-Length": "4"} if there else {}
            return Answer(200 if there else 404, headers=headers)
        return Answer(201)

    class Versioned(Cloud):
        def __call__(self, arrived: Arrived) -> Answer:
            if arrived.path == "/v1/AUTH_a/box":
                return Answer(204, headers={"X-Versions-Enabled": "True"})
            return super().__call__(arrived)

    async def test(store: SwiftStore) -> None:
        assert (await store.open()).absent == "never"
        assert not await store.put("there", b"data", absent=True)
        assert await store.put("new", b"data", absent=True)

    _, script = using(Versioned(answer), test)
    assert [one.path for one in script.arrived if one.method == "PUT"] == ["/v1/AUTH_a/box/sub/new"]
    assert not any("if-none-match" in one.headers for one in script.arrived)


# --- reads


def test_a_whole_object_is_of_the_newest_copy_and_a_range_of_any() -> None:
    def answer(arrived: Arrived) -> Answer:
        if "range" in arrived.headers:
            return Answer(206, b"at", {"Content-Range": "bytes 1-2/4"})
        return stored()

    async def test(store: SwiftStore) -> None:
        assert await store.get("x") == b"data"
        assert await store.head("x") == Blob("x", 4, STAMP_NS, hashlib.md5(b"data").digest())
        assert await store.get("x", (1, 2)) == b"at"

    _, script = using(Cloud(answer), test)
    newest = [one.headers.get("x-newest") for one in script.arrived if one.path.endswith("/x")]
    assert newest == ["true", "true", None]


def test_a_body_that_is_not_of_its_checksum_is_an_error() -> None:
    wrong = Answer(200, b"dada", {"ETag": hashlib.md5(b"data").hexdigest()})
    assert isinstance(failing(wrong, lambda store: store.get("x")), CorruptionError)


@pytest.mark.parametrize("span", [None, (0, 10)])
def test_a_body_that_is_cut_is_an_error_after_which_one_may_try_again(span: tuple[int, int] | None) -> None:
    cut = Answer(200 if span is None else 206, b"data", {"Content-Range": "bytes 0-9/10"}, length=10)
    error = failing(cut, lambda store: store.get("x", span))
    assert isinstance(error, RemoteUnavailableError)
    assert error.retryable


def test_another_range_than_was_asked_for_is_an_error() -> None:
    other = Answer(206, b"at", {"Content-Range": "bytes 2-3/4"})
    assert isinstance(failing(other, lambda store: store.get("x", (1, 2))), BadReplyError)


def test_a_read_that_the_server_failed_at_changed_nothing() -> None:
    error = failing(Answer(503), lambda store: store.get("x"))
    assert type(error) is RemoteUnavailableError


def test_no_more_is_taken_than_may_be() -> None:
    async def test(store: SwiftStore) -> None:
        with pytest.raises(CorruptionError, match="longer than"):
            await store.get("x", most_bytes=1000)
        with pytest.raises(BadReplyError):
            await store.get("x", (0, 1000))

    using(Cloud(lambda _: Answer(200, bytes(2_000_000))), test)


# --- listings


def listed(*names: str) -> Answer:
    rows = [{"name": name, "bytes": 3, "last_modified": ISO, "hash": "0" * 32} for name in names]
    return Answer(200, json.dumps(rows).encode())


def marker(arrived: Arrived) -> str:
    return arrived.target.partition("marker=")[2]


def test_a_listing_goes_on_until_a_page_is_not_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncer.remote.stores.swift.store._PAGE", 2)
    pages = {
        "": listed("sub/h/a", "sub/h/b"),
        "sub%2Fh%2Fb": listed("sub/h/c", "sub/h/Ü"),
        "sub%2Fh%2F%C3%9C": listed(),
    }
    found, script = using(Cloud(lambda arrived: pages[marker(arrived)]), lambda store: store.listing("h/"))
    assert found == [Blob(f"h/{letter}", 3, STAMP_NS, bytes(16)) for letter in "abc"]
    assert all(
        "limit=2&prefix=sub%2Fh%2F" in one.target for one in script.arrived if one.method == "GET" and "?" in one.target
    )


def test_a_listing_tells_the_time_of_its_first_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when what was listed before a pause seems to have been listed after it."""
    monkeypatch.setattr("syncer.remote.stores.swift.store._PAGE", 2)
    times = iter([1, 5, 70, 80])
    monkeypatch.setattr("syncer.remote.stores.swift.store.date_ns", lambda *_: next(times))
    heard = []

    async def test(store: SwiftStore) -> None:
        heard.append(store.heard_ns)
        await store.listing("")
        heard.append(store.heard_ns)
        await store.get("x")
        heard.append(store.heard_ns)

    def answer(arrived: Arrived) -> Answer:
        if "?" not in arrived.target:
            return stored()
        return listed("sub/c") if marker(arrived) else listed("sub/a", "sub/b")

    using(Cloud(answer), test)
    assert heard == [1, 5, 80]


def test_a_reply_with_a_date_that_nobody_understands_tells_no_time() -> None:
    heard = []

    async def test(store: SwiftStore) -> None:
        assert await store.get("x") == b"data"
        heard.append(store.heard_ns)
        assert await store.get("y") == b"data"
        heard.append(store.heard_ns)

    def answer(arrived: Arrived) -> Answer:
        reply = stored()
        return Answer(200, reply.body, {**reply.headers, **({"Date": "noon"} if arrived.path.endswith("y") else {})})

    using(Cloud(answer), test)
    assert heard[0] is not None
    assert heard[1] is None


def test_a_listing_whose_pages_are_shorter_than_usual_is_complete() -> None:
    """Breaks when a store with a smaller limit is taken to have few objects."""

    def answer(arrived: Arrived) -> Answer:
        if "limit=" in arrived.target:
            return Answer(412, b"Maximum limit is 1")
        return listed(*[name for name in ("sub/a", "sub/b", "sub/c") if name > marker(arrived).replace("%2F", "/")][:1])

    found, _ = using(Cloud(answer), lambda store: store.listing(""))
    assert [blob.name for blob in found] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "body",
    [b"{}", b"sub/a\nsub/b", b'[{"name": "a"}]', b"[" * 100_000, b'[{"subdir": "a/"}]', b'[{"name":"\xff"}]'],
)
def test_what_is_no_listing_is_never_an_empty_one(body: bytes) -> None:
    assert isinstance(failing(Answer(200, body), lambda store: store.listing("")), BadReplyError)


def test_a_server_that_ignores_the_marker_does_not_keep_us_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncer.remote.stores.swift.store._PAGE", 2)
    assert isinstance(failing(listed("sub/a", "sub/b"), lambda store: store.listing("")), BadReplyError)


def test_a_store_with_more_objects_than_may_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncer.remote.stores.swift.store.MAX_NAMES", 2)
    assert isinstance(failing(listed("sub/a", "sub/b", "sub/c"), lambda store: store.listing("")), BadReplyError)


def test_a_page_that_fails_fails_the_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncer.remote.stores.swift.store._PAGE", 2)
    cloud = Cloud(lambda arrived: Answer(503) if marker(arrived) else listed("sub/a", "sub/b"))

    async def test(store: SwiftStore) -> None:
        with pytest.raises(RemoteUnavailableError):
            await store.listing("")

    using(cloud, test)


@pytest.mark.parametrize("stamp", ["", "x", "-1.0", "1" * 30])
def test_an_object_without_a_time_of_the_store_is_an_error(stamp: str) -> None:
    answer = Answer(200, headers={"X-Timestamp": stamp, "Content-Length": "4"})
    assert isinstance(failing(answer, lambda store: store.head("x")), BadReplyError)
