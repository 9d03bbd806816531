"""The remote side's observation, completed; what the container is recognised by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from blockfs.blocks.hashing import block_id
from syncer.core.base import BaseIndex
from syncer.core.model import FileStat, Kind, Position, RemoteStat
from syncer.core.planner.safety import ContainerIdentity
from syncer.engine.report import Failure, code_of_one
from syncer.errors import ConflictOnRemoteError, CorruptionError
from syncer.ports.remote import RemoteInfo
from syncer.protocol.extensions.bulk_read import MAX_OBJECTS
from syncer.remote.client import CloudClient
from syncer.remote.parallel import for_each

_LINKS_NAMED: Final = 20  # remarks that a person still reads
_TARGET_BYTES: Final = 4096  # no link's text is longer; it is one block on every server
_RESOLVERS: Final = 8  # HEAD requests at once, only on servers whose listings carry no metadata


def container_identity(info: RemoteInfo, seen: Position) -> ContainerIdentity:
    """What a container is recognised by."""
    grid = info.grid
    return ContainerIdentity(uuid=info.identity, seen=seen, block_size=grid.block_size, block_hash=grid.block_hash)


async def resolve_changed(
    remote: CloudClient, stats: Iterable[RemoteStat], base: BaseIndex
) -> tuple[list[RemoteStat], list[Failure]]:
    """Fill in what a plain Pithos' listing lacks, for objects that are not the base's versions.

    Returns:
        The objects, and those of them that could not be read: they stay as they were listed, and take no other along.
    """
    known = {row.remote for row in base.rows.values() if row.remote is not None}
    found: list[RemoteStat] = []
    lacking: list[RemoteStat] = []
    failures: list[Failure] = []
    for stat in stats:
        bare = stat.meta is None or (stat.kind is Kind.SYMLINK and stat.target is None)
        (lacking if bare and stat.tag not in known else found).append(stat)
    lacking, read = await _read_targets(remote, lacking)
    found += read

    async def resolve(stat: RemoteStat) -> None:
        try:
            found.append(await remote.resolve(stat))
        except (CorruptionError, ConflictOnRemoteError) as error:
            found.append(stat)
            reason = f"it can't be read: {error}"
            failures.append(Failure(path=stat.path, reason=reason, exit_code=code_of_one(error)))

    if lacking:
        await for_each(iter(lacking), resolve, min(_RESOLVERS, len(lacking)))
    return found, failures


async def _read_targets(remote: CloudClient, stats: Sequence[RemoteStat]) -> tuple[list[RemoteStat], list[RemoteStat]]:
    """Fill in the texts of links, many by one request where the server can that.

    Returns:
        Those that still lack something, and those that do not.
    """
    links = [stat for stat in stats if stat.meta is not None and stat.tag.size_bytes <= _TARGET_BYTES]
    found: dict[int, RemoteStat] = {}
    for first in range(0, len(links), MAX_OBJECTS):
        part = links[first : first + MAX_OBJECTS]
        with suppress(CorruptionError, ConflictOnRemoteError):  # whose fault it was, asking for each alone tells
            for stat, data in zip(part, await remote.read_small([(each.path, each.tag) for each in part]), strict=True):
                if data is not None and block_id(data).hex() == stat.tag.etag:
                    found[id(stat)] = replace(stat, target=data.ljust(stat.tag.size_bytes, b"\0"))
    return [stat for stat in stats if id(stat) not in found], list(found.values())


def hard_links(stats: Iterable[FileStat]) -> list[tuple[bytes, str]]:
    """Remarks on files that have several names: what a user may think is one file is several on the other devices.

    One remark per inode, on the first of its names that was seen; of many files only the first, and how many there are.
    """
    first: dict[tuple[int, int, int], FileStat] = {}
    for stat in stats:
        if stat.kind is Kind.FILE and stat.nlink > 1:
            known = first.get(stat.tag.inode)
            if known is None or stat.path < known.path:
                first[stat.tag.inode] = stat
    found = sorted(first.values(), key=lambda stat: stat.path)
    notes = [
        (bytes(stat.path), f"it has {stat.nlink} names (hard links): each is synced as a file of its own")
        for stat in found[:_LINKS_NAMED]
    ]
    if len(found) > _LINKS_NAMED:
        notes.append((b"", f"{len(found) - _LINKS_NAMED} more files have several names (hard links)"))
    return notes
