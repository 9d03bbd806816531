"""How often a store is asked while nothing happens, and what tells of a change."""

from __future__ import annotations

import errno
import itertools
import json
import os
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from syncer.remote.http.address import parse_address
from syncer.remote.http.transport import HttpSettings
from syncer.remote.stores import directory, watching
from syncer.remote.stores.directory import DirectoryStore
from syncer.remote.stores.opendal import s3_store
from syncer.remote.stores.pacing import LOCAL, REMOTE, Pace, paced, poll
from syncer.remote.stores.swift import SwiftStore, TempAuth
from tests.fakes.httpscript import Answer, Arrived, serving

NEVER = Pace(first_s=86_400.0, most_s=86_400.0)
HANG_S = 60.0


def looks(pace: Pace, span_s: float) -> list[float]:
    """When a store is looked at while nothing happens."""
    at: list[float] = []

    async def look() -> object:
        at.append(trio.current_time())
        return "the same"

    async def main() -> None:
        with trio.move_on_after(span_s):
            await poll(look, "the same", pace)

    trio.run(main, clock=MockClock(autojump_threshold=0))
    return at


@pytest.mark.parametrize(("usual", "chosen_s", "first_s", "most_s"), [
    (REMOTE, None, 2.0, 60.0),
    (REMOTE, 10.0, 2.0, 10.0),
    (REMOTE, 1.0, 1.0, 1.0),
    (REMOTE, 600.0, 2.0, 600.0),
    (LOCAL, None, 1.0, 5.0),
])  # fmt: skip
def test_pauses_grow_up_to_the_longest_one_which_may_be_chosen(
    usual: Pace, chosen_s: float | None, first_s: float, most_s: float
) -> None:
    at = looks(paced(usual, chosen_s), 20_000.0)
    pauses = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert at[0] == pytest.approx(first_s)
    assert pauses == sorted(pauses)
    assert max(pauses) == pytest.approx(most_s)


def test_a_day_without_news_costs_one_listing_a_minute() -> None:
    assert 86_400 / 60 <= len(looks(REMOTE, 86_400.0)) <= 86_400 / 60 + 10


def test_a_look_at_the_heads_of_a_swift_is_one_request() -> None:
    """Breaks when waiting asks for each head, or for all objects."""
    asked: list[Arrived] = []

    def answer(arrived: Arrived) -> Answer:
        if arrived.path == "/auth/v1.0":
            return Answer(200, headers={"X-Auth-Token": "t", "X-Storage-Url": f"{script.url}/v1/AUTH_a"})
        if arrived.method == "HEAD":
            return Answer(204, headers={"X-Container-Object-Count": "0"})
        asked.append(arrived)
        at = f"2023-11-14T22:13:2{int(len(asked) == 5)}.000000"
        rows = [{"name": f"heads/{n:032x}", "bytes": 256, "hash": "", "last_modified": at} for n in range(6)]
        return Answer(200, json.dumps(rows).encode())

    async def main() -> None:
        signs_in = TempAuth(address=parse_address(f"{script.url}/auth/v1.0"), user="a:b", key="key")
        store = SwiftStore(signs_in, "box", settings=HttpSettings(), pace=Pace(first_s=0.01, most_s=0.05))
        await store.open()
        with trio.fail_after(HANG_S):
            seen = await store.wait("heads/", None)
            assert await store.wait("heads/", seen) != seen
        await store.close()

    with serving(answer) as script:
        trio.run(main)
    assert len(asked) == 5  # the first look, three in vain, and the one that finds something
    assert {(one.method, one.path) for one in asked} == {("GET", "/v1/AUTH_a/box")}
    assert all("prefix=heads%2F" in one.target for one in asked)


def test_a_look_at_the_heads_of_an_s3_is_one_request() -> None:
    """The server is a thread of this process: it never answers a listing that keeps the interpreter's lock."""
    asked: list[Arrived] = []

    def answer(arrived: Arrived) -> Answer:
        asked.append(arrived)
        at = f"2023-11-14T22:13:2{int(len(asked) == 5)}.000Z"
        rows = "".join(
            f"<Contents><Key>sub/heads/{n:032x}</Key><LastModified>{at}</LastModified>"
            f"<ETag>&quot;{n}&quot;</ETag><Size>256</Size></Contents>"
            for n in range(6)
        )
        return Answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode())

    async def main() -> None:
        store = s3_store("box", "sub", environ, Pace(first_s=0.01, most_s=0.05))
        with trio.fail_after(HANG_S):
            seen = await store.wait("heads/", None)
            assert await store.wait("heads/", seen) != seen

    with serving(answer) as script:
        environ = {"AWS_ENDPOINT_URL": script.url, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "secret"}
        trio.run(main)
    assert len(asked) == 5
    assert all(one.method == "GET" and "prefix=sub/heads/" in one.target.replace("%2F", "/") for one in asked)


async def _made(path: Path, pace: Pace = NEVER) -> DirectoryStore:
    store = DirectoryStore(os.fsencode(path), pace)
    await store.open(create=True)
    return store


def test_what_is_written_to_a_directory_of_this_machine_is_told_and_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program's object; the first one makes its folder. No pause of a look ends here."""
    monkeypatch.setattr(directory, "_UNTOLD_S", 86_400.0)

    async def main() -> None:
        store, other = await _made(tmp_path / "store"), await _made(tmp_path / "store")
        assert (await store.open()).waits == "files"
        seen = await store.wait("heads/", None)
        asked = store.counters.requests
        for name, data in (("heads/one", b"1"), ("heads/one", b"2"), ("heads/two", b"2")):
            got: list[object] = []

            async def wait(since: object = seen, into: list[object] = got) -> None:
                into.append(await store.wait("heads/", since))

            with trio.fail_after(HANG_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(wait)
                    await other.put(name, data)
            (seen,) = got
        assert store.counters.requests - asked <= 3 * 4  # before, after, and for the folder that was made
        for each in (store, other):
            await each.close()

    trio.run(main)


@pytest.mark.parametrize("why", ["another machine's", "no watches left"])
def test_where_the_kernel_does_not_tell_of_all_it_is_looked(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "another machine's":
        monkeypatch.setattr(watching, "LOCAL_TYPES", frozenset())
    else:

        def refuse(*_: object) -> None:
            raise OSError(errno.ENOSPC, "inotify watch limit reached")

        monkeypatch.setattr("watchdog.observers.inotify.InotifyEmitter.on_thread_start", refuse)

    async def main() -> None:
        store = await _made(tmp_path / "store", Pace(first_s=0.01, most_s=0.05))
        other = await _made(tmp_path / "store")
        assert ((await store.open()).waits == "polling") is (why == "another machine's")
        seen = await store.wait("heads/", None)
        with trio.fail_after(HANG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.wait, "heads/", seen)
                await other.put("heads/one", b"1")

    trio.run(main)
