"""`ui.ports.PagePorts`: states of roots as `status` reads them, the daemon's socket, and commands as processes."""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from blockfs.runtime.atomic import write_atomically
from blockfs.runtime.output import shown
from syncer.cli.registry.roots import Registry
from syncer.cli.ui.facts import Conflicts, bad_facts, root_facts
from syncer.cli.ui.history import History
from syncer.core.conflict import parse_conflict_name
from syncer.core.paths import join, rel_path, split
from syncer.errors import NotFoundError
from syncer.state.statedb import StateDB
from syncer.ui.ports import (
    Compared,
    MapFacts,
    MountFacts,
    Ran,
    RootFacts,
    ServerFacts,
    StoreFacts,
    VolumeFacts,
)
from syncer.watch import control
from syncer.watch.live import DaemonLive, RootLive

KEEP_S: Final = 15.0
"""What a state says is read again after that time, whatever the daemon says: a command may have changed it."""

_MAX_LINE_BYTES: Final = 1 << 28  # a plan is one line: 300 bytes for each of its actions
_TOLD_BYTES: Final = 1 << 16  # of stderr: the last words
_TOKEN_BYTES: Final = 32  # of randomness
COMMAND: Final = (sys.executable, "-m", "syncer.cli.main")


class _Kept(msgspec.Struct, frozen=True):
    """Facts, and what was the case when they were read."""

    facts: RootFacts
    stamp: tuple[object, ...]
    read_s: float


class Program:
    """See `PagePorts`."""

    def __init__(self, environment: Mapping[str, str], now_s: Callable[[], float]) -> None:
        """Look at the roots of an environment.

        Args:
            environment: Where the registry is.
            now_s: A clock, seconds.
        """
        self.device = socket.gethostname()
        self._environment = environment
        self._registry = Registry(environment)
        self._history = History(self._registry.volumes)
        self._now_s = now_s
        self._conflicts = Conflicts()
        self._kept: dict[str, _Kept] = {}
        self._live: DaemonLive | None = None
        # A process opens a state once: not in two threads at a time.
        self._reading = threading.Lock()

    def roots(self) -> list[RootFacts]:
        """See PagePorts."""
        with self._reading:
            linked = self._registry.look()
            live = {} if self._live is None else {each.uuid: each for each in self._live.roots}
            found = []
            for root in linked.roots:
                uuid = root.record.uuid
                stamp = (root.record, root.paused, *_turn(live.get(uuid)))
                kept, now_s = self._kept.get(uuid), self._now_s()
                if kept is None or kept.stamp != stamp or now_s - kept.read_s > KEEP_S:
                    is_working = uuid in live and live[uuid].phase == "working"
                    facts = root_facts(root, self._registry, self._environment, self._conflicts, is_working=is_working)
                    self._kept[uuid] = kept = _Kept(facts, stamp, now_s)
                found.append(kept.facts)
            gone = self._kept.keys() - {root.record.uuid for root in linked.roots}
            for uuid in gone:
                del self._kept[uuid]
            return sorted([*found, *map(bad_facts, linked.bad)], key=lambda facts: facts.path)

    def live(self) -> DaemonLive | None:
        """See PagePorts."""
        self._live = control.live(self._registry.socket)
        return self._live

    def metrics(self) -> str | None:
        """See PagePorts."""
        from syncer.cli.output import metrics  # noqa: PLC0415 - its library, for who is asked for figures

        live = control.live(self._registry.socket)
        if live is None:
            return None
        return metrics.daemon_exposition(live) + metrics.exposition(control.peers(self._registry.socket))

    def sums(self) -> str | None:
        """See PagePorts."""
        from syncer.cli.output import metrics  # noqa: PLC0415 - its library, for who is asked for figures

        live = control.live(self._registry.socket)
        return None if live is None else metrics.sums_exposition(live)

    def metrics_token(self) -> str:
        """See PagePorts."""
        path = self._registry.metrics_token
        try:
            with open(path, encoding="ascii") as file:
                return file.read(_TOLD_BYTES).strip()
        except FileNotFoundError:
            token = secrets.token_urlsafe(_TOKEN_BYTES)
            write_atomically(path, f"{token}\n".encode())
            return token

    def peers(self) -> bytes:
        """See PagePorts."""
        return control.peers_line(self._registry.socket)

    def pause(self, uuid: str, *, paused: bool) -> None:
        """See PagePorts."""
        self._registry.by_uuid(uuid).pause(paused=paused)
        control.reload(self._registry.socket)

    def expedite(self, uuid: str) -> bool:
        """See PagePorts."""
        return control.sync(self._registry.socket, uuid)

    def compare(self, uuid: str, path: bytes) -> Compared:
        """See PagePorts."""
        from syncer.core.base import BaseIndex  # noqa: PLC0415 - where somebody looks
        from syncer.local.verbs.conflict_copies import Desk  # noqa: PLC0415 - likewise

        linked, copy = self._registry.by_uuid(uuid), rel_path(path)
        above, last = split(copy)
        name = parse_conflict_name(last)
        paths = [copy] if name is None else [copy, join(above, name.original)]
        with StateDB.open(linked.state, read_only=True) as database:
            writers = database.writers()
            with database.rows() as rows:
                base = BaseIndex(row for each in paths for row in rows.along(each))
        desk = Desk(linked.path, base, writers, self.device)
        try:
            found = desk.look(copy)
            if found is None:
                raise NotFoundError(f"{shown(path)} is no conflict copy any more")
            return Compared(host=found.name.host, other=found.writer, **msgspec.structs.asdict(desk.compare(found)))
        finally:
            desk.close()

    def mounts(self) -> list[MountFacts]:
        """See PagePorts."""
        from syncer.cli.ui import volumes  # noqa: PLC0415 - half a megabyte, where somebody looks

        return volumes.mounts()

    def volume(self, uuid: str) -> VolumeFacts:
        """See PagePorts."""
        from syncer.cli.ui import volumes  # noqa: PLC0415 - half a megabyte, where somebody looks

        return volumes.volume(uuid, self._history)

    def servers(self) -> list[ServerFacts]:
        """See PagePorts."""
        from syncer.cli.ui import servers  # noqa: PLC0415 - where somebody looks

        return servers.servers(self._registry.servers)

    def store(self, ident: str) -> StoreFacts:
        """See PagePorts."""
        from syncer.cli.ui import servers  # noqa: PLC0415 - where somebody looks

        return servers.store(self._registry.servers, ident)

    def block_map(self, uuid: str, path: bytes, cells: int, part: tuple[int, int]) -> MapFacts:
        """See PagePorts."""
        from syncer.cli.ui import volumes  # noqa: PLC0415 - half a megabyte, where somebody looks

        return volumes.block_map(uuid, path, cells, part)

    async def run(
        self,
        arguments: Sequence[bytes],
        heard: Callable[[bytes], None] | None = None,
        *,
        given: bytes = b"",
    ) -> Ran:
        """See PagePorts."""
        lines: list[bytes] = []
        process = await asyncio.create_subprocess_exec(
            *COMMAND, *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=_MAX_LINE_BYTES, start_new_session=True
        )
        assert process.stderr is not None
        _, _, told = await asyncio.gather(
            _give(process, given), _hear(process, lines.append if heard is None else heard), _last(process.stderr)
        )
        code = await process.wait()
        with self._reading:
            self._kept.clear()
        return Ran(exit_code=code, lines=tuple(lines), message=told.removeprefix("blocksync: "))


def _turn(live: RootLive | None) -> tuple[object, ...]:
    """Changes when a cycle begins or ends."""
    return () if live is None else (live.cycles, live.phase)


async def _give(process: Process, given: bytes) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(given)
        await process.stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it says itself why it wanted no more
    process.stdin.close()


async def _hear(process: Process, heard: Callable[[bytes], None]) -> None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        heard(line.rstrip(b"\n"))


async def _last(stream: asyncio.StreamReader) -> str:
    """The last line of what a command told a person."""
    told = b""
    while piece := await stream.read(_TOLD_BYTES):
        told = (told + piece)[-_TOLD_BYTES:]
    return told.strip().rpartition(b"\n")[2].decode("utf-8", "replace")
