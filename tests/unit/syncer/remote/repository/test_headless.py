"""No head of any device: a repository that is new, or just begun, is told from one that has lost its heads."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from syncer.errors import CorruptionError, HeadsMissingError, RolledBackError
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.history import Commit, CommitId, DeviceId, Vector
from syncer.remote.repository.headless import ON_ITS_WAY_NS, Headless, judge_commit
from syncer.remote.repository.maintenance.marking import GRACE_NS
from syncer.remote.repository.memory import MemoryFile, Own
from syncer.remote.repository.objects import Objects
from syncer.remote.stores.memory import MemoryStore
from tests.unit.syncer.remote.repository.aging import HOUR_NS, DiedError, Mortal, Place
from tests.unit.syncer.remote.repository.nodes import KEYS
from tests.unit.syncer.remote.repository.share import CONFIG, listed, path, put, random_bytes

ONE, OTHER = DeviceId(bytes([1]) * 16), DeviceId(bytes([2]) * 16)


def commit_of(device: DeviceId, parents: tuple[CommitId, ...]) -> Commit:
    return Commit(
        parents=parents, vector=Vector({device: 1}), root=b"", number=1, device=device, time_ns=0, tool="t", name="h"
    )


@pytest.mark.parametrize(
    ("device", "parents", "age_ns", "says"),
    [
        (OTHER, (), 0, Headless.NEW),
        (OTHER, (), ON_ITS_WAY_NS - 1, Headless.NEW),
        (OTHER, (), ON_ITS_WAY_NS, Headless.LOST),
        (OTHER, (CommitId(bytes(32)),), 0, Headless.LOST),
        (ONE, (), 0, Headless.NEW),
        (ONE, (), 100 * ON_ITS_WAY_NS, Headless.NEW),
        (ONE, (CommitId(bytes(32)),), 0, Headless.LOST),
    ],
)
def test_a_commit_says_whether_there_was_ever_a_head(
    device: DeviceId, parents: tuple[CommitId, ...], age_ns: int, says: Headless
) -> None:
    now_ns = 10**18
    assert judge_commit(commit_of(device, parents), now_ns - age_ns, now_ns, {ONE}) is says


def play(scenario: Callable[[Place], Awaitable[None]]) -> None:
    trio.run(scenario, Place())


async def pushed(place: Place, number: int, name: str, store: MemoryStore | None = None) -> None:
    client = place.client(number, store)
    await listed(client)
    await put(client, name, random_bytes(number, 50_000))
    await client.commit()


def remembering(place: Place, file: Path, device: DeviceId = ONE) -> RepositoryClient:
    objects = Objects(place.store(), KEYS, lambda: place.now_ns / 10**9)
    return RepositoryClient(
        objects, CONFIG, Writer(device=device, name="host", tool="test"), memory=MemoryFile(str(file), device)
    )


def lose(place: Place, kind: str) -> None:
    for name in [name for name in place.objects if name.startswith(kind)]:
        del place.objects[name]


@pytest.mark.parametrize("pushes", [1, 2])
@pytest.mark.parametrize("work", ["check", "gc", "repack"])
def test_where_all_heads_are_gone_it_is_told_and_nothing_is_condemned(pushes: int, work: str) -> None:
    async def scenario(place: Place) -> None:
        for number in range(pushes):
            await pushed(place, number + 1, f"file {number}")
        place.now_ns += 20 * GRACE_NS
        assert await place.problems() == []
        lose(place, "heads/")
        before = dict(place.objects)
        if work == "check":
            (problem,) = await place.problems()
            assert "heads/* is missing" in problem
        else:
            with pytest.raises(CorruptionError, match=r"nothing was collected: .*heads/\* is missing"):
                await (place.collect() if work == "gc" else place.repack())
        assert place.objects == before

    play(scenario)


def test_who_never_saw_it_is_not_shown_an_empty_share_where_heads_are_gone() -> None:
    async def scenario(place: Place) -> None:
        await pushed(place, 1, "one")
        await pushed(place, 2, "two")
        lose(place, "heads/")
        with pytest.raises(HeadsMissingError, match="looks empty, and is not"):
            await listed(place.client(3))

    play(scenario)


def test_who_has_written_stops_where_all_heads_are_gone_whatever_else_is(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        one = remembering(place, tmp_path / "head")
        await put(one, "file", b"data")
        await one.commit()
        lose(place, "heads/")
        for _ in range(2):
            with pytest.raises(RolledBackError, match="head 1 of this device, found none"):
                await listed(remembering(place, tmp_path / "head"))
            with pytest.raises(RolledBackError):
                await listed(one)
            lose(place, "commits/")

    play(scenario)


def test_a_head_that_is_gone_was_forgotten_only_if_others_have_what_it_told(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        await pushed(place, 2, "theirs")
        one = remembering(place, tmp_path / "head")
        await listed(one)
        await put(one, "ours", b"data")
        await one.commit()
        name = next(name for name in place.objects if name == f"heads/{ONE.hex()}")
        raw = place.objects.pop(name)
        with pytest.raises(RolledBackError):
            await listed(remembering(place, tmp_path / "head"))
        place.objects[name] = raw
        await pushed(place, 2, "more")
        del place.objects[name]
        assert set(await listed(remembering(place, tmp_path / "head"))) == {b"theirs", b"ours", b"more"}

    play(scenario)


def test_a_new_repository_is_empty_and_nothing_is_wrong_with_it() -> None:
    async def scenario(place: Place) -> None:
        assert await place.problems() == []
        assert (await place.collect()).condemned_packs == 0
        assert await listed(place.client(1)) == {}

    play(scenario)


@pytest.mark.parametrize("at", range(1, 12))
@pytest.mark.parametrize("after", [False, True])
def test_a_first_push_that_died_anywhere_is_in_nobodys_way(at: int, after: bool) -> None:
    """Others see nothing of it, and go on; its own device goes on, too, and what is left is collected."""

    async def scenario(place: Place) -> None:
        with contextlib.suppress(DiedError):
            await pushed(place, 1, "file", Mortal(place, at, after=after))
        has_commit, has_head = place.count("commits/"), place.count("heads/")
        assert await place.problems() == []
        assert set(await listed(place.client(2))) == ({b"file"} if has_head else set())
        if not has_commit:
            place.now_ns += GRACE_NS + HOUR_NS
            assert (await place.collect()).condemned_packs == place.count("packs/")
            place.now_ns += GRACE_NS + HOUR_NS
            await place.collect()
            assert place.count("packs/") == 0
        if not has_head:
            await pushed(place, 1, "file")
        place.now_ns += GRACE_NS + HOUR_NS
        assert set(await listed(place.client(2))) == {b"file"}
        await place.collect()
        assert await place.problems() == []

    play(scenario)


def test_two_first_pushes_at_once_are_both_there_in_the_end() -> None:
    """Also if one was cut short between its commit and its head, and the other one came in between."""

    async def scenario(place: Place) -> None:
        puts = 0
        while not place.count("commits/"):
            puts += 1
            place.objects.clear()
            with contextlib.suppress(DiedError):
                await pushed(place, 1, "one", Mortal(place, puts, after=True))
        assert place.count("heads/") == 0
        await pushed(place, 2, "two")
        await pushed(place, 1, "one")
        assert set(await listed(place.client(3))) == {b"one", b"two"}
        place.now_ns += GRACE_NS + HOUR_NS
        await place.collect()
        assert await place.problems() == []

    play(scenario)


def test_a_commit_of_a_first_push_that_nobody_named_for_an_hour_may_be_all_there_was() -> None:
    async def scenario(place: Place) -> None:
        await pushed(place, 1, "file")
        lose(place, "heads/")
        place.now_ns += HOUR_NS
        with pytest.raises(HeadsMissingError):
            await listed(place.client(2))
        await pushed(place, 1, "file")  # the device knows that it never had a head

    play(scenario)


def test_who_agreed_begins_the_share_anew_until_there_is_a_head_of_it(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        await pushed(place, 1, "lost")
        await pushed(place, 2, "lost, too")
        lose(place, "heads/")
        third = DeviceId(bytes([3]) * 16)
        memory = MemoryFile(str(tmp_path / "head"), third)
        memory.write(Own(device=third, agreed=True))
        three = remembering(place, tmp_path / "head", third)
        assert await listed(three) == {}
        await put(three, "mine", b"data")
        await three.commit()
        assert not memory.read().agreed
        assert set(await listed(place.client(4))) == {path("mine")}
        lose(place, "heads/")
        with pytest.raises(RolledBackError):
            await listed(remembering(place, tmp_path / "head", third))

    play(scenario)


def test_a_head_that_is_put_while_it_is_looked_for_counts() -> None:
    """Who lists heads, and then commits, may see the commit of a push that puts its head between the two."""

    async def scenario(place: Place) -> None:
        late: dict[str, tuple[bytes, int]] = {}

        class Late(MemoryStore):
            async def listing(self, *prefixes: str) -> list:  # type: ignore[type-arg]
                found = await super().listing(*prefixes)
                if prefixes == ("commits/",):
                    place.objects.update(late)
                return found

        await pushed(place, 1, "one")
        await pushed(place, 1, "two")
        late.update({name: place.objects.pop(name) for name in list(place.objects) if name.startswith("heads/")})
        store = Late(place.objects, clock=lambda: place.now_ns)
        assert set(await listed(place.client(2, store))) == {b"one", b"two"}

    play(scenario)
