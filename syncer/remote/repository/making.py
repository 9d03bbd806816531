"""Making a repository on a store.

A repository is there when its `config` is, which is written last: key slots that a dead `create` left belong to none,
and open nothing.

Stores have no lock, so two may make one at the same place at once. Each writes its key slots, which differ, and then
looks for those of others: who sees only its own goes on, and whoever comes later sees them. Who sees another's waits
for a config to appear, and each of two that wait so another time; so their two writes of the config never meet, and
the second one finds the first.

Source: docs/design/repository.md, sections 3 and 5.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from syncer.errors import UsageError
from syncer.remote.repository.format import config as configs
from syncer.remote.repository.format import slots
from syncer.remote.repository.format.codec import Codec
from syncer.remote.repository.format.config import Config
from syncer.remote.repository.format.keys import KEY_BYTES, REPOSITORY_BYTES, MasterKey, derive
from syncer.remote.repository.format.recovery import SECRET_BYTES, recovery_key
from syncer.remote.repository.format.slots import LOG2_N, Secret
from syncer.remote.repository.objects import fresh_salt
from syncer.remote.repository.opening import Kept, keep
from syncer.remote.stores import probe
from syncer.remote.stores.port import BlobStore

CHUNKS: Final = (4 << 10, 16 << 10, 64 << 10)
_OF_NOBODY: Final = (slots.FOLDER, probe.FOLDER)  # what a `create` that died leaves
_PATIENCE_S: Final = 5.0  # longer than one write of 300 bytes takes


async def create(
    store: BlobStore,
    passphrase: str,
    *,
    grid: int,
    label: str = "",
    log2_n: int = LOG2_N,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], Awaitable[None]] = trio.sleep,
) -> tuple[Kept, str]:
    """Make a repository.

    Args:
        store: Open.
        passphrase: Opens it from now on.
        grid: Bytes of a block of the share.
        label: What people call the passphrase's key.
        log2_n: scrypt's cost; less than the default is for tests.
        clock: Seconds since the epoch.
        sleep: Waits some seconds.

    Returns:
        What this device keeps, and the recovery key, which is nowhere else.

    Raises:
        UsageError: There is one already, or something else, or the passphrase is too short.
    """
    await see_that_it_is_free(store)
    master, repository = MasterKey(os.urandom(KEY_BYTES)), os.urandom(REPOSITORY_BYTES)
    recovery = recovery_key(os.urandom(SECRET_BYTES))
    now_s = int(clock())
    made = [
        await trio.to_thread.run_sync(new_slot, master, repository, secret, kind, name, now_s, log2_n)
        for secret, kind, name in (
            (passphrase, Secret.PASSPHRASE, label),
            (recovery, Secret.RECOVERY_KEY, "recovery key"),
        )
    ]
    seen = await probe.probe(store)
    for name, raw in made:
        await store.put(name, raw, absent=True)
    config = Config(grid=grid, chunks=CHUNKS, made_s=now_s, probe=seen)
    raw = configs.encode(derive(master, repository), fresh_salt(), config, Codec())
    if not await _alone(store, [name for name, _ in made], sleep):
        raise await _late(store, [name for name, _ in made])
    await store.put(configs.NAME, raw, absent=True)
    if await store.get(configs.NAME, most_bytes=configs.MAX_BYTES) != raw:
        raise await _late(store, [name for name, _ in made])
    return keep(master, repository, config), recovery


def new_slot(
    master: MasterKey, repository: bytes, secret: str, kind: Secret, label: str, now_s: int, log2_n: int
) -> tuple[str, bytes]:
    """A key slot, name and bytes; for a thread. See `slots.new_slot`."""
    return slots.new_slot(
        master, repository, secret, fresh_salt(), made_s=now_s, label=label, secret=kind, log2_n=log2_n
    )


async def see_that_it_is_free(store: BlobStore) -> None:
    """See that nothing is there but what a `create` that died has left.

    Raises:
        UsageError: Something is.
    """
    names = [blob.name for blob in await store.listing("")]
    if configs.NAME in names:
        raise UsageError(
            "there is a repository already: expected an empty place; use that one, or choose another place"
        )
    others = [name for name in names if not name.startswith(_OF_NOBODY)]
    if others:
        raise UsageError(
            f"there are other things already, such as {others[0]} ({len(others)} in all): expected an empty place; "
            "choose another one, or a folder below it"
        )


async def _alone(store: BlobStore, ours: list[str], sleep: Callable[[float], Awaitable[None]]) -> bool:
    """Whether nobody else has made one meanwhile; who may be doing so is waited for."""
    others = {blob.name for blob in await store.listing(slots.FOLDER)}.difference(ours)
    if others:
        # The lower name waits for one span, the higher one for three: the first has written when the second looks.
        await sleep(_PATIENCE_S if min(ours) < min(others) else 3 * _PATIENCE_S)
    return await store.head(configs.NAME) is None


async def _late(store: BlobStore, ours: list[str]) -> UsageError:
    """Somebody else was faster: our slots open nothing."""
    for name in ours:
        await store.delete(name)
    return UsageError(
        "somebody else has made a repository here at the same time: use that one, or choose another place"
    )
