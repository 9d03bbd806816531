"""The keys of the shares that we take part in: which one we send under, and which one a frame was sealed with.

A share has one key, and for 24 hours after a rotation two: members learn of the new one at different times. We send
under the new one, and under the old one too while somebody is heard who still uses it; what comes counts under both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from syncer.peer.wire.keys import KEY_BYTES, EpochKeys, derive

STILL_USED_S: Final = 60.0  # so long after a frame under an old key we ask under it, too


class RootKey(msgspec.Struct, frozen=True, kw_only=True):
    """A share's key, as its object in the share tells it.

    Attributes:
        raw: 32 random bytes.
        until_unix_s: When it ends, in unix seconds: 24 hours after it was replaced. None: it is the present one.
    """

    raw: bytes
    until_unix_s: float | None = None

    def __repr__(self) -> str:
        return f"RootKey(until_unix_s={self.until_unix_s})"  # keys never reach a log


class ShareKey:
    """One key of one share, with what was derived from it.

    Attributes:
        share: Our name of the share.
        root: The key.
        heard_s: When a valid frame under it came, monotonic seconds.
    """

    __slots__ = ("_epochs", "heard_s", "root", "share")

    def __init__(self, share: str, root: RootKey) -> None:
        """A key from which nothing is derived yet."""
        assert len(root.raw) == KEY_BYTES
        self.share = share
        self.root = root
        self.heard_s = -math.inf
        self._epochs: dict[int, EpochKeys] = {}

    def of(self, epoch: int) -> EpochKeys:
        """Its keys in an epoch. The last few are kept: deriving takes 50 µs."""
        keys = self._epochs.get(epoch)
        if keys is None:
            keys = self._epochs[epoch] = derive(self.root.raw, epoch)
            if len(self._epochs) > 3:  # the one before, this one and the next; the clock may go back, too
                del self._epochs[next(iter(self._epochs))]
        return keys

    def holds(self, unix_s: float) -> bool:
        """Whether it counts at this time."""
        return self.root.until_unix_s is None or unix_s < self.root.until_unix_s


class Keyring:
    """The keys of all our shares."""

    def __init__(self) -> None:
        """No share."""
        self._shares: dict[str, tuple[ShareKey, ...]] = {}

    def __len__(self) -> int:
        """How many keys there are."""
        return sum(len(keys) for keys in self._shares.values())

    def set(self, share: str, roots: Sequence[RootKey]) -> bool:
        """Take part in a share, or learn that its keys are others now.

        Args:
            share: Our name for it: one for each different key, however many roots of this machine have it.
            roots: The present key first, then those that still count.

        Returns:
            Whether the present key is a new one.
        """
        assert roots
        known = {key.root.raw: key for key in self._shares.get(share, ())}
        before = next(iter(known), None)
        keys = []
        for root in roots:
            key = known.get(root.raw) or ShareKey(share, root)
            key.root = root
            keys.append(key)
        self._shares[share] = tuple(keys)
        return before != roots[0].raw

    def remove(self, share: str) -> None:
        """Take part no longer."""
        self._shares.pop(share, None)

    def counts(self, key: ShareKey, unix_s: float) -> bool:
        """Whether a key that somebody was heard under counts still: it was neither taken away nor has it ended."""
        return key.holds(unix_s) and key in self._shares.get(key.share, ())

    def present(self, share: str) -> ShareKey | None:
        """The key to send under. None: we take no part."""
        keys = self._shares.get(share)
        return keys[0] if keys else None

    def valid(self, share: str, unix_s: float) -> list[ShareKey]:
        """All keys of a share that count now, the present one first."""
        return [key for key in self._shares.get(share, ()) if key.holds(unix_s)]

    def in_use(self, share: str, now: float, unix_s: float) -> list[ShareKey]:
        """The keys to ask under: the present one, and older ones that somebody used lately."""
        valid = self.valid(share, unix_s)
        return valid[:1] + [key for key in valid[1:] if now - key.heard_s <= STILL_USED_S]

    def match(self, epoch: int, hint: bytes, sender: bytes, unix_s: float) -> ShareKey | None:
        """The key under which this sender makes this hint in this epoch."""
        return next((key for key in self._all(unix_s) if key.of(epoch).hint(sender) == hint), None)

    def _all(self, unix_s: float) -> Iterator[ShareKey]:
        return (key for keys in self._shares.values() for key in keys if key.holds(unix_s))
