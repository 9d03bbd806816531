"""Mounted volumes of this user, asked by their control sockets, as `stats`, `status` and `snapshot ls` ask them."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Final

from blockfs.control.client import ControlClient
from blockfs.control.maps import SharingReply
from blockfs.errors import NotFoundError, UsageError
from blockfs.runtime.failures import said
from blockfs.runtime.mountinfo import FILESYSTEM_TYPE, read_mounts
from syncer.cli.ui.history import History
from syncer.errors import EXPECTED
from syncer.ui.ports import MapFacts, MountFacts, SharerFacts, SnapshotFacts, Use, VolumeFacts

_MOST: Final = 30
"""Files that are listed."""


def mounts() -> list[MountFacts]:
    """By mountpoint, each volume once. Those of other users are none of ours, also for root."""
    found: dict[bytes, MountFacts] = {}
    for mount in read_mounts():
        if mount.filesystem_type == FILESYSTEM_TYPE and mount.root == b"/" and mount.source not in found:
            facts = _facts(mount.source, mount.mountpoint)
            if facts is not None:
                found[mount.source] = facts
    return sorted(found.values(), key=lambda facts: facts.mountpoint)


def volume(uuid: str, history: History) -> VolumeFacts:
    """What is in a mounted volume, which is noted in its history.

    Raises:
        NotFoundError: It is not mounted.
        UsageError: Its mount draws no maps.
        BlockfsError: As `ControlClient`.
    """
    with _client(uuid) as client:
        told = client.sharing(_MOST)
        kept = client.snapshots()
    now = use_of(told)
    history.note(uuid, now)
    return VolumeFacts(
        files=told.files,
        filled_bytes=told.filled_bytes,
        now=now,
        past=history.of(uuid),
        snapshots=tuple(
            SnapshotFacts(
                name=each.name,
                source=each.source,
                created_s=each.created_ns / 1e9,
                files=each.files,
                logical_bytes=each.logical_bytes,
            )
            for each in sorted(kept, key=lambda each: -each.created_ns)
        ),
        sharers=tuple(
            SharerFacts(
                path=each.path,
                size_bytes=each.size_bytes,
                blocks=each.blocks,
                shared=each.shared,
                shared_bytes=min(each.shared * told.block_size, each.size_bytes),
                other=each.other,
            )
            for each in told.sharers
        ),
        is_whole=told.is_whole,
    )


def block_map(uuid: str, path: bytes, cells: int, part: tuple[int, int]) -> MapFacts:
    """The map of a file, or of a part of it: see `PagePorts`.

    Raises:
        NotFoundError, UsageError, BlockfsError: As `volume`; there is no such file.
    """
    with _client(uuid) as client:
        told = client.block_map(path, cells, *part)
    return MapFacts(
        size_bytes=told.size_bytes,
        block_size=told.block_size,
        blocks=told.blocks,
        cells=tuple((each.holes, each.staged, each.own, each.shared, each.other) for each in told.cells),
        others=tuple((each.path, each.blocks) for each in told.others),
        is_whole=told.is_whole,
        is_behind=told.is_behind,
        first=told.first,
        file_blocks=told.file_blocks or told.blocks,
    )


def note_all(history: History) -> None:
    """Note what each mounted volume holds; of one that does not answer there is nothing to note."""
    for mount in mounts():
        if not mount.trouble and history.is_due(mount.uuid, time.time()):
            with contextlib.suppress(*EXPECTED), ControlClient(mount.volume) as client:
                if client.draws_maps:
                    history.note(mount.uuid, use_of(client.sharing(0)))


def use_of(told: SharingReply) -> Use:
    """What a mount has told of now."""
    return Use(
        at_s=time.time(),
        logical_bytes=told.logical_bytes,
        unique_bytes=told.unique_bytes,
        stored_bytes=told.stored_bytes,
    )


def _facts(path: bytes, mountpoint: bytes) -> MountFacts | None:
    """A mount; None: another user's."""
    try:
        if os.stat(path).st_uid != os.geteuid():
            return None
        with ControlClient(path) as client:
            told = client.status()
    except (OSError, *EXPECTED) as error:
        return MountFacts(uuid="", volume=path, mountpoint=mountpoint, trouble=said(error))
    return MountFacts(
        uuid=told.uuid,
        volume=path,
        mountpoint=mountpoint,
        staged_bytes=told.staged_bytes,
        scrub=(told.scrub_blocks_done, told.scrub_blocks),
    )


def _client(uuid: str) -> ControlClient:
    """Who serves a volume, and draws maps."""
    path = next((mount.volume for mount in mounts() if mount.uuid == uuid and uuid), None)
    if path is None:
        raise NotFoundError("this volume is not mounted any more")
    client = ControlClient(path)
    if not client.draws_maps:
        client.close()
        raise UsageError("the mount is of an older release, which draws no maps; unmount it and mount it again")
    return client
