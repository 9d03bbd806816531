"""One side's actions: one that fails takes only its own node, and what needs it, out of the cycle."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from blockfs.exitcodes import ExitCode
from syncer.core.model import Action, SetMeta, Side
from syncer.core.planner.outcome import BaseChange, Outcome
from syncer.engine.record import Recorder
from syncer.engine.report import Listener, Report, code_of_one
from syncer.errors import LocalChangedError, UnholdableError, UnsafeNameError
from syncer.ports.localvalues import BusyError

Told: TypeAlias = Callable[[Action, list[BaseChange] | Exception], Awaitable[None]]
"""What became of an action: what it changes in the base, or one of `ONE_NODE`."""

Perform: TypeAlias = Callable[[Sequence[Action], Told], Awaitable[None]]
"""Does actions; what it raises ends the cycle."""


class Isolation:
    """Does actions and books them."""

    def __init__(
        self,
        outcome: Outcome,
        recorder: Recorder,
        report: Report,
        listener: Listener,
        failed: Callable[[Action, str, int], None],
    ) -> None:
        """Take the outcome of a cycle, and who is told of failures: action, reason, exit code."""
        self._outcome = outcome
        self._recorder = recorder
        self._report = report
        self._listener = listener
        self._failed = failed

    async def wave(self, actions: Sequence[Action], perform: Perform) -> None:
        """Do several that do not need each other, each booked as soon as it is told what became of it."""

        async def done(action: Action, result: list[BaseChange] | Exception) -> None:
            if isinstance(result, Exception):
                self._isolate(action, result)
                if _is_unholdable(action, result):
                    await self._recorder.add(self._outcome.partly(action.nid))
            else:
                await self._book(action, result)

        await perform([action for action in actions if self._is_ready(action)], done)

    def _is_ready(self, action: Action) -> bool:
        obstacle = self._outcome.obstacle(action)
        if obstacle is not None:
            self._outcome.failed(action)
            self._failed(action, obstacle, ExitCode.PARTLY_DONE)
        return obstacle is None

    def _isolate(self, action: Action, error: Exception) -> None:
        if isinstance(error, BusyError):
            self._outcome.failed(action)
            self._report.undone = True
            self._report.notes.append((action.path, error.reason))
            self._listener.noted(action.path, error.reason)
            return
        self._outcome.failed(action)
        self._failed(action, _reason(error), code_of_one(error))

    async def _book(self, action: Action, changes: Sequence[BaseChange]) -> None:
        self._listener.done(action, action.path)
        await self._recorder.add(changes, partial(self._report.count, action))


def _is_unholdable(action: Action, error: Exception) -> bool:
    """Whether it is metadata that the local side can't have, or may not be given; the node is what was looked at."""
    is_ours = action.side is Side.LOCAL and isinstance(action, SetMeta)
    return is_ours and not isinstance(error, BusyError | LocalChangedError)


_TO_WRITE: Final = "whoever syncs must be able to write the folder that it is in: chmod u+wx, or sync as its owner"


def _reason(error: Exception) -> str:
    if isinstance(error, LocalChangedError | UnsafeNameError | UnholdableError):
        return error.reason
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return f"{reason}: {_TO_WRITE}" if error.errno == errno.EACCES else reason
    return str(error)
