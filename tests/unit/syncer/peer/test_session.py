"""A session: what goes out for what came in."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import msgspec

from blockfs.blocks.ids import BlockId
from syncer.peer.session.actions import (
    Action,
    Answered,
    AskConnected,
    Heard,
    Left,
    Link,
    LinkId,
    LookUp,
    PeerId,
    Send,
)
from syncer.peer.session.keyring import RootKey, ShareKey
from syncer.peer.session.session import AT_ONCE, Session
from syncer.peer.wire.carrier import Carrier
from syncer.peer.wire.drops import Drop
from syncer.peer.wire.frames import FrameType, body_bound, parse_header
from syncer.peer.wire.keys import EpochKeys, derive

UNIX_S = 1_700_000_100.0  # the middle of an epoch
KEY, NEXT, OTHER = (RootKey(raw=bytes([number]) * 32) for number in (1, 2, 3))
L = LinkId("ethernet:eth0")
BOUND = body_bound(1500, Carrier.ETHERNET)


def ids(*numbers: int) -> list[BlockId]:
    return [BlockId(random.Random(number).randbytes(32)) for number in numbers]


@dataclass
class Machine:
    """A session with an index, and its place on one wire."""

    number: int
    held: dict[str, set[BlockId]] = field(default_factory=dict)
    now: float = 100.0
    unix_s: float = UNIX_S

    def __post_init__(self) -> None:
        self.session = Session(random.Random(self.number).randbytes)
        self.session.listen(7000 + self.number)
        self.mac = bytes([2, 0, 0, 0, 0, self.number])
        self.address = b"\xfe\x80" + bytes(13) + bytes([self.number])

    def link(self, name: LinkId = L, *, wireless: bool = False, bound: int = BOUND) -> Link:
        return Link(id=name, bound=bound, wireless=wireless, addresses=(self.address,))

    def up(self, *links: Link) -> list[Action]:
        return [each for link in links or [self.link()] for each in self.session.link_up(link, self.now, self.unix_s)]

    def follow(self, share: str = "s", *keys: RootKey, answers: bool = True) -> list[Action]:
        return self.session.follow(share, keys or [KEY], self.now, self.unix_s, answers=answers)

    def want(self, *blocks: BlockId, share: str = "s") -> list[Action]:
        return self.session.want(share, blocks, self.now, self.unix_s)

    def tick(self, seconds: float) -> list[Action]:
        self.now += seconds
        self.unix_s += seconds
        return self.session.tick(self.now, self.unix_s)

    def hear(self, sends: list[Action], of: Machine, link: LinkId = L) -> list[Action]:
        """Take frames; look up what is to be looked up."""
        actions: list[Action] = []
        for send in sends:
            if isinstance(send, Send) and send.to in (None, self.mac):
                told = self.session.handle_frame(send.frame, link, of.mac, self.now, self.unix_s)
                actions += told
                for each in told:
                    if isinstance(each, LookUp):
                        held = [any(block[:8] == token for block in self.held[each.share]) for token in each.tokens]
                        actions += self.session.looked_up(each.ticket, held, self.now, self.unix_s)
        return actions


def two(*held: BlockId) -> tuple[Machine, Machine]:
    """An asker, and one who has these."""
    asker, holder = Machine(1, {"s": set()}), Machine(2, {"s": set(held)})
    for each in (asker, holder):
        each.follow()
        each.up()
    return asker, holder


def frames(actions: list[Action], kind: FrameType) -> list[Send]:
    return [each for each in actions if isinstance(each, Send) and types([each]) == [kind]]


def types(actions: list[Action]) -> list[FrameType]:
    headers = [parse_header(each.frame) for each in actions if isinstance(each, Send)]
    return [header.type for header in headers if not isinstance(header, Drop)]


def answers(actions: list[Action]) -> list[Answered]:
    return [each for each in actions if isinstance(each, Answered)]


def test_who_has_it_answers_the_asker_alone() -> None:
    (wanted, other) = ids(1, 2)
    asker, holder = two(wanted)
    replies = holder.hear(asker.want(wanted, other), asker)
    (reply,) = frames(replies, FrameType.IHAVE)
    assert (reply.link, reply.to) == (L, asker.mac)
    (answer,) = answers(asker.hear(replies, holder))
    assert answer.ids == (wanted,)
    assert answer.addresses == (holder.address,)
    assert answer.port == 7002


def test_an_idle_session_sends_nothing_and_waits_for_nothing() -> None:
    asker, holder = two(*ids(1))
    asker.hear(holder.hear(asker.want(*ids(1)), asker), holder)
    asker.session.drop_want("s", ids(1))
    for each in (asker, holder):
        for _ in range(3):
            each.tick(40.0)
        assert each.session.next_deadline(each.now) is None
        assert each.tick(86_400.0) == []


def test_hello_is_said_at_the_start_of_a_share_a_link_and_a_key_and_at_no_other_time() -> None:
    machine = Machine(1)
    assert machine.follow() == []
    assert types(machine.up()) == [FrameType.HELLO]
    assert machine.follow() == []
    assert types(machine.follow("t", OTHER)) == [FrameType.HELLO]
    assert types(machine.up(machine.link(LinkId("udp6:eth0")))) == [FrameType.HELLO] * 2
    # under the new key and the old one, by both links
    assert types(machine.follow("s", NEXT, RootKey(raw=KEY.raw, until_unix_s=UNIX_S + 100))) == [FrameType.HELLO] * 4
    assert machine.up(machine.link(bound=1000, wireless=True)) == []
    assert machine.tick(1200.0) == []


def test_who_comes_hears_who_is_there() -> None:
    """Breaks as a machine that starts later, and knows of nobody."""
    early, late = Machine(1), Machine(2)
    for each in (early, late):
        each.follow()
    early.up()
    (answer,) = frames(early.hear(late.up(), late), FrameType.HELLO)
    assert (answer.link, answer.to) == (L, late.mac)
    heard = late.hear([answer], early)
    assert [type(each) for each in heard] == [Heard]
    (neighbour,) = late.session.neighbours("s", late.now)
    assert (neighbour.addresses, neighbour.port) == ((early.address,), 7001)


def test_a_hello_that_comes_again_is_not_answered_again() -> None:
    early, late = two()
    late.session.link_down(L)
    hello = late.up()
    assert len(frames(early.hear(hello, late), FrameType.HELLO)) == 1
    assert early.hear(hello, late) == []


def test_an_answer_is_no_longer_than_the_hello_and_is_not_answered() -> None:
    """Breaks as two machines that say HELLO for ever, or as a tool that makes a flood larger."""
    early, late = two()
    late.session.link_down(L)
    hello = late.up()
    answer = frames(early.hear(hello, late), FrameType.HELLO)
    assert [len(each.frame) for each in answer] == [len(each.frame) for each in frames(hello, FrameType.HELLO)]
    assert frames(late.hear(answer, early), FrameType.HELLO) == []


def test_who_would_not_answer_questions_does_not_answer_hello() -> None:
    """Nobody waits for one who gives nothing."""
    late = Machine(2)
    late.follow()
    hello = late.up()
    paused, closed, metered = Machine(3), Machine(4), Machine(5)
    paused.follow(answers=False)
    closed.session.listen(0)
    for each in (closed, metered):
        each.follow()
    for each in (paused, closed):
        each.up()
    metered.up(msgspec.structs.replace(metered.link(), answers=False))
    for each in (paused, closed, metered):
        assert frames(each.hear(hello, late), FrameType.HELLO) == []


def test_hello_is_answered_within_a_budget() -> None:
    """Breaks as a machine that says HELLO to whoever has the key as fast as that one likes."""
    early, late = two()
    answered = 0
    for _ in range(100):
        late.session.link_down(L)
        late.now += 0.01  # its own budget is another matter
        answered += len(frames(early.hear(late.up(), late), FrameType.HELLO))
    assert answered == 64
    assert early.session.counters.drops[Drop.BUSY] == 36
    early.tick(0.05)
    late.session.link_down(L)
    late.now += 0.01
    assert len(frames(early.hear(late.up(), late), FrameType.HELLO)) == 1


def test_what_one_has_is_asked_once() -> None:
    """Breaks as a second question for each block where one machine has all of them."""
    blocks = ids(*range(400))
    asker, holder = two(*blocks)
    asker.hear(holder.hear(asker.want(*blocks), asker), holder)
    for _ in range(50):
        asker.hear(holder.hear(asker.tick(1.0), asker), holder)
    assert asker.session.counters.tokens_asked == len(blocks)


def test_who_comes_is_asked_at_once_for_what_one_has_and_once_a_second_at_most() -> None:
    blocks = ids(*range(10))
    asker, holder = two(*blocks)
    asker.hear(holder.hear(asker.want(*blocks), asker), holder)
    late = Machine(3, {"s": set(blocks)})
    late.follow()
    asker.tick(0.01)
    asked = asker.hear(late.up(), late)
    assert len(frames(asked, FrameType.WHOHAS)) == 1
    (answer,) = answers(asker.hear(late.hear(asked, asker), late))
    assert set(answer.ids) == set(blocks)
    late.session.link_down(L)
    assert frames(asker.hear(late.up(), late), FrameType.WHOHAS) == []  # two have all of it
    another = Machine(4, {"s": {blocks[0]}})
    another.follow()
    asker.session.want("s", ids(11), asker.now, asker.unix_s)
    asker.tick(0.1)
    assert frames(asker.hear(another.up(), another), FrameType.WHOHAS) == []  # a second has not passed
    assert frames(asker.tick(1.0), FrameType.WHOHAS)


def test_bye_is_said_at_the_end_and_heard() -> None:
    asker, holder = two()
    holder.session.link_down(L)
    assert [type(each) for each in asker.hear(holder.up(), holder)] == [Heard, Send]
    goodbye = holder.session.close(holder.now, holder.unix_s)
    assert types(goodbye) == [FrameType.BYE]
    (left,) = asker.hear(goodbye, holder)
    assert isinstance(left, Left)
    assert not asker.session.neighbours("s", asker.now)


def test_who_asks_is_told_who_is_there_also_by_who_has_nothing() -> None:
    """Devices that start together have nothing yet: they must hear of each other."""
    asker, holder = two()
    (answer,) = answers(asker.hear(holder.hear(asker.want(*ids(1)), asker), holder))
    assert answer.ids == ()
    assert answer.addresses == (holder.address,)


def test_who_has_nothing_is_not_asked_to_show_up_again_at_once() -> None:
    """Breaks as an answer of everybody to each question."""
    asker, holder = two()
    asker.hear(holder.hear(asker.want(*ids(1)), asker), holder)
    asker.now += 0.01
    assert frames(holder.hear(asker.want(*ids(2)), asker), FrameType.IHAVE) == []


def test_nobody_of_another_share_learns_or_answers_anything() -> None:
    """A member of one share asks for what we have only in another."""
    (secret,) = ids(1)
    asker, holder = Machine(1, {"a": set()}), Machine(2, {"a": set(), "b": {secret}})
    asker.follow("a", KEY)
    holder.follow("b", OTHER)
    for each in (asker, holder):
        each.up()
    question = asker.want(secret, share="a")
    assert holder.hear(question, asker) == []
    assert holder.session.counters.drops == {Drop.HINT: 1}
    holder.follow("a", KEY)
    asker.now += 5.0
    told = holder.hear(asker.want(*ids(2), share="a"), asker)
    assert {each.share for each in told if isinstance(each, LookUp)} == {"a"}
    assert all(answer.ids == () for answer in answers(asker.hear(told, holder)))


def test_a_link_where_it_costs_money_answers_nothing() -> None:
    asker, holder = two(*ids(1))
    holder.up(msgspec.structs.replace(holder.link(), answers=False))
    assert frames(holder.hear(asker.want(*ids(1)), asker), FrameType.IHAVE) == []


def test_a_paused_share_answers_nothing_and_a_session_without_a_port_neither() -> None:
    asker, holder = two(*ids(1))
    holder.follow(answers=False)
    assert not [each for each in holder.hear(asker.want(*ids(1)), asker) if not isinstance(each, Heard)]
    holder.follow(answers=True)
    holder.session.listen(0)
    asker.now += 1
    assert holder.hear(asker.want(*ids(2)), asker) == []


def test_a_replayed_question_has_no_second_answer() -> None:
    asker, holder = two(*ids(1))
    question = asker.want(*ids(1))
    assert frames(holder.hear(question, asker), FrameType.IHAVE)
    assert holder.hear(question, asker) == []


def test_an_answer_to_nothing_counts_for_nothing() -> None:
    """Only what we asked may make us connect to anybody."""
    asker, holder = two(*ids(1))
    third = Machine(3, {"s": set()})
    third.follow()
    third.up()
    question = asker.want(*ids(1))
    replies = holder.hear(question, asker)
    assert frames(replies, FrameType.IHAVE)
    for each in frames(replies, FrameType.IHAVE):
        told = third.session.handle_frame(each.frame, L, holder.mac, third.now, third.unix_s)
        assert answers(list(told)) == []
    assert third.session.counters.drops == {Drop.QUESTION: 1}


def test_who_offers_addresses_of_the_internet_is_not_called() -> None:
    asker, holder = two(*ids(1))
    holder.address = b"\x20\x01" + bytes(14)
    holder.up()
    assert answers(asker.hear(holder.hear(asker.want(*ids(1)), asker), holder)) == []


def test_where_nobody_opened_is_tried_again_when_somebody_comes_there() -> None:
    """A program that is started again, or behind a firewall that was opened, is not left alone for minutes or hours."""
    asker, holder = two(*ids(1))
    (answer,) = answers(asker.hear(holder.hear(asker.want(*ids(1)), asker), holder))
    asker.session.standing.unreachable(answer.addresses[0], L, asker.now)
    back = Machine(3, holder.held)
    back.address = holder.address
    assert answers(asker.hear(holder.hear(asker.tick(2.0), asker), holder)) == []
    back.follow()
    asker.hear(back.up(), back)
    asker.session.drop_want("s", ids(1))
    asked = asker.want(*ids(1)) + asker.tick(2.0)
    (answer, *_) = answers(asker.hear(back.hear(asked, asker), back))
    assert answer.addresses == (holder.address,)


def test_a_banned_peer_is_not_heard() -> None:
    asker, holder = two(*ids(1))
    replies = holder.hear(asker.want(*ids(1)), asker)
    (answer,) = answers(asker.hear(replies, holder))
    asker.session.standing.ban(answer.peer, holder.address, asker.now)
    again = asker.tick(2.0)
    holder.tick(2.0)
    assert asker.hear(holder.hear(again, asker), holder) == []
    assert asker.session.counters.drops[Drop.BANNED] == 1


def test_ten_thousand_wants_are_a_burst_and_the_rest_comes_as_the_budget_says() -> None:
    asker, _ = two()
    first = asker.want(*ids(*range(12_000)))
    assert len(frames(first, FrameType.WHOHAS)) == AT_ONCE  # sent before the next ones are made
    while (deadline := asker.session.next_deadline(asker.now)) == asker.now:
        first += asker.tick(0.0)
    assert len(frames(first, FrameType.WHOHAS)) == 63  # and one HELLO of 64 at once
    assert asker.session.counters.broadcasts_held == 0
    assert deadline is not None
    assert asker.now < deadline <= asker.now + 0.005 + 1e-9
    assert len(frames(asker.tick(deadline - asker.now), FrameType.WHOHAS)) == 1
    later = [each for _ in range(10) for each in asker.tick(0.005)]
    assert asker.session.counters.tokens_asked == 12_000
    assert len(frames(later, FrameType.WHOHAS)) == 4


def test_a_wireless_link_carries_few_broadcasts() -> None:
    asker = Machine(1)
    asker.follow()
    asker.up(asker.link(wireless=True))
    assert len(frames(asker.want(*ids(*range(5000))), FrameType.WHOHAS)) == 7
    sent = sum(len(frames(asker.tick(0.01), FrameType.WHOHAS)) for _ in range(100))
    assert 19 <= sent <= 20


def test_a_link_that_flaps_has_no_more_budget_than_one_that_stays() -> None:
    machine = Machine(1)
    machine.follow()
    sent = 0
    for _ in range(1000):
        sent += len(machine.up())
        machine.session.link_down(L)
    assert sent == 64


def test_a_question_is_sealed_once_for_all_links_and_answered_once() -> None:
    asker, holder = two(*ids(1))
    second = LinkId("udp6:eth0")
    for each in (asker, holder):
        each.up(each.link(second, bound=body_bound(1500, Carrier.UDP6)))
    sends = frames(asker.want(*ids(1)), FrameType.WHOHAS)
    assert {send.link for send in sends} == {L, second}
    assert len({send.frame for send in sends}) == 1
    by_each = [holder.hear([send], asker, send.link) for send in sends]
    assert sum(len(frames(each, FrameType.IHAVE)) for each in by_each) == 1


def test_with_many_wants_connected_peers_are_asked_over_their_connections() -> None:
    asker, holder = two()
    asker.hear(holder.want(*ids(99_999)), holder)
    peer = asker.session.neighbours("s", asker.now)[0].peer
    asker.session.connected("s", peer)
    wanted = ids(*range(8 * 179 + 100))
    actions = asker.want(*wanted)
    (over,) = [each for each in actions if isinstance(each, AskConnected)]
    assert over.peers == (peer,)
    assert len(over.ids) == 100
    assert len(frames(actions, FrameType.WHOHAS)) == 8
    assert set(asker.session.told("s", peer, over.ids)) == set(over.ids)
    asker.session.drop_want("s", wanted)
    assert len([each for each in asker.want(*ids(1, 2, 3)) if isinstance(each, AskConnected)]) == 0


def test_members_with_the_old_key_and_the_new_hear_each_other() -> None:
    asker, holder = two(*ids(1, 2))
    holder.follow("s", NEXT, RootKey(raw=KEY.raw, until_unix_s=UNIX_S + 86_400))
    assert answers(asker.hear(holder.hear(asker.want(*ids(1)), asker), holder))
    # and the other way round: who has the new key asks under the old one too, as somebody still uses it
    asker.held["s"] = set(ids(3))
    assert answers(holder.hear(asker.hear(holder.want(*ids(3)), holder), asker))
    late = UNIX_S + 86_400
    asker.unix_s = holder.unix_s = late
    asker.now = holder.now = 100.0 + 86_400
    assert answers(asker.hear(holder.hear(asker.want(*ids(2)), asker), holder)) == []


def test_a_share_that_is_left_is_left() -> None:
    asker, holder = two(*ids(1))
    asker.want(*ids(1))
    goodbye = asker.session.unfollow("s", asker.now, asker.unix_s)
    assert types(goodbye) == [FrameType.BYE]
    assert asker.session.next_deadline(asker.now) is None
    assert asker.want(*ids(2)) == []
    assert asker.hear(holder.up(), holder) == []
    asker.session.drop_want("s", ids(1))
    assert asker.session.told("s", PeerId(b"p" * 16), ids(1)) == ()


def test_a_connection_is_begun_under_the_key_the_peer_was_heard_with() -> None:
    asker, holder = two(*ids(1))
    holder.follow("s", NEXT, RootKey(raw=KEY.raw, until_unix_s=UNIX_S + 86_400))
    asker.hear(holder.hear(asker.want(*ids(1)), asker), holder)
    (neighbour,) = holder.session.neighbours("s", holder.now)
    ours = holder.session.credentials("s", neighbour.peer, holder.now, holder.unix_s)
    assert ours is not None
    hint = ours.keys.hint(ours.sender)
    welcome = asker.session.welcome(ours.keys.epoch % 65_536, hint, ours.sender, asker.now, asker.unix_s)
    assert welcome is not None
    assert welcome[0].share == "s"
    assert welcome[1].psk == ours.keys.psk
    assert asker.session.welcome(ours.keys.epoch % 65_536, bytes(8), ours.sender, asker.now, asker.unix_s) is None
    asker.session.standing.ban(PeerId(ours.sender), b"a" * 16, asker.now)
    assert asker.session.welcome(ours.keys.epoch % 65_536, hint, ours.sender, asker.now, asker.unix_s) is None


def test_a_key_that_is_taken_away_counts_no_more_for_those_who_were_heard_under_it() -> None:
    """Another passphrase: no answer to who has the old one, and no connection begun with it."""
    asker, holder = two(*ids(1, 2))
    assert holder.hear(asker.want(*ids(1)), asker)
    key, _ = _welcomed(holder, asker)
    assert holder.session.counts(key, holder.unix_s)
    holder.follow("s", NEXT)
    asker.now += 1
    assert holder.hear(asker.want(*ids(2)), asker) == []
    assert holder.session.counters.drops[Drop.HINT] == 1
    assert not holder.session.counts(key, holder.unix_s)
    (neighbour,) = holder.session.neighbours("s", holder.now)
    ours = holder.session.credentials("s", neighbour.peer, holder.now, holder.unix_s)
    assert ours is not None
    assert ours.keys.psk == derive(NEXT.raw, ours.keys.epoch).psk


def _welcomed(holder: Machine, asker: Machine) -> tuple[ShareKey, EpochKeys]:
    """What a connection of the asker's to the holder proves."""
    ours = asker.session.credentials("s", PeerId(bytes(16)), asker.now, asker.unix_s)
    assert ours is not None
    hint, epoch16 = ours.keys.hint(ours.sender), ours.keys.epoch % 65_536
    welcome = holder.session.welcome(epoch16, hint, ours.sender, holder.now, holder.unix_s)
    assert welcome is not None
    return welcome


def test_a_want_that_nothing_carries_waits_for_a_link() -> None:
    machine = Machine(1)
    machine.follow()
    assert machine.want(*ids(1)) == []
    assert machine.session.next_deadline(machine.now) is None
    machine.now += 5
    assert types(machine.up()) == [FrameType.HELLO, FrameType.WHOHAS]
    machine.session.link_down(L)
    assert machine.session.handle_frame(b"", L, b"", machine.now, machine.unix_s) == []


def test_a_link_too_small_for_a_frame_is_not_used() -> None:
    machine = Machine(1)
    machine.follow()
    assert machine.up(machine.link(bound=63)) == []
    assert machine.want(*ids(1)) == []


def test_small_links_have_small_questions_and_smaller_answers() -> None:
    asker, holder = two(*ids(*range(20)))
    asker.up(asker.link(bound=64))
    sends = frames(asker.want(*ids(*range(20))), FrameType.WHOHAS)
    assert {len(send.frame) for send in sends} == {124}
    assert len(sends) == 3
    for reply in frames(holder.hear(list(sends), asker), FrameType.IHAVE):
        assert len(reply.frame) == 124


def test_a_flood_of_questions_is_answered_in_part_and_forgotten() -> None:
    asker, holder = two()
    asks = [asker.want(each) + asker.tick(0.003) for each in ids(*range(3000))]
    for each in asks:
        for send in each:
            assert isinstance(send, Send)
            holder.session.handle_frame(send.frame, L, asker.mac, holder.now, holder.unix_s)
    assert len(holder.session._answering) <= 512
    assert holder.session.counters.drops[Drop.BUDGET] > 0
