"""What is set for a repository: for all devices, whoever collects; and what can't be understood is not guessed."""

from __future__ import annotations

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from syncer.errors import DamagedObjectError, FormatTooNewError, SyncerError
from syncer.ports.orders import Delete, write_one
from syncer.remote.repository.format import settings
from syncer.remote.repository.format.codec import Codec
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.format.sealed import Kind, seal_whole
from syncer.remote.repository.format.settings import DEFAULT_KEEP_S, MAX_KEEP_S, NAME, Settings
from syncer.remote.repository.maintenance.collecting import Collected, Collector
from syncer.remote.repository.maintenance.repacking import Repacker
from syncer.remote.repository.maintenance.settings import decide, settings_of
from syncer.remote.repository.objects import Objects
from tests.unit.syncer.remote.repository.aging import HOUR_NS, DiedError, Mortal, Place
from tests.unit.syncer.remote.repository.nodes import KEYS
from tests.unit.syncer.remote.repository.share import listed, path, put, random_bytes

DAY_NS = 24 * HOUR_NS


@given(st.integers(0, MAX_KEEP_S))
def test_what_is_set_is_read_again(keep_s: int) -> None:
    raw = settings.encode(KEYS, bytes(16), Settings(keep_s=keep_s), Codec())
    assert settings.decode(KEYS, raw, Codec()) == Settings(keep_s=keep_s)
    assert len(raw) == 256


def test_who_has_set_nothing_keeps_thirty_days() -> None:
    async def scenario() -> None:
        assert await settings_of(Objects(Place().store(), KEYS)) == Settings(keep_s=30 * 86_400)

    trio.run(scenario)
    assert DEFAULT_KEEP_S == 30 * 86_400


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"keep_s":-1}', b'{"keep_s":1e9}', b'{"keep_s":99999999999}', b'{"other":1}']
)
def test_what_nobody_sets_is_damage(body: bytes) -> None:
    raw = seal_whole(KEYS, Kind.SETTINGS, bytes(16), body, Codec())
    with pytest.raises(DamagedObjectError, match="settings"):
        settings.decode(KEYS, raw, Codec())


def test_each_flipped_bit_is_noticed() -> None:
    raw = settings.encode(KEYS, bytes(16), Settings(keep_s=1), Codec())
    for at in range(8 * len(raw)):
        wrong = bytearray(raw)
        wrong[at // 8] ^= 1 << at % 8
        with pytest.raises(SyncerError):
            settings.decode(KEYS, bytes(wrong), Codec())


def collector(place: Place) -> Collector:
    return Collector(Objects(place.store(), KEYS), DeviceId(b"g" * 16))


async def with_a_past() -> Place:
    """A file that was deleted 40 days ago."""
    place = Place()
    one = place.client(1)
    await put(one, "gone", random_bytes(1, 200_000))
    await one.commit()
    await write_one(one, Delete(path=path("gone"), expect=(await listed(one))[path("gone")].tag))
    await put(one, "new", random_bytes(2, 1000))
    await one.commit()
    place.now_ns += 40 * DAY_NS
    return place


@pytest.mark.parametrize(("keep_s", "goes"), [(None, True), (60 * 86_400, False), (20 * 86_400, True), (0, True)])
def test_every_run_keeps_what_is_set(keep_s: int | None, goes: bool) -> None:
    async def scenario() -> None:
        place = await with_a_past()
        if keep_s is not None:
            await decide(Objects(place.store(), KEYS), Settings(keep_s=keep_s))
        await Repacker(Objects(place.store(), KEYS), DeviceId(b"r" * 16)).run()
        place.now_ns += 3 * DAY_NS
        for _ in range(2):
            await collector(place).run()
            place.now_ns += 3 * DAY_NS
        assert (place.count("commits/") < 2) == goes
        assert await place.problems() == []

    trio.run(scenario)


def test_what_was_condemned_stays_if_more_is_to_be_kept_before_it_goes() -> None:
    async def scenario() -> None:
        place = await with_a_past()
        assert (await collector(place).run()).condemned_packs > 0
        await decide(Objects(place.store(), KEYS), Settings(keep_s=90 * 86_400))
        place.now_ns += 3 * DAY_NS
        done = await collector(place).run()
        assert (done.deleted_packs, done.deleted_commits, place.count("commits/")) == (0, 0, 2)
        assert await place.problems() == []

    trio.run(scenario)


def test_nothing_is_collected_while_nobody_can_tell_what_is_to_be_kept() -> None:
    async def scenario() -> None:
        place = await with_a_past()
        await decide(Objects(place.store(), KEYS), Settings(keep_s=0))
        raw, when = place.objects[NAME]
        for wrong, error in (
            (raw[:-1] + bytes([raw[-1] ^ 1]), DamagedObjectError),
            (raw[:5] + b"\x02" + raw[6:], FormatTooNewError),
        ):
            place.objects[NAME] = wrong, when
            before = dict(place.objects)
            for kind in (Collector, Repacker):
                with pytest.raises(error):
                    await kind(Objects(place.store(), KEYS), DeviceId(b"g" * 16)).run()
            assert place.objects == before
            (problem,) = await place.problems()
            assert "settings" in problem
        await decide(Objects(place.store(), KEYS), Settings())
        assert await place.problems() == []
        done: Collected = await collector(place).run()
        assert done.condemned_packs > 0

    trio.run(scenario)


@pytest.mark.parametrize("after", [False, True])
def test_a_death_while_it_is_set_leaves_what_was_or_what_shall_be(after: bool) -> None:
    async def scenario() -> None:
        place = await with_a_past()
        with pytest.raises(DiedError):
            await decide(Objects(Mortal(place, 1, after=after), KEYS), Settings(keep_s=7))
        assert (await settings_of(Objects(place.store(), KEYS))).keep_s == (7 if after else DEFAULT_KEEP_S)
        assert await place.problems() == []

    trio.run(scenario)


def test_a_field_that_we_do_not_know_is_not_passed_over() -> None:
    raw = seal_whole(KEYS, Kind.SETTINGS, bytes(16), msgspec.json.encode({"keep_s": 1, "more": 2}), Codec())
    with pytest.raises(DamagedObjectError):
        settings.decode(KEYS, raw, Codec())
