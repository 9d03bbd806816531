"""Machines of one or two shares on simulated wires, with the real sessions: they miss blocks, ask, answer and fetch.

Connections are modelled in a few lines: a block comes after a while, or what the other machine is makes of it: wrong
bytes, NOTFOUND, silence, a closed door. The server is slow, and has everything or is not there. Outsiders see every
frame, and replay, damage and invent some; insiders have the key, and say what they like.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from blockfs.blocks.ids import BlockId
from syncer.peer.session.actions import Action, Answered, AskConnected, Link, LinkId, LookUp, PeerId, Send
from syncer.peer.session.keyring import RootKey
from syncer.peer.session.session import Session
from syncer.peer.wire.bodies import IHave, Presence, WhoHas
from syncer.peer.wire.carrier import Carrier
from syncer.peer.wire.frames import FrameType, body_bound, padded, seal
from syncer.peer.wire.keys import EPOCH_S, derive, epoch_of
from tests.simulation.hub import CALM, Captured, Events, Hub, Weather

ETHERNET, UDP = "ethernet", "udp"
_CARRIERS = {ETHERNET: Carrier.ETHERNET, UDP: Carrier.UDP6}
STALL_S = 1.0
CONNECTIONS = 4
BAN_S = 3600.0
IDLE_S = 90.0  # longer than any wait between questions


class Nature(Enum):
    """What a machine is to who fetches from it."""

    HONEST = "honest"
    CORRUPT = "corrupt"  # sends other bytes
    LIAR = "liar"  # offers all, has none
    STALLING = "stalling"  # takes the connection and says nothing
    WALLED = "walled"  # a firewall before its port


class Plan(msgspec.Struct, frozen=True):
    """What a scenario is about; all of it follows from the seed, unless a test says otherwise."""

    weather: Weather = CALM
    machines: int = 3
    blocks: int = 8
    bad: float = 0.0  # of the machines, but never the first
    server: bool = True
    outsider: float = 0.0  # chance for each frame that somebody does something with it
    insider: int = 0  # frames of an insider who says what he likes
    deaths: float = 0.0  # of the machines
    partitions: int = 0
    skew_s: float = 0.0
    jumps: float = 0.0
    rotation: bool = False
    udp: float = 0.0  # of the machines have no Ethernet frames
    later: bool = False  # more is wanted after the first ten minutes
    late_s: float = 0.0  # machines start within
    mtu: int = 1500
    block_s: float = 0.001  # time of one transfer
    second_share: float = 0.4  # of the machines are in it, but the first, which has all of the other


def plan_of(seed: int) -> Plan:
    """The plan of a seed: each trouble in about one of three."""
    rng = random.Random(seed)

    def maybe(value: float, chance: float = 0.34) -> float:
        return value if rng.random() < chance else 0.0

    weather = Weather(
        loss=rng.choice((0.0, 0.0, 0.02, 0.2, 0.5)),
        duplicate=maybe(0.2),
        corrupt=maybe(0.05),
        late=maybe(0.3),
        delay_s=rng.choice((0.0001, 0.001, 0.005)),
    )
    large = rng.random() < 0.02
    return Plan(
        weather=weather,
        machines=rng.choice((2, 2, 3, 3, 4, 5)),
        blocks=900 if large else rng.choice((1, 2, 5, 9, 20, 20, 200)),
        bad=maybe(0.6, 0.5),
        server=rng.random() < 0.7,
        outsider=maybe(0.3),
        insider=int(maybe(rng.choice((10,) * 30 + (400,)))),
        deaths=maybe(0.3),
        partitions=int(maybe(2)),
        skew_s=maybe(rng.choice((30.0, 540.0, 900.0))),
        jumps=maybe(0.5),
        rotation=rng.random() < 0.2,
        udp=0.0 if large else maybe(0.5, 0.25),
        later=rng.random() < 0.1,
        late_s=maybe(2.0),
        mtu=130 if large else rng.choice((1500, 1500, 1500, 1280, 250)),
        block_s=rng.choice((0.001, 0.005)),
    )


class Machine:
    """One device."""

    def __init__(self, swarm: Swarm, number: int, nature: Nature, links: tuple[str, ...]) -> None:
        self.swarm = swarm
        self.number = number
        self.nature = nature
        self.links = links
        self.mac = bytes([2, 0, 0, 0, 0, number])
        self.address = b"\xfe\x80" + bytes(13) + bytes([number])
        self.skew_s = 0.0
        self.alive = False
        self.lives = 0
        self.held: dict[str, dict[BlockId, bytes]] = {}
        self.missing: dict[str, set[BlockId]] = {}
        self.done: list[tuple[BlockId, bytes]] = []
        self.fetching: set[tuple[str, BlockId]] = set()
        self.offers: dict[tuple[str, BlockId], list[Answered]] = {}
        self.known: dict[PeerId, Answered] = {}
        self.banned: dict[bytes, float] = {}
        self.jumped: list[float] = []
        self.last_progress = 0.0
        self.done_s = {"a": 0.0, "b": 0.0}
        self._tick_at: float | None = None

    # --- life

    def start(self) -> None:
        """Begin a process: nothing is kept of the one before but the blocks."""
        swarm, rng = self.swarm, self.swarm.rng
        self.alive = True
        self.lives += 1
        self.fetching, self.offers, self.known, self.banned = set(), {}, {}, {}
        self.session = swarm.session(random.Random(rng.random()))
        self.session.listen(17_000 + self.number)
        now, unix_s = self.clock()
        for share in self.held:
            self.do(self.session.follow(share, swarm.keys(share, unix_s), now, unix_s))
        for link in self.links:
            swarm.hubs[link].join(self.mac, lambda source, frame, link=link: self.receive(link, source, frame))  # type: ignore[misc]
            self.do(self.session.link_up(self.link(link), now, unix_s))
        self.ask()
        self.from_server()

    def link(self, name: str) -> Link:
        """One of its links."""
        return Link(
            id=LinkId(name),
            bound=body_bound(self.swarm.plan.mtu, _CARRIERS[name]),
            addresses=(self.address,),
        )

    def die(self) -> None:
        """Without a word."""
        self.alive = False
        for link in self.links:
            self.swarm.hubs[link].leave(self.mac)

    def clock(self) -> tuple[float, float]:
        """Monotonic and wall clock of this machine."""
        now = self.swarm.events.now
        return 1000.0 * self.number + now, self.swarm.unix_s + now + self.skew_s

    def rotate(self) -> None:
        """Read the share's keys again."""
        now, unix_s = self.clock()
        for share in self.held:
            self.do(self.session.follow(share, self.swarm.keys(share, unix_s), now, unix_s))

    def ask(self) -> None:
        """Want all that is missing."""
        now, unix_s = self.clock()
        for share, missing in self.missing.items():
            self.do(self.session.want(share, sorted(missing), now, unix_s))

    def is_done(self) -> bool:
        """Whether nothing is missing."""
        return not any(self.missing.values())

    # --- frames

    def receive(self, link: str, source: bytes, frame: bytes) -> None:
        """A frame came."""
        now, unix_s = self.clock()
        self.do(self.session.handle_frame(frame, LinkId(link), source, now, unix_s))

    def do(self, actions: list[Action]) -> None:
        """What the session says."""
        for action in actions:
            match action:
                case Send():
                    to = action.to
                    assert to is None or isinstance(to, bytes)
                    self.swarm.hubs[action.link].send(self.mac, to, action.frame)
                case LookUp():
                    life = self.lives
                    self.swarm.events.after(0.0002, lambda action=action, life=life: self._look_up(action, life))  # type: ignore[misc]
                case Answered():
                    self._answered(action)
                case AskConnected():
                    for peer in action.peers:
                        life = self.lives
                        self.swarm.events.after(
                            0.001,
                            lambda peer=peer, action=action, life=life: self._ask_connected(peer, action, life),  # type: ignore[misc]
                        )
        self._plan_tick()

    def _ask_connected(self, peer: PeerId, question: AskConnected, life: int) -> None:
        """A HAVEQ, and its HAVER."""
        answer = self.known.get(peer)
        if not self.alive or self.lives != life or answer is None:
            return
        other = self.swarm.at(answer.addresses[0], answer.port)
        if other is None or other.nature is not Nature.HONEST or not self.swarm.connects(self, other, answer.link):
            self._forget(peer)
        else:
            self.swarm.asked_connected += 1
            held = [block for block in question.ids if block in other.held[question.share]]
            wanted = self.session.told(question.share, peer, held)
            self._answered(msgspec.structs.replace(answer, share=question.share, ids=wanted))

    def _look_up(self, question: LookUp, life: int) -> None:
        if self.alive and self.lives == life:
            tokens = {block[:8] for block in self.held.get(question.share, ())}
            held = [self.nature is Nature.LIAR or token in tokens for token in question.tokens]
            self.do(self.session.looked_up(question.ticket, held, *self.clock()))

    def _plan_tick(self) -> None:
        now, _ = self.clock()
        deadline = self.session.next_deadline(now)
        if deadline is None:
            self._tick_at = None
            return
        when = self.swarm.events.now + max(0.0, deadline - now)
        if self._tick_at is None or when < self._tick_at:
            self._tick_at = when
            self.swarm.events.at(when, lambda life=self.lives: self._tick(when, life))  # type: ignore[misc]

    def _tick(self, when: float, life: int) -> None:
        if self.alive and self.lives == life and self._tick_at == when:
            self._tick_at = None
            self.do(self.session.tick(*self.clock()))

    # --- blocks

    def _answered(self, answer: Answered) -> None:
        now, _ = self.clock()
        if any(now < self.banned.get(each, now) for each in (answer.peer, *answer.addresses)):
            self.swarm.fail(f"{self.number} is to ask somebody whom it banned")
        if not set(answer.ids) <= self.missing[answer.share]:
            self.swarm.fail(f"{self.number} was answered what it does not want")
        self.known[answer.peer] = answer
        for block in answer.ids:
            self.offers.setdefault((answer.share, block), []).append(answer)
        self._fetch()

    def _fetch(self) -> None:
        for key, offers in list(self.offers.items()):
            if len(self.fetching) >= CONNECTIONS:
                return
            if key not in self.fetching and offers and key[1] in self.missing[key[0]]:
                self.fetching.add(key)
                offer = self.swarm.rng.choice(offers)
                other = self.swarm.at(offer.addresses[0], offer.port)
                wait = (
                    STALL_S
                    if other is None or other.nature in (Nature.STALLING, Nature.WALLED)
                    else self.swarm.plan.block_s
                )
                life = self.lives
                self.swarm.events.after(wait, lambda key=key, offer=offer, life=life: self._fetched(key, offer, life))  # type: ignore[misc]

    def _fetched(self, key: tuple[str, BlockId], offer: Answered, life: int) -> None:
        if not self.alive or self.lives != life:
            return
        self.fetching.discard(key)
        share, block = key
        now, _ = self.clock()
        other = self.swarm.at(offer.addresses[0], offer.port)
        standing = self.session.standing
        if other is None or other.nature is Nature.WALLED or not self.swarm.connects(self, other, offer.link):
            standing.unreachable(offer.addresses[0], offer.link, now)
            self._forget(offer.peer)
        elif other.nature is Nature.STALLING or not other.lets_in(self, share, offer.peer):
            self._forget(offer.peer)
        else:
            data = other.serve(share, block)
            if data is None:
                standing.lacked(offer.peer, now)
                self.offers[key] = [each for each in self.offers[key] if each.peer != offer.peer]
            elif hashlib.sha256(data).digest() != block:
                standing.ban(offer.peer, offer.addresses[0], now)
                self.banned |= {offer.peer: now + BAN_S, offer.addresses[0]: now + BAN_S}
                self._forget(offer.peer)
            else:
                self.session.connected(share, offer.peer)
                self._take(share, block, data)
        self._fetch()
        self._plan_tick()

    def _forget(self, peer: PeerId) -> None:
        for share in self.held:
            self.session.disconnected(share, peer)
        self.offers = {key: [each for each in offers if each.peer != peer] for key, offers in self.offers.items()}

    def lets_in(self, other: Machine, share: str, peer: PeerId) -> bool:
        """The handshake: both prove the same key, or there is no connection."""
        ours = other.session.credentials(share, peer, *other.clock())
        if ours is None:
            return False
        keys = ours.keys
        welcome = self.session.welcome(keys.epoch % 65_536, keys.hint(ours.sender), ours.sender, *self.clock())
        return welcome is not None and welcome[0].share == share and welcome[1].psk == keys.psk

    def serve(self, share: str, block: BlockId) -> bytes | None:
        """What it sends for a block; None: NOTFOUND."""
        data = self.held[share].get(block)
        if self.nature is Nature.LIAR:
            return None
        return b"wrong" if self.nature is Nature.CORRUPT else data

    def from_server(self) -> None:
        """The slow source: first one block at random, then what nobody offers, and anything if nothing goes on."""
        swarm, life = self.swarm, self.lives
        if not swarm.plan.server:
            return
        missing = [(share, block) for share, blocks in self.missing.items() for block in sorted(blocks)]
        open_ones = [key for key in missing if key not in self.fetching]
        spare = [key for key in open_ones if not self.offers.get(key)]
        stuck = swarm.events.now - self.last_progress > 3.0
        choice = spare or (open_ones if stuck else [])
        if choice:
            share, block = swarm.rng.choice(choice)
            swarm.events.after(0.02, lambda: self._from_server(share, block, life))
        elif missing:
            swarm.events.after(0.1, lambda: self.from_server() if self.alive and self.lives == life else None)

    def _from_server(self, share: str, block: BlockId, life: int) -> None:
        if self.alive and self.lives == life:
            if block in self.missing[share]:
                self._take(share, block, self.swarm.content[share][block])
            self.from_server()

    def _take(self, share: str, block: BlockId, data: bytes) -> None:
        if block not in self.missing[share]:
            return
        self.done.append((block, data))
        self.held[share][block] = data
        self.missing[share].discard(block)
        self.last_progress = self.done_s[share] = self.swarm.events.now
        self.session.drop_want(share, [block])
        self._plan_tick()


@dataclass
class Swarm:
    """One run: from the plan, a seed, and nothing else."""

    seed: int
    plan: Plan
    make: type[Session] = Session
    failures: list[str] = field(default_factory=list)
    asked_connected: int = 0
    rest_s: float = float("inf")

    def __post_init__(self) -> None:
        plan = self.plan
        self.rng = rng = random.Random(self.seed)
        self.events = Events()
        self.captured: list[Captured] = []
        self.hubs = {name: Hub(name, self.events, rng, plan.weather, self.captured) for name in (ETHERNET, UDP)}
        self.unix_s = 2_900_000 * EPOCH_S + rng.uniform(0, EPOCH_S)
        self.roots = {share: [rng.randbytes(32)] for share in ("a", "b")}
        self.rotated_s = float("inf")
        self.content = {share: self._blocks(share) for share in self.roots}
        self.machines = [self._machine(number) for number in range(1, plan.machines + 1)]
        self._deal()
        self._plan_troubles()

    def session(self, rng: random.Random) -> Session:
        """A session with random numbers of its own."""
        return self.make(rng.randbytes)

    def keys(self, share: str, unix_s: float) -> list[RootKey]:
        """The keys as the share's object tells them now."""
        roots = self.roots[share]
        old = [RootKey(raw=root, until_unix_s=self.rotated_s + 86_400) for root in roots[:-1]]
        del unix_s
        return [RootKey(raw=roots[-1]), *old]

    def at(self, address: bytes, port: int) -> Machine | None:
        """The living machine behind an address."""
        return next((m for m in self.machines if m.alive and m.address == address and port == 17_000 + m.number), None)

    def connects(self, one: Machine, other: Machine, link: str) -> bool:
        """Whether a connection between them is possible."""
        return self.hubs[link].connects(one.mac, other.mac)

    def fail(self, why: str) -> None:
        """Something that must not be."""
        self.failures.append(f"at {self.events.now:.3f}: {why}")

    def run(self) -> None:
        """To the end: all blocks are where they are wanted, or there is no way."""
        for machine in self.machines:
            self.events.after(self.rng.uniform(0, self.plan.late_s), machine.start)
        self.events.run(self._troubled_s())
        self.events.run(2000.0, self.is_done)
        self.rest_s = self.events.now + 1.0
        self.events.run(self.events.now + IDLE_S)

    def _troubled_s(self) -> float:
        """When the last trouble that is planned has come."""
        plan = self.plan
        ends = (
            plan.later and 720.0,
            plan.deaths and 31.0,
            plan.rotation and 7.0,
            (plan.insider or plan.late_s) and 3.0,
        )
        return max(map(float, ends))

    def is_done(self) -> bool:
        """Whether all that live have all they want."""
        return all(machine.lives and (not machine.alive or machine.is_done()) for machine in self.machines)

    # --- set-up

    def _blocks(self, share: str) -> dict[BlockId, bytes]:
        count = self.plan.blocks if share == "a" else min(self.plan.blocks, 6)
        blocks = [self.rng.randbytes(24) for _ in range(count)]
        return {BlockId(hashlib.sha256(block).digest()): block for block in blocks}

    def _machine(self, number: int) -> Machine:
        nature = Nature.HONEST
        if number > 1 and self.rng.random() < self.plan.bad:
            nature = self.rng.choice(list(Nature)[1:])
        # Who has Ethernet has UDP beside it if anybody has nothing else.
        both = (ETHERNET, UDP) if self.plan.udp else (ETHERNET,)
        return Machine(self, number, nature, (UDP,) if number > 1 and self.rng.random() < self.plan.udp else both)

    def _deal(self) -> None:
        for machine in self.machines:
            second = self.rng.random() < self.plan.second_share
            shares = ["a"] if machine.number == 1 or not second else ["a", "b"]
            for share in shares:
                part = 1.0 if machine.number == 1 else self.rng.choice((0.0, 0.0, 0.3, 1.0))
                blocks = self.content[share]
                machine.held[share] = {each: data for each, data in blocks.items() if self.rng.random() < part}
                machine.missing[share] = set(blocks) - set(machine.held[share])

    def _plan_troubles(self) -> None:
        plan, rng, events = self.plan, self.rng, self.events
        for machine in self.machines[1:]:
            if rng.random() < 0.5:
                machine.skew_s = rng.choice((-1, 1)) * plan.skew_s
            if rng.random() < plan.deaths:
                events.at(rng.uniform(0, 3.0), machine.die)
                if rng.random() < 0.5:
                    events.at(rng.uniform(3.0, 30.0), lambda machine=machine: machine.alive or machine.start())  # type: ignore[misc]
            if rng.random() < plan.jumps:
                events.at(rng.uniform(0, 3.0), lambda machine=machine: self._jump(machine))  # type: ignore[misc]
        for _ in range(plan.partitions):
            begin = rng.uniform(0, 2.0)
            events.at(begin, self._split)
            events.at(begin + rng.uniform(0.1, 20.0), self._heal)
        if plan.rotation:
            events.at(rng.uniform(0.0, 1.0), self._rotate)
        if plan.later:
            events.at(rng.uniform(1.0, 700.0), self._want_more)
        if plan.outsider:
            for hub in self.hubs.values():
                Outsider(self, hub)
        for _ in range(plan.insider):
            events.at(rng.uniform(0.0, 2.0), self._inside_job)

    def _jump(self, machine: Machine) -> None:
        machine.skew_s += self.rng.choice((-700.0, -3.0, 3.0, 30.0, 700.0))
        machine.jumped.append(self.events.now)

    def _split(self) -> None:
        islands = {machine.mac: self.rng.randint(0, 1) for machine in self.machines}
        for hub in self.hubs.values():
            hub.partition(islands)

    def _heal(self) -> None:
        for hub in self.hubs.values():
            hub.partition({})

    def _rotate(self) -> None:
        """A new key; machines read it one after the other."""
        self.rotated_s = self.unix_s + self.events.now
        self.roots["a"].append(self.rng.randbytes(32))
        for machine in self.machines:
            self.events.after(
                self.rng.uniform(0, 5.0),
                lambda machine=machine: machine.rotate() if machine.alive else None,  # type: ignore[misc]
            )

    def _want_more(self) -> None:
        """New blocks at the first machine, wanted by all others."""
        new = {BlockId(hashlib.sha256(data).digest()): data for data in (self.rng.randbytes(24) for _ in range(5))}
        self.content["a"] |= new
        for machine in self.machines:
            if machine.number == 1:
                machine.held["a"] |= new
            else:
                machine.missing["a"] |= set(new)
            if machine.alive and machine.lives:
                machine.ask()
                machine.from_server()

    def _inside_job(self) -> None:
        """Somebody with the key of share a says what he likes, as himself or as somebody else."""
        rng = self.rng
        unix_s = self.unix_s + self.events.now
        keys = derive(self.roots["a"][-1], epoch_of(unix_s) + rng.randint(-1, 1))
        senders = [each.frame[16:32] for each in self.captured[-20:]] + [rng.randbytes(16)]
        sender = rng.choice(senders) if self.plan.insider < 100 else senders[-1]
        kind = rng.choice(list(FrameType))
        tokens = tuple(rng.choice(list(self.content["b"] or self.content["a"]))[:8] for _ in range(rng.randint(1, 5)))
        asker = rng.choice(senders)
        address = rng.choice((self.machines[0].address, b"\xfe\x80" + rng.randbytes(14)))
        # With counters that others will use he could make anybody's nonce come twice: he has the key. He stays beyond.
        counter = rng.randrange(1 << 40, 1 << 60)
        qid = rng.getrandbits(32)
        answer = IHave(qid=qid, asker=asker, count=8, load=0, port=1, addresses=(address,), bitmap=b"\xff")
        body = {
            FrameType.WHOHAS: WhoHas(qid=qid, tokens=tokens, discovery=True).encode(1440),
            FrameType.IHAVE: answer.encode(1440),
        }.get(kind, Presence(port=1, addresses=(address,)).encode())
        assert body is not None
        if rng.random() < 0.3:
            body = padded(rng.randbytes(60), 1440)
        frame = seal(keys, kind, sender, counter, body)
        self.hubs[ETHERNET].send(b"insider", None, frame)


class Outsider:
    """Somebody without a key on a wire: replays, damages and invents."""

    def __init__(self, swarm: Swarm, hub: Hub) -> None:
        self.swarm = swarm
        self.hub = hub
        hub.tap(self.receive)

    def receive(self, source: bytes, frame: bytes) -> None:
        """He hears everything."""
        rng = self.swarm.rng
        if source == b"outsider" or rng.random() >= self.swarm.plan.outsider:
            return
        what = rng.random()
        if what < 0.6:
            again = frame
        elif what < 0.8:
            damaged = bytearray(frame)
            damaged[rng.randrange(44)] ^= rng.randint(1, 255)
            again = bytes(damaged)
        else:
            again = frame[:3] + rng.randbytes(len(frame) - 3)
        self.swarm.events.after(rng.choice((0.001, 1.0, 30.0)) * rng.random(), lambda: self._inject(again))

    def _inject(self, frame: bytes) -> None:
        if self.swarm.events.now < self.swarm.rest_s:
            self.hub.send(b"outsider", None, frame)
