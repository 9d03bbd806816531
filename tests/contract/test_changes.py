"""`CloudClient.changes`: complete, or nothing; for the in-memory fake and our real server. A plain Pithos has none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from syncer.core.model import Kind, RelPath, RemoteStat
from syncer.ports.remote import Cursor
from syncer.remote.client import Changes, CloudClient
from syncer.remote.pithos.client import PithosClient
from tests.contract.remotes import (
    BLOCK,
    META,
    FakeRemote,
    MemoryRemote,
    Remote,
    ServeRemote,
    anew,
    must_head,
    path,
    run,
    store,
)

FOREVER_S = 250.0  # the test ends long before, or fails


@pytest.fixture(params=["memory", "serve", "memory-folder", "serve-folder"])
def remote(request: pytest.FixtureRequest, remotes: dict[str, Remote]) -> Remote:
    return anew(remotes[request.param])


async def cursor_now(client: CloudClient) -> Cursor:
    found = (await client.list_objects()).cursor
    assert found is not None
    return found


async def changes_since(client: CloudClient, since: Cursor, wait_s: float = 0.0) -> Changes:
    found = await client.changes(since, wait_s)
    assert found is not None
    return found


def test_changes_are_what_the_listing_would_show(remote: Remote) -> None:
    async def scenario(client: CloudClient) -> None:
        for name in ("kept", "edited", "moved", "deleted", "made and deleted"):
            await store(client, name, name.encode())
        since = await cursor_now(client)
        nothing = await changes_since(client, since)
        assert (nothing.objects, nothing.deleted, nothing.cursor) == ([], [], since)
        await store(client, "edited", b"2" * 3 * BLOCK, replace=await must_head(client, "edited"))
        await client.move(path("moved"), path("folder/moved"), (await must_head(client, "moved")).tag)
        for name in ("deleted", "made and deleted"):
            await client.delete(path(name), (await must_head(client, name)).tag)
        await store(client, "made and deleted", b"again")
        await client.put_small(path("folder"), Kind.DIRECTORY, b"", META, None)
        found, listing = await changes_since(client, since), await client.list_objects()
        changed = {path(name) for name in ("edited", "folder", "folder/moved", "made and deleted")}
        assert found.objects == [stat for stat in listing.objects if stat.path in changed]
        assert sorted(found.deleted) == [b"deleted", b"moved"]
        assert found.cursor == listing.cursor
        assert found.object_count == len(listing.objects)
        assert found.bytes_used == sum(stat.tag.size_bytes for stat in listing.objects)

    run(remote, scenario)


def test_changes_since_the_beginning_are_everything(remote: Remote) -> None:
    async def scenario(client: CloudClient) -> None:
        beginning = await cursor_now(client)
        await store(client, "b", b"1")
        await store(client, "a", b"2")
        listing = await client.list_objects()
        assert (await changes_since(client, beginning)).objects == listing.objects

    run(remote, scenario)


def test_a_wait_ends_with_the_first_change(remote: Remote) -> None:
    async def scenario(client: CloudClient) -> None:
        since = await cursor_now(client)
        other = remote.client()
        found: list[Changes] = []

        async def wait() -> None:
            found.append(await changes_since(client, since, FOREVER_S))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await store(other, "news", b"!")
        assert [stat.path for stat in found[0].objects] == [b"news"]
        await other.close()

    run(remote, scenario)


def test_a_wait_that_sees_nothing_ends_in_time(remote: Remote) -> None:
    async def scenario(client: CloudClient) -> None:
        since = await cursor_now(client)
        found = await changes_since(client, since, 0.01)
        assert (found.objects, found.deleted, found.cursor) == ([], [], since)

    run(remote, scenario)


def test_many_waits_take_nothing_from_other_requests_and_can_be_cancelled(remote: Remote) -> None:
    async def scenario(client: CloudClient) -> None:
        since = await cursor_now(client)
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                for _ in range(12):
                    nursery.start_soon(changes_since, client, since, FOREVER_S)
                await trio.testing.wait_all_tasks_blocked()
                assert await client.head(path("nothing")) is None
                nursery.cancel_scope.cancel()
        await store(client, "later", b"!")
        assert len((await changes_since(client, since)).objects) == 1

    run(remote, scenario)


@pytest.mark.parametrize("what", ["identity", "version", "huge version"])
def test_a_cursor_that_is_not_of_this_container_tells_nothing(remote: Remote, what: str) -> None:
    async def scenario(client: CloudClient) -> None:
        await store(client, "file", b"1")
        since = await cursor_now(client)
        wrong = {
            "identity": replace(since, identity="00000000-0000-4000-8000-00000000dead"),
            "version": replace(since, version=since.version + 1),
            "huge version": replace(since, version=(1 << 63) - 1),
        }[what]
        assert await client.changes(wrong) is None
        assert await client.changes(wrong, FOREVER_S) is None

    run(remote, scenario)


def test_a_serial_that_was_given_out_twice_is_noticed(serve: ServeRemote) -> None:
    """A server restored from a backup counts from there again; the times differ."""

    async def scenario(client: CloudClient) -> None:
        await store(client, "file", b"1")
        since = await cursor_now(client)
        await store(client, "other", b"2")
        assert await client.changes(replace(since, modified_us=since.modified_us - 1)) is None
        assert await client.changes(since) is not None

    run(serve, scenario)


def test_a_plain_pithos_has_no_changes(remotes: dict[str, Remote]) -> None:
    remotes["fake"].new_container()

    async def scenario(client: CloudClient) -> None:
        assert (await client.moment()).cursor is None
        assert await client.changes(Cursor(identity="", version=0, modified_us=0), FOREVER_S) is None

    run(remotes["fake"], scenario)


def test_a_cursor_of_a_server_with_changes_means_nothing_to_one_without(remotes: dict[str, Remote]) -> None:
    """It answers with a listing, as it does to any question that it does not know."""
    remotes["fake"].new_container()

    async def scenario(client: CloudClient) -> None:
        await store(client, "there", b"1")
        for one in (client, remotes["fake"].client()):  # one that knows the server, one that does not yet
            assert await one.changes(Cursor(identity="5" * 32, version=1, modified_us=1)) is None
            await one.close()

    run(remotes["fake"], scenario)


def test_who_has_a_cursor_asks_nothing_else(serve: ServeRemote) -> None:
    """What the container is comes with the changes."""

    async def scenario(client: CloudClient) -> None:
        known = await client.list_objects()
        assert known.cursor is not None
        later = serve.client()
        told = await changes_since(later, known.cursor)
        assert later.counters.requests == 1
        assert told.info == known.info == await later.container_info()
        assert later.counters.requests == 1
        await later.close()

    run(serve, scenario)


def test_refused_names_are_told(serve: ServeRemote) -> None:
    """Our server takes names that a local disk does not."""

    async def scenario(client: CloudClient) -> None:
        since = await cursor_now(client)
        long = "x" * 256
        assert isinstance(client, PithosClient)
        await client._session.send(client._session.make.put_body(long, Kind.FILE, b"12345", META, {}))
        found = await changes_since(client, since)
        assert [(name.name, name.size_bytes) for name in found.refused] == [(long, 5)]
        assert (found.objects, found.object_count, found.bytes_used) == ([], 1, 5)

    run(serve, scenario)


# --- without the extension: a listing against what is known


class Known:
    """A sieve that knows a listing, and counts what it is asked."""

    def __init__(self, stats: Iterable[RemoteStat]) -> None:
        self.left = {stat.path: stat for stat in stats}
        self.asked = 0

    def sift(self, objects: Sequence[RemoteStat]) -> list[RemoteStat]:
        self.asked += len(objects)
        found = [(stat, self.left.pop(stat.path, None)) for stat in objects]
        return [stat for stat, known in found if known is None or known.tag != stat.tag]

    def missing(self) -> list[RelPath]:
        return sorted(self.left)


@pytest.fixture(params=["memory", "fake", "serve", "memory-folder", "fake-folder", "serve-folder"])
def any_remote(request: pytest.FixtureRequest, remotes: dict[str, Remote]) -> Remote:
    found = remotes[request.param]
    found.new_container()
    if isinstance(found, MemoryRemote):
        found.container.extensions, found.container.identity = frozenset(), None
    return found


def test_compare_tells_what_differs(any_remote: Remote) -> None:
    async def scenario(client: CloudClient) -> None:
        for name in ("kept", "edited", "moved", "deleted"):
            await store(client, name, name.encode())
        before = await client.list_objects()
        assert before.cursor is not None
        await store(client, "edited", b"other", await must_head(client, "edited"))
        moved, gone = await must_head(client, "moved"), await must_head(client, "deleted")
        await client.move(path("moved"), path("away"), moved.tag)
        await client.delete(path("deleted"), gone.tag)
        await store(client, "new", b"new")
        now = await client.list_objects()
        found = await client.compare(lambda: Known(before.objects), before.cursor)
        assert found.objects == [stat for stat in now.objects if stat.path != b"kept"]
        assert sorted(found.deleted) == [b"deleted", b"moved"]
        assert found.cursor == now.cursor
        assert found.info == now.info

    run(any_remote, scenario)


def test_compare_of_pages_keeps_only_what_differs(remotes: dict[str, Remote]) -> None:
    fake = remotes["fake"]
    assert isinstance(fake, FakeRemote)
    fake.new_container()

    async def scenario(client: CloudClient) -> None:
        for number in range(7):
            await store(client, f"f{number}", b"%d" % number)
        before = await client.list_objects()
        await store(client, "f3x", b"new")
        known = Known(before.objects)
        found = await client.compare(lambda: known, Cursor(identity="", version=0, modified_us=0))
        assert [stat.path for stat in found.objects] == [b"f3x"]
        assert (found.deleted, known.asked) == ([], 8)

    fake.server.listing_limit = 2
    try:
        run(fake, scenario)
    finally:
        fake.server.listing_limit = 10000


def test_what_has_not_changed_is_not_listed_again(remotes: dict[str, Remote]) -> None:
    fake = remotes["fake"]
    assert isinstance(fake, FakeRemote)
    fake.new_container()

    async def scenario(client: CloudClient) -> None:
        await store(client, "file", b"1")
        since = (await client.list_objects()).cursor
        assert since is not None
        assert since.evidence
        requests = client.counters.requests
        found = await client.compare(lambda: Known([]), since)
        assert (found.objects, found.deleted, found.cursor) == ([], [], since)
        assert client.counters.requests == requests + 1
        await store(client, "file", b"2", await must_head(client, "file"))
        (changed,) = (await client.compare(lambda: Known([]), since)).objects
        assert changed.path == b"file"

    run(fake, scenario)


def test_evidence_of_a_container_that_may_change_within_its_second_counts_for_nothing(
    remotes: dict[str, Remote],
) -> None:
    fake = remotes["fake"]
    assert isinstance(fake, FakeRemote)
    fake.new_container()

    async def scenario(client: CloudClient) -> None:
        await store(client, "file", b"1")
        assert (await client.moment()).settled
        fake.server.rests_s = 1
        assert not (await client.moment()).settled
        since = (await client.list_objects()).cursor
        assert since is not None
        assert not since.evidence
        assert len((await client.compare(lambda: Known([]), since)).objects) == 1

    try:
        run(fake, scenario)
    finally:
        fake.server.rests_s = 60


def test_versions_that_the_client_knows_are_left_out(remote: Remote) -> None:
    """Only if they are the newest of their name: what became of one afterwards is told."""

    async def scenario(client: CloudClient) -> None:
        since = await cursor_now(client)
        tags = [(await store(client, f"own{number}", b"own")).tag for number in range(5)]
        await store(client, "own1", b"theirs", replace=await must_head(client, "own1"))
        await client.delete(path("own2"), tags[2])
        await store(client, "theirs", b"theirs")
        without = [range(tag.version, tag.version + 1) for tag in tags]
        found = await client.changes(since, without=without)
        assert found is not None
        assert [stat.path for stat in found.objects] == [b"own1", b"theirs"]
        assert list(found.deleted) == [b"own2"]
        assert found.cursor == (await changes_since(client, since)).cursor
        later = await client.changes(found.cursor, without=without)
        assert later is not None
        assert (later.objects, list(later.deleted)) == ([], [])

    run(remote, scenario)
