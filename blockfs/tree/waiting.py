"""Long work on a tree that asks now and then whether to go on: the mount may be ending, and waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

Pause = Callable[[], None]
"""Called now and then; raises to give up."""

_ITEMS: Final = 512  # between two questions: milliseconds of work
_WAIT_S: Final = 0.05  # likewise, while a lock is waited for

T = TypeVar("T")


def go_on() -> None:
    """The `Pause` of whoever has the time."""


def asking(items: Iterable[T], pause: Pause) -> Iterator[T]:
    """The same items."""
    for number, item in enumerate(items):
        if not number % _ITEMS:
            pause()
        yield item


@contextmanager
def held(lock: threading.Lock, pause: Pause) -> Iterator[None]:
    """Hold a lock that somebody else may hold for long."""
    while not lock.acquire(timeout=_WAIT_S):
        pause()
    try:
        yield
    finally:
        lock.release()
