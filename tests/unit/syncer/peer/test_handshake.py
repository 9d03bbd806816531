"""Connections begin between holders of one key, and nobody else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.peer.wire.drops import Drop
from syncer.peer.wire.handshake import Dialled, Preamble, answer, parse_preamble
from syncer.peer.wire.keys import derive
from syncer.peer.wire.messages import Ping

KEYS = derive(bytes(range(32)), 2_900_000)
SENDER = bytes(range(100, 116))
ONE, TWO = bytes(range(32)), bytes(range(32, 64))


def test_both_sides_hear_each_other() -> None:
    dialled = Dialled(KEYS, SENDER, ONE)
    assert len(dialled.greeting) == 80
    assert parse_preamble(dialled.greeting) == Preamble(
        epoch16=2_900_000 % 65_536, hint=KEYS.hint(SENDER), sender=SENDER
    )
    answered = answer(dialled.greeting, KEYS, TWO)
    assert not isinstance(answered, Drop)
    reply, them = answered
    assert len(reply) == 48
    us = dialled.answered(reply)
    assert not isinstance(us, Drop)
    assert them.receive(us.send(Ping(number=1))) == [Ping(number=1)]
    assert us.receive(them.send(Ping(number=2))) == [Ping(number=2)]


def test_the_preamble_is_laid_out_as_the_page_says() -> None:
    greeting = Dialled(KEYS, SENDER, ONE).greeting
    assert greeting[:8] == bytes.fromhex("b5b10c 01 01 00") + (2_900_000 % 65_536).to_bytes(2, "big")
    assert greeting[8:32] == KEYS.hint(SENDER) + SENDER


@pytest.mark.parametrize(
    "keys", [derive(bytes(32), 2_900_000), derive(bytes(range(32)), 2_900_001)], ids=["another share", "another epoch"]
)
def test_who_has_other_keys_is_refused_by_both_sides(keys: object) -> None:
    assert isinstance(keys, type(KEYS))
    assert answer(Dialled(keys, SENDER, ONE).greeting, KEYS, TWO) is Drop.HANDSHAKE
    dialled = Dialled(keys, SENDER, ONE)
    answered = answer(Dialled(KEYS, SENDER, ONE).greeting, KEYS, TWO)
    assert not isinstance(answered, Drop)
    assert dialled.answered(answered[0]) is Drop.HANDSHAKE


@given(st.integers(0, 80 * 8 - 1))
def test_a_greeting_with_any_bit_flipped_is_refused(bit: int) -> None:
    greeting = bytearray(Dialled(KEYS, SENDER, ONE).greeting)
    greeting[bit >> 3] ^= 1 << (bit & 7)
    assert answer(bytes(greeting), KEYS, TWO) is Drop.HANDSHAKE


def test_a_recorded_greeting_opens_nothing() -> None:
    """It is answered, for nobody can know; but who sends it has not the key for a record."""
    recorded = Dialled(KEYS, SENDER, ONE)
    first, again = answer(recorded.greeting, KEYS, TWO), answer(recorded.greeting, KEYS, bytes(32))
    assert not isinstance(first, Drop)
    assert not isinstance(again, Drop)
    us = recorded.answered(first[0])
    assert not isinstance(us, Drop)
    assert again[1].receive(us.send(Ping(number=1))) == []
    assert again[1].failed is Drop.TAG


@pytest.mark.parametrize(
    ("begin", "replacement", "reason"),
    [
        (0, b"\xb5\xb1\x0d", Drop.MAGIC),
        (3, b"\2", Drop.VERSION),
        (4, b"\2", Drop.CIPHER),
        (4, b"\0", Drop.CIPHER),
        (5, b"\1", Drop.FLAGS),
    ],
)
def test_what_is_wrong_with_a_preamble_is_named(begin: int, replacement: bytes, reason: Drop) -> None:
    greeting = Dialled(KEYS, SENDER, ONE).greeting
    assert parse_preamble(greeting[:begin] + replacement + greeting[begin + len(replacement) :]) is reason


@given(st.binary(max_size=100))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert isinstance(parse_preamble(data), Preamble | Drop)
    assert answer(data, KEYS, TWO) is Drop.HANDSHAKE
    assert Dialled(KEYS, SENDER, ONE).answered(data) is Drop.HANDSHAKE
