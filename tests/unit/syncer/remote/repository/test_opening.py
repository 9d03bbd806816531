"""Making a repository, and opening it: by a passphrase, by the recovery key, by what a device keeps."""

from __future__ import annotations

import hashlib

import pytest
import trio

from syncer.errors import AuthError, DamagedObjectError, FormatTooNewError, NotFoundError, UsageError
from syncer.remote.repository.format.slots import FOLDER, VERSION
from syncer.remote.repository.making import create
from syncer.remote.repository.opening import Kept, check, unlock, unlock_by
from syncer.remote.stores.memory import MemoryStore

PASSPHRASE = "correct horse battery"
CHEAP = 10


async def made(store: MemoryStore) -> tuple[Kept, str]:
    return await create(store, PASSPHRASE, grid=65536, label="mine", log2_n=CHEAP)


def test_what_was_made_is_opened_by_the_passphrase_by_the_recovery_key_and_by_what_is_kept() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        kept, recovery = await made(store)
        for secret in (PASSPHRASE, f"  {PASSPHRASE} ", recovery, recovery.lower().replace("-", " ")):
            found = await unlock(store, secret)
            assert (found.master, found.repository, found.config) == (kept.master, kept.repository, kept.config)
            assert found.device != kept.device
        assert Kept.read(kept.text) == kept
        await check(store, kept)
        for raw, _ in store.objects.values():
            assert kept.master not in raw
        assert kept.master.hex() not in repr(kept)

    trio.run(scenario)


def test_a_wrong_passphrase_opens_nothing_and_a_short_one_is_refused() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        with pytest.raises(UsageError, match="12 characters"):
            await create(store, "short", grid=65536, log2_n=CHEAP)
        with pytest.raises(NotFoundError, match="repo init"):
            await unlock(store, PASSPHRASE)
        await made(store)
        with pytest.raises(AuthError, match="none of the repository's 2 keys"):
            await unlock(store, "another passphrase")

    trio.run(scenario)


def newer(store: MemoryStore, name: str) -> None:
    """Put a key slot as a newer blocksync may make it in place of one."""
    raw, when = store.objects.pop(name)
    other = raw[:5] + bytes([VERSION + 1]) + raw[6:]
    store.objects[FOLDER + hashlib.sha256(other).digest()[:8].hex()] = other, when


def test_a_slot_of_a_newer_version_is_in_the_way_of_no_other_one() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        kept, recovery = await made(store)
        _, slot = await unlock_by(store, recovery)
        newer(store, slot.name)
        assert (await unlock(store, PASSPHRASE)).master == kept.master
        with pytest.raises(FormatTooNewError, match="use a newer blocksync"):
            await unlock(store, recovery)

    trio.run(scenario)


def test_a_slot_whose_version_was_flipped_is_damaged() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        _, recovery = await made(store)
        _, slot = await unlock_by(store, recovery)
        raw, when = store.objects[slot.name]
        store.objects[slot.name] = raw[:5] + bytes([VERSION + 1]) + raw[6:], when
        with pytest.raises(DamagedObjectError, match=f"{slot.name} .*damaged"):
            await unlock(store, recovery)

    trio.run(scenario)


def test_there_is_one_repository_in_a_place() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        kept, _ = await made(store)
        with pytest.raises(UsageError, match="already"):
            await made(store)
        other, _ = await made(MemoryStore())
        with pytest.raises(DamagedObjectError, match="another repository"):
            await check(store, other)
        await check(store, kept)

    trio.run(scenario)


def test_a_damaged_key_slot_is_no_obstacle_to_the_others_and_is_named_if_none_opens() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        _, recovery = await made(store)
        first, second = sorted(name for name in store.objects if name.startswith("keys/"))
        whole = dict(store.objects)
        opened: list[str] = []
        named: list[str] = []
        for name in (first, second):
            raw, when = whole[name]
            store.objects.update(whole | {name: (raw[:-1] + bytes([raw[-1] ^ 1]), when)})
            for secret in (PASSPHRASE, recovery):
                try:
                    await unlock(store, secret)
                    opened.append(secret)
                except DamagedObjectError as error:
                    named.append(error.name)
        assert named == [first, second]
        assert sorted(opened) == sorted([PASSPHRASE, recovery])

    trio.run(scenario)


@pytest.mark.parametrize("text", ["", "{}", "token", '{"repository":"","master":"","device":"","config":null}'])
def test_what_is_no_key_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="no key of a repository"):
        Kept.read(text)
