"""Which key a frame was sealed with, and which one we send under."""

from __future__ import annotations

import itertools

from syncer.peer.session.keyring import STILL_USED_S, Keyring, RootKey

A, B, C = (bytes([number]) * 32 for number in (1, 2, 3))
SENDER = b"s" * 16
DAY_S = 86_400.0


def test_a_hint_tells_the_share_and_nothing_else_does() -> None:
    ring = Keyring()
    ring.set("one", [RootKey(raw=A)])
    ring.set("two", [RootKey(raw=B)])
    for share, epoch in itertools.product(("one", "two"), (7, 8)):
        key = ring.present(share)
        assert key is not None
        hint = key.of(epoch).hint(SENDER)
        assert ring.match(epoch, hint, SENDER, 0.0) is key
        assert ring.match(epoch + 1, hint, SENDER, 0.0) is None
        assert ring.match(epoch, hint, b"t" * 16, 0.0) is None


def test_after_a_rotation_both_keys_count_until_the_old_one_ends() -> None:
    ring = Keyring()
    assert ring.set("s", [RootKey(raw=A)])
    old = ring.present("s")
    assert old is not None
    hint = old.of(3).hint(SENDER)
    assert ring.set("s", [RootKey(raw=B), RootKey(raw=A, until_unix_s=DAY_S)])
    assert ring.present("s") is not old
    assert ring.match(3, hint, SENDER, DAY_S - 1) is old
    assert ring.match(3, hint, SENDER, DAY_S) is None
    assert [key.root.raw for key in ring.valid("s", DAY_S)] == [B]


def test_an_old_key_is_asked_under_only_while_somebody_uses_it() -> None:
    """Breaks as members who have not read the new key yet and hear nobody, or as twice the broadcasts for a day."""
    ring = Keyring()
    ring.set("s", [RootKey(raw=B), RootKey(raw=A, until_unix_s=DAY_S)])
    old = ring.valid("s", 0.0)[1]
    assert [key.root.raw for key in ring.in_use("s", 5.0, 0.0)] == [B]
    old.heard_s = 10.0
    assert [key.root.raw for key in ring.in_use("s", 10.0 + STILL_USED_S, 0.0)] == [B, A]
    assert [key.root.raw for key in ring.in_use("s", 11.0 + STILL_USED_S, 0.0)] == [B]
    assert [key.root.raw for key in ring.in_use("s", 12.0, DAY_S)] == [B]


def test_the_same_keys_again_are_nothing_new() -> None:
    ring = Keyring()
    ring.set("s", [RootKey(raw=A)])
    key = ring.present("s")
    assert not ring.set("s", [RootKey(raw=A), RootKey(raw=C, until_unix_s=1.0)])
    assert ring.present("s") is key
    ring.remove("s")
    assert ring.present("s") is None


def test_few_epochs_are_kept() -> None:
    ring = Keyring()
    ring.set("s", [RootKey(raw=A)])
    key = ring.present("s")
    assert key is not None
    for epoch in range(50):
        assert key.of(epoch).epoch == epoch
    assert len(key._epochs) == 3


def test_no_key_reaches_a_log() -> None:
    assert A.hex() not in repr(RootKey(raw=A))
    assert str(A) not in repr(RootKey(raw=A))
