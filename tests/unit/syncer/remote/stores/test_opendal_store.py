"""What OpenDAL tells of an S3 that has a bad day, in our words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from syncer.errors import (
    AuthError,
    NoSpaceError,
    NotFoundError,
    OverQuotaError,
    RemoteUnavailableError,
    SyncerError,
    UsageError,
)
from syncer.remote.http.transport import BadReplyError, ReplyLostError
from syncer.remote.stores import opendal
from syncer.remote.stores.opendal import OpendalStore, s3_store
from tests.fakes.httpscript import Answer, Arrived, Decide, Script, serving

ABOUT = {"ETag": '"x"', "Last-Modified": "Tue, 24 Nov 2026 13:21:38 GMT"}


def fault(status: int, code: str, message: str = "why") -> Answer:
    return Answer(status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode())


def using(decide: Decide, test: Callable[[OpendalStore], Awaitable[object]]) -> Script:
    async def main() -> None:
        await test(s3_store("box", "sub", environ))

    with serving(decide) as script:
        environ = {"AWS_ENDPOINT_URL": script.url, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "secret"}
        trio.run(main)
    return script


def failing(answer: Answer, call: Callable[[OpendalStore], Awaitable[object]]) -> SyncerError:
    found: list[SyncerError] = []

    async def test(store: OpendalStore) -> None:
        with pytest.raises(SyncerError) as error:
            await call(store)
        found.append(error.value)

    using(lambda _: answer, test)
    assert "secret" not in str(found[0])
    assert len(str(found[0])) < 500
    return found[0]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(503), ReplyLostError),
        (Answer(500), ReplyLostError),
        (Answer(200, silent=True), ReplyLostError),
        (fault(429, "TooManyRequests"), RemoteUnavailableError),
        (fault(503, "SlowDown"), RemoteUnavailableError),
        (fault(413, "EntityTooLarge"), OverQuotaError),
        (fault(403, "QuotaExceeded"), OverQuotaError),
        (Answer(507), NoSpaceError),
        (fault(403, "AccessDenied"), AuthError),
        (fault(403, "SignatureDoesNotMatch"), AuthError),
        (fault(404, "NoSuchBucket"), NotFoundError),
        (fault(400, "BadDigest"), BadReplyError),
    ],
)
def test_each_refusal_of_a_write_has_its_error(answer: Answer, kind: type[SyncerError]) -> None:
    error = failing(answer, lambda store: store.put("x", b"data"))
    assert isinstance(error, kind)
    assert error.retryable is (kind in {ReplyLostError, RemoteUnavailableError})


def test_a_read_that_failed_changed_nothing() -> None:
    for answer in (Answer(503), Answer(200, silent=True), Answer(200, b"da", ABOUT, length=10)):
        for span in (None, (0, 10)):
            error = failing(answer, lambda store, span=span: store.get("x", span))
            assert type(error) is RemoteUnavailableError


@pytest.mark.parametrize("body", [b"", b"<html>Welcome</html>", b"{}", b"<ListBucketResult><Contents>"])
def test_what_is_no_listing_is_never_an_empty_one_and_keeps_nobody_for_ever(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenDAL takes some of these for pages after which there are more, for ever."""
    monkeypatch.setattr(opendal, "_BODY_S", 1.0)
    assert isinstance(failing(Answer(200, body), lambda store: store.listing("")), RemoteUnavailableError)


def test_a_write_carries_its_md5_and_what_is_there_is_not_sent() -> None:
    def decide(arrived: Arrived) -> Answer:
        return Answer(200, headers=ABOUT) if arrived.method == "PUT" or arrived.path.endswith("there") else Answer(404)

    async def test(store: OpendalStore) -> None:
        assert not await store.put("there", b"data", absent=True)
        assert await store.put("new", b"data", absent=True)

    script = using(decide, test)
    (put,) = [one for one in script.arrived if one.method == "PUT"]
    assert put.path == "/box/sub/new"
    assert put.headers["content-md5"] == "jXd/OF09/siBXSD3SWAm3A=="
    assert "if-none-match" not in put.headers


def test_an_environment_that_makes_no_sense_is_told() -> None:
    with pytest.raises(UsageError, match="AWS_ENDPOINT_URL"):
        s3_store("", "", {})
