"""Reading and replacing what people have decided for a repository.

Source: docs/design/repository.md, section 5.
"""

from __future__ import annotations

from syncer.errors import NotFoundError
from syncer.remote.repository.format import settings as stored
from syncer.remote.repository.format.settings import Settings
from syncer.remote.repository.objects import Objects, fresh_salt


async def settings_of(objects: Objects) -> Settings:
    """What holds now; the defaults where nothing was decided.

    Raises:
        DamagedObjectError: It can't be read: nobody knows what is to be kept.
        FormatTooNewError: A newer blocksync's.
    """
    try:
        raw = await objects.store.get(stored.NAME, most_bytes=stored.MAX_BYTES)
    except NotFoundError:
        return Settings()
    return stored.decode(objects.keys, raw, objects.codec)


async def decide(objects: Objects, settings: Settings) -> None:
    """Replace it, for all devices. Of two that do so at once the later one holds."""
    # One put: a death leaves what was, or what shall be.
    await objects.store.put(stored.NAME, stored.encode(objects.keys, fresh_salt(), settings, objects.codec))
