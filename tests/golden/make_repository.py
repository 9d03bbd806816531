"""Make the golden repository: `python -m tests.golden.make_repository ARCHIVE`, with a checkout's own code.

Every kind of object: two devices, a commit each, the second one's of the first one's; an index that another one
replaces; a pack that is condemned; a slot for a passphrase and one for a recovery key. Nothing in it is random: salts
are counted. tests/unit/syncer/remote/repository/test_golden.py reads it, and looks through its bytes.
"""

from __future__ import annotations

import hashlib
import io
import random
import sys
import tarfile
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from syncer.remote.repository.format import condemned, config, indexes, lists, packs, prolly
from syncer.remote.repository.format.chunks import WINDOW_BYTES, Chunker, cut_window
from syncer.remote.repository.format.codec import Codec
from syncer.remote.repository.format.condemned import Condemned
from syncer.remote.repository.format.config import Config
from syncer.remote.repository.format.entries import TOP, Bytes, Entry
from syncer.remote.repository.format.history import (
    Commit,
    CommitId,
    DeviceId,
    Dot,
    Head,
    Vector,
    commit_name,
    encode_commit,
    encode_head,
)
from syncer.remote.repository.format.indexes import Index
from syncer.remote.repository.format.keys import ChunkId, Content, MasterKey, derive
from syncer.remote.repository.format.lists import ChunkList, Located
from syncer.remote.repository.format.packs import Pack, PackBuilder
from syncer.remote.repository.format.prolly import Root, Shape
from syncer.remote.repository.format.recovery import recovery_key
from syncer.remote.repository.format.sealed import Kind, object_name
from syncer.remote.repository.format.slots import Secret, new_slot
from syncer.remote.repository.tree import Found, values

PASSPHRASE: Final = "correct horse battery staple"
MASTER: Final = MasterKey(bytes(range(32)))
REPOSITORY: Final = bytes(range(100, 116))
KEYS: Final = derive(MASTER, REPOSITORY)
RECOVERY: Final = recovery_key(bytes(range(20)))
GRID: Final = 65536
CONFIG: Final = Config(grid=GRID, chunks=(4096, 16384, 65536), made_s=1_790_000_000)
DEVICES: Final = DeviceId(bytes(range(16))), DeviceId(bytes(range(16, 32)))
FOLDER: Final = b"folder-id-16-byt"
DEVICE_NAME: Final = "the-laptop-of-anna"
CONTENTS: Final = {
    b"greeting-note.txt": b"a plain text that nobody but us should read\n" * 3,
    b"folder-of-images/disk-image.raw": random.Random(16).randbytes(60_000)
    + bytes(2 * GRID)
    + b"compressible text, again and again. " * 9000,
    b"folder-of-images/empty-file": b"",
}
TIME_NS: Final = 1_790_000_000_000_000_000


class Making:
    """Objects of one repository, made one after the other."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.codec = Codec()
        self.chunker = Chunker(KEYS.cut_seed, CONFIG.chunks)
        self.nodes = PackerOfNodes()
        self._salts = 0

    def salt(self) -> bytes:
        self._salts += 1
        return hashlib.sha256(b"salt %d" % self._salts).digest()[:16]

    def builder(self, content: Content) -> PackBuilder:
        return PackBuilder(KEYS, content, self.salt(), self.codec)

    def finish(self, builder: PackBuilder) -> Pack:
        pack, raw = builder.finish()
        self.objects[pack.ref.name] = raw
        return pack

    def file(self, data: bytes) -> tuple[Bytes, list[Pack]]:
        """A file's entry, its chunks in a pack of its own."""
        builder, cuts = self.builder(Content.FILES), []
        for start in range(0, len(data), WINDOW_BYTES):
            for chunk in cut_window(
                self.chunker, start, len(data), lambda asked: [data[first:last] for first, last in asked]
            ):
                assert chunk.data is not None
                cuts.append((chunk, builder.add(KEYS.chunk_id(Content.FILES, chunk.data), chunk.data)))
        made = [self.finish(builder)] if cuts else []
        chunks = ChunkList(self.nodes, lists.chunks_shape(KEYS.split))
        for start in range(0, len(data), WINDOW_BYTES):
            here = [
                Located(chunk.offset, chunk.length, place.id, made[0].ref, place.offset, place.length)
                for chunk, place in cuts
                if start <= chunk.offset < start + WINDOW_BYTES
            ]
            chunks.window(start, WINDOW_BYTES, here)
        ids = b"".join(block_id(data[at : at + GRID]) for at in range(0, len(data), GRID))
        blocks = BlockList(block_size=GRID, size_bytes=len(data), ids=ids)
        file = Bytes(
            size_bytes=len(data),
            object_hash=blocks.object_hash,
            blocks=lists.listed_blocks(self.nodes, lists.blocks_shape(KEYS.split), blocks),
            chunks=chunks.finish(len(data)),
        )
        return file, made

    def tree(self, found: Sequence[Found], root: Root | None) -> tuple[Root, Pack]:
        """A tree with some entries more, and the pack of its new nodes."""
        made = prolly.update(self.nodes, Shape(split=KEYS.split, entries=32), root, values(found))
        assert made is not None
        builder = self.builder(Content.TREES)
        for node, data in self.nodes.fresh.items():
            builder.add(node, data)
        self.nodes.fresh = {}
        return made, self.finish(builder)

    def index(self, trees: Sequence[Pack], files: Sequence[Pack], replaces: Sequence[bytes] = ()) -> bytes:
        made = Index(indexes.section(trees, replaces), indexes.section(files))
        digest, raw = indexes.encode(KEYS, self.salt(), made, self.codec)
        self.objects[object_name(Kind.INDEX, digest)] = raw
        return digest

    def commit(self, device: DeviceId, parents: tuple[CommitId, ...], seen: Vector, root: Root) -> CommitId:
        number = seen.next_number()
        commit = Commit(
            parents=parents,
            vector=seen.adding(Dot(device, number)),
            root=msgspec.msgpack.encode(root),
            number=number,
            device=device,
            time_ns=TIME_NS + number,
            tool="0.1.0",
            name=DEVICE_NAME,
        )
        made, raw = encode_commit(KEYS, self.salt(), commit, self.codec)
        self.objects[commit_name(made)] = raw
        head = Head(device=device, sequence=1, commit=made)
        name, raw = encode_head(KEYS, self.salt(), head, self.codec)
        self.objects[name] = raw
        return made


class PackerOfNodes:
    """Nodes in memory; the fresh ones go to the next pack."""

    def __init__(self) -> None:
        self.kept: dict[ChunkId, bytes] = {}
        self.fresh: dict[ChunkId, bytes] = {}

    def read(self, ids: Sequence[ChunkId]) -> list[bytes]:
        return [self.kept[node] for node in ids]

    def write(self, node: bytes) -> ChunkId:
        name = KEYS.chunk_id(Content.TREES, node)
        if name not in self.kept:
            self.kept[name] = self.fresh[name] = node
        return name


def entry(device: DeviceId, name: bytes, file: Bytes | None) -> Entry:
    """Of a file, or of the folder."""
    dot = Dot(device, 1)
    return Entry(
        object=FOLDER if file is None else hashlib.sha256(name).digest()[:16],
        kind=1 if file is None else 0,
        number=1,
        placed=dot,
        filled=dot,
        noted=dot,
        made_us=TIME_NS // 1000,
        mode=0o755 if file is None else 0o640,
        file=file,
    )


def make() -> Mapping[str, bytes]:
    """All objects of the repository, by name."""
    making = Making()
    one, other = DEVICES
    making.objects[config.NAME] = config.encode(KEYS, making.salt(), CONFIG, making.codec)
    for secret, text in ((Secret.PASSPHRASE, PASSPHRASE), (Secret.RECOVERY_KEY, RECOVERY)):
        name, raw = new_slot(
            MASTER, REPOSITORY, text, making.salt(), made_s=CONFIG.made_s, label="laptop", secret=secret, log2_n=10
        )
        making.objects[name] = raw
    files = {path: making.file(data) for path, data in CONTENTS.items()}
    found = {
        path: Found(
            parent=FOLDER if b"/" in path else TOP,
            name=path.split(b"/")[-1],
            entry=entry(one, path, file),
        )
        for path, (file, _) in files.items()
    }
    folder = Found(parent=TOP, name=b"folder-of-images", entry=entry(one, b"", None))
    first, *rest = found.values()
    root, nodes = making.tree([first], None)
    data = [pack for _, packs in files.values() for pack in packs]
    index = making.index([nodes], data[:1])
    commit = making.commit(one, (), Vector({}), root)
    root, more = making.tree([folder, *rest], root)
    making.index([nodes, more], data, [index])
    making.commit(other, (commit,), Vector({one: 1}), root)
    gone = packs.PackRef(hashlib.sha256(b"gone").digest(), bytes(16))
    told = Condemned(device=other, time_ns=TIME_NS, packs=(gone.digest,), indexes=(index,))
    name, raw = condemned.encode(KEYS, making.salt(), told, making.codec)
    making.objects[name] = raw
    return making.objects


def main() -> None:
    """Write the archive."""
    with tarfile.open(sys.argv[1], "w:xz") as archive:
        for name, raw in sorted(make().items()):
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))


if __name__ == "__main__":
    main()
