"""Who has to go when there are too many connections: for every history of comings, tokens and goings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncer.server.http.guests import Bounds, Guest, Guests, network_of
from syncer.server.http.throttle import LINES, LINES_OF_ADDRESS, WINDOW_S, Throttle

BOUNDS = Bounds(connections=6, of_network=4, of_account=2, held_bytes=100)


class House:
    """Guests, with a list of those who were hung up."""

    def __init__(self) -> None:
        self.guests = Guests(BOUNDS)
        self.inside: list[Guest] = []  # the oldest first
        self.gone: list[Guest] = []

    def make(self, address: str) -> Guest:
        guest: Guest

        def hang_up() -> None:
            self.gone.append(guest)
            self.inside.remove(guest)

        guest = Guest(address=address, hang_up=hang_up, look=lambda _now: None)
        return guest


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.sampled_from(["192.0.2.1", "192.0.2.2"])),
        st.tuples(st.just("show"), st.integers(0, 9), st.sampled_from("abc")),
        st.tuples(st.just("hold"), st.integers(0, 9), st.integers(0, 150)),
        st.tuples(st.just("leave"), st.integers(0, 9)),
    ),
    max_size=60,
)


@given(ACTS)
def test_only_strangers_are_sent_away_the_oldest_first_and_every_bound_holds(acts: list[tuple[object, ...]]) -> None:
    house = House()
    for act in acts:
        chosen = house.inside[int(str(act[1])) % len(house.inside)] if act[0] != "enter" and house.inside else None
        strangers = [guest for guest in house.inside if guest.account is None]
        gone_before = len(house.gone)
        if act[0] == "enter":
            guest = house.make(str(act[1]))
            house.inside.append(guest)
            strangers.append(guest)
            house.guests.enter(guest)
            for one in house.gone[gone_before:]:
                older = strangers[: strangers.index(one)]
                assert all(other.network != one.network or other in house.gone for other in older)
        elif chosen is None:
            continue
        elif act[0] == "show":
            account = str(act[2])
            others = sum(guest.account == account for guest in house.inside)
            was = chosen.account
            shown = house.guests.show(chosen, account, account.encode())
            assert shown == (was is not None or others < BOUNDS.of_account)
        elif act[0] == "hold":
            house.guests.hold(chosen, int(str(act[2])))
        else:
            house.inside.remove(chosen)
            house.guests.leave(chosen)
        assert all(guest.account is None for guest in house.gone)
        assert len(house.guests._all) == len(house.inside) <= BOUNDS.connections
        left = [guest for guest in house.inside if guest.account is None]
        assert sum(guest.held_bytes for guest in left) <= BOUNDS.held_bytes
        for network in {guest.network for guest in left}:
            assert sum(guest.network == network for guest in left) <= BOUNDS.of_network


def test_a_withdrawn_token_ends_the_connections_that_showed_it() -> None:
    house = House()
    for token in ("old", "new"):
        guest = house.make("192.0.2.1")
        house.inside.append(guest)
        house.guests.enter(guest)
        house.guests.show(guest, "alice", token.encode())
    assert house.guests.withdraw({b"new"}) == 1
    assert [guest.token for guest in house.gone] == [b"old"]


def test_neighbours_are_an_address_or_a_64_of_ipv6() -> None:
    assert network_of("192.0.2.7") == network_of("::ffff:192.0.2.7") == "192.0.2.7"
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1%eth0") != network_of("2001:db8:0:1::1")
    assert network_of("") == ""


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 30)), max_size=300))
def test_lines_of_an_address_are_bounded_and_dropped_ones_are_counted_once(steps: list[tuple[int, float]]) -> None:
    throttle, now, admitted, told = Throttle(), 0.0, [], 0
    for address, pause_s in steps:
        now += pause_s
        may, dropped = throttle.admit(str(address), now)
        told += dropped
        admitted += [(str(address), now)] * may
    for address, at in admitted:
        within = [1 for other, when in admitted if other == address and at <= when < at + WINDOW_S]
        assert len(within) <= 2 * LINES_OF_ADDRESS
    assert told <= len(steps) - len(admitted)


def test_a_loud_address_does_not_hide_the_others() -> None:
    throttle = Throttle()
    assert sum(throttle.admit("loud", 1.0)[0] for _ in range(10_000)) == LINES_OF_ADDRESS
    assert throttle.admit("quiet", 1.0)[0]
    assert sum(throttle.admit(str(number), 1.0)[0] for number in range(2 * LINES)) == LINES - LINES_OF_ADDRESS - 1
