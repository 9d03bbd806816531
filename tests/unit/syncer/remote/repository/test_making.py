"""Making a repository: only where nothing is, once, and whoever else tries at the same moment is told."""

from __future__ import annotations

import itertools

import pytest
import trio
import trio.testing

from syncer.errors import UsageError
from syncer.remote.repository.making import create
from syncer.remote.repository.opening import Kept, unlock
from syncer.remote.stores.memory import MemoryStore

PASSPHRASE = "correct horse battery"
CHEAP = 10


async def made(store: MemoryStore, passphrase: str = PASSPHRASE) -> tuple[Kept, str]:
    return await create(store, passphrase, grid=65536, label="mine", log2_n=CHEAP)


def test_what_the_store_did_is_in_the_config_and_nothing_of_the_looking_is_left() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        kept, _ = await made(store)
        assert kept.config.probe is not None
        assert kept.config.probe.lists_at_once
        assert (await unlock(store, PASSPHRASE)).config == kept.config
        assert sorted(name.partition("/")[0] for name in store.objects) == ["config", "keys", "keys"]

    trio.run(scenario)


@pytest.mark.parametrize("name", ["photo.jpg", "packs/00/abc", "heads/0", "keyring"])
def test_a_place_with_other_things_in_it_is_left_as_it_is(name: str) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await store.put(name, b"something")
        before = dict(store.objects)
        with pytest.raises(UsageError, match=f"other things already, such as {name}"):
            await made(store)
        assert store.objects == before

    trio.run(scenario)


def test_a_passphrase_that_is_too_short_leaves_nothing() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        with pytest.raises(UsageError, match="12 characters"):
            await made(store, "short")
        assert store.objects == {}

    trio.run(scenario)


class Slowly(MemoryStore):
    """Each call waits for its turn, so a schedule decides who comes first; two that write the same name at once both
    are told that they wrote it, as with Swift."""

    def __init__(self, objects: dict[str, tuple[bytes, int]], delays: itertools.cycle[float]) -> None:
        super().__init__(objects)
        self._delays = delays

    async def put(self, name: str, data: object, *, absent: bool = False) -> bool:
        there = name in self.objects
        await trio.sleep(next(self._delays))
        if there and absent:
            return False
        return await super().put(name, data)  # absent or not: the last one wins

    async def listing(self, *prefixes: str) -> list[object]:
        await trio.sleep(next(self._delays))
        return await super().listing(*prefixes)


@pytest.mark.parametrize("one", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("other", [0.0, 0.2, 0.9])
@pytest.mark.parametrize("start", [0.0, 0.1, 1.7])
def test_of_two_that_make_one_at_once_exactly_one_has_made_it(one: float, other: float, start: float) -> None:
    async def scenario() -> None:
        objects: dict[str, tuple[bytes, int]] = {}
        kept: list[Kept] = []
        refused: list[str] = []

        async def try_it(passphrase: str, delay: float, begin: float) -> None:
            await trio.sleep(begin)
            try:
                kept.append((await made(Slowly(objects, itertools.cycle([delay])), passphrase))[0])
            except UsageError as error:
                refused.append(str(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(try_it, PASSPHRASE, one, 0.0)
            nursery.start_soon(try_it, PASSPHRASE + " too", other, start)
        assert len(kept) == len(refused) == 1, (kept, refused)
        config = objects["config"][0]
        assert config[8:24] == kept[0].repository
        assert sum(name.startswith("keys/") for name in objects) == 2  # the other one's are gone

    trio.run(scenario, clock=trio.testing.MockClock(autojump_threshold=0))


def test_slots_of_one_that_died_only_make_the_next_one_wait() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await made(store)
        del store.objects["config"]
        began_s = trio.current_time()
        kept, _ = await made(store)
        assert trio.current_time() > began_s
        assert (await unlock(store, PASSPHRASE)).master == kept.master

    trio.run(scenario, clock=trio.testing.MockClock(autojump_threshold=0))
