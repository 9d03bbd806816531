"""How much is sent and looked at: token buckets. Nobody may make us busy, and we make nobody's network busy."""

from __future__ import annotations

from typing import Final

HINTS_MOST: Final = 4000  # at once, and in a second: 6 ms
WORK: Final = (
    512  # questions of others in work at once: eight machines that begin together ask 8 x 58 for 10,000 blocks
)


class Bucket:
    """A token bucket that begins full. It gives tokens that it has, and no others. Time is an argument."""

    __slots__ = ("_at_s", "_burst", "_level", "_per_s")

    def __init__(self, burst: float, per_s: float) -> None:
        """A bucket.

        Args:
            burst: So many tokens it holds.
            per_s: So many come in each second.
        """
        assert burst >= 1
        assert per_s > 0
        self._burst = burst
        self._per_s = per_s
        self._level = burst
        self._at_s: float | None = None

    def take(self, now: float, count: float = 1) -> bool:
        """Take tokens if all of them are there.

        Args:
            now: Monotonic, in seconds.
            count: At most the burst.
        """
        self._fill(now)
        if self._level < count:
            return False
        self._level -= count
        return True

    def give_back(self, count: float) -> None:
        """Put tokens back that were taken, and not used."""
        self._level = min(self._burst, self._level + count)

    def ready_at(self, now: float, count: float = 1) -> float:
        """When so many tokens will be there: `now` if they are there already."""
        self._fill(now)
        return now + max(0.0, count - self._level) / self._per_s

    def _fill(self, now: float) -> None:
        if self._at_s is not None and now > self._at_s:
            # A millionth of a token more: who waits until `ready_at` finds one, whatever the sums were rounded to.
            self._level = min(self._burst, self._level + (now - self._at_s) * self._per_s + 1e-6)
        self._at_s = now if self._at_s is None else max(now, self._at_s)


def broadcasts(*, wireless: bool) -> Bucket:
    """Broadcast frames of one link. Wireless ones send broadcasts at the lowest rate, and wake everybody for them."""
    return Bucket(8, 20) if wireless else Bucket(64, 200)


def hellos() -> Bucket:
    """HELLO that answers HELLO. Who comes says one by each of its links; questions have another budget."""
    return Bucket(64, 20)


def inbound() -> Bucket:
    """Frames of all senders that get as far as a cipher: at 10 µs each that is 2 % of a core."""
    return Bucket(2000, 2000)


def inbound_connections() -> Bucket:
    """Connections that are taken, whoever begins them: 0.35 ms each, so 4 % of a core. More wait in the kernel."""
    return Bucket(64, 100)


def inbound_of_one() -> Bucket:
    """Frames of one sender: its broadcasts, and its answers to as many of ours."""
    return Bucket(256, 500)


def strangers() -> Bucket:
    """Hints computed for senders that are not in the cache, one for each key of ours. Known senders need none."""
    return Bucket(HINTS_MOST, HINTS_MOST)
