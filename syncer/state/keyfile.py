"""The file in which a device keeps what it knows of a share's key. Nobody else may read it."""

from __future__ import annotations

import msgspec

from blockfs.runtime.atomic import write_atomically

_LIMIT = 1 << 16  # bytes; ours has some 500


class _Off(msgspec.Struct, frozen=True, kw_only=True):
    """What `status` needs of it (`peer.sharekey` has all)."""

    off: str


class KeyFile:
    """One root's. Blocking."""

    def __init__(self, path: str) -> None:
        """Keep the path; the folder exists."""
        self.path = path

    def read(self) -> bytes | None:
        """What was kept; None if nothing was.

        Raises:
            OSError: It can't be read.
        """
        try:
            with open(self.path, "rb") as file:
                return file.read(_LIMIT)
        except FileNotFoundError:
            return None

    def off(self) -> str:
        """Why the LAN is off for the share, in words for `status`; empty if it is not, or that can't be told."""
        try:
            return msgspec.json.decode(self.read() or b"", type=_Off).off
        except (OSError, ValueError):
            return ""

    def write(self, raw: bytes) -> None:
        """Keep this instead, durably."""
        write_atomically(self.path, raw, mode=0o600)
