"""Who has done what: commits and heads. A commit is the whole tree at a moment, a head the last commit of a device.

Each device writes its own head only, so writers never contend. Commits form a graph: the parents of a commit are the
heads that its device had merged when it made it. Its *number* is a Lamport number: higher than that of every commit
that it builds on. A *dot*, device and number, so names a commit and all that was done with it. A *vector* has the
highest number of each device that a commit builds on, its own included: what has a dot that it covers was seen.

Byte table of a commit's body, integers big-endian:

    0    8   number, from 1
    8    16  device
    24   8   time, nanoseconds since the epoch by the device's clock: told to people; of two versions in conflict
              the earlier one keeps the name (see `merge`), and nothing else is decided by it
    32   2   p, how many parents
    34   2   v, how many devices the vector has
    36   1   r, length of the tree's name
    37   1   t, length of the program's version
    38   1   n, length of the device's name
    39   …   p digests of commits, ascending; v times device and 8 bytes number, ascending; r bytes, what names the
             tree: none if it is empty (see `prolly`); t bytes ASCII; n bytes UTF-8

Byte table of a head's body; the head is bound to the device (see `sealed`):

    0    8   sequence, from 1: grows with each head that the device writes
    8    32  digest of a commit of this device

A digest is the SHA-256 of the object, as its name tells it.

Source: docs/design/repository.md, section 8.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, NewType

import msgspec

from syncer.errors import DamagedObjectError
from syncer.remote.repository.format.codec import Codec
from syncer.remote.repository.format.keys import Keys
from syncer.remote.repository.format.sealed import NAME_BYTES, Kind, digest_of, object_name, open_whole, seal_whole

DeviceId = NewType("DeviceId", bytes)
"""16 random bytes that a device draws when it links a root."""

CommitId = NewType("CommitId", bytes)
"""32 bytes, the SHA-256 of a commit's object."""

DEVICE_BYTES: Final = 16
MAX_DEVICES: Final = 4096  # of a vector, and as many parents; who ever wrote counts, forgotten or not
MAX_NAME_BYTES: Final = 255  # of a device: Linux's host names have 64
MAX_TOOL_BYTES: Final = 64
MAX_ROOT_BYTES: Final = 128
MAX_NUMBER: Final = (1 << 63) - 1
_COMMIT: Final = struct.Struct(">Q16sQHHBBB")
_SEEN: Final = struct.Struct(">16sQ")
_HEAD: Final = struct.Struct(">Q32s")
_MAX_COMMIT_BYTES: Final = _COMMIT.size + MAX_DEVICES * (NAME_BYTES + _SEEN.size) + 3 * 255


class Dot(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False, forbid_unknown_fields=True):
    """Names a commit, and what was done with it. In msgpack an array of two.

    Attributes:
        device: Who.
        number: Of the commit.
    """

    device: DeviceId
    number: int


class Vector(msgspec.Struct, frozen=True):
    """What a commit builds on.

    Attributes:
        numbers: By device the highest number. A device that isn't there has done nothing that counts.
    """

    numbers: Mapping[DeviceId, int]

    def covers(self, dot: Dot) -> bool:
        """Whether this was seen."""
        return dot.number <= self.numbers.get(dot.device, 0)

    def covers_all(self, other: Vector) -> bool:
        """Whether all that the other one covers is covered."""
        return all(number <= self.numbers.get(device, 0) for device, number in other.numbers.items())

    def joined(self, *others: Vector) -> Vector:
        """What is covered by this one or by others."""
        joined = dict(self.numbers)
        for other in others:
            for device, number in other.numbers.items():
                joined[device] = max(number, joined.get(device, 0))
        return Vector(joined)

    def adding(self, dot: Dot) -> Vector:
        """With this dot, and all before it."""
        return self.joined(Vector({dot.device: dot.number}))

    def next_number(self) -> int:
        """The number of a commit that builds on this: higher than any."""
        return max(self.numbers.values(), default=0) + 1


NOTHING: Final = Vector({})


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The tree at a moment, as a device had it.

    Attributes:
        parents: The heads it was made of, none twice, ascending. None: the first of a repository.
        vector: What it builds on; `numbers[device]` is `number`, and no other is as high.
        root: What names its tree; b"" for a tree without entries. At most 128 bytes.
        number: Lamport number.
        device: Who made it.
        time_ns: When, nanoseconds since the epoch, by its maker's clock.
        tool: The program's version, ASCII, at most 64 bytes.
        name: What people call the device, at most 255 bytes in UTF-8.
    """

    parents: tuple[CommitId, ...]
    vector: Vector
    root: bytes
    number: int
    device: DeviceId
    time_ns: int
    tool: str
    name: str

    @property
    def dot(self) -> Dot:
        """Names it, too."""
        return Dot(self.device, self.number)


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The last commit of a device.

    Attributes:
        device: Whose.
        sequence: Grows with each head that the device writes.
        commit: The commit.
    """

    device: DeviceId
    sequence: int
    commit: CommitId


def encode_commit(keys: Keys, salt: bytes, commit: Commit, codec: Codec) -> tuple[CommitId, bytes]:
    """The object of a commit: its id and its bytes. `salt` are 16 fresh random bytes."""
    assert (reason := _fault(commit)) is None, reason
    tool, name = commit.tool.encode("ascii"), commit.name.encode()
    counts = (len(commit.parents), len(commit.vector.numbers), len(commit.root), len(tool), len(name))
    body = b"".join(
        (
            _COMMIT.pack(commit.number, commit.device, commit.time_ns, *counts),
            *commit.parents,
            *(_SEEN.pack(device, number) for device, number in sorted(commit.vector.numbers.items())),
            commit.root,
            tool,
            name,
        )
    )
    raw = seal_whole(keys, Kind.COMMIT, salt, body, codec)
    return CommitId(hashlib.sha256(raw).digest()), raw


def decode_commit(keys: Keys, commit: CommitId, raw: bytes, codec: Codec) -> Commit:
    """A commit by its object.

    Raises:
        DamagedObjectError: Not what its id says, or not made with this repository's key.
        FormatTooNewError: A newer blocksync's.
    """
    name = commit_name(commit)
    body = open_whole(keys, Kind.COMMIT, name, raw, codec, limit=_MAX_COMMIT_BYTES)
    try:
        decoded = _parse_commit(body)
    except (struct.error, ValueError):
        raise DamagedObjectError(name, "is malformed: no commit of ours") from None
    if (reason := _fault(decoded)) is not None:
        raise DamagedObjectError(name, f"is malformed: {reason}")
    return decoded


def encode_head(keys: Keys, salt: bytes, head: Head, codec: Codec) -> tuple[str, bytes]:
    """The object of a head: its name and its bytes. `salt` are 16 fresh random bytes."""
    assert 0 < head.sequence <= MAX_NUMBER
    assert len(head.commit) == NAME_BYTES
    body = _HEAD.pack(head.sequence, head.commit)
    return head_name(head.device), seal_whole(keys, Kind.HEAD, salt, body, codec, bound=head.device)


def decode_head(keys: Keys, device: DeviceId, raw: bytes, codec: Codec) -> Head:
    """The head of a device by its object.

    Raises:
        DamagedObjectError: Damaged, another device's, or not made with this repository's key.
        FormatTooNewError: A newer blocksync's.
    """
    name = head_name(device)
    body = open_whole(keys, Kind.HEAD, name, raw, codec, bound=device, limit=_HEAD.size)
    if len(body) != _HEAD.size:
        raise DamagedObjectError(name, "is malformed: no head of ours")
    sequence, commit = _HEAD.unpack(body)
    if not 0 < sequence <= MAX_NUMBER:
        raise DamagedObjectError(name, "is malformed: its sequence is out of range")
    return Head(device=device, sequence=sequence, commit=CommitId(commit))


def commit_name(commit: CommitId) -> str:
    """The name of a commit's object."""
    return object_name(Kind.COMMIT, commit)


def commit_of(name: str) -> CommitId | None:
    """The commit in the name of an object; None: no commit has such a name."""
    digest = digest_of(Kind.COMMIT, name)
    return None if digest is None else CommitId(digest)


def head_name(device: DeviceId) -> str:
    """The name of a head's object."""
    assert len(device) == DEVICE_BYTES
    return Kind.HEAD.folder + device.hex()


def device_of(name: str) -> DeviceId | None:
    """The device in the name of an object; None: no head has such a name."""
    try:
        device = DeviceId(bytes.fromhex(name[-2 * DEVICE_BYTES :]))
    except ValueError:
        return None
    return device if len(device) == DEVICE_BYTES and head_name(device) == name else None


def _parse_commit(body: bytes) -> Commit:
    number, device, time_ns, parents, seen, *lengths = _COMMIT.unpack_from(body)
    at = _COMMIT.size
    pairs = at + NAME_BYTES * parents
    texts = pairs + _SEEN.size * seen
    if len(body) != texts + sum(lengths):
        raise ValueError
    numbers = [_SEEN.unpack_from(body, pairs + _SEEN.size * place) for place in range(seen)]
    if not _is_ascending(device for device, _ in numbers):
        raise ValueError
    tool = texts + lengths[0]
    name = tool + lengths[1]
    return Commit(
        parents=tuple(CommitId(body[at + NAME_BYTES * n : at + NAME_BYTES * (n + 1)]) for n in range(parents)),
        vector=Vector(dict(numbers)),
        root=body[texts:tool],
        number=number,
        device=device,
        time_ns=time_ns,
        tool=body[tool:name].decode("ascii"),
        name=body[name:].decode(),
    )


def _fault(commit: Commit) -> str | None:  # the rules in one place: who writes and who reads ask the same
    numbers = commit.vector.numbers
    others = (number for device, number in numbers.items() if device != commit.device)
    rules = {
        "an id has the wrong length": (
            len(commit.device) == DEVICE_BYTES
            and all(len(device) == DEVICE_BYTES for device in numbers)
            and all(len(parent) == NAME_BYTES for parent in commit.parents)
        ),
        "its parents are not in order": _is_ascending(commit.parents),
        "it has too many parents or devices": max(len(commit.parents), len(numbers)) <= MAX_DEVICES,
        "its numbers are out of range": (
            0 < commit.number <= MAX_NUMBER
            and 0 <= commit.time_ns <= MAX_NUMBER
            and min(numbers.values(), default=0) > 0
        ),
        "its number is not the highest": (
            numbers.get(commit.device) == commit.number and max(others, default=0) < commit.number
        ),
        "a text is too long": (
            len(commit.root) <= MAX_ROOT_BYTES
            and len(commit.tool) <= MAX_TOOL_BYTES
            and len(commit.name.encode()) <= MAX_NAME_BYTES
        ),
        "a text can't be shown": commit.tool.isascii() and (commit.tool + commit.name).isprintable(),
    }
    return next((reason for reason, holds in rules.items() if not holds), None)


def _is_ascending(values: Iterable[bytes]) -> bool:
    return all(before < after for before, after in pairwise(values))
