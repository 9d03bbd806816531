"""What holds for a repository from its `init` on: the object `config`, written once.

Byte table:

    0    4   magic, b"bsyr"
    4    1   kind, b"C"
    5    1   format of the repository, 1: who does not know it leaves the repository alone
    6    2   0
    8    16  id of the repository, random
    24   …   a sealed object of kind b"c" (see `sealed`); its body is JSON:

    {"grid": 65536, "chunks": [4096, 16384, 65536], "made_s": 1790000000,
     "probe": {"most_winners": 1, "lists_at_once": true, "clock_ahead_ms": 20}}

The id is in the clear: the keys are derived with it. That the rest opens proves that a key is this repository's.
grid: bytes of a block in the block lists of trees. chunks: least, average and most bytes of a chunk. made_s: when it
was made, seconds since the epoch by the maker's clock. probe: what the store did when it was looked at then, told to
people; absent in repositories that were made without looking.

Source: docs/design/repository.md, section 5.
"""

from __future__ import annotations

from typing import Final

import msgspec

from syncer.errors import DamagedObjectError, FormatTooNewError
from syncer.remote.repository.format.codec import Codec
from syncer.remote.repository.format.keys import REPOSITORY_BYTES, Keys
from syncer.remote.repository.format.sealed import MAGIC, Kind, open_whole, seal_whole
from syncer.remote.stores.port import Probe

NAME: Final = "config"
FORMAT: Final = 1
MAX_BYTES: Final = 4096  # ours has 350
MIN_GRID: Final = 4096
MAX_GRID: Final = 4 << 20
_START: Final = MAGIC + b"C"
_HEADER_BYTES: Final = 8
_PLAIN_BYTES: Final = _HEADER_BYTES + REPOSITORY_BYTES
_MIN_CHUNKS: Final = (64, 256, 1024)  # what the library that cuts can do
_MAX_CHUNK: Final = 256 << 10  # chunk lists of trees are looked up by parts of this length, see `lists`
_MAX_TIME_S: Final = 1 << 40


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What holds for a repository.

    Attributes:
        grid: Bytes of a block in block lists, a power of two from 4 KiB to 4 MiB.
        chunks: Least, average and most bytes of a chunk; powers of two, each at least twice the one before,
            from 64, 256 and 1024 bytes on and up to 256 KiB.
        made_s: When it was made, seconds since the epoch, by the maker's clock.
        probe: What its store did then; None: nobody looked. Nothing relies on it.
    """

    grid: int
    chunks: tuple[int, int, int]
    made_s: int
    probe: Probe | None = None


def encode(keys: Keys, salt: bytes, config: Config, codec: Codec) -> bytes:
    """The object's bytes; `salt` are 16 fresh random bytes."""
    assert _is_sound(config)
    sealed = seal_whole(keys, Kind.CONFIG, salt, msgspec.json.encode(config), codec)
    return _START + bytes([FORMAT, 0, 0]) + keys.repository + sealed


def repository_of(raw: bytes) -> bytes:
    """The repository's id, 16 bytes, which needs no key.

    Raises:
        DamagedObjectError: No config of ours.
        FormatTooNewError: A newer blocksync's.
    """
    if len(raw) <= _PLAIN_BYTES or raw[: len(_START)] != _START or len(raw) > MAX_BYTES:
        raise DamagedObjectError(NAME, "is damaged: it does not begin as the config of a repository does")
    if raw[5] > FORMAT:
        raise FormatTooNewError("the repository", raw[5], FORMAT)
    if raw[5:_HEADER_BYTES] != bytes([FORMAT, 0, 0]):
        raise DamagedObjectError(NAME, "is damaged: its header is not one of ours")
    return raw[_HEADER_BYTES:_PLAIN_BYTES]


def decode(keys: Keys, raw: bytes, codec: Codec) -> Config:
    """What holds.

    Raises:
        DamagedObjectError: Damaged, or the key is another repository's.
        FormatTooNewError: A newer blocksync's.
    """
    if repository_of(raw) != keys.repository:
        raise DamagedObjectError(NAME, "is of another repository than the key")
    body = open_whole(keys, Kind.CONFIG, NAME, raw[_PLAIN_BYTES:], codec, limit=MAX_BYTES)
    try:
        config = msgspec.json.decode(body, type=Config)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise DamagedObjectError(NAME, "is malformed") from None
    if not _is_sound(config):
        raise DamagedObjectError(NAME, "is malformed: its values are out of range")
    return config


def _is_sound(config: Config) -> bool:
    least, average, most = config.chunks
    return (
        all(value > 0 and value.bit_count() == 1 for value in (config.grid, *config.chunks))
        and MIN_GRID <= config.grid <= MAX_GRID
        and all(value >= floor for value, floor in zip(config.chunks, _MIN_CHUNKS, strict=True))
        and least <= average // 2
        and average <= most // 2
        and most <= _MAX_CHUNK
        and 0 <= config.made_s <= _MAX_TIME_S
    )
