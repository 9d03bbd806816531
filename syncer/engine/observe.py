"""The remote side's observation, completed; what the container is recognised by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from syncer.core.base import BaseIndex
from syncer.core.model import Kind, RemoteStat
from syncer.core.safety import ContainerIdentity
from syncer.remote.client import CloudClient, ContainerInfo
from syncer.remote.parallel import for_each

_RESOLVERS: Final = 8  # HEAD requests at once, only on servers whose listings carry no metadata


def container_identity(info: ContainerInfo, version: int) -> ContainerIdentity:
    """What a container is recognised by."""
    return ContainerIdentity(
        uuid=info.identity, version=version, block_size=info.block_size, block_hash=info.block_hash
    )


async def resolve_changed(remote: CloudClient, stats: Iterable[RemoteStat], base: BaseIndex) -> list[RemoteStat]:
    """Fill in what a plain Pithos' listing lacks, for objects that are not the base's versions."""
    known = {row.remote for row in base.rows.values() if row.remote is not None}
    found: list[RemoteStat] = []
    lacking: list[RemoteStat] = []
    for stat in stats:
        bare = stat.meta is None or (stat.kind is Kind.SYMLINK and stat.target is None)
        (lacking if bare and stat.tag not in known else found).append(stat)

    async def resolve(stat: RemoteStat) -> None:
        found.append(await remote.resolve(stat))

    if lacking:
        await for_each(iter(lacking), resolve, min(_RESOLVERS, len(lacking)))
    return found
