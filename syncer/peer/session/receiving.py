"""Which frames count: the checks of a receiver, the cheapest first. What fails is dropped without a word, and counted.

    size, magic, version, flags, length, type -> epoch -> ours? -> sender known, or a hint of a share -> counter
    -> budget of the sender and of all -> tag -> body

A replay costs no budget, as looking at a counter is cheaper than a budget is. A stranger's hint has a budget of its
own, for it is computed once for each key that we have. A sender is remembered only after a valid tag. We are never
remembered, so what claims to be ours, and is not, has a budget, too: anybody can have heard our hint.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container
from typing import Final

import msgspec

from syncer.peer.session.budget import HINTS_MOST, inbound, inbound_of_one, strangers
from syncer.peer.session.counters import Counters
from syncer.peer.session.keyring import Keyring, ShareKey
from syncer.peer.session.sender import Sender
from syncer.peer.session.window import ReplayWindow
from syncer.peer.wire.bodies import Body, decode_body
from syncer.peer.wire.drops import Drop
from syncer.peer.wire.frames import Header, open_body, parse_header
from syncer.peer.wire.keys import EPOCH_S, EpochKeys, epoch_of

NEARBY: Final = 1  # epochs that clocks may differ by
_EPOCH16: Final = 1 << 16
SENDERS: Final = 256  # remembered; who was heard longest ago is forgotten first


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A valid frame.

    Attributes:
        key: Of which share, and under which of its keys.
        header: Proven.
        body: Of the header's type.
    """

    key: ShareKey
    header: Header
    body: Body


class _Known:
    """A sender of whom a valid frame came."""

    __slots__ = ("budget", "epoch", "key", "keys", "window")

    def __init__(self, key: ShareKey, keys: EpochKeys, epoch: int) -> None:
        self.key = key
        self.keys = keys
        self.epoch = epoch
        self.window = ReplayWindow()
        self.budget = inbound_of_one()


class Receiver:
    """All senders, of all shares."""

    def __init__(self, keyring: Keyring, sender: Sender, counters: Counters) -> None:
        """Nobody is known.

        Args:
            keyring: Our shares.
            sender: We: not listened to.
            counters: Where drops are counted.
        """
        self._keyring = keyring
        self._sender = sender
        self._counters = counters
        self._known: OrderedDict[tuple[bytes, bytes], _Known] = OrderedDict()
        self._inbound = inbound()
        self._strangers = strangers()
        self._own = inbound_of_one()
        self._from_s = self._until_s = 0
        self._epochs: dict[int, int] = {}

    def __len__(self) -> int:
        """How many senders are remembered."""
        return len(self._known)

    def receive(self, frame: bytes, now: float, unix_s: float) -> Received | None:
        """Take a frame from the network, whatever it is. None: it does not count."""
        received = self._receive(frame, now, unix_s)
        if isinstance(received, Drop):
            self._counters.drops[received] += 1
            return None
        received.key.heard_s = now
        self._counters.frames_in[received.header.type] += 1
        return received

    def key_of(self, share: str, sender: bytes) -> ShareKey | None:
        """The key of a share under which this sender was heard last. None: it is not remembered."""
        known = [each.key for (each_sender, _), each in self._known.items() if each_sender == sender]
        return next((key for key in reversed(known) if key.share == share), None)

    def keep_only(self, share: str, keys: Container[ShareKey]) -> None:
        """Forget the senders of a share who were heard under other keys than these."""
        for each, known in list(self._known.items()):
            if known.key.share == share and known.key not in keys:
                del self._known[each]

    def _receive(self, frame: bytes, now: float, unix_s: float) -> Received | Drop:
        header = parse_header(frame)
        if isinstance(header, Drop):
            return header
        known = self._find(header, now, unix_s)
        if isinstance(known, Drop):
            return known
        body = self._open(known, frame, header, now)
        if isinstance(body, Drop):
            return body
        if self._sender.is_own(header.sender):
            # Somebody has our id: a copy of this machine. One of us must be another before a nonce comes twice.
            self._sender.renew()
            return Drop.OWN
        known.window.commit(header.counter)
        self._remember(header, known)
        read = decode_body(header.type, body)
        return read if isinstance(read, Drop) else Received(key=known.key, header=header, body=read)

    def _find(self, header: Header, now: float, unix_s: float) -> _Known | Drop:
        if not self._from_s <= unix_s < self._until_s:
            self._turn(epoch_of(unix_s))
        epoch = self._epochs.get(header.epoch16)
        if epoch is None:
            return Drop.EPOCH
        if self._sender.is_own(header.sender):
            if not self._sender.never_sent(header.sender, header.counter):
                return Drop.OWN
            if not self._own.take(now):
                return Drop.BUDGET
        known = self._known.get((header.sender, header.hint))
        if known is not None:
            # A hint belongs to one epoch; one that is said to be of another would only fail at its tag.
            return known if known.epoch == epoch and known.key.holds(unix_s) else Drop.HINT
        if not self._strangers.take(now, min(len(self._keyring), HINTS_MOST)):
            return Drop.BUDGET
        key = self._keyring.match(epoch, header.hint, header.sender, unix_s)
        return Drop.HINT if key is None else _Known(key, key.of(epoch), epoch)

    def _turn(self, epoch: int) -> None:
        """It is another epoch: which ones count, by what headers say. For each frame it would be dear."""
        self._from_s, self._until_s = epoch * EPOCH_S, (epoch + 1) * EPOCH_S
        self._epochs = {each % _EPOCH16: each for each in range(max(0, epoch - NEARBY), epoch + NEARBY + 1)}

    def _open(self, known: _Known, frame: bytes, header: Header, now: float) -> bytes | Drop:
        if not known.window.is_new(header.counter):
            return Drop.REPLAY
        if not known.budget.take(now) or not self._inbound.take(now):
            return Drop.BUDGET
        return open_body(known.keys, frame, header)

    def _remember(self, header: Header, known: _Known) -> None:
        self._known[header.sender, header.hint] = known
        self._known.move_to_end((header.sender, header.hint))
        if len(self._known) > SENDERS:
            self._known.popitem(last=False)
