"""Is it still the same root, the same container, and may the plan delete that much? Pure.

A deletion needs positive evidence. What looks like "everything was deleted" is mostly an unmounted disk, another
folder under the same name, or a server restored from an old backup.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from blockfs.runtime.units import counted
from syncer.core.model import Ages, BaseRow, Deletions, Plan, Position, RemoteStat, latest
from syncer.errors import RootIdentityError, SafetyStopError

MAX_DELETIONS: Final = 1000
"""More deletions than this on one side need consent."""

MIN_FOR_SHARE: Final = 10
"""From this many deletions on, half of a side's nodes needs consent: in a small folder a half is an everyday change."""


class RootIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What a local root is recognised by.

    Attributes:
        marker: Random text in the root's marker file, or the volume's UUID. Empty if there is none now.
        ino: Inode number of the root directory; 1 for each blockfs mount.
        volume: The marker is a volume's UUID: the root is a blockfs mount (or a folder in one).
    """

    marker: str
    ino: int
    volume: bool


class ContainerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What a container is recognised by.

    Attributes:
        uuid: `X-Container-Identity`; None on a server that does not tell (plain Pithos).
        seen: Moment of the latest look. It never goes back, unless an old backup was restored.
        block_size: Bytes per block; content names are meaningless across sizes.
        block_hash: Name of the block hash.
    """

    uuid: str | None
    seen: Position
    block_size: int
    block_hash: str


def check_root(linked: RootIdentity, found: RootIdentity | None) -> None:
    """Refuse to look at a root that is not the linked one.

    The device number is not compared: it may change with a reboot. A copy of the root has another inode.

    Raises:
        RootIdentityError: No root there, no marker, another marker, another inode, another kind of root.
    """
    if found is None or not found.marker:
        raise RootIdentityError("the root", _describe(linked), "nothing that identifies it: is it mounted?")
    if found != linked:
        raise RootIdentityError("the root", _describe(linked), _describe(found))


def _describe(root: RootIdentity) -> str:
    return f"{'volume' if root.volume else 'folder'} {root.marker} (inode {root.ino})"


def check_container(linked: ContainerIdentity, found: ContainerIdentity) -> None:
    """Refuse to compare with a container that is not the linked one. That it is no older one, `check_age` says.

    Raises:
        RootIdentityError: Another identity, block size or block hash.
    """
    if linked.uuid is not None and found.uuid != linked.uuid:
        raise RootIdentityError("the container", f"identity {linked.uuid}", f"{found.uuid or 'none'}")
    if (linked.block_size, linked.block_hash) != (found.block_size, found.block_hash):
        raise RootIdentityError(
            "the container",
            f"{linked.block_hash} blocks of {linked.block_size} bytes",
            f"{found.block_hash} blocks of {found.block_size} bytes",
        )


def check_age(
    seen: Position | None,
    rows: Iterable[BaseRow],
    objects: Iterable[RemoteStat],
    told: Position,
    ages: Ages,
) -> None:
    """Refuse what the server tells if it is older than what is already known of it.

    A replica that lags, or a restored backup, would make our own writes look like deletions by somebody else. What was
    seen of the container does not know what was written since; the base rows do. And where a server names no moments
    (plain Pithos), an object that is known by a later version gives the age away.

    Args:
        seen: Moment of the latest look before; None: there was none.
        rows: Base rows; all, or those in the affected part of the tree.
        objects: What the server tells, or some of it.
        told: The moment that it tells of.
        ages: Of that server.

    Raises:
        RootIdentityError: A container is older.
        RolledBackError: A repository is.
    """
    known = [row.remote for row in rows if row.remote is not None]
    newest = latest(known, ages)
    for mark in (seen, newest):
        if mark is not None and ages.is_later(mark, told):
            raise ages.older(f"{ages.name(mark)} or later", ages.name(told))
    # Also where it tells of a moment later than all that is known: others may have written since it was put back.
    versions = {tag.uuid: tag for tag in known if tag.uuid}
    for stat in objects:
        before = versions.get(stat.tag.uuid)
        if before is not None and before != stat.tag and ages.is_later(before, stat.tag):
            name = stat.path.decode("utf-8", "backslashreplace")
            expected = f"{ages.name(before)} of {name} or later"
            raise ages.older(expected, ages.name(stat.tag))


def check_deletions(plan: Plan, consent: str | None = None, root: str = "ROOT") -> None:
    """Stop a plan that deletes suspiciously much, unless a person agreed to exactly these deletions.

    Args:
        plan: The plan, before anything of it is done.
        consent: The digest given with `--allow-deletes`.
        root: How a command names the root, for the message.

    Raises:
        SafetyStopError: More than 1,000 deletions, at least 10 that are half of a side, or a side left empty.
    """
    reasons = objections(plan)
    if reasons and consent != plan.digest:
        raise SafetyStopError(plan.digest, sum(each.deleted for each in plan.deletions), "; ".join(reasons), root)


def objections(plan: Plan) -> list[str]:
    """Why a plan needs consent, in words; empty if it does not."""
    return [reason for deletions in plan.deletions if (reason := objection(deletions)) is not None]


def objection(deletions: Deletions) -> str | None:
    """Which limit one side's deletions meet, in words; None if none."""
    deleted, before, side = deletions.deleted, deletions.nodes_before, deletions.side.value
    if deleted == 0:
        return None
    if deletions.nodes_after == 0:
        return f"the plan would leave the {side} side empty ({counted(deleted, 'deletion', 'deletions')})"
    if deleted > MAX_DELETIONS:
        return f"the plan would delete {deleted} of {before} nodes on the {side} side (limit {MAX_DELETIONS})"
    if deleted >= MIN_FOR_SHARE and 2 * deleted >= before:
        return f"the plan would delete {deleted} of {before} nodes on the {side} side (limit: half)"
    return None
