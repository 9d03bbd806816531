"""What the volumes of a user held, hour by hour: noted by the daemon, drawn by the page.

`$XDG_STATE_HOME/blocksync/volumes/UUID.jsonl` has a line for each moment. When it has grown long, of its older half
every other line goes: the last weeks are there by the hour, the last year by the week.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from blockfs.runtime.atomic import write_atomically
from syncer.protocol.jsontext import MALFORMED
from syncer.ui.ports import Use

EVERY_S: Final = 3600.0
MOST_LINES: Final = 1000
_UUID: Final = re.compile("[0-9a-f-]+")


class History:
    """The lines of all volumes of a user."""

    def __init__(self, folder: str) -> None:
        """Of a folder, which is made when it is needed."""
        self._folder = folder

    def of(self, uuid: str) -> tuple[Use, ...]:
        """What was noted of a volume, the oldest first; a line that can't be read is left out."""
        try:
            with open(self._path(uuid), "rb") as file:
                lines = file.read().splitlines()
        except OSError:
            return ()
        found = []
        for line in lines:
            with contextlib.suppress(*MALFORMED):
                found.append(msgspec.json.decode(line, type=Use))
        return tuple(found)

    def is_due(self, uuid: str, at_s: float) -> bool:
        """Whether the last line of a volume is old enough for another one, by the clock of the day."""
        known = self.of(uuid)
        return not known or not 0 <= at_s - known[-1].at_s < EVERY_S / 2

    def note(self, uuid: str, use: Use) -> None:
        """Add a line, if it is due. That the disk is full is no reason to fail."""
        known = self.of(uuid)
        if not _UUID.fullmatch(uuid) or not self.is_due(uuid, use.at_s):
            return
        with contextlib.suppress(OSError):
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            write_atomically(self._path(uuid), b"".join(map(_line, thinned([*known, use]))))

    def _path(self, uuid: str) -> str:
        return os.path.join(self._folder, f"{uuid}.jsonl")


def thinned(uses: Sequence[Use], most: int = MOST_LINES) -> list[Use]:
    """The same, with every other one of the older half left out if there are more than `most`. Pure."""
    if len(uses) <= most:
        return list(uses)
    half = len(uses) // 2
    return [*uses[:half:2], *uses[half:]]


def _line(use: Use) -> bytes:
    return msgspec.json.encode(use) + b"\n"
