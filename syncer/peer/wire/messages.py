"""Messages: what two connected peers say, one in each record.

All integers are big-endian. A message is its type, one byte, and then:

    type              offset  size  field
     1  GET                1     4  rid: number of a request, by who makes it; in use by one request at a time
                           5    32  id of a block of the share
                          37     4  offset: the first byte wanted, 0 but for a request that goes on where one broke off
     2  HEAD               1     4  rid; answers GET, before any DATA
                           5     4  total: length of the block in bytes, without its trailing zeros
     3  DATA               1     4  rid
                           5     …  the next bytes of the block, 1 to 262,139
     4  END                1     4  rid; all bytes from offset to total have been sent
     5  NOTFOUND           1     4  rid; no block of the share that we have
     6  BUSY               1     4  rid
                           5     2  retry_ms: ask again after so many milliseconds
     7  CANCEL             1     4  rid; by who asked: send no more of it
     8  HAVEQ              1     4  qid
                           5     2  count, 1 to 32,000
                           7  8 * count  tokens: the first 8 bytes of block ids
     9  HAVER              1     4  qid of the HAVEQ
                           5  ceil(count / 8)  bitmap, least bit first: 1 = have the token's block
    10  HAVE               1     2  count, 1 to 512
                           3  8 * count  tokens of blocks that we have got since the other side asked for them
    11  PING               1     1  0 = answer this, 1 = the answer (PONG)
                           2     4  any number; the answer has the same
    12  CLOSE              1     1  reason, see `CloseReason`; nothing follows
    13  BLOCK              1     4  rid; answers GET of offset 0, in place of HEAD, DATA and END
                           5     …  the whole block, 1 to 262,139 bytes
    14  MISMATCH           1    32  id of a block that came by this connection, and was another

A message ends where its record does. What is not described here ends the connection; so does a type above 14.

Source: docs/design/peer-protocol.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final

import msgspec

from syncer.peer.wire.bodies import TOKEN_BYTES
from syncer.peer.wire.drops import Drop

MAX_MESSAGE_BYTES: Final = 262_144
MAX_DATA_BYTES: Final = MAX_MESSAGE_BYTES - 5
# What we send in one DATA. From 128 KiB on malloc maps fresh pages for each buffer; below, each message costs its time:
# sealing and opening 4 MiB blocks ran at 2,412 and 1,555 MB/s with 64 KiB, at 3,428 and 2,396 MB/s with
# this. A block of 64 KiB goes in one.
DATA_BYTES: Final = 126_976
MAX_QUERY_TOKENS: Final = 32_000
MAX_HAVE_TOKENS: Final = 512
ID_BYTES: Final = 32
Octets = bytes | bytearray | memoryview
_GET: Final = struct.Struct(">BI32sI")
_HEAD: Final = struct.Struct(">BII")
_RID: Final = struct.Struct(">BI")
_BUSY: Final = struct.Struct(">BIH")
_QUERY: Final = struct.Struct(">BIH")
_HAVE: Final = struct.Struct(">BH")
_PING: Final = struct.Struct(">BBI")
_CLOSE: Final = struct.Struct(">BB")
_MISMATCH: Final = struct.Struct(">B32s")


class MessageType(IntEnum):
    """The first byte of a message."""

    GET = 1
    HEAD = 2
    DATA = 3
    END = 4
    NOTFOUND = 5
    BUSY = 6
    CANCEL = 7
    HAVEQ = 8
    HAVER = 9
    HAVE = 10
    PING = 11
    CLOSE = 12
    BLOCK = 13
    MISMATCH = 14


class CloseReason(IntEnum):
    """Why a connection is closed. A number that is not here is taken as it is: a later release may know more."""

    DONE = 0  # nothing to say for a while, or the program ends
    PROTOCOL = 1  # the other side broke a rule
    UNKNOWN = 2  # a type that we don't know
    FULL = 3  # too many connections
    KEY = 4  # the share's key or the epoch is over
    REFUSED = 5  # sharing is switched off, or the peer is banned


class Get(msgspec.Struct, frozen=True, kw_only=True):
    """Send me this block: `id` of 32 bytes, from byte `offset` on."""

    rid: int
    id: bytes
    offset: int = 0


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The block has `total` bytes. Nothing is allocated before `total` was compared with the share's block size."""

    rid: int
    total: int


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """The next bytes of the block: 1 to `MAX_DATA_BYTES`. What was received is a view of the record."""

    rid: int
    content: Octets


class End(msgspec.Struct, frozen=True, kw_only=True):
    """That was all of it."""

    rid: int


class NotFound(msgspec.Struct, frozen=True, kw_only=True):
    """We have no such block of this share."""

    rid: int


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """Not now; ask again after `retry_ms`, 0 to 65,535."""

    rid: int
    retry_ms: int


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    """Send no more of it."""

    rid: int


class HaveQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which of these blocks have you? 1 to `MAX_QUERY_TOKENS` tokens of 8 bytes. HAVE tells later what came since."""

    qid: int
    tokens: tuple[bytes, ...]


class HaveReply(msgspec.Struct, frozen=True, kw_only=True):
    """Those: a bitmap, see `bodies.positions`. Who asked looks whether it `fits` the question."""

    qid: int
    bitmap: bytes

    def fits(self, count: int) -> bool:
        """Whether this can be the answer to so many tokens: as long as it must be, with zeros behind the last."""
        return len(self.bitmap) == (count + 7) // 8 and not (count % 8 and self.bitmap[-1] >> count % 8)


class Have(msgspec.Struct, frozen=True, kw_only=True):
    """I have got these, for which you asked: 1 to `MAX_HAVE_TOKENS` tokens."""

    tokens: tuple[bytes, ...]


class Ping(msgspec.Struct, frozen=True, kw_only=True):
    """Are you there? With `answer`: I am; `number` is the question's."""

    number: int
    answer: bool = False


class Close(msgspec.Struct, frozen=True, kw_only=True):
    """I close the connection; `reason` is a `CloseReason`, or another number up to 255."""

    reason: int


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """The block, all of it: 1 to `MAX_DATA_BYTES`. What was received is a view of the record.

    Of blocks of 64 KiB it costs either end a third less than HEAD, DATA and END in three records.
    """

    rid: int
    content: Octets


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """What you sent for `id`, 32 bytes, is not that block: look at your copy. Only CLOSE follows."""

    id: bytes


Message = (
    Block | Get | Head | Data | End | NotFound | Busy | Cancel | HaveQuery | HaveReply | Have | Ping | Close | Mismatch
)


def encode(message: Message) -> bytes:  # noqa: C901, PLR0911, PLR0912 - one line for each message
    """The bytes of a message, at most `MAX_MESSAGE_BYTES`."""
    match message:
        case Get():
            assert len(message.id) == ID_BYTES
            return _GET.pack(MessageType.GET, message.rid, message.id, message.offset)
        case Head():
            return _HEAD.pack(MessageType.HEAD, message.rid, message.total)
        case Data() | Block():
            assert 0 < len(message.content) <= MAX_DATA_BYTES
            kind = MessageType.DATA if isinstance(message, Data) else MessageType.BLOCK
            return b"".join((_RID.pack(kind, message.rid), message.content))
        case End():
            return _RID.pack(MessageType.END, message.rid)
        case NotFound():
            return _RID.pack(MessageType.NOTFOUND, message.rid)
        case Busy():
            return _BUSY.pack(MessageType.BUSY, message.rid, message.retry_ms)
        case Cancel():
            return _RID.pack(MessageType.CANCEL, message.rid)
        case HaveQuery():
            head = _QUERY.pack(MessageType.HAVEQ, message.qid, len(message.tokens))
            return head + _joined(message.tokens, MAX_QUERY_TOKENS)
        case HaveReply():
            assert 0 < len(message.bitmap) <= MAX_QUERY_TOKENS // 8
            return _RID.pack(MessageType.HAVER, message.qid) + message.bitmap
        case Have():
            return _HAVE.pack(MessageType.HAVE, len(message.tokens)) + _joined(message.tokens, MAX_HAVE_TOKENS)
        case Ping():
            return _PING.pack(MessageType.PING, message.answer, message.number)
        case Close():
            return _CLOSE.pack(MessageType.CLOSE, message.reason)
        case Mismatch():
            assert len(message.id) == ID_BYTES
            return _MISMATCH.pack(MessageType.MISMATCH, message.id)


def decode(content: Octets) -> Message | Drop:
    """Read a message. DATA stays where it is: its content is a view of `content`.

    Returns:
        The message; Drop.UNKNOWN for a type that we don't know; Drop.MESSAGE for what is none.
    """
    if not content:
        return Drop.MESSAGE
    reader = _READERS.get(content[0])
    return Drop.UNKNOWN if reader is None else reader(content) or Drop.MESSAGE


def data_of(rid: int, block: Octets, offset: int = 0) -> Iterator[Data]:
    """The DATA messages of a block from `offset` on: none if nothing is left. `block` is not copied."""
    view = memoryview(block)
    for begin in range(offset, len(view), DATA_BYTES):
        yield Data(rid=rid, content=view[begin : begin + DATA_BYTES])


def _joined(tokens: tuple[bytes, ...], most: int) -> bytes:
    assert 0 < len(tokens) <= most
    assert all(len(token) == TOKEN_BYTES for token in tokens)
    return b"".join(tokens)


def _tokens(content: Octets, begin: int, count: int, most: int) -> tuple[bytes, ...] | None:
    """The tokens from `begin` to the end, if there are exactly `count` and no more than allowed."""
    if not 0 < count <= most or len(content) != begin + TOKEN_BYTES * count:
        return None
    packed = bytes(content)
    return tuple([packed[each : each + TOKEN_BYTES] for each in range(begin, len(packed), TOKEN_BYTES)])


def _get(content: Octets) -> Get | None:
    if len(content) != _GET.size:
        return None
    _, rid, block_id, offset = _GET.unpack(content)
    return Get(rid=rid, id=block_id, offset=offset)


def _head(content: Octets) -> Head | None:
    if len(content) != _HEAD.size:
        return None
    _, rid, total = _HEAD.unpack(content)
    return Head(rid=rid, total=total)


def _with_content(kind: Callable[..., Data | Block]) -> Callable[[Octets], Message | None]:
    def read(content: Octets) -> Message | None:
        if not _RID.size < len(content) <= MAX_MESSAGE_BYTES:
            return None
        return kind(rid=_RID.unpack_from(content)[1], content=memoryview(content)[_RID.size :].toreadonly())

    return read


def _of_rid(kind: Callable[..., End | NotFound | Cancel]) -> Callable[[Octets], Message | None]:
    def read(content: Octets) -> Message | None:
        return kind(rid=_RID.unpack(content)[1]) if len(content) == _RID.size else None

    return read


def _busy(content: Octets) -> Busy | None:
    if len(content) != _BUSY.size:
        return None
    _, rid, retry_ms = _BUSY.unpack(content)
    return Busy(rid=rid, retry_ms=retry_ms)


def _query(content: Octets) -> HaveQuery | None:
    if len(content) < _QUERY.size:
        return None
    _, qid, count = _QUERY.unpack_from(content)
    tokens = _tokens(content, _QUERY.size, count, MAX_QUERY_TOKENS)
    return None if tokens is None else HaveQuery(qid=qid, tokens=tokens)


def _reply(content: Octets) -> HaveReply | None:
    if not _RID.size < len(content) <= _RID.size + MAX_QUERY_TOKENS // 8:
        return None
    return HaveReply(qid=_RID.unpack_from(content)[1], bitmap=bytes(content[_RID.size :]))


def _have(content: Octets) -> Have | None:
    if len(content) < _HAVE.size:
        return None
    tokens = _tokens(content, _HAVE.size, _HAVE.unpack_from(content)[1], MAX_HAVE_TOKENS)
    return None if tokens is None else Have(tokens=tokens)


def _ping(content: Octets) -> Ping | None:
    if len(content) != _PING.size or content[1] > 1:
        return None
    _, answer, number = _PING.unpack(content)
    return Ping(number=number, answer=bool(answer))


def _close(content: Octets) -> Close | None:
    return Close(reason=content[1]) if len(content) == _CLOSE.size else None


def _mismatch(content: Octets) -> Mismatch | None:
    return Mismatch(id=_MISMATCH.unpack(content)[1]) if len(content) == _MISMATCH.size else None


_READERS: Final[dict[int, Callable[[Octets], Message | None]]] = {
    MessageType.GET: _get,
    MessageType.HEAD: _head,
    MessageType.DATA: _with_content(Data),
    MessageType.END: _of_rid(End),
    MessageType.NOTFOUND: _of_rid(NotFound),
    MessageType.BUSY: _busy,
    MessageType.CANCEL: _of_rid(Cancel),
    MessageType.HAVEQ: _query,
    MessageType.HAVER: _reply,
    MessageType.HAVE: _have,
    MessageType.PING: _ping,
    MessageType.CLOSE: _close,
    MessageType.BLOCK: _with_content(Block),
    MessageType.MISMATCH: _mismatch,
}
