"""`Remote.move_subtree` and how `changes` tells of it; for the in-memory fake and our real server."""

from __future__ import annotations

import pytest

from syncer.core.model import Kind, Position, RelPath, RemoteStat
from syncer.core.subtrees import Guard, guard_of, version_of
from syncer.errors import ConflictOnRemoteError, UnsafeNameError
from syncer.ports.remote import Changes, Remote
from syncer.protocol.extensions.subtree import MAX_OBJECTS
from syncer.remote.pithos.client import PithosClient
from syncer.remote.serials import cursor_of
from tests.contract.remotes import (
    META,
    Loss,
    LossyTransport,
    ServeRemote,
    Subject,
    anew,
    must_head,
    path,
    run,
    run_through,
    store,
)
from tests.contract.writing import delete, move_tree, put_small, set_meta

INSIDE = ("dir", "dir/a", "dir/a-b", "dir/a/deep", "dir/ü")
BESIDE = ("dir-", "dir0", "di", "other")


@pytest.fixture(params=["memory", "serve"])
def remote(request: pytest.FixtureRequest, remotes: dict[str, Subject]) -> Subject:
    return anew(remotes[request.param])


async def fill(client: Remote) -> None:
    await put_small(client, path("dir"), Kind.DIRECTORY, b"", META, None)
    for name in (*INSIDE[1:], *BESIDE):
        await store(client, name, name.encode() * 2000)


async def look(client: Remote) -> dict[str, RemoteStat]:
    return {stat.path.decode(): stat for stat in (await client.list_objects()).objects}


def guard(stats: dict[str, RemoteStat], root: str = "dir") -> Guard:
    names = sorted((name for name in stats if name == root or name.startswith(root + "/")), key=str.encode)
    return guard_of((name[len(root) :].encode(), stats[name].tag.version) for name in names)


async def now_of(client: Remote) -> Position:
    return (await client.list_objects()).position


async def changes_since(client: Remote, since: Position, *, moves: bool) -> Changes:
    found = await client.changes(since, moves=moves)
    assert found is not None
    return found


def test_a_subtree_moves_as_one_and_its_versions_follow_from_the_first(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        assert (await client.open()).can.moves_trees == MAX_OBJECTS
        await fill(client)
        before = await look(client)
        requests = client.counters.requests
        move = await move_tree(client, path("dir"), path("some/where"), guard(before))
        assert client.counters.requests == requests + 1
        after = await look(client)
        assert {name: after[name] for name in BESIDE} == {name: before[name] for name in BESIDE}
        ranked = sorted(INSIDE, key=str.encode)
        assert len(after) == len(before)
        for rank, name in enumerate(ranked):
            old, new = before[name], after["some/where" + name[3:]]
            assert new.tag.version == version_of(move.first, rank)
            assert (new.tag.uuid, new.content, new.kind, new.meta) == (old.tag.uuid, old.content, old.kind, old.meta)
        assert cursor_of((await client.list_objects()).position).version == move.last

    run(remote, scenario)


@pytest.mark.parametrize("what", ["edited", "added", "deleted", "root edited", "taken", "taken below", "no root"])
def test_what_is_not_as_it_was_seen_does_not_move(remote: Subject, what: str) -> None:
    async def scenario(client: Remote) -> None:
        await fill(client)
        seen = guard(await look(client))
        if what == "edited":
            await store(client, "dir/a/deep", b"new", replace=await must_head(client, "dir/a/deep"))
        elif what == "added":
            await store(client, "dir/z", b"new")
        elif what == "deleted":
            await delete(client, path("dir/ü"), (await must_head(client, "dir/ü")).tag)
        elif what == "root edited":
            await set_meta(client, path("dir"), META, (await must_head(client, "dir")).tag)
        elif what == "taken":
            await store(client, "to", b"new")
        elif what == "taken below":
            await store(client, "to/x", b"new")
        else:
            await delete(client, path("dir"), (await must_head(client, "dir")).tag)
            seen = guard({name: stat for name, stat in (await look(client)).items() if name != "dir"})
        before = await client.list_objects()
        with pytest.raises(ConflictOnRemoteError):
            await move_tree(client, path("dir"), path("to"), seen)
        assert await client.list_objects() == before

    run(remote, scenario)


def test_changes_tell_a_move_as_one_and_what_changed_behind_it(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        await fill(client)
        since = await now_of(client)
        before = await look(client)
        await store(client, "early", b"1")
        move = await move_tree(client, path("dir"), path("to"), guard(before))
        told = await changes_since(client, since, moves=True)
        assert told.moves == [move]
        assert [stat.path for stat in told.objects] == [b"early"]
        assert told.deleted == []
        await store(client, "to/a", b"edited", replace=await must_head(client, "to/a"))
        await delete(client, path("to/ü"), (await must_head(client, "to/ü")).tag)
        await store(client, "dir", b"another one")
        told = await changes_since(client, since, moves=True)
        assert told.moves == [move]
        assert [stat.path for stat in told.objects] == [b"dir", b"early", b"to/a"]
        assert told.deleted == ["to/ü".encode()]
        plain = await changes_since(client, since, moves=False)
        assert plain.moves == []
        assert {stat.path for stat in plain.objects} == {
            b"dir", b"early", b"to", b"to/a", b"to/a-b", b"to/a/deep"
        }  # fmt: skip
        assert set(plain.deleted) == {name.encode() for name in (*INSIDE[1:], "to/ü")}
        assert plain.position == told.position

    run(remote, scenario)


def test_moves_in_a_row_are_told_in_order(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        await fill(client)
        since = await now_of(client)
        first = await move_tree(client, path("dir"), path("b"), guard(await look(client)))
        between = await now_of(client)
        second = await move_tree(client, path("b"), path("dir"), guard(await look(client), "b"))
        told = await changes_since(client, since, moves=True)
        assert (told.moves, told.objects, told.deleted) == ([first, second], [], [])
        assert (await changes_since(client, between, moves=True)).moves == [second]
        assert (await changes_since(client, told.position, moves=True)).moves == []

    run(remote, scenario)


def test_a_name_too_long_for_the_server_moves_nothing(serve: ServeRemote) -> None:

    async def scenario(client: Remote) -> None:
        await fill(client)
        before = await client.list_objects()
        target = RelPath(b"/".join([b"x" * 250] * 4) + b"/" + b"y" * 17)
        with pytest.raises(UnsafeNameError):
            await move_tree(client, path("dir"), target, guard(await look(client)))
        assert await client.list_objects() == before

    run(serve, scenario)


@pytest.mark.parametrize("loss", Loss)
def test_a_lost_message_leaves_it_in_doubt_and_moves_at_most_once(serve: ServeRemote, loss: Loss) -> None:
    async def scenario(client: PithosClient, transport: LossyTransport) -> None:
        await fill(client)
        seen = guard(await look(client))
        transport.lose(loss, 0)
        with pytest.raises(ConflictOnRemoteError):
            await move_tree(client, path("dir"), path("to"), seen)
        transport.lose(loss, None)
        now = await look(client)
        assert ("to/a" in now, "dir/a" in now) == ((False, True) if loss is Loss.BEFORE else (True, False))

    run_through(serve, LossyTransport, scenario)


def test_a_plain_pithos_has_no_such_thing(remotes: dict[str, Subject]) -> None:
    remotes["fake"].new_container()

    async def scenario(client: Remote) -> None:
        assert (await client.open()).can.moves_trees == 0

    run(remotes["fake"], scenario)
