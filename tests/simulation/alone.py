"""Ring R2 with nobody else: one device writes, and a local side that is written to means that it met itself.

Requests are dropped, replies are lost, the process is killed, and the user goes on meanwhile. All that is on the server
is what this device once had, so nothing may ever be done to its own side: no conflict copy, nothing that was deleted
comes back, no rename is undone.
"""

from __future__ import annotations

import random

from syncer.core.model import Action, RelPath, Side
from syncer.errors import RemoteUnavailableError
from tests.simulation.engine_scenario import Crash, Ears, EngineScenario, Trouble, run_seed, violation
from tests.simulation.invariants import ViolationError

ALONE = Trouble(users=0.01, remote=0.06, local=0.0, crash=0.01, blind=0.0, stale=0.0, watcher=0.0, crowded=False)


class AloneScenario(EngineScenario):
    """State of one run. No power cut: what one took from the user's side, the server may give back."""

    def __init__(self, seed: int, trouble: Trouble = ALONE, choices: random.Random | None = None) -> None:
        super().__init__(seed, trouble, choices)

    def _elsewhere(self) -> None:
        """There is no other device: the user of this one acts."""
        self.users.act(self.local)
        self.root.changed_by_somebody()

    def _die(self) -> None:
        self.dead = True
        self.actions.append("killed")
        raise Crash

    async def _before_remote(self, operation: str, path: RelPath) -> None:
        """Nobody is there who could make the server refuse something."""
        self._between()
        if self._chance(self.trouble.remote):
            self.actions.append(f"{operation} {path!r} is not done")
            raise RemoteUnavailableError(f"{operation}: dropped, or 5xx")

    def _ears(self) -> Ears:
        return _Alone(self.actions)


class _Alone(Ears):
    def done(self, action: Action, path: RelPath) -> None:
        super().done(action, path)
        if action.side is Side.LOCAL:
            raise ViolationError(f"I10 alone: {type(action).__name__} {path!r} here, and nobody else has written")


def failure_of(seed: int) -> str | None:
    """What a seed violates, or None."""
    return violation(lambda: run_seed(seed, scenario=AloneScenario(seed)))
