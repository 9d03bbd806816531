"""Keys of epochs: who shares the key derives the same, and nobody else, and nothing of another epoch."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.peer.wire.keys import derive, epoch_of, nearby_epoch

ROOT = bytes(range(32))
SENDER = bytes(range(100, 116))


def expand(secret: bytes, info: bytes) -> bytes:
    """HKDF-Expand of one block, by RFC 5869."""
    return hmac.digest(secret, info + b"\x01", "sha256")


def test_the_derivations_are_those_of_the_page() -> None:
    """Another program that follows docs/design/peer-protocol.md finds the same bytes; computed here from RFC 5869."""
    keys = derive(ROOT, 2_900_000)
    epoch = (2_900_000).to_bytes(8, "big")
    secret = expand(hmac.digest(epoch, ROOT, "sha256"), b"blocksync-lan/1 epoch")
    assert keys.psk == expand(secret, b"blocksync-lan/1 psk")
    assert keys.frame_key(SENDER) == expand(secret, b"blocksync-lan/1 frame" + SENDER)
    hint_key = expand(secret, b"blocksync-lan/1 hint")
    assert keys.hint(SENDER) == hashlib.blake2b(SENDER + epoch, key=hint_key, digest_size=8).digest()


def test_the_derivations_never_change() -> None:
    """Peers of two releases agree only as long as these bytes stay."""
    keys = derive(ROOT, 2_900_000)
    assert (keys.psk.hex(), keys.frame_key(SENDER).hex(), keys.hint(SENDER).hex()) == (
        "3254002e6cba612be8286d75cdc5a290b393f5114444a72ccfc0ed72a1da8098",
        "4373efc8f82a5fac917242ce8b61770acc2b3e90fafc0318df82dfa8c87a89a2",
        "272304dc3c1ac675",
    )


@given(st.binary(min_size=32, max_size=32), st.integers(0, 1 << 40), st.binary(min_size=16, max_size=16))
def test_no_two_keys_of_a_share_are_the_same(root: bytes, epoch: int, sender: bytes) -> None:
    now, then = derive(root, epoch), derive(root, epoch + 1)
    other = bytes([sender[0] ^ 1]) + sender[1:]
    keys = [each.psk for each in (now, then)]
    keys += [each.frame_key(who) for each in (now, then) for who in (sender, other)]
    assert len({root, *keys}) == len(keys) + 1
    assert len({each.hint(who) for each in (now, then) for who in (sender, other)}) == 4


def test_a_key_is_not_shown_where_values_are_printed() -> None:
    assert repr(derive(ROOT, 7)) == "EpochKeys(epoch=7)"


def test_an_epoch_is_ten_minutes() -> None:
    assert [epoch_of(each) for each in (0.0, 599.999, 600.0, 1_790_000_000.5)] == [0, 0, 1, 2_983_333]


def test_a_clock_before_1970_is_in_the_first_epoch() -> None:
    assert epoch_of(-1.0) == 0


@pytest.mark.parametrize("now", [0, 1, 65_535, 65_536, 2_983_333, 45 * 65_536])
def test_the_epoch_before_and_the_next_are_nearby_and_no_other(now: int) -> None:
    meant = {epoch: nearby_epoch(epoch % 65_536, now) for epoch in range(max(0, now - 3), now + 4)}
    assert meant == {epoch: epoch if abs(epoch - now) <= 1 else None for epoch in meant}


@given(st.integers(0, 65_535), st.integers(0, 1 << 60))
def test_a_nearby_epoch_has_the_remainder_that_was_said(epoch16: int, now: int) -> None:
    epoch = nearby_epoch(epoch16, now)
    assert epoch is None or (epoch % 65_536 == epoch16 and abs(epoch - now) <= 1)
