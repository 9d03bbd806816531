"""Look at a root and its container as a cycle would, and change nothing: for `plan`, `explain` and `verify`.

It takes no lock, so it works beside a cycle or a daemon. What these are just changing then looks half done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from syncer.cli.output.reporter import Teller
from syncer.cli.registry.roots import LinkedRoot
from syncer.cli.session.opening import open_local, open_share, policy_now
from syncer.core.model import Action, Plan, RelPath
from syncer.core.planner.merge import Policy
from syncer.engine.cycle import Cycle, Look, Options
from syncer.engine.report import Failure
from syncer.engine.root_state import RootState, Unwritten
from syncer.ports.local import LocalRoot
from syncer.ports.remote import Remote
from syncer.state.statedb import StateDB


class _Silence:
    """A listener for cycles that do nothing."""

    def planned(self, plan: Plan) -> None:
        pass

    def done(self, action: Action, path: RelPath) -> None:
        pass

    def failed(self, failure: Failure) -> None:
        pass

    def noted(self, path: bytes, text: str) -> None:
        pass


class ReadOnlySession(msgspec.Struct, frozen=True, kw_only=True):
    """A root, its container and its state, open for looking.

    Attributes:
        local: The local side.
        remote: The remote side.
        state: What is remembered; read-only.
        policy: What conflict copies would be called after.
        path: The root's, for who watches.
    """

    local: LocalRoot
    remote: Remote
    state: RootState
    policy: Policy
    path: bytes

    async def plan(self) -> tuple[Plan, Look]:
        """What the next cycle would do, and what it would see.

        Raises:
            RootIdentityError: It is another root or container.
            SyncerError: A side can't be looked at.
        """
        options = Options(policy=self.policy, dry_run=True)
        with Teller(self.path, as_json=False, dry_run=True).working(self.remote.counters, self.local.counters):
            return await Cycle(self.local, self.remote, Unwritten(self.state), _Silence(), options).look()


@asynccontextmanager
async def read_only(linked: LinkedRoot) -> AsyncIterator[ReadOnlySession]:
    """Open a root for looking.

    Raises:
        RootIdentityError: It is not there, or is not the one that was linked.
        NotFoundError: There is no state.
    """
    policy = policy_now()
    with StateDB.open(linked.state, read_only=True) as database:
        state = RootState(database, linked.record.parts)
        local = open_local(linked, policy, Unwritten(state), only_looking=True)
        try:
            remote = open_share(linked)
            try:
                yield ReadOnlySession(local=local, remote=remote, state=state, policy=policy, path=linked.path)
            finally:
                await remote.close()
        finally:
            await local.close()
