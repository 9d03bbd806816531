"""URLs of object stores, and the door that takes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from syncer.errors import UsageError
from syncer.remote.http.rate_limit import RateLimit
from syncer.remote.stores.limited import LimitedStore
from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.opening import StoreSettings, make_store
from syncer.remote.stores.urls import StoreUrl, is_store_url, parse_store_url


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("swift://home/box", StoreUrl(scheme="swift", host="home", container="box")),
        ("swift://My_Cloud/box/", StoreUrl(scheme="swift", host="My_Cloud", container="box")),
        ("swift://h:5000/a%20b/c/d/", StoreUrl(scheme="swift", host="h:5000", container="a b", path="c/d")),
        ("s3://bucket", StoreUrl(scheme="s3", container="bucket")),
        ("s3://bucket/a/%C3%A9", StoreUrl(scheme="s3", container="bucket", path="a/é")),
        ("sftp://host/srv/x", StoreUrl(scheme="sftp", host="host", path="/srv/x")),
        ("sftp://me@[::1]:22/x/", StoreUrl(scheme="sftp", host="::1", port=22, user="me", path="/x")),
        ("file:///srv/a%3Fb", StoreUrl(scheme="file", path="/srv/a?b")),
        ("file://localhost/srv", StoreUrl(scheme="file", path="/srv")),
    ],
)
def test_each_form_is_read_and_written_again(text: str, expected: StoreUrl) -> None:
    assert parse_store_url(text) == expected
    assert parse_store_url(str(expected)) == expected
    assert is_store_url(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("box", "expected one of swift://"),
        ("http://h/box", "expected one of swift://"),
        ("swift://home", "names no container"),
        ("swift:///box", "names no container"),
        ("swift://user:password@h/box", "no credentials"),
        ("swift://user@h/box", "no credentials"),
        ("s3://", "names no bucket"),
        ("s3://key:secret@b/x", "no credentials"),
        ("sftp://me:secret@h/x", "no credentials"),
        ("sftp://h", "no directory"),
        ("sftp://h:99999/x", "expected sftp://"),
        ("sftp://-oProxyCommand=x/x", "names no host"),
        ("file://other/x", "another host"),
        ("file:///", "no directory"),
        ("swift://h/box/a//b", "empty segments"),
        ("swift://h/box/../b", r"\.\."),
        ("file:///a/./b", "empty segments"),
        ("swift://h/box?x=1", "no query"),
        ("swift://h/box/%0a", "control characters"),
        ("swift://h/box/%ff", "utf-8"),
        ("swift://h/box/" + "x" * 401, "longer than"),
    ],
)
def test_what_is_none_is_told_with_what_is_expected(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        parse_store_url(text)
    assert "expected" in str(error.value)
    assert "secret" not in str(error.value)
    assert "password" not in str(error.value)
    with pytest.raises(UsageError):
        make_store(text, environ={})


@given(st.text(max_size=40), st.sampled_from(["swift://", "s3://", "sftp://", "file://", ""]))
def test_any_text_is_a_url_that_comes_back_or_an_error(text: str, scheme: str) -> None:
    try:
        parsed = parse_store_url(scheme + text)
    except ValueError:
        return
    assert parse_store_url(str(parsed)) == parsed


def test_the_door_opens_a_directory(tmp_path: Path) -> None:
    async def main() -> None:
        store = make_store(f"file://{tmp_path}/new", StoreSettings(limit_up=1 << 30, limit_down=1 << 30), {})
        await store.open(create=True)
        assert await store.put("x", b"data")
        assert await store.get("x") == b"data"
        await store.close()

    trio.run(main)
    assert (tmp_path / "new/x").read_bytes() == b"data"


def test_a_limit_holds_for_what_is_sent_and_what_is_read() -> None:
    async def main() -> tuple[float, float]:
        store = LimitedStore(MemoryStore(), RateLimit(1000), RateLimit(500))
        await store.put("x", bytes(5000))
        sent = trio.current_time()
        await store.get("x")
        return sent - began, trio.current_time() - sent

    clock = trio.testing.MockClock(autojump_threshold=0)
    began = clock.current_time()
    assert trio.run(main, clock=clock) == pytest.approx((4.0, 9.0))  # the first second's bytes are free
