"""Windows that were cut lately: another file's window is cut as an edit of the one that stood at the same offset.

Disks of one family, copies, generations of a backup: most blocks of such files are the same, at the same place, and
the share's block lists say which. So they are neither read nor cut again; `chunks.cut_window` says what may be reused.
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from blockfs.blocks.ids import ID_SIZE
from syncer.remote.repository.format.chunks import Range
from syncer.remote.repository.format.keys import ChunkId

_WINDOWS: Final = 2048  # 8 GiB of offsets; some 12 KB each
_ROW: Final = struct.Struct(">II32s")


class Window(msgspec.Struct, frozen=True):
    """A window as it was cut.

    Attributes:
        size_bytes: Of the content that it was of.
        ids: Of its blocks, one behind the other.
        rows: Offset in the window, length and id of each chunk.
    """

    size_bytes: int
    ids: bytes
    rows: bytes

    def chunks(self, start: int) -> dict[int, tuple[int, ChunkId]]:
        """Length and id of each chunk, by where it begins; `start` is where the window does."""
        return {start + at: (length, ChunkId(chunk)) for at, length, chunk in _ROW.iter_unpack(self.rows)}


class Alike:
    """The last window that was cut at each offset. Safe for many threads; bounded."""

    def __init__(self) -> None:
        """Begin with none."""
        self._windows: OrderedDict[int, Window] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, start: int, size: int, ids: bytes, chunks: Sequence[tuple[int, int, ChunkId]]) -> None:
        """A window of a content of this size was cut: offset, length and id of its chunks; left out without ids."""
        if not ids:
            return
        rows = b"".join(_ROW.pack(at - start, length, chunk) for at, length, chunk in chunks)
        with self._lock:
            self._windows[start] = Window(size, ids, rows)
            self._windows.move_to_end(start)
            while len(self._windows) > _WINDOWS:
                self._windows.popitem(last=False)

    def find(self, start: int, ids: bytes, grid: int) -> tuple[Window, list[Range]] | None:
        """The last window at an offset, and where another one may differ from it; None if that is half of it."""
        with self._lock:
            window = self._windows.get(start)
        if window is None or not ids:
            return None
        changed = [
            (start + at // ID_SIZE * grid, start + (at // ID_SIZE + 1) * grid)
            for at in range(0, min(len(ids), len(window.ids)), ID_SIZE)
            if ids[at : at + ID_SIZE] != window.ids[at : at + ID_SIZE]
        ]
        beyond = abs(len(ids) - len(window.ids)) // ID_SIZE
        return None if 2 * (len(changed) + beyond) * ID_SIZE > len(ids) else (window, changed)

    def clear(self) -> None:
        """Forget them: their chunks may be nowhere."""
        with self._lock:
            self._windows.clear()
