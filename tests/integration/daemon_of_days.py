"""`blocksync watch` for which days can pass: `python -m tests.integration.daemon_of_days [ROOT]…`.

Each SIGUSR1 puts both of the daemon's clocks on by a day: the one that it counts with, as if the machine had been awake
all day, and the one on the wall. All else is the command's.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Final

import trio
from trio.testing import MockClock

from syncer.cli import main
from syncer.cli.verbs import watch

DAY_S: Final = 86_400.0


class Days:
    """Two clocks that go as all do, and how to put them on."""

    def __init__(self) -> None:
        self._clock = MockClock(rate=1.0)
        self._passed_s = 0.0

    def time(self) -> float:
        return time.time() + self._passed_s

    def run(self, daemon: Callable[..., Awaitable[object]], *arguments: object) -> None:
        trio.run(self._run, daemon, arguments, clock=self._clock)

    async def _run(self, daemon: Callable[..., Awaitable[object]], arguments: tuple[Any, ...]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._turn)
            await daemon(*arguments)
            nursery.cancel_scope.cancel()

    async def _turn(self) -> None:
        with trio.open_signal_receiver(signal.SIGUSR1) as signals:
            async for _ in signals:
                self._passed_s += DAY_S
                self._clock.jump(DAY_S)


if __name__ == "__main__":
    days = Days()
    watch.time = SimpleNamespace(time=days.time)  # type: ignore[assignment]  # of all of it, that is what it asks for
    watch.trio = SimpleNamespace(run=days.run, open_signal_receiver=trio.open_signal_receiver)  # type: ignore[assignment]
    sys.exit(main.run(["watch", *sys.argv[1:]]))
