"""A child of bench_scale: `prepare` a root whose base says what is there, or `cycle` it and tell what that took.

The first cycle of a million files takes many minutes and is not what is measured, so the base rows are made from a
scan. The server is the in-memory one: it has not changed, and says so.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Container, Sequence
from pathlib import Path

import trio

from blockfs.blocks.ids import ObjectHash
from syncer.core.ignore import IgnoreRules
from syncer.core.model import ROOT, Action, BaseRow, Content, Kind, LocalTag, Nid, Node, Plan, RelPath, RemoteTag
from syncer.core.paths import split
from syncer.core.planner.identify import evidence
from syncer.core.planner.merge import Policy
from syncer.core.planner.safety import ContainerIdentity
from syncer.engine.cycle import Cycle, Options
from syncer.engine.report import Failure
from syncer.engine.root_state import RootState
from syncer.local.folder.identity import look_at_folder, write_marker
from syncer.local.folder.private import PrivateFolder
from syncer.local.folder.root import LocalDirectory
from syncer.local.folder.scan import Scan, list_directory
from syncer.local.options import RootOptions
from syncer.local.syscalls import status
from syncer.ports.localvalues import Hints
from syncer.state.statedb import StateDB
from tests.fakes.memory import MemoryClient, MemoryContainer

BLOCK = 65536
UUID = "11111111-2222-4333-8444-555555555555"


class Deaf:
    """A listener that does nothing."""

    def planned(self, plan: Plan) -> None:
        """See Listener."""

    def done(self, action: Action, path: RelPath) -> None:
        """See Listener."""

    def failed(self, failure: Failure) -> None:
        """See Listener."""
        raise AssertionError(failure)

    def noted(self, path: bytes, text: str) -> None:
        """See Listener."""


def prepare(root: Path, state: Path) -> None:
    """Base rows for everything that is there, as a cycle would have left them."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    private = PrivateFolder(descriptor)
    write_marker(private.top, UUID)
    private.close()
    home, rules = status(b"", descriptor).device, IgnoreRules()
    numbers: dict[RelPath, Nid] = {RelPath(b""): ROOT}
    pending, last = [RelPath(b"")], 0
    with StateDB.create(str(state)) as database:
        books = RootState(database)
        rows: list[BaseRow] = []
        while pending:
            found = Scan()
            pending += [
                path for path in list_directory(descriptor, pending.pop(), home, rules, found) if path[:1] != b"."
            ]
            for stat in found.stats:
                last += 1
                numbers[stat.path] = nid = Nid(last)
                above, name = split(stat.path)
                content = None
                if stat.kind is Kind.FILE:
                    content = Content(size_bytes=stat.tag.size_bytes, object_hash=ObjectHash(last.to_bytes(32, "big")))
                node = Node(parent=numbers[above], name=name, kind=stat.kind, content=content, meta=stat.meta)
                if stat.kind is Kind.DIRECTORY:
                    node = Node(parent=numbers[above], name=name, kind=stat.kind, meta=stat.meta)
                local = evidence(stat.kind, stat.tag)
                assert isinstance(local, LocalTag)
                tag = RemoteTag(uuid=f"00000000-0000-4000-8000-{last:012x}", version=0, etag="0" * 64, size_bytes=0)
                rows.append(BaseRow(nid=nid, node=node, local=local, remote=tag))
            if len(rows) > 50_000:
                books.record(rows)
                rows = []
        books.record(rows)
        finish(root, state, books)
    os.close(descriptor)


def finish(root: Path, state: Path, books: RootState) -> None:
    """What a complete cycle leaves beside the rows."""
    books.set_container(_identity())
    books.set_rules(IgnoreRules().dump())
    books.set_cursor(MemoryContainer(block_size=BLOCK).cursor.position)

    async def conclude() -> None:
        local = _open(root, state, books)
        await local.concluded(None, (), undone=False)
        await local.close()

    trio.run(conclude)


def _identity() -> ContainerIdentity:
    box = MemoryContainer(block_size=BLOCK)
    return ContainerIdentity(uuid=box.identity, seen=box.cursor.position, block_size=BLOCK, block_hash="sha256")


def _open(root: Path, state: Path, books: RootState) -> LocalDirectory:
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    folder = look_at_folder(descriptor, UUID)
    os.close(descriptor)
    options = RootOptions(block_size=BLOCK, lists=str(state / "lists"), state=books)
    return LocalDirectory(os.fsencode(root), folder, options, _same_name)


def _same_name(name: bytes, content: Content | None, taken: Container[bytes]) -> bytes:  # noqa: ARG001 - a CopyName
    return name


def anonymous_bytes() -> int:
    """RssAnon of this process."""
    lines: Sequence[str] = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024


def cycle(root: Path, state: Path) -> dict[str, float]:
    """One cycle; nothing has changed, or a file that the caller wrote."""
    started, before = time.perf_counter(), os.times()
    most = 0

    async def main() -> None:
        nonlocal most
        with StateDB.open(str(state)) as database:
            books = RootState(database)
            local = _open(root, state, books)
            remote = MemoryClient(MemoryContainer(block_size=BLOCK))
            options = Options(
                policy=Policy(host="bench", utc="20260101T000000Z"),
                hints=Hints(),
                dry_run=True,
            )
            try:
                report = await Cycle(local, remote, books, Deaf(), options).run()
            finally:
                most = anonymous_bytes()
                await local.close()
            assert report.deleted == 0, report

    trio.run(main)
    seconds, after = time.perf_counter() - started, os.times()
    return {
        "seconds": seconds,
        "cpu_s": sum(after[:4]) - sum(before[:4]),  # with the survey's second process
        "rss_anon_bytes": most,
        "second_rss_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
    }


if __name__ == "__main__":
    what, at, kept = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if what == "prepare":
        prepare(at, kept)
    else:
        print(json.dumps(cycle(at, kept)))
