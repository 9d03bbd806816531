"""What a probe finds of each store, and that nothing is left of it."""

from __future__ import annotations

import pytest
import trio

from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.port import BlobStore, Probe
from syncer.remote.stores.probe import probe
from tests.contract.blobplaces import KINDS, Place, place_of, within


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return place_of(request.param, request, tmp_path_factory)


def test_a_probe_tells_what_it_saw_and_leaves_nothing(place: Place) -> None:
    async def test(store: BlobStore) -> tuple[Probe, list[object]]:
        await store.put("config", b"{}")
        return await probe(store), [blob.name for blob in await store.listing("")]

    found, left = within(place, test)
    assert left == ["config"]
    assert 0 <= found.most_winners <= 8  # 0: whoever wrote it was not told, and came again
    assert found.lists_at_once
    assert abs(found.clock_ahead_ms) < 3_600_000


def test_a_store_where_several_win_is_told_as_one() -> None:
    class Careless(MemoryStore):
        async def put(self, name: str, data: object, *, absent: bool = False) -> bool:
            return await super().put(name, data)  # type: ignore[arg-type]

    assert trio.run(probe, Careless()).most_winners == 8
    assert trio.run(probe, MemoryStore()).most_winners == 1


def test_listings_that_lag_and_clocks_that_are_ahead_are_seen() -> None:
    class Lagging(MemoryStore):
        async def listing(self, *prefixes: str) -> list:
            return []

    assert not trio.run(probe, Lagging()).lists_at_once
    ahead = MemoryStore(clock=lambda: 5_000_000_000)
    assert trio.run(probe, ahead, lambda: 2_000_000_000).clock_ahead_ms == 3000
