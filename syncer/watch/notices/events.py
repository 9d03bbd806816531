"""What a user is told of who looks neither at a terminal nor at the page: which events, and once each.

Pure: told what happened and when. Who carries it out is `notifier.py`.

- *conflicts*: a cycle of this machine made conflict copies. Two files that fight make one each cycle: after a notice
  the next ones are gathered for a while.
- *safety-stop*: a plan waits for consent. The next notice follows after a cycle that went through, and not at once:
  another device could delete and restore all day.
- *unsynced*: no cycle went through for a day, though the daemon tried for an hour: not of a machine that slept, nor of
  a root that is paused. Once, until one does.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from blockfs.runtime.output import printable, shown
from blockfs.runtime.units import counted
from syncer.watch.pacing import THROUGH, CycleResult

UNSYNCED_S: Final = 86_400.0
TRIED_S: Final = 3_600.0
GATHER_S: Final = 600.0
SAVE_S: Final = 3_600.0
"""When a root synced last is written down so often: a day is the question."""

MAX_TEXT: Final = 1_000  # characters: 4 KiB at most, which fit any pipe without anybody who reads
_DAY_S: Final = 86_400.0


class Notify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[notify]` of config.toml.

    Attributes:
        desktop: By the desktop's notifications.
        command: A program and its arguments, run for each notice; empty: none.
    """

    desktop: bool = False
    command: tuple[str, ...] = ()


def objection(notify: Notify) -> tuple[str, str] | None:
    """What is wrong with settings that a type can't say: the key, and what was expected. None: nothing."""
    if any("\0" in word for word in notify.command):
        return "command", "expected words without NUL characters"
    if notify.command and not notify.command[0]:
        return "command", "expected the name of a program first"
    return None


class Kind(StrEnum):
    """What happened."""

    CONFLICTS = "conflicts"
    SAFETY_STOP = "safety-stop"
    UNSYNCED = "unsynced"


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One event of one root.

    Attributes:
        kind: What happened.
        root: Where; need not be UTF-8.
        text: A line for a person, at most `MAX_TEXT` characters, without control characters and turns of direction.
    """

    kind: Kind
    root: bytes
    text: str


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What of a root outlives the daemon, so that a new one does not tell it again.

    Attributes:
        synced_s: When a cycle went through last, seconds since the epoch.
        is_stopped: It was told of a safety stop, and no cycle went through since.
        is_told: It was told that the root has not synced for a day, and no cycle went through since.
    """

    synced_s: float
    is_stopped: bool = False
    is_told: bool = False


class Book:
    """What was told of one root, and what is to be told. All but `synced_s` are times of one monotonic clock.

    Attributes:
        standing: What outlives the daemon.
        is_paused: Nobody tries to sync it.
        root: Its path, or that of its record where that can't be read.
    """

    def __init__(self, root: bytes, standing: Standing, now_s: float) -> None:
        self.standing = standing
        self.is_paused = False
        self.root = root
        self._tried_s = now_s
        self._why = ""
        self._conflicts = 0
        self._conflicts_due_s = now_s
        self._stop: str | None = None  # what waits for consent
        self._stop_due_s = now_s

    def pause(self, now_s: float, *, paused: bool) -> None:
        """It was paused, or resumed."""
        if self.is_paused and not paused:
            self._tried_s = now_s
        self.is_paused = paused

    def ended(self, result: CycleResult, why: str, conflicts: int, now_s: float, wall_s: float) -> list[Notice]:
        """A cycle has ended.

        Args:
            result: How.
            why: In words.
            conflicts: Conflict copies that it made.
            now_s: The monotonic clock.
            wall_s: Seconds since the epoch.

        Returns:
            What is to be told.
        """
        self._conflicts += conflicts
        self._why = why
        if result in THROUGH:
            self.standing = Standing(synced_s=wall_s)
            self._stop = None
        elif result is CycleResult.CONSENT:
            self._stop = why
        return self.look(now_s, wall_s)

    def look(self, now_s: float, wall_s: float) -> list[Notice]:
        """What time alone has brought."""
        found = []
        if self._conflicts and now_s >= self._conflicts_due_s:
            copies = counted(self._conflicts, "conflict copy was", "conflict copies were")
            text = f"{copies} made; `blocksync conflicts` lists them"
            found.append(self._notice(Kind.CONFLICTS, text))
            self._conflicts, self._conflicts_due_s = 0, now_s + GATHER_S
        if self._stop is not None and not self.standing.is_stopped and now_s >= self._stop_due_s:
            self.standing = msgspec.structs.replace(self.standing, is_stopped=True)
            self._stop_due_s = now_s + GATHER_S
            found.append(self._notice(Kind.SAFETY_STOP, self._stop))
        if wall_s < self.standing.synced_s:  # the clock was put back: a day from now, not from then
            self.standing = msgspec.structs.replace(self.standing, synced_s=wall_s)
        lacking_s = wall_s - self.standing.synced_s
        is_due = lacking_s >= UNSYNCED_S and now_s - self._tried_s >= TRIED_S
        if is_due and not self.is_paused and not self.standing.is_told:
            self.standing = msgspec.structs.replace(self.standing, is_told=True)
            text = f"it has not synced for {counted(int(lacking_s // _DAY_S), 'day', 'days')}"
            found.append(self._notice(Kind.UNSYNCED, f"{text}: {self._why}" if self._why else text))
        return found

    def _notice(self, kind: Kind, text: str) -> Notice:
        # A message may hold a name as the system has it: what is not UTF-8 in it could not be written.
        told = text.encode("utf-8", "backslashreplace").decode()
        line = printable(f"{shown(self.root)}: {told}")
        if len(line) > MAX_TEXT:
            line = line[: MAX_TEXT - 1] + "…"
        return Notice(kind=kind, root=self.root, text=line)
