"""A repository as it is on a store: read by its passphrase alone, and silent to whoever has no key."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from syncer.core.model import RelPath
from syncer.errors import DamagedObjectError, FormatTooNewError
from syncer.remote.repository.format import condemned, config, indexes, lists, packs, settings, slots
from syncer.remote.repository.format.codec import Codec
from syncer.remote.repository.format.history import (
    Commit,
    CommitId,
    Dot,
    commit_name,
    decode_commit,
    decode_head,
    device_of,
)
from syncer.remote.repository.format.keys import ChunkId, Content, Keys, derive
from syncer.remote.repository.format.packs import PackReader, read_pack
from syncer.remote.repository.format.padding import padded
from syncer.remote.repository.format.prolly import Root
from syncer.remote.repository.format.sealed import Kind, digest_of, object_name
from syncer.remote.repository.format.slots import FOLDER as SLOTS
from syncer.remote.repository.tree import Tree
from tests.golden import make_repository
from tests.golden.make_repository import CONTENTS, DEVICE_NAME, DEVICES, GRID, KEYS, MASTER, PASSPHRASE, RECOVERY

GOLDEN = Path(__file__).parents[4] / "golden" / "repository-1.tar.xz"
SETTINGS = GOLDEN.with_name("repository-1-settings")
CODEC = Codec()
Objects = Mapping[str, bytes]


def kept() -> Objects:
    """As the commit that brought it wrote it."""
    with tarfile.open(GOLDEN) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


@pytest.fixture(scope="module", params=["as it was", "as it is"])
def objects(request: pytest.FixtureRequest) -> Objects:
    return kept() if request.param == "as it was" else make_repository.make()


class StoredNodes:
    """Nodes of a repository, by its indexes."""

    def __init__(self, keys: Keys, objects: Objects) -> None:
        self._keys = keys
        self._objects = objects
        read = {
            digest: indexes.decode_trees(keys, digest, raw, CODEC)
            for name, raw in objects.items()
            if (digest := digest_of(Kind.INDEX, name))
        }
        assert len(read) == 2
        live = indexes.live({digest: section.replaces for digest, section in read.items()})
        assert len(live) == 1
        self._trees = read[live.pop()]

    def read(self, ids: Sequence[ChunkId]) -> list[bytes]:
        return [self._read(each) for each in ids]

    def write(self, node: bytes) -> ChunkId:
        raise AssertionError("nothing is written")

    def _read(self, node: ChunkId) -> bytes:
        found = self._trees.find(node)
        assert found is not None
        reader, raw = PackReader(self._keys, Content.TREES, found.pack), self._objects[found.pack.name]
        return reader.open(found.entry, raw[found.entry.offset : found.entry.end], CODEC)


def newest(keys: Keys, objects: Objects) -> Commit:
    heads = [decode_head(keys, device, raw, CODEC) for name, raw in objects.items() if (device := device_of(name))]
    assert {head.device for head in heads} == set(DEVICES)
    commits = [decode_commit(keys, head.commit, objects[commit_name(head.commit)], CODEC) for head in heads]
    return max(commits, key=lambda commit: commit.number)


@pytest.mark.parametrize("secret", [PASSPHRASE, RECOVERY])
def test_with_a_secret_all_of_it_is_read(objects: Objects, secret: str) -> None:
    """If it fails on what was written before, a repository of a released version can't be read any more."""
    repository = config.repository_of(objects[config.NAME])
    found = [slots.read_slot(name, raw) for name, raw in objects.items() if name.startswith(SLOTS)]
    master, slot = slots.open_any(found, repository, secret)
    assert (master, slot.label) == (MASTER, "laptop")
    keys = derive(master, repository)
    assert config.decode(keys, objects[config.NAME], CODEC) == make_repository.CONFIG

    commit = newest(keys, objects)
    assert (commit.number, commit.name, commit.dot) == (2, DEVICE_NAME, Dot(DEVICES[1], 2))
    assert commit.vector.covers(Dot(DEVICES[0], 1))
    assert [commit_name(parent) in objects for parent in commit.parents] == [True]

    nodes = StoredNodes(keys, objects)
    tree = Tree(nodes, msgspec.msgpack.decode(commit.root, type=Root))
    for path, data in CONTENTS.items():
        at = tree.lookup(RelPath(path))
        assert at is not None
        assert at.entry.file is not None
        assert lists.blocks_of(nodes, at.entry.file, GRID).size_bytes == len(data)
        read = bytearray(len(data))
        for chunk in lists.chunks_of(nodes, at.entry.file):
            raw = objects[chunk.pack.name]
            sealed = raw[chunk.entry.offset : chunk.entry.end]
            read[chunk.start : chunk.end] = PackReader(keys, Content.FILES, chunk.pack).open(chunk.entry, sealed, CODEC)
        assert read == data


def test_what_is_condemned_is_told(objects: Objects) -> None:
    (name,) = [name for name in objects if name.startswith(Kind.CONDEMNED.folder)]
    told = condemned.decode(KEYS, name, objects[name], CODEC)
    assert told.device == DEVICES[1]
    assert [object_name(Kind.INDEX, digest) in objects for digest in told.indexes] == [True]
    assert len(told.packs) == 1


def test_every_kind_of_object_is_there(objects: Objects) -> None:
    """Settings came later, and are absent until somebody sets something."""
    kinds = {kind.folder.rstrip("/") for kind in Kind} | {"keys"}
    assert {name.split("/")[0] for name in objects} == kinds - {settings.NAME}


def test_what_was_set_is_told_and_a_newer_version_of_it_is_left_alone() -> None:
    raw = SETTINGS.read_bytes()
    assert settings.decode(KEYS, raw, CODEC) == settings.Settings(keep_s=90 * 86_400)
    assert settings.encode(KEYS, raw[8:24], settings.Settings(keep_s=90 * 86_400), CODEC) == raw
    with pytest.raises(FormatTooNewError) as told:
        settings.decode(KEYS, raw[:5] + b"\2" + raw[6:], CODEC)
    assert told.value.exit_code == 14


def test_no_bytes_on_the_store_say_anything(objects: Objects) -> None:
    """No content, no name, no id, no exact size; neither as they are nor in hexadecimal, in bytes nor in names."""
    secrets = [MASTER, KEYS.seal, KEYS.content, KEYS.tree, KEYS.split, KEYS.lan, KEYS.cut_seed.to_bytes(6, "big")]
    secrets += [DEVICE_NAME.encode(), PASSPHRASE.encode(), RECOVERY.encode(), make_repository.FOLDER]
    secrets += [part for path in CONTENTS for part in path.split(b"/")]
    for data in CONTENTS.values():
        secrets += [data[at : at + 16] for at in range(0, len(data) - 16, 977)]
        secrets += [len(data).to_bytes(size, order) for size in (4, 8) for order in ("big", "little") if data]
    secrets += [entry.id for pack in contents(objects) for entry in pack.entries]
    secrets = [secret for secret in secrets if any(secret)]  # a part of a hole says nothing
    assert len(secrets) > 400
    for name, raw in objects.items():
        for secret in secrets:
            assert secret not in raw, name
            assert secret.hex().encode() not in raw, name
            assert secret.hex() not in name


def contents(objects: Objects) -> list[packs.Pack]:
    """All packs, whatever is in them."""
    found = []
    for name, raw in objects.items():
        for content in Content:
            if digest_of(Kind.PACK, name):
                try:
                    found.append(read_pack(KEYS, content, name, raw)[0])
                except DamagedObjectError:
                    continue
    assert len(found) == 4  # two of files, two of trees
    return found


def test_lengths_are_padded(objects: Objects) -> None:
    for name, raw in objects.items():
        if name == config.NAME:
            assert len(raw) == 24 + 256
        elif not name.startswith(SLOTS):  # these say all that they are
            assert len(raw) == padded(len(raw)), name
            assert len(raw) >= 256


def test_the_same_repository_twice_has_no_bytes_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    """Salts make objects new each time: equal contents look unlike, even to who has both repositories."""
    one = make_repository.make()
    count = make_repository.Making.salt
    monkeypatch.setattr(make_repository.Making, "salt", lambda self: bytes(reversed(count(self))))
    other = make_repository.make()
    blocks = {raw[at : at + 16] for raw in one.values() for at in range(32, len(raw) - 16)}
    assert len(one) == len(other)
    shared = [name for name, raw in other.items() if any(raw[at : at + 16] in blocks for at in range(40, len(raw), 16))]
    assert [name for name in shared if not name.startswith(SLOTS)] == []


def test_each_kind_of_a_newer_version_is_left_alone(objects: Objects) -> None:
    """Exit code 14, and not that it is damaged."""
    refused = 0
    for name, raw in objects.items():
        newer = raw[:5] + b"\2" + raw[6:]
        with pytest.raises(FormatTooNewError) as told:
            read_any(name, newer)
        refused += told.value.exit_code == 14
    assert refused == len(objects)


def read_any(name: str, raw: bytes) -> object:
    """Read an object by the folder that it is in, under a name that fits its bytes."""
    digest = hashlib.sha256(raw).digest()
    readers: dict[str, Callable[[], object]] = {
        "config": lambda: config.repository_of(raw),
        "keys": lambda: slots.read_slot(SLOTS + digest[:8].hex(), raw),
        "packs": lambda: read_pack(KEYS, Content.FILES, object_name(Kind.PACK, digest), raw),
        "indexes": lambda: indexes.decode(KEYS, digest, raw, CODEC),
        "commits": lambda: decode_commit(KEYS, CommitId(digest), raw, CODEC),
        "heads": lambda: decode_head(KEYS, device_of(name) or DEVICES[0], raw, CODEC),
        "condemned": lambda: condemned.decode(KEYS, object_name(Kind.CONDEMNED, digest), raw, CODEC),
    }
    return readers[name.split("/", maxsplit=1)[0]]()
