"""The remote side's observation, completed; what the container is recognised by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from syncer.core.base import BaseIndex
from syncer.core.model import FileStat, Kind, Position, RemoteStat
from syncer.core.planner.safety import ContainerIdentity
from syncer.engine.report import Failure, code_of_one
from syncer.ports.remote import Remote, RemoteInfo

_LINKS_NAMED: Final = 20  # remarks that a person still reads


def container_identity(info: RemoteInfo, seen: Position) -> ContainerIdentity:
    """What a container is recognised by."""
    grid = info.grid
    return ContainerIdentity(uuid=info.identity, seen=seen, block_size=grid.block_size, block_hash=grid.block_hash)


async def resolve_changed(
    remote: Remote, stats: Iterable[RemoteStat], base: BaseIndex
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
        (lacking if stat.is_bare and stat.tag not in known else found).append(stat)
    for stat, full in zip(lacking, await remote.resolve(lacking) if lacking else (), strict=True):
        if isinstance(full, RemoteStat):
            found.append(full)
        else:
            found.append(stat)
            failures.append(Failure(path=stat.path, reason=f"it can't be read: {full}", exit_code=code_of_one(full)))
    return found, failures


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
