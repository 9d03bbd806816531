"""`BlobStore`: named bytes on a store that others use at the same time. What every implementation keeps to.

Rules (tests/contract/test_blob_stores.py holds every implementation against them):

- An object is there as a whole or not at all, whoever dies in between.
- `put` returns when what it wrote survives the store's power cut, as far as the store promises that at all.
- Nothing is locked, and no condition is trusted as a lock: `absent` saves a transfer and nothing more (Swift, and
  several stores that look like S3, let two writers win; docs/design/stores.md).
- An answer is complete, or an error: no short body, no part of a listing.
- Whoever keeps the store is a stranger: bodies, listings and waits are bounded.

A store does each thing once. Its errors say whether trying again may help; `retrying.py` does that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal, Protocol

import msgspec

from syncer.errors import CorruptionError
from syncer.ports.remote import Counters

MAX_BLOB_BYTES: Final = 64 << 20
"""What `get` takes into memory, unless it is told otherwise: four packs."""

MAX_NAMES: Final = 4_000_000
"""What one listing may hold: with packs of 16 MiB 64 TB; and some 1.2 GB of our memory, so no store can fill that."""

MAX_NAME_CHARACTERS: Final = 512  # S3 and Swift take 1,024 bytes with a prefix, a directory 255 in each segment
_SEGMENT: Final = r"[a-z0-9_-][a-z0-9._-]*"
_NAME: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")


class Blob(msgspec.Struct, frozen=True):
    """An object as a listing tells it; positional, because there may be a million of them.

    Attributes:
        name: See `is_name`.
        size_bytes: Of it.
        modified_ns: When it was written, since the epoch, by the store's clock.
        md5: Of its content, 16 bytes, where the store tells it; else nothing.
    """

    name: str
    size_bytes: int
    modified_ns: int
    md5: bytes = b""


class StoreInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a store says of itself.

    Attributes:
        text: For a person, in a few words.
        absent: Whether `put(absent=True)` mostly spares the body when the object is there. Never a lock.
        max_bytes: The largest object it takes; None: not told.
        waits: How `wait` works: it is told of files that change, or looks now and then.
    """

    text: str
    absent: Literal["never", "mostly"]
    max_bytes: int | None = None
    waits: Literal["files", "polling"] = "polling"


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen. It refutes and never proves: a store that let one writer win in each round may let two win later.

    Attributes:
        most_winners: Of 8 writers at once of a name that was not there, how many were told that they wrote it, at most.
        lists_at_once: A listing told what had just been written, and no more what had just been deleted.
        clock_ahead_ms: The store's clock minus ours; to the second, with most stores.
    """

    most_winners: int
    lists_at_once: bool
    clock_ahead_ms: int


class BlobStore(Protocol):
    """One container, bucket or directory, or what lies below a prefix in it. Safe for many tasks at once.

    Common errors (syncer.errors): RemoteUnavailableError (13; trying again may help; `ReplyLostError` when a write may
    have happened), AuthError (12), NoSpaceError and OverQuotaError (17), NotFoundError (10; also of the container).
    """

    @property
    def counters(self) -> Counters:
        """What was done so far, in requests and bytes."""
        ...

    @property
    def heard_ns(self) -> int | None:
        """The time by the store's clock as of the reply that came last, see `now_ns`; of a listing's, the first one.

        It costs no request. None: replies don't tell it, or there was none.
        """
        ...

    async def open(self, *, create: bool = False) -> StoreInfo:
        """Look whether it is there. The first call, or right after the first listing; may be made again.

        Args:
            create: Make the container or the directory if it is not there.

        Raises:
            NotFoundError: No such container or directory.
            UsageError: What it is called is not acceptable.
        """
        ...

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        """Read an object, or a range of it.

        Args:
            name: See `is_name`.
            span: First byte and length (at least 1), all of it in the object. None: all of it.
            most_bytes: If all of it is longer than that, it is an error.

        Returns:
            Exactly what was asked for. A whole one has been held against the checksum that the store keeps, if it does.

        Raises:
            NotFoundError: No such object.
            CorruptionError: Shorter than the span, or longer than `most_bytes`, or not of its checksum.
        """
        ...

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        """Write an object: durable when it returns, and never a part of it under its name.

        Args:
            name: See `is_name`.
            data: All of it; several pieces are written one after the other.
            absent: Its name is of its content: one that is there is as good, and need not be sent. False: replace it.

        Returns:
            False: it was there already, and is left. True: written.

        Raises:
            OverQuotaError: Too large for a quota, or at all.
        """
        ...

    async def head(self, name: str) -> Blob | None:
        """Look at an object; None if there is none."""
        ...

    async def listing(self, *prefixes: str) -> list[Blob]:
        """All objects below some prefixes, sorted by name; complete, or an error.

        What has a name that we would not give (`is_name`) is not told: it is somebody else's. On a real cluster what
        was just written may be missing for a while, and what was deleted still be there.

        Args:
            prefixes: "", or some that end with a slash, ascending. What is below one is listed no earlier than what is
                below those before it. A store that can list from a name to another one is asked once, so little should
                lie between them.
        """
        ...

    async def delete(self, name: str) -> None:
        """Delete an object; one that is gone already is fine."""
        ...

    async def now_ns(self) -> int:
        """The time by the clock that `Blob.modified_ns` is of, since the epoch; to the second, at worst."""
        ...

    async def wait(self, prefix: str, seen: object) -> object:
        """Return when something below a prefix may have been written or deleted since a moment; our own writes count.

        Args:
            prefix: As for `listing`. Few objects should be below it: it may be listed again and again.
            seen: What this returned before. None: return at once.

        Returns:
            The moment up to which it has looked. Of no use to anything but this method of this store object.
        """
        ...

    async def close(self) -> None:
        """Give connections back. Idempotent."""
        ...


def is_name(name: str) -> bool:
    """Whether an object may be called so: segments of a-z, 0-9, `.`, `_`, `-`, none of them beginning with a dot.

    So no store folds, quotes or normalises it, and files that begin with a dot are a directory store's own. Nobody may
    call one object as the beginning of another's name up to a slash: a directory could not hold both.
    """
    return len(name) <= MAX_NAME_CHARACTERS and _NAME.fullmatch(name) is not None


def is_prefix(prefix: str) -> bool:
    """Whether this may be listed."""
    return not prefix or (prefix.endswith("/") and is_name(prefix[:-1]))


def are_prefixes(prefixes: Sequence[str]) -> bool:
    """Whether these may be listed together."""
    return bool(prefixes) and all(map(is_prefix, prefixes)) and list(prefixes) == sorted(set(prefixes))


def size_of(data: bytes | Sequence[bytes]) -> int:
    """Bytes in all."""
    return len(data) if isinstance(data, bytes) else sum(map(len, data))


def joined(data: bytes | Sequence[bytes]) -> bytes:
    """In one piece."""
    return data if isinstance(data, bytes) else b"".join(data)


def checked(name: str, data: bytes, span: tuple[int, int] | None) -> bytes:
    """What was read, if it is as long as was asked for.

    Raises:
        CorruptionError: It is not.
    """
    if span is not None and len(data) != span[1]:
        raise CorruptionError(f"{name}: {len(data)} bytes at {span[0]}, expected {span[1]}: it is shorter than it was")
    return data


def too_long(name: str, most_bytes: int) -> CorruptionError:
    """An object is longer than it may be."""
    return CorruptionError(f"{name} is longer than {most_bytes} bytes")
