"""Tells the user of notices: by the desktop, or by a command. See `events.py` for which there are.

Nothing of it holds the daemon up: roots only put notices into a queue, one task takes them out. A program that does not
end is killed, with all it has started, after `TIMEOUT_S`. None is run by a shell: names of files come from elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import trio

from blockfs.runtime.atomic import write_atomically
from blockfs.runtime.logs import Log
from syncer.errors import EXPECTED
from syncer.protocol.jsontext import MALFORMED
from syncer.watch.notices.events import SAVE_S, Book, Kind, Notice, Notify, Standing
from syncer.watch.pacing import CycleResult

log = Log()

TIMEOUT_S: Final = 30.0
LOOK_S: Final = 60.0
MAX_WAITING: Final = 64  # of a command that takes long; the oldest go
_MAX_BYTES: Final = 1 << 20
_DESKTOP: Final = {
    Kind.CONFLICTS: ("normal", "blocksync: conflicts", "Conflict copies were made. `blocksync conflicts` lists them."),
    Kind.SAFETY_STOP: (
        "critical",
        "blocksync waits for you",
        "A plan that would delete much needs your consent. `blocksync status` shows which.",
    ),
    Kind.UNSYNCED: (
        "normal",
        "blocksync: not synced for a day",
        "`blocksync status` shows what has not synced, and why.",
    ),
}
"""Urgency, title and text. They name neither a root nor a file: command lines can be read by every user."""


class Notifier:
    """The books of all roots, and who carries notices out. For the trio thread.

    What was told is kept in a file, so that a daemon that starts anew does not tell it again.
    """

    def __init__(
        self,
        settings: Callable[[], Notify],
        path: str,
        wall_s: Callable[[], float],
        environment: Mapping[str, str],
    ) -> None:
        """Begin.

        Args:
            settings: Reads what is set now; called in a thread, for each notice.
            path: Where it is kept what was told.
            wall_s: Seconds since the epoch.
            environment: Of the programs that are run.
        """
        self._settings = settings
        self._path = path
        self._wall_s = wall_s
        self._environment = environment
        self._kept = _load(path)
        self._saved = dict(self._kept)
        self._books: dict[str, Book] = {}
        self._waiting: deque[Notice] = deque()
        self._turn = trio.Event()

    def follow(self, uuid: str, root: bytes, *, paused: bool) -> None:
        """A root is watched, or paused, or resumed."""
        now_s = trio.current_time()
        if uuid not in self._books:
            standing = self._kept.get(uuid) or Standing(synced_s=self._wall_s())
            self._books[uuid] = Book(root, standing, now_s)
        self._books[uuid].root = root
        self._books[uuid].pause(now_s, paused=paused)

    def forget(self, uuid: str) -> None:
        """A root is not linked any more."""
        self._books.pop(uuid, None)
        self._kept.pop(uuid, None)

    def ended(self, uuid: str, result: CycleResult, why: str, conflicts: int) -> None:
        """A cycle of a root has ended."""
        book = self._books.get(uuid)
        if book is not None:
            self._take(book.ended(result, why, conflicts, trio.current_time(), self._wall_s()))

    async def run(self) -> None:
        """Tell, until cancelled."""
        while True:
            for book in self._books.values():
                self._take(book.look(trio.current_time(), self._wall_s()))
            await self._save()
            while self._waiting:
                await self._tell(self._waiting.popleft())
            with trio.move_on_after(LOOK_S):
                await self._turn.wait()
            self._turn = trio.Event()

    def _take(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            log.info("notice", kind=notice.kind.value, root=notice.root)
            self._waiting.append(notice)
            self._turn.set()
        while len(self._waiting) > MAX_WAITING:
            gone = self._waiting.popleft()
            log.warning("notice.not_told", kind=gone.kind.value, reason=f"more than {MAX_WAITING} wait")

    async def _tell(self, notice: Notice) -> None:
        try:
            settings = await trio.to_thread.run_sync(self._settings)
        except EXPECTED as error:
            log.warning("notice.not_told", kind=notice.kind.value, reason=str(error))
            return
        if settings.desktop:
            await self._run(notice, _desktop_command(notice))
        if settings.command:
            await self._run(notice, settings.command)

    async def _run(self, notice: Notice, command: Sequence[str]) -> None:
        """Run a program; what becomes of it goes to the log."""
        fields = {
            "BLOCKSYNC_NOTICE": notice.kind.value,
            "BLOCKSYNC_NOTICE_ROOT": os.fsdecode(notice.root),  # becomes the same bytes again
            "BLOCKSYNC_NOTICE_TEXT": notice.text,
        }
        reason = f"it did not end within {TIMEOUT_S:.0f} s"
        try:
            with trio.move_on_after(TIMEOUT_S):
                done = await trio.run_process(
                    list(command),
                    stdin=notice.text.encode() + b"\n",
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    check=False,
                    deliver_cancel=_kill,
                    env={**self._environment, **fields},
                    cwd="/",
                    start_new_session=True,
                )
                reason = "" if done.returncode == 0 else f"it ended with {done.returncode}"
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            log.warning("notice.not_told", kind=notice.kind.value, program=command[0], reason=reason)

    async def _save(self) -> None:
        """Keep what was told, if that has changed."""
        self._kept.update((uuid, book.standing) for uuid, book in self._books.items())
        if not _differ(self._saved, self._kept):
            return
        now = dict(self._kept)
        try:
            await trio.to_thread.run_sync(write_atomically, self._path, msgspec.json.encode(now))
        except EXPECTED as error:
            log.warning("notice.not_kept", reason=str(error))
        self._saved = now  # also if it failed: it is tried again with the next change, not each minute


def _differ(before: Mapping[str, Standing], now: Mapping[str, Standing]) -> bool:
    """Whether that is worth a write: times alone are not, for an hour."""
    if before.keys() != now.keys():
        return True
    for uuid, standing in now.items():
        known = before[uuid]
        if (known.is_stopped, known.is_told) != (standing.is_stopped, standing.is_told):
            return True
        if abs(standing.synced_s - known.synced_s) >= SAVE_S:
            return True
    return False


def _load(path: str) -> dict[str, Standing]:
    """What was told; nothing if that can't be known: then it is told once more."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(_MAX_BYTES), type=dict[str, Standing])
    except (OSError, *MALFORMED):
        return {}


def _desktop_command(notice: Notice) -> list[str]:
    """For notify-send(1)."""
    urgency, title, text = _DESKTOP[notice.kind]
    return ["notify-send", "--app-name=blocksync", f"--urgency={urgency}", "--", title, text]


async def _kill(process: trio.Process) -> None:
    """End it and all of its session that is still in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
