"""How a chunk becomes a message and back: a byte that says how, then the bytes.

    0    1   0: as they are; 1: one zstd frame, which says its length
    1    n   the bytes

Source: docs/design/repository.md, section 4.
"""

from __future__ import annotations

from typing import Final

import zstandard

RAW: Final = 0
ZSTD: Final = 1
LEVEL: Final = 3  # of zstd: 234 MB/s on real data; level 1 is 1.3 times as fast and 5 to 10 % larger
_MIN_SAVED_SHARE: Final = 20  # saving less than 1/20 isn't worth a decompression for each read
_RAW, _ZSTD = bytes([RAW]), bytes([ZSTD])


class BadMessage(ValueError):  # noqa: N818 - not an error of its own: who knows the object's name tells it
    """A message that no codec of ours made. The text completes "the object …"."""


class Codec:
    """Compresses and decompresses, releasing the interpreter's lock. One for each thread: it must not be shared."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)
        self._decompressor = zstandard.ZstdDecompressor()

    def encode(self, data: bytes | memoryview) -> bytes:
        """The message of some bytes; as they are if zstd saves less than 5 %."""
        packed = self._compressor.compress(data)
        if (len(data) - len(packed)) * _MIN_SAVED_SHARE < len(data):
            return b"".join((_RAW, data))
        return _ZSTD + packed

    def decode(self, message: bytes, limit: int, *, exact: bool = False) -> bytes:
        """The bytes of a message. Never allocates more than `limit`, whatever the message says.

        Args:
            message: As `encode` made it.
            limit: Most bytes that may come out.
            exact: Exactly `limit` bytes must come out.

        Raises:
            BadMessage: Damaged, too long, or not of this length.
        """
        how, rest = message[:1], message[1:]
        if how == _RAW:
            if len(rest) > limit or (exact and len(rest) != limit):
                raise BadMessage(f"holds {len(rest)} bytes where {limit} are expected")
            return rest
        if how != _ZSTD:
            raise BadMessage("holds bytes of an unknown codec")
        try:
            # The decompressor allocates what the frame claims: compare it with the truth first.
            claimed = zstandard.get_frame_parameters(rest).content_size
            if not 0 < claimed <= limit or (exact and claimed != limit):
                raise BadMessage(f"holds {claimed} compressed bytes where {limit} are expected")
            return self._decompressor.decompress(rest, max_output_size=claimed, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise BadMessage(f"is not readable as zstd: {error}") from error
