"""Bodies of frames: who has these blocks, I have those, I am here, I go.

All integers are big-endian; the frame's layout is in frames.py. What is not described here makes a body invalid.

    offset  size  WHOHAS
         0     4  qid: random, which question this is
         4     2  count of tokens, 1 to 179
         6     1  length of a token = 8
         7     1  flags: 1 = answer also if you have none (who is there?)
         8  8 * count  tokens: the first 8 bytes of block ids

    offset  size  IHAVE, to the asker alone
         0     4  qid of the question
         4    16  sender of the question
        20     2  count of tokens in the question
        22     1  load: 0 idle to 255
        23     1  number of addresses, 0 to 3
        24     2  TCP port; 0 = no connections are taken
        26     2  reserved = 0
        28    16 * number  IPv6 addresses, or IPv4 mapped into IPv6
         …     ceil(count / 8)  bitmap, least bit first: 1 = have the token's block

    offset  size  HELLO and BYE
         0     2  TCP port; 0 = no connections are taken
         2     1  number of addresses, 0 to 3
         3     1  flags: 1 = say HELLO to me (who is there?); 0 in BYE
         4    16 * number  addresses

An IHAVE is never longer than the question: its body stays in the question's bucket, and has fewer addresses if it must.

Source: docs/design/peer-protocol.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache
from typing import Final

import msgspec

from syncer.peer.wire.drops import Drop
from syncer.peer.wire.frames import BUCKETS, FrameType, bucket, padded
from syncer.peer.wire.keys import SENDER_BYTES

TOKEN_BYTES: Final = 8
ADDRESS_BYTES: Final = 16
MAX_ADDRESSES: Final = 3
MAX_TOKENS: Final = 179
_DISCOVERY: Final = 1
_ASKS: Final = 1
_WHOHAS: Final = struct.Struct(">IHBB")
_IHAVE: Final = struct.Struct(">I16sHBBHH")
_PRESENCE: Final = struct.Struct(">HBB")
_BITS: Final = tuple([tuple([bit for bit in range(8) if byte >> bit & 1]) for byte in range(256)])
_MAPPED: Final = b"\0" * 10 + b"\xff\xff"


class WhoHas(msgspec.Struct, frozen=True, kw_only=True):
    """A question.

    Attributes:
        qid: 0 to 2^32 - 1.
        tokens: 1 to 179, each the first 8 bytes of a block id.
        discovery: True: who has none of them answers too.
    """

    qid: int
    tokens: tuple[bytes, ...]
    discovery: bool = False

    def encode(self, bound: int) -> bytes:
        """The padded body for a link whose bodies have at most `bound` bytes."""
        assert 0 < len(self.tokens) <= MAX_TOKENS
        tokens = b"".join(self.tokens)
        assert len(tokens) == TOKEN_BYTES * len(self.tokens)
        fields = _WHOHAS.pack(self.qid, len(self.tokens), TOKEN_BYTES, _DISCOVERY if self.discovery else 0)
        return padded(fields + tokens, bound)

    @classmethod
    def decode(cls, body: bytes) -> WhoHas | Drop:
        """Read a body with its padding."""
        if len(body) < _WHOHAS.size:
            return Drop.BODY
        qid, count, token_bytes, flags = _WHOHAS.unpack_from(body)
        end = _WHOHAS.size + TOKEN_BYTES * count
        if not 0 < count <= MAX_TOKENS or token_bytes != TOKEN_BYTES or flags & ~_DISCOVERY or not _ends(body, end):
            return Drop.BODY
        return cls(qid=qid, tokens=_tokens(count).unpack_from(body, _WHOHAS.size), discovery=bool(flags))


class IHave(msgspec.Struct, frozen=True, kw_only=True):
    """An answer.

    Attributes:
        qid: Of the question.
        asker: Sender of the question, 16 bytes.
        count: Of the question's tokens, 1 to 179.
        load: 0 idle to 255.
        port: TCP; 0 if no connections are taken.
        addresses: At most 3, the best first, 16 bytes each, see `usable`.
        bitmap: ceil(count / 8) bytes, see `bitmap_of` and `positions`.
    """

    qid: int
    asker: bytes
    count: int
    load: int
    port: int
    addresses: tuple[bytes, ...]
    bitmap: bytes

    def encode(self, bound: int) -> bytes | None:
        """The padded body, not longer than `bound`: the length of the question's body.

        Addresses that do not fit are left out, the last first. None: it does not even fit without addresses, which no
        question causes whose sender keeps to the protocol.
        """
        assert len(self.asker) == SENDER_BYTES
        assert 0 < self.count <= MAX_TOKENS
        assert len(self.bitmap) == (self.count + 7) // 8
        assert len(self.addresses) <= MAX_ADDRESSES
        needed = _IHAVE.size + len(self.bitmap)
        if bucket(needed, bound) is None:
            return None
        addresses = self.addresses[: (bound - needed) // ADDRESS_BYTES]
        fields = _IHAVE.pack(self.qid, self.asker, self.count, self.load, len(addresses), self.port, 0)
        return padded(fields + b"".join(addresses) + self.bitmap, bound)

    @classmethod
    def decode(cls, body: bytes) -> IHave | Drop:
        """Read a body with its padding."""
        if len(body) < _IHAVE.size:
            return Drop.BODY
        qid, asker, count, load, number, port, reserved = _IHAVE.unpack_from(body)
        bits = _IHAVE.size + ADDRESS_BYTES * number
        end = bits + (count + 7) // 8
        if not 0 < count <= MAX_TOKENS or reserved or not _ends(body, end):
            return Drop.BODY
        bitmap = body[bits:end]
        addresses = _addresses(body, _IHAVE.size, number)
        if addresses is None or (count % 8 and bitmap[-1] >> count % 8):
            return Drop.BODY
        return cls(qid=qid, asker=asker, count=count, load=load, port=port, addresses=addresses, bitmap=bitmap)


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """HELLO: I am here. BYE: I go. The frame's type tells which.

    Attributes:
        port: TCP; 0 if no connections are taken.
        addresses: At most 3, the best first, 16 bytes each, see `usable`.
        asks: True: whoever hears it says HELLO, to the sender alone. Never in a BYE.
    """

    port: int
    addresses: tuple[bytes, ...]
    asks: bool = False

    def encode(self) -> bytes:
        """The padded body. It is in the least bucket always, so an answer is as long as what it answers."""
        assert len(self.addresses) <= MAX_ADDRESSES
        fields = _PRESENCE.pack(self.port, len(self.addresses), _ASKS if self.asks else 0)
        return padded(fields + b"".join(self.addresses), BUCKETS[0])

    @classmethod
    def decode(cls, body: bytes) -> Presence | Drop:
        """Read the body of a HELLO with its padding."""
        if len(body) < _PRESENCE.size:
            return Drop.BODY
        port, number, flags = _PRESENCE.unpack_from(body)
        if flags & ~_ASKS or not _ends(body, _PRESENCE.size + ADDRESS_BYTES * number):
            return Drop.BODY
        addresses = _addresses(body, _PRESENCE.size, number)
        return Drop.BODY if addresses is None else cls(port=port, addresses=addresses, asks=bool(flags))

    @classmethod
    def decode_bye(cls, body: bytes) -> Presence | Drop:
        """Read the body of a BYE with its padding: who goes asks nobody."""
        read = cls.decode(body)
        return Drop.BODY if isinstance(read, Presence) and read.asks else read


Body = WhoHas | IHave | Presence
_READERS: Final = {
    FrameType.WHOHAS: WhoHas.decode,
    FrameType.IHAVE: IHave.decode,
    FrameType.HELLO: Presence.decode,
    FrameType.BYE: Presence.decode_bye,
}


def decode_body(kind: FrameType, body: bytes) -> Body | Drop:
    """Read the body of a frame of this type, as `frames.open_body` returned it."""
    return _READERS[kind](body)


def bitmap_of(held: Iterable[bool]) -> bytes:
    """One bit for each, the least bit of the first byte first."""
    digits = "".join(["1" if each else "0" for each in held])
    return int(digits[::-1] or "0", 2).to_bytes((len(digits) + 7) // 8, "little")


def positions(bitmap: bytes) -> list[int]:
    """Where a bitmap has ones, ascending."""
    return [8 * index + bit for index, byte in enumerate(bitmap) for bit in _BITS[byte]]


def usable(address: bytes) -> bool:
    """Whether an address can be a neighbour's: neither unspecified, nor loopback, nor multicast, nor broadcast.

    Who has the key may write any address. It must not make us connect to ourselves.

    Args:
        address: 16 bytes; IPv4 is mapped into IPv6.
    """
    if address[:12] == _MAPPED:
        return address[12] not in (0, 127) and address[12] < 224
    return address[:12] != bytes(12) and address[0] != 0xFF


def _ends(body: bytes, end: int) -> bool:
    """Whether the content may end there: within the body, with nothing but zeros behind."""
    return end <= len(body) and not any(body[end:])


@cache
def _tokens(count: int) -> struct.Struct:
    return struct.Struct(f"{TOKEN_BYTES}s" * count)


def _addresses(body: bytes, begin: int, number: int) -> tuple[bytes, ...] | None:
    if number > MAX_ADDRESSES:
        return None
    end = begin + ADDRESS_BYTES * number
    addresses = tuple([body[at : at + ADDRESS_BYTES] for at in range(begin, end, ADDRESS_BYTES)])
    return addresses if all(usable(address) for address in addresses) else None
