"""A folder of a container as a root: what lies beside it is neither told nor touched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
import trio

from syncer.core.model import Kind, RemoteStat
from syncer.core.subtrees import Guard, guard_of
from syncer.errors import UnsafeNameError
from syncer.ports.remote import Remote
from syncer.remote.pithos.client import open_pithos
from syncer.remote.prefix import PrefixClient, open_container
from tests.contract.remotes import (
    BLOCK,
    META,
    FakeRemote,
    ServeRemote,
    Subject,
    anew,
    must_head,
    path,
    run,
    store,
)
from tests.contract.writing import delete, move, move_tree, put_small
from tests.fakes.pithos import FakePithos

BESIDE = ("folder", "folder2/x", "fold/x", "other/folder/x", "top")


@pytest.fixture(scope="module")
def server() -> Iterator[FakePithos]:
    with FakePithos(block_size=BLOCK, listing_limit=3) as fake:
        yield fake


@pytest.fixture(params=["memory", "fake", "serve", "repository"])
def remote(request: pytest.FixtureRequest, remotes: dict[str, Subject]) -> Subject:
    return anew(remotes[request.param])


def view(remote: Subject, client: Remote) -> Remote:
    """The folder `folder`, through its URL where there is one."""
    if isinstance(remote, FakeRemote | ServeRemote):
        return open_container(f"{remote.url}?prefix=folder", remote.token)
    return PrefixClient(client, path("folder"))


def test_only_the_folder_is_listed_changed_and_told_of(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        inside = view(remote, client)
        for name in BESIDE:
            kind = Kind.DIRECTORY if name == "folder" else Kind.FILE
            await put_small(client, path(name), kind, b"" if kind is Kind.DIRECTORY else name.encode(), META, None)
        before = await client.list_objects()
        since = (await inside.list_objects()).position
        made = await store(inside, "a/f", b"x" * 3 * BLOCK)
        assert [stat.path for stat in (await inside.list_objects()).objects] == [b"a/f"]
        assert (await must_head(client, "folder/a/f")).tag == made.tag
        moved = await move(inside, path("a/f"), path(".blocksync/park/1-f"), made.tag)
        assert [stat.path for stat in (await inside.list_objects()).objects] == [b".blocksync/park/1-f"]
        await delete(inside, path(".blocksync/park/1-f"), moved.tag)
        assert (await client.list_objects()).objects == before.objects
        changes = await inside.changes(since)
        if changes is not None:
            assert changes.objects == []
            assert set(changes.deleted) <= {b"a/f", b".blocksync/park/1-f"}
        await inside.close()

    run(remote, scenario)


def test_changes_beside_the_folder_are_none(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        inside = view(remote, client)
        since = (await inside.list_objects()).position
        await store(client, "beside", b"1")
        await store(client, "folder/in", b"2")
        changes = await inside.changes(since)
        if changes is not None:
            assert [stat.path for stat in changes.objects] == [b"in"]
        await inside.close()

    run(remote, scenario)


@pytest.mark.parametrize("name", [b"../x", b"/x", b"a/../../x", b".blocksync/x", b".blocksync/park"])
def test_no_name_leads_out_of_the_folder(remote: Subject, name: bytes) -> None:
    async def scenario(client: Remote) -> None:
        inside = view(remote, client)
        before = client.counters.snapshot()
        with pytest.raises(UnsafeNameError):
            await put_small(inside, type(path("x"))(name), Kind.FILE, b"", META, None)
        with pytest.raises(UnsafeNameError):
            await inside.secret(type(path("x"))(name), 1)
        assert client.counters.since(before).requests == 0
        await inside.close()

    run(remote, scenario)


def test_our_server_lists_no_more_than_the_folder(remotes: dict[str, Subject]) -> None:
    remote = remotes["serve"]
    assert isinstance(remote, ServeRemote)
    remote.new_container()

    async def scenario() -> None:
        client = open_pithos(remote.url, remote.token)
        await client.open(create=True)
        for number in range(30):
            await store(client, f"beside/{number}", b"1")
        await store(client, "folder/in", b"2")
        inside = view(remote, client)
        found = await inside.list_objects()
        assert [stat.path for stat in found.objects] == [b"in"]
        before = client.counters.snapshot()
        await client.list_objects()
        assert inside.counters.bytes_received * 5 < client.counters.since(before).bytes_received
        await inside.close()
        await client.close()

    trio.run(scenario)


def guard_of_all(stats: Iterable[RemoteStat], root: str) -> Guard:
    ranked = sorted(stats, key=lambda stat: stat.path)
    inside = [stat for stat in ranked if stat.path == root.encode() or stat.path.startswith(root.encode() + b"/")]
    return guard_of((stat.path[len(root) :], stat.tag.version) for stat in inside)


@pytest.mark.parametrize("remote", ["memory", "serve"], indirect=True)  # the others have no such extension
def test_subtrees_move_within_the_folder_and_what_comes_in_or_goes_out_is_told_one_by_one(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        inside = view(remote, client)
        for root in ("folder/a", "folder/b", "c", "d"):
            await put_small(client, path(root), Kind.DIRECTORY, b"", META, None)
            await store(client, f"{root}/x", root.encode())
        since = (await inside.list_objects()).position
        moved = await move_tree(
            inside, path("a"), path("new/a"), guard_of_all((await inside.list_objects()).objects, "a")
        )
        assert (moved.source, moved.target) == ("a", "new/a")
        everything = (await client.list_objects()).objects
        await move_tree(client, path("c"), path("beside"), guard_of_all(everything, "c"))
        told = await inside.changes(since, moves=True)
        assert told is not None
        assert (told.moves, told.objects, told.deleted) == ([moved], [], [])
        for source, target in (("d", "folder/d"), ("folder/b", "b"), ("folder/d", "folder/e")):
            everything = (await client.list_objects()).objects
            await move_tree(client, path(source), path(target), guard_of_all(everything, source))
        told = await inside.changes(since, moves=True)
        assert told is not None
        assert told.moves == []
        assert [stat.path for stat in told.objects] == [b"e", b"e/x", b"new/a", b"new/a/x"]
        assert set(told.deleted) >= {b"a", b"a/x", b"b", b"b/x"}
        await inside.close()

    run(remote, scenario)
