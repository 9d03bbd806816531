"""What garbage collection will delete: an object lists what nobody needs, a grace period before anything goes.

Byte table of the body, integers big-endian:

    0    16  device that made it
    16   8   time, nanoseconds since the epoch by the device's clock: told to people; the grace counts by the store's
    24   4   p, how many packs
    28   4   i, how many indexes
    32   4   c, how many commits
    36   …   p, then i, then c digests of 32 bytes, each of the three ascending

Named by its content, as they may be made by two devices at once.

Source: docs/design/repository.md, section 9.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

import msgspec

from syncer.errors import DamagedObjectError
from syncer.remote.repository.format.codec import Codec
from syncer.remote.repository.format.history import DEVICE_BYTES, MAX_NUMBER, DeviceId
from syncer.remote.repository.format.keys import Keys
from syncer.remote.repository.format.sealed import NAME_BYTES, Kind, object_name, open_whole, seal_whole

MAX_DIGESTS: Final = 1 << 18  # 8 MiB; packs of 4 TiB: who condemns more makes several
_HEADER: Final = struct.Struct(">16sQ3I")
_MAX_BYTES: Final = _HEADER.size + MAX_DIGESTS * NAME_BYTES


class Condemned(msgspec.Struct, frozen=True, kw_only=True):
    """What will be deleted.

    Attributes:
        device: Who found that nobody needs them.
        time_ns: When, nanoseconds since the epoch, by its clock.
        packs: Digests, ascending.
        indexes: Digests, ascending.
        commits: Digests, ascending.
    """

    device: DeviceId
    time_ns: int
    packs: tuple[bytes, ...] = ()
    indexes: tuple[bytes, ...] = ()
    commits: tuple[bytes, ...] = ()


def encode(keys: Keys, salt: bytes, condemned: Condemned, codec: Codec) -> tuple[str, bytes]:
    """The object's name and its bytes. `salt` are 16 fresh random bytes; at most 2^18 digests."""
    assert _is_sound(condemned)
    lists = (condemned.packs, condemned.indexes, condemned.commits)
    header = _HEADER.pack(condemned.device, condemned.time_ns, *map(len, lists))
    body = header + b"".join(digest for each in lists for digest in each)
    raw = seal_whole(keys, Kind.CONDEMNED, salt, body, codec)
    return object_name(Kind.CONDEMNED, hashlib.sha256(raw).digest()), raw


def decode(keys: Keys, name: str, raw: bytes, codec: Codec) -> Condemned:
    """What will be deleted.

    Raises:
        DamagedObjectError: Not what its name says, or not made with this repository's key.
        FormatTooNewError: A newer blocksync's.
    """
    body = open_whole(keys, Kind.CONDEMNED, name, raw, codec, limit=_MAX_BYTES)
    decoded = _parse(body)
    if decoded is None or not _is_sound(decoded):
        raise DamagedObjectError(name, "is malformed: no such list of ours")
    return decoded


def _parse(body: bytes) -> Condemned | None:
    if len(body) < _HEADER.size:
        return None
    device, time_ns, *counts = _HEADER.unpack_from(body)
    if len(body) != _HEADER.size + NAME_BYTES * sum(counts):
        return None
    digests = [body[at : at + NAME_BYTES] for at in range(_HEADER.size, len(body), NAME_BYTES)]
    packs, rest = digests[: counts[0]], digests[counts[0] :]
    return Condemned(
        device=device,
        time_ns=time_ns,
        packs=tuple(packs),
        indexes=tuple(rest[: counts[1]]),
        commits=tuple(rest[counts[1] :]),
    )


def _is_sound(condemned: Condemned) -> bool:
    lists = (condemned.packs, condemned.indexes, condemned.commits)
    return (
        len(condemned.device) == DEVICE_BYTES
        and 0 <= condemned.time_ns <= MAX_NUMBER
        and sum(map(len, lists)) <= MAX_DIGESTS
        and all(len(digest) == NAME_BYTES for each in lists for digest in each)
        and all(list(each) == sorted(set(each)) for each in lists)
    )
