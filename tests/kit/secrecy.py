"""What devices of a repository do, with all that a store must not learn by it; and the search for that."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from blockfs.blocks.hashing import block_id
from syncer.core.model import Kind, RelPath, RemoteStat, meta_of
from syncer.ports.orders import Delete, Move, write_one
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.config import Config
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.format.keys import Content, Keys, MasterKey, derive
from syncer.remote.repository.format.slots import Secret
from syncer.remote.repository.maintenance import keys as slots
from syncer.remote.repository.objects import Objects
from syncer.remote.repository.opening import Kept
from syncer.remote.stores.port import BlobStore
from tests.contract.writing import Shelf, store_order

GRID: Final = 4096
CONFIG: Final = Config(grid=GRID, chunks=(1024, 4096, 16384), made_s=0)
MASTER: Final = MasterKey(hashlib.sha256(b"a master key").digest())
REPOSITORY: Final = hashlib.sha256(b"an id").digest()[:16]
KEYS: Final = derive(MASTER, REPOSITORY)
PASSPHRASE: Final = "nobody guesses this one"
MTIME_NS: Final = 1_234_567_890_123_456_789
_SAMPLE: Final = 24  # bytes of a content: none of them is anywhere by chance
_SAMPLES: Final = 6  # of a content
_random: Final = random.Random(16)

FILES: Final[dict[str, bytes]] = {
    "salaries-of-all.ods": _random.randbytes(70_001),
    "letters/to-the-doctor.txt": b"the same sentence, which compresses well; " * 300,
    "letters/empty-one.txt": b"",
    "letters/short-note.txt": b"meet me at nine behind the mill",
    "disks/machine-of-anna.img": _random.randbytes(9_001) + bytes(6 * GRID) + b"log line of a machine\n" * 700,
}
EDITED: Final = FILES["salaries-of-all.ods"][:30_000] + b"one more salary than before" + _random.randbytes(5_003)
THEIRS: Final = b"what somebody else wrote at the same time, " * 90
LINK, TARGET = "shortcut-to-there", b"/home/anna/somewhere-else"
XATTRS: Final = ((b"author-of-it", b"Anna Example-Surname"), (b"mood", b"quite-gloomy-today"))
NAMES: Final = ("laptop-of-anna", "tower-of-berta")
MOVED: Final = "letters/renamed-afterwards.txt"


def client_on(store: BlobStore, number: int) -> RepositoryClient:
    """A device."""
    writer = Writer(device=DeviceId(bytes([number]) * 16), name=NAMES[number - 1], tool="test")
    return RepositoryClient(Objects(store, KEYS), CONFIG, writer)


async def happen(one: RepositoryClient, other: RepositoryClient) -> None:
    """Pushes, an edit, a conflict, a move, a deletion, a pull, a key: everything that leaves something."""
    meta = meta_of(0o640, mtime_ns=MTIME_NS, xattrs=XATTRS)
    for name, data in FILES.items():
        await write_one(
            one, store_order(RelPath(name.encode()), Kind.FILE, data, meta, None, GRID), Shelf([data], GRID)
        )
    link = store_order(RelPath(LINK.encode()), Kind.SYMLINK, TARGET, meta_of(None))
    await write_one(one, link)
    await one.commit()
    for client, data in ((one, EDITED), (other, THEIRS)):
        old = (await listed(client))["salaries-of-all.ods"]
        order = store_order(old.path, Kind.FILE, data, meta, old.tag, GRID)
        await write_one(client, order, Shelf([data], GRID))
    await one.commit()
    await other.commit()  # of a view without it: a conflict
    there = await listed(other)
    note, gone = there["letters/short-note.txt"], there["letters/to-the-doctor.txt"]
    await write_one(other, Move(source=note.path, target=RelPath(MOVED.encode()), expect=note.tag))
    await write_one(other, Delete(path=gone.path, expect=gone.tag))
    await other.commit()
    kept = Kept(repository=REPOSITORY, master=MASTER, device=DeviceId(bytes(16)), config=CONFIG)
    await slots.add(one._objects.store, kept, PASSPHRASE, Secret.PASSPHRASE, "the label is in the clear", log2_n=10)


async def listed(client: RepositoryClient) -> dict[str, RemoteStat]:
    """By path."""
    return {stat.path.decode(): stat for stat in (await client.list_objects()).objects}


def secrets() -> Iterator[bytes]:
    """Bytes that no store may see: contents, names, hashes and lengths of contents, ids of chunks, keys."""
    contents = [*FILES.values(), EDITED, THEIRS]
    for data in contents:
        yield from _samples(data)
        blocks = [data[at : at + GRID] for at in range(0, len(data), GRID)]
        yield from (block_id(block) for block in blocks if any(block))
        yield hashlib.sha256(data).digest()
        if len(data) > GRID:
            yield from (len(data).to_bytes(8, order) for order in ("big", "little"))  # type: ignore[arg-type]
        yield from _chunk_ids(KEYS, data)
    for text in (*FILES, LINK, MOVED, *NAMES):
        yield from (part.encode() for part in text.split("/"))
    yield from (part for pair in XATTRS for part in pair if len(part) > 4)
    yield from (TARGET, PASSPHRASE.encode(), MASTER, MTIME_NS.to_bytes(8, "big"), str(MTIME_NS).encode())
    yield from (KEYS.seal, KEYS.content, KEYS.tree, KEYS.split, KEYS.lan, KEYS.cut_seed.to_bytes(6, "big"))


def _samples(data: bytes) -> Iterator[bytes]:
    step = max(1, len(data) // _SAMPLES)
    found = (data[at : at + _SAMPLE] for at in range(0, max(0, len(data) - _SAMPLE), step))
    yield from (sample for sample in found if any(sample))


def _chunk_ids(keys: Keys, data: bytes) -> Iterator[bytes]:
    """Of what is one chunk: shorter than any cut, or cut by the seed."""
    if 0 < len(data) <= CONFIG.chunks[0]:
        yield keys.chunk_id(Content.FILES, data)


def forms(secret: bytes) -> tuple[bytes, ...]:
    """As it is, and as headers and names would have it."""
    encoded = base64.b64encode(secret)[: len(secret) * 8 // 6]
    return (secret, secret.hex().encode(), secret.hex().upper().encode(), encoded)


def found_in(haystack: bytes, more: Iterable[bytes] = (), *, tell: Callable[[bytes], object] = repr) -> list[object]:
    """Which secrets are in what a store has seen."""
    return [tell(secret) for secret in {*secrets(), *more} if any(form in haystack for form in forms(secret))]
