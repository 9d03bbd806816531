"""Collecting what nobody needs any more, while others write; without locks.

Needed is what the heads name, and the commits that are kept: those younger than `keep` by the store's clock. All else
is deleted in two runs that lie a grace apart. The first one only *condemns*: an object says what. From then on nobody
builds on it (`Objects.look` reads the lists, and what is condemned is sent anew); who began before has committed, or
given up, long before the grace is over (`client.DRAFT_S`). The second run looks again: what somebody has named
meanwhile stays.

Order of the second run: commits, indexes without the packs that go, the packs, old indexes, the list. A death between
any two leaves what the next run does, and no commit that lacks something. For the same reason a list waits while a
commit is there that needs what is on it, though nobody keeps that commit: somebody may have built on it, too. Packs
that went are listed anew for one grace more: listings may be of some time ago, and tell of old indexes.

Source: docs/design/repository.md, section 15.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec
import trio

from syncer.errors import DamagedObjectError, NotFoundError
from syncer.remote.repository.format import condemned
from syncer.remote.repository.format.condemned import Condemned
from syncer.remote.repository.format.history import Commit, CommitId
from syncer.remote.repository.format.sealed import Kind, object_name
from syncer.remote.repository.maintenance.marking import Marker, Sight, all_needed, see_that_all_is_there
from syncer.remote.repository.maintenance.run import MaintenanceRun
from syncer.remote.stores.port import Blob

_OF_A_LIST: Final = condemned.MAX_DIGESTS // 4  # of each kind


class Collected(msgspec.Struct, kw_only=True):
    """What a run did, or would do.

    Attributes:
        kept_packs: That are needed, or too young to tell.
        condemned_packs: That a run after the grace will delete.
        condemned_bytes: Of them.
        waiting_packs: That an earlier run has condemned, and are not due.
        deleted_packs: That are gone.
        deleted_bytes: Of them.
        deleted_indexes: Whose rows others have.
        deleted_commits: That are older than is kept.
    """

    kept_packs: int = 0
    condemned_packs: int = 0
    condemned_bytes: int = 0
    waiting_packs: int = 0
    deleted_packs: int = 0
    deleted_bytes: int = 0
    deleted_indexes: int = 0
    deleted_commits: int = 0


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """What of a list is to be deleted now.

    Attributes:
        name: Of the list's object.
        rows: Packs that no index may name any more, those that are gone already included.
        packs: Of them those that are there.
        indexes: Digests.
        is_last: None of its packs is there any more, or they go now: the list goes, too.
    """

    name: str
    rows: tuple[bytes, ...]
    packs: tuple[bytes, ...]
    indexes: tuple[bytes, ...]
    is_last: bool


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a run does.

    Attributes:
        commits_due: Commits that go now, before all else.
        due: Lists that are done now.
        packs: To be condemned, ascending.
        indexes: The same.
        commits: The same.
    """

    commits_due: tuple[bytes, ...]
    due: tuple[Due, ...]
    packs: tuple[bytes, ...]
    indexes: tuple[bytes, ...]
    commits: tuple[bytes, ...]


def commits_due(sight: Sight, *, grace_ns: int) -> tuple[bytes, ...]:
    """Digests of commits that were condemned long enough ago, and that nobody keeps. Pure."""
    listed = {digest for name in _old_lists(sight, grace_ns) for digest in sight.lists[name][1].commits}
    return tuple(sorted(listed & sight.commits.keys() - sight.kept.keys()))


def decide(
    sight: Sight, needed: Collection[bytes], held: Collection[bytes], live: Collection[bytes], *, grace_ns: int
) -> Decision:
    """What may go, and what is to go later. Pure.

    Args:
        sight: What is there.
        needed: Digests of packs that commits need which are kept.
        held: Digests of packs that other commits need which stay for now.
        live: Digests of indexes that no other one replaces.
        grace_ns: What is younger is not condemned; what was condemned goes after as long.
    """
    told = {digest for _, each in sight.lists.values() for digest in (*each.packs, *each.indexes, *each.commits)}

    def old(blobs: Mapping[bytes, Blob], stay: Collection[bytes]) -> tuple[bytes, ...]:
        return tuple(
            sorted(
                digest
                for digest, blob in blobs.items()
                if digest not in stay and digest not in told and blob.modified_ns + grace_ns < sight.now_ns
            )
        )

    def of(name: str, each: Condemned) -> Due | None:
        rows = tuple(digest for digest in each.packs if digest not in needed)
        if any(digest in held for digest in rows):
            return None
        return Due(
            name=name,
            rows=rows,
            packs=tuple(digest for digest in rows if digest in sight.packs),
            indexes=tuple(digest for digest in each.indexes if digest not in live and digest in sight.indexes),
            # Another run that keeps less may be about to delete what this one needs: nobody may build on it anew.
            is_last=all(digest not in needed or digest not in sight.packs for digest in each.packs),
        )

    lists = (of(name, sight.lists[name][1]) for name in _old_lists(sight, grace_ns))
    return Decision(
        commits_due=commits_due(sight, grace_ns=grace_ns),
        due=tuple(each for each in lists if each is not None),
        packs=old(sight.packs, needed),
        indexes=old(sight.indexes, live),
        commits=old(sight.commits, sight.kept.keys()),
    )


def _old_lists(sight: Sight, grace_ns: int) -> list[str]:
    return sorted(name for name, (blob, _) in sight.lists.items() if blob.modified_ns + grace_ns < sight.now_ns)


class Collector(MaintenanceRun[Collected]):
    """One run on one repository."""

    async def run(self, *, dry: bool = False) -> Collected:
        """Delete what was condemned long enough ago, and condemn what nobody needs.

        Args:
            dry: Only find out.

        Raises:
            CorruptionError: Something that is needed can't be read: nothing was deleted. A check names all of it.
            SyncerError: The store can't be asked.
        """
        sight = await self._look()
        marker = Marker(self._objects, sight)
        needed = await trio.to_thread.run_sync(self._needed, marker, sight)
        await see_that_all_is_there(self._objects, needed - sight.packs.keys())
        held = await self._held(marker, sight)
        decision = decide(sight, needed, held, self._objects.live_indexes(), grace_ns=self._grace_ns)
        if not dry:
            if decision.due or decision.commits_due:
                await self._still_sure(sight)
                await self._delete_all(Kind.COMMIT, decision.commits_due)
            for number, due in enumerate(decision.due, 1):
                self._told(f"deleting what was condemned: list {number} of {len(decision.due)}")
                await self._still_sure(sight)
                await self._delete(due, sight)
            await self._condemn_all(decision, sight)
        return _collected(sight, decision)

    def _needed(self, marker: Marker, sight: Sight) -> set[bytes]:
        """Packs that commits need which are kept."""
        return {found.pack.digest for _, found in all_needed(marker, sight, self._told)}

    async def _held(self, marker: Marker, sight: Sight) -> set[bytes]:
        """Packs that commits need which nobody keeps, and which stay all the same until they are due."""
        if not any(each.packs for _, each in sight.lists.values()):
            return set()
        held: set[bytes] = set()
        gone = sight.kept.keys() | set(commits_due(sight, grace_ns=self._grace_ns))
        for name in sight.commits.keys() - gone:
            try:
                (commit,) = (await self._objects.commits([CommitId(name)])).values()
                held |= await trio.to_thread.run_sync(_packs, marker, commit)
            except (NotFoundError, DamagedObjectError):
                # Nobody keeps it, so what it lacks hinders nobody; but what it has in common with the next ones was
                # looked at, and not told.
                marker = Marker(self._objects, sight)
        return held

    async def _delete(self, due: Due, sight: Sight) -> None:
        """Do what a list says."""
        named = {pack.digest for pack, _ in self._objects.packs()}.intersection(due.rows)
        # Rows → packs → indexes → the list: nobody finds a row of what is gone, and a list goes last.
        if named:
            await self._objects.put_index_without(named, self._still_awake)
        await self._delete_all(Kind.PACK, due.packs)
        await self._delete_all(Kind.INDEX, due.indexes)
        if named or due.packs:  # who lists may be told of some time ago: nobody builds on these for a grace more
            await self._condemn(sight, packs=tuple(sorted(named.union(due.packs))))
        if due.is_last:
            self._still_awake()
            await self._store.delete(due.name)

    async def _delete_all(self, kind: Kind, digests: Collection[bytes]) -> None:
        for digest in digests:
            self._still_awake()
            await self._store.delete(object_name(kind, digest))

    async def _condemn_all(self, decision: Decision, sight: Sight) -> None:
        lists = (decision.packs, decision.indexes, decision.commits)
        for at in range(0, max(map(len, lists)), _OF_A_LIST):
            packs, indexes, commits = (each[at : at + _OF_A_LIST] for each in lists)
            await self._condemn(sight, packs=packs, indexes=indexes, commits=commits)


def _packs(marker: Marker, commit: Commit) -> set[bytes]:
    return {found.pack.digest for _, found in marker.needed(commit)}


def _collected(sight: Sight, decision: Decision) -> Collected:
    gone = {digest for due in decision.due for digest in due.packs}
    waiting = sight.condemned_packs & sight.packs.keys() - gone
    return Collected(
        kept_packs=len(sight.packs) - len(gone),
        condemned_packs=len(decision.packs),
        condemned_bytes=sum(sight.packs[digest].size_bytes for digest in decision.packs),
        waiting_packs=len(waiting),
        deleted_packs=len(gone),
        deleted_bytes=sum(sight.packs[digest].size_bytes for digest in gone),
        deleted_indexes=sum(len(due.indexes) for due in decision.due),
        deleted_commits=len(decision.commits_due),
    )
