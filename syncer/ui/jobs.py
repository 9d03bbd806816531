"""Commands that run for the page: looks (plan, explain, …), whose result is kept for a while, and changes.

A look that takes longer than a person likes to wait for an answer goes on, and the page comes back for it. Who asks
first sees within 0.3 s that it is being looked; who comes back waits for what is found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from blockfs.exitcodes import ExitCode
from blockfs.runtime.failures import code_of, said
from syncer.errors import EXPECTED
from syncer.ui.ports import PagePorts, Ran

FIRST_S: Final = 0.1  # who asks first: a command takes longer, a file or a count does not …
PATIENCE_S: Final = 1.5  # … and who comes back
KEEP_S: Final = 600.0  # long enough to read a plan, and to agree to it
MAX_KEPT: Final = 32
MAX_RUNNING: Final = 4
_BUSY: Final = Ran(
    exit_code=ExitCode.LOCKED, lines=(), message="other commands of this page are at work; try again when they are done"
)


_CHANGES: Final = frozenset({"reconcile", "resolve", "restore", "ignore", "unban"})  # all other verbs only look


class Job:
    """One run of a command.

    Attributes:
        name: What it does, for a person.
        began_s: When, seconds since the epoch.
        latest: The last line of its stdout, of one that is listened to.
        ran: How it ended; None: it runs.
        found: What a look in a thread found.
        is_asked: Somebody has waited for it before.
        is_seen: Somebody was told how it ended.
        ended_s: When it ended.
    """

    def __init__(self, name: str, began_s: float) -> None:
        self.name = name
        self.began_s = began_s
        self.latest = b""
        self.ran: Ran | None = None
        self.found: object = None
        self.ended_s = 0.0
        self.is_asked = False
        self.is_seen = False
        self._done = asyncio.Event()

    def hear(self, line: bytes) -> None:
        """Take a line of its stdout."""
        self.latest = line

    def end(self, ran: Ran, now_s: float) -> None:
        """It has ended."""
        self.ran, self.ended_s = ran, now_s
        self._done.set()

    async def result(self, patience_s: float | None = None, *, waited_s: float = 0.0) -> Ran | None:
        """How it ended; None: it still runs after that time.

        Args:
            patience_s: None: little for who asks first, more for who comes back.
            waited_s: How long the page has waited for others before, if it is the first to ask.
        """
        if patience_s is None:
            patience_s = PATIENCE_S if self.is_asked else max(0.0, FIRST_S - waited_s)
        self.is_asked = True
        if self.ran is None:
            try:
                await asyncio.wait_for(self._done.wait(), patience_s)
            except TimeoutError:
                return None
        self.is_seen = True
        return self.ran


class Key(msgspec.Struct, frozen=True):
    """What a job is about: one at a time runs for each.

    Attributes:
        what: The verb.
        root: Of which root; empty: of none.
        more: What else tells it from others.
    """

    what: str
    root: str = ""
    more: bytes = b""


class Jobs:
    """What runs, and what was looked at lately. For the page's event loop."""

    def __init__(self, ports: PagePorts, now_s: Callable[[], float]) -> None:
        self._ports = ports
        self._now_s = now_s
        self._jobs: dict[Key, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def of(self, key: Key) -> Job | None:
        """What runs, or ran last."""
        return self._jobs.get(key)

    def forget(self, key: Key) -> None:
        """A result was seen, or is not true any more."""
        if key in self._jobs and self._jobs[key].ran is not None:
            del self._jobs[key]

    def forget_older(self, key: Key, since_s: float) -> None:
        """A result that was seen is not true any more if something has happened since it was looked at.

        One that nobody has seen stays: else a look would never be shown that takes longer than things stay the same.
        """
        job = self._jobs.get(key)
        if job is not None and job.is_seen and job.began_s < since_s:
            self.forget(key)

    def forget_looks(self, root: str, *, but: str = "") -> None:
        """Something of a root has changed: what was seen of it, but for this verb's, is not true any more."""
        for key in [key for key in self._jobs if key.root == root and key.what not in {but, *_CHANGES}]:
            self.forget(key)

    def look(self, key: Key, name: str, look: Sequence[bytes] | Callable[[], object]) -> Job:
        """The look that runs or that was made lately; else a new one.

        Args:
            key: What it is about.
            name: What it does, for a person.
            look: A command line; or what looks, in a thread: `Job.found` is what it returns.
        """
        known = self._jobs.get(key)
        if known is not None and (known.ran is None or known.ended_s + KEEP_S > self._now_s()):
            return known
        return self.begin(key, name, look)

    def begin(
        self,
        key: Key,
        name: str,
        work: Sequence[bytes] | Callable[[], object],
        *,
        is_heard: bool = False,
        given: bytes = b"",
        then: Callable[[], None] | None = None,
    ) -> Job:
        """Run a command, unless one for the same runs.

        Args:
            key: What it is about.
            name: What it does, for a person.
            work: See `look`.
            is_heard: Keep the last line that it printed, not all of them.
            given: Its stdin.
            then: Called when it has ended.
        """
        known = self._jobs.get(key)
        if known is not None and known.ran is None:
            return known
        self._clear()
        job = Job(name, self._now_s())
        self._jobs[key] = job
        if sum(each.ran is None for each in self._jobs.values()) > MAX_RUNNING:
            job.end(_BUSY, self._now_s() - KEEP_S)
            return job

        async def run() -> None:
            ran = Ran(exit_code=ExitCode.UNEXPECTED, lines=(), message="it was not run")
            try:
                if callable(work):
                    job.found = await asyncio.to_thread(work)
                    ran = Ran(exit_code=ExitCode.DONE, lines=(), message="")
                else:
                    ran = await self._ports.run(work, job.hear if is_heard else None, given=given)
            except EXPECTED as error:
                ran = Ran(exit_code=code_of(error), lines=(), message=said(error))
            finally:
                job.end(ran, self._now_s())
                if then is not None:
                    then()

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    def _clear(self) -> None:
        """Let go of what is old, and of the oldest of too many."""
        ended = sorted(
            ((job.ended_s, key) for key, job in self._jobs.items() if job.ran is not None), key=lambda each: each[0]
        )
        most = max(0, len(ended) - MAX_KEPT + 1)
        for place, (ended_s, key) in enumerate(ended):
            if place < most or ended_s + KEEP_S < self._now_s():
                del self._jobs[key]
