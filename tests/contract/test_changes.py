"""`Remote.changes`: complete, or nothing; for the fake in memory, our server, repositories. A plain Pithos has none."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from syncer.core.model import ROOT, BaseRow, Kind, Nid, Node, Position, RemoteStat, RemoteTag
from syncer.core.partial.listing_diff import Known
from syncer.ports.remote import Changes, Remote
from syncer.protocol.extensions.changes import MAX_RANGES
from syncer.remote.pithos.client import PithosClient
from syncer.remote.serials import Cursor, cursor_of
from tests.contract.remotes import (
    BLOCK,
    META,
    FakeRemote,
    FolderRemote,
    MemoryRemote,
    ServeRemote,
    Subject,
    anew,
    head,
    must_head,
    path,
    run,
    store,
)
from tests.contract.writing import delete, move, put_small
from tests.kit.rows import MemoryRows

FOREVER_S = 250.0  # the test ends long before, or fails


@pytest.fixture(params=["memory", "serve", "memory-folder", "serve-folder"])
def remote(request: pytest.FixtureRequest, remotes: dict[str, Subject]) -> Subject:
    """Those that count versions; see `telling`."""
    return anew(remotes[request.param])


async def now_of(client: Remote) -> Position:
    return (await client.list_objects()).position


async def changes_since(client: Remote, since: Position) -> Changes:
    found = await client.changes(since)
    assert found is not None
    return found


def test_changes_are_what_the_listing_would_show(telling: Subject) -> None:
    async def scenario(client: Remote) -> None:
        for name in ("kept", "edited", "moved", "deleted", "made and deleted"):
            await store(client, name, name.encode())
        since = await now_of(client)
        nothing = await changes_since(client, since)
        assert (nothing.objects, nothing.deleted, nothing.position) == ([], [], since)
        await store(client, "edited", b"2" * 3 * BLOCK, replace=await must_head(client, "edited"))
        await move(client, path("moved"), path("folder/moved"), (await must_head(client, "moved")).tag)
        for name in ("deleted", "made and deleted"):
            await delete(client, path(name), (await must_head(client, name)).tag)
        await store(client, "made and deleted", b"again")
        await put_small(client, path("folder"), Kind.DIRECTORY, b"", META, None)
        found, listing = await changes_since(client, since), await client.list_objects()
        changed = {path(name) for name in ("edited", "folder", "folder/moved", "made and deleted")}
        assert found.objects == [stat for stat in listing.objects if stat.path in changed]
        assert sorted(found.deleted) == [b"deleted", b"moved"]
        assert found.position == listing.position

    run(telling, scenario)


def test_changes_since_the_beginning_are_everything(telling: Subject) -> None:
    async def scenario(client: Remote) -> None:
        beginning = await now_of(client)
        await store(client, "b", b"1")
        await store(client, "a", b"2")
        listing = await client.list_objects()
        assert (await changes_since(client, beginning)).objects == listing.objects

    run(telling, scenario)


def test_a_wait_ends_with_the_first_change(telling: Subject) -> None:
    async def scenario(client: Remote) -> None:
        since = await client.wait(None)
        assert since == await now_of(client)
        other = telling.client()
        found: list[Position] = []

        async def wait() -> None:
            found.append(await client.wait(since))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await store(other, "news", b"!")
        assert found == [await now_of(client)]
        assert [stat.path for stat in (await changes_since(client, since)).objects] == [b"news"]
        await other.close()

    run(telling, scenario)


def test_who_waits_in_a_folder_is_not_woken_by_what_is_beside_it(remotes: dict[str, Subject]) -> None:
    remote = remotes["serve-folder"]
    remote.new_container()
    assert isinstance(remote, FolderRemote)

    async def scenario(client: Remote) -> None:
        since = await client.wait(None)
        outside = remote.inner.client()
        with trio.CancelScope() as waiting:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.wait, since)
                await store(outside, "beside", b"1")
                # The wait of the container ends, and what has changed is nothing here: it is waited again.
                asked = client.counters.requests
                while client.counters.requests < asked + 2:
                    await trio.sleep(0)
                assert len(nursery.child_tasks) == 1
                waiting.cancel()
        await outside.close()

    run(remote, scenario)


def test_many_waits_take_nothing_from_other_requests_and_can_be_cancelled(telling: Subject) -> None:
    async def scenario(client: Remote) -> None:
        since = await now_of(client)
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                for _ in range(12):
                    nursery.start_soon(client.wait, since)
                await trio.testing.wait_all_tasks_blocked()
                assert await head(client, path("nothing")) is None
                nursery.cancel_scope.cancel()
        await store(client, "later", b"!")
        assert len((await changes_since(client, since)).objects) == 1

    run(telling, scenario)


@pytest.mark.parametrize("what", ["identity", "version", "huge version"])
def test_a_cursor_that_is_not_of_this_container_tells_nothing(remote: Subject, what: str) -> None:
    async def scenario(client: Remote) -> None:
        await store(client, "file", b"1")
        since = cursor_of(await now_of(client))
        wrong = {
            "identity": replace(since, identity="00000000-0000-4000-8000-00000000dead"),
            "version": replace(since, version=since.version + 1),
            "huge version": replace(since, version=(1 << 63) - 1),
        }[what]
        assert await client.changes(wrong.position) is None
        assert await client.wait(wrong.position) == since.position

    run(remote, scenario)


def test_a_serial_that_was_given_out_twice_is_noticed(serve: ServeRemote) -> None:
    """A server restored from a backup counts from there again; the times differ."""

    async def scenario(client: Remote) -> None:
        await store(client, "file", b"1")
        since = cursor_of(await now_of(client))
        await store(client, "other", b"2")
        assert await client.changes(replace(since, modified_us=since.modified_us - 1).position) is None
        assert await client.changes(since.position) is not None

    run(serve, scenario)


def test_a_plain_pithos_has_no_changes(remotes: dict[str, Subject]) -> None:
    remotes["fake"].new_container()

    async def scenario(client: Remote) -> None:
        assert await client.changes(await now_of(client)) is None

    run(remotes["fake"], scenario)


def test_a_cursor_of_a_server_with_changes_means_nothing_to_one_without(remotes: dict[str, Subject]) -> None:
    """It answers with a listing, as it does to any question that it does not know."""
    remotes["fake"].new_container()

    async def scenario(client: Remote) -> None:
        await store(client, "there", b"1")
        for one in (client, remotes["fake"].client()):  # one that knows the server, one that does not yet
            assert await one.changes(Cursor(identity="5" * 32, version=1, modified_us=1).position) is None
            await one.close()

    run(remotes["fake"], scenario)


def test_who_has_a_cursor_asks_nothing_else(serve: ServeRemote) -> None:
    """What the container is comes with the changes."""

    async def scenario(client: Remote) -> None:
        known = await client.list_objects()
        later = serve.client()
        told = await changes_since(later, known.position)
        assert later.counters.requests == 1
        assert told.info == known.info == await later.open()
        assert later.counters.requests == 1
        await later.close()

    run(serve, scenario)


def test_refused_names_are_told(serve: ServeRemote) -> None:
    """Our server takes names that a local disk does not."""

    async def scenario(client: Remote) -> None:
        since = await now_of(client)
        long = "x" * 256
        assert isinstance(client, PithosClient)
        await client._session.send(client._session.make.put_body(long, Kind.FILE, b"12345", META, {}))
        found = await changes_since(client, since)
        assert [(name.name, name.size_bytes) for name in found.refused] == [(long, 5)]
        assert found.objects == []

    run(serve, scenario)


# --- without the extension: a listing against what is known


def known(stats: Iterable[RemoteStat]) -> Known:
    """A base that has these; none of them is in a directory."""
    rows = [
        BaseRow(
            nid=Nid(number),
            node=Node(parent=ROOT, name=bytes(stat.path), kind=stat.kind),
            local=None,
            remote=stat.tag,
        )
        for number, stat in enumerate(stats, 1)
    ]
    return Known(rows=lambda: nullcontext(MemoryRows({row.nid: row for row in rows})))


@pytest.fixture(params=["memory", "fake", "serve", "memory-folder", "fake-folder", "serve-folder"])
def any_remote(request: pytest.FixtureRequest, remotes: dict[str, Subject]) -> Subject:
    found = remotes[request.param]
    found.new_container()
    if isinstance(found, MemoryRemote):
        found.container.extensions, found.container.identity = frozenset(), None
    return found


def test_without_it_a_listing_is_held_against_what_is_known(any_remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        for name in ("kept", "edited", "moved", "deleted"):
            await store(client, name, name.encode())
        before = await client.list_objects()
        await store(client, "edited", b"other", await must_head(client, "edited"))
        moved, gone = await must_head(client, "moved"), await must_head(client, "deleted")
        await move(client, path("moved"), path("away"), moved.tag)
        await delete(client, path("deleted"), gone.tag)
        await store(client, "new", b"new")
        now = await client.list_objects()
        found = await client.changes(replace(cursor_of(before.position), identity="").position, known(before.objects))
        assert found is not None
        assert not found.complete
        assert found.objects == [stat for stat in now.objects if stat.path != b"kept"]
        assert sorted(found.deleted) == [b"deleted", b"moved"]
        assert found.position == now.position
        assert found.info == now.info

    run(any_remote, scenario)


def test_of_pages_only_what_differs_is_kept(remotes: dict[str, Subject]) -> None:
    fake = remotes["fake"]
    assert isinstance(fake, FakeRemote)
    fake.new_container()

    async def scenario(client: Remote) -> None:
        for number in range(7):
            await store(client, f"f{number}", b"%d" % number)
        before = await client.list_objects()
        await store(client, "f3x", b"new")
        found = await client.changes(before.position, known(before.objects))
        assert found is not None
        assert [stat.path for stat in found.objects] == [b"f3x"]
        assert found.deleted == []

    fake.server.listing_limit = 2
    try:
        run(fake, scenario)
    finally:
        fake.server.listing_limit = 10000


def test_what_has_not_changed_is_not_listed_again(remotes: dict[str, Subject]) -> None:
    fake = remotes["fake"]
    assert isinstance(fake, FakeRemote)
    fake.new_container()

    async def scenario(client: Remote) -> None:
        await store(client, "file", b"1")
        since = await now_of(client)
        requests = client.counters.requests
        found = await client.changes(since, known([]), brief=True)
        assert found is not None
        assert (found.objects, found.deleted, found.position) == ([], [], since)
        assert client.counters.requests == requests + 1
        full = await client.changes(since, known([]))  # now and then the listing itself counts
        assert full is not None
        assert [stat.path for stat in full.objects] == [b"file"]
        await store(client, "file", b"2", await must_head(client, "file"))
        found = await client.changes(since, known([]), brief=True)
        assert found is not None
        assert [stat.path for stat in found.objects] == [b"file"]

    run(fake, scenario)


def test_evidence_of_a_container_that_may_change_within_its_second_counts_for_nothing(
    remotes: dict[str, Subject],
) -> None:
    fake = remotes["fake"]
    assert isinstance(fake, FakeRemote)
    fake.new_container()

    async def scenario(client: Remote) -> None:
        await store(client, "file", b"1")
        assert cursor_of(await now_of(client)).evidence
        fake.server.rests_s = 1
        since = await now_of(client)
        assert not cursor_of(since).evidence
        found = await client.changes(since, known([]), brief=True)
        assert found is not None
        assert len(found.objects) == 1

    try:
        run(fake, scenario)
    finally:
        fake.server.rests_s = 60


def test_versions_that_the_client_knows_are_left_out(telling: Subject) -> None:
    """Only if they are the newest of their name: what became of one afterwards is told."""

    async def scenario(client: Remote) -> None:
        since = await now_of(client)
        tags = [(await store(client, f"own{number}", b"own")).tag for number in range(5)]
        await store(client, "own1", b"theirs", replace=await must_head(client, "own1"))
        await delete(client, path("own2"), tags[2])
        await store(client, "theirs", b"theirs")
        found = await client.changes(since, own=tags)
        assert found is not None
        assert [stat.path for stat in found.objects] == [b"own1", b"theirs"]
        assert list(found.deleted) == [b"own2"]
        assert found.position == (await changes_since(client, since)).position
        later = await client.changes(found.position, own=tags)
        assert later is not None
        assert (later.objects, list(later.deleted)) == ([], [])

    run(telling, scenario)


def test_what_we_made_after_the_question_and_somebody_removed_is_told(telling: Subject) -> None:
    """It is in neither of the two moments, and the base has it. Breaks when it stays here for ever."""

    async def scenario(client: Remote) -> None:
        since = await now_of(client)
        made = [(await store(client, name, b"own")).tag for name in ("kept", "gone", "d/gone", "d/kept")]
        other = telling.client()
        await other.open()
        await delete(other, path("gone"), made[1])
        await delete(other, path("d/gone"), made[2])
        await store(client, "later", b"of a commit after it")
        found = await changes_since(client, since)
        assert [stat.path for stat in found.objects] == [b"d/kept", b"kept", b"later"]
        assert sorted(found.deleted) == [b"d/gone", b"gone"]
        assert list((await changes_since(client, found.position)).deleted) == []
        await other.close()

    run(telling, scenario)


def test_versions_that_are_too_scattered_are_not_left_out(serve: ServeRemote) -> None:
    """The request would be longer than a server takes."""

    async def scenario(client: Remote) -> None:
        since = await now_of(client)
        tags = [RemoteTag(uuid="", version=2 * number, etag="", size_bytes=0) for number in range(1, MAX_RANGES + 2)]
        assert await client.changes(since, own=tags[1:]) is not None
        assert await client.changes(since, own=tags) is None

    run(serve, scenario)


def test_a_torn_base_is_nothing_to_hold_a_listing_against(any_remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        lost = BaseRow(nid=Nid(7), node=Node(parent=Nid(6), name=b"x", kind=Kind.FILE), local=None, remote=None)
        torn = Known(rows=lambda: nullcontext(MemoryRows({lost.nid: lost})))
        since = Cursor(identity="", version=0, modified_us=0).position
        assert await client.changes(since, torn) is None

    run(any_remote, scenario)
