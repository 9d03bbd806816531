"""Which block is asked of which peer: of who has it, of one at a time, the rarest first, and none is forgotten."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from blockfs.blocks.ids import BlockId
from syncer.peer.exchange.swarm import PROVIDERS, Fate, Swarm, is_worth_twice
from syncer.peer.session.actions import PeerId
from tests import effort

A, B, C = (PeerId(letter * 16) for letter in (b"a", b"b", b"c"))


def ids(number: int) -> list[BlockId]:
    """So many ids."""
    return [BlockId(index.to_bytes(32, "big")) for index in range(number)]


def first(_: int) -> int:
    """No chance."""
    return 0


def test_the_rarest_goes_first() -> None:
    common, rare, rarer = ids(3)
    swarm = Swarm(first)
    swarm.want([common, rare, rarer])
    assert swarm.offered(A, [common, rare, rarer]) == [common, rare, rarer]
    assert swarm.offered(B, [common, rare]) == []
    swarm.offered(C, [common])
    got = []
    for _ in range(3):
        block = swarm.next(A, 0)
        assert block is not None
        swarm.start(A, block)
        got.append(block)
    assert got == [rarer, rare, common]
    assert swarm.next(A, 0) is None
    assert swarm.next(B, 0) is None  # each is on its way


def test_chance_decides_between_equals() -> None:
    blocks = ids(1000)
    orders = []
    for seed in (1, 2):
        swarm = Swarm(random.Random(seed).randrange)
        swarm.want(blocks)
        swarm.offered(A, blocks)
        orders.append([swarm.next(A, 0) for _ in blocks])
    assert sorted(filter(None, orders[0])) == blocks
    assert orders[0] != orders[1]
    assert blocks not in orders


def test_what_failed_is_asked_of_others() -> None:
    (block,) = ids(1)
    swarm = Swarm(first)
    swarm.want([block])
    swarm.offered(A, [block])
    swarm.offered(B, [block])
    assert swarm.next(A, 0) == block
    swarm.start(A, block)
    assert swarm.next(B, 0) is None
    assert swarm.fail(A, block, lacks=True) is Fate.QUEUED
    assert swarm.next(A, 0) is None
    assert swarm.next(B, 0) == block
    swarm.start(B, block)
    assert swarm.fail(B, block, lacks=True) is Fate.NOBODY
    assert swarm.offered(C, [block]) == [block]
    assert swarm.next(C, 0) == block


def test_who_was_busy_is_asked_again() -> None:
    (block,) = ids(1)
    swarm = Swarm(first)
    swarm.want([block])
    swarm.offered(A, [block])
    assert swarm.next(A, 0) == block
    swarm.start(A, block)
    assert swarm.fail(A, block, lacks=False) is Fate.QUEUED
    assert swarm.next(A, 0) == block


def test_of_two_requests_one_may_fail() -> None:
    (block,) = ids(1)
    swarm = Swarm(first)
    swarm.want([block])
    swarm.offered(A, [block])
    swarm.offered(B, [block])
    swarm.start(A, block)
    swarm.start(B, block)
    assert swarm.fail(A, block, lacks=True) is Fate.FLYING
    assert swarm.done(block) == (B,)
    assert swarm.fail(B, block, lacks=True) is Fate.DONE


def test_who_goes_leaves_orphans() -> None:
    alone, shared, flying = ids(3)
    swarm = Swarm(first)
    swarm.want([alone, shared, flying])
    swarm.offered(A, [alone, shared, flying])
    swarm.offered(B, [shared, flying])
    swarm.start(B, flying)
    assert swarm.leave(A) == [alone]
    assert swarm.providers(shared) == (B,)
    assert swarm.next(B, 0) == shared


def test_what_is_parked_is_found_again() -> None:
    one, two = ids(2)
    swarm = Swarm(first)
    swarm.want([one, two])
    swarm.offered(A, [one, two])
    swarm.park(A, swarm.next(A, 1.0) or one, 1.0)
    swarm.park(A, swarm.next(A, 2.0) or one, 2.0)
    assert swarm.next(A, 3) is None
    assert sorted(swarm.parked(A, 9)) == [(one, 1.0), (two, 2.0)]
    assert swarm.parked(A, 1) != swarm.parked(A, 1)
    swarm.unpark(A)
    assert {swarm.next(A, 4), swarm.next(A, 4)} == {one, two}


def test_twice_only_if_much_faster() -> None:
    assert is_worth_twice(1.0, 0.4)
    assert not is_worth_twice(1.0, 0.6)
    assert not is_worth_twice(0.009, 0.001)


def test_a_step_costs_the_same_however_many_blocks_there_are() -> None:
    draws = 0

    def draw(many: int) -> int:
        nonlocal draws
        draws += 1
        return many - 1

    blocks = ids(5000)
    swarm = Swarm(draw)
    swarm.want(blocks)
    for begin in range(0, 5000, 179):
        for peer in (A, B, C):
            swarm.offered(peer, blocks[begin : begin + 179])
    for _ in range(5000):
        for peer in (A, B, C):
            block = swarm.next(peer, 0)
            if block is not None:
                swarm.start(peer, block)
                swarm.done(block)
    assert not len(swarm)
    assert draws <= 5000 * 3 * 3


PEERS = st.sampled_from([PeerId(bytes([65 + number]) * 16) for number in range(PROVIDERS + 2)])
BLOCKS = st.sampled_from(ids(12))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), PEERS, st.lists(BLOCKS, max_size=6)),
        st.tuples(st.sampled_from(["next", "park", "unpark", "leave"]), PEERS, st.just([])),
        st.tuples(st.sampled_from(["fail", "lack", "done"]), PEERS, st.lists(BLOCKS, min_size=1, max_size=1)),
    ),
    max_size=80,
)


@settings(max_examples=effort.count("choice of peers"))
@given(STEPS, st.randoms(use_true_random=False))
def test_none_is_asked_of_the_wrong_one_and_none_is_forgotten(
    steps: list[tuple[str, PeerId, list[BlockId]]], chance: random.Random
) -> None:
    swarm = Swarm(chance.randrange)
    swarm.want(ids(12))
    open_ids = set(ids(12))
    has: dict[PeerId, set[BlockId]] = {}
    asked: dict[BlockId, PeerId] = {}
    for step, peer, blocks in steps:
        if step == "offer":
            swarm.offered(peer, blocks)
            for block in blocks:
                if block in open_ids and sum(block in each for each in has.values()) < PROVIDERS:
                    has.setdefault(peer, set()).add(block)
        elif step in ("next", "park"):
            got = swarm.next(peer, 0)
            if got is not None:
                assert got in has[peer]
                assert got in open_ids
                assert got not in asked
                if step == "park":
                    swarm.park(peer, got, 0)
                else:
                    swarm.start(peer, got)
                    asked[got] = peer
        elif step == "unpark":
            swarm.unpark(peer)
        elif step == "leave":
            for block in [block for block, other in asked.items() if other == peer]:
                swarm.fail(peer, block, lacks=True)
                has[peer].discard(block)
                del asked[block]
            gone = has.pop(peer, set())
            orphans = {block for block in gone if not any(block in each for each in has.values())}
            assert set(swarm.leave(peer)) == orphans - set(asked)
        elif step == "done":
            assert swarm.done(blocks[0]) == ((asked[blocks[0]],) if blocks[0] in asked else ())
            open_ids.discard(blocks[0])
            asked.pop(blocks[0], None)
            for each in has.values():
                each.discard(blocks[0])
        elif blocks[0] in asked:
            other = asked.pop(blocks[0])
            lacks = step == "lack"
            fate = swarm.fail(other, blocks[0], lacks=lacks)
            if lacks:
                has[other].discard(blocks[0])
            assert fate is (Fate.QUEUED if any(blocks[0] in each for each in has.values()) else Fate.NOBODY)
    # Whatever has happened: all that somebody has is asked of somebody in the end.
    found = set(asked)
    for peer, blocks_of in has.items():
        swarm.unpark(peer)
        while (last := swarm.next(peer, 0)) is not None:
            assert last in blocks_of
            swarm.start(peer, last)
            found.add(last)
    assert found == {block for each in has.values() for block in each}
