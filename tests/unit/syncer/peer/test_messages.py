"""Messages: what is said is heard, in one form only, and nothing else is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.peer.wire.drops import Drop
from syncer.peer.wire.messages import (
    DATA_BYTES,
    MAX_DATA_BYTES,
    MAX_HAVE_TOKENS,
    MAX_MESSAGE_BYTES,
    MAX_QUERY_TOKENS,
    Block,
    Busy,
    Cancel,
    Close,
    CloseReason,
    Data,
    End,
    Get,
    Have,
    HaveQuery,
    HaveReply,
    Head,
    Message,
    Mismatch,
    NotFound,
    Ping,
    data_of,
    decode,
    encode,
)

words = st.integers(0, (1 << 32) - 1)
tokens = st.lists(st.binary(min_size=8, max_size=8), min_size=1, max_size=40).map(tuple)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Get, rid=words, id=st.binary(min_size=32, max_size=32), offset=words),
    st.builds(Head, rid=words, total=words),
    st.builds(Data, rid=words, content=st.binary(min_size=1, max_size=500)),
    st.builds(End, rid=words),
    st.builds(Block, rid=words, content=st.binary(min_size=1, max_size=500)),
    st.builds(NotFound, rid=words),
    st.builds(Busy, rid=words, retry_ms=st.integers(0, 65_535)),
    st.builds(Cancel, rid=words),
    st.builds(HaveQuery, qid=words, tokens=tokens),
    st.builds(HaveReply, qid=words, bitmap=st.binary(min_size=1, max_size=500)),
    st.builds(Have, tokens=tokens),
    st.builds(Ping, number=words, answer=st.booleans()),
    st.builds(Close, reason=st.integers(0, 255)),
    st.builds(Mismatch, id=st.binary(min_size=32, max_size=32)),
)


@given(messages)
def test_what_is_said_is_heard(message: Message) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (Get(rid=0x01020304, id=b"i" * 32, offset=5), b"\x01\1\2\3\4" + b"i" * 32 + b"\0\0\0\5"),
        (Head(rid=7, total=4 << 20), b"\x02\0\0\0\7\0\x40\0\0"),
        (Data(rid=7, content=b"bytes"), b"\x03\0\0\0\7bytes"),
        (End(rid=7), b"\x04\0\0\0\7"),
        (NotFound(rid=7), b"\x05\0\0\0\7"),
        (Busy(rid=7, retry_ms=258), b"\x06\0\0\0\7\1\2"),
        (Cancel(rid=7), b"\x07\0\0\0\7"),
        (HaveQuery(qid=7, tokens=(b"abcdefgh", b"ABCDEFGH")), b"\x08\0\0\0\7\0\2abcdefghABCDEFGH"),
        (HaveReply(qid=7, bitmap=b"\2"), b"\x09\0\0\0\7\2"),
        (Have(tokens=(b"abcdefgh",)), b"\x0a\0\1abcdefgh"),
        (Ping(number=7), b"\x0b\0\0\0\0\7"),
        (Ping(number=7, answer=True), b"\x0b\1\0\0\0\7"),
        (Close(reason=CloseReason.KEY), b"\x0c\4"),
        (Block(rid=7, content=b"bytes"), b"\x0d\0\0\0\7bytes"),
        (Mismatch(id=b"i" * 32), b"\x0e" + b"i" * 32),
    ],
    ids=lambda value: type(value).__name__,
)
def test_messages_are_laid_out_as_the_page_says(message: Message, said: bytes) -> None:
    assert encode(message) == said
    assert decode(said) == message
    assert decode(bytearray(said)) == message


@given(messages, st.binary(min_size=1, max_size=3))
def test_a_message_of_a_fixed_length_has_no_other(message: Message, more: bytes) -> None:
    said = encode(message)
    if not isinstance(message, Data | Block | HaveReply):
        assert decode(said + more) is Drop.MESSAGE
    if len(said) > 1:
        assert decode(said[: len(said) - len(said) // 2]) != message
    assert decode(said[:1]) is Drop.MESSAGE


@pytest.mark.parametrize("kind", [0, 15, 255])
def test_a_type_that_is_not_known_is_named_so(kind: int) -> None:
    assert decode(bytes([kind]) + b"whatever") is Drop.UNKNOWN


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\x03\0\0\0\7",  # no bytes of data
        b"\x03\0\0\0\7" + bytes(MAX_DATA_BYTES + 1),
        b"\x0d\0\0\0\7",
        b"\x0d\0\0\0\7" + bytes(MAX_DATA_BYTES + 1),
        b"\x08\0\0\0\7\0\0",  # no tokens
        b"\x08\0\0\0\7\0\2abcdefgh",
        b"\x08\0\0\0\7" + (MAX_QUERY_TOKENS + 1).to_bytes(2, "big") + bytes(8 * (MAX_QUERY_TOKENS + 1)),
        b"\x09\0\0\0\7",
        b"\x09\0\0\0\7" + bytes(MAX_QUERY_TOKENS // 8 + 1),
        b"\x0a\0\0",
        b"\x0a" + (MAX_HAVE_TOKENS + 1).to_bytes(2, "big") + bytes(8 * (MAX_HAVE_TOKENS + 1)),
        b"\x0b\2\0\0\0\7",
    ],
    ids=lambda said: said[:8].hex(),
)
def test_what_is_no_message_is_dropped(said: bytes) -> None:
    assert decode(said) is Drop.MESSAGE


@given(st.binary(max_size=200))
def test_what_is_read_from_any_bytes_is_said_the_same(said: bytes) -> None:
    """A message has one form: no two that mean the same."""
    message = decode(said)
    assert isinstance(message, Drop) or encode(message) == said


def test_the_longest_messages_fit_into_a_record() -> None:
    query = HaveQuery(qid=1, tokens=(b"abcdefgh",) * MAX_QUERY_TOKENS)
    data = Data(rid=1, content=bytes(MAX_DATA_BYTES))
    assert len(encode(query)) <= MAX_MESSAGE_BYTES
    assert len(encode(data)) == MAX_MESSAGE_BYTES
    assert decode(encode(query)) == query
    assert decode(encode(data)) == data


@given(st.integers(0, 3 * DATA_BYTES), st.integers(0, 3 * DATA_BYTES))
def test_a_block_goes_as_several_messages_from_where_it_is_wanted(size: int, offset: int) -> None:
    block = bytes(size)
    parts = list(data_of(4, block, offset))
    assert b"".join(each.content for each in parts) == block[offset:]
    assert all(0 < len(each.content) <= DATA_BYTES and each.rid == 4 for each in parts)


def test_an_answer_fits_its_question_only() -> None:
    reply = HaveReply(qid=1, bitmap=b"\xff\x07")
    assert [count for count in range(1, 40) if reply.fits(count)] == [11, 12, 13, 14, 15, 16]
