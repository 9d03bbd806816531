"""What a person hears about snapshots: the same from a mount and from an unmounted volume."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from blockfs.control.snapshots import SnapshotMsg, SnapshotRestore, SnapshotsReply
from blockfs.engine.copies.snapshots import Snapshot
from blockfs.errors import FsError, NotFoundError, UsageError
from blockfs.runtime.output import shown


def snapshots_reply(snapshots: Iterable[Snapshot]) -> SnapshotsReply:
    """Snapshots as the control socket tells them."""
    return SnapshotsReply(
        snapshots=[
            SnapshotMsg(
                name=snapshot.name,
                source=snapshot.row.source,
                created_ns=snapshot.row.created_ns,
                files=snapshot.row.files,
                logical_bytes=snapshot.row.logical_bytes,
            )
            for snapshot in snapshots
        ]
    )


@contextmanager
def errors_of_create(source: bytes, name: bytes) -> Iterator[None]:
    """Say what a person must know about a snapshot that can't be made."""
    try:
        yield
    except FsError as error:
        match error.errno:
            case errno.EEXIST:
                raise UsageError(f"there is a snapshot {shown(name)}; delete it first, or take another name") from error
            case errno.ENOENT | errno.ENOTDIR:
                raise NotFoundError(f"{shown(source)} does not exist") from error
            case errno.EROFS:
                raise UsageError(f"{shown(source)} lies in a snapshot; restore it to take one of it") from error
            case errno.EINVAL | errno.ENAMETOOLONG:
                raise UsageError(_bad_name(name)) from error
        raise


@contextmanager
def errors_of_lookup(name: bytes) -> Iterator[None]:
    """Say what a person must know about a snapshot that is not there."""
    try:
        yield
    except FsError as error:
        if error.errno in {errno.ENOENT, errno.EINVAL, errno.ENAMETOOLONG}:
            raise NotFoundError(
                f"there is no snapshot {shown(name)}; `blocksync snapshot list` shows which there are"
            ) from error
        raise


@contextmanager
def errors_of_restore(request: SnapshotRestore) -> Iterator[None]:
    """Say what a person must know about what can't be restored."""
    try:
        yield
    except FsError as error:
        wanted = f"{shown(request.path)} of snapshot {shown(request.name)}" if request.path else shown(request.name)
        target = shown(request.dst)
        match error.errno:
            case errno.EEXIST:
                raise UsageError(f"{target} exists; restore makes something new only") from error
            case errno.ENOENT | errno.ENOTDIR:
                raise NotFoundError(f"there is no snapshot or file {wanted}, or {target} has no directory") from error
            case errno.EROFS:
                raise UsageError(f"{target} lies in a snapshot, which never changes") from error
            case errno.EINVAL | errno.ENAMETOOLONG:
                raise UsageError(f"can't restore {wanted} as {target}: one of them is no acceptable path") from error
        raise


def _bad_name(name: bytes) -> str:
    return f"{shown(name)!r} can't name a snapshot: 1 to 255 bytes without '/', not '.' or '..'"
