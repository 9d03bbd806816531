"""`blocksync reconcile`: one cycle of one root, or of all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
import msgspec
import trio
from msgspec.structs import replace

from blockfs.exitcodes import ExitCode
from blockfs.runtime.failures import code_of, said
from blockfs.runtime.output import note, shown
from blockfs.runtime.terminal import complain
from syncer.cli.failures import ToldError
from syncer.cli.interpreter import look_rarely
from syncer.cli.lan.lanlink import Giving, peers_for
from syncer.cli.limits import NO_LIMITS, Limits, limit_options
from syncer.cli.output.reporter import Teller
from syncer.cli.paths import PATH
from syncer.cli.registry.roots import Linked, LinkedRoot, Registry
from syncer.cli.session.many_roots import tell_bad, worst
from syncer.cli.session.opening import open_share, open_state, policy_now
from syncer.cli.session.session import kept, opened, options_of, run_cycle
from syncer.core.planner.merge import Policy
from syncer.engine.report import Report
from syncer.engine.root_state import RootState
from syncer.errors import EXPECTED, PlanChangedError
from syncer.ports.localvalues import Hints
from syncer.remote.parallel import one_error

if TYPE_CHECKING:  # imported where there is one: 25 ms
    from syncer.cli.session.savedplan import SavedPlan


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for.

    Attributes:
        dry_run: Change nothing.
        consent: Digest of the plan whose deletions are agreed to.
        from_snapshot: Push everything as of one instant.
        plan: Do exactly this, or nothing.
        limits: Of bandwidth.
        no_peers: Ask no device on the network, and give none any.
    """

    dry_run: bool
    consent: str | None
    from_snapshot: bool
    plan: SavedPlan | None
    limits: Limits = NO_LIMITS
    no_peers: bool = False


@click.command("reconcile")
@click.argument("root", type=PATH, required=False)
@click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines; the last one per root is a summary.")
@click.option("--snapshot", is_flag=True, help="Push all files as of one instant, also those open for writing.")
@click.option("--allow-deletes", metavar="PLAN", help="Agree to the deletions of exactly this plan.")
@click.option("--plan", "plan_file", metavar="FILE", help="Do what `plan --json` saved in FILE, if it still holds.")
@click.option("--no-peers", is_flag=True, help="Ask no device on the network for blocks, and give none.")
@limit_options
def command(
    *,
    root: bytes | None,
    dry_run: bool,
    as_json: bool,
    snapshot: bool,
    allow_deletes: str | None,
    plan_file: str | None,
    no_peers: bool,
    limit_up: str | None,
    limit_down: str | None,
) -> int:
    """Bring ROOT (default: every linked root) and its container to the same state, once."""
    plan = None
    if plan_file is not None:
        from syncer.cli.session.savedplan import read_plan  # noqa: PLC0415 - see above

        plan = read_plan(plan_file)
    request = _Request(dry_run=dry_run, consent=allow_deletes, from_snapshot=snapshot, plan=plan, no_peers=no_peers)
    look_rarely()
    registry = Registry(os.environ)
    if plan is None:
        chosen = registry.chosen(root)
    else:
        found = registry.by_uuid(plan.root_uuid) if root is None else registry.get(root)
        chosen = Linked(roots=[found], bad=[])
    if not chosen.roots and not chosen.bad:
        note("nothing is linked; `blocksync link ROOT URL` links a folder")
    codes = []
    for linked in chosen.roots:
        teller = Teller(linked.path, as_json=as_json, dry_run=dry_run, roots=len(chosen.roots))
        try:
            limits = linked.record.limits.overridden(limit_up, limit_down)
            codes.append(_reconcile(linked, teller, replace(request, limits=limits)))
        except EXPECTED as error:
            if root is not None or plan is not None:
                raise (ToldError() if as_json else error) from error
            complain(f"{shown(linked.path)}: {said(error)}")
            codes.append(code_of(error))
    return worst([*codes, *tell_bad(chosen.bad, as_json=as_json)])


def _reconcile(linked: LinkedRoot, teller: Teller, request: _Request) -> int:
    """One root; its summary is printed whatever happens: to a person, if anything did."""
    report = Report(dry_run=request.dry_run)
    try:
        report = _run(linked, teller, report, request)
    except EXPECTED as error:
        teller.broken_off(error, code_of(error))
        if isinstance(error, PlanChangedError):
            for path, reason in error.stale:
                teller.stale(path, reason)
        raise
    finally:
        teller.summary(report)
    return report.exit_code


def _run(linked: LinkedRoot, teller: Teller, report: Report, request: _Request) -> Report:
    def counts(failure: Exception | None) -> bool:
        """Where nothing was tried, what is pending is as it was."""
        untried = isinstance(failure, PlanChangedError) or (failure is not None and code_of(failure) == ExitCode.USAGE)
        return not (request.dry_run or untried)

    with open_state(linked) as database:
        state = RootState(database, linked.record.parts)
        with kept(state, report, counts=counts):
            trio.run(_cycle, linked, teller, state, report, request)
    return report


async def _cycle(linked: LinkedRoot, teller: Teller, state: RootState, report: Report, request: _Request) -> None:
    # A saved plan names its conflict copies after the time at which it was made.
    policy = policy_now() if request.plan is None else Policy(host=request.plan.host, utc=request.plan.utc)
    async with opened(linked, state, policy, from_snapshot=request.from_snapshot) as local:
        settings = replace(linked.record.settings, limit_up=request.limits.up, limit_down=request.limits.down)
        remote = open_share(linked, settings)
        try:
            giving = None if request.dry_run or request.no_peers else Giving(linked)
            peers = peers_for(linked, Registry(os.environ), os.environ, no_peers=request.no_peers, giving=giving)
            options = options_of(linked, policy, peers)
            options = replace(options, dry_run=request.dry_run, consent=request.consent, hints=Hints())
            if giving is not None and peers:
                options = replace(options, recent=giving.recent)
            if request.plan is not None:
                from syncer.cli.session.savedplan import selection  # noqa: PLC0415 - see above

                options = replace(options, select=selection(request.plan, linked))
            with teller.working(remote.counters, local.counters), one_error():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(teller.tick)
                    try:
                        await run_cycle(linked, (local, remote), state, teller, options, report)
                    finally:
                        if giving is not None:
                            report.blocks_to_peers, report.bytes_to_peers = giving.blocks, giving.bytes
                    nursery.cancel_scope.cancel()
        finally:
            await remote.close()
