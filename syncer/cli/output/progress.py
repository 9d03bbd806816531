"""How far a cycle is: files and bytes of the plan, and what really travels. A value, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass, field

from blockfs.runtime.units import format_size
from syncer.core.model import Action, Create, Plan, Update
from syncer.ports.localvalues import LocalCounters
from syncer.ports.remote import Counters


@dataclass(slots=True, kw_only=True)
class Progress:
    """Mutable; time is an argument.

    Attributes:
        counters: Of the client: what travels.
        hashing: How much of the new and changed local files is read, and of how much; None where nothing is read.
        files: Actions of the plan; not only files.
        files_done: Those that are done.
        bytes: Sizes of the files that are created or updated: most of it need not travel.
        bytes_done: Of those that are done.
    """

    counters: Counters
    hashing: LocalCounters | None = None
    files: int = 0
    files_done: int = 0
    bytes: int = 0
    bytes_done: int = 0
    _began_s: float = 0.0
    _before: Counters = field(init=False)

    def __post_init__(self) -> None:
        """What a client did before is not of this cycle."""
        self._before = self.counters.snapshot()

    def planned(self, plan: Plan, now_s: float) -> None:
        """The totals are known."""
        actions = (*plan.remote, *plan.local)
        self.files, self.bytes = len(actions), sum(map(_size, actions))
        self._began_s = now_s
        self._before = self.counters.snapshot()

    def done(self, action: Action) -> None:
        """One more."""
        self.files_done += 1
        self.bytes_done += _size(action)

    def looking(self) -> dict[str, int]:
        """The fields of an event before there is a plan."""
        done, total = (0, 0) if self.hashing is None else (self.hashing.done_bytes, self.hashing.total_bytes)
        return {
            "bytes_hashed": done,
            "bytes_to_hash": total,
            "bytes_received": self.counters.since(self._before).bytes_received,
        }

    def looking_line(self) -> str:
        """The same for a terminal."""
        found = self.looking()
        done, total, received = found.values()
        parts = ["looking at both sides"]
        if total:
            parts.append(f"hashed {format_size(done)} of {format_size(total)}, {percent(done, total)}")
        if received:
            parts.append(f"server's list: ↓ {format_size(received)}")
        return " · ".join(parts)

    def figures(self, now_s: float) -> dict[str, int]:
        """The fields of an event."""
        moved = self.counters.since(self._before)
        travelled = moved.bytes_sent + moved.bytes_received
        elapsed = max(now_s - self._began_s, 1e-3)
        return {
            "files_done": self.files_done,
            "files": self.files,
            "bytes_done": self.bytes_done,
            "bytes": self.bytes,
            "bytes_sent": moved.bytes_sent,
            "bytes_received": moved.bytes_received,
            "bytes_per_s": round(travelled / elapsed),
            "seconds": round(elapsed),
        }

    def line(self, now_s: float) -> str:
        """For a terminal."""
        moved = self.counters.since(self._before)
        rate = (moved.bytes_sent + moved.bytes_received) / max(now_s - self._began_s, 1e-3)
        return (
            f"{self.files_done} of {self.files} · {format_size(self.bytes_done)} of {format_size(self.bytes)}"
            f"{f', {percent(self.bytes_done, self.bytes)}' if self.bytes else ''} · "
            f"↑ {format_size(moved.bytes_sent)} ↓ {format_size(moved.bytes_received)} · {format_size(int(rate))}/s"
        )


def percent(done: int, total: int) -> str:
    """A share, rounded down: 100 % is all of it."""
    return f"{100 * min(done, total) // total} %"


def _size(action: Action) -> int:
    if isinstance(action, Create | Update) and action.content is not None:
        return action.content.size_bytes
    return 0
