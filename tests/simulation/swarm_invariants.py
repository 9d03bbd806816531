"""What must hold in every run of a swarm, as an eavesdropper with all the keys sees it, and as the machines end."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator

from syncer.peer.session.receiving import SENDERS
from syncer.peer.wire.bodies import IHave, Presence, WhoHas, decode_body, positions
from syncer.peer.wire.drops import Drop
from syncer.peer.wire.frames import FrameType, Header, open_body, parse_header
from syncer.peer.wire.keys import EpochKeys, derive, epoch_of
from tests.simulation.hub import Captured
from tests.simulation.swarm import Machine, Nature, Swarm

Opened = tuple[Captured, Header, str, bytes, WhoHas | IHave | Presence]
"""A frame, its header, its share, the share's key, and its body."""


def violations(swarm: Swarm) -> list[str]:
    """All that was broken, in words."""
    opened = list(_opened(swarm))
    return [
        *swarm.failures,
        *_blocks(swarm),
        *_leaks(swarm),
        *_nonces(swarm),
        *_jumps(swarm),
        *_answers(swarm, opened),
        *_hellos(swarm, opened),
        *_budget(swarm),
        *_ends(swarm),
        *_alone(swarm),
        *_memory(swarm),
    ]


def _blocks(swarm: Swarm) -> Iterator[str]:
    for machine in swarm.machines:
        for block, data in machine.done:
            if hashlib.sha256(data).digest() != block:
                yield f"{machine.number} took a block that is another"


def _leaks(swarm: Swarm) -> Iterator[str]:
    wire = b"|".join({each.frame for each in _own(swarm)})
    for share, blocks in swarm.content.items():
        for block in blocks:
            if any(block[place : place + 8] in wire for place in (0, 1, 8, 16, 24)):
                yield f"an id of {share} is on the wire"
                return


def _nonces(swarm: Swarm) -> Iterator[str]:
    used: dict[bytes, bytes] = {}
    for each in _own(swarm):
        # epoch, hint, sender, counter: the hint stands for the share's key
        if used.setdefault(each.frame[6:40], each.frame) != each.frame:
            yield f"{each.source.hex()} used a nonce twice"


def _jumps(swarm: Swarm) -> Iterator[str]:
    for machine in swarm.machines:
        for jump in machine.jumped:
            sent = [(each.at > jump, each.frame[16:32]) for each in swarm.captured if each.source == machine.mac]
            if {sender for after, sender in sent if after} & {sender for after, sender in sent if not after}:
                yield f"{machine.number} is who it was before its clock jumped"


def _answers(swarm: Swarm, opened: list[Opened]) -> Iterator[str]:
    questions: dict[tuple[bytes, int, bytes], tuple[int, tuple[bytes, ...], str]] = {}
    answered: Counter[tuple[bytes, bytes, int, bytes]] = Counter()
    machines = {machine.mac: machine for machine in swarm.machines}
    # Who has the key can be more senders than anybody remembers: an old frame of a forgotten one counts again.
    may_forget = swarm.plan.insider >= SENDERS
    for captured, header, share, root, body in opened:
        if isinstance(body, WhoHas):
            questions.setdefault((header.sender, body.qid, root), (len(captured.frame), body.tokens, share))
        elif isinstance(body, IHave) and captured.source in machines:
            machine = machines[captured.source]
            asked = questions.get((body.asker, body.qid, root))
            if asked is None or captured.to is None:
                yield f"{machine.number} answered what nobody asked, or told everybody"
                continue
            length, tokens, _ = asked
            if len(captured.frame) > length:
                yield f"{machine.number} answered with more than was asked"
            answered[captured.source, body.asker, body.qid, root] += 1
            if answered[captured.source, body.asker, body.qid, root] > machine.lives and not may_forget:
                yield f"{machine.number} answered a question twice"
            yield from _outside(machine, share, [tokens[each] for each in positions(body.bitmap)])


def _hellos(swarm: Swarm, opened: list[Opened]) -> Iterator[str]:
    """Who comes asks all who is there; each answers once, and asks nothing: else they would never end."""
    asked: set[bytes] = set()
    said: Counter[bytes] = Counter()
    machines = {machine.mac: machine for machine in swarm.machines}
    for captured, header, _, _, body in opened:
        if not isinstance(body, Presence) or header.type is not FrameType.HELLO:
            continue
        if body.asks:
            asked.add(captured.frame)
        if captured.source in machines and body.asks is not (captured.to is None):
            yield f"{machines[captured.source].number} asks one who is there, or tells all that it asks nothing"
        if captured.source in machines and captured.to is not None:
            said[captured.source] += 1
            if said[captured.source] > len(asked) * machines[captured.source].lives:
                yield f"{machines[captured.source].number} says HELLO to somebody more often than it was asked"


def _outside(machine: Machine, share: str, tokens: list[bytes]) -> Iterator[str]:
    held = {block[:8] for block in machine.held.get(share, ())}
    if machine.nature is not Nature.LIAR and not set(tokens) <= held:
        yield f"{machine.number} told of a block that is not in the share"


def _budget(swarm: Swarm) -> Iterator[str]:
    levels: dict[tuple[str, bytes], tuple[float, float]] = {}
    lives = {machine.mac: machine.lives for machine in swarm.machines}
    for each in _own(swarm):
        if each.to is None:
            burst = 64.0 * lives[each.source]
            at, level = levels.get((each.link, each.source), (each.at, burst))
            level = min(burst, level + (each.at - at) * 200) - 1
            levels[each.link, each.source] = (each.at, level)
            if level < -0.01:
                yield f"{each.source.hex()} broadcast more than its budget"
                return


def _ends(swarm: Swarm) -> Iterator[str]:
    if not swarm.is_done():
        if swarm.plan.server:
            missing = {
                m.number: sum(map(len, m.missing.values())) for m in swarm.machines if m.alive and not m.is_done()
            }
            yield f"blocks are missing at the end: {missing}"
        return
    late = [each for each in _own(swarm) if each.at > swarm.rest_s]
    if late:
        yield f"{len(late)} frames of machines that want nothing"
    for machine in swarm.machines:
        if machine.alive and machine.session.next_deadline(machine.clock()[0]) is not None:
            yield f"{machine.number} waits for something, and wants nothing"


def _promised(swarm: Swarm) -> bool:
    """Whether peers alone must do: the first machine has all of share a, and nobody is wicked, dead or far in time."""
    plan = swarm.plan
    return (
        not (plan.bad or plan.deaths or plan.jumps or plan.partitions or plan.insider or plan.later)
        and plan.skew_s <= 540
    )


def _alone(swarm: Swarm) -> Iterator[str]:
    """With a fifth of the frames lost, what is on the network is here in five minutes: thirteen questions."""
    if _promised(swarm) and swarm.plan.weather.loss <= 0.2:
        for machine in swarm.machines:
            if machine.missing["a"] or machine.done_s["a"] > 300:
                yield f"{machine.number} did not get from its neighbours what they have"


def _memory(swarm: Swarm) -> Iterator[str]:
    for machine in swarm.machines:
        if machine.lives:
            session = machine.session
            sizes = {
                "senders": (len(session._receiver), 256),
                "questions": (len(session._questions), 1024),
                "answers": (len(session._answering), 512),
                "neighbours": (max(len(each.neighbours._heard) for each in session._shares.values()), 256),
                "own ids": (len(session._sender._ids), 64),
                "bans": (len(session.standing._bans), 1024),
            }
            yield from (f"{machine.number} keeps {size} {what}" for what, (size, most) in sizes.items() if size > most)


def _own(swarm: Swarm) -> Iterator[Captured]:
    macs = {machine.mac for machine in swarm.machines}
    return (each for each in swarm.captured if each.source in macs)


def _opened(swarm: Swarm) -> Iterator[Opened]:
    """Frames that were sealed with a key of a share, deciphered."""
    present = epoch_of(swarm.unix_s)
    epochs = {epoch % 65_536: epoch for epoch in range(present - 8, present + 12)}
    derived: dict[tuple[bytes, int], EpochKeys] = {}
    for captured in swarm.captured:
        header = parse_header(captured.frame)
        if isinstance(header, Drop) or header.epoch16 not in epochs:
            continue
        for share, roots in swarm.roots.items():
            for root in roots:
                epoch = epochs[header.epoch16]
                keys = derived.get((root, epoch)) or derived.setdefault((root, epoch), derive(root, epoch))
                if keys.hint(header.sender) == header.hint:
                    body = open_body(keys, captured.frame, header)
                    read = body if isinstance(body, Drop) else decode_body(header.type, body)
                    if not isinstance(read, Drop):
                        yield captured, header, share, root, read
