"""The keys of a repository: one master key, and what is derived from it.

The master key is 32 random bytes, made at `init`, and never changes. Nothing is enciphered with it. From it come, by
HKDF-SHA256 with the repository's id (16 random bytes) as salt, one key for each use:

    seal       info = "blocksync-repository/1 seal"      the root of the keys of objects, see `object_key`
    content    info = "blocksync-repository/1 content"   ids of chunks of contents, HMAC-SHA256
    tree       info = "blocksync-repository/1 tree"      ids of chunks of trees, HMAC-SHA256
    cut        info = "blocksync-repository/1 cut"       first 6 bytes, big endian: where contents are cut
    split      info = "blocksync-repository/1 split"     where the nodes of trees are cut
    lan        info = "blocksync-repository/1 lan"       the share's key on the LAN

An object has a key of its own: HKDF-SHA256(seal, salt = the object's salt, info = "blocksync-repository/1 object" and
its kind). Info strings are ASCII without an end mark.

Source: docs/design/repository.md, section 2.
"""

from __future__ import annotations

import hmac
from enum import Enum
from typing import Final, NewType

import msgspec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

MasterKey = NewType("MasterKey", bytes)
"""32 random bytes. Who has them reads and writes the repository, for ever."""

ChunkId = NewType("ChunkId", bytes)
"""32 bytes: names a chunk within its repository. Says nothing to who has not the key."""

KEY_BYTES: Final = 32
REPOSITORY_BYTES: Final = 16
SALT_BYTES: Final = 16  # by chance no two of 2^40 objects have the same: 2^-49

_PREFIX: Final = b"blocksync-repository/1 "


class Content(Enum):
    """What is in a chunk: each has ids and packs of its own. The value is the byte in packs and indexes."""

    FILES = 1
    TREES = 2


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one repository.

    Attributes:
        repository: Its id, 16 bytes.
        seal: 32 bytes; only `object_key` uses it.
        content: 32 bytes, for ids of chunks of files.
        tree: 32 bytes, for ids of chunks of trees.
        cut_seed: 48 bits, not 0: where contents are cut.
        split: 32 bytes: where nodes of trees are cut.
        lan: 32 bytes: for the share's peers.
    """

    repository: bytes
    seal: bytes
    content: bytes
    tree: bytes
    cut_seed: int
    split: bytes
    lan: bytes

    def __repr__(self) -> str:
        return f"Keys(repository={self.repository.hex()})"  # keys never reach a log

    def chunk_id(self, content: Content, data: bytes | memoryview) -> ChunkId:
        """Name a chunk. Releases the interpreter's lock while it hashes.

        HMAC-SHA256 and not keyed BLAKE2b: 1.6 against 0.9 GB/s with the SHA instructions that every server has.
        """
        return ChunkId(hmac.digest(self.content if content is Content.FILES else self.tree, data, "sha256"))


def derive(master: MasterKey, repository: bytes) -> Keys:
    """All keys of a repository.

    Args:
        master: Its master key.
        repository: Its id, 16 bytes.
    """
    assert len(master) == KEY_BYTES
    assert len(repository) == REPOSITORY_BYTES
    return Keys(
        repository=repository,
        seal=_derive(master, repository, b"seal"),
        content=_derive(master, repository, b"content"),
        tree=_derive(master, repository, b"tree"),
        # The chunker's library looks at no other bits; 0 would stand for "no seed" there.
        cut_seed=int.from_bytes(_derive(master, repository, b"cut")[:6], "big") or 1,
        split=_derive(master, repository, b"split"),
        lan=_derive(master, repository, b"lan"),
    )


def object_key(keys: Keys, salt: bytes, kind: bytes) -> bytes:
    """The key of one object, 32 bytes.

    Args:
        keys: The repository's.
        salt: 16 random bytes that no other object has.
        kind: Of the object, 1 byte.
    """
    assert len(salt) == SALT_BYTES
    assert len(kind) == 1
    return _derive(keys.seal, salt, b"object" + kind)


def _derive(key: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, salt, _PREFIX + info).derive(key)
