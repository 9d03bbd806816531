"""What is read of a store, and what is remembered of it."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from syncer.remote.repository.objects import Objects
from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.port import Blob
from tests.unit.syncer.remote.repository.aging import Place
from tests.unit.syncer.remote.repository.nodes import KEYS
from tests.unit.syncer.remote.repository.share import listed, put


def test_two_heads_of_one_length_in_one_tick_of_the_stores_clock_are_told_apart() -> None:
    """Breaks when a head is taken for the one before, as on stores that tell times to the second."""

    async def scenario() -> None:
        place = Place()  # where no time passes
        one, other = place.client(1), place.client(2)
        for number in range(5):
            await put(one, f"file{number}", b"data")
            await one.commit()
            assert len(await listed(one)) == len(await listed(other)) == number + 1

    trio.run(scenario)


class Reticent(MemoryStore):
    """Tells no hashes, as a directory doesn't."""

    async def listing(self, *prefixes: str) -> list[Blob]:
        return [Blob(blob.name, blob.size_bytes, blob.modified_ns) for blob in await super().listing(*prefixes)]


@pytest.mark.parametrize(("kind", "expected"), [(Reticent, [2, 2, 1, 1]), (MemoryStore, [2, 1, 1, 1])])
def test_a_head_that_stays_is_read_until_no_other_can_look_like_it(
    kind: type[MemoryStore], expected: list[int]
) -> None:
    async def scenario() -> None:
        place = Place()
        one = place.client(1)
        await put(one, "file", b"data")
        await one.commit()
        store = kind(place.objects, clock=lambda: place.now_ns)
        objects = Objects(store, KEYS)
        requests = []
        for _ in range(4):
            before = store.counters.requests
            await objects.heads()
            requests.append(store.counters.requests - before)
            await trio.sleep(60)
        assert requests == expected

    trio.run(scenario, clock=trio.testing.MockClock(autojump_threshold=0))
