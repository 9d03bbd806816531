"""How often Python looks for cyclic garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

_NEW_OBJECTS: Final = 100_000  # between two looks, instead of 700


def look_rarely() -> None:
    """For work that makes rows and actions by the thousand, none of which is garbage: 5 to 10 % of its time."""
    gc.set_threshold(_NEW_OBJECTS)


def not_at_the_end() -> None:
    """For a process that is about to end: its last look takes 50 ms, and 70 more with what 10,000 new files leave."""
    gc.freeze()


@contextlib.contextmanager
def not_now() -> Iterator[None]:
    """For imports, of which a twentieth of the time is looking for garbage that there is not."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
