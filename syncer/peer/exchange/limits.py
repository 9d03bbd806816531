"""How much peers may have of this machine: connections, uploads, bytes a second."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from resource import RUSAGE_THREAD, getrusage
from typing import Final, TypeVar

import msgspec
import trio

CONNECTIONS: Final = 32
CONNECTIONS_EACH: Final = 4  # of one address
HANDSHAKES: Final = 8  # under way: who has not proven the key yet
UPLOADS: Final = 4
WAIT_S: Final = 0.25  # for a place; who asks calls it a stall after 1 s
QUESTIONS: Final = 200_000  # tokens a second that are looked up, of all connections: a quarter of a core
WARM_S: Final = 10.0  # so long after a look-up that read no disk, the next one will not either
_BURST_S: Final = 0.05  # a limit may be exceeded for so long: records are not cut for it
_LOAD_FULL: Final = 255
A = TypeVar("A")
R = TypeVar("R")


def _disk_faults() -> int:
    return getrusage(RUSAGE_THREAD).ru_majflt


class Throttle:
    """How much a second several may have together, each in its turn.

    Args:
        per_s: Bytes, or whatever is counted. None: no limit.
    """

    def __init__(self, per_s: int | None) -> None:
        self.per_s = per_s
        self._free_s = 0.0

    async def spend(self, count: int) -> None:
        """Wait until so many may be had."""
        if self.per_s is None:
            return
        now = trio.current_time()
        begin = max(self._free_s, now - _BURST_S)
        self._free_s = begin + count / self.per_s
        if begin > now:
            await trio.sleep_until(begin)


class Door:
    """Who may come in. No waiting: who comes when it is full may come again."""

    def __init__(self, most: int = CONNECTIONS, each: int = CONNECTIONS_EACH, handshakes: int = HANDSHAKES) -> None:
        """Nobody is in.

        Args:
            most: Connections in all.
            each: Connections of one address.
            handshakes: Of these, so many that have not proven the key.
        """
        self._most = most
        self._each = each
        self._handshakes = handshakes
        self._inside: Counter[bytes] = Counter()
        self._unproven = 0

    def __len__(self) -> int:
        """Connections that are in."""
        return self._inside.total()

    def enter(self, address: bytes) -> bool:
        """Somebody comes. True: it is in, unproven, until `proven` or `leave`."""
        full = len(self) >= self._most or self._unproven >= self._handshakes
        if full or self._inside[address] >= self._each:
            return False
        self._inside[address] += 1
        self._unproven += 1
        return True

    def proven(self) -> None:
        """One of those who are in holds the key."""
        self._unproven -= 1

    def leave(self, address: bytes, *, proven: bool) -> None:
        """Somebody goes."""
        self._inside[address] -= 1
        if not self._inside[address]:
            del self._inside[address]
        self._unproven -= not proven


class Upload(msgspec.Struct, kw_only=True, eq=False):
    """One connection on which a peer asks.

    Attributes:
        peer: The sender id it had when it came.
        address: From where.
        blocks: Sent to it.
        bytes: Of these.
    """

    peer: bytes
    address: bytes
    blocks: int = 0
    bytes: int = 0


class Uploads:
    """The places for uploads, fair between connections, and what was sent.

    Attributes:
        open: The connections.
        pace: Bytes of all together.
        questions: Tokens that are looked up for all together.
        blocks: Sent.
        bytes: Of these.
        refused: Requests that were told to come again.
        accused: Blocks that were others, as peers said.
    """

    def __init__(
        self, places: int = UPLOADS, pace: Throttle | None = None, faults: Callable[[], int] = _disk_faults
    ) -> None:
        """Nothing is sent yet.

        Args:
            places: Uploads at the same time.
            pace: Of all together.
            faults: How often the calling thread has waited for a page from a disk.
        """
        self._places = places
        self._free = trio.Semaphore(places)
        self._each = max(1, places // 2)
        self._turns: dict[bytes, trio.Semaphore] = {}  # of addresses that have places or wait for one
        self._waiting = 0
        self.pace = pace or Throttle(None)
        self.questions = Throttle(QUESTIONS)
        # No more threads than there are places, and two for questions.
        self._threads = trio.CapacityLimiter(places + 2)
        self._faults = faults
        self._warm_until = -math.inf
        self.blocks = self.bytes = self.refused = self.accused = 0
        self.open: list[Upload] = []

    @contextmanager
    def connected(self, peer: bytes, address: bytes) -> Iterator[Upload]:
        """A connection, as long as the block lasts."""
        upload = Upload(peer=peer, address=address)
        self.open.append(upload)
        try:
            yield upload
        finally:
            self.open.remove(upload)

    def sent(self, upload: Upload, length: int) -> None:
        """A block went out, or the rest of one."""
        self.blocks += 1
        self.bytes += length
        upload.blocks += 1
        upload.bytes += length

    @property
    def load(self) -> int:
        """0 idle to 255: all places are taken, and as many wait."""
        taken = self._places - self._free.value + self._waiting
        return min(_LOAD_FULL, taken * _LOAD_FULL // (2 * self._places))

    async def enter(self, address: bytes) -> bool:
        """Wait a moment for a place, behind those who wait already. False: all are taken, or half by this address.

        Who vanishes, or does not read, holds its place for `serving.SEND_S`: one machine never holds all.
        """
        turn = self._turns.setdefault(address, trio.Semaphore(self._each))
        self._waiting += 1
        try:
            with trio.move_on_after(WAIT_S):
                await turn.acquire()
                try:
                    await self._free.acquire()
                except trio.Cancelled:
                    turn.release()
                    raise
                return True
            return False
        finally:
            self._waiting -= 1
            self._forget(address)

    def leave(self, address: bytes) -> None:
        """Give the place back."""
        self._free.release()
        self._turns[address].release()
        self._forget(address)

    def _forget(self, address: bytes) -> None:
        """Keep nothing of an address that has no place and waits for none."""
        turn = self._turns.get(address)
        if turn is not None and turn.value == self._each and not turn.statistics().tasks_waiting:
            del self._turns[address]

    async def look(self, what: Callable[[A], R], at: A) -> R:
        """Call something that reads files, in a thread."""
        return await trio.to_thread.run_sync(what, at, limiter=self._threads)

    # A look into an index takes 20 to 60 µs, and a thread for it 300. So there is none while indexes are in memory.

    def is_warm(self) -> bool:
        """Whether indexes are in memory, as far as can be known: then `look_up_here`, else `look_up`."""
        return trio.current_time() < self._warm_until

    def look_up_here(self, what: Callable[[A], R], at: A) -> R:
        """Call something that reads an index."""
        return self._looked_up(self._noting_faults(what, at))

    async def look_up(self, what: Callable[[A], R], at: A) -> R:
        """The same in a thread: all goes on meanwhile."""
        return self._looked_up(await self.look(partial(self._noting_faults, what), at))

    def _looked_up(self, found: tuple[R, bool]) -> R:
        result, is_from_disk = found
        self._warm_until = -math.inf if is_from_disk else trio.current_time() + WARM_S
        return result

    def _noting_faults(self, what: Callable[[A], R], at: A) -> tuple[R, bool]:
        """Call something, and tell whether the disk was read for it."""
        before = self._faults()
        found = what(at)
        return found, self._faults() > before
