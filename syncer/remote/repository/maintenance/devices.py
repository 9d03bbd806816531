"""The devices of a repository, by their heads; and forgetting one, so that its head keeps nothing any more.

Only a head is deleted that another one builds on: what the device has committed is in the share all the same. A device
that is forgotten and comes back finds no head of its own, looks at what there is, and writes another one.

Source: docs/design/repository.md, section 18.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import msgspec

from syncer.errors import DamagedObjectError, NotFoundError, UsageError
from syncer.remote.repository.format.history import (
    Commit,
    CommitId,
    DeviceId,
    Head,
    commit_of,
    head_name,
)
from syncer.remote.repository.format.sealed import Kind
from syncer.remote.repository.headless import ON_ITS_WAY_NS
from syncer.remote.repository.objects import Objects


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One that has written.

    Attributes:
        device: Its id.
        name: What people call it.
        tool: The release that it wrote with.
        written_ns: When it wrote its head, since the epoch, by the store's clock.
        has_followers: Another device's head builds on its last commit.
    """

    device: DeviceId
    name: str
    tool: str
    written_ns: int
    has_followers: bool


def is_followed(commit: Commit, others: Iterable[Commit]) -> bool:
    """Whether some other device's commit has seen this one. Pure."""
    return any(other.device != commit.device and other.vector.covers(commit.dot) for other in others)


async def devices_of(objects: Objects) -> list[Device]:
    """All that have a head, the one that wrote last first."""
    written = {blob.name: blob.modified_ns for blob in await objects.store.listing(Kind.HEAD.folder)}
    commits = await _named(objects, await objects.heads())
    found = [
        Device(
            device=device,
            name=commit.name,
            tool=commit.tool,
            written_ns=written.get(head_name(device), 0),
            has_followers=is_followed(commit, commits.values()),
        )
        for device, commit in commits.items()
    ]
    return sorted(found, key=lambda each: (-each.written_ns, each.device))


async def forget(objects: Objects, ident: str) -> Device:
    """Delete a device's head.

    Args:
        objects: The repository's.
        ident: Its id in hex, or a beginning that no other one has.

    Raises:
        NotFoundError: No device is called so.
        UsageError: Several are; or nobody has seen its last commit, which would be lost.
    """
    devices = [each for each in await devices_of(objects) if ident and each.device.hex().startswith(ident.lower())]
    if not devices:
        raise NotFoundError(f"no device of the repository is called {ident!r}; `blocksync repo devices` tells them")
    if len(devices) > 1:
        raise UsageError(f"{len(devices)} devices begin with {ident}: expected more digits")
    (device,) = devices
    since_ns = await objects.store.now_ns() - ON_ITS_WAY_NS
    before = {blob.name: blob for blob in await objects.store.listing(Kind.COMMIT.folder)}
    heads = await objects.heads()
    head, commits = heads.get(device.device), await _named(objects, heads)
    if head is None:
        raise NotFoundError(f"the device {device.device.hex()} was forgotten by somebody else just now")
    if not is_followed(commits[device.device], commits.values()):
        raise UsageError(
            f"no other device has committed since {device.name or device.device.hex()} did: forgetting it would lose "
            "what it committed last, so nothing was done. Change something on another device, `blocksync reconcile` "
            "it, and try again"
        )
    young = [name for blob in before.values() if blob.modified_ns >= since_ns and (name := commit_of(blob.name))]
    last = commits[device.device].number
    for commit in (await objects.commits(young)).values():
        if commit.device == device.device and commit.number > last and not is_followed(commit, commits.values()):
            raise _committing(device.device)
    await objects.store.delete(head_name(device.device))
    await _see_that_it_was_at_rest(objects, head, before, commits)
    return device


async def _see_that_it_was_at_rest(
    objects: Objects, head: Head, before: Container[str], commits: Mapping[DeviceId, Commit]
) -> None:
    """A head that the device wrote right before it was deleted is put back: its commit came before it.

    Raises:
        UsageError: It was.
    """
    others = [commit for device, commit in commits.items() if device != head.device]
    for blob in await objects.store.listing(Kind.COMMIT.folder):
        name = commit_of(blob.name)
        if name is None or blob.name in before:
            continue
        commit = (await objects.commits([name]))[name]
        if commit.device != head.device or is_followed(commit, others):
            continue
        if await objects.head(head.device) is None:
            await objects.put_head(Head(device=head.device, sequence=head.sequence + 1, commit=name))
        raise _committing(head.device)


def _committing(device: DeviceId) -> UsageError:
    return UsageError(f"the device {device.hex()} is committing at this moment: it was not forgotten")


async def _named(objects: Objects, heads: Mapping[DeviceId, Head]) -> dict[DeviceId, Commit]:
    commits: dict[CommitId, Commit] = await objects.commits([head.commit for head in heads.values()], must=True)
    found = {device: commits[head.commit] for device, head in heads.items()}
    for device, commit in found.items():
        if commit.device != device:
            raise DamagedObjectError(head_name(device), "names another device's commit")
    return found
