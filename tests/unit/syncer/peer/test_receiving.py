"""Which frames count: only those of who has the key, once, and few enough."""

from __future__ import annotations

import random
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.peer.session import receiving
from syncer.peer.session.counters import Counters
from syncer.peer.session.keyring import Keyring, RootKey
from syncer.peer.session.receiving import SENDERS, Receiver
from syncer.peer.session.sender import Sender
from syncer.peer.wire.bodies import Presence, WhoHas
from syncer.peer.wire.drops import Drop
from syncer.peer.wire.frames import FrameType, padded, seal
from syncer.peer.wire.keys import EPOCH_S, derive
from tests.kit.steps import steps_of

ROOT, OTHER = b"r" * 32, b"o" * 32
EPOCH = 2_900_000
UNIX_S = EPOCH * EPOCH_S + 300.0
HELLO = Presence(port=1, addresses=()).encode()
MOST_STEPS = 60


class Setup:
    """A receiver of one share, and frames of others."""

    def __init__(self) -> None:
        self.ring = Keyring()
        self.ring.set("s", [RootKey(raw=ROOT)])
        self.sender = Sender(random.Random(1).randbytes)
        self.sender.at(0.0, UNIX_S)
        self.counters = Counters()
        self.receiver = Receiver(self.ring, self.sender, self.counters)

    def take(self, frame: bytes, now: float = 0.0) -> Drop | None:
        """Give it a frame. Returns why it was dropped."""
        before = self.counters.drops.copy()
        received = self.receiver.receive(frame, now, UNIX_S + now)
        new = self.counters.drops - before
        assert (received is None) == bool(new)
        assert new.total() <= 1
        return next(iter(new), None)


def sealed(number: int = 7, counter: int = 1, *, root: bytes = ROOT, epoch: int = EPOCH, body: bytes = HELLO) -> bytes:
    return seal(derive(root, epoch), FrameType.HELLO, number.to_bytes(16, "big"), counter, body)


def test_what_a_member_sealed_counts_once() -> None:
    setup = Setup()
    assert setup.take(sealed()) is None
    assert setup.take(sealed()) is Drop.REPLAY
    assert setup.take(sealed(counter=3)) is None
    assert setup.take(sealed(counter=2)) is None
    assert setup.counters.frames_in[FrameType.HELLO] == 3


def test_who_has_another_key_is_not_heard() -> None:
    assert Setup().take(sealed(root=OTHER)) is Drop.HINT


def test_ten_minutes_of_skew_are_fine_and_more_are_not() -> None:
    for distance in (-1, 0, 1):
        assert Setup().take(sealed(epoch=EPOCH + distance)) is None
    for distance in (-2, 2, 65_000):
        assert Setup().take(sealed(epoch=EPOCH + distance)) is Drop.EPOCH


def test_a_forged_counter_does_not_shut_the_true_ones_out() -> None:
    setup = Setup()
    setup.take(sealed())
    forged = bytearray(sealed(counter=2))
    forged[32:40] = (1 << 63).to_bytes(8, "big")
    assert setup.take(bytes(forged)) is Drop.TAG
    assert setup.take(sealed(counter=2)) is None


def test_only_who_proved_the_key_is_remembered() -> None:
    """An outsider may have seen a hint; it must not fill the memory with it."""
    setup = Setup()
    damaged = bytearray(sealed())
    damaged[-1] ^= 1
    assert setup.take(bytes(damaged)) is Drop.TAG
    assert len(setup.receiver) == 0


def test_senders_remembered_are_bounded_and_the_last_ones_stay() -> None:
    setup = Setup()
    for number in range(1, SENDERS + 50):
        assert setup.take(sealed(number), number / 100) is None
    assert len(setup.receiver) == SENDERS
    assert setup.take(sealed(SENDERS + 49), 10.0) is Drop.REPLAY


def test_a_flood_of_one_sender_leaves_room_for_others() -> None:
    setup = Setup()
    drops = [setup.take(sealed(counter=counter)) for counter in range(1, 600)]
    assert drops.count(Drop.BUDGET) > 300
    assert setup.take(sealed(8)) is None


def test_a_flood_of_replays_costs_no_budget() -> None:
    setup = Setup()
    frame = sealed()
    setup.take(frame)
    assert {setup.take(frame) for _ in range(5000)} == {Drop.REPLAY}
    assert setup.take(sealed(counter=2)) is None


def test_a_flood_of_strangers_leaves_who_is_known_alone() -> None:
    """Each stranger costs a hint for each key of ours; those have a budget, and who is known needs none."""
    setup = Setup()
    setup.take(sealed())
    stranger = bytearray(sealed(9, root=OTHER))
    drops = []
    for number in range(6000):
        stranger[16:32] = number.to_bytes(16, "big")
        drops.append(setup.take(bytes(stranger)))
    assert drops.count(Drop.BUDGET) == 6000 - 4000 + 1
    assert setup.take(sealed(counter=2)) is None


FOREIGN = {
    "another format": b"\xb5\xb1\x0c" + random.Random(3).randbytes(121),
    "another clock": sealed(9, epoch=EPOCH + 5),
    "another key": sealed(9, root=OTHER),
    "heard before": sealed(),
}


@pytest.mark.parametrize("frame", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_frame_reaches_no_cipher_and_costs_the_same_however_many_are_known(
    frame: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In executed lines. `test_links.py` has how many frames a second are read: that and this is what a flood costs."""
    costs = []
    for members in (1, SENDERS):
        setup = Setup()
        for number in range(7, 7 + members):
            assert setup.take(sealed(number), number / 100) is None
        with monkeypatch.context() as patch:
            patch.setattr(receiving, "open_body", None)
            receive = partial(setup.receiver.receive, frame, 10.0, UNIX_S + 10.0)
            assert receive() is None
            costs.append(steps_of(receive, "syncer/peer/"))
    assert costs[0] == costs[1] <= MOST_STEPS


def test_own_frames_are_not_heard_and_not_taken_for_those_of_a_copy() -> None:
    setup = Setup()
    own = setup.sender.id
    frame = seal(derive(ROOT, EPOCH), FrameType.HELLO, own, setup.sender.count(), HELLO)
    assert setup.take(frame) is Drop.OWN
    assert setup.sender.id == own


def test_a_valid_frame_under_our_id_that_we_never_sent_makes_us_another() -> None:
    """A copy of this virtual machine: one of the two must be another before a nonce is used twice."""
    setup = Setup()
    own = setup.sender.id
    forged = seal(derive(OTHER, EPOCH), FrameType.HELLO, own, 5, HELLO)
    assert setup.take(forged) is Drop.HINT
    assert setup.sender.id == own
    copied = seal(derive(ROOT, EPOCH), FrameType.HELLO, own, 5, HELLO)
    assert setup.take(copied) is Drop.OWN
    assert setup.sender.id != own
    assert setup.take(copied) is Drop.OWN  # what we were is no neighbour


def test_a_flood_of_forgeries_under_our_id_is_deciphered_in_small_part_and_a_copy_is_still_noticed() -> None:
    """Anybody has heard our hint: it must not cost more than a neighbour's."""
    setup = Setup()
    own = setup.sender.id
    forged = bytearray(seal(derive(ROOT, EPOCH), FrameType.HELLO, own, 5, HELLO))
    forged[-1] ^= 1
    drops = [setup.take(bytes(forged)) for _ in range(1000)]
    assert 0 < drops.count(Drop.TAG) < 300
    assert drops.count(Drop.TAG) + drops.count(Drop.BUDGET) == len(drops)
    assert setup.take(sealed()) is None
    copied = seal(derive(ROOT, EPOCH), FrameType.HELLO, own, 5, HELLO)
    assert setup.take(copied, 1.0) is Drop.OWN
    assert setup.sender.id != own


def test_a_body_of_another_type_is_dropped_after_its_tag() -> None:
    setup = Setup()
    body = WhoHas(qid=1, tokens=(b"12345678",)).encode(1440)
    assert setup.take(sealed(body=body)) is Drop.BODY
    assert setup.take(sealed(body=body)) is Drop.REPLAY


def test_a_share_that_is_left_is_not_heard() -> None:
    setup = Setup()
    setup.take(sealed())
    setup.ring.remove("s")
    setup.receiver.keep_only("s", ())
    assert setup.take(sealed(counter=2)) is Drop.HINT


def test_a_key_that_ended_is_not_heard_even_of_who_is_remembered() -> None:
    setup = Setup()
    setup.ring.set("s", [RootKey(raw=OTHER), RootKey(raw=ROOT, until_unix_s=UNIX_S + 60)])
    assert setup.take(sealed(), 59.0) is None
    assert setup.take(sealed(counter=2), 60.0) is Drop.HINT


@given(st.binary(max_size=1600), st.booleans())
def test_no_bytes_do_harm(raw: bytes, like_a_frame: bool) -> None:
    setup = Setup()
    frame = sealed()[:44] + raw if like_a_frame else raw
    assert setup.take(frame) is not None
    assert len(setup.receiver) == 0


@given(st.integers(0, 123), st.integers(1, 255))
def test_no_changed_byte_is_taken(place: int, change: int) -> None:
    setup = Setup()
    frame = bytearray(sealed(body=padded(b"\0\1", 64)))
    frame[place] ^= change
    assert setup.take(bytes(frame)) is not None
