"""Devices on one repository in memory: what one commits, others have; before that they see nothing."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from syncer.core.model import Content, Kind, Meta, RelPath, RemoteStat, meta_of
from syncer.errors import ConflictOnRemoteError, DamagedObjectError, RemoteUnavailableError, SyncerError
from syncer.ports.orders import Delete, Move, Order, SetMeta, Stored, write_one
from syncer.remote.repository.contents import packing
from syncer.remote.repository.format import packs
from tests import effort
from tests.contract.writing import Shelf, store_order, write_list
from tests.unit.syncer.remote.repository.share import GRID, META, Share, fetched, listed, path, put, random_bytes, run


def test_what_is_committed_is_seen_by_others_all_of_it_and_nothing_before() -> None:
    async def scenario(share: Share) -> None:
        one, other = share.client(1), share.client(2)
        large = random_bytes(1, 9 << 20)
        sparse = random_bytes(2, 100_000) + bytes(6 << 20) + random_bytes(3, 70_000)
        files = {"large": large, "sparse": sparse, "empty": b"", "small": b"small", "dir/below": b"x" * 5000}
        for name, data in files.items():
            await put(one, name, data)
        await write_one(one, store_order(path("link"), Kind.SYMLINK, b"to", meta_of(None)))
        await write_one(one, store_order(path("dir"), Kind.DIRECTORY, b"", meta_of(0o750)))
        assert await listed(other) == {}
        await one.commit()
        found = await listed(other)
        assert {each.decode() for each in found} == {*files, "link", "dir"}
        for name, data in files.items():
            assert found[path(name)].meta == META
            assert await fetched(other, found[path(name)]) == data
        assert found[path("link")].target == b"to"
        assert found[path("dir")].meta == meta_of(0o750)
        assert await listed(one) == found
        writes = len(share.objects)
        await one.commit()
        assert len(share.objects) == writes

    run(scenario)


def test_orders_hold_for_the_version_that_they_name() -> None:
    async def scenario(share: Share) -> None:
        one = share.client(1)
        for name in ("a", "b", "c", "d"):
            await put(one, name, name.encode())
        await one.commit()
        first = await listed(one)
        await put(one, "a", b"newer", first[path("a")])
        orders: list[Order] = [
            Delete(path=path("a"), expect=first[path("a")].tag),
            Delete(path=path("b"), expect=first[path("b")].tag),
            Delete(path=path("gone"), expect=first[path("b")].tag),
            Move(source=path("c"), target=path("dir/c"), expect=first[path("c")].tag),
            SetMeta(path=path("d"), meta=Meta(mode=0o600), expect=first[path("d")].tag),
            store_order(path("d"), Kind.FILE, b"d", META),
            Move(source=path("d"), target=path("a"), expect=first[path("d")].tag),
        ]
        told = await write_list(one, orders, Shelf([b"d"], GRID))
        assert [isinstance(each, Stored) for each in told] == [False, True, True, True, True, False, False]
        assert all(isinstance(each, ConflictOnRemoteError) for each in (told[0], told[5], told[6]))
        await one.commit()
        found = await listed(share.client(2))
        assert set(found) == {b"a", b"dir/c", b"d"}
        assert found[path("d")].meta == Meta(mode=0o600, special=0, mtime_ns=7, xattrs=META.xattrs)
        assert await fetched(one, found[path("a")]) == b"newer"

    run(scenario)


def test_a_directory_moves_object_by_object_its_marker_last() -> None:
    async def scenario(share: Share) -> None:
        one, other = share.client(1), share.client(2)
        await write_one(one, store_order(path("old"), Kind.DIRECTORY, b"", meta_of(0o700)))
        for name in ("old/x", "old/y"):
            await put(one, name, name.encode())
        await one.commit()
        before = (await other.list_objects()).position
        found = await listed(one)
        for name in ("x", "y"):
            tag = found[path(f"old/{name}")].tag
            await write_one(one, Move(source=path(f"old/{name}"), target=path(f"new/{name}"), expect=tag))
        await write_one(one, Move(source=path("old"), target=path("new"), expect=found[path("old")].tag))
        await one.commit()
        after = await listed(other)
        assert set(after) == {b"new", b"new/x", b"new/y"}
        assert {each.tag.uuid for each in after.values()} == {each.tag.uuid for each in found.values()}
        assert after[path("new")].meta == meta_of(0o700)
        changes = await other.changes(before)
        assert changes is not None
        assert {stat.path for stat in changes.objects} == set(after)
        assert set(changes.deleted) == {b"old", b"old/x", b"old/y"}

    run(scenario)


def test_directories_that_nobody_made_are_gone_and_in_nobodys_way_when_nothing_is_in_them() -> None:
    """Breaks when a name that no listing tells of can't be taken: the engine would try for ever."""

    async def scenario(share: Share) -> None:
        client = share.client(1)
        await put(client, "a/b/c/deep", b"1")
        await put(client, "x/y", b"2")
        await client.commit()
        there = await listed(client)
        for name in ("a/b/c/deep", "x/y"):
            await write_one(client, Delete(path=path(name), expect=there[path(name)].tag))
        await put(client, "a", b"a file now")  # before anything is committed
        await client.commit()
        assert set(await listed(share.client(2))) == {b"a"}
        await put(client, "x", b"another one")
        await client.commit()
        assert set(await listed(share.client(2))) == {b"a", b"x"}
        # Two heads, each of which took half of what was in one: the view of both has an empty one.
        await put(client, "d/one", b"1")
        await put(client, "d/other", b"2")
        await client.commit()
        pair = client, share.client(2)
        for each, name in zip(pair, ("d/one", "d/other"), strict=True):
            stat = (await listed(each))[path(name)]
            await write_one(each, Delete(path=stat.path, expect=stat.tag))
        for each in pair:
            await each.commit()
        stat = (await listed(pair[1]))[path("x")]
        await write_one(pair[1], Move(source=stat.path, target=path("d"), expect=stat.tag))
        await pair[1].commit()
        for each in pair:
            assert set(await listed(each)) == {b"a", b"d"}

    run(scenario)


def test_of_two_that_commit_at_the_same_time_both_are_kept() -> None:
    async def scenario(share: Share) -> None:
        one, other = share.client(1), share.client(2)
        await put(one, "file", b"first")
        await one.commit()
        seen = (await listed(other))[path("file")]
        await put(one, "file", b"one's", seen)
        await put(other, "file", b"the other's", seen)
        await put(other, "new", b"new")
        await other.commit()
        await one.commit()
        found = await listed(one)
        assert found == await listed(other) == await listed(share.client(3))
        assert {await fetched(one, stat) for stat in found.values()} == {b"one's", b"the other's", b"new"}
        assert len(found) == 3

    run(scenario)


def test_what_was_listed_while_there_were_two_heads_is_read_after_a_commit_of_ours() -> None:
    """Breaks when nodes of the merged view, which are stored nowhere, are forgotten with that commit."""

    async def scenario(share: Share) -> None:
        one, other = share.client(1), share.client(2)
        await put(one, "file", b"common")
        await one.commit()
        for client, data in ((one, b"one's"), (other, b"other's")):
            await put(client, "file", data, (await listed(client))[path("file")])
        for client in (one, other):
            await client.commit()
        there = await listed(one)
        assert len(there) == 2
        await put(one, "more", b"more")
        await one.commit()
        assert {await fetched(one, stat) for stat in there.values()} == {b"one's", b"other's"}

    run(scenario)


def test_what_a_later_version_shares_with_an_earlier_one_is_not_sent_again() -> None:
    async def scenario(share: Share) -> None:
        one, other = share.client(1), share.client(2)
        data = bytearray(random_bytes(1, 16 << 20))
        await put(one, "file", bytes(data))
        await one.commit()
        before = sum(len(raw) for raw, _ in share.objects.values())
        stat = (await listed(one))[path("file")]
        data[5_000_000:5_000_010] = b"0123456789"
        await put(one, "file", bytes(data), stat)
        await one.commit()
        assert sum(len(raw) for raw, _ in share.objects.values()) - before < 100_000
        assert await fetched(other, (await listed(other))[path("file")]) == data
        await put(one, "copy", bytes(data))
        again = sum(len(raw) for raw, _ in share.objects.values())
        await one.commit()
        assert sum(len(raw) for raw, _ in share.objects.values()) - again < 10_000 + again - before

    run(scenario)


def test_a_device_that_begins_anew_goes_on_where_it_was() -> None:
    async def scenario(share: Share) -> None:
        for number in range(3):
            one = share.client(1)
            await put(one, f"file{number}", b"%d" % number)
            await one.commit()
        assert set(await listed(share.client(1))) == {b"file0", b"file1", b"file2"}
        position = (await one.list_objects()).position
        changes = await share.client(1).changes(position)
        assert changes is not None
        assert not changes.objects
        assert not changes.deleted

    run(scenario)


def test_a_store_that_went_back_is_noticed() -> None:
    async def scenario(share: Share) -> None:
        one = share.client(1)
        await put(one, "file", b"1")
        await one.commit()
        backup = dict(share.objects)
        await put(one, "file2", b"2")
        await one.commit()
        other = share.client(2)
        seen = (await other.list_objects()).position
        share.objects.clear()
        share.objects.update(backup)
        fresh = share.client(2)
        now = (await fresh.list_objects()).position
        assert fresh.ages.is_later(seen, now)
        assert not fresh.ages.is_later(now, seen)
        assert await fresh.changes(seen) is None

    run(scenario)


@pytest.mark.parametrize("kind", ["packs/", "indexes/", "commits/", "heads/"])
def test_an_object_that_was_damaged_is_named(kind: str) -> None:
    async def scenario(share: Share) -> None:
        one = share.client(1)
        await put(one, "file", random_bytes(1, 100_000))
        await one.commit()
        for name, (raw, when) in list(share.objects.items()):
            if name.startswith(kind):
                share.objects[name] = (raw[:90] + bytes([raw[90] ^ 1]) + raw[91:], when)
        other = share.client(2)
        with pytest.raises(DamagedObjectError, match=kind):
            await fetched(other, (await listed(other))[path("file")])

    run(scenario)


def test_nothing_on_the_store_says_what_is_in_the_files_or_what_they_are_called() -> None:
    async def scenario(share: Share) -> None:
        one = share.client(1)
        data = b"plain text that is not to be seen " * 1000
        await put(one, "a name that is not to be seen", data)
        await one.commit()
        for raw, _ in share.objects.values():
            assert b"not to be seen" not in raw
        for name in share.objects:
            assert "seen" not in name

    run(scenario)


@pytest.mark.parametrize("seed", range(effort.count("repository clients")))
def test_changes_are_the_difference_of_two_listings_whatever_happened(seed: int) -> None:
    """R7, R9; three devices that write at random and commit now and then."""

    async def scenario(share: Share) -> None:
        random = Random(seed)
        clients = [share.client(number) for number in (1, 2, 3)]
        last = {client: await client.list_objects() for client in clients}
        wrote = {client: set[RelPath]() for client in clients}
        versions: dict[tuple[str, int, str], tuple[Kind, Content | None, Meta | None]] = {}
        for _ in range(25):
            client = random.choice(clients)
            before, now = last[client], await client.list_objects()
            told = await client.changes(before.position)
            assert told is not None
            old, new = ({stat.path: stat for stat in each.objects} for each in (before, now))
            seen = {stat.path: stat for stat in told.objects}
            assert {where: stat for where, stat in new.items() if old.get(where) != stat}.items() <= seen.items()
            assert seen.items() <= new.items()
            # Of what this one wrote since then it is told as well: it has it, and neither of the two listings has.
            assert old.keys() - new.keys() <= set(told.deleted) <= (old.keys() | wrote[client]) - new.keys()
            for stat in now.objects:
                tag = (stat.tag.uuid, stat.tag.version, stat.tag.etag)
                said = (stat.kind, stat.content, stat.meta)
                assert versions.setdefault(tag, said) == said
            last[client] = now
            orders = [_order(random, new) for _ in range(random.randrange(4))]
            wrote[client] = {order.target if isinstance(order, Move) else order.path for order, _ in orders}
            told_orders = await write_list(client, [order for order, _ in orders], Shelf([d for _, d in orders], GRID))
            assert all(isinstance(each, Stored | SyncerError) for each in told_orders)
            await client.commit()
        found = [await listed(client) for client in clients]
        assert found[0] == found[1] == found[2]
        for stat in found[0].values():
            if stat.kind is Kind.FILE:
                await fetched(clients[0], stat)

    run(scenario)


def _order(random: Random, there: dict[RelPath, RemoteStat]) -> tuple[Order, bytes]:
    where = path(random.choice(["a", "b", "d/a", "d/b", "d"]))
    data = random_bytes(random.randrange(50), random.choice([10, 5000, 70_000]))
    stat = there.get(where)
    if stat is None:
        kind = Kind.DIRECTORY if where == b"d" else Kind.FILE
        return store_order(where, kind, data if kind is Kind.FILE else b"", meta_of(0o644), None, GRID), data
    match random.randrange(4):
        case 0:
            return Delete(path=where, expect=stat.tag), b""
        case 1:
            return Move(source=where, target=path(random.choice(["a", "b", "d/c"])), expect=stat.tag), b""
        case 2 if stat.kind is Kind.FILE:
            return store_order(where, Kind.FILE, data, meta_of(0o600), stat.tag, GRID), data
        case _:
            return SetMeta(path=where, meta=Meta(mode=random.choice([0o600, 0o755])), expect=stat.tag), b""


def test_a_pack_that_was_refused_once_is_there_before_anything_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "TARGET_BYTES", 200_000)

    async def scenario(share: Share) -> None:
        writer = share.client(1)
        store = writer._objects.store
        put_object, refused = store.put, list[str]()

        async def put_later(name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
            if name.startswith("packs/") and not refused:
                refused.append(name)
                raise RemoteUnavailableError("it rains")
            return await put_object(name, data, absent=absent)

        store.put = put_later  # type: ignore[method-assign]
        await put(writer, "told", random_bytes(1, 50_000))
        with pytest.raises(RemoteUnavailableError):
            await put(writer, "refused", random_bytes(2, 1_000_000))  # more than a pack
        assert refused
        await writer.commit()
        reader = share.client(2)
        found = await listed(reader)
        assert await fetched(reader, found[path("told")]) == random_bytes(1, 50_000)

    run(scenario)


def test_a_long_push_writes_indexes_and_one_that_dies_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "TARGET_BYTES", 200_000)
    monkeypatch.setattr(packing, "INDEXED_CHUNKS", 100)

    async def scenario(share: Share) -> None:
        data = random_bytes(1, 1_500_000)
        dead = share.client(1)
        await put(dead, "file", data)
        assert [name for name in share.objects if name.startswith("indexes/")]
        writer = share.client(2)
        assert await listed(writer) == {}
        await put(writer, "file", data)
        await put(writer, "again", data[:400_000])
        await writer.commit()
        assert writer.counters.bytes_sent < 700_000  # what is in the packs of the dead one's indexes is not sent
        reader = share.client(3)
        found = await listed(reader)
        assert await fetched(reader, found[path("file")]) == data
        assert await fetched(reader, found[path("again")]) == data[:400_000]

    run(scenario)
