"""What a cycle did, and how it is told to a listener while it goes on. Values only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from blockfs.exitcodes import ExitCode
from blockfs.runtime.failures import code_of
from syncer.core.model import (
    Action,
    Create,
    Mkdir,
    Move,
    Nid,
    Note,
    NoteKind,
    Plan,
    RelPath,
    SetMeta,
    Side,
    Trash,
    Update,
)
from syncer.ports.blocks import BlockSource, SourceStats
from syncer.ports.localvalues import Problem

CHANGES: Final = ("pushed", "pulled", "moved", "deleted", "conflicts")
"""Of the summary's figures those that say what a cycle changed."""

TRAFFIC: Final = ("bytes_sent", "bytes_received", "blocks_sent", "blocks_received", "requests")
"""Counters of a client that the summary shows."""


def no_step(name: str) -> None:
    """A fault point outside of tests."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was to be synced and is not, in this cycle.

    Attributes:
        path: Which; need not be UTF-8.
        reason: Why, and what happens next.
        exit_code: What it alone would make the run end with: 3, or 15 for damaged data.
    """

    path: bytes
    reason: str
    exit_code: int = ExitCode.PARTLY_DONE


def code_of_one(error: BaseException) -> int:
    """What the failure of one node, by this error, would make the run end with."""
    return ExitCode.CORRUPTION if code_of(error) == ExitCode.CORRUPTION else ExitCode.PARTLY_DONE


@dataclass(slots=True, kw_only=True)
class Report:
    """The result of a cycle. Filled while it goes on, so that a broken-off one still tells what it did.

    Attributes:
        pushed: Nodes made or changed on the server.
        pulled: Nodes made or changed locally.
        moved: Nodes renamed, on either side.
        deleted: Nodes deleted into the trash, on either side.
        conflicts: Conflict copies made; those of earlier cycles that were cut short count, too.
        traffic: Counters of the client, by their JSON names.
        sources: What each source of blocks gave to a pull, by its name.
        own_blocks: Blocks that a pull found here without any source: `LocalCounters.own_blocks`.
        blocks_read: Blocks that the server gave to a pull, also those that were of no use.
        blocks_to_peers: Blocks that devices on the network got from here; of a daemon since the cycle before.
        bytes_to_peers: Of these.
        bytes_read_local: Content bytes read from files or segments of this machine.
        seconds: Wall-clock time.
        mutating_requests: Requests that may have changed the server.
        failures: What is not synced.
        notes: What a person may want to know.
        dry_run: Nothing was done; the counts say what would be.
        digest: Names the deletions of the plan.
        undone: An action was planned and not done.
    """

    pushed: int = 0
    pulled: int = 0
    moved: int = 0
    deleted: int = 0
    conflicts: int = 0
    traffic: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, SourceStats] = field(default_factory=dict)
    own_blocks: int = 0
    blocks_read: int = 0
    blocks_to_peers: int = 0
    bytes_to_peers: int = 0
    bytes_read_local: int = 0
    seconds: float = 0.0
    mutating_requests: int = 0
    failures: list[Failure] = field(default_factory=list)
    notes: list[tuple[bytes, str]] = field(default_factory=list)
    dry_run: bool = False
    digest: str = ""
    undone: bool = False
    _copies: Counter[Nid] = field(default_factory=Counter)

    @property
    def exit_code(self) -> int:
        """0, 3, 4 or 15 (docs/reference/exit-codes.md)."""
        if self.failures:
            return max(failure.exit_code for failure in self.failures)
        return ExitCode.CONFLICT_COPY if self.conflicts else ExitCode.DONE

    def counts(self) -> dict[str, int | float]:
        """The figures of the summary, in its order and by its keys."""
        in_vain = self.blocks_read - self._from("remote").blocks
        others = [each for name, each in self.sources.items() if name != "remote"]
        return {
            "pushed": self.pushed,
            "pulled": self.pulled,
            "moved": self.moved,
            "deleted": self.deleted,
            "conflicts": self.conflicts,
            **{key: self.traffic.get(key, 0) for key in TRAFFIC},
            "blocks_received": self.traffic.get("blocks_received", 0) - in_vain,
            "blocks_in_vain": in_vain + sum(each.late + each.wrong for each in others),
            "blocks_from_own": self.own_blocks + self._from("own").blocks,
            "blocks_from_roots": self._from("roots").blocks,
            "blocks_from_peers": self._from("peers").blocks,
            "bytes_from_peers": self._from("peers").bytes,
            "blocks_to_peers": self.blocks_to_peers,
            "bytes_to_peers": self.bytes_to_peers,
            "bytes_read_local": self.bytes_read_local,
            "mutating_requests": self.mutating_requests,
            "seconds_held": round(self._from("remote").held_s, 3),
            "seconds": round(self.seconds, 3),
        }

    def bytes_from_near(self, sources: Iterable[BlockSource]) -> int:
        """What came from sources on this machine."""
        return sum(self._from(each.name).bytes for each in sources if each.near)

    def _from(self, source: str) -> SourceStats:
        return self.sources.get(source, SourceStats())

    def count(self, action: Action) -> None:
        """Count one action that is done (or, in a dry run, would be)."""
        self.conflicts += self._copies.pop(action.nid, 0)
        if isinstance(action, Mkdir | Create | Update | SetMeta):
            if action.side is Side.REMOTE:
                self.pushed += 1
            else:
                self.pulled += 1
        elif isinstance(action, Move):
            self.moved += 1
        elif isinstance(action, Trash) and action.absorbed_by is None:
            self.deleted += 1

    def take_notes(self, plan: Plan, problems: list[Problem]) -> None:
        """Keep the remarks of observation and plan; what can't be held by a side, or can't be read, is a failure."""
        told = set()
        for problem in problems:
            told.add(problem.path)
            if problem.partly:
                self.failures.append(Failure(path=problem.path, reason=problem.reason))
            else:
                self.notes.append((problem.path, problem.reason))
        for note in plan.notes:
            self._take_note(note, told)
        self._expect_copies(plan)

    def _expect_copies(self, plan: Plan) -> None:
        """A conflict copy counts when the first of its actions is done, or now if an earlier cycle did them all."""
        copies = Counter(note.copy_nid for note in plan.notes if note.kind is NoteKind.CONFLICT)
        awaited = {action.nid for action in (*plan.local, *plan.remote)}
        for nid, count in copies.items():
            if nid in awaited:
                self._copies[nid] = count
            else:
                self.conflicts += count

    def _take_note(self, note: Note, told: set[bytes]) -> None:
        if note.kind is NoteKind.UNHOLDABLE:
            self.failures.append(Failure(path=note.path, reason=note.text))
        elif note.path not in told or note.kind is not NoteKind.UNKNOWN:
            self.notes.append((note.path, note.text))


class Listener(Protocol):
    """Hears what a cycle does, as it does it. Called in the event loop: must not wait."""

    def planned(self, plan: Plan) -> None:
        """The plan passed the safety stop; now it is carried out (or, in a dry run, not)."""
        ...

    def done(self, action: Action, path: RelPath) -> None:
        """An action is done; `path` is where its node is now (for Trash: was)."""
        ...

    def failed(self, failure: Failure) -> None:
        """Something could not be synced."""
        ...

    def noted(self, path: bytes, text: str) -> None:
        """A remark on a path."""
        ...
