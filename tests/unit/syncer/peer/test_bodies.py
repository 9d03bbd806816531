"""Bodies of frames: what is written is read; an answer is never longer than its question; nothing else is taken."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.peer.wire.bodies import (
    Body,
    IHave,
    Presence,
    WhoHas,
    bitmap_of,
    decode_body,
    positions,
    usable,
)
from syncer.peer.wire.drops import Drop
from syncer.peer.wire.frames import BUCKETS, FrameType

words = st.integers(0, (1 << 32) - 1)
ports = st.integers(0, 65_535)
bounds = st.integers(64, 1440)
addresses = st.lists(st.binary(min_size=16, max_size=16).filter(usable), max_size=3).map(tuple)
tokens = st.lists(st.binary(min_size=8, max_size=8), min_size=1, max_size=179).map(tuple)
questions = st.builds(WhoHas, qid=words, tokens=tokens, discovery=st.booleans())
presences = st.builds(Presence, port=ports, addresses=addresses, asks=st.booleans())


@st.composite
def answers(draw: st.DrawFn) -> IHave:
    held = draw(st.lists(st.booleans(), min_size=1, max_size=179))
    return IHave(
        qid=draw(words),
        asker=draw(st.binary(min_size=16, max_size=16)),
        count=len(held),
        load=draw(st.integers(0, 255)),
        port=draw(ports),
        addresses=draw(addresses),
        bitmap=bitmap_of(held),
    )


def address(text: str) -> bytes:
    """16 bytes of an address in words."""
    return socket.inet_pton(socket.AF_INET6, text)


@given(questions)
def test_a_question_is_read_as_it_was_asked(question: WhoHas) -> None:
    body = question.encode(1440)
    assert len(body) in BUCKETS
    assert decode_body(FrameType.WHOHAS, body) == question


@given(answers())
def test_an_answer_is_read_as_it_was_given(answer: IHave) -> None:
    body = answer.encode(1440)
    assert body is not None
    assert decode_body(FrameType.IHAVE, body) == answer


@given(presences, st.sampled_from([FrameType.HELLO, FrameType.BYE]))
def test_a_greeting_is_read_as_it_was_said(presence: Presence, kind: FrameType) -> None:
    assert len(presence.encode()) == 64
    is_bad = presence.asks and kind is FrameType.BYE  # who goes asks nobody
    assert decode_body(kind, presence.encode()) == (Drop.BODY if is_bad else presence)


@given(answers(), bounds)
def test_an_answer_is_never_longer_than_its_question(answer: IHave, bound: int) -> None:
    """Also on a link with a bound of its own; it loses addresses, the last ones, and nothing else."""
    room = (bound - 8) // 8
    count = min(answer.count, room)
    question = WhoHas(qid=answer.qid, tokens=(b"12345678",) * count).encode(bound)
    held = IHave(
        qid=answer.qid,
        asker=answer.asker,
        count=count,
        load=answer.load,
        port=answer.port,
        addresses=answer.addresses,
        bitmap=bitmap_of([True] * count),
    )
    body = held.encode(len(question))
    assert body is not None
    assert len(body) <= len(question)
    read = IHave.decode(body)
    assert isinstance(read, IHave)
    assert read.addresses == held.addresses[: len(read.addresses)]
    assert len(read.addresses) >= min(2, len(held.addresses))
    assert (read.bitmap, read.count, read.port, read.load) == (held.bitmap, count, held.port, held.load)


def test_a_short_question_is_answered_with_two_addresses_and_a_longer_one_with_three() -> None:
    three = tuple(address(f"fe80::{n}") for n in (1, 2, 3))
    for count, kept in ((7, 2), (8, 3), (179, 3)):
        question = WhoHas(qid=1, tokens=(b"12345678",) * count).encode(1440)
        answer = IHave(
            qid=1, asker=bytes(16), count=count, load=0, port=4, addresses=three, bitmap=bitmap_of([True] * count)
        ).encode(len(question))
        assert answer is not None
        read = IHave.decode(answer)
        assert isinstance(read, IHave)
        assert read.addresses == three[:kept]


def test_an_answer_that_does_not_fit_is_none() -> None:
    """Only a sender that breaks the rules asks about more tokens than its bucket holds."""
    answer = IHave(qid=1, asker=bytes(16), count=1, load=0, port=4, addresses=(), bitmap=b"\1")
    assert answer.encode(28) is None


def test_bodies_are_laid_out_as_the_page_says() -> None:
    question = WhoHas(qid=0x01020304, tokens=(b"abcdefgh", b"ABCDEFGH"), discovery=True).encode(1440)
    assert question == b"\1\2\3\4\0\2\x08\1abcdefghABCDEFGH".ljust(64, b"\0")
    answer = IHave(
        qid=0x01020304,
        asker=b"sixteen bytes id",
        count=9,
        load=5,
        port=0x4567,
        addresses=(address("fe80::9"),),
        bitmap=b"\x02\x01",
    ).encode(1440)
    assert answer == (b"\1\2\3\4sixteen bytes id\0\x09\x05\x01\x45\x67\0\0" + address("fe80::9") + b"\x02\x01").ljust(
        64, b"\0"
    )
    hello = Presence(port=0x4567, addresses=(address("::ffff:10.0.0.7"),)).encode()
    assert hello == (b"\x45\x67\1\0" + address("::ffff:10.0.0.7")).ljust(64, b"\0")
    assert Presence(port=0x4567, addresses=(), asks=True).encode() == b"\x45\x67\0\1".ljust(64, b"\0")


GOOD_QUESTION = WhoHas(qid=1, tokens=(b"abcdefgh",) * 3).encode(1440)
GOOD_ANSWER = IHave(
    qid=1, asker=bytes(16), count=3, load=0, port=4, addresses=(address("fe80::1"),), bitmap=b"\7"
).encode(1440)
assert GOOD_ANSWER is not None
GOOD_HELLO = Presence(port=4, addresses=(address("fe80::1"),)).encode()


@pytest.mark.parametrize(
    ("kind", "body", "begin", "replacement"),
    [
        (FrameType.WHOHAS, GOOD_QUESTION, 4, b"\0\0"),  # no tokens
        (FrameType.WHOHAS, GOOD_QUESTION, 4, b"\0\2"),  # something behind the last token
        (FrameType.WHOHAS, GOOD_QUESTION, 4, b"\0\x08"),  # more than there is room for
        (FrameType.WHOHAS, GOOD_QUESTION.ljust(1440, b"\0"), 4, b"\0\xb4"),  # 180
        (FrameType.WHOHAS, GOOD_QUESTION, 6, b"\x07"),
        (FrameType.WHOHAS, GOOD_QUESTION, 7, b"\2"),
        (FrameType.WHOHAS, GOOD_QUESTION, 63, b"\1"),
        (FrameType.IHAVE, GOOD_ANSWER, 20, b"\0\0"),
        (FrameType.IHAVE, GOOD_ANSWER.ljust(256, b"\0"), 20, b"\0\xb4"),
        (FrameType.IHAVE, GOOD_ANSWER.ljust(256, b"\0"), 23, b"\4"),
        (FrameType.IHAVE, GOOD_ANSWER, 26, b"\0\1"),
        (FrameType.IHAVE, GOOD_ANSWER, 44, b"\x0f"),  # a bit behind the last
        (FrameType.IHAVE, GOOD_ANSWER, 45, b"\1"),
        (FrameType.IHAVE, GOOD_ANSWER, 28, address("::1")),
        (FrameType.HELLO, GOOD_HELLO, 2, b"\4"),
        (FrameType.HELLO, GOOD_HELLO, 3, b"\2"),
        (FrameType.BYE, GOOD_HELLO, 3, b"\1"),
        (FrameType.HELLO, GOOD_HELLO, 4, address("ff02::1")),
        (FrameType.BYE, GOOD_HELLO, 20, b"\1"),
    ],
)
def test_what_is_no_body_is_dropped(kind: FrameType, body: bytes, begin: int, replacement: bytes) -> None:
    assert not isinstance(decode_body(kind, body), Drop)
    assert decode_body(kind, body[:begin] + replacement + body[begin + len(replacement) :]) is Drop.BODY


@given(st.sampled_from(FrameType), st.binary(max_size=1440))
def test_any_bytes_are_a_body_or_dropped(kind: FrameType, data: bytes) -> None:
    assert isinstance(decode_body(kind, data), Body | Drop)


@given(st.one_of(questions, answers(), presences), st.data())
def test_what_is_read_from_a_damaged_body_is_written_the_same(body: Body, data: st.DataObject) -> None:
    """A body has one form: no two that mean the same, no place to hide anything."""
    kind = {WhoHas: FrameType.WHOHAS, IHave: FrameType.IHAVE, Presence: FrameType.HELLO}[type(body)]
    written = bytearray(body.encode() if isinstance(body, Presence) else body.encode(1440) or b"")
    for _ in range(data.draw(st.integers(1, 4))):
        written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
    read = decode_body(kind, bytes(written))
    if not isinstance(read, Drop):
        again = read.encode() if isinstance(read, Presence) else read.encode(len(written))
        assert again is not None
        assert again == written[: len(again)]
        assert not any(written[len(again) :])


@given(st.lists(st.booleans(), max_size=179))
def test_a_bitmap_says_which(held: list[bool]) -> None:
    assert positions(bitmap_of(held)) == [at for at, each in enumerate(held) if each]


@pytest.mark.parametrize(
    ("text", "can"),
    [
        ("fe80::1", True),
        ("fd00::1", True),
        ("2001:db8::1", True),
        ("::ffff:192.168.1.2", True),
        ("::", False),
        ("::1", False),
        ("::127.0.0.1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:0.0.0.0", False),
        ("::ffff:224.0.0.1", False),
        ("::ffff:255.255.255.255", False),
    ],
)
def test_no_neighbour_has_an_address_of_ours_or_of_many(text: str, can: bool) -> None:
    assert usable(address(text)) is can
