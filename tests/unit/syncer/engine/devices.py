"""Devices of one share for engine tests: ordinary folders, the in-memory remote, a state in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio
from msgspec.structs import replace

from syncer.blocks.recent import Recent
from syncer.core.base import BaseIndex
from syncer.core.model import Action, BaseRow, Content, Nid, Plan, RelPath
from syncer.core.planner.identify import Fresh
from syncer.core.planner.merge import Policy
from syncer.core.planner.outcome import BaseChange, Forgotten
from syncer.core.planner.overwrites import Overwrite
from syncer.core.planner.safety import ContainerIdentity
from syncer.core.subtrees import Retagged, version_of
from syncer.engine.cycle import Cycle, Options
from syncer.engine.partial.partial_look import Scoping
from syncer.engine.report import Failure, Report
from syncer.local.root import Origin
from syncer.local.survey.digests import Digests
from syncer.ports.blocks import BlockSource
from syncer.remote.client import CloudClient, Cursor
from syncer.remote.memory import MemoryClient, MemoryContainer
from tests import effort
from tests.kit.rows import MemoryRows
from tests.unit.syncer.local.folders import Place, new_place

STRIDE = 100 // effort.count("deaths of a cycle")
"""Where a device is killed at every step, one run takes every so many-th."""


@dataclass
class MemoryState:
    """The engine's `State`, kept in a dict: survives a "crash" as a durable one would."""

    base: dict[Nid, BaseRow] = field(default_factory=dict)
    last: int = 0
    identity: ContainerIdentity | None = None
    mark: bytes | None = None
    booked: dict[int, Overwrite] = field(default_factory=dict)
    ignored: bytes | None = None
    remote_cursor: Cursor | None = None
    settled: Digests = field(default_factory=Digests)

    def load_base(self) -> BaseIndex:
        return BaseIndex(self.base.values())

    def allocator(self) -> Fresh:
        def fresh() -> Nid:
            self.last += 1
            return Nid(self.last)

        return fresh

    def record(self, changes: Sequence[BaseChange]) -> None:
        for change in changes:
            if isinstance(change, Forgotten):
                self.base.pop(change.nid, None)
            elif isinstance(change, Retagged):
                members = MemoryRows(self.base).subtree(change.nid).members
                assert len(members) == change.count
                for rank, member in list(enumerate(members))[1:]:
                    row = self.base[member.nid]
                    assert row.remote is not None
                    tag = replace(row.remote, version=version_of(change.first, rank))
                    self.base[member.nid] = replace(row, remote=tag)
            else:
                self.base[change.nid] = change

    def overwrites(self) -> list[Overwrite]:
        return list(self.booked.values())

    def book_overwrites(self, new: Sequence[Overwrite], settled: Sequence[int]) -> None:
        self.booked.update({write.number: write for write in new})
        for number in settled:
            self.booked.pop(number, None)

    def container(self) -> ContainerIdentity | None:
        return self.identity

    def set_container(self, found: ContainerIdentity) -> None:
        self.identity = found

    def checkpoint(self) -> bytes | None:
        return self.mark

    def set_checkpoint(self, checkpoint: bytes) -> None:
        self.mark = checkpoint

    @contextmanager
    def rows(self) -> Iterator[MemoryRows]:
        yield MemoryRows(self.base)

    def cursor(self) -> Cursor | None:
        return self.remote_cursor

    def set_cursor(self, cursor: Cursor | None) -> None:
        self.remote_cursor = cursor

    def rules(self) -> bytes | None:
        return self.ignored

    def set_rules(self, raw: bytes) -> None:
        self.ignored = raw

    def digests(self) -> Digests:
        return self.settled

    def set_digests(self, digests: Digests) -> None:
        self.settled = digests

    def holders(self, contents: Collection[Content]) -> dict[Content, list[Origin]]:
        index = BaseIndex(self.base.values())
        found: dict[Content, list[Origin]] = {}
        for nid, row in index.rows.items():
            content = row.node.content
            if content in contents and content is not None and row.local is not None:
                origin = Origin(path=index.paths[nid], tag=row.local, content=content)
                found.setdefault(content, []).append(origin)
        return found


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
        client: CloudClient | None = None,
        entries: Collection[bytes] | None = None,
        recent: Recent | None = None,
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
        client: CloudClient | None = None,
        entries: Collection[bytes] | None = None,
        recent: Recent | None = None,
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
        root = self.place.open()
        if step is not None:
            root.step = step
        scoping = Scoping(local=root, state=self.state) if self.partly else None
        if entries is not None:
            names = [RelPath(path) for path in entries]
            scoping = Scoping(local=root, state=self.state, dirt=(), entries=names, brief=True)
        options = Options(
            scoping=scoping,
            policy=Policy(host=self.name, utc="20260101T000000Z"),
            consent=consent,
            dry_run=dry_run,
            recent=recent,
            sources=sources,
            **({} if step is None else {"step": step}),
        )
        try:
            remote: CloudClient = client or MemoryClient(self.container)
            return await Cycle(root, remote, self.state, self.ears, options, self.report).run()
        finally:
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
