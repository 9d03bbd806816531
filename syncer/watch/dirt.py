"""What may have changed since somebody last looked. Pure values: a hint where to look, never evidence of anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from syncer.core.model import RelPath

MAX_DIRECTORIES: Final = 65536
"""More dirty directories than this are "everything": looking at each of them costs as much as a scan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dirt:
    """Directories whose entries may differ from what was seen last.

    Attributes:
        everything: Nothing is known: an event was lost, or nobody watched. Then `directories` says nothing.
        directories: Relative to the root; b"" is the root itself. What lies below them is not meant.
    """

    everything: bool = False
    directories: frozenset[RelPath] = frozenset()

    def __bool__(self) -> bool:
        return self.everything or bool(self.directories)

    def __or__(self, other: Dirt) -> Dirt:
        """Both."""
        if self.everything or other.everything:
            return EVERYTHING
        both = self.directories | other.directories
        return EVERYTHING if len(both) > MAX_DIRECTORIES else Dirt(directories=both)


CLEAN: Final = Dirt()
EVERYTHING: Final = Dirt(everything=True)
