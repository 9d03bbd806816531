"""Verify: are both sides what was agreed on, and are the bytes still what they were? Reads; changes nothing.

Three kinds of findings. *Damage*: a side claims to be unchanged and is not what was agreed: bytes rotted, or a program
changed them and hid it. *Difference*: a change that the next cycle will sync. *Unchecked*: it could not be looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

import msgspec
import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.exitcodes import ExitCode
from blockfs.runtime.units import counted
from syncer.core.model import (
    Action,
    Ages,
    BaseRow,
    Content,
    Kind,
    LocalTag,
    Nid,
    Node,
    Plan,
    RelPath,
    RemoteTag,
    Side,
)
from syncer.core.paths import paths_of
from syncer.engine.cycle import Look
from syncer.errors import ConflictOnRemoteError, CorruptionError, LocalChangedError, SyncerError
from syncer.local.folder.filehash import hash_file
from syncer.local.safe_open import DIRECTORY_FLAGS, open_file
from syncer.local.syscalls import Status, status
from syncer.ports.blocks import VersionRef
from syncer.ports.localvalues import content_of
from syncer.ports.remote import Remote
from syncer.remote.parallel import for_each

_READERS: Final = 2  # SHA-256 of blocks scales to two threads on small machines
_ASKERS: Final = 8  # block lists asked for at once


class Verdict(Enum):
    """What a finding means."""

    DAMAGE = "damage"
    DIFFERENCE = "difference"
    UNCHECKED = "unchecked"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be.

    Attributes:
        path: Where.
        verdict: What it means.
        side: On which side; None for both.
        text: What is wrong.
        ranges: Byte ranges that differ, first and last + 1, where that is known.
    """

    path: RelPath
    verdict: Verdict
    side: Side | None
    text: str
    ranges: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True, kw_only=True)
class Verified:
    """The result.

    Attributes:
        findings: By path.
        files: Files that both sides have and that were checked.
        bytes_read: Local bytes that were hashed.
        hashmaps: Block lists of the server that were compared.
    """

    findings: list[Finding] = field(default_factory=list)
    files: int = 0
    bytes_read: int = 0
    hashmaps: int = 0

    @property
    def exit_code(self) -> int:
        """0, 3 or 15."""
        verdicts = {finding.verdict for finding in self.findings}
        if Verdict.DAMAGE in verdicts:
            return ExitCode.CORRUPTION
        return ExitCode.PARTLY_DONE if verdicts else ExitCode.DONE


class Watcher(Protocol):
    """Hears how far it is."""

    def total(self, size_bytes: int, files: int) -> None:
        """What there is to do."""
        ...

    def read(self, size_bytes: int, path: RelPath) -> None:
        """A file is done."""
        ...


def compare(plan: Plan, look: Look, ages: Ages) -> list[Finding]:
    """Base against both sides, without reading a file."""
    found = [_difference(action) for action in (*plan.remote, *plan.local)]
    found += [
        _finding(RelPath(problem.path), Verdict.UNCHECKED, Side.LOCAL, problem.reason)
        for problem in look.seen.problems
        if problem.partly
    ]
    for refused in look.refused:
        name = RelPath(refused.name.encode("utf-8", "surrogateescape"))
        found.append(_finding(name, Verdict.UNCHECKED, Side.REMOTE, refused.reason))
    paths = paths_of(plan.remote_state.tree)
    for nid, row in look.base.rows.items():
        there = plan.remote_state.tree.get(nid)
        if there is not None and nid in paths:
            found += _claims(paths[nid], row, there, plan.remote_state.tags.get(nid), ages)
    return found


def _difference(action: Action) -> Finding:
    side = "here" if action.side is Side.LOCAL else "on the server"
    text = f"to be synced: {type(action).__name__.lower()} {side}"
    return _finding(action.path, Verdict.DIFFERENCE, action.side, text)


def _claims(path: RelPath, row: BaseRow, there: Node, tag: object, ages: Ages) -> Iterator[Finding]:
    """What the server says of a version that it says is still the agreed one."""
    if row.remote is None or not isinstance(tag, RemoteTag) or there.kind is not Kind.FILE:
        return
    is_same = tag.uuid == row.remote.uuid and not (ages.is_later(tag, row.remote) or ages.is_later(row.remote, tag))
    if is_same and there.content != row.node.content:
        listed = f"is listed with {_short(there.content)}"
        text = f"{ages.name(tag)} had content {_short(row.node.content)}, and {listed}"
        yield _finding(path, Verdict.DAMAGE, Side.REMOTE, text)


class Deep:
    """Reads every local file and asks for every block list."""

    def __init__(self, root: bytes, block_size: int, remote: Remote, watcher: Watcher) -> None:
        self._path = root
        self._block_size = block_size
        self._remote = remote
        self._watcher = watcher
        self.result = Verified()

    async def run(self, plan: Plan) -> None:
        """Check all files that are not left alone anyway."""
        here, there = plan.local_state, plan.remote_state
        paths = paths_of(here.tree)
        files = [
            nid
            for nid, node in here.tree.items()
            if node.kind is Kind.FILE and node.content is not None and nid not in here.frozen and nid in paths
        ]
        files.sort(key=lambda nid: paths[nid])
        sizes = sum(content.size_bytes for nid in files if (content := here.tree[nid].content) is not None)
        self._watcher.total(sizes, len(files))
        root = os.open(self._path, DIRECTORY_FLAGS)
        try:

            async def read(nid: Nid) -> None:
                finding = await trio.to_thread.run_sync(
                    self._hash, root, paths[nid], here.tree[nid], here.tags.get(nid)
                )
                if finding is not None:
                    self.result.findings.append(await self._where(finding, nid, plan))
                self.result.files += 1
                self._watcher.read(_size(here.tree[nid]), paths[nid])

            await for_each(iter(files), read, _READERS)
        finally:
            os.close(root)
        theirs = paths_of(there.tree)
        asked = [nid for nid, node in there.tree.items() if node.kind is Kind.FILE and nid in theirs]

        async def ask(nid: Nid) -> None:
            self.result.findings += await self._hashmap(theirs[nid], there.tags.get(nid), there.tree[nid].content)

        await for_each(iter(sorted(asked)), ask, _ASKERS)

    def _hash(self, root: int, path: RelPath, node: Node, tag: object) -> Finding | None:
        assert node.content is not None
        try:
            descriptor = open_file(root, path)
        except LocalChangedError:
            return _finding(path, Verdict.UNCHECKED, Side.LOCAL, "it changed meanwhile")
        except OSError as error:
            return _finding(path, Verdict.UNCHECKED, Side.LOCAL, f"can't be opened ({error.strerror})")
        try:
            before = status(b"", descriptor)
            blocks, read = hash_file(descriptor, before.size_bytes, self._block_size)
            after = status(b"", descriptor)
        except OSError as error:
            return _finding(path, Verdict.DAMAGE, Side.LOCAL, f"can't be read: {error.strerror}")
        finally:
            os.close(descriptor)
        self.result.bytes_read += read
        if content_of(blocks) == node.content:
            return None
        if not isinstance(tag, LocalTag) or not (_is(before, tag) and _is(after, tag)):
            return _finding(path, Verdict.UNCHECKED, Side.LOCAL, "it changes while it is read")
        text = f"its content is {_short(content_of(blocks))}, not {_short(node.content)}, and nothing tells of a change"
        return _Damaged(path=path, verdict=Verdict.DAMAGE, side=Side.LOCAL, text=text, blocks=blocks)

    async def _where(self, finding: Finding, nid: Nid, plan: Plan) -> Finding:
        """Say which bytes differ from the server's version, if that is the agreed one."""
        there, tag = plan.remote_state.tree.get(nid), plan.remote_state.tags.get(nid)
        here = plan.local_state.tree[nid]
        if not isinstance(finding, _Damaged) or there is None or there.content is None:
            return finding
        if there.content != here.content:
            return finding
        if not isinstance(tag, RemoteTag):
            return finding
        try:
            good = await self._list_of(paths_of(plan.remote_state.tree)[nid], tag, there.content)
        except SyncerError:
            return finding
        ranges = tuple(differing(finding.blocks, good))
        return Finding(path=finding.path, verdict=finding.verdict, side=finding.side, text=finding.text, ranges=ranges)

    async def _list_of(self, path: RelPath, tag: RemoteTag, content: Content) -> BlockList:
        (blocks,) = await self._remote.block_lists([(VersionRef(path=path, tag=tag, content=content), None)])
        if isinstance(blocks, SyncerError):
            raise blocks
        return blocks

    async def _hashmap(self, path: RelPath, tag: object, content: Content | None) -> Sequence[Finding]:
        if not isinstance(tag, RemoteTag) or content is None:
            return ()
        try:
            await self._list_of(path, tag, content)  # it has the tag's hash and size, or this raises
        except CorruptionError as error:
            return [_finding(path, Verdict.DAMAGE, Side.REMOTE, str(error))]
        except ConflictOnRemoteError:
            return [_finding(path, Verdict.UNCHECKED, Side.REMOTE, "it changed meanwhile")]
        self.result.hashmaps += 1
        return ()


class _Damaged(Finding, frozen=True, kw_only=True):
    blocks: BlockList


def differing(found: BlockList, good: BlockList) -> Iterator[tuple[int, int]]:
    """Byte ranges in which two block lists of one block size differ, to whole blocks."""
    size, start = found.block_size, None
    end = max(found.size_bytes, good.size_bytes)
    mine, theirs = list(found), list(good)
    for index in range(max(len(mine), len(theirs)) + 1):
        same = index >= max(len(mine), len(theirs)) or mine[index : index + 1] == theirs[index : index + 1]
        if not same and start is None:
            start = index * size
        elif same and start is not None:
            yield start, min(end, index * size)
            start = None


def _is(found: Status, tag: LocalTag) -> bool:
    return (found.ino, found.size_bytes, found.mtime_ns) == (tag.ino, tag.size_bytes, tag.mtime_ns)


def _size(node: Node) -> int:
    return 0 if node.content is None else node.content.size_bytes


def _short(content: Content | None) -> str:
    if content is None:
        return "none"
    return f"{content.object_hash.hex()[:12]} ({counted(content.size_bytes, 'byte', 'bytes')})"


def _finding(path: RelPath, verdict: Verdict, side: Side | None, text: str) -> Finding:
    return Finding(path=path, verdict=verdict, side=side, text=text)
