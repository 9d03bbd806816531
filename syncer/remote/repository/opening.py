"""Getting at the key of a repository: by a passphrase, by a recovery key, or by what a device keeps.

What a device keeps (`Kept`) opens it without any passphrase. How one is made: `making.py`.

Source: docs/design/repository.md, sections 2 and 3.
"""

from __future__ import annotations

import os

import msgspec
import trio

from syncer.errors import AuthError, DamagedObjectError, FormatTooNewError, NotFoundError
from syncer.remote.repository.format import config as configs
from syncer.remote.repository.format import slots
from syncer.remote.repository.format.codec import Codec
from syncer.remote.repository.format.config import Config
from syncer.remote.repository.format.history import DEVICE_BYTES, DeviceId
from syncer.remote.repository.format.keys import KEY_BYTES, REPOSITORY_BYTES, MasterKey, derive
from syncer.remote.repository.format.slots import Slot
from syncer.remote.stores.port import BlobStore


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


async def unlock(store: BlobStore, secret: str) -> Kept:
    """Open a repository as a new device; see `unlock_by`."""
    kept, _ = await unlock_by(store, secret)
    return kept


async def unlock_by(store: BlobStore, secret: str) -> tuple[Kept, Slot]:
    """Open a repository by a passphrase or a recovery key. Takes a second or so for each of its slots.

    Args:
        store: Open.
        secret: As typed.

    Returns:
        What a new device keeps, and the slot that the secret opens.

    Raises:
        NotFoundError: There is no repository.
        AuthError: It opens none of its keys.
        UsageError: A mistyped recovery key.
        DamagedObjectError: The config is damaged, or none opens and a slot is damaged.
        FormatTooNewError: The config is a newer blocksync's, or none opens and a slot is.
    """
    raw = await _config(store)
    repository = configs.repository_of(raw)
    found, unreadable = await read_slots(store)
    try:
        master, slot = await trio.to_thread.run_sync(slots.open_any, found, repository, secret)
    except AuthError:
        if unreadable:
            raise unreadable[0] from None  # it may be the one
        raise
    return keep(master, repository, configs.decode(derive(master, repository), raw, Codec())), slot


async def check(store: BlobStore, kept: Kept) -> None:
    """See that the repository there is the one that is kept.

    Raises:
        NotFoundError: There is none.
        DamagedObjectError: It is another one, or damaged.
    """
    configs.decode(derive(MasterKey(kept.master), kept.repository), await _config(store), Codec())


async def repository_there(store: BlobStore) -> bytes:
    """The id of the repository that a store holds, which needs no key. 16 bytes.

    Raises:
        NotFoundError: There is none.
        DamagedObjectError: What there is does not begin as one.
        FormatTooNewError: A newer blocksync's.
    """
    return configs.repository_of(await _config(store))


async def read_slots(store: BlobStore) -> tuple[list[Slot], list[DamagedObjectError | FormatTooNewError]]:
    """The key slots of a store, also those that belong to no repository; and what can't be read of them."""
    found: list[Slot] = []
    unreadable: list[DamagedObjectError | FormatTooNewError] = []
    for blob in (await store.listing(slots.FOLDER))[: 4 * slots.MAX_SLOTS]:
        try:
            raw = await store.get(blob.name, most_bytes=slots.MAX_BYTES)
        except NotFoundError:
            continue  # removed meanwhile
        try:
            found.append(slots.read_slot(blob.name, raw))
        except (DamagedObjectError, FormatTooNewError) as error:
            unreadable.append(error)
    return found, unreadable


async def _config(store: BlobStore) -> bytes:
    try:
        return await store.get(configs.NAME, most_bytes=configs.MAX_BYTES)
    except NotFoundError:
        raise NotFoundError("there is no repository; `blocksync repo init` makes one") from None


def keep(master: MasterKey, repository: bytes, config: Config) -> Kept:
    """What a new device keeps."""
    return Kept(repository=repository, master=master, device=DeviceId(os.urandom(DEVICE_BYTES)), config=config)
