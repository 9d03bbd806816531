"""Everything that reads bytes of a LAN's strangers: frames, their bodies, preambles, handshakes, records, messages.

Each reader is asked whether hostile bytes end in a value or a `Drop`, and whether a value is written with its bytes:
bodies and messages have one form.
"""

from __future__ import annotations

from typing import Final

from syncer.peer.wire.bodies import IHave, Presence, WhoHas, bitmap_of, decode_body, positions, usable
from syncer.peer.wire.drops import Drop
from syncer.peer.wire.frames import FrameType, Header, open_body, parse_header, seal
from syncer.peer.wire.handshake import Dialled, Preamble, answer, parse_preamble
from syncer.peer.wire.incoming import Incoming
from syncer.peer.wire.keys import derive
from syncer.peer.wire.messages import (
    Block,
    Busy,
    Cancel,
    Close,
    Data,
    End,
    Get,
    Have,
    HaveQuery,
    HaveReply,
    Head,
    Mismatch,
    NotFound,
    Octets,
    Ping,
    decode,
    encode,
)
from syncer.peer.wire.noise import CipherState
from syncer.peer.wire.records import Secured
from tests.fuzz.search import Target

_KEYS: Final = derive(bytes(range(32)), 2_900_000)
_SENDER: Final = bytes(range(100, 116))
_ONE, _TWO = bytes(range(32)), bytes(range(32, 64))
_FE80: Final = b"\xfe\x80" + bytes(13) + b"\7"
_WHOHAS: Final = [
    WhoHas(qid=1, tokens=(b"abcdefgh",)),
    WhoHas(qid=2, tokens=tuple([bytes([n]) * 8 for n in range(179)]), discovery=True),
]
_IHAVE: Final = [
    IHave(qid=1, asker=_SENDER, count=1, load=0, port=4, addresses=(), bitmap=b"\1"),
    IHave(qid=1, asker=_SENDER, count=13, load=9, port=4, addresses=(_FE80,) * 3, bitmap=bitmap_of([True] * 13)),
]
_PRESENCE: Final = [Presence(port=5, addresses=(), asks=True), Presence(port=5, addresses=(_FE80,) * 3)]
_BODIES: Final = [
    *[(FrameType.WHOHAS, each.encode(1440)) for each in _WHOHAS],
    *[(FrameType.IHAVE, each.encode(1440) or b"") for each in _IHAVE],
    *[(FrameType.HELLO, each.encode()) for each in _PRESENCE],
    (FrameType.BYE, _PRESENCE[1].encode()),
]
_MESSAGES: Final = [
    Get(rid=1, id=b"i" * 32, offset=9),
    Head(rid=1, total=600),
    Data(rid=1, content=b"d" * 600),
    End(rid=1),
    NotFound(rid=2),
    Busy(rid=3, retry_ms=100),
    Cancel(rid=4),
    HaveQuery(qid=5, tokens=(b"abcdefgh", b"ABCDEFGH")),
    HaveReply(qid=5, bitmap=b"\2"),
    Have(tokens=(b"abcdefgh",)),
    Ping(number=6),
    Ping(number=6, answer=True),
    Mismatch(id=b"i" * 32),
    Close(reason=0),
    Block(rid=1, content=b"d" * 600),
]
_BLOCK_SIZE: Final = 1000


class _Unsealed(CipherState):
    """A cipher that lets everything through, so that a search reaches what is behind the tag."""

    def __init__(self) -> None:
        super().__init__(_ONE)

    def encrypt_into(self, plaintext: Octets, ciphertext: Octets, ad: bytes = b"") -> None:
        assert not isinstance(ciphertext, bytes)
        memoryview(ciphertext)[: len(plaintext)] = plaintext
        self._next()

    def decrypt(self, ciphertext: Octets, ad: bytes = b"") -> bytearray | Drop:
        self._next()
        return bytearray(ciphertext[:-16])


def _read_frame(data: bytes) -> None:
    header = parse_header(data)
    if isinstance(header, Drop):
        return
    assert isinstance(header, Header)
    assert header.length == len(data) - 60
    body = open_body(_KEYS, data, header)
    assert body is Drop.TAG or data in _FRAMES


def _read_body(data: bytes) -> None:
    """The first byte chooses the type."""
    kind = FrameType(1 + data[0] % 4) if data else FrameType.WHOHAS
    body = decode_body(kind, data[1:])
    if isinstance(body, Drop):
        assert body is Drop.BODY
        return
    if isinstance(body, IHave):
        assert all(position < body.count for position in positions(body.bitmap))
        assert all(usable(address) for address in body.addresses)
    written = body.encode() if isinstance(body, Presence) else body.encode(max(64, len(data) - 1))
    assert written is not None
    content = data[1:].rstrip(b"\0")
    assert written[: len(content)] == content
    assert not any(written[len(content) :])


def _read_preamble(data: bytes) -> None:
    assert isinstance(parse_preamble(data), Preamble | Drop)
    assert answer(data, _KEYS, _TWO) is Drop.HANDSHAKE or data == _GREETING
    # the prologue is right: what is refused then is the message
    assert answer(_GREETING[:32] + data[32:], _KEYS, _TWO) is Drop.HANDSHAKE or data[32:] == _GREETING[32:]


def _read_reply(data: bytes) -> None:
    assert isinstance(Dialled(_KEYS, _SENDER, _ONE).answered(data), Drop) or data == _REPLY


def _read_message(data: bytes) -> None:
    message = decode(data)
    if isinstance(message, Drop):
        assert message in (Drop.MESSAGE, Drop.UNKNOWN)
    else:
        assert encode(message) == data


def _read_sealed_records(data: bytes) -> None:
    """Nothing comes out but what was sealed, in its order."""
    heard = Secured(CipherState(_TWO), CipherState(_ONE)).receive(data)
    assert heard == _MESSAGES[: len(heard)]


def _read_records(data: bytes) -> None:
    """Behind the tag: any cut of the stream gives the same messages, and they make a block or none."""
    whole = Secured(_Unsealed(), _Unsealed())
    heard = whole.receive(data)
    cut = Secured(_Unsealed(), _Unsealed())
    step = 1 + len(data) % 37 if len(data) < 200 else 1 + len(data) // 7
    again = [message for at in range(0, len(data), step) for message in cut.receive(data[at : at + step])]
    assert heard == again
    assert whole.failed == cut.failed
    assert whole.failed or whole.wants() > 0
    incoming = Incoming(_BLOCK_SIZE)
    for message in heard:
        match message:
            case Head():
                incoming.head(message.total)
            case Data():
                incoming.data(message.content)
            case Block():
                block = incoming.whole(message.content)
                assert isinstance(block, Drop) or len(block) <= _BLOCK_SIZE
            case End():
                block = incoming.end()
                assert isinstance(block, Drop) or len(block) <= _BLOCK_SIZE
    assert incoming.received <= _BLOCK_SIZE


def _stream(cipher: CipherState) -> bytes:
    sending = Secured(cipher, CipherState(_TWO))
    return b"".join(sending.send(message) for message in _MESSAGES)


_FRAMES: Final = tuple([seal(_KEYS, kind, _SENDER, 1 + at, body) for at, (kind, body) in enumerate(_BODIES)])
_GREETING: Final = Dialled(_KEYS, _SENDER, _ONE).greeting
_ANSWERED: Final = answer(_GREETING, _KEYS, _TWO)
assert not isinstance(_ANSWERED, Drop)
_REPLY: Final = _ANSWERED[0]

# A greeting and a reply cost a key exchange each.
TARGETS: Final = (
    Target("frame", _FRAMES, _read_frame, weight=8),
    Target("body", tuple([bytes([kind - 1]) + body for kind, body in _BODIES]), _read_body, weight=8),
    Target("preamble", (_GREETING,), _read_preamble),
    Target("reply", (_REPLY,), _read_reply),
    Target("sealed records", (_stream(CipherState(_ONE)),), _read_sealed_records, weight=8),
    Target("records", (_stream(_Unsealed()),), _read_records, weight=8),
    Target("message", tuple([encode(message) for message in _MESSAGES]), _read_message, weight=8),
)
