"""What a store sees of a repository's life: bytes, names, lengths, and who asks for what in which order.

docs/design/repository.md, section 10, says what it learns; this is the rest, which it must not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec
import trio

from syncer.core.model import Kind
from syncer.remote.repository.format.entries import ID_BYTES, decode_entry
from syncer.remote.repository.format.history import DeviceId, commit_of
from syncer.remote.repository.format.lists import chunks_of
from syncer.remote.repository.format.padding import padded
from syncer.remote.repository.format.prolly import Root, reachable
from syncer.remote.repository.maintenance.collecting import Collector
from syncer.remote.repository.maintenance.devices import forget
from syncer.remote.repository.maintenance.marking import GRACE_NS
from syncer.remote.repository.maintenance.repacking import Repacker
from syncer.remote.repository.objects import Objects, ThreadNodes
from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.port import MAX_BLOB_BYTES, Blob, size_of
from tests.kit import secrecy
from tests.unit.syncer.remote.repository.share import fetched, listed, put

NAMED = re.compile(
    r"keys/[0-9a-f]{16}|packs/([0-9a-f]{2})/\1[0-9a-f]{62}|(indexes|commits|condemned)/[0-9a-f]{64}|heads/[0-9a-f]{32}"
)


@dataclass
class Witness:
    """What a store has seen.

    Attributes:
        calls: Verb, kind of object, and length of what was put.
        names: Of all objects, and prefixes.
        bodies: Whatever was put.
    """

    calls: list[tuple[str, str, int]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    bodies: list[tuple[str, bytes]] = field(default_factory=list)

    def note(self, verb: str, name: str, size: int = 0) -> None:
        self.calls.append((verb, name.partition("/")[0], size))
        self.names.append(name)


class Watching(MemoryStore):
    """A store that writes down all that it sees."""

    def __init__(self, objects: dict[str, tuple[bytes, int]], witness: Witness, now_ns: list[int]) -> None:
        super().__init__(objects, clock=lambda: now_ns[0])
        self._witness = witness

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        self._witness.note("get", name)
        return await super().get(name, span, most_bytes=most_bytes)

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        self._witness.note("put", name, size_of(data))
        self._witness.bodies.append((name, data if isinstance(data, bytes) else b"".join(data)))
        return await super().put(name, data, absent=absent)

    async def head(self, name: str) -> Blob | None:
        self._witness.note("head", name)
        return await super().head(name)

    async def listing(self, *prefixes: str) -> list[Blob]:
        for prefix in prefixes:
            self._witness.note("list", prefix)
        return await super().listing(*prefixes)

    async def delete(self, name: str) -> None:
        self._witness.note("delete", name)
        await super().delete(name)


async def chunk_ids(objects: Objects) -> set[bytes]:
    """Of all chunks that any commit there has, and of all nodes."""
    names = [name for blob in await objects.store.listing("commits/") if (name := commit_of(blob.name)) is not None]
    roots = [commit.root for commit in (await objects.commits(names)).values() if commit.root]
    nodes = ThreadNodes(objects)

    def read() -> set[bytes]:
        found: set[bytes] = set()
        known: set[bytes] = set()
        for root in roots:
            for node, leaf in reachable(nodes, msgspec.msgpack.decode(root, type=Root), known):  # type: ignore[arg-type]
                found.add(node)
                for key, value in leaf:
                    file = decode_entry(key, value).file if len(key) > ID_BYTES else None
                    if file is not None:
                        found.update(chunk.id for chunk in chunks_of(nodes, file))
        return found

    return await trio.to_thread.run_sync(read)


def test_nothing_that_a_store_ever_sees_says_what_is_in_it() -> None:
    """No content, name, hash, exact length, id of a chunk, or key: in no body that was ever put, and in no name."""

    async def main() -> None:
        objects: dict[str, tuple[bytes, int]] = {}
        witness, now_ns = Witness(), [1_700_000_000 * 10**9]

        def store() -> Watching:
            return Watching(objects, witness, now_ns)

        one, other = secrecy.client_on(store(), 1), secrecy.client_on(store(), 2)
        await secrecy.happen(one, other)
        ids = await chunk_ids(Objects(MemoryStore(objects), secrecy.KEYS))
        reader = secrecy.client_on(store(), 2)
        for stat in (await secrecy.listed(reader)).values():
            if stat.kind is Kind.FILE:
                await fetched(reader, stat)
        await forget(Objects(store(), secrecy.KEYS), (b"\1" * 16).hex())
        for _ in range(3):
            now_ns[0] += GRACE_NS + 10**12
            await Collector(Objects(store(), secrecy.KEYS), DeviceId(bytes(16)), keep_ns=0).run()
            await Repacker(Objects(store(), secrecy.KEYS), DeviceId(bytes(16)), keep_ns=0).run()
        ids |= await chunk_ids(Objects(MemoryStore(objects), secrecy.KEYS))
        assert len(ids) > 20
        assert {verb for verb, _, _ in witness.calls} >= {"get", "put", "list", "delete"}
        assert {kind for verb, kind, _ in witness.calls if verb == "put"} >= {
            "packs", "indexes", "commits", "heads", "condemned", "keys",
        }  # fmt: skip
        for name in witness.names:
            assert NAMED.fullmatch(name) or name in {
                "",
                "heads/",
                "indexes/",
                "packs/",
                "commits/",
                "condemned/",
                "keys/",
            }
        everything = b"\0".join([*(body for _, body in witness.bodies), "\n".join(witness.names).encode()])
        assert secrecy.found_in(everything, ids) == []
        for name, body in witness.bodies:
            assert name.startswith("keys/") or (len(body) == padded(len(body)) >= 256), name

    trio.run(main)


def test_the_search_finds_what_is_there() -> None:
    """Else it would prove nothing: each secret, in each form, is found."""
    for secret in secrecy.secrets():
        for form in secrecy.forms(secret):
            assert secrecy.found_in(b"before" + form + b"behind")


def calls_of(names: Sequence[str], contents: Sequence[bytes]) -> list[tuple[str, str, int]]:
    """What the store sees of a push, of an edit, and of a pull by another device."""
    witness = Witness()

    async def main() -> None:
        stored: dict[str, tuple[bytes, int]] = {}
        one, other = (secrecy.client_on(Watching(stored, witness, [10**18 + 1]), number) for number in (1, 2))
        for name, data in zip(names, contents, strict=True):
            await put(one, name, data)
        await one.commit()
        await put(one, names[0], contents[1], (await listed(one))[names[0].encode()])  # type: ignore[index]
        await one.commit()
        for stat in (await listed(other)).values():
            await fetched(other, stat)

    trio.run(main)
    return witness.calls


def shares(seed: int) -> tuple[list[str], list[bytes]]:
    random = Random(seed)
    names = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=12)) for _ in range(6)]
    return names, [random.randbytes(900) for _ in range(6)]


def test_whoever_watches_shares_alike_sees_the_same_whatever_their_names_and_contents_are() -> None:
    """Each request, in its order and of its kind, and the lengths of what holds contents.

    Where nodes of trees end a keyed hash of names says, so how many there are, and how long their packs are, differs.
    """
    seen = [calls_of(*shares(seed)) for seed in range(12)]
    assert len({tuple(call[:2] for call in calls) for calls in seen}) == len({len(calls) for calls in seen}) < 6
    longest = {max(size for verb, kind, size in calls if (verb, kind) == ("put", "packs")) for calls in seen}
    assert len(longest) == 1


def test_lengths_that_differ_by_little_look_alike() -> None:
    """21 contents of other lengths each: the lengths of objects tell two kinds of them at most."""
    seen = set()
    for size in range(9000, 9210, 10):
        random = Random(1)
        names, _ = shares(1)
        seen.add(tuple(calls_of(names[:2], [random.randbytes(size), random.randbytes(900)])))
    assert len(seen) <= 3


def test_how_many_files_there_are_is_in_no_number_of_requests() -> None:
    """40 small files or one of the same length: one pack, as many requests."""
    random = Random(3)
    data = random.randbytes(40 * 200)
    names = [f"name{number:02}" for number in range(40)]
    many = calls_of(["first", *names], [b"1" * 200, *(data[at * 200 : at * 200 + 200] for at in range(40))])
    one = calls_of(["first", "name"], [b"1" * 200, data])
    puts = [[call[:2] for call in calls if call[0] == "put"] for calls in (many, one)]
    assert puts[0] == puts[1]
