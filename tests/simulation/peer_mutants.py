"""Sessions that are broken on purpose, each in one way. The invariants of the swarm must catch every one of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest import mock

from syncer.peer.session import asking, outbound, receiving, sender, session
from syncer.peer.session.actions import LookUp
from syncer.peer.session.outbound import Outbound
from syncer.peer.session.standing import Standing
from syncer.peer.session.window import ReplayWindow
from syncer.peer.wire.bodies import IHave, Presence
from syncer.peer.wire.frames import FrameType
from syncer.peer.wire.keys import EpochKeys
from tests.simulation.hub import Weather
from tests.simulation.swarm import Plan

Broken = Callable[[], AbstractContextManager[object]]
"""Breaks all sessions as long as it is entered."""

_seal, _encode = outbound.seal, IHave.encode
_presence = outbound.Presence


def _in(place: object, name: str, broken: object) -> Broken:
    return lambda: mock.patch.object(place, name, broken)


def _in_clear(keys: EpochKeys, kind: FrameType, of: bytes, counter: int, body: bytes) -> bytes:
    return _seal(keys, kind, of, counter, body)[:44] + body + bytes(16)


def _long(answer: IHave, _bound: int) -> bytes | None:
    return (_encode(answer, 1440) or b"").ljust(1440, b"\0")


def _always_asking(*, port: int, addresses: tuple[bytes, ...], asks: bool = True) -> Presence:
    return _presence(port=port, addresses=addresses, asks=asks)


def _in_the_other_share(*, ticket: object, share: str, tokens: object) -> LookUp:
    return LookUp(ticket=ticket, share="b" if share == "a" else "a", tokens=tokens)  # type: ignore[arg-type]


MUTANTS: dict[str, tuple[Broken, Plan]] = {
    "bodies travel in clear": (_in(outbound, "seal", _in_clear), Plan()),
    "the counter stands still": (_in(sender.Sender, "count", lambda _self: 1), Plan()),
    "a jump of the clock is not noticed": (
        _in(sender, "JUMP_S", 1e9),
        Plan(jumps=0.9, server=False, blocks=60, block_s=0.2, weather=Weather(loss=0.2)),
    ),
    "answers fill the largest bucket": (_in(IHave, "encode", _long), Plan()),
    "who answers a HELLO asks, too": (_in(outbound, "Presence", _always_asking), Plan()),
    "another share is looked up": (_in(session, "LookUp", _in_the_other_share), Plan(insider=20, second_share=0.9)),
    "replays are not noticed": (_in(ReplayWindow, "commit", lambda _self, _counter: None), Plan(outsider=0.3)),
    "the broadcast budget is not kept": (_in(Outbound, "_may", lambda *_: True), Plan(blocks=900, mtu=130)),
    "nothing is asked twice": (_in(asking, "AGAIN_S", (1e9,) * 4), Plan(weather=Weather(loss=0.2), server=False)),
    "what is here is asked for further": (_in(asking.Asking, "drop", lambda *_: None), Plan()),
    "clocks must agree to the epoch": (
        _in(receiving, "NEARBY", 0),
        Plan(server=False, skew_s=540.0, second_share=0.0),
    ),
    "bans are forgotten": (
        _in(Standing, "is_banned", lambda *_: False),
        Plan(bad=0.9, server=False, machines=5, blocks=60, block_s=0.2, second_share=0.0),
    ),
    "senders are kept for ever": (_in(receiving, "SENDERS", 1 << 30), Plan(insider=600)),
}
"""Each with a plan in which it shows."""
