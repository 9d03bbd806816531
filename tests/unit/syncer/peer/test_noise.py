"""Noise NNpsk0: byte for byte what other implementations say, and nothing to who has not the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from syncer.peer.wire.drops import Drop
from syncer.peer.wire.noise import CipherState, Initiator, Responder

GOLDEN = json.loads((Path(__file__).parents[3] / "golden/noise-nnpsk0.json").read_text())
PSK = b"a psk of thirty-two bytes length"
ONE, TWO = bytes(range(32)), bytes(range(32, 64))


def connected(prologue: bytes = b"") -> tuple[Initiator, Responder]:
    """Two sides after their handshake."""
    initiator, responder = Initiator(PSK, prologue, ONE), Responder(PSK, prologue, TWO)
    assert responder.read_message(initiator.write_message()) == b""
    answer = responder.write_message()
    assert isinstance(answer, bytes)
    assert initiator.read_message(answer) == b""
    return initiator, responder


@pytest.mark.parametrize("vector", GOLDEN["vectors"], ids=lambda vector: vector["origin"])
def test_both_sides_say_what_other_implementations_say(vector: dict[str, Any]) -> None:
    psk, prologue = bytes.fromhex(vector["psk"]), bytes.fromhex(vector["prologue"])
    initiator = Initiator(psk, prologue, bytes.fromhex(vector["init_ephemeral"]))
    responder = Responder(psk, prologue, bytes.fromhex(vector["resp_ephemeral"]))
    said = [(bytes.fromhex(each["payload"]), bytes.fromhex(each["ciphertext"])) for each in vector["messages"]]
    (first, first_sent), (second, second_sent), *rest = said
    assert initiator.write_message(first) == first_sent
    assert responder.read_message(first_sent) == first
    if "hash_after_first" in vector:
        assert responder.handshake_hash.hex() == vector["hash_after_first"]
    assert responder.write_message(second) == second_sent
    assert initiator.read_message(second_sent) == second
    assert initiator.handshake_hash == responder.handshake_hash
    ways = [(initiator.split(), responder.split()), (responder.split(), initiator.split())]
    senders = [(ours[0], theirs[1]) for ours, theirs in ways]
    for index, (payload, sent) in enumerate(rest):
        sending, receiving = senders[index % 2]
        assert sending.encrypt(payload) == sent
        assert receiving.decrypt(sent) == payload


def test_who_has_another_psk_is_refused_at_the_first_message() -> None:
    message = Initiator(b"another psk of thirty-two bytes!", b"", ONE).write_message()
    assert Responder(PSK, b"", TWO).read_message(message) is Drop.HANDSHAKE


def test_who_saw_another_prologue_is_refused() -> None:
    message = Initiator(PSK, b"one", ONE).write_message()
    assert Responder(PSK, b"other", TWO).read_message(message) is Drop.HANDSHAKE


def test_an_answer_of_who_has_not_the_psk_is_refused() -> None:
    initiator = Initiator(PSK, b"", ONE)
    responder = Responder(PSK, b"", TWO)
    responder.read_message(initiator.write_message())
    stranger = Responder(b"another psk of thirty-two bytes!", b"", TWO)
    stranger.read_message(Initiator(b"another psk of thirty-two bytes!", b"", ONE).write_message())
    answer = stranger.write_message()
    assert isinstance(answer, bytes)
    assert initiator.read_message(answer) is Drop.HANDSHAKE


@given(st.integers(0, 48 * 8 - 1), st.integers(0, 48 * 8 - 1))
def test_a_handshake_with_any_bit_flipped_fails(first: int, second: int) -> None:
    message = bytearray(Initiator(PSK, b"", ONE).write_message())
    responder = Responder(PSK, b"", TWO)
    assert responder.read_message(bytes(message)) == b""
    answer = responder.write_message()
    assert isinstance(answer, bytes)
    message[first >> 3] ^= 1 << (first & 7)
    assert Responder(PSK, b"", TWO).read_message(bytes(message)) is Drop.HANDSHAKE
    damaged = bytearray(answer)
    damaged[second >> 3] ^= 1 << (second & 7)
    initiator = Initiator(PSK, b"", ONE)
    initiator.write_message()
    assert initiator.read_message(bytes(damaged)) is Drop.HANDSHAKE


@given(st.binary(max_size=64))
def test_any_bytes_are_refused(data: bytes) -> None:
    initiator = Initiator(PSK, b"", ONE)
    initiator.write_message()
    assert initiator.read_message(data) is Drop.HANDSHAKE
    assert Responder(PSK, b"", TWO).read_message(data) is Drop.HANDSHAKE


@pytest.mark.parametrize("point", [bytes(32), b"\1" + bytes(31)])
def test_a_point_that_no_key_has_is_refused(point: bytes) -> None:
    """With it the secret would be zero whatever the other side's key is."""
    initiator = Initiator(PSK, b"", ONE)
    initiator.write_message()
    assert initiator.read_message(point + bytes(16)) is Drop.HANDSHAKE
    sneaky = Initiator(PSK, b"", ONE)
    sneaky._send_e = lambda: _said(sneaky, point)  # type: ignore[method-assign]
    responder = Responder(PSK, b"", TWO)
    assert responder.read_message(sneaky.write_message()) == b""
    assert responder.write_message() is Drop.HANDSHAKE


def _said(sneaky: Initiator, point: bytes) -> bytes:
    sneaky._mix_hash(point)
    sneaky._mix_key(point)
    return point


def test_the_two_ways_have_keys_of_their_own() -> None:
    initiator, responder = connected()
    assert initiator.split()[0].encrypt(b"hi") != responder.split()[0].encrypt(b"hi")


@given(st.lists(st.one_of(st.binary(max_size=64), st.none()), max_size=20))
def test_what_one_side_encrypts_the_other_decrypts_also_after_new_keys(messages: list[bytes | None]) -> None:
    """None stands for a rekey of both."""
    initiator, responder = connected()
    sending, receiving = initiator.split()[0], responder.split()[1]
    sealed = []
    for message in messages:
        if message is None:
            sending.rekey()
            receiving.rekey()
        else:
            sealed.append(sending.encrypt(message))
            assert receiving.decrypt(sealed[-1]) == message
    assert len(set(sealed)) == len(sealed)


def test_a_record_out_of_turn_is_dropped_and_the_next_in_turn_is_read() -> None:
    initiator, responder = connected()
    sending, receiving = initiator.split()[0], responder.split()[1]
    first, second = sending.encrypt(b"1"), sending.encrypt(b"2")
    assert receiving.decrypt(second) is Drop.TAG
    assert receiving.decrypt(first) == b"1"
    assert receiving.decrypt(first) is Drop.TAG
    assert receiving.decrypt(second) == b"2"
    assert receiving.decrypt(b"short") is Drop.TAG


def test_a_new_key_is_the_specifications() -> None:
    """Section 4.2: the first 32 bytes of 32 zeros, encrypted with nonce 2^64 - 1; the nonce stays."""
    cipher = CipherState(ONE)
    cipher.encrypt(b"")
    cipher.rekey()
    key = AESGCM(ONE).encrypt(bytes(4) + b"\xff" * 8, bytes(32), b"")[:32]
    assert cipher.encrypt(b"x") == AESGCM(key).encrypt(bytes(11) + b"\1", b"x", b"")
    assert cipher.nonce == 2
