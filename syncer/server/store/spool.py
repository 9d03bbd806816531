"""Block ids that may be too many for memory: up to some thousand in it, beyond in a file that has no name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Final, Self

from blockfs.blocks.ids import ID_SIZE, BlockId
from blockfs.runtime.atomic import space_errors

_MEMORY_BYTES: Final = 1 << 20
_STEP_BYTES: Final = 64 * 256 * ID_SIZE  # 64 leaves


class IdSpool:
    """A growing run of ids. Close it. Not for two threads at a time."""

    def __init__(self, folder: str) -> None:
        """Begin.

        Args:
            folder: Where the file is, if there has to be one.
        """
        self._folder = folder
        self._file = tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES, dir=folder)  # noqa: SIM115 - closed by `close`
        self._size = 0

    def __len__(self) -> int:
        return self._size // ID_SIZE

    def append(self, ids: bytes) -> None:
        """Add some.

        Raises:
            NoSpaceError: The disk is full.
        """
        with space_errors(self._folder):
            self._file.seek(self._size)
            self._file.write(ids)
        self._size += len(ids)

    def clear(self) -> None:
        """Forget them."""
        self._size = 0

    def ids(self, first: int, count: int) -> bytes:
        """Some of them."""
        self._file.seek(first * ID_SIZE)
        return self._file.read(max(0, min(count, len(self) - first)) * ID_SIZE)

    def runs(self, step_bytes: int = _STEP_BYTES) -> Iterator[bytes]:
        """All of them, some thousand at a time."""
        for at in range(0, self._size, step_bytes):
            yield self.ids(at // ID_SIZE, step_bytes // ID_SIZE)

    def __iter__(self) -> Iterator[BlockId]:
        for run in self.runs():
            for at in range(0, len(run), ID_SIZE):
                yield BlockId(run[at : at + ID_SIZE])

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
