"""What may have changed since somebody last looked. Pure values: a hint where to look, never evidence of anything."""

from __future__ import annotations

from typing import Final

import msgspec

from syncer.core.model import RelPath
from syncer.core.paths import split

MAX_DIRECTORIES: Final = 65536
"""More dirty directories than this are "everything": looking at each of them costs as much as a scan."""

MAX_ENTRIES: Final = 4096
"""More dirty entries than this are told by their directories: they are mostly in few, and a list must not grow."""


class Dirt(msgspec.Struct, frozen=True, kw_only=True):
    """What may differ from what was seen last.

    Attributes:
        everything: Nothing is known: an event was lost, or nobody watched. Then `directories` says nothing.
        directories: Relative to the root; b"" is the root itself. What lies below them is not meant.
        entries: Paths that may have come, gone or changed themselves. What lies beside or below them is not meant.
    """

    everything: bool = False
    directories: frozenset[RelPath] = frozenset()
    entries: frozenset[RelPath] = frozenset()

    def __bool__(self) -> bool:
        return self.everything or bool(self.directories) or bool(self.entries)

    def __len__(self) -> int:
        """How many places there are to look at, as far as that is known."""
        return len(self.directories) + len(self.entries)

    def __or__(self, other: Dirt) -> Dirt:
        """Both."""
        if self.everything or other.everything:
            return EVERYTHING
        directories, entries = self.directories | other.directories, self.entries | other.entries
        if len(entries) > MAX_ENTRIES:
            directories, entries = directories | {split(path)[0] for path in entries}, frozenset()
        return EVERYTHING if len(directories) > MAX_DIRECTORIES else Dirt(directories=directories, entries=entries)


CLEAN: Final = Dirt()
EVERYTHING: Final = Dirt(everything=True)
