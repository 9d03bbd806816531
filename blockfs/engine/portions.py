"""Long work on the tree in small portions, so that nobody waits for it and its change sets stay small."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from blockfs.engine.context import Stores
from blockfs.engine.durable.committer import Committer
from blockfs.errors import BlockfsError

LEAVES_PER_STEP: Final = 16  # of a large file; a step should cost what a small file costs
_STEPS_PER_HOLD: Final = 64  # other requests wait about 5 ms for them
_HOLDS_PER_COMMIT: Final = 32  # about 2,000 inodes: 10 MB of changes
_PAUSE_S: Final = 0.0005  # the lock is not fair: who waits for it gets it only while nobody asks for it again at once


Stop = Callable[[], bool]
"""Asked now and then: the mount is ending, let go."""


def never() -> bool:
    """The `Stop` of whoever has the time."""
    return False


class StoppedError(BlockfsError):
    """`stop` said so; what was done so far is committed."""

    errno = errno.EINTR

    def __init__(self) -> None:
        super().__init__("stopped half-way: the mount is ending; what was half done goes with the next mount")


def pause_of(stop: Stop) -> Callable[[], None]:
    """Raises StoppedError as soon as `stop` says so."""

    def pause() -> None:
        if stop():
            raise StoppedError

    return pause


def work_through(stores: Stores, committer: Committer, steps: Iterator[None], *, stop: Stop = never) -> None:
    """Take all steps, each under the engine's lock, and commit now and then and at the end.

    Args:
        stores: Of the mount.
        committer: Of the mount.
        steps: What it does up to the next `yield` is a step. At each one the tree must be consistent.
        stop: See `Stop`.

    Raises:
        StoppedError: `stop` said so.
        NoSpaceError: The host is full. What was done is not lost, and is committed later.
        BlockfsError: A step failed, or the host.
    """
    finished = False
    while not finished:
        for _ in range(_HOLDS_PER_COMMIT):
            with stores.lock:
                finished = sum(1 for _ in islice(steps, _STEPS_PER_HOLD)) < _STEPS_PER_HOLD
            if finished:
                break
            time.sleep(_PAUSE_S)
        stores.config.checkpoint("portion.commit")
        committer.commit()
        if stop() and not finished:
            raise StoppedError
