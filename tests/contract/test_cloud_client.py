"""The contract of `Remote`: one suite for the in-memory fake, a fake Synnefo Pithos and our real server."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterator

import pytest
import trio
from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK
from syncer.core.model import Kind, Meta, RemoteStat, meta_of
from syncer.errors import ConflictOnRemoteError, LocalChangedError, NotFoundError, UnsafeNameError
from syncer.ports.orders import InMemory, Store, write_one
from syncer.ports.remote import Remote
from syncer.protocol.pithos.listing import MAX_ROWS, ObjectRow
from syncer.remote.container.replies import Judge
from syncer.remote.http.transport import BadReplyError, Reply
from syncer.remote.pithos.client import PithosClient
from tests.contract.remotes import (
    BLOCK,
    META,
    FakeRemote,
    Loss,
    LossyTransport,
    ServeRemote,
    Subject,
    content,
    fetch,
    fetch_blocks,
    head,
    list_of,
    must_head,
    path,
    resolved,
    run,
    store,
    through,
)
from tests.contract.writing import Made, Shelf, delete, made_of, move, put_small, set_meta, store_order
from tests.fakes.pithos import FakePithos


@pytest.fixture(scope="module")
def server() -> Iterator[FakePithos]:
    with FakePithos(block_size=BLOCK, listing_limit=7) as fake:
        yield fake


@pytest.mark.parametrize(
    "size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 40 * BLOCK + 17], ids=lambda size: f"{size}B"
)
def test_a_file_comes_back_as_it_was_sent(remote: Subject, size: int) -> None:
    async def scenario(client: Remote) -> None:
        data = content(size, size)
        done = await store(client, "folder/file", data)
        stat = await must_head(client, "folder/file")
        assert stat.tag == done.tag
        assert stat.kind is Kind.FILE
        assert stat.meta == META
        assert await fetch(client, stat) == data
        assert done.foreign == ()

    run(remote, scenario)


def test_nul_bytes_at_the_end_count(pithos: Subject) -> None:
    """The object hash does not see them; only the size does."""

    async def scenario(client: Remote) -> None:
        short, long = b"A" * 100, b"A" * 100 + bytes(50)
        await store(client, "file", short)
        before = await must_head(client, "file")
        await store(client, "file", long, replace=before)
        after = await must_head(client, "file")
        assert after.tag.etag == before.tag.etag
        assert await fetch(client, after) == long
        with pytest.raises(ConflictOnRemoteError):
            await store(client, "file", b"B", replace=before)
        with pytest.raises(ConflictOnRemoteError):
            await delete(client, path("file"), before.tag)
        assert await fetch(client, await must_head(client, "file")) == long

    run(pithos, scenario)


@pytest.mark.parametrize("data", [bytes(5), bytes(3 * BLOCK), b"A" * BLOCK + bytes(BLOCK) + b"B", bytes(BLOCK) + b"C"])
def test_zero_blocks_travel_as_nothing(remote: Subject, data: bytes) -> None:
    async def scenario(client: Remote) -> None:
        await store(client, "sparse", data)
        stat = await must_head(client, "sparse")
        blocks = await list_of(client, stat)
        before = client.counters.snapshot()
        assert await fetch(client, stat) == data
        received = client.counters.since(before)
        assert received.blocks_received == sum(name != ZERO_BLOCK for name in blocks)

    run(remote, scenario)


def test_only_missing_blocks_are_sent(pithos: Subject) -> None:
    async def scenario(client: Remote) -> None:
        data = content(1, 20 * BLOCK)
        await store(client, "first", data)
        changed = data[: 5 * BLOCK] + content(2, BLOCK) + data[6 * BLOCK :]
        before = client.counters.snapshot()
        await store(client, "second", changed)
        assert client.counters.since(before).blocks_sent == 1
        before = client.counters.snapshot()
        await store(client, "copy", data)
        assert client.counters.since(before).blocks_sent == 0

    run(pithos, scenario)


def test_what_was_sent_ahead_does_not_travel_again(pithos: Subject) -> None:
    async def scenario(client: Remote) -> None:
        known, unknown, other = content(1, BLOCK), content(2, BLOCK), content(3, BLOCK)
        for _ in range(2):
            await client.send({block_id(known): known})
        assert client.counters.blocks_sent == 1
        await store(client, "file", unknown + known + other + unknown)
        assert client.counters.blocks_sent == 3

    run(pithos, scenario)


@pytest.mark.parametrize("ahead", [True, False], ids=["there", "collected"])
def test_a_small_file_that_was_sent_ahead_is_made_of_what_is_there(remote: Subject, ahead: bool) -> None:
    async def scenario(client: Remote) -> None:
        data = content(1, 99)
        if ahead:
            await client.send({block_id(data): data})
        order = replace(store_order(path("file"), Kind.FILE, data, META), sent=True)
        made = made_of(await write_one(client, order, Shelf([data])))
        assert client.counters.blocks_sent == 1
        assert await fetch(client, await must_head(client, "file")) == data
        assert (await must_head(client, "file")).tag == made.tag

    run(remote, scenario)


def test_blocks_are_stored_under_their_ids_in_any_form(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        if not isinstance(client, PithosClient):
            return
        blocks = [content(1, BLOCK), b"", b"short", b"padded" + bytes(100), content(2, 10), bytes(BLOCK)]
        assert await client.uploads.put_blocks(blocks) == [block_id(block) for block in blocks]
        assert await client.uploads.put_blocks([b""]) == [ZERO_BLOCK]

    run(remote, scenario)


def test_old_versions_stay_readable_while_they_are_replaced(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        old, new = content(1, 5 * BLOCK), content(2, 6 * BLOCK)
        await store(client, "file", old)
        before = await must_head(client, "file")
        await store(client, "file", new, replace=before)
        assert await fetch(client, before) == old
        assert await fetch(client, await must_head(client, "file")) == new

    run(remote, scenario)


def test_uuid_stays_through_updates_and_moves(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        data = content(1, 3 * BLOCK)
        first = await store(client, "a/file", data)
        second = await store(client, "a/file", data + b"!", replace=await must_head(client, "a/file"))
        before = client.counters.snapshot()
        third = await move(client, path("a/file"), path("b/other"), second.tag)
        assert client.counters.since(before).blocks_sent == 0
        assert first.tag.uuid == second.tag.uuid == third.tag.uuid != ""
        assert first.tag.version < second.tag.version < third.tag.version
        assert await head(client, path("a/file")) is None
        moved = await must_head(client, "b/other")
        assert moved.tag == third.tag
        assert moved.meta == META
        assert await fetch(client, moved) == data + b"!"

    run(remote, scenario)


def test_a_create_does_not_replace(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        await store(client, "file", b"first")
        with pytest.raises(ConflictOnRemoteError):
            await store(client, "file", b"second")
        with pytest.raises(ConflictOnRemoteError):
            await store(client, "file", content(1, 2 * BLOCK))
        assert await fetch(client, await must_head(client, "file")) == b"first"

    run(remote, scenario)


def test_a_stale_expectation_changes_nothing(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        await store(client, "file", b"one")
        stale = await must_head(client, "file")
        await store(client, "file", b"two", replace=stale)
        current = await must_head(client, "file")
        with pytest.raises(ConflictOnRemoteError):
            await store(client, "file", b"three", replace=stale)
        with pytest.raises(ConflictOnRemoteError):
            await store(client, "file", content(3, 3 * BLOCK), replace=stale)
        with pytest.raises(ConflictOnRemoteError):
            await move(client, path("file"), path("elsewhere"), stale.tag)
        with pytest.raises(ConflictOnRemoteError):
            await set_meta(client, path("file"), meta_of(0o600), stale.tag)
        with pytest.raises(ConflictOnRemoteError):
            await delete(client, path("file"), stale.tag)
        assert await must_head(client, "file") == current
        assert await head(client, path("elsewhere")) is None

    run(remote, scenario)


def test_what_is_gone_can_not_be_changed(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        await store(client, "file", b"data")
        gone = await must_head(client, "file")
        await delete(client, path("file"), gone.tag)
        with pytest.raises(ConflictOnRemoteError):
            await store(client, "file", b"new", replace=gone)
        with pytest.raises(ConflictOnRemoteError):
            await move(client, path("file"), path("other"), gone.tag)
        with pytest.raises(ConflictOnRemoteError):
            await set_meta(client, path("file"), meta_of(0o600), gone.tag)
        assert (await client.list_objects()).objects == []

    run(remote, scenario)


def test_deleting_twice_is_fine_and_a_new_life_has_a_new_uuid(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        first = await store(client, "file", b"data")
        await delete(client, path("file"), first.tag)
        await delete(client, path("file"), first.tag)
        assert await head(client, path("file")) is None
        second = await store(client, "file", b"data")
        assert second.tag.uuid != first.tag.uuid
        assert second.foreign == ()
        with pytest.raises(ConflictOnRemoteError):
            await delete(client, path("file"), first.tag)

    run(remote, scenario)


def test_a_move_does_not_replace_its_target(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        moving = await store(client, "moving", b"moving")
        await store(client, "taken", b"taken")
        with pytest.raises(ConflictOnRemoteError):
            await move(client, path("moving"), path("taken"), moving.tag)
        assert await fetch(client, await must_head(client, "moving")) == b"moving"
        assert await fetch(client, await must_head(client, "taken")) == b"taken"

    run(remote, scenario)


def test_metadata_change_without_content(pithos: Subject) -> None:
    async def scenario(client: Remote) -> None:
        data = content(1, 3 * BLOCK)
        made = await store(client, "file", data)
        before = client.counters.snapshot()
        meta = meta_of(0o755, mtime_ns=-5, xattrs=((b"one", b"1"),))  # fewer than before
        done = await set_meta(client, path("file"), meta, made.tag)
        assert client.counters.since(before).bytes_sent == 0
        stat = await must_head(client, "file")
        assert (stat.tag, stat.meta) == (done.tag, meta)
        assert done.tag.version > made.tag.version
        assert await fetch(client, stat) == data

    run(pithos, scenario)


def test_an_attribute_that_is_too_large_to_travel_is_not_on_the_server(remote: Subject) -> None:
    """A client may know of it, without its value; what comes back must not look like a value, or like a removal."""
    large = meta_of(0o755, xattrs=((b"big", None), (b"small", b"1")))

    async def scenario(client: Remote) -> None:
        made = await put_small(client, path("folder"), Kind.DIRECTORY, b"", large, None)
        assert (await must_head(client, "folder")).meta == meta_of(0o755, xattrs=((b"small", b"1"),))
        await set_meta(client, path("folder"), meta_of(0o755, xattrs=((b"big", None),)), made.tag)
        assert (await must_head(client, "folder")).meta == meta_of(0o755, xattrs=())

    run(remote, scenario)


def test_metadata_survive_a_new_content(remote: Subject) -> None:
    """Pithos drops metadata that a PUT does not send again."""

    async def scenario(client: Remote) -> None:
        await store(client, "file", content(1, 2 * BLOCK))
        await store(client, "file", content(2, 2 * BLOCK), replace=await must_head(client, "file"))
        assert (await must_head(client, "file")).meta == META

    run(remote, scenario)


def test_directories_and_symlinks_keep_their_kinds(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        made = await put_small(client, path("folder"), Kind.DIRECTORY, b"", meta_of(0o750), None)
        await put_small(client, path("link"), Kind.SYMLINK, b"../target \xff", Meta(), None)
        folder = await must_head(client, "folder")
        assert (folder.kind, folder.content, folder.target, folder.tag) == (Kind.DIRECTORY, None, None, made.tag)
        assert folder.meta == meta_of(0o750)
        link = await must_head(client, "link")
        assert (link.kind, link.content, link.target) == (Kind.SYMLINK, None, b"../target \xff")
        moved = await move(client, path("link"), path("folder/link"), link.tag)
        assert await must_head(client, "folder/link") == await resolved(client, await must_head(client, "folder/link"))
        await delete(client, path("folder/link"), moved.tag)
        await delete(client, path("folder"), made.tag)
        assert (await client.list_objects()).objects == []

    run(remote, scenario)


def test_the_listing_is_complete_sorted_and_resolvable(pithos: Subject) -> None:
    async def scenario(client: Remote) -> None:
        names = [f"d{index % 3}/f{index:02}" for index in range(23)] + ["d1", "Ünïcode ✓/%2F", "link", "z~!'()*+,;=:@"]
        for name in names:
            if name == "link":
                await put_small(client, path(name), Kind.SYMLINK, b"target", Meta(), None)
            else:
                await store(client, name, name.encode())
        listing = await client.list_objects()
        assert [stat.path for stat in listing.objects] == sorted(name.encode() for name in names)
        assert listing.refused == []
        for stat in listing.objects:
            assert await resolved(client, stat) == await head(client, stat.path)
        assert listing.info == await client.open()

    run(pithos, scenario)


def test_parked_objects_are_listed_and_other_reserved_names_are_not_taken(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        made = await store(client, "file", b"data")
        parked = await move(client, path("file"), path(".blocksync/park/7-file"), made.tag)
        assert [stat.path for stat in (await client.list_objects()).objects] == [b".blocksync/park/7-file"]
        await move(client, path(".blocksync/park/7-file"), path("back"), parked.tag)
        assert [stat.path for stat in (await client.list_objects()).objects] == [b"back"]

    run(remote, scenario)


@pytest.mark.parametrize(
    "name", [b"../x", b"a/../b", b"/abs", b"a//b", b"a/", b"a\0b", b"a\nb", b"caf\xe9", b"x" * 2000]
)
def test_names_that_the_remote_can_not_hold_are_refused_before_any_request(pithos: Subject, name: bytes) -> None:
    if pithos.name == "memory":
        return  # its names never travel

    async def scenario(client: Remote) -> None:
        where = path("ok")
        made = await store(client, "ok", b"data")
        before = client.counters.snapshot()
        bad = type(where)(name)
        with pytest.raises(UnsafeNameError):
            await put_small(client, bad, Kind.FILE, b"data", META, None)
        with pytest.raises(UnsafeNameError):
            await move(client, where, bad, made.tag)
        with pytest.raises(UnsafeNameError):
            await client.secret(bad, 1)
        assert client.counters.since(before).requests == 0

    run(pithos, scenario)


WRITES: dict[str, Callable[[Remote, RemoteStat], Awaitable[Made | None]]] = {
    "create small": lambda client, made: store(client, "new", b"new"),
    "create large": lambda client, made: store(client, "new", content(7, 3 * BLOCK)),
    "create directory": lambda client, made: put_small(client, path("new"), Kind.DIRECTORY, b"", meta_of(0o700), None),
    "replace": lambda client, made: store(client, "file", content(8, 2 * BLOCK), replace=made),
    "same content again": lambda client, made: store(client, "file", content(9, 2 * BLOCK), replace=made),
    "move": lambda client, made: move(client, path("file"), path("new"), made.tag),
    "delete": lambda client, made: delete(client, path("file"), made.tag),
    "metadata": lambda client, made: set_meta(client, path("file"), meta_of(0o600, mtime_ns=1), made.tag),
}


@pytest.mark.parametrize("loss", [Loss.BEFORE, Loss.AFTER, Loss.STATUS], ids=lambda loss: loss.value)
@pytest.mark.parametrize("write", WRITES)
def test_a_lost_message_neither_loses_nor_repeats_a_write(remote: Subject, write: str, loss: Loss) -> None:
    """Every message of the write is lost once, in turn: the end is as if none had been."""
    if not isinstance(remote, FakeRemote | ServeRemote):
        return  # the memory has no messages

    async def once(place: int | None) -> tuple[int, list[object]]:
        remote.new_container()
        client, transport = through(remote, LossyTransport)
        await client.open(create=True)
        await store(client, "file", content(9, 2 * BLOCK))
        made = await must_head(client, "file")
        transport.lose(loss, place)
        result = await WRITES[write](client, made)
        sent = transport.sent
        if isinstance(result, Made):
            where = "file" if write in {"replace", "same content again", "metadata"} else "new"
            assert (await must_head(client, where)).tag == result.tag
            assert result.foreign == ()
        listing = await client.list_objects()
        # Versions relative to the first one: a repeated write would have used up another serial.
        final: list[object] = [
            (
                stat.path,
                stat.kind,
                stat.content,
                (await resolved(client, stat)).meta,
                stat.tag.version - made.tag.version,
            )
            for stat in listing.objects
        ]
        await client.close()
        return sent, final

    async def main() -> None:
        sent, undisturbed = await once(None)
        for place in range(sent):
            assert (await once(place))[1] == undisturbed, f"message {place} lost"

    trio.run(main)


def test_two_devices_see_each_other(pithos: Subject) -> None:
    async def scenario(first: Remote) -> None:
        second = pithos.client()
        await store(first, "file", b"from the first")
        (seen,) = (await second.list_objects()).objects
        await store(second, "file", b"from the second", replace=seen)
        with pytest.raises(ConflictOnRemoteError):
            await store(first, "file", b"again", replace=seen)
        assert await fetch(first, await must_head(first, "file")) == b"from the second"
        assert (await first.open()).identity == (await second.open()).identity
        await second.close()

    run(pithos, scenario)


@pytest.mark.parametrize("first", [True, False], ids=["create", "replace"])
def test_of_several_writers_with_one_expectation_exactly_one_wins(remote: Subject, first: bool) -> None:
    """On a plain Pithos all may win; then each but the first is told whom it replaced (see test_pithos_quirks)."""
    if remote.name == "fake":
        return

    async def scenario(client: Remote) -> None:
        base = None
        if not first:
            await store(client, "file", b"base")
            base = await must_head(client, "file")
        won: list[int] = []

        async def write(number: int) -> None:
            with contextlib.suppress(ConflictOnRemoteError):
                await store(client, "file", b"writer %d" % number, replace=base)
                won.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(write, number)
        (winner,) = won
        assert await fetch(client, await must_head(client, "file")) == b"writer %d" % winner

    run(remote, scenario)


def test_on_our_server_each_small_write_is_one_request(remote: Subject) -> None:
    if remote.name != "serve":
        return

    async def scenario(client: Remote) -> None:
        async def cost(write: Awaitable[Made | None]) -> tuple[Made | None, int]:
            before = client.counters.snapshot()
            result = await write
            return result, client.counters.since(before).requests

        made, spent = await cost(store(client, "file", b"data"))
        assert made is not None
        assert spent == 1
        changed, spent = await cost(set_meta(client, path("file"), meta_of(0o600), made.tag))
        assert changed is not None
        assert spent == 1
        moved, spent = await cost(move(client, path("file"), path("moved"), changed.tag))
        assert moved is not None
        assert spent == 1
        assert (await cost(delete(client, path("moved"), moved.tag)))[1] == 1
        large = content(1, 3 * BLOCK)
        assert (await cost(store(client, "large", large)))[1] == 3
        assert (await cost(store(client, "copy", large)))[1] == 1

    run(remote, scenario)


def test_the_serial_of_the_container_never_sinks(remote: Subject) -> None:
    """What rollback detection rests on: a deletion raises it, too."""

    async def scenario(client: Remote) -> None:
        made = await store(client, "file", b"data")
        after_create = (await client.list_objects()).position
        await delete(client, path("file"), made.tag)
        after_delete = (await client.list_objects()).position
        is_later = client.ages.is_later
        assert not is_later(made.tag, after_create)
        assert not is_later(after_create, after_delete)
        # Plain Pithos does not tell.
        assert is_later(after_delete, after_create) == is_later(after_delete, made.tag) == (remote.name != "fake")

    run(remote, scenario)


def test_an_unknown_container_is_not_found(pithos: Subject) -> None:
    async def scenario(client: Remote) -> None:
        pithos.new_container()
        other = pithos.client()
        with pytest.raises(NotFoundError):
            await other.open()
        with pytest.raises(NotFoundError):
            await other.list_objects()
        await other.open(create=True)
        await other.open(create=True)
        assert (await other.list_objects()).objects == []
        assert (await other.open()).grid.block_size == BLOCK
        await other.close()

    run(pithos, scenario)


def test_a_file_that_changes_while_it_is_sent_does_not_become_visible(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        parts = [content(1, BLOCK), content(2, 99)]
        ids = b"".join(block_id(part) for part in parts)
        blocks = BlockList(block_size=BLOCK, size_bytes=BLOCK + 99, ids=ids)

        held = InMemory(blocks, {0: parts[0], 1: b"changed"})
        with pytest.raises(LocalChangedError):
            await write_one(client, Store(path=path("file"), kind=Kind.FILE, meta=META, content=held.content), held)
        assert await head(client, path("file")) is None

    run(remote, scenario)


def test_single_blocks_are_read_by_index(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        data = content(1, 10 * BLOCK + 9)
        await store(client, "file", data)
        stat = await must_head(client, "file")
        blocks = await list_of(client, stat)
        seen = await fetch_blocks(client, stat, blocks, [10])
        assert seen == {10: data[10 * BLOCK :].rstrip(b"\0")}
        seen = await fetch_blocks(client, stat, blocks, [9, 2, 4, 3])
        assert seen == {at: data[at * BLOCK : (at + 1) * BLOCK].rstrip(b"\0") for at in (2, 3, 4, 9)}

    run(remote, scenario)


def test_separated_blocks_are_read_by_one_request(pithos: Subject) -> None:
    async def scenario(client: Remote) -> None:
        data = content(1, 40 * BLOCK + 9)
        await store(client, "file", data)
        stat = await must_head(client, "file")
        blocks = await list_of(client, stat)
        before = client.counters.snapshot()
        wanted = [*range(0, 39, 2), 40]
        seen = await fetch_blocks(client, stat, blocks, wanted)
        if pithos.name != "memory":
            assert client.counters.since(before).requests == 1
        assert seen == {at: data[at * BLOCK : (at + 1) * BLOCK].rstrip(b"\0") for at in wanted}

    run(pithos, scenario)


def test_looking_changes_nothing(remote: Subject) -> None:
    """An idle cycle must cost no mutating request."""

    async def scenario(client: Remote) -> None:
        await store(client, "file", content(1, 2 * BLOCK))
        before = client.counters.snapshot()
        for stat in (await client.list_objects()).objects:
            await fetch(client, await resolved(client, stat))
        assert client.counters.since(before).mutating_requests == 0

    run(remote, scenario)


def test_a_moment_is_another_after_a_change_and_the_same_without(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        before = await client.wait(None)
        assert await client.wait(None) == before == (await client.list_objects()).position
        await store(client, "a", content(1, BLOCK))
        now = await client.wait(None)
        assert now == (await client.list_objects()).position != before
        found = await client.changes(before)
        assert found is None or found.position == now

    run(remote, scenario)


def test_our_servers_count_is_exact_and_a_listing_that_has_less_is_refused(
    serve: ServeRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is between may have lost rows: they must not look like deletions."""
    all_rows = Judge.rows

    async def scenario(client: Remote) -> None:
        for name in ("a", "b"):
            await store(client, name, b"data")
        assert len((await client.list_objects()).objects) == 2
        monkeypatch.setattr(Judge, "rows", lambda judge, reply: all_rows(judge, reply)[:1])
        with pytest.raises(BadReplyError, match="more objects than the 1 that its listing names"):
            await client.list_objects()

    run(serve, scenario)


def test_a_listing_without_an_end_is_refused(serve: ServeRemote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it fills the memory of whoever lists."""
    all_rows = Judge.rows

    async def scenario(client: Remote) -> None:
        await store(client, "a", b"data")
        pages, known = itertools.count(), list[ObjectRow]()

        def endless(judge: Judge, reply: Reply) -> list[ObjectRow]:
            known.extend(all_rows(judge, reply))
            page = next(pages)
            assert page < 20  # two of each try: a container that was just written may look changed once
            return [replace(known[0], name=f"b{page}-{at}") for at in range(MAX_ROWS)]

        monkeypatch.setattr(Judge, "rows", endless)
        with pytest.raises(BadReplyError, match="lists more objects than the 1 that it says it has"):
            await client.list_objects()

    run(serve, scenario)
