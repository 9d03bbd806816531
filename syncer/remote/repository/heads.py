"""The heads of all devices: the objects that change, each read again only when it is, or may be, another than it was.

That is when the store tells another time, size or content of it than before, and once more a little later.

Source: docs/design/repository.md, sections 8 and 13.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from typing import Final

import msgspec
import trio

from syncer.errors import DamagedObjectError, NotFoundError
from syncer.remote.parallel import for_each
from syncer.remote.repository.format.history import DeviceId, Head, decode_head, device_of, encode_head, head_name
from syncer.remote.repository.format.keys import SALT_BYTES, Keys
from syncer.remote.repository.kept import Codecs, Kept
from syncer.remote.stores.port import Blob, BlobStore

_AT_ONCE: Final = 8  # requests
_TICK_S: Final = 2.5  # of clocks that tell seconds, rounded up or down
_HEAD_BYTES: Final = 4 << 10


class MissingHeadError(DamagedObjectError):
    """A head was listed and can't be got: the store has lost it, or somebody has just forgotten its device."""


class _Known(msgspec.Struct, frozen=True):
    """A head, as it was when the store told this of it.

    Attributes:
        blob: What was told.
        head: What was read then.
        since_s: When this was told first, by trio's clock.
        is_settled: It was read so late that no later write can be told alike.
    """

    blob: Blob
    head: Head
    since_s: float
    is_settled: bool


class Heads:
    """Of one repository, as they were seen last. Safe for many tasks."""

    def __init__(self, store: BlobStore, kept: Kept, keys: Keys, codecs: Codecs) -> None:
        """None is known yet.

        Args:
            store: Where they are.
            kept: The same, with what this machine has of it.
            keys: The repository's.
            codecs: One for each thread.
        """
        self._store = store
        self._kept = kept
        self._keys = keys
        self._codecs = codecs
        self._known: dict[str, _Known] = {}

    async def of(self, listed: Iterable[Blob]) -> dict[DeviceId, Head]:
        """The heads that a listing of now tells of. A request for each that is, or may be, another than it was.

        Raises:
            MissingHeadError: One is listed, and missing.
            DamagedObjectError: One is not what it was.
        """
        found: dict[str, _Known] = {}
        asks: list[tuple[Blob, DeviceId]] = []
        for blob in listed:
            known = self._known.get(blob.name)
            if known is not None and known.blob == blob and known.is_settled:
                found[blob.name] = known
            elif (device := device_of(blob.name)) is not None:
                asks.append((blob, device))

        async def ask(job: tuple[Blob, DeviceId]) -> None:
            blob, device = job
            now_s, known = trio.current_time(), self._known.get(blob.name)
            since_s = known.since_s if known is not None and known.blob == blob else now_s
            check = partial(self._decoded, device)
            try:
                head = await self._kept.got_listed(blob, check, most_bytes=_HEAD_BYTES)
            except NotFoundError:
                raise MissingHeadError(blob.name, "is missing: it is listed") from None
            # All heads have one length. By a clock of whole seconds two writes of one device may look alike.
            is_settled = bool(blob.md5) or blob.modified_ns % 10**9 != 0 or now_s - since_s > _TICK_S
            found[blob.name] = _Known(blob, head, since_s, is_settled)

        await for_each(iter(asks), ask, _AT_ONCE)
        self._known = found
        return {known.head.device: known.head for known in found.values()}

    async def now(self, device: DeviceId) -> Head | None:
        """A device's head as it is now, asked of the store itself; None if it has none.

        Raises:
            DamagedObjectError: It is not what it was.
        """
        try:
            raw = await self._store.get(head_name(device), most_bytes=_HEAD_BYTES)
        except NotFoundError:
            return None
        return self._decoded(device, raw)

    def tells_content(self, device: DeviceId) -> bool:
        """Whether the last listing told what is in a head, by a digest of it."""
        known = self._known.get(head_name(device))
        return known is not None and bool(known.blob.md5)

    async def put(self, head: Head) -> None:
        """Replace a device's head, which only that device does."""
        name, raw = encode_head(self._keys, os.urandom(SALT_BYTES), head, self._codecs.codec)
        self._known.pop(name, None)  # a listing of some time ago tells of the one before
        await self._kept.replace(name, raw)

    def _decoded(self, device: DeviceId, raw: bytes) -> Head:
        return decode_head(self._keys, device, raw, self._codecs.codec)
