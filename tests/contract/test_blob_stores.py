"""What every object store keeps to: syncer/remote/stores/port.py."""

from __future__ import annotations

import hashlib
import time

import pytest
import trio
import trio.testing

from syncer.errors import CorruptionError, NotFoundError
from syncer.remote.stores.limited import LimitedStore
from syncer.remote.stores.port import BlobStore
from tests.contract.blobplaces import (
    KINDS,
    DirectoryPlace,
    MemoryPlace,
    Place,
    S3Place,
    SftpPlace,
    opened,
    place_of,
    within,
)

CONTENT = bytes(range(256)) * 300  # 75 KiB
PACK = hashlib.sha256(b"pack").digest() * (1 << 16)  # 2 MiB: more than is sent unasked


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return place_of(request.param, request, tmp_path_factory)


async def names(store: BlobStore, prefix: str = "") -> list[str]:
    return [blob.name for blob in await store.listing(prefix)]


def test_what_was_written_is_read_whole_and_in_ranges(place: Place) -> None:
    async def test(store: BlobStore) -> None:
        assert await store.put("packs/ab/one", CONTENT)
        assert await store.get("packs/ab/one") == CONTENT
        assert await store.get("packs/ab/one", (0, 1)) == CONTENT[:1]
        assert await store.get("packs/ab/one", (1000, 70_000)) == CONTENT[1000:71_000]
        assert await store.get("packs/ab/one", (len(CONTENT) - 5, 5)) == CONTENT[-5:]
        assert await store.get("packs/ab/one", (0, len(CONTENT))) == CONTENT

    within(place, test)


def test_an_empty_object_is_one(place: Place) -> None:
    async def test(store: BlobStore) -> None:
        assert await store.put("empty", b"")
        assert await store.get("empty") == b""
        found = await store.head("empty")
        assert found is not None
        assert found.size_bytes == 0
        assert await names(store) == ["empty"]

    within(place, test)


def test_pieces_are_one_object(place: Place) -> None:
    async def test(store: BlobStore) -> None:
        await store.put("one", [b"ab", b"", b"cd" * 1000, b"e"])
        assert await store.get("one") == b"ab" + b"cd" * 1000 + b"e"
        await store.put("large", [PACK, PACK], absent=True)
        assert await store.get("large") == PACK + PACK

    within(place, test)


def test_a_range_beyond_the_end_is_an_error_and_never_a_short_answer(place: Place) -> None:
    async def test(store: BlobStore) -> None:
        await store.put("one", CONTENT)
        for span in ((len(CONTENT) - 5, 6), (len(CONTENT), 1), (len(CONTENT) + 10, 3)):
            with pytest.raises(CorruptionError):
                await store.get("one", span)

    within(place, test)


def test_an_object_that_is_longer_than_may_be_is_not_read(place: Place) -> None:
    async def test(store: BlobStore) -> None:
        await store.put("one", CONTENT)
        assert await store.get("one", most_bytes=len(CONTENT)) == CONTENT
        with pytest.raises(CorruptionError, match="longer than"):
            await store.get("one", most_bytes=len(CONTENT) - 1)
        await store.put("large", PACK)
        with pytest.raises(CorruptionError, match="longer than"):
            await store.get("large", most_bytes=1000)

    within(place, test)


def test_what_is_missing_is_told_as_missing(place: Place) -> None:
    async def test(store: BlobStore) -> None:
        for name in ("none", "packs/ab/none"):
            with pytest.raises(NotFoundError):
                await store.get(name)
            with pytest.raises(NotFoundError):
                await store.get(name, (3, 5))
            assert await store.head(name) is None
            await store.delete(name)
        assert await store.listing("") == []
        assert await store.listing("packs/") == []
        await store.put("packs", b"is no directory")
        assert await store.listing("packs/") == []

    within(place, test)


def test_an_object_that_is_there_is_left_if_it_is_named_by_its_content(place: Place) -> None:
    async def test(store: BlobStore) -> None:
        for name, data in (("a/small", CONTENT), ("a/large", PACK)):
            assert await store.put(name, data, absent=True)
            before = await store.head(name)
            assert not await store.put(name, data, absent=True)
            assert await store.head(name) == before
            assert await store.get(name) == data

    within(place, test)


def test_an_object_is_replaced(place: Place) -> None:
    async def test(store: BlobStore) -> None:
        await store.put("heads/one", b"first")
        assert await store.put("heads/one", b"the second, longer")
        assert await store.get("heads/one") == b"the second, longer"
        assert await store.put("heads/one", b"3")
        assert await store.get("heads/one") == b"3"
        found = await store.head("heads/one")
        assert found is not None
        assert found.size_bytes == 1
        assert await store.listing("heads/") == [found]

    within(place, test)


def test_a_listing_before_all_else_tells_the_same_and_if_it_tells_of_contents_their_md5(place: Place) -> None:
    async def test(store: BlobStore) -> None:
        for data in (b"first", b"later", b""):
            await store.put("heads/one", data)
            other = place.client()
            try:
                (found,) = await other.listing("heads/")
                assert found.md5 in {b"", hashlib.md5(data).digest()}
                assert [found] == await store.listing("heads/")
                assert await other.open() == await store.open()
                assert await other.get("heads/one") == data
            finally:
                await other.close()

    within(place, test)


def test_a_listing_is_complete_sorted_and_bounded_by_its_prefix(place: Place) -> None:
    async def test(store: BlobStore) -> None:
        made = [f"packs/{number % 7:02x}/{number:04x}" for number in range(40)]
        other = [
            "config",
            "heads/a-b_c.d",
            "heads/aa",
            "packs-not",
            "packs.not/x",
            "packs0",
            "x" * 200 + "/" + "y" * 200,
        ]
        async with trio.open_nursery() as nursery:
            for name in made + other:
                nursery.start_soon(store.put, name, name.encode())
        assert await names(store) == sorted(made + other)
        assert await names(store, "packs/") == sorted(made)
        assert await names(store, "packs/03/") == sorted(name for name in made if name.startswith("packs/03/"))
        sizes = {blob.name: blob.size_bytes for blob in await store.listing("heads/")}
        assert sizes == {"heads/a-b_c.d": 13, "heads/aa": 8}

    within(place, test)


def test_what_is_below_some_prefixes_is_listed_together(place: Place) -> None:
    async def test(store: BlobStore) -> None:
        among = ["condemned/x", "heads/a", "heads/b/c", "indexes/0", "indexes/zz"]
        for name in [*among, "commits/x", "condemned.x", "config", "heads0", "indexes.x", "keys/x", "packs/x"]:
            await store.put(name, name.encode())
        asked = store.counters.requests
        found = await store.listing("condemned/", "heads/", "indexes/")
        assert [blob.name for blob in found] == among
        assert [blob.size_bytes for blob in found] == [len(name) for name in among]
        assert 1 <= store.counters.requests - asked <= 3
        assert [blob.name for blob in await store.listing("heads/", "none/")] == among[1:3]
        assert await store.listing("none/", "other/") == []

    within(place, test)


def test_a_deleted_object_is_gone_and_may_be_deleted_again(place: Place) -> None:
    async def test(store: BlobStore) -> None:
        await store.put("a/one", CONTENT)
        await store.put("a/two", CONTENT)
        await store.delete("a/one")
        await store.delete("a/one")
        with pytest.raises(NotFoundError):
            await store.get("a/one")
        assert await names(store) == ["a/two"]
        assert await store.put("a/one", b"anew", absent=True)
        assert await store.get("a/one") == b"anew"

    within(place, test)


def test_many_tasks_work_on_one_store_at_once(place: Place) -> None:
    async def test(store: BlobStore) -> None:
        async def one(number: int) -> None:
            name, data = f"packs/{number:02x}/x", CONTENT[number:] + b"%d" % number
            assert await store.put(name, data, absent=True)
            assert await store.get(name) == data
            assert await store.get(name, (number, 100)) == data[number : number + 100]
            if number % 2:
                await store.delete(name)

        async with trio.open_nursery() as nursery:
            for number in range(48):
                nursery.start_soon(one, number)
        assert await names(store) == [f"packs/{number:02x}/x" for number in range(0, 48, 2)]

    within(place, test)


def test_of_many_who_write_one_name_each_leaves_a_whole_object(place: Place) -> None:
    """Breaks when a part of an object, or a mixture of two, can ever be read."""

    async def test(store: BlobStore) -> None:
        versions = [bytes([number]) * (150_000 + number) for number in range(8)]
        await store.put("heads/one", versions[0])
        seen = []

        async def write(data: bytes) -> None:
            await store.put("heads/one", data)

        async def read() -> None:
            seen.extend([await store.get("heads/one") for _ in range(5)])

        async with trio.open_nursery() as nursery:
            for data in versions:
                nursery.start_soon(write, data)
                nursery.start_soon(read)
        seen.append(await store.get("heads/one"))
        assert all(data in versions for data in seen)

    within(place, test)


def test_what_one_client_writes_another_one_sees(place: Place) -> None:
    async def test(store: BlobStore) -> None:
        async with opened(place) as other:
            await store.put("heads/one", b"1")
            assert await other.get("heads/one") == b"1"
            await other.put("heads/one", b"2")
            assert await store.get("heads/one") == b"2"
            assert await names(store) == await names(other) == ["heads/one"]

    within(place, test)


def test_times_are_of_the_stores_clock(place: Place) -> None:
    async def test(store: BlobStore) -> None:
        second = 10**9
        before = await store.now_ns()
        await store.put("one", CONTENT)
        after = await store.now_ns()
        found = await store.head("one")
        assert found is not None
        assert before - second <= found.modified_ns <= after + second
        assert await store.listing("") == [found]
        assert abs(before - time.time_ns()) < 3600 * second  # nanoseconds since the epoch, not something else
        assert await names(store) == ["one"]  # asking for the time leaves nothing

    within(place, test)


def test_the_time_that_replies_tell_is_of_the_stores_clock_and_passes_through_what_is_around_it(place: Place) -> None:
    """Breaks when a push is held against another clock, or against an older time than the last reply told."""

    async def test(store: BlobStore) -> None:
        second = 10**9
        await store.put("heads/one", CONTENT)
        around = LimitedStore(store, None, None)
        told = set()
        for call in (
            lambda: around.put("heads/one", CONTENT),
            lambda: around.put("heads/two", CONTENT, absent=True),
            lambda: around.get("heads/one", (0, 1)),
            lambda: around.head("heads/one"),
            lambda: around.listing("heads/"),
            lambda: around.listing("heads/", "indexes/"),
            lambda: around.delete("heads/two"),
        ):
            before = await store.now_ns()
            requests = store.counters.requests
            await call()
            asked = store.counters.requests
            heard = around.heard_ns
            assert store.counters.requests == asked > requests
            told.add(heard is None)
            if heard is not None:
                assert before - second <= heard <= await store.now_ns() + second
        assert told == {isinstance(place, DirectoryPlace | S3Place | SftpPlace)}

    within(place, test)


def test_waiting_ends_when_another_client_writes_replaces_or_deletes(place: Place) -> None:
    async def test(store: BlobStore) -> None:
        async with opened(place) as other:
            same = (
                other if not isinstance(place, MemoryPlace) else store
            )  # a memory store is told of its own writes only
            await store.put("elsewhere/x", b"x")
            seen = await store.wait("heads/", None)
            for change in (
                lambda: same.put("heads/one", b"1"),
                lambda: same.put("heads/one", b"2"),
                lambda: same.delete("heads/one"),
            ):
                ended = trio.Event()

                async def watch(since: object = seen, told: trio.Event = ended) -> None:
                    nonlocal seen
                    seen = await store.wait("heads/", since)
                    told.set()

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(watch)
                    await trio.testing.wait_all_tasks_blocked()
                    assert not ended.is_set()
                    await change()
                    await ended.wait()

    within(place, test)


def test_a_store_that_is_not_there_is_told_before_it_is_made(place: Place) -> None:
    if isinstance(place, MemoryPlace):
        return  # it is always there

    async def main() -> None:
        store = place.client()
        with pytest.raises(NotFoundError):
            await store.open()
        await place.make()
        assert (await store.open(create=True)).text
        assert (await store.open(create=True)) == await store.open()
        assert await store.listing("") == []
        await store.close()

    trio.run(main)


def test_what_is_done_is_counted(place: Place) -> None:
    async def test(store: BlobStore) -> None:
        before = store.counters.snapshot()
        await store.put("one", CONTENT)
        await store.get("one", (5, 1000))
        done = store.counters.since(before)
        assert done.bytes_sent == len(CONTENT)
        assert done.bytes_received >= 1000
        assert done.requests >= 2
        assert done.mutating_requests >= 1

    within(place, test)
