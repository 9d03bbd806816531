"""Signals that end a mount: the first is taken note of, all that follow are ignored.

A system that shuts down, and an impatient user, send SIGTERM again and again. With a handler in Python that runs for
each, they come faster than it ends: handlers nest until RecursionError, in the midst of trio, and a mount that a bug
ends does not commit. The byte that Python writes for each signal into trio's socket goes, once trio has closed it, into
whatever file has got its number.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Final, Self

import trio

ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class EndingSignals:
    """Takes note instead of dying, from `with` on.

    At its end what was in force before comes back, unless they are ignored by then: what is done is done, and nobody
    may make a failure of it while the process ends. Of the main thread only, as all handlers are.
    """

    def __init__(self) -> None:
        self._first: signal.Signals | None = None
        self._is_deaf = False
        self._heard: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._take) for number in ENDING_SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_deaf:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def ignore(self) -> None:
        """Hear no more."""
        self._is_deaf = True
        for number in ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    async def first(self) -> signal.Signals:
        """Wait for the first signal; one that came before counts."""
        token, heard = trio.lowlevel.current_trio_token(), trio.Event()

        def wake() -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(heard.set)

        self._heard = wake
        while self._first is None:
            await heard.wait()
        return self._first

    def _take(self, number: int, _frame: FrameType | None) -> None:
        self.ignore()  # first: from here on the kernel drops them
        if self._first is None:
            self._first = signal.Signals(number)
            self._heard()
