"""The record of what was done: written before and after each operation, by the one who does it, outside the mount.

One JSON line per event: `[operation, argument…]` before, `"done"` after. Appended by write(2): it outlives its writer.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

Step = list[Any]


class Log:
    """Written by one worker."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @contextlib.contextmanager
    def step(self, *step: Any) -> Iterator[None]:
        """Note an operation; its end only if it succeeds."""
        self._append(step)
        yield
        self._append("done")

    def unexpected(self, error: BaseException) -> None:
        """Note a failure that is not the mount's end."""
        self._append(["unexpected", repr(error)])

    def _append(self, event: Any) -> None:
        os.write(self._descriptor, json.dumps(event).encode() + b"\n")


class Record(msgspec.Struct, frozen=True):
    """What a log says.

    Attributes:
        steps: The operations in order, and whether each has returned. Only the last one may not have.
    """

    steps: list[tuple[Step, bool]]

    @property
    def unfinished(self) -> str | None:
        """The operation that the kill hit."""
        return str(self.steps[-1][0][0]) if self.steps and not self.steps[-1][1] else None


def read_log(path: Path) -> Record:
    """Read a log; an empty one if its writer did not get that far."""
    lines = path.read_text().splitlines() if path.exists() else []
    steps: list[tuple[Step, bool]] = []
    for line in lines:
        event = json.loads(line)
        if event == "done":
            steps[-1] = (steps[-1][0], True)
        else:
            steps.append((event, False))
    return Record(steps)
