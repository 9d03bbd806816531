"""Records: the messages come out as they went in, however the stream is cut, and not one byte of another stream."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.peer.wire import records
from syncer.peer.wire.drops import Drop
from syncer.peer.wire.messages import MAX_DATA_BYTES, Data, End, Get, HaveQuery, Message, Ping
from syncer.peer.wire.noise import CipherState
from syncer.peer.wire.records import MAX_RECORD_BYTES, Secured

ONE, TWO = bytes(range(32)), bytes(range(32, 64))

messages: st.SearchStrategy[list[Message]] = st.lists(
    st.one_of(
        st.builds(Ping, number=st.integers(0, 99)),
        st.builds(Data, rid=st.just(3), content=st.integers(1, 3000).map(lambda size: b"d" * size)),
        st.builds(Get, rid=st.integers(0, 99), id=st.just(b"i" * 32)),
    ),
    max_size=12,
)


def pair() -> tuple[Secured, Secured]:
    """Two ends, as after a handshake."""
    return Secured(CipherState(ONE), CipherState(TWO)), Secured(CipherState(TWO), CipherState(ONE))


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    """The stream in parts, cut where the numbers say."""
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[begin:end] for begin, end in itertools.pairwise(places)]


@given(messages, st.lists(st.integers(0, 1 << 20), max_size=20))
def test_messages_come_out_as_they_went_in_however_the_stream_is_cut(said: list[Message], cuts: list[int]) -> None:
    us, them = pair()
    stream = b"".join(us.send(message) for message in said)
    heard = [message for piece in pieces(stream, cuts) for message in them.receive(piece)]
    assert heard == said
    assert them.failed is None


@given(messages, st.integers(0, 1 << 20))
def test_what_is_wanted_is_what_is_missing(said: list[Message], cut: int) -> None:
    """Bytes that come one want at a time make each message as soon as its last byte is there."""
    us, them = pair()
    stream = b"".join(us.send(message) for message in said)
    cut %= len(stream) + 1
    heard = them.receive(stream[:cut])
    while cut < len(stream):
        wanted = them.wants()
        assert 0 < wanted <= len(stream) - cut
        assert them.receive(stream[cut : cut + wanted - 1]) == []
        heard += them.receive(stream[cut + wanted - 1 : cut + wanted])
        cut += wanted
    assert heard == said


@given(messages.filter(bool), st.data())
def test_a_stream_with_any_bit_flipped_ends_there(said: list[Message], data: st.DataObject) -> None:
    us, them = pair()
    sent = [bytes(us.send(message)) for message in said]
    stream = bytearray(b"".join(sent))
    bit = data.draw(st.integers(0, 8 * len(stream) - 1))
    stream[bit >> 3] ^= 1 << (bit & 7)
    whole = next(index for index in range(len(sent)) if sum(map(len, sent[: index + 1])) > bit >> 3)
    assert them.receive(stream) == said[:whole]
    # a length that has grown waits for what never comes; what does come then is no record
    them.receive(bytes(MAX_RECORD_BYTES))
    assert them.failed in (Drop.TAG, Drop.RECORD)
    assert them.receive(us.send(Ping(number=1))) == []


def test_records_can_not_be_left_out_or_sent_again() -> None:
    us, them = pair()
    first, second = us.send(Ping(number=1)), us.send(Ping(number=2))
    assert them.receive(second) == []
    assert them.failed is Drop.TAG
    us, them = pair()
    first = us.send(Ping(number=1))
    assert them.receive(first + first) == [Ping(number=1)]
    assert them.failed is Drop.TAG


def test_what_we_sent_is_nothing_that_we_take() -> None:
    us, _ = pair()
    assert us.receive(us.send(Ping(number=1))) == []
    assert us.failed is Drop.TAG


@pytest.mark.parametrize("size", [0, 1, 16, MAX_RECORD_BYTES + 1, (1 << 32) - 1])
def test_a_length_that_no_record_has_ends_the_connection_before_anything_is_allocated(size: int) -> None:
    _, them = pair()
    assert them.receive(size.to_bytes(4, "big")) == []
    assert them.failed is Drop.RECORD
    assert len(them._buffer) == 4


def test_a_length_alone_takes_no_memory() -> None:
    _, them = pair()
    them.receive(MAX_RECORD_BYTES.to_bytes(4, "big"))
    assert them.wants() == MAX_RECORD_BYTES
    assert len(them._buffer) == 4


def test_a_message_that_is_none_ends_the_connection() -> None:
    for plaintext, reason in ((b"\x63what", Drop.UNKNOWN), (b"\x01short", Drop.MESSAGE)):
        cipher = CipherState(ONE)
        sealed = cipher.encrypt(plaintext)
        _, them = pair()
        assert them.receive(len(sealed).to_bytes(4, "big") + sealed) == []
        assert them.failed is reason


def test_the_longest_messages_pass() -> None:
    us, them = pair()
    said: list[Message] = [
        Data(rid=1, content=bytes(MAX_DATA_BYTES)),
        HaveQuery(qid=1, tokens=(b"abcdefgh",) * 32_000),
    ]
    for message in said:
        record = us.send(message)
        assert len(record) <= 4 + MAX_RECORD_BYTES
        assert them.receive(record[:1000]) + them.receive(record[1000:]) == [message]


def test_data_that_was_received_stays_as_it_is_when_more_comes() -> None:
    us, them = pair()
    records = [us.send(Data(rid=1, content=bytes([number]) * 5000)) for number in range(8)]
    stream = b"".join(records)
    heard = [message for piece in pieces(stream, list(range(0, len(stream), 777))) for message in them.receive(piece)]
    contents = [bytes(message.content) for message in heard if isinstance(message, Data)]
    assert contents == [bytes([number]) * 5000 for number in range(8)]


def test_no_key_and_nonce_are_used_twice_across_new_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal messages never look alike; each way goes on after its key was replaced, whatever the other's count is."""
    monkeypatch.setattr(records, "REKEY_EVERY", 8)
    used: list[tuple[object, int]] = []
    us, them = pair()
    sealed = set()
    for turn in range(50):
        key = (us._sending._cipher, us._sending.nonce)
        assert key not in used
        used.append(key)
        record = us.send(End(rid=1))
        sealed.add(bytes(record))
        assert them.receive(record) == [End(rid=1)]
        if turn % 3 == 0:
            assert us.receive(them.send(End(rid=2))) == [End(rid=2)]
    assert len(sealed) == 50
    assert us._sending.nonce == 50


def test_a_key_lasts_for_65536_records() -> None:
    us, them = pair()
    first = us._sending._cipher
    for _ in range(65_535):
        them.receive(us.send(End(rid=1)))
    assert us._sending._cipher is first
    them.receive(us.send(End(rid=1)))
    assert us._sending._cipher is not first
    assert them.receive(us.send(End(rid=2))) == [End(rid=2)]


@given(st.binary(max_size=400))
def test_any_bytes_give_no_message_and_no_exception(data: bytes) -> None:
    _, them = pair()
    assert them.receive(data) == []
