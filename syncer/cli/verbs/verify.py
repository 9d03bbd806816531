"""`blocksync verify`: are both sides what was agreed on, down to the bytes if asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import click
import trio
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from blockfs.exitcodes import ExitCode
from blockfs.runtime.output import JsonValue, json_line, shown, tell
from blockfs.runtime.units import counted, format_size
from syncer.cli.paths import PATH
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.session.many_roots import for_each
from syncer.cli.session.readonly import read_only
from syncer.core.model import RelPath
from syncer.engine.audit.verify import Deep, Finding, Verdict, Verified, compare
from syncer.remote.parallel import one_error


@click.command("verify")
@click.argument("root", type=PATH, required=False)
@click.option("--deep", is_flag=True, help="Hash all local files anew; compare them with the server's hashmaps.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines; the last one per root is a summary.")
def command(root: bytes | None, deep: bool, as_json: bool) -> int:
    """Compare ROOT (default: every linked root) and its container with what both last agreed on. Changes nothing.

    Exit code 15: something is damaged; 3: something is not synced yet, or could not be checked.
    """
    damaged = False

    def work(linked: LinkedRoot) -> int:
        nonlocal damaged
        result = _verify(linked, deep)
        _tell(linked, result, deep, as_json)
        damaged |= result.exit_code == ExitCode.CORRUPTION
        return result.exit_code

    code = for_each(Registry(os.environ).chosen(root), work, alone=root is not None, as_json=as_json)
    return int(ExitCode.CORRUPTION) if damaged else code


def _verify(linked: LinkedRoot, deep: bool) -> Verified:
    async def work() -> Verified:
        async with read_only(linked) as session:
            plan, look = await session.plan()
            found = compare(plan, look, session.remote.ages)
            if not deep:
                return Verified(findings=found, files=len(look.base))
            info = await session.remote.open()
            with _progress(linked) as watcher:
                check = Deep(linked.path, info.grid.block_size, session.remote, watcher)
                await check.run(plan)
            check.result.findings += found
            return check.result

    with one_error():
        result = trio.run(work)
    result.findings.sort(key=lambda finding: (finding.path, finding.verdict.value, finding.text))
    return result


class _Bar:
    """`engine.audit.verify.Watcher` as a bar on stderr."""

    def __init__(self, progress: Progress | None, title: str) -> None:
        self._progress = progress
        self._title = title
        self._task: TaskID | None = None

    def total(self, size_bytes: int, files: int) -> None:
        """Begin."""
        if self._progress is not None:
            self._task = self._progress.add_task(f"{self._title}: {counted(files, 'file', 'files')}", total=size_bytes)

    def read(self, size_bytes: int, path: RelPath) -> None:  # noqa: ARG002 - the bar has no room for it
        """Go on."""
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, size_bytes)


@contextmanager
def _progress(linked: LinkedRoot) -> Iterator[_Bar]:
    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        yield _Bar(None, "")
        return
    description = TextColumn("{task.description}", markup=False)
    columns = (description, BarColumn(), TaskProgressColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Bar(progress, shown(linked.path))


def _tell(linked: LinkedRoot, result: Verified, deep: bool, as_json: bool) -> None:
    counts = {verdict: sum(1 for each in result.findings if each.verdict is verdict) for verdict in Verdict}
    if as_json:
        for finding in result.findings:
            json_line("finding", _fields(linked, finding))
        summary: dict[str, JsonValue] = {
            "root": shown(linked.path),
            "deep": deep,
            "files": result.files,
            "bytes_read": result.bytes_read,
            "hashmaps": result.hashmaps,
            **{verdict.value: count for verdict, count in counts.items()},
        }
        json_line("verify", summary)
        return
    for finding in result.findings:
        side = "" if finding.side is None else f" ({finding.side.value})"
        where = "".join(f"; bytes {first} to {last - 1}" for first, last in finding.ranges[:8])
        more = "; …" if len(finding.ranges) > 8 else ""
        tell(f"{finding.verdict.value}{side}: {shown(finding.path)}: {finding.text}{where}{more}")
    hashmaps = counted(result.hashmaps, "hashmap", "hashmaps")
    read = f", {format_size(result.bytes_read)} read, {hashmaps} compared" if deep else ""
    told = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items())
    looked_at = counted(result.files, *(("file", "files") if deep else ("node", "nodes")))
    tell(f"{shown(linked.path)}: {looked_at}{read}: {told}")


def _fields(linked: LinkedRoot, finding: Finding) -> dict[str, JsonValue]:
    return {
        "root": shown(linked.path),
        "path": shown(finding.path),
        "verdict": finding.verdict.value,
        "side": None if finding.side is None else finding.side.value,
        "text": finding.text,
        "ranges": [[first, last] for first, last in finding.ranges],
    }
