"""`blocksync reconcile`: one cycle of one root, or of all."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click
import trio

from blockfs.errors import BlockfsError
from blockfs.runtime.exitcodes import ExitCode
from blockfs.runtime.output import note, shown
from syncer.cli.opening import open_local, policy_now
from syncer.cli.roots import PATH, LinkedRoot, Registry
from syncer.cli.telling import Teller, worst
from syncer.engine.books import Books
from syncer.engine.cycle import Cycle, Options
from syncer.engine.report import Report
from syncer.engine.scoped import Scoping
from syncer.errors import SafetyStopError, SyncerError
from syncer.local.directory import LocalDirectory
from syncer.remote.parallel import first_error
from syncer.remote.pithos import open_pithos
from syncer.state.statedb import StateDB


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What the command line asks for.

    Attributes:
        dry_run: Change nothing.
        consent: Digest of the plan whose deletions are agreed to.
        from_snapshot: Push everything as of one instant.
    """

    dry_run: bool
    consent: str | None
    from_snapshot: bool


@click.command("reconcile")
@click.argument("root", type=PATH, required=False)
@click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines; the last one per root is a summary.")
@click.option("--snapshot", is_flag=True, help="Push all files as of one instant, also those open for writing.")
@click.option("--allow-deletes", metavar="PLAN", help="Agree to the deletions of exactly this plan.")
def command(root: bytes | None, dry_run: bool, as_json: bool, snapshot: bool, allow_deletes: str | None) -> int:
    """Bring ROOT (default: every linked root) and its container to the same state, once."""
    request = _Request(dry_run=dry_run, consent=allow_deletes, from_snapshot=snapshot)
    registry = Registry(os.environ)
    roots = registry.all() if root is None else [registry.get(root)]
    if not roots:
        note("nothing is linked; `blocksync link ROOT URL` links a folder")
    codes = []
    for linked in roots:
        teller = Teller(linked.path, as_json=as_json, dry_run=dry_run)
        try:
            codes.append(_reconcile(linked, teller, request))
        except (SyncerError, BlockfsError, OSError) as error:
            if root is not None:
                raise
            note(f"blocksync: {shown(linked.path)}: {error}")
            codes.append(_code(error))
    return worst(codes)


def _reconcile(linked: LinkedRoot, teller: Teller, request: _Request) -> int:
    """One root; its summary is printed whatever happens."""
    report = Report(dry_run=request.dry_run)
    try:
        report = _run(linked, teller, report, request)
    except (SyncerError, BlockfsError, OSError) as error:
        teller.broken_off(error, _code(error))
        if isinstance(error, SafetyStopError):
            again = f"blocksync reconcile {shlex.quote(shown(linked.path))} --allow-deletes {error.digest}"
            note(f"to agree to exactly these {error.deletions} deletions: {again}")
        raise
    finally:
        teller.summary(report)
    return report.exit_code


def _run(linked: LinkedRoot, teller: Teller, report: Report, request: _Request) -> Report:
    with StateDB.open(linked.state) as database, _one_error():
        books = Books(database)
        error: str | None = None
        code = int(ExitCode.UNEXPECTED)
        try:
            trio.run(_cycle, linked, teller, books, report, request)
            code = report.exit_code
        except (SyncerError, BlockfsError, OSError) as failure:
            error, code = str(failure), _code(failure)
            raise
        finally:
            if not request.dry_run:
                books.keep_result(report, code, error)
    return report


async def _cycle(linked: LinkedRoot, teller: Teller, books: Books, report: Report, request: _Request) -> None:
    policy = policy_now()
    local = open_local(linked, policy, books, from_snapshot=request.from_snapshot)
    try:
        remote = open_pithos(linked.record.url, linked.token())
        try:
            scoping = Scoping(local=local, state=books) if isinstance(local, LocalDirectory) else None
            options = Options(policy=policy, dry_run=request.dry_run, consent=request.consent, scoping=scoping)
            with teller.working():
                await Cycle(local, remote, books, teller, options, report).run()
        finally:
            await remote.close()
    finally:
        await local.close()


@contextmanager
def _one_error() -> Iterator[None]:
    """Of several errors at once, such as an interrupt among them, the one that tells most."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise first_error(group) from group


def _code(error: Exception) -> int:
    return error.exit_code if isinstance(error, SyncerError | BlockfsError) else int(ExitCode.UNEXPECTED)
