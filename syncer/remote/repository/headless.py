"""A repository in which no device has a head: it is new, it was just begun, or it has lost its heads.

A push puts its commit, then its head; and a head is deleted only if another one builds on it
(`maintenance.devices`). So where no head is, there was never any, or the store has lost them. Commits tell which: one
that has parents was made by who saw heads. One without may be of a first push that is about to put its head, or was cut
short right before; for an hour it is given the benefit of the doubt, and by its own device for ever: the repository is
empty until that push ends, and who has seen more in it stops all the same (`core.planner.safety`). Packs and indexes
alone say nothing: they are what a first push leaves that was cut short earlier.

Source: docs/design/repository.md, sections 14 to 16.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final

from syncer.errors import NotFoundError
from syncer.remote.repository.format.history import Commit, CommitId, DeviceId, Head, commit_of
from syncer.remote.repository.format.sealed import Kind
from syncer.remote.repository.memory import Own
from syncer.remote.repository.objects import Objects

ON_ITS_WAY_NS: Final = 3600 * 10**9
"""A commit that is older, and that no head names, was given up by its device."""

LOST: Final = (
    f"there are commits, and no head of any device says which one is the last: {Kind.HEAD.folder}* is missing from the "
    "store, or the first push of all was cut short"
)


class Headless(Enum):
    """What it means that there is no head; if a commit says `LOST`, that counts."""

    NEW = "new"
    LOST = "lost"


def judge_commit(commit: Commit, modified_ns: int, now_ns: int, mine: Collection[DeviceId]) -> Headless:
    """What one commit says, where no head is. Pure.

    Args:
        commit: What is there.
        modified_ns: When it was stored, by the store's clock.
        now_ns: The time by that clock.
        mine: Devices that know of themselves that they have never put a head.
    """
    if commit.parents:
        return Headless.LOST
    is_on_its_way = commit.device in mine or modified_ns + ON_ITS_WAY_NS > now_ns
    return Headless.NEW if is_on_its_way else Headless.LOST


async def look_without_heads(objects: Objects, mine: Collection[DeviceId] = ()) -> Headless | None:
    """Find out what it means that a listing told of no head.

    Args:
        objects: The repository's.
        mine: See `judge_commit`.

    Returns:
        None: there is one by now.

    Raises:
        DamagedObjectError: A commit is not what it was.
        SyncerError: The store can't be asked.
    """
    blobs = await objects.store.listing(Kind.COMMIT.folder)
    found, now_ns = Headless.NEW, await objects.store.now_ns() if blobs else 0
    has_commits = False
    for blob in blobs:
        if (name := commit_of(blob.name)) is None:
            continue
        try:
            commit = (await objects.commits([name]))[name]
        except NotFoundError:
            continue  # it was collected, so there is a head by now
        has_commits, found = True, judge_commit(commit, blob.modified_ns, now_ns, mine)
        if found is Headless.LOST:
            break
    # Whoever's commit was just seen may have put its head since the listing that told of none.
    return None if has_commits and await objects.heads() else found


async def heads_there(objects: Objects) -> tuple[dict[DeviceId, Head], Headless]:
    """The heads of all devices, for who only looks; and what it means if there are none.

    Raises:
        DamagedObjectError: A head or a commit is not what it was.
        SyncerError: The store can't be asked.
    """
    while True:
        heads = await objects.heads()
        found = Headless.NEW if heads else await look_without_heads(objects)
        if found is not None:
            return heads, found


async def was_forgotten(objects: Objects, own: Own, heads: Collection[Head]) -> bool:
    """Whether a device whose head is gone was forgotten, which is only done where others have its last commit.

    Args:
        objects: The repository's.
        own: What the device remembers; it has put a head.
        heads: Those of other devices.

    Returns:
        True also where that can't be told: what it committed is gone, for it was forgotten long ago.

    Raises:
        DamagedObjectError: A commit that a head names is missing, or not what it was.
    """
    if not heads:
        return False
    try:
        (ours,) = (await objects.commits([CommitId(own.commit)])).values()
    except NotFoundError:
        return True
    others = await objects.commits([head.commit for head in heads], must=True)
    return any(other.vector.covers(ours.dot) for other in others.values())
