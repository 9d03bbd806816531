"""A device's own head: held against what the device remembers of it, and written so that nobody else's is replaced.

Source: docs/design/repository.md, section 8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio
from msgspec.structs import replace

from syncer.errors import HeadsMissingError, NotFoundError, RemoteUnavailableError, RolledBackError
from syncer.remote.parallel import one_error
from syncer.remote.repository.elapsed import When
from syncer.remote.repository.format.history import CommitId, DeviceId, Head
from syncer.remote.repository.headless import LOST, Headless, look_without_heads, was_forgotten
from syncer.remote.repository.memory import Memory, Own, Standing, judge, new_device
from syncer.remote.repository.objects import Objects

_YOUNG_S: Final = 5.0
"""So old may a listing be that is taken for a look at our head: a push of little fits in, and hardly any other one."""

_FOLLOWERS: Final = 8
"""So many commits of others that no head names are looked at, about, whether they follow ours."""


class OwnHead:
    """Of one device. For one writer at a time."""

    def __init__(self, objects: Objects, device: DeviceId, memory: Memory | None) -> None:
        """Nothing is read yet.

        Args:
            objects: The repository's.
            device: The id that it has if nothing is remembered.
            memory: What is remembered; None: nobody else can be this device.
        """
        self._objects = objects
        self._memory = memory
        self._first = device
        self._own = Own(device=device)
        self._there: Head | None = None  # as it was seen last
        self._listed: When | None = None  # when the listing was asked for that told so; not after a write
        self._followed: CommitId | None = None  # a commit of ours on which others were seen to build
        self._is_another = False  # somebody else goes on under our id
        self._written = trio.Event()  # the next time

    @property
    def mark(self) -> tuple[DeviceId, int]:
        """The device, and the number of its last head: what is built on an earlier one does not hold any more."""
        return self._own.device, self._own.sequence

    @property
    def devices(self) -> frozenset[DeviceId]:
        """The ids that it has, or had when it was opened."""
        return frozenset((self._first, self._own.device))

    async def heads(self, told: Callable[[When], object] = lambda _: None) -> dict[DeviceId, Head]:
        """The heads of all devices, see `Objects.heads`; ours is as it should be.

        Args:
            told: See there. What it hears last counts.

        Raises:
            RolledBackError: Ours is older, or another one, than what is remembered.
            HeadsMissingError: There should be some.
        """
        while True:
            heads = await self._held_heads(told)
            if heads or self._own.agreed:
                return heads
            match await look_without_heads(self._objects, () if self._own.sequence else self.devices):
                case Headless.NEW:
                    return heads
                case Headless.LOST:
                    raise HeadsMissingError(LOST)
                case None:
                    pass

    async def _held_heads(self, told: Callable[[When], object]) -> dict[DeviceId, Head]:
        """The same, whatever it means if there are none."""
        if self._memory is None:
            heads = await self._with_ours(await self._objects.heads(told), self._own)
            self._there = head = heads.get(self._own.device)
            await self._see_that_it_was_forgotten(self._own, heads)
            if head is not None and head.sequence >= self._own.sequence:
                self._own = replace(self._own, sequence=head.sequence, commit=head.commit)
            return heads
        own = await trio.to_thread.run_sync(self._memory.read)
        self._listed = None
        asked: list[When] = []
        while True:
            listed = await self._objects.heads(asked.append)
            told(asked[-1])
            heads = await self._with_ours(listed, own)
            # Another process of this device may be just writing; what it writes down comes before its head.
            now = await trio.to_thread.run_sync(self._memory.read)
            if now == own:
                break
            own = now
        await self._judge(own, heads)
        if self._own.unseen and self._there is not None and not self._is_another:
            await self._check_followers(heads)
        if heads is listed and self._objects.tells_content(own.device):
            self._listed = asked[-1]
        return heads

    async def _with_ours(self, heads: dict[DeviceId, Head], own: Own) -> dict[DeviceId, Head]:
        """Listings may be of some time ago: who has written is asked for it."""
        has_written = own.sequence or own.next
        if has_written and (own.device not in heads or judge(own, heads[own.device]) is not Standing.OURS):
            there = await self._objects.head(own.device)
            if there is not None:
                return {**heads, own.device: there}
        return heads

    async def _judge(self, own: Own, heads: dict[DeviceId, Head]) -> None:
        head = heads.get(own.device)
        standing = judge(own, head)
        is_ours = standing is Standing.OURS
        if head is not None and not is_ours and not (standing is Standing.LATER and await self._follows(own, head)):
            raise RolledBackError(f"head {own.sequence} of this device", f"head {head.sequence}, which does not follow")
        await self._see_that_it_was_forgotten(own, heads)
        self._there, self._is_another = head, not is_ours
        if head is not None and is_ours:
            own = replace(own, sequence=head.sequence, commit=head.commit, next=b"")
        self._own = own

    async def _see_that_it_was_forgotten(self, own: Own, heads: dict[DeviceId, Head]) -> None:
        """Who forgets a device deletes its head, and only if others have what it told.

        Raises:
            RolledBackError: Ours is gone, and they have not.
        """
        if own.sequence and own.device not in heads and not await was_forgotten(self._objects, own, heads.values()):
            raise RolledBackError(f"head {own.sequence} of this device", "none, nor a commit that builds on it")

    async def _follows(self, own: Own, head: Head) -> bool:
        """Whether a head builds on all that we wrote under this id."""
        ours = own.next or own.commit
        if not ours:
            return True
        ask = [head.commit]
        while ask:
            try:
                commits = await self._objects.commits(ask)
            except NotFoundError:
                return False  # between it and ours lies more than is kept
            if ours in commits:
                return True
            parents = [parent for each in commits.values() if each.device == own.device for parent in each.parents]
            ask = [parent for parent in parents if parent not in commits]
        return False

    async def _check_followers(self, heads: dict[DeviceId, Head]) -> None:
        """Who builds on our last commit must have seen it, not one that had its number before ours replaced it.

        Else what is new in ours would be taken for deleted by them. Commits between theirs and ours are asked for, as
        far as this machine has not seen them.

        Raises:
            RolledBackError: Somebody has built on another one.
        """
        ours = CommitId(self._own.commit)
        if self._followed == ours:
            return
        dot = (await self._objects.commits([ours], must=True))[ours].dot
        ask = [head.commit for head in heads.values() if head.device != dot.device]
        looked, is_followed, most = set[CommitId](), False, len(ask) + _FOLLOWERS
        while ask and len(looked) < most:
            try:
                commits = await self._objects.commits(ask)
            except NotFoundError:
                break  # so long ago that it is gone; what a head names is missed by who looks next
            looked.update(ask)
            ask = []
            for name, commit in commits.items():
                if commit.dot == dot and name != ours:
                    raise RolledBackError(
                        f"head {self._own.sequence} of this device", f"commits that build on another {dot.number} of it"
                    )
                if commit.vector.covers(dot):
                    is_followed = True
                    if ours not in commit.parents:
                        ask += [parent for parent in commit.parents if parent not in looked]
        if is_followed:
            self._followed = ours

    async def begin(self) -> DeviceId:
        """Who writes what is begun now: another device from here on, if somebody else goes on under our id."""
        if self._is_another:
            assert self._memory is not None
            self._own, self._there, self._is_another = Own(device=new_device()), None, False
            await trio.to_thread.run_sync(self._memory.write, self._own)
        return self._own.device

    async def put(self, commit: CommitId, check: Callable[[], None]) -> None:
        """Write the head: from here on others see the commit. No head that was not seen is replaced.

        Args:
            commit: What it names.
            check: The last word, right before; what it raises goes on.

        Raises:
            RemoteUnavailableError: Somebody else has written or deleted it since it was looked at.
        """
        own, following = self._own, Head(device=self._own.device, sequence=self._own.sequence + 1, commit=commit)
        place = "" if self._memory is None else await trio.to_thread.run_sync(self._memory.place)
        is_alone = await self._is_alone(place)
        there = self._there if is_alone else await self._objects.head(own.device)
        if there is None and self._there is not None:
            raise RemoteUnavailableError(
                "this device's head has gone since it was seen: somebody has forgotten the device, perhaps, by "
                "`blocksync repo devices forget`; the next cycle looks again, and goes on"
            )
        if there != self._there:
            raise RemoteUnavailableError(
                "this device's head is not the one that was seen: its state is in use on another machine, too, a clone "
                "perhaps; the next cycle looks again, and goes on as another device"
            )
        if self._memory is not None:
            announced = replace(own, next=commit, unseen=own.unseen or is_alone)
            await trio.to_thread.run_sync(self._memory.write, announced)
        self._listed = None
        await self._objects.hear()
        check()
        await self._objects.put_head(following)
        self._own = Own(device=own.device, sequence=following.sequence, commit=commit, place=place, unseen=is_alone)
        self._there = following
        if self._memory is not None:
            await trio.to_thread.run_sync(self._memory.write, self._own)
        self._written.set()
        self._written = trio.Event()

    async def _is_alone(self, place: str) -> bool:
        """Whether nobody else can have written our head since a listing told it.

        That is so where the last head was written from here, since this machine was started: all copies of what we
        remember are at other places, and ask before they write. Of machines that were copied while they ran this can't
        be told, so the listing must be young.
        """
        own = self._own
        if self._memory is None or not place or place != own.place:
            return False
        if self._there is None or self._listed is None or self._listed.is_over(_YOUNG_S, self._objects.now()):
            return False
        # Another process of this device writes down what it does; and no head of ours may be still on its way.
        return await trio.to_thread.run_sync(self._memory.read) == own

    async def noticed(self, moment: object) -> object:
        """`BlobStore.wait` for heads. Who writes looks often again, for others may answer."""
        found: list[object] = []
        while not found:

            async def look(scope: trio.CancelScope) -> None:
                found.append(await self._objects.store.wait("heads/", moment))
                scope.cancel()

            with one_error():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(look, nursery.cancel_scope)
                    await self._written.wait()
                    nursery.cancel_scope.cancel()
        return found[0]
