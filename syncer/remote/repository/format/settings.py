"""What people have decided for a repository, and may decide anew: the object `settings`, replaced as a whole.

A sealed object of kind b"s" (see `sealed`); its body is JSON:

    {"keep_s": 2592000}

keep_s: seconds; commits younger than that by the store's clock stay whole, whoever collects.

A repository without it has the defaults. It is not the config, which is written once and which every device keeps a
copy of. Whoever sets something else makes it another version of the kind, so older programs say so, and exit with 14.

Source: docs/design/repository.md, section 5.
"""

from __future__ import annotations

from typing import Final

import msgspec

from syncer.errors import DamagedObjectError
from syncer.remote.repository.format.codec import Codec
from syncer.remote.repository.format.keys import Keys
from syncer.remote.repository.format.sealed import Kind, open_whole, seal_whole

NAME: Final = Kind.SETTINGS.folder
MAX_BYTES: Final = 4096  # ours has 256
DEFAULT_KEEP_S: Final = 30 * 86_400
MAX_KEEP_S: Final = 200 * 366 * 86_400  # in nanoseconds it is within 63 bits


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What holds for all devices.

    Attributes:
        keep_s: Commits younger than that stay whole. 0: only what heads name.
    """

    keep_s: int = DEFAULT_KEEP_S

    @property
    def keep_ns(self) -> int:
        """The same in nanoseconds."""
        return self.keep_s * 10**9


def encode(keys: Keys, salt: bytes, settings: Settings, codec: Codec) -> bytes:
    """The object's bytes; `salt` are 16 fresh random bytes."""
    assert _is_sound(settings)
    return seal_whole(keys, Kind.SETTINGS, salt, msgspec.json.encode(settings), codec)


def decode(keys: Keys, raw: bytes, codec: Codec) -> Settings:
    """What was decided.

    Raises:
        DamagedObjectError: Damaged, or not made with this repository's key.
        FormatTooNewError: A newer blocksync's.
    """
    body = open_whole(keys, Kind.SETTINGS, NAME, raw, codec, limit=MAX_BYTES)
    try:
        settings = msgspec.json.decode(body, type=Settings)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise DamagedObjectError(NAME, "is malformed") from None
    if not _is_sound(settings):
        raise DamagedObjectError(NAME, "is malformed: its values are out of range")
    return settings


def _is_sound(settings: Settings) -> bool:
    return 0 <= settings.keep_s <= MAX_KEEP_S
