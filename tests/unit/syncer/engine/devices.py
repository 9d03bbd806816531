"""Devices of one share for engine tests: ordinary folders, the in-memory remote, a state in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio

from syncer.blocks.recent import RecentBlocks
from syncer.core.model import Action, Plan, RelPath
from syncer.core.planner.merge import Policy
from syncer.engine.cycle import Cycle, Options
from syncer.engine.report import Failure, Report
from syncer.ports.blocks import BlockSource
from syncer.ports.localvalues import Hints
from syncer.ports.remote import Remote
from tests import effort
from tests.fakes.memory import MemoryClient, MemoryContainer
from tests.kit.state import MemoryState
from tests.unit.syncer.local.folders import Place, new_place

STRIDE = 100 // effort.count("deaths of a cycle")
"""Where a device is killed at every step, one run takes every so many-th."""


@dataclass
class Ears:
    """A listener that remembers."""

    plan: Plan | None = None
    actions: list[Action] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: list[tuple[bytes, str]] = field(default_factory=list)

    def planned(self, plan: Plan) -> None:
        self.plan = plan

    def done(self, action: Action, path: RelPath) -> None:
        self.actions.append(action)

    def failed(self, failure: Failure) -> None:
        self.failures.append(failure)

    def noted(self, path: bytes, text: str) -> None:
        self.notes.append((path, text))


class Crash(BaseException):
    """The process ends here."""


@dataclass
class Device:
    """One linked folder."""

    name: str
    place: Place
    container: MemoryContainer
    state: MemoryState = field(default_factory=MemoryState)
    ears: Ears = field(default_factory=Ears)
    report: Report = field(default_factory=Report)  # of the last cycle, also of one that was broken off
    partly: bool = True  # cycles look only where something may have changed

    @property
    def path(self) -> Path:
        return self.place.path

    def write(self, name: str, data: bytes) -> None:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def reconcile(
        self,
        *,
        consent: str | None = None,
        dry_run: bool = False,
        step: Callable[[str], None] | None = None,
        client: Remote | None = None,
        entries: Collection[bytes] | None = None,
        recent: RecentBlocks | None = None,
    ) -> Report:
        """One cycle in an event loop of its own; what it raises is raised. See `cycle`."""
        run = partial(
            self.cycle, consent=consent, dry_run=dry_run, step=step, client=client, entries=entries, recent=recent
        )
        return trio.run(run)

    async def cycle(
        self,
        *,
        consent: str | None = None,
        dry_run: bool = False,
        step: Callable[[str], None] | None = None,
        client: Remote | None = None,
        entries: Collection[bytes] | None = None,
        recent: RecentBlocks | None = None,
        sources: Sequence[BlockSource] = (),
    ) -> Report:
        """One cycle in this event loop.

        Args:
            consent: See Options.
            dry_run: See Options.
            step: A fault point.
            client: Another one than usual.
            entries: All paths that may have changed; None: nobody watched.
            recent: See Options.
            sources: See Options.
        """
        self.ears, self.report = Ears(), Report(dry_run=dry_run)
        root = self.place.open(self.state) if step is None else self.place.open(self.state, step)
        hints = Hints() if self.partly else None
        if entries is not None:
            names = [RelPath(path) for path in entries]
            hints = Hints(directories=(), entries=names, brief=True)
        options = Options(
            hints=hints,
            policy=Policy(host=self.name, utc="20260101T000000Z"),
            consent=consent,
            dry_run=dry_run,
            recent=recent,
            sources=sources,
            **({} if step is None else {"step": step}),
        )
        try:
            remote: Remote = client or MemoryClient(self.container)
            return await Cycle(root, remote, self.state, self.ears, options, self.report).run()
        finally:
            if recent is not None:
                recent.use(None)
            await root.close()

    def everything(self) -> dict[str, object]:
        """Files, links and folders with their modes, the private folder left out."""
        found: dict[str, object] = {}
        for path in self.path.rglob("*"):
            key = str(path.relative_to(self.path))
            if key.split("/", maxsplit=1)[0] == ".blocksync":
                continue
            if path.is_symlink():
                found[key] = os.readlink(path)
            elif path.is_dir():
                found[key + "/"] = path.stat().st_mode
            else:
                found[key] = (path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns)
        return found

    def contents(self) -> list[bytes]:
        """All file contents, sorted."""
        return sorted(self.place.visible().values())


def devices(tmp_path: Path, *names: str) -> list[Device]:
    container = MemoryContainer()
    return [Device(name, new_place(tmp_path, name), container) for name in names]


def assert_at_rest(*all_devices: Device) -> None:
    """A further cycle plans nothing and sends nothing that could change the server."""
    for device in all_devices:
        report = device.reconcile()
        assert not device.ears.actions
        assert report.mutating_requests == 0
        assert not report.failures
