"""Keys of a repository: added, changed and removed, and one always stays that is known to open it."""

from __future__ import annotations

import pytest
import trio

from syncer.errors import AuthError, NotFoundError, UsageError
from syncer.remote.repository.format.slots import Secret, Slot
from syncer.remote.repository.maintenance import keys
from syncer.remote.repository.making import create
from syncer.remote.repository.opening import Kept, unlock, unlock_by
from syncer.remote.stores.memory import MemoryStore

ONE, OTHER = "correct horse battery", "staple and more of it"
CHEAP = 10


async def two(store: MemoryStore) -> tuple[Kept, Slot]:
    """A repository with a recovery key and two passphrases; its key, and the slot of the second one."""
    kept, _ = await create(store, ONE, grid=65536, log2_n=CHEAP)
    return kept, await keys.add(store, kept, OTHER, Secret.PASSPHRASE, "other", log2_n=CHEAP)


def test_what_was_added_opens_and_what_was_removed_does_not() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        kept, added = await two(store)
        opened, slot = await unlock_by(store, OTHER)
        assert (opened.master, slot) == (kept.master, added)
        assert len(await keys.keys_of(store, kept.repository)) == 3
        _, first = await unlock_by(store, ONE)
        gone = await keys.remove(store, keys.id_of(first.name)[:6], slot)
        assert gone == keys.id_of(first.name)
        with pytest.raises(AuthError):
            await unlock(store, ONE)
        assert (await unlock(store, OTHER)).master == kept.master

    trio.run(scenario)


def test_the_key_that_opened_it_stays_and_what_is_not_there_is_told() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        _, added = await two(store)
        before = dict(store.objects)
        with pytest.raises(UsageError, match="opened the repository with, so it stays"):
            await keys.remove(store, keys.id_of(added.name), added)
        for nothing in ("", "zz"):
            with pytest.raises(NotFoundError, match="key list"):
                await keys.remove(store, nothing, added)
        assert store.objects == before

    trio.run(scenario)


def test_two_who_remove_each_others_key_at_once_leave_one_that_opens() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        kept, added = await two(store)
        _, first = await unlock_by(store, ONE)

        class Meanwhile(MemoryStore):
            """Somebody else removes the key of who calls, before it removes theirs."""

            async def delete(self, name: str) -> None:
                self.objects.pop(first.name, None)
                await super().delete(name)

        with pytest.raises(UsageError, match="nothing was removed"):
            await keys.remove(Meanwhile(store.objects), keys.id_of(added.name), first)
        assert (await unlock(store, OTHER)).master == kept.master

    trio.run(scenario)


def test_two_who_change_one_key_at_once_both_have_changed_it() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        kept, added = await two(store)
        changed = [await keys.add(store, kept, new, Secret.PASSPHRASE, "", log2_n=CHEAP) for new in (ONE * 2, ONE * 3)]
        for new in changed:
            await keys.replace(store, added, new)
        assert (await unlock(store, ONE * 2)).master == (await unlock(store, ONE * 3)).master == kept.master
        with pytest.raises(AuthError):
            await unlock(store, OTHER)

    trio.run(scenario)
