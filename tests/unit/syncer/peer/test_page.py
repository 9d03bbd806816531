"""docs/design/peer-protocol.md: another program that follows it speaks with us."""

from __future__ import annotations

import re
from pathlib import Path

from syncer.peer.session import answering, asking, budget, neighbours, receiving, sender, session, standing
from syncer.peer.wire import bodies, frames, handshake, messages, records
from syncer.peer.wire.bodies import WhoHas
from syncer.peer.wire.drops import Drop
from syncer.peer.wire.frames import FrameType, seal
from syncer.peer.wire.handshake import Dialled, answer
from syncer.peer.wire.keys import derive
from syncer.peer.wire.messages import MessageType, Ping

PAGE = (Path(__file__).parents[4] / "docs/design/peer-protocol.md").read_text()


def example() -> dict[str, bytes]:
    """Names and bytes of the page's last block."""
    lines = PAGE.split("```")[-2].strip().splitlines()
    values: dict[str, str] = {}
    name = ""
    for line in lines:
        name = line[:17].strip() or name
        values[name] = values.get(name, "") + line[17:].strip()
    return {name: bytes.fromhex(value) for name, value in values.items()}


def test_the_worked_example_is_what_the_code_does() -> None:
    given = example()
    who = given["sender"]
    keys = derive(given["K_root"], int.from_bytes(given["epoch"], "big"))
    assert (keys.secret, keys.hint_key, keys.psk) == (given["K_e"], given["K_hint"], given["psk"])
    assert (keys.hint(who), keys.frame_key(who)) == (given["hint"], given["K_frame"])
    question = WhoHas(qid=0x01020304, tokens=(b"abcdefgh", b"ABCDEFGH"), discovery=True)
    assert question.encode(1440) == given["body"]
    assert seal(keys, FrameType.WHOHAS, who, 9, given["body"]) == given["frame"]
    dialled = Dialled(keys, who, given["dials, private"])
    assert dialled.greeting == given["greeting"]
    answered = answer(given["greeting"], keys, given["answers, private"])
    assert not isinstance(answered, Drop)
    assert answered[0] == given["reply"]
    secured = dialled.answered(given["reply"])
    assert not isinstance(secured, Drop)
    assert secured.send(Ping(number=7)) == given["record"]


def test_the_page_names_every_type() -> None:
    assert set(re.findall(r"^\| (\d+) \| ([A-Z]+) \|", PAGE, re.MULTILINE)) == {
        (str(int(kind)), kind.name) for kind in MessageType
    }
    types = ", ".join(f"{int(kind)} {kind.name}" for kind in FrameType)
    assert f"type: {types} " in PAGE


def test_the_page_has_the_bounds_of_the_code() -> None:
    bounds = {
        f"1 to {bodies.MAX_TOKENS}",
        f"0 to {bodies.MAX_ADDRESSES}",
        f"17 to {records.MAX_RECORD_BYTES:,}",
        f"bytes 1 to {messages.MAX_DATA_BYTES:,}",
        f"1 to {messages.MAX_QUERY_TOKENS:,}",
        f"1 to {messages.MAX_HAVE_TOKENS}",
        f"{handshake.GREETING_BYTES} bytes",
        "64, 256, 768 or 1440",
    }
    assert frames.BUCKETS == (64, 256, 768, 1440)
    assert not {bound for bound in bounds if bound not in PAGE}


def test_the_page_has_the_bounds_that_the_code_has() -> None:
    for said in (
        f"More than {session.BROADCASTS} frames of wants",
        f"within {asking.COALESCE_S * 1000:.0f} ms of the last question",
        f"after {', '.join(f'{each:g}' for each in asking.AGAIN_S[:-1])}, then each {asking.AGAIN_S[-1]:g} s",
        f"At most {asking.WANTS:,} blocks of a share",
        f"a question of the last {asking.ANSWER_S:g} s",
        f"heard in the last {neighbours.LIVE_S:g} s",
        f"heard in the last {neighbours.KNOWN_S / 60:g} minutes",
        f"more than {answering.IMPLOSION} known peers it answers with probability {answering.CROWD} / known",
        f"with more than {answering.CROWD} known peers an answer waits",
        f"up to {answering.JITTER_EACH_S * 1000:g} ms for each of them, {answering.JITTER_MOST_S * 1000:g} ms at most",
        f"| senders remembered | {receiving.SENDERS};",
        f"| peers of a share | {neighbours.MOST} |",
        f"| questions that may be answered | {asking.QUESTIONS}, {asking.ANSWERS} answers to each |",
        f"| questions of others in work | {budget.WORK} |",
        f"| {budget.HINTS_MOST} a second, one for each of our keys |",
        f"banned for {standing.BAN_S / 3600:g} hour",
        f"{standing.LACKED_MOST} blocks in a minute",
        f"not tried by this link for {standing.UNREACHABLE_S / 60:g} minutes",
        f"wall clock moved {sender.JUMP_S:g} s",
    ):
        assert said in PAGE, said
