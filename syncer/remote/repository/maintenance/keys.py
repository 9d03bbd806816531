"""The keys of a repository: slots that are added and removed, so that one always stays that is known to open it.

Which slot opens is known of one only: the one that the caller's secret has just opened. So that one is never removed,
and the others may be.

Source: docs/design/repository.md, section 3.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import trio

from syncer.errors import NotFoundError, UsageError
from syncer.remote.repository.format import slots
from syncer.remote.repository.format.keys import MasterKey
from syncer.remote.repository.format.slots import LOG2_N, MAX_SLOTS, Secret, Slot
from syncer.remote.repository.making import new_slot
from syncer.remote.repository.opening import Kept, read_slots
from syncer.remote.stores.port import BlobStore


def id_of(name: str) -> str:
    """What people call a slot by its object's name: 16 hex digits."""
    return name.removeprefix(slots.FOLDER)


async def keys_of(store: BlobStore, repository: bytes) -> list[Slot]:
    """The slots of a repository, the oldest first. What can't be read is left out; nothing of them is proved."""
    found, _ = await read_slots(store)
    return sorted((slot for slot in found if slot.repository == repository), key=lambda slot: (slot.made_s, slot.name))


async def add(
    store: BlobStore,
    kept: Kept,
    secret: str,
    kind: Secret,
    label: str,
    *,
    log2_n: int = LOG2_N,
    clock: Callable[[], float] = time.time,
) -> Slot:
    """Make a slot.

    Args:
        store: Open.
        kept: The repository's key.
        secret: What is to open it.
        kind: What that is.
        label: What people call it.
        log2_n: scrypt's cost; less than the default is for tests.
        clock: Seconds since the epoch.

    Raises:
        UsageError: Too short a passphrase, too long a label, or there are 64 slots.
    """
    if len(await keys_of(store, kept.repository)) >= MAX_SLOTS:
        raise UsageError(f"the repository has {MAX_SLOTS} keys, and more are never tried: remove one first")
    master = MasterKey(kept.master)
    name, raw = await trio.to_thread.run_sync(
        new_slot, master, kept.repository, secret, kind, label, int(clock()), log2_n
    )
    await store.put(name, raw, absent=True)
    return slots.read_slot(name, await store.get(name, most_bytes=slots.MAX_BYTES))


async def remove(store: BlobStore, ident: str, opened: Slot) -> str:
    """Remove a slot.

    Args:
        store: Open.
        ident: Its id, or a beginning that no other one has.
        opened: The one that the caller's secret opens, which stays.

    Returns:
        The id of what was removed.

    Raises:
        NotFoundError: No slot is called so.
        UsageError: Several are, or it is the one that stays.
    """
    names = [blob.name for blob in await store.listing(slots.FOLDER) if id_of(blob.name).startswith(ident)]
    if not names or not ident:
        raise NotFoundError(f"no key of the repository is called {ident!r}; `blocksync repo key list` tells them")
    if len(names) > 1:
        raise UsageError(f"{len(names)} keys begin with {ident}: expected more digits")
    (name,) = names
    if name == opened.name:
        raise UsageError(
            f"{id_of(name)} is the key that you opened the repository with, so it stays: another one must be known "
            "to open it first. Give that one's passphrase, or use `blocksync repo key change`"
        )
    await _replaced(store, name, opened)
    return id_of(name)


async def replace(store: BlobStore, old: Slot, new: Slot) -> None:
    """Remove a slot in whose place another one was made."""
    with contextlib.suppress(NotFoundError):  # somebody else has removed it since it opened the repository
        await _replaced(store, old.name, new)


async def _replaced(store: BlobStore, name: str, stays: Slot) -> None:
    raw = await store.get(name, most_bytes=slots.MAX_BYTES)
    await store.delete(name)
    # Somebody else may have removed the one that stays, by the one that went: then both are put back.
    if await store.head(stays.name) is None:
        await store.put(name, raw, absent=True)
        raise UsageError(f"the key {id_of(stays.name)} was removed by somebody else meanwhile: nothing was removed")
