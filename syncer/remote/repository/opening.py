"""Making a repository on a store, and getting at its key.

A repository is there when its `config` is, which is written last: key slots that a dead `create` left belong to none,
and open nothing. What a device keeps of it (`Kept`) opens it without any passphrase.

Source: docs/design/repository.md, sections 2, 3 and 5.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from syncer.errors import AuthError, DamagedObjectError, NotFoundError, UsageError
from syncer.remote.repository.format import config as configs
from syncer.remote.repository.format import slots
from syncer.remote.repository.format.codec import Codec
from syncer.remote.repository.format.config import Config
from syncer.remote.repository.format.history import DEVICE_BYTES, DeviceId
from syncer.remote.repository.format.keys import KEY_BYTES, REPOSITORY_BYTES, MasterKey, derive
from syncer.remote.repository.format.recovery import SECRET_BYTES, recovery_key
from syncer.remote.repository.format.slots import LOG2_N, Secret, Slot
from syncer.remote.repository.objects import fresh_salt
from syncer.remote.stores.port import BlobStore

CHUNKS: Final = (4 << 10, 16 << 10, 64 << 10)


class Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a device keeps to open a repository: as secret as the passphrase.

    Attributes:
        repository: Its id, 16 bytes.
        master: Its master key, 32 bytes.
        device: This device's id in it, 16 bytes.
        config: What holds for it.
    """

    repository: bytes
    master: bytes
    device: bytes
    config: Config

    def __repr__(self) -> str:
        return f"Kept(repository={self.repository.hex()})"  # keys never reach a log

    @property
    def text(self) -> str:
        """As a file has it."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def read(cls, text: str) -> Kept:
        """Reverse of `text`.

        Raises:
            ValueError: It is none.
        """
        try:
            kept = msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, UnicodeEncodeError):
            raise ValueError("it is no key of a repository") from None
        lengths = (len(kept.repository), len(kept.master), len(kept.device))
        if lengths != (REPOSITORY_BYTES, KEY_BYTES, DEVICE_BYTES):
            raise ValueError("it is no key of a repository")
        return kept


async def create(
    store: BlobStore,
    passphrase: str,
    *,
    grid: int,
    label: str = "",
    log2_n: int = LOG2_N,
    clock: Callable[[], float] = time.time,
) -> tuple[Kept, str]:
    """Make a repository.

    Args:
        store: Open.
        passphrase: Opens it from now on.
        grid: Bytes of a block of the share.
        label: What people call the passphrase's key.
        log2_n: scrypt's cost; less than the default is for tests.
        clock: Seconds since the epoch.

    Returns:
        What this device keeps, and the recovery key, which is nowhere else.

    Raises:
        UsageError: There is one already, or the passphrase is too short.
    """
    if await store.head(configs.NAME) is not None:
        raise UsageError("there is a repository already; link to it, or choose another place")
    master, repository = MasterKey(os.urandom(KEY_BYTES)), os.urandom(REPOSITORY_BYTES)
    recovery = recovery_key(os.urandom(SECRET_BYTES))
    now_s = int(clock())
    for secret, kind, name in ((passphrase, Secret.PASSPHRASE, label), (recovery, Secret.RECOVERY_KEY, "recovery key")):
        made = await trio.to_thread.run_sync(_slot, master, repository, secret, kind, name, now_s, log2_n)
        await store.put(*made, absent=True)
    config = Config(grid=grid, chunks=CHUNKS, made_s=now_s)
    raw = configs.encode(derive(master, repository), fresh_salt(), config, Codec())
    await store.put(configs.NAME, raw, absent=True)
    if await store.get(configs.NAME, most_bytes=configs.MAX_BYTES) != raw:
        raise UsageError("somebody else made a repository here at the same time; link to that one")
    return _kept(master, repository, config), recovery


async def unlock(store: BlobStore, secret: str) -> Kept:
    """Open a repository by a passphrase or a recovery key. Takes a second or so for each of its slots.

    Args:
        store: Open.
        secret: As typed.

    Raises:
        NotFoundError: There is no repository.
        AuthError: It opens none of its keys.
        UsageError: A mistyped recovery key.
        DamagedObjectError: The config is damaged, or none opens and a slot is damaged.
    """
    raw = await _config(store)
    repository = configs.repository_of(raw)
    found, damaged = await read_slots(store)
    try:
        master, _ = await trio.to_thread.run_sync(slots.open_any, found, repository, secret)
    except AuthError:
        if damaged:
            raise damaged[0] from None  # it may be the one
        raise
    return _kept(master, repository, configs.decode(derive(master, repository), raw, Codec()))


async def check(store: BlobStore, kept: Kept) -> None:
    """See that the repository there is the one that is kept.

    Raises:
        NotFoundError: There is none.
        DamagedObjectError: It is another one, or damaged.
    """
    configs.decode(derive(MasterKey(kept.master), kept.repository), await _config(store), Codec())


async def read_slots(store: BlobStore) -> tuple[list[Slot], list[DamagedObjectError]]:
    """The key slots of a store, also those that belong to no repository; and what can't be read of them."""
    found: list[Slot] = []
    damaged: list[DamagedObjectError] = []
    for blob in (await store.listing(slots.FOLDER))[: 4 * slots.MAX_SLOTS]:
        try:
            raw = await store.get(blob.name, most_bytes=slots.MAX_BYTES)
        except NotFoundError:
            continue  # removed meanwhile
        try:
            found.append(slots.read_slot(blob.name, raw))
        except DamagedObjectError as error:
            damaged.append(error)
    return found, damaged


async def _config(store: BlobStore) -> bytes:
    try:
        return await store.get(configs.NAME, most_bytes=configs.MAX_BYTES)
    except NotFoundError:
        raise NotFoundError("there is no repository; `blocksync repo init` makes one") from None


def _slot(
    master: MasterKey, repository: bytes, secret: str, kind: Secret, label: str, now_s: int, log2_n: int
) -> tuple[str, bytes]:
    return slots.new_slot(
        master, repository, secret, fresh_salt(), made_s=now_s, label=label, secret=kind, log2_n=log2_n
    )


def _kept(master: MasterKey, repository: bytes, config: Config) -> Kept:
    return Kept(repository=repository, master=master, device=DeviceId(os.urandom(DEVICE_BYTES)), config=config)
