"""The Pithos client against a server that behaves as badly as Synnefo's can: races, faults, wrong answers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from blockfs.blocks.hashing import block_id
from syncer.core.model import Kind, Meta
from syncer.errors import (
    ConflictOnRemoteError,
    CorruptionError,
    RemoteUnavailableError,
)
from syncer.protocol.pithos.headers import encode_meta
from syncer.remote.http.transport import BadReplyError
from syncer.remote.pithos.client import PithosClient
from tests.contract.remotes import (
    BLOCK,
    META,
    FakeRemote,
    box,
    fetch,
    intrude_and_drop,
    list_of,
    must_head,
    path,
    play,
    read_block,
    resolved,
    store,
    write,
)
from tests.contract.writing import Made, New, delete, make_all, move, put_small, set_meta
from tests.fakes.pithos import Fault, FaultKind


def content(seed: int, size: int) -> bytes:
    return hashlib.shake_128(b"quirk %d" % seed).digest(size)


# --- races that Synnefo's conditions do not prevent


@pytest.mark.parametrize("mine", [b"mine", content(1, 3 * BLOCK)], ids=["small", "large"])
def test_an_update_that_slipped_in_is_reported_and_readable(synnefo: FakeRemote, mine: bytes) -> None:
    async def scenario(client: PithosClient) -> None:
        await store(client, "file", b"base")
        base = await must_head(client, "file")
        if len(mine) > BLOCK:
            await client.uploads.put_blocks([mine[at : at + BLOCK] for at in range(0, len(mine), BLOCK)])
        synnefo.server.store.between = lambda name: write(synnefo, name, b"theirs")
        done = await store(client, "file", mine, replace=base)
        (foreign,) = done.foreign
        assert (foreign.path, foreign.kind) == (b"file", Kind.FILE)
        blocks = await list_of(client, foreign)
        assert await read_block(client, foreign, blocks, 0) == b"theirs"
        assert await fetch(client, await must_head(client, "file")) == mine

    play(synnefo, scenario)


def test_a_create_that_slipped_in_is_reported(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        synnefo.server.store.between = lambda name: write(synnefo, name, b"theirs")
        done = await store(client, "file", b"mine")
        (foreign,) = done.foreign
        assert foreign.tag.etag == block_id(b"theirs").hex()
        assert foreign.tag.version < done.tag.version

    play(synnefo, scenario)


def small_files(count: int) -> list[New]:
    return [New(path=path(f"d/{number:03}"), kind=Kind.FILE, data=b"%d" % number, meta=META) for number in range(count)]


async def expect_made(client: PithosClient, orders: list[New], results: list[Made | Exception]) -> None:
    for order, result in zip(orders, results, strict=True):
        assert isinstance(result, Made)
        assert result.tag == (await must_head(client, order.path.decode())).tag


def test_most_of_many_small_files_take_one_request_each(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        orders = small_files(300)
        await client.open()
        before = client.counters.snapshot()
        results = await make_all(client, orders)
        assert client.counters.since(before).requests < 300 + 20  # the first ones can't know who else writes; a listing
        assert client.counters.since(before).blocks_sent == 300
        await expect_made(client, orders, results)

    play(synnefo, scenario)


@pytest.mark.parametrize("victims", [1, 40])
def test_of_many_creates_one_that_slipped_in_is_reported(synnefo: FakeRemote, victims: int) -> None:
    async def scenario(client: PithosClient) -> None:
        orders = small_files(100)
        names = {order.path.decode() for order in orders[-victims:]}

        def between(name: str) -> None:
            if name in names:
                write(synnefo, name, b"theirs")
            synnefo.server.store.between = between  # it is called once

        synnefo.server.store.between = between
        results = await make_all(client, orders)
        await expect_made(client, orders, results)
        foreign = [each.path for result in results if isinstance(result, Made) for each in result.foreign]
        assert foreign == [order.path for order in orders[-victims:]]

    play(synnefo, scenario)


@pytest.mark.parametrize("kind", [FaultKind.DROP_BEFORE, FaultKind.DROP_AFTER, FaultKind.STATUS_AFTER])
@pytest.mark.parametrize("target", ["/d", "limit="])
def test_many_creates_are_made_once_whatever_is_lost(synnefo: FakeRemote, kind: FaultKind, target: str) -> None:
    async def scenario(client: PithosClient) -> None:
        orders = small_files(50)
        await client.open()
        synnefo.server.inject(Fault(kind, containing=target, times=5))
        results = await make_all(client, orders)
        synnefo.server.clear_faults()
        await expect_made(client, orders, results)
        assert all(len(versions) == 1 for versions in box(synnefo).history.values())

    play(synnefo, scenario)


def test_many_creates_among_names_of_others(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        orders = small_files(40)
        for number in range(1000):
            write(synnefo, f"d/{number % 10:03}-{number}", b"")
        results = await make_all(client, orders)
        await expect_made(client, orders, results)

    play(synnefo, scenario)


def test_an_earlier_life_of_a_name_is_no_foreign_version(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        write(synnefo, "file", b"earlier")
        synnefo.server.store.delete(box(synnefo), "file")
        assert (await store(client, "file", b"mine")).foreign == ()

    play(synnefo, scenario)


def test_a_change_between_check_and_delete_is_put_back(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"base")
        synnefo.server.store.between = lambda name: write(synnefo, name, b"theirs")
        with pytest.raises(ConflictOnRemoteError):
            await delete(client, path("file"), made.tag)
        assert await fetch(client, await must_head(client, "file")) == b"theirs"
        assert list(box(synnefo).live()) == ["file"]

    play(synnefo, scenario)


def test_appended_nuls_between_check_and_delete_are_put_back(synnefo: FakeRemote) -> None:
    """If-Match can't see them: only the size of what was moved away tells."""

    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"base")
        synnefo.server.store.between = lambda name: write(synnefo, name, b"base" + bytes(9))
        with pytest.raises(ConflictOnRemoteError):
            await delete(client, path("file"), made.tag)
        assert await fetch(client, await must_head(client, "file")) == b"base" + bytes(9)

    play(synnefo, scenario)


def test_what_can_not_go_back_to_its_name_goes_beside_it(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"base")

        def intrude(name: str) -> None:
            write(synnefo, name, b"theirs")
            synnefo.server.inject(Fault(FaultKind.STATUS_BEFORE, method="PUT", containing="/file", status=412))

        synnefo.server.store.between = intrude
        with pytest.raises(ConflictOnRemoteError):
            await delete(client, path("file"), made.tag)
        (name,) = box(synnefo).live()
        assert name.startswith("file (recovered ")
        assert await fetch(client, await must_head(client, name)) == b"theirs"

    play(synnefo, scenario)


def test_a_target_that_appeared_during_a_move_is_reported(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"moving")
        synnefo.server.store.between = lambda _name: write(synnefo, "target", b"theirs")
        done = await move(client, path("file"), path("target"), made.tag)
        (foreign,) = done.foreign
        blocks = await list_of(client, foreign)
        assert await read_block(client, foreign, blocks, 0) == b"theirs"
        assert await fetch(client, await must_head(client, "target")) == b"moving"

    play(synnefo, scenario)


def test_a_source_that_changed_during_a_move_is_a_conflict_and_stays_readable(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"moving")
        synnefo.server.store.between = lambda name: write(synnefo, name, b"theirs")
        with pytest.raises(ConflictOnRemoteError):
            await move(client, path("file"), path("target"), made.tag)
        assert await fetch(client, await must_head(client, "target")) == b"theirs"

    play(synnefo, scenario)


def test_a_lost_write_is_not_mistaken_for_anothers_with_the_same_hash(synnefo: FakeRemote) -> None:
    """Only the trailing NULs tell them apart."""

    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"base")
        base = await must_head(client, "file")
        items = {f"x-object-meta-{key}": value for key, value in encode_meta(META).items()}
        theirs = b"mine" + bytes(3)

        def intrude() -> None:
            synnefo.server.store.put_body(box(synnefo), "file", theirs, "application/octet-stream", items)

        intrude_and_drop(synnefo, "PUT", intrude)
        with pytest.raises(ConflictOnRemoteError):
            await store(client, "file", b"mine", replace=base)
        assert await fetch(client, await must_head(client, "file")) == theirs
        assert made.tag == base.tag

    play(synnefo, scenario)


def test_a_lost_metadata_change_is_not_mistaken_for_anothers(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"data")
        theirs = {"x-object-meta-mode": "600"}

        def intrude() -> None:
            synnefo.server.store.change_meta(box(synnefo), "file", theirs, update=True)

        intrude_and_drop(synnefo, "POST", intrude)
        with pytest.raises(ConflictOnRemoteError):
            await set_meta(client, path("file"), Meta(mode=0o755), made.tag)
        assert (await must_head(client, "file")).meta == replace(META, mode=0o600)

    play(synnefo, scenario)


# --- deletions that a crash left half done


def test_a_half_done_deletion_is_finished_by_the_next_listing(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"base")
        synnefo.server.inject(Fault(FaultKind.STATUS_BEFORE, method="DELETE", times=100))
        with pytest.raises(RemoteUnavailableError):
            await delete(client, path("file"), made.tag)
        (hidden,) = box(synnefo).live()
        assert hidden.startswith(".blocksync/trash/")
        synnefo.server.clear_faults()
        assert (await client.list_objects()).objects == []
        assert not box(synnefo).live()

    play(synnefo, scenario)


def test_a_foreign_version_in_the_hidden_trash_comes_back(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        await store(client, "folder/file", b"base")
        base = await must_head(client, "folder/file")
        write(synnefo, "folder/file", b"theirs")
        hidden = f".blocksync/trash/{base.tag.uuid}.{base.tag.size_bytes}.{base.tag.etag}/folder/file"
        synnefo.server.store.move(box(synnefo), "folder/file", hidden)
        await client.list_objects()
        assert [stat.path for stat in (await client.list_objects()).objects] == [b"folder/file"]
        assert await fetch(client, await must_head(client, "folder/file")) == b"theirs"

    play(synnefo, scenario)


def test_other_reserved_names_are_neither_listed_nor_touched(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        for name in (".blocksync/other", ".blocksync/trash/unknown", f".blocksync/trash/u.1.{'0' * 64}"):
            write(synnefo, name, b"?")
        before = sorted(box(synnefo).live())
        listing = await client.list_objects()
        assert (listing.objects, listing.refused) == ([], [])
        assert sorted(box(synnefo).live()) == before

    play(synnefo, scenario)


# --- names and kinds that we don't take


def test_unsafe_names_are_refused_one_by_one_and_the_rest_is_listed(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        unsafe = ["../x", "a/../b", "./a", "/lead", "trail/", "a//b", "nul\0", "bell\a", "\x85", "x" * 256, ".."]
        for name in [*unsafe, "fine"]:
            write(synnefo, name, b"data")
        listing = await client.list_objects()
        assert [stat.path for stat in listing.objects] == [b"fine"]
        assert sorted(refused.name for refused in listing.refused) == sorted(unsafe)
        assert all(refused.reason for refused in listing.refused)

    play(synnefo, scenario)


def test_objects_that_contradict_their_type_are_refused(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        write(synnefo, "folder", b"content", "application/directory")
        write(synnefo, "link", b"x" * 4096, "application/x-symlink")
        write(synnefo, "empty link", b"", "application/x-symlink")
        write(synnefo, "old folder", b"", "application/folder; charset=utf-8")
        listing = await client.list_objects()
        assert [(stat.path, stat.kind) for stat in listing.objects] == [(b"old folder", Kind.DIRECTORY)]
        assert sorted(refused.name for refused in listing.refused) == ["empty link", "folder", "link"]

    play(synnefo, scenario)


# --- wrong bytes


@pytest.mark.parametrize("kind", [FaultKind.WRONG_BYTES, FaultKind.TRUNCATE, FaultKind.DROP_AFTER])
def test_a_damaged_block_is_fetched_again(synnefo: FakeRemote, kind: FaultKind) -> None:
    async def scenario(client: PithosClient) -> None:
        data = content(1, 5 * BLOCK)
        await store(client, "file", data)
        stat = await must_head(client, "file")
        synnefo.server.inject(Fault(kind, method="GET", containing="/file?version", times=2))
        assert await fetch(client, stat) == data

    play(synnefo, scenario)


def test_a_reply_that_is_longer_than_asked_for_is_not_read_to_its_end(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        await store(client, "file", content(1, 50 * BLOCK))
        stat = await must_head(client, "file")
        blocks = await list_of(client, stat)
        synnefo.server.inject(Fault(FaultKind.WHOLE_OBJECT, method="GET"))
        with pytest.raises(BadReplyError, match="longer than 4096 bytes"):
            await read_block(client, stat, blocks, 3)
        assert await read_block(client, stat, blocks, 3)

    play(synnefo, scenario)


def test_a_whole_object_for_a_range_that_is_all_of_it_is_fine(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        data = content(1, 5 * BLOCK)
        await store(client, "file", data)
        stat = await must_head(client, "file")
        synnefo.server.inject(Fault(FaultKind.WHOLE_OBJECT, method="GET", containing="/file?version"))
        assert await fetch(client, stat) == data

    play(synnefo, scenario)


def test_a_block_that_stays_wrong_is_corruption(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        await store(client, "file", content(1, 5 * BLOCK))
        stat = await must_head(client, "file")
        synnefo.server.inject(Fault(FaultKind.WRONG_BYTES, method="GET", containing="/file?version", times=100))
        with pytest.raises(CorruptionError, match="block 0"):
            await fetch(client, stat)
        synnefo.server.clear_faults()

    play(synnefo, scenario)


def test_a_wrong_hashmap_is_asked_for_again_and_never_believed(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        data = content(1, 5 * BLOCK)
        await store(client, "file", data)
        stat = await must_head(client, "file")
        synnefo.server.inject(Fault(FaultKind.WRONG_HASHMAP, method="GET", containing="hashmap", times=1))
        assert await fetch(client, stat) == data
        synnefo.server.inject(Fault(FaultKind.WRONG_HASHMAP, method="GET", containing="hashmap", times=100))
        with pytest.raises(CorruptionError, match="does not belong"):
            await fetch(client, stat)
        synnefo.server.clear_faults()

    play(synnefo, scenario)


def test_content_is_read_at_its_version_while_others_replace_it(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        data = content(1, 3 * BLOCK)
        await store(client, "file", data)
        stat = await must_head(client, "file")
        blocks = await list_of(client, stat)
        write(synnefo, "file", content(2, 3 * BLOCK))
        assert await read_block(client, stat, blocks, 1) == data[BLOCK : 2 * BLOCK].rstrip(b"\0")

    play(synnefo, scenario)


def test_a_version_that_is_gone_is_a_conflict(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        await store(client, "file", content(1, 3 * BLOCK))
        stat = await must_head(client, "file")
        blocks = await list_of(client, stat)
        del box(synnefo).history["file"]
        with pytest.raises(ConflictOnRemoteError):
            await list_of(client, stat)
        with pytest.raises(ConflictOnRemoteError):
            await read_block(client, stat, blocks, 0)

    play(synnefo, scenario)


def test_blocks_that_vanish_are_sent_again(synnefo: FakeRemote) -> None:
    """A second 409 after the POSTs is possible; a server that keeps nothing ends in a clear error."""

    async def scenario(client: PithosClient) -> None:
        data = content(1, 4 * BLOCK)
        synnefo.server.inject(Fault(FaultKind.FORGET_BLOCKS, method="POST"))
        await store(client, "file", data)
        assert await fetch(client, await must_head(client, "file")) == data
        synnefo.server.inject(Fault(FaultKind.FORGET_BLOCKS, method="POST", times=100))
        with pytest.raises(BadReplyError, match="rounds"):
            await store(client, "other", content(2, 4 * BLOCK))
        synnefo.server.clear_faults()

    play(synnefo, scenario)


@pytest.mark.parametrize("kind", [FaultKind.EMPTY_BODY, FaultKind.WRONG_IDS])
def test_a_block_post_is_believed_only_with_the_right_ids(synnefo: FakeRemote, kind: FaultKind) -> None:
    async def scenario(client: PithosClient) -> None:
        synnefo.server.inject(Fault(kind, method="POST"))
        with pytest.raises(BadReplyError):
            await client.uploads.put_blocks([b"one", b"two"])

    play(synnefo, scenario)


def test_a_short_block_travels_without_padding(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        before = client.counters.snapshot()
        await client.uploads.put_blocks([b"short", content(1, BLOCK)])
        assert client.counters.since(before).bytes_sent == BLOCK + len(b"short")

    play(synnefo, scenario)


def test_a_server_with_md5_etags_is_understood(synnefo: FakeRemote) -> None:
    """PITHOS_UPDATE_MD5: ETag and conditions are MD5, content identity is X-Object-Hash."""

    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"one")
        assert made.tag.etag == block_id(b"one").hex()
        await store(client, "file", content(1, 2 * BLOCK), replace=await must_head(client, "file"))
        stat = await must_head(client, "file")
        await move(client, path("file"), path("moved"), stat.tag)
        await delete(client, path("moved"), (await must_head(client, "moved")).tag)
        assert not box(synnefo).live()

    synnefo.server.store.update_md5 = True
    try:
        play(synnefo, scenario)
    finally:
        synnefo.server.store.update_md5 = False


# --- listings


@pytest.fixture
def paged(synnefo: FakeRemote) -> Iterator[FakeRemote]:
    """Its listings come two objects a page."""
    limit, synnefo.server.listing_limit = synnefo.server.listing_limit, 2
    yield synnefo
    synnefo.server.listing_limit = limit


def test_a_listing_that_changes_between_its_pages_is_begun_anew(paged: FakeRemote) -> None:
    """A rename from a later to an earlier page would look like a deletion."""

    async def scenario(client: PithosClient) -> None:
        for name in "bcdef":
            write(paged, name, name.encode())
        moves = iter([("f", "a")])

        def between_pages(method: str, target: str) -> None:
            if "marker=" in target and (move := next(moves, None)):
                paged.server.store.move(box(paged), *move)

        paged.server.on_request = between_pages
        listing = await client.list_objects()
        assert [stat.path for stat in listing.objects] == [b"a", b"b", b"c", b"d", b"e"]

    try:
        play(paged, scenario)
    finally:
        paged.server.on_request = None


@pytest.mark.parametrize("kind", [FaultKind.TRUNCATE, FaultKind.DROP_AFTER, FaultKind.STATUS_BEFORE])
def test_a_broken_page_is_fetched_again_and_none_is_left_out(paged: FakeRemote, kind: FaultKind) -> None:
    async def scenario(client: PithosClient) -> None:
        for name in "abcde":
            write(paged, name, b"")
        paged.server.inject(Fault(kind, method="GET", containing="marker=d"))
        assert len((await client.list_objects()).objects) == 5

    play(paged, scenario)


def test_a_page_that_never_comes_is_an_error_and_no_listing(paged: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        for name in "abcde":
            write(paged, name, b"")
        paged.server.inject(Fault(FaultKind.STATUS_BEFORE, method="GET", containing="marker=d", times=100))
        with pytest.raises(RemoteUnavailableError):
            await client.list_objects()
        paged.server.clear_faults()

    play(paged, scenario)


@pytest.mark.parametrize("page", ["limit=", "marker=b", "marker=d"], ids=["first", "second", "third"])
def test_a_listing_that_ends_early_without_saying_so_is_begun_anew(paged: FakeRemote, page: str) -> None:
    """It would look like deletions of everything behind."""

    async def scenario(client: PithosClient) -> None:
        for name in "abcde":
            write(paged, name, b"")
        paged.server.inject(Fault(FaultKind.SHORT_LISTING, method="GET", containing=page))
        assert len((await client.list_objects()).objects) == 5

    play(paged, scenario)


def test_a_count_that_is_wrong_for_good_does_not_end_the_sync(paged: FakeRemote) -> None:
    """Synnefo keeps it beside the objects; a second listing that says the same is believed."""

    async def scenario(client: PithosClient) -> None:
        for name in "abc":
            write(paged, name, b"")
        paged.server.inject(Fault(FaultKind.SHORT_LISTING, method="GET", containing="marker=b", times=100))
        assert [stat.path for stat in (await client.list_objects()).objects] == [b"a", b"b"]
        paged.server.clear_faults()

    play(paged, scenario)


def test_metadata_of_a_listing_without_any_are_fetched_on_demand(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        await store(client, "file", b"data")
        await put_small(client, path("link"), Kind.SYMLINK, b"target", Meta(), None)
        file, link = (await client.list_objects()).objects
        assert (file.meta, link.target) == (None, None)
        assert (await resolved(client, file)).meta == META
        assert (await resolved(client, link)).target == b"target"

    play(synnefo, scenario)


def test_adjacent_blocks_come_by_one_request(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        data = content(1, 30 * BLOCK)
        await store(client, "file", data)
        stat = await must_head(client, "file")
        before = client.counters.snapshot()
        await fetch(client, stat)
        spent = client.counters.since(before)
        assert (spent.requests, spent.blocks_received) == (2, 30)
        assert spent.bytes_received >= len(data)

    play(synnefo, scenario)


def test_a_small_file_costs_one_writing_request(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        before = client.counters.snapshot()
        await store(client, "file", b"data")
        spent = client.counters.since(before)
        assert (spent.mutating_requests, spent.bytes_sent, spent.blocks_sent) == (1, 4, 1)

    play(synnefo, scenario)
