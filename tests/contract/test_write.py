"""`Writes.write` on every kind of remote: what a list of orders promises."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from syncer.core.model import Kind, RemoteStat, meta_of
from syncer.errors import ConflictOnRemoteError, LocalChangedError, RemoteUnavailableError, UnsafeNameError
from syncer.ports.blocks import VersionRef
from syncer.ports.orders import Delete, InMemory, Move, Order, SetMeta, Store, Stored
from syncer.ports.remote import Remote
from tests.contract.remotes import (
    BLOCK,
    META,
    CommittingRemote,
    Subject,
    anew,
    content,
    fetch,
    head,
    must_head,
    path,
    run,
    store,
    with_folders,
)
from tests.contract.writing import Shelf, store_order, write_list


def test_orders_of_all_kinds_in_one_list_have_an_outcome_each(remote: Subject) -> None:
    """R1, R4: what is refused takes nothing else with it."""

    async def scenario(client: Remote) -> None:
        made = {name: await store(client, name, name.encode()) for name in ("move", "delete", "meta", "stale", "file")}
        await store(client, "stale", b"newer", await must_head(client, "stale"))
        large = content(1, 5 * BLOCK)
        news = [b"small", large]
        orders: list[Order] = [
            store_order(path("small"), Kind.FILE, b"small", META),
            store_order(path("large"), Kind.FILE, large, META),
            store_order(path("folder"), Kind.DIRECTORY, b"", meta_of(0o700)),
            store_order(path("link"), Kind.SYMLINK, b"target", meta_of(None)),
            store_order(path("file"), Kind.FILE, large, META, made["file"].tag),
            Move(source=path("move"), target=path("moved"), expect=made["move"].tag),
            Delete(path=path("delete"), expect=made["delete"].tag),
            SetMeta(path=path("meta"), meta=meta_of(0o600), expect=made["meta"].tag),
            store_order(path("stale"), Kind.FILE, b"small", META, made["stale"].tag),
            Delete(path=path("stale"), expect=made["stale"].tag),
            store_order(path("../out"), Kind.FILE, b"small", META),
        ]
        found = await write_list(client, orders, Shelf(news))
        for order, outcome in zip(orders[:8], found[:8], strict=True):
            assert isinstance(outcome, Stored), (order, outcome)
        assert all(isinstance(outcome, ConflictOnRemoteError) for outcome in found[8:10])
        assert isinstance(found[10], UnsafeNameError)
        listed = {stat.path.decode(): stat for stat in (await client.list_objects()).objects}
        assert set(listed) == {"small", "large", "folder", "link", "file", "moved", "meta", "stale"}
        for order, outcome in zip(orders, found, strict=True):
            if isinstance(outcome, Stored) and not isinstance(order, Delete):
                name = (order.target if isinstance(order, Move) else order.path).decode()
                assert listed[name].tag == outcome.tag
        assert await fetch(client, await must_head(client, "large")) == large

    run(remote, scenario)


def test_an_empty_list_costs_nothing(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        await client.open()
        before = client.counters.snapshot()
        assert await write_list(client, [], Shelf([])) == []
        await client.commit()
        assert client.counters.since(before).mutating_requests == 0

    run(remote, scenario)


def test_a_block_that_several_files_need_travels_once(pithos: Subject) -> None:
    """R11: new files that share most of what they hold, all in one list."""

    async def scenario(client: Remote) -> None:
        shared = content(1, 100 * BLOCK)
        files = [shared + content(2 + number, 2 * BLOCK) for number in range(6)]
        orders: list[Order] = [
            store_order(path(f"image-{number}"), Kind.FILE, data, META) for number, data in enumerate(files)
        ]
        before = client.counters.snapshot()
        assert all(isinstance(one, Stored) for one in await write_list(client, orders, Shelf(files)))
        assert client.counters.since(before).blocks_sent == 100 + 6 * 2
        assert await fetch(client, await must_head(client, "image-3")) == files[3]

    run(pithos, scenario)


def test_what_several_files_of_a_repository_share_travels_once(repository: Subject) -> None:
    """R11: its chunks do, also those of files that differ by a byte at their beginning, and of later lists."""

    async def scenario(client: Remote) -> None:
        shared = content(1, 60 * BLOCK)
        files = [shared, *(bytes([number]) * number + shared for number in range(1, 6))]
        orders: list[Order] = [
            store_order(path(f"image-{number}"), Kind.FILE, data, META) for number, data in enumerate(files)
        ]
        before = client.counters.snapshot()
        for part in (orders[:4], orders[4:]):
            assert all(isinstance(one, Stored) for one in await write_list(client, part, Shelf(files)))
        # Chunks, of about a block each, and not bytes: where a store is slow to answer some are sent again.
        assert client.counters.since(before).blocks_sent < 1.5 * len(shared) / BLOCK
        for number, data in enumerate(files):
            assert await fetch(client, await must_head(client, f"image-{number}")) == data

    run(repository, scenario)


class Fickle(Shelf):
    """Of one content a block is not what it was."""

    def __init__(self, contents: Sequence[bytes], bad: InMemory) -> None:
        super().__init__(contents)
        self.bad = bad.content
        self.asked = trio.Event()

    async def blocks(self, store: Store, blocks: BlockList, indexes: Sequence[int]) -> list[bytes]:
        if store.content == self.bad:
            self.asked.set()
            await trio.sleep(0)
            raise LocalChangedError(store.path, "it was written to")
        await self.asked.wait()
        return await super().blocks(store, blocks, indexes)


def test_who_fails_to_send_a_shared_block_leaves_it_to_others(remote: Subject) -> None:
    if remote.name == "memory":
        return  # sends for one file at a time

    async def scenario(client: Remote) -> None:
        shared = content(1, 9 * BLOCK)
        bad, good = shared + content(2, BLOCK), shared + content(3, BLOCK)
        orders: list[Order] = [
            store_order(path("bad"), Kind.FILE, bad, META),
            store_order(path("good"), Kind.FILE, good, META),
        ]
        outcomes = await write_list(client, orders, Fickle([bad, good], InMemory.of(bad, BLOCK)))
        assert isinstance(outcomes[0], LocalChangedError)
        assert isinstance(outcomes[1], Stored)
        assert await head(client, path("bad")) is None
        assert block_id(await fetch(client, await must_head(client, "good"))) == block_id(good)

    run(remote, scenario)


# --- remotes that hold back what is written


@pytest.fixture(params=["committing", "committing-folder"])
def committing(request: pytest.FixtureRequest) -> Subject:
    return anew(with_folders(committing=CommittingRemote())[request.param])


def test_nothing_is_seen_by_others_before_it_is_committed_and_then_all_of_it(committing: Subject) -> None:
    """R5, R6: a second commit, and one of nothing, write nothing."""

    async def scenario(client: Remote) -> None:
        other = committing.client()
        assert (await client.open()).can.holds_back
        made = await store(client, "file", b"first")
        await client.commit()
        before = await other.list_objects()
        assert [stat.tag for stat in before.objects] == [made.tag]
        large = content(1, 3 * BLOCK)
        await store(client, "large", large)
        await write_list(client, [Move(source=path("file"), target=path("moved"), expect=made.tag)], Shelf([]))
        assert await other.list_objects() == before
        own = await client.list_objects()
        assert {stat.path for stat in own.objects} == {b"large", b"moved"}
        for _ in range(2):
            await client.commit()
            assert await other.list_objects() == await client.list_objects() == own
        assert await fetch(other, await must_head(other, "large")) == large
        told = await other.changes(before.position)
        assert told is not None
        assert {stat.path for stat in told.objects} == {b"large", b"moved"}
        writes = client.counters.mutating_requests
        await client.commit()
        assert client.counters.mutating_requests == writes

    run(committing, scenario)


def test_of_two_that_commit_what_excludes_each_other_one_is_told_and_has_written_nothing(committing: Subject) -> None:
    async def scenario(client: Remote) -> None:
        other = committing.client()
        mine, theirs = await store(client, "a", b"mine"), await store(other, "a", b"theirs")
        assert mine.tag != theirs.tag or mine == theirs
        await other.commit()
        with pytest.raises(RemoteUnavailableError):
            await client.commit()
        assert await fetch(client, await must_head(client, "a")) == b"theirs"
        await client.commit()

    run(committing, scenario)


def test_whoever_asks_is_told_of_which_device_a_version_is(remote: Subject) -> None:
    """By name; the listing tells it, or the version can be asked about; a change of metadata leaves it."""

    async def scenario(client: Remote) -> None:
        large = content(1, 5 * BLOCK)
        orders = [
            replace(store_order(path(name), Kind.FILE, data, META), device="desk")
            for name, data in (("small", b"small"), ("other", b"other"), ("large", large))
        ]
        await write_list(client, orders, Shelf([b"small", b"other", large]))
        stat = await must_head(client, "small")
        await write_list(client, [SetMeta(path=stat.path, meta=meta_of(0o600), expect=stat.tag)], Shelf([]))
        listed = {stat.path.decode(): stat for stat in (await client.list_objects()).objects}
        name = "host1" if "repository" in remote.name else "desk"
        assert {stat.device for stat in listed.values()} <= {name, None}
        assert await client.writers([_version(listed[name]) for name in ("small", "other", "large")]) == [name] * 3

    run(remote, scenario)


def test_of_a_version_that_tells_no_device_or_is_gone_nobody_knows_it(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        is_told = "repository" in remote.name  # a commit always says whose it is
        await store(client, "file", b"one")
        old = await must_head(client, "file")
        assert await client.writers([_version(old)]) == ["host1" if is_told else ""]
        order = replace(store_order(path("file"), Kind.FILE, b"two", META, old.tag), device="desk")
        await write_list(client, [order], Shelf([b"two"]))
        new = await must_head(client, "file")
        await write_list(client, [Delete(path=path("file"), expect=new.tag)], Shelf([]))
        assert set(await client.writers([_version(new)])) <= {"desk", ""}
        assert await client.writers([]) == []

    run(remote, scenario)


def _version(stat: RemoteStat) -> VersionRef:
    assert stat.content is not None
    return VersionRef(path=stat.path, tag=stat.tag, content=stat.content)
