"""What collecting and repacking have in common: a look, how long it holds, and lists of what will be deleted.

Source: docs/design/repository.md, sections 15 and 17.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from syncer.errors import RemoteUnavailableError
from syncer.remote.repository.elapsed import When
from syncer.remote.repository.format import condemned
from syncer.remote.repository.format.condemned import Condemned
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.maintenance.marking import GRACE_NS, Sight, look
from syncer.remote.repository.maintenance.settings import settings_of
from syncer.remote.repository.objects import Objects, fresh_salt

T_co = TypeVar("T_co", covariant=True)


class MaintenanceRun(ABC, Generic[T_co]):
    """One run on one repository, while others write; without locks."""

    def __init__(
        self,
        objects: Objects,
        device: DeviceId,
        *,
        keep_ns: int | None = None,
        grace_ns: int = GRACE_NS,
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Prepare.

        Args:
            objects: The repository's.
            device: Who runs it.
            keep_ns: Commits younger than that stay, and what they name is needed. None: as the repository's
                setting says.
            grace_ns: What is younger is not condemned; what was condemned is deleted after as long.
            told: Hears how far it is.
        """
        self._objects = objects
        self._store = objects.store
        self._device = device
        self._keep_ns = keep_ns
        self._grace_ns = grace_ns
        self._told = told
        self._began = When(0.0, None)

    @abstractmethod
    async def run(self, *, dry: bool = False) -> T_co:
        """Do it.

        Args:
            dry: Only find out.

        Raises:
            CorruptionError: Something that is needed can't be read.
            SyncerError: The store can't be asked.
        """

    async def _look(self) -> Sight:
        """See what is there."""
        self._told("looking at what is there")
        began_s = self._objects.clock_s()
        keep_ns = (await settings_of(self._objects)).keep_ns if self._keep_ns is None else self._keep_ns
        sight = await look(self._objects, keep_ns=keep_ns, grace_ns=self._grace_ns)
        self._began = When(began_s, sight.now_ns)
        return sight

    async def _still_sure(self, sight: Sight) -> None:
        """See that what was seen still holds: nobody else can have condemned, waited and deleted meanwhile.

        Raises:
            RemoteUnavailableError: It may not.
        """
        if await self._store.now_ns() - sight.now_ns > self._grace_ns // 2:
            raise self._too_long()

    def _still_awake(self) -> None:
        """See the same without a request, right before something is deleted: we may have slept since the last look.

        Our own clock tells, and the store's as of its last reply.

        Raises:
            RemoteUnavailableError: It may not hold.
        """
        if self._began.is_over(self._grace_ns / 2e9, self._objects.now()):
            raise self._too_long()

    @staticmethod
    def _too_long() -> RemoteUnavailableError:
        return RemoteUnavailableError("it took too long to be sure of what was seen at its beginning; run it again")

    async def _condemn(
        self,
        sight: Sight,
        *,
        packs: tuple[bytes, ...] = (),
        indexes: tuple[bytes, ...] = (),
        commits: tuple[bytes, ...] = (),
    ) -> None:
        """Write a list of what will be deleted, digests in ascending order."""
        listed = Condemned(device=self._device, time_ns=sight.now_ns, packs=packs, indexes=indexes, commits=commits)
        name, raw = condemned.encode(self._objects.keys, fresh_salt(), listed, self._objects.codec)
        await self._store.put(name, raw, absent=True)
