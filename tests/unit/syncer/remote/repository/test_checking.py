"""Checks: a repository that is whole has no problems, and whatever is missing, cut, flipped or swapped is named."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
import trio

from syncer.core.model import Kind, meta_of
from syncer.ports.orders import write_one
from syncer.remote.repository.format.keys import MasterKey, derive
from syncer.remote.repository.maintenance.checking import Checker, Findings
from syncer.remote.repository.maintenance.marking import GRACE_NS
from syncer.remote.repository.making import create
from syncer.remote.repository.objects import Objects
from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.port import Blob
from tests.contract.writing import store_order
from tests.unit.syncer.remote.repository.aging import HOUR_NS, Place
from tests.unit.syncer.remote.repository.nodes import KEYS
from tests.unit.syncer.remote.repository.share import GRID, Share, listed, path, put, random_bytes

Stored = dict[str, tuple[bytes, int]]


async def written(share: Share) -> None:
    one, other = share.client(1), share.client(2)
    await write_one(one, store_order(path("d"), Kind.DIRECTORY, b"", meta_of(0o755)))
    for number in range(30):
        await put(one, f"d/{number}", random_bytes(number, 3000))
    await put(one, "large", random_bytes(1, 3 << 20))
    await one.commit()
    await put(other, "large", random_bytes(2, 3 << 20), (await listed(other))[path("large")])
    await other.commit()
    await one.list_objects()
    await put(one, "more", b"more")
    await one.commit()


def checked(objects: Stored, share: float = 1.0) -> Findings:
    return trio.run(Checker(Objects(MemoryStore(objects), KEYS), GRID, share=share).run)


@pytest.fixture(scope="module")
def whole() -> Stored:
    share = Share()
    trio.run(written, share)
    return share.objects


def test_a_repository_that_is_whole_has_no_problems(whole: Stored) -> None:
    found = checked(dict(whole))
    assert found.problems == []
    assert found.commits == 3
    assert found.packs == found.packs_read == sum(name.startswith("packs/") for name in whole)
    assert found.unnamed_packs == 0
    assert checked(dict(whole), share=0).packs_read == 0
    assert checked({}).problems == []


def cut(raw: bytes) -> bytes:
    return raw[:-1]


def flipped(raw: bytes) -> bytes:
    return raw[: len(raw) // 2] + bytes([raw[len(raw) // 2] ^ 4]) + raw[len(raw) // 2 + 1 :]


@pytest.mark.parametrize("damage", [cut, flipped], ids=["cut", "flipped"])
@pytest.mark.parametrize("kind", ["packs/", "indexes/", "commits/", "heads/"])
def test_whatever_is_damaged_is_named(whole: Stored, kind: str, damage: Callable[[bytes], bytes]) -> None:
    for name in [name for name in whole if name.startswith(kind)]:
        objects = dict(whole)
        raw, when = objects.pop(name)
        found = checked(objects | {name: (damage(raw), when)})
        assert any(name in problem for problem in found.problems), (name, found.problems)


def test_packs_that_are_missing_are_named_and_so_are_trees_that_no_index_finds(whole: Stored) -> None:
    for name in [name for name in whole if name.startswith("packs/")]:
        found = checked({key: value for key, value in whole.items() if key != name})
        assert any(name in problem or "tree node" in problem for problem in found.problems), (name, found.problems)
    assert checked({key: value for key, value in whole.items() if not key.startswith("indexes/")}).problems


def test_a_missing_commit_that_a_head_names_is_named(whole: Stored) -> None:
    found = [checked({k: v for k, v in whole.items() if k != name}) for name in whole if name.startswith("commits/")]
    missing = [problem for each in found for problem in each.problems if "a head names it" in problem]
    assert len(missing) == sum(name.startswith("heads/") for name in whole)


def test_swapped_packs_are_named(whole: Stored) -> None:
    one, other = Random(1).sample(sorted(name for name in whole if name.startswith("packs/")), 2)
    found = checked(whole | {one: whole[other], other: whole[one]})
    assert any(one in problem for problem in found.problems)


def test_what_a_crash_leaves_is_no_problem(whole: Stored) -> None:
    share = Share()
    share.objects = dict(whole)

    async def dies() -> None:
        one = share.client(1)
        await put(one, "lost", random_bytes(7, 1 << 20))
        assert one._work is not None
        await one._work.packer.close()
        await one._work.packer.flush()

    trio.run(dies)
    found = checked(share.objects)
    assert found.problems == []
    assert found.unnamed_packs == 1


class Lagging(MemoryStore):
    """A listing that does not tell of packs yet, as Swift's may."""

    async def listing(self, *prefixes: str) -> list[Blob]:
        return [] if prefixes == ("packs/",) else await super().listing(*prefixes)


def test_what_a_listing_does_not_tell_yet_is_not_missing(whole: Stored) -> None:
    found = trio.run(Checker(Objects(Lagging(dict(whole)), KEYS), GRID, share=1.0).run)
    assert found.problems == []
    assert found.packs_read


@pytest.mark.parametrize("verb", ["listing", "get"])
def test_what_is_collected_while_it_is_looked_at_is_not_missing(verb: str) -> None:
    """A commit that nobody keeps goes, and the packs that only it needed, after they were listed, or its tree begun."""

    async def scenario() -> None:
        place = Place()
        one = place.client(1)
        for number in (1, 2, 3):
            there = (await listed(one)).get(path("file"))
            await put(one, "file", random_bytes(number, 50_000), there)
            await one.commit()
        place.now_ns += GRACE_NS + HOUR_NS
        await place.collect()
        place.now_ns += GRACE_NS + HOUR_NS
        deleted = 0

        class Between(MemoryStore):
            async def listing(self, *prefixes: str) -> list[Blob]:
                found = await super().listing(*prefixes)
                await self.collected("listing" if prefixes == ("packs/",) else "")
                return found

            async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = 1 << 26) -> bytes:
                await self.collected("get" if name.startswith("packs/") else "")
                return await super().get(name, span, most_bytes=most_bytes)

            async def collected(self, when: str) -> None:
                nonlocal deleted
                if when == verb and not deleted:
                    deleted = (await place.collect()).deleted_packs

        store = Between(place.objects, clock=lambda: place.now_ns)
        found = await Checker(Objects(store, KEYS), GRID, share=1.0).run()
        assert deleted > 0
        assert found.problems == []

    trio.run(scenario)


def test_a_key_that_is_damaged_is_named() -> None:
    async def scenario() -> tuple[str, Findings]:
        store = MemoryStore()
        kept, _ = await create(store, "correct horse battery", grid=GRID, log2_n=10)
        name = max(name for name in store.objects if name.startswith("keys/"))
        raw, when = store.objects[name]
        store.objects[name] = raw[:-1] + bytes([raw[-1] ^ 1]), when
        objects = Objects(store, derive(MasterKey(kept.master), kept.repository))
        return name, await Checker(objects, GRID).run()

    name, found = trio.run(scenario)
    (problem,) = found.problems
    assert f"{name} of the repository is damaged" in problem
    assert "`blocksync repo key`" in problem
