"""What a repository holds, in figures.

Source: docs/reference/repo.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import trio

from syncer.core.model import Kind as NodeKind
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.format.keys import Content
from syncer.remote.repository.format.sealed import Kind
from syncer.remote.repository.maintenance.marking import GRACE_NS, Marker, look, used
from syncer.remote.repository.maintenance.settings import settings_of
from syncer.remote.repository.objects import Objects
from syncer.remote.repository.opening import Kept

_NOBODY: Final = "stats"  # writes nothing


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What there is.

    Attributes:
        files: In the share as it is now.
        logical_bytes: Of them.
        distinct_bytes: Of the contents of all commits that are kept, each chunk once, holes not at all.
        stored_bytes: Of all objects.
        packs: How many.
        pack_bytes: Of them.
        live_bytes: What of the packs is needed by heads and kept commits.
        condemned_packs: That will be deleted.
        commits: That are there.
        devices: That have a head.
        indexes: That are looked into.
        keys: Slots.
        keep_s: Commits younger than that are kept.
    """

    files: int
    logical_bytes: int
    distinct_bytes: int
    stored_bytes: int
    packs: int
    pack_bytes: int
    live_bytes: int
    condemned_packs: int
    commits: int
    devices: int
    indexes: int
    keys: int
    keep_s: int


async def figures_of(objects: Objects, kept: Kept, told: Callable[[str], None]) -> Figures:
    """Look at all trees; reads no contents.

    Args:
        objects: The repository's.
        kept: Its config.
        told: Hears how far it is.

    Raises:
        SyncerError: The store can't be asked, or a tree can't be read.
    """
    settings = await settings_of(objects)
    sight = await look(objects, keep_ns=settings.keep_ns, grace_ns=GRACE_NS)
    writer = Writer(device=DeviceId(kept.device), name=_NOBODY, tool=_NOBODY)
    listing = await RepositoryClient(objects, kept.config, writer).list_objects()
    sizes = [stat.content.size_bytes for stat in listing.objects if stat.kind is NodeKind.FILE and stat.content]
    uses = await trio.to_thread.run_sync(used, Marker(objects, sight), sight, told)
    blobs = await objects.store.listing("")
    return Figures(
        files=len(sizes),
        logical_bytes=sum(sizes),
        distinct_bytes=sum(use.plain_bytes for use in uses.values() if use.content is Content.FILES),
        stored_bytes=sum(blob.size_bytes for blob in blobs),
        packs=len(sight.packs),
        pack_bytes=sum(blob.size_bytes for blob in sight.packs.values()),
        live_bytes=sum(use.live_bytes for use in uses.values()),
        condemned_packs=len(sight.condemned_packs & sight.packs.keys()),
        commits=len(sight.commits),
        devices=sum(blob.name.startswith(Kind.HEAD.folder) for blob in blobs),
        indexes=len(objects.live_indexes()),
        keys=sum(blob.name.startswith("keys/") for blob in blobs),
        keep_s=settings.keep_s,
    )
