"""A second process for a survey: most of its time are system calls and objects for their answers, one core's worth.

Not a fork, since we have threads. The worker is given directories, a few at a time, and tells what it found in them;
whoever surveys goes on meanwhile, and keeps the list of what is to be done. So no shape of a tree leaves one of the
two without work for long, and a worker that dies costs a second look at what it was given last.
"""

from __future__ import annotations

import marshal
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from syncer.core.ignore import IgnoreRules
from syncer.core.model import RelPath

if TYPE_CHECKING:  # imported where a worker is wanted, which few trees are large enough for
    from multiprocessing.connection import Connection

Found: TypeAlias = tuple[bool, int, list[RelPath]]
"""Of one directory: whether it is dirty, how many entries it has, and the directories among them."""

MIN_ENTRIES: Final = 50_000
"""Who has looked at so many has most likely more to do than the worker's start costs, some 0.15 s of a core."""

_BATCH: Final = 32  # directories in one message: 100 files in each take 10 ms
_UNDER_WAY: Final = 2  # one that is worked on, and the next


class Worker:
    """The one end. Blocking; for one thread."""

    def __init__(self, process: subprocess.Popen[bytes], connection: Connection) -> None:
        self._process = process
        self._connection = connection
        self._given: deque[list[RelPath]] = deque()
        self._alive = True

    def give(self, pending: deque[RelPath]) -> None:
        """Take what it can do soon from the front of the list, if that leaves enough."""
        while self._alive and len(self._given) < _UNDER_WAY and len(pending) > _BATCH:
            batch = [pending.popleft() for _ in range(_BATCH)]
            self._given.append(batch)
            try:
                self._connection.send_bytes(marshal.dumps(batch))
            except OSError:
                self._lost(pending)

    def collect(self, pending: deque[RelPath]) -> list[tuple[RelPath, Found]]:
        """What was found since the last call; waits for it if there is nothing else to do."""
        found: list[tuple[RelPath, Found]] = []
        while self._given:
            try:
                if not self._connection.poll(None if not (pending or found) else 0):
                    break
                answers = marshal.loads(self._connection.recv_bytes())  # noqa: S302 - of our own process
            except (EOFError, OSError):
                self._lost(pending)
                break
            found += zip(self._given.popleft(), answers, strict=True)
        return found

    def _lost(self, pending: deque[RelPath]) -> None:
        """It died: what it had is to be done again."""
        self._alive = False
        for batch in self._given:
            pending.extend(batch)
        self._given.clear()

    def close(self) -> None:
        """End it."""
        self._connection.close()  # which it takes for the end
        self._process.wait()


@contextmanager
def working(root: int, known: bytes, rules: IgnoreRules) -> Iterator[Worker | None]:
    """Start a worker; None if none can be had.

    Args:
        root: Descriptor of the root.
        known: The digests.
        rules: What is ignored.
    """
    from multiprocessing.connection import Connection  # noqa: PLC0415 - see above

    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "syncer.local.survey.child", str(root), str(theirs.fileno())]
    try:
        with theirs:
            # A session of its own: a Ctrl-C of the terminal is ours to handle.
            process = subprocess.Popen(  # noqa: S603 - our own program
                command,
                pass_fds=(root, theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
    except OSError:
        ours.close()
        yield None
        return
    connection = Connection(ours.detach())
    worker = Worker(process, connection)
    try:
        with suppress(OSError):  # whoever gives it something finds out
            connection.send_bytes(marshal.dumps((known, rules.dump())))
        yield worker
    finally:
        worker.close()


def has_second_core() -> bool:
    """Whether two processes can run at once."""
    return len(os.sched_getaffinity(0)) > 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) > 1
