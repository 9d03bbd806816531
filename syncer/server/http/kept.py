"""What those who look after a program may ask as often as they like: it costs no more for that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from blockfs.runtime.logs import Log

TEXT_FORMAT: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Of Prometheus."""

_SHARE: Final = 20  # what takes long is made anew after so many times as long: 5 % of one core
_MOST_S: Final = 60.0  # but after that at the latest
_PATIENCE_S: Final = 5.0  # a disk, or a daemon, that answers later than that is not well
_BEARER: Final = "bearer"

_log = Log()

T = TypeVar("T")


class Kept(Generic[T]):
    """Something that costs: made in a thread, by one at a time, and kept for a while. For the loop's thread."""

    def __init__(self, make: Callable[[], T], keep_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        """Nothing is made yet.

        Args:
            make: Makes it; called in a thread.
            keep_s: It is made anew after that; what takes long, less often.
            now_s: A clock, seconds.
        """
        self._make = make
        self._keep_s = keep_s
        self._now_s = now_s
        self._due_s = float("-inf")
        self._value: T | None = None
        self._is_failing = False
        self._making: asyncio.Task[None] | None = None

    async def get(self) -> T | None:
        """It, or None: it could not be made, or not in time."""
        if self._making is None and self._now_s() >= self._due_s:
            self._making = asyncio.create_task(self._renew())
        if self._making is not None:
            await asyncio.wait({self._making}, timeout=_PATIENCE_S)
        return self._value if self._making is None else None

    async def _renew(self) -> None:
        began_s = self._now_s()
        try:
            self._value = await asyncio.to_thread(self._make)
            self._is_failing = False
        except Exception as error:  # noqa: BLE001 - whatever it is, something is not well, and that is what is asked
            self._value = None
            if not self._is_failing:  # anybody may ask: the log has it once
                _log.error("kept.not_made", error=f"{type(error).__name__}: {error}")
            self._is_failing = True
        finally:
            now_s = self._now_s()
            self._due_s = now_s + max(self._keep_s, min(_SHARE * (now_s - began_s), _MOST_S))
            self._making = None


def bearer(authorization: str) -> str | None:
    """The token of the header (RFC 6750); None: there is none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() or None if scheme.lower() == _BEARER else None
