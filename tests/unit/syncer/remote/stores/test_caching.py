"""The cache of objects that never change: bounded, and never believed without a look."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from syncer.errors import CorruptionError
from syncer.remote.stores.caching import CachedStore
from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.port import Blob
from tests import effort

ROOM = 40_000


def using(folder: Path, test: Callable[[CachedStore, MemoryStore], Awaitable[None]], room: int = ROOM) -> None:
    async def main() -> None:
        inner = MemoryStore()
        await test(CachedStore(inner, str(folder), room, ["packs/", "commits/"]), inner)

    trio.run(main)


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def test_what_was_read_once_is_not_asked_for_again(tmp_path: Path) -> None:
    async def test(store: CachedStore, inner: MemoryStore) -> None:
        await store.put("packs/x", b"data" * 100)
        for _ in range(3):
            assert await store.get("packs/x") == b"data" * 100
            assert await store.get("packs/x", (2, 4)) == b"tada"
        assert inner.counters.requests == 1  # what was written, and parts of it, are there, too
        await inner.put("packs/y", b"data" * 100)
        for _ in range(3):
            assert await store.get("packs/y", (2, 4)) == b"tada"
            assert await store.get("packs/y") == b"data" * 100
        assert inner.counters.requests == 4
        assert (store.hits, store.misses) == (10, 2)
        again = CachedStore(inner, str(tmp_path / "cache"), ROOM, ["packs/"])
        assert await again.get("packs/x") == b"data" * 100
        assert inner.counters.requests == 4

    using(tmp_path / "cache", test)
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_what_changes_is_not_asked_for_where_a_listing_tells_that_it_has_not(tmp_path: Path) -> None:
    """Breaks when a listing of some time ago, or what somebody left in the cache, is taken for what is there."""

    async def test(store: CachedStore, inner: MemoryStore) -> None:
        await store.replace("heads/x", b"1")
        (first,) = await inner.listing("heads/")
        asked = inner.counters.requests
        for _ in range(3):
            assert await store.get_listed(first) == b"1"
        assert inner.counters.requests == asked
        await inner.put("heads/x", b"2")
        (second,) = await inner.listing("heads/")
        assert [await store.get_listed(second) for _ in range(3)] == [b"2"] * 3
        assert await store.get_listed(first) == b"2"  # told late: what is there counts
        assert inner.counters.requests == asked + 4
        for file in files(tmp_path / "cache"):
            file.write_bytes(bytes(40))
        assert await store.get_listed(second) == b"2"
        assert inner.counters.requests == asked + 5
        untold = Blob("heads/x", 1, second.modified_ns)
        assert [await store.get_listed(untold) for _ in range(2)] == [b"2"] * 2
        assert inner.counters.requests == asked + 7

    using(tmp_path / "cache", test)


def test_what_changes_is_always_asked_for(tmp_path: Path) -> None:
    async def test(store: CachedStore, inner: MemoryStore) -> None:
        for content in (b"1", b"2"):
            await store.put("heads/x", content)
            assert await store.get("heads/x") == content

    using(tmp_path / "cache", test)
    assert not files(tmp_path / "cache")


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 500])
def test_a_damaged_file_is_dropped_and_the_store_asked(damage: bytes, tmp_path: Path) -> None:
    """Breaks when a bit that the user's disk flipped is told as a damage of the repository."""

    async def test(store: CachedStore, inner: MemoryStore) -> None:
        await store.put("packs/x", b"data" * 100)
        await store.get("packs/x")
        (file,) = files(tmp_path / "cache")
        file.write_bytes(damage)
        assert await store.get("packs/x") == b"data" * 100
        file.unlink()
        assert await store.get("packs/x") == b"data" * 100

    using(tmp_path / "cache", test)


def test_a_cache_that_can_not_be_written_costs_nothing_but_its_gain(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    async def test(store: CachedStore, inner: MemoryStore) -> None:
        await store.put("packs/x", b"data")
        assert await store.get("packs/x") == await store.get("packs/x") == b"data"

    using(tmp_path / "file/cache", test)


def test_bounds_of_what_may_be_read_hold_for_the_cache_too(tmp_path: Path) -> None:
    async def test(store: CachedStore, inner: MemoryStore) -> None:
        await store.put("packs/x", bytes(1000))
        await store.get("packs/x")
        with pytest.raises(CorruptionError):
            await store.get("packs/x", most_bytes=999)

    using(tmp_path / "cache", test)


def test_what_was_no_good_is_asked_for_again(tmp_path: Path) -> None:
    async def test(store: CachedStore, inner: MemoryStore) -> None:
        await store.put("packs/x", b"once")
        await inner.put("packs/x", b"then")
        assert await store.get("packs/x") == b"once"
        await store.forget("packs/x")
        assert await store.get("packs/x", (0, 2)) == b"th"
        await inner.put("packs/x", b"last")
        await store.forget("packs/x", (0, 2))
        assert await store.get("packs/x", (0, 2)) == b"la"

    using(tmp_path / "cache", test)


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(1, 8000)), max_size=60))
@settings(max_examples=effort.count("properties"))
def test_it_never_holds_more_than_it_may_and_keeps_what_was_used_last(
    tmp_path_factory: pytest.TempPathFactory, reads: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("caches") / "cache"

    async def test(store: CachedStore, inner: MemoryStore) -> None:
        for number, size in reads:
            name = f"packs/{number}-{size}"
            if await store.head(name) is None:
                await store.put(name, os.urandom(size))
            assert await store.get(name) == inner.objects[name][0]
            assert sum(file.stat().st_size for file in files(folder)) <= ROOM
            before = inner.counters.requests
            await store.get(name)
            assert (inner.counters.requests == before) is (size + 32 <= ROOM // 8)

    using(folder, test)
