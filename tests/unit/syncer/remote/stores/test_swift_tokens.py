"""Tokens without a sign-in: what is kept is used while it may be, and never with other credentials."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from syncer.errors import AuthError, RemoteUnavailableError
from syncer.remote.http.address import parse_address
from syncer.remote.http.transport import HttpSettings
from syncer.remote.stores.opening import StoreSettings, make_store
from syncer.remote.stores.swift import SignIn, SwiftStore
from syncer.remote.stores.swift.tokens import GivenToken, KeptToken, kept_at
from tests.fakes.httpscript import Answer, Script, serving
from tests.unit.syncer.remote.stores.swift_cloud import Cloud, keystone, stored, temp_auth

KINDS = pytest.mark.parametrize("kind", [temp_auth, keystone])


class World:
    """A cloud, and processes that ask it for an object, one after the other."""

    def __init__(self, script: Script, cloud: Cloud, file: Path) -> None:
        self.script, self.cloud, self.file = script, cloud, file
        self.now_s = 1_700_000_000.0

    def kept(self, credentials: SignIn) -> KeptToken:
        return KeptToken(credentials, str(self.file), lambda: self.now_s)

    def asks(self, credentials: SignIn) -> int:
        """A process; returns how often it signs in."""

        async def main() -> None:
            store = SwiftStore(credentials, "box", settings=HttpSettings())
            assert await store.get("x") == b"data"
            await store.close()

        before = self.cloud.tokens
        trio.run(main)
        return self.cloud.tokens - before


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    cloud = Cloud(lambda _: stored())
    with serving(cloud) as script:
        cloud.storage = f"{script.url}/v1/AUTH_a"
        yield World(script, cloud, tmp_path / "token")


@KINDS
def test_who_has_a_token_of_before_does_not_sign_in(world: World, kind: Callable[[Script], SignIn]) -> None:
    assert [world.asks(world.kept(kind(world.script))) for _ in range(3)] == [1, 0, 0]
    assert world.file.stat().st_mode & 0o777 == 0o600
    text = world.file.read_text()
    assert "secret" not in text
    assert '"key"' not in text


@KINDS
def test_a_kept_token_that_is_refused_is_replaced_once(world: World, kind: Callable[[Script], SignIn]) -> None:
    world.asks(world.kept(kind(world.script)))
    world.cloud.tokens += 1  # the one that was given is no longer known
    assert [world.asks(world.kept(kind(world.script))) for _ in range(2)] == [1, 0]


def test_other_credentials_never_use_a_token_of_before(world: World) -> None:
    credentials = temp_auth(world.script)
    world.asks(world.kept(credentials))
    other = replace(credentials, user="somebody:else")
    assert [world.asks(world.kept(one)) for one in (other, other, credentials)] == [1, 0, 1]
    elsewhere = parse_address(f"{world.script.url}/v1/AUTH_a")
    assert world.asks(world.kept(replace(credentials, storage=elsewhere))) == 1
    with pytest.raises(AuthError, match="'a:b'"):  # a password that was changed is told at once
        world.asks(world.kept(replace(credentials, key="wrong")))


@pytest.mark.parametrize(
    ("lasts", "used_s", "unused_s"),
    [
        ({"X-Auth-Token-Expires": "600"}, 530, 545),
        ({}, 3500, 3545),
        ({"X-Auth-Token-Expires": "999999"}, 86_300, 86_345),
    ],
)
def test_a_token_is_used_until_its_end_is_near(
    world: World, lasts: dict[str, str], used_s: float, unused_s: float
) -> None:
    world.cloud.more = lasts
    world.asks(world.kept(temp_auth(world.script)))
    began_s = world.now_s
    asked = []
    for after_s in (used_s, unused_s):
        world.now_s = began_s + after_s
        asked.append(world.asks(world.kept(temp_auth(world.script))))
    assert asked == [0, 1]


def test_keystones_tell_the_end_by_their_own_clock(world: World) -> None:
    told = {"issued_at": "2020-01-01T00:00:00.000000Z", "expires_at": "2020-01-01T00:30:00.000000Z"}
    world.cloud.times = told
    world.asks(world.kept(keystone(world.script)))
    assert json.loads(world.file.read_text())["until_s"] == world.now_s + 1800


@pytest.mark.parametrize("raw", [b"", b"{}", b"\xff", b"[" * 60_000, b'{"format": 2}', b"x" * 100_000])
def test_a_file_that_says_nothing_costs_a_sign_in(world: World, raw: bytes) -> None:
    world.file.write_bytes(raw)
    assert [world.asks(world.kept(temp_auth(world.script))) for _ in range(2)] == [1, 0]


@pytest.mark.parametrize(
    "change",
    [{"format": 2}, {"token": ""}, {"token": "a\nb"}, {"storage": "ftp://x"}, {"salt": "x"}, {"until_s": 9e99}],
)
def test_what_was_changed_in_the_file_is_not_used(world: World, change: dict[str, object]) -> None:
    world.asks(world.kept(temp_auth(world.script)))
    world.file.write_text(json.dumps(json.loads(world.file.read_text()) | change))
    assert world.asks(world.kept(temp_auth(world.script))) == 1


def test_a_place_where_nothing_can_be_kept_costs_a_sign_in_each_time(world: World) -> None:
    world.file = world.file / "no" / "folder"
    assert [world.asks(world.kept(temp_auth(world.script))) for _ in range(2)] == [1, 1]


def test_an_account_that_is_nowhere_any_more_is_asked_for_again(world: World) -> None:
    """Breaks when a provider moves its object store, and a command fails until the token has ended."""
    world.asks(world.kept(temp_auth(world.script)))
    kept = json.loads(world.file.read_text())
    world.file.write_text(json.dumps(kept | {"storage": "http://127.0.0.1:1/v1/AUTH_a"}))

    async def main() -> None:
        store = SwiftStore(world.kept(temp_auth(world.script)), "box", settings=HttpSettings())
        with pytest.raises(RemoteUnavailableError):
            await store.get("x")
        assert await store.get("x") == b"data"
        await store.close()

    trio.run(main)
    assert world.cloud.tokens == 2
    assert world.asks(world.kept(temp_auth(world.script))) == 0


def test_a_token_that_was_given_is_used_and_its_end_is_told(world: World) -> None:
    world.cloud.tokens = 1
    environ = {"OS_AUTH_TOKEN": "token-1", "OS_STORAGE_URL": world.cloud.storage}

    async def main() -> None:
        store = make_store("swift://127.0.0.1/box", StoreSettings(token_file=str(world.file)), environ)
        assert await store.get("x") == b"data"
        world.cloud.tokens += 1
        with pytest.raises(AuthError, match="OS_AUTH_TOKEN: it has expired"):
            await store.get("x")
        await store.close()

    trio.run(main)
    assert not any("auth" in method for method in world.script.methods())
    assert not os.path.lexists(world.file)


def test_no_text_of_a_token_shows_it() -> None:
    given = GivenToken("hidden", parse_address("https://a.example.org/v1/a"))
    with serving(lambda _: Answer(200)) as script:
        kept = kept_at(temp_auth(script, "hidden"), "/nowhere")
    assert kept_at(given, "/nowhere") is given
    assert "hidden" not in f"{given!r} {kept!r}"
