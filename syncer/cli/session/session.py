"""One cycle of a linked root, as `reconcile` and the daemon run it: what it is opened with, how its end is kept."""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import trio

from blockfs.exitcodes import ExitCode
from blockfs.runtime.failures import code_of, said
from blockfs.runtime.output import shown
from syncer.cli.lan.peering import switched_off
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.session.opening import Local, key_keeper, open_local, other_roots, share_keeper
from syncer.core.planner.merge import Policy
from syncer.engine.cycle import Cycle, Options, no_key
from syncer.engine.report import Listener, Report
from syncer.engine.root_state import RootState
from syncer.errors import EXPECTED
from syncer.ports.blocks import BlockSource
from syncer.ports.remote import Remote
from syncer.remote.parallel import one_error


@contextmanager
def kept(state: RootState, report: Report, *, counts: Callable[[Exception | None], bool]) -> Iterator[None]:
    """Run a cycle inside; how it ended is kept for `status`.

    Args:
        state: The root's.
        report: The cycle's.
        counts: Whether what it ended with (None: it went through) says how the root stands.
    """
    error: str | None = None
    code, is_kept = int(ExitCode.UNEXPECTED), counts(None)
    try:
        with one_error():
            yield
        code = report.exit_code
    except EXPECTED as failure:
        error, code, is_kept = said(failure), code_of(failure), counts(failure)
        raise
    except (trio.Cancelled, KeyboardInterrupt):
        code = int(ExitCode.INTERRUPTED)
        raise
    finally:
        if is_kept:
            state.keep_result(report, code, error)


@asynccontextmanager
async def opened(linked: LinkedRoot, state: RootState, policy: Policy, *, from_snapshot: bool) -> AsyncIterator[Local]:
    """The local side, for one cycle.

    Raises:
        RootIdentityError: It is not there, or is not the one that was linked.
        UsageError: A snapshot of an ordinary folder.
    """
    await trio.to_thread.run_sync(state.take_part)
    local = open_local(linked, policy, state, from_snapshot=from_snapshot)
    try:
        yield local
    finally:
        with trio.CancelScope(shield=True):
            await local.close()


def options_of(linked: LinkedRoot, policy: Policy, peers: Sequence[BlockSource]) -> Options:
    """What all cycles of a root have in common.

    Args:
        linked: The root.
        policy: Names conflict copies.
        peers: Devices on the LAN, as a source; empty: they are not asked.
    """
    off = switched_off(linked, Registry(os.environ), os.environ)
    return Options(
        policy=policy,
        root=shlex.quote(shown(linked.path)),
        attend_key=no_key if off or linked.in_repository else key_keeper(linked).attend,
        sources=(other_roots(linked), *peers),
    )


async def run_cycle(
    linked: LinkedRoot,
    sides: tuple[Local, Remote],
    state: RootState,
    listener: Listener,
    options: Options,
    report: Report,
) -> None:
    """Run it; the index for other devices follows what it records.

    Raises:
        SyncerError: See `Cycle.run`.
    """
    local, remote = sides
    cycle = Cycle(local, remote, state, listener, options, report)
    if options.dry_run:
        await cycle.run()
    else:
        async with share_keeper(linked, state, local, options.recent).following():
            await cycle.run()
