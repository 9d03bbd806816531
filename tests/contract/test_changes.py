"""`CloudClient.changes`: complete, or nothing; for the in-memory fake and our real server. A plain Pithos has none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import trio
import trio.testing

from syncer.core.model import Kind
from syncer.remote.client import Changes, CloudClient, Cursor
from syncer.remote.pithos import PithosClient
from tests.contract.remotes import (
    BLOCK,
    META,
    FakeRemote,
    MemoryRemote,
    Remote,
    must_head,
    path,
    run,
    serve_process,
    store,
)
from tests.fakes.pithos import FakePithos

FOREVER_S = 250.0  # the test ends long before, or fails


@pytest.fixture(scope="module")
def remotes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Remote]]:
    with FakePithos(block_size=BLOCK) as fake, serve_process(tmp_path_factory.mktemp("serve")) as real:
        yield {"memory": MemoryRemote(), "fake": FakeRemote(fake), "serve": real}


@pytest.fixture(params=["memory", "serve"])
def remote(request: pytest.FixtureRequest, remotes: dict[str, Remote]) -> Remote:
    found = remotes[request.param]
    found.new_container()
    return found


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


def test_a_serial_that_was_given_out_twice_is_noticed(remotes: dict[str, Remote]) -> None:
    """A server restored from a backup counts from there again; the times differ."""
    remotes["serve"].new_container()

    async def scenario(client: CloudClient) -> None:
        await store(client, "file", b"1")
        since = await cursor_now(client)
        await store(client, "other", b"2")
        assert await client.changes(replace(since, modified_us=since.modified_us - 1)) is None
        assert await client.changes(since) is not None

    run(remotes["serve"], scenario)


def test_a_plain_pithos_has_no_changes(remotes: dict[str, Remote]) -> None:
    remotes["fake"].new_container()

    async def scenario(client: CloudClient) -> None:
        assert (await client.list_objects()).cursor is None
        assert await client.changes(Cursor(identity="", version=0, modified_us=0), FOREVER_S) is None

    run(remotes["fake"], scenario)


def test_refused_names_are_told(remotes: dict[str, Remote]) -> None:
    """Our server takes names that a local disk does not."""
    remotes["serve"].new_container()

    async def scenario(client: CloudClient) -> None:
        since = await cursor_now(client)
        long = "x" * 256
        assert isinstance(client, PithosClient)
        await client._session.send(client._session.make.put_body(long, Kind.FILE, b"12345", META, {}))
        found = await changes_since(client, since)
        assert [(name.name, name.size_bytes) for name in found.refused] == [(long, 5)]
        assert (found.objects, found.object_count, found.bytes_used) == ([], 1, 5)

    run(remotes["serve"], scenario)
