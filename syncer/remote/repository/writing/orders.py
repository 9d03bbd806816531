"""Orders, carried out on the draft of a commit: what they need of contents was sent before.

Source: docs/design/repository.md, section 13.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec

from blockfs.blocks.blocklist import BlockList
from syncer.core.model import Kind, RelPath, RemoteTag
from syncer.core.paths import is_reserved, rel_path, split
from syncer.core.planner.overwrites import ForeignVersion
from syncer.errors import ONE_NODE, ConflictOnRemoteError, UnsafeNameError
from syncer.ports.orders import Delete, Move, MoveTree, Order, SetMeta, Store, Stored
from syncer.remote.repository.contents.packing import Cuts, Packer
from syncer.remote.repository.elapsed import When
from syncer.remote.repository.format.entries import ID_BYTES, Bytes
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.merge import View
from syncer.remote.repository.tree import Found
from syncer.remote.repository.writing.draft import Draft


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A content that was sent.

    Attributes:
        blocks: Its block list.
        cuts: Its chunks.
        older: The version that it replaces, and its block list, if only what differs was cut.
    """

    blocks: BlockList
    cuts: Cuts
    older: tuple[Bytes, BlockList] | None


class Work(msgspec.Struct, kw_only=True):
    """What is done since the last commit.

    Attributes:
        began: When the look began that it builds on.
        view: What it builds on.
        draft: The tree to be.
        packer: Packs on their way.
        contents: That were sent, by object.
        after: The own head that it follows: device and sequence.
    """

    began: When
    after: tuple[DeviceId, int]
    view: View
    draft: Draft
    packer: Packer
    contents: dict[bytes, Sent] = msgspec.field(default_factory=dict)


def apply(
    work: Work, orders: Sequence[Order], files: Mapping[int, Sent | Exception], now_us: int
) -> list[Stored | Exception]:
    """Carry out orders. For a thread.

    Args:
        work: What they are added to.
        orders: Each under its own condition.
        files: By place in the list, contents that were sent, or why they were not.
        now_us: What people are told, microseconds since the epoch.

    Returns:
        The outcome of each.
    """
    outcomes: list[Stored | Exception] = []
    for at, order in enumerate(orders):
        content = files.get(at)
        if isinstance(content, Exception):
            outcomes.append(content)
            continue
        try:
            outcomes.append(_carried_out(work, order, content, now_us))
        except ONE_NODE as error:
            outcomes.append(error)
    return outcomes


def _carried_out(work: Work, order: Order, content: Sent | None, now_us: int) -> Stored:
    draft = work.draft
    assert not isinstance(order, MoveTree), "no remote of ours is told so: `moves_trees` is 0"
    for path in (order.source, order.target) if isinstance(order, Move) else (order.path,):
        _checked(path)
    if isinstance(order, Store):
        return _stored(work, order, content, now_us)
    if isinstance(order, Delete):
        found = draft.lookup(order.path)
        if found is not None and not found.entry.implied:
            draft.remove(_required(found, order.path, order.expect))
        return Stored()
    if isinstance(order, SetMeta):
        found = _required(draft.lookup(order.path), order.path, order.expect)
        return Stored(tag=draft.note(found, found.entry.meta.overlaid(order.meta), now_us).entry.tag())
    if isinstance(order, Move):
        return _moved(draft, order)
    raise AssertionError("no order of ours")


def _stored(work: Work, order: Store, content: Sent | None, now_us: int) -> Stored:
    draft = work.draft
    found = _there(draft, order.path)
    file = None
    if isinstance(order.source, ForeignVersion):
        raise ConflictOnRemoteError(order.path, "a version that was replaced unseen", "none: there are none here")
    if content is not None:
        size = content.blocks.size_bytes
        file = Bytes(size_bytes=size, object_hash=content.blocks.object_hash, blocks=b"", chunks=b"")
    if order.replaces is not None or (found is not None and found.entry.implied and order.kind is Kind.DIRECTORY):
        if order.replaces is not None:
            found = _required(found, order.path, order.replaces)
        assert found is not None
        if found.entry.what is not order.kind:
            raise ConflictOnRemoteError(order.path, order.kind.value, found.entry.what.value)
        made = draft.fill(found, order.meta, now_us, file=file, target=order.target)
    else:
        if found is not None:
            raise ConflictOnRemoteError(order.path, "nothing", called(found.entry.tag()))
        above, name = split(order.path)
        parent = draft.directory(above, _fresh_id)
        made = draft.make(_fresh_id(), parent, name, order.meta, now_us, file=file, target=order.target)
    if content is not None:
        work.contents[made.entry.object] = content
    return Stored(tag=made.entry.tag())


def _moved(draft: Draft, order: Move) -> Stored:
    found = _required(draft.lookup(order.source), order.source, order.expect)
    above, name = split(order.target)
    there = _there(draft, order.target)
    if there is not None and not (there.entry.implied and found.entry.what is Kind.DIRECTORY):
        raise ConflictOnRemoteError(order.target, "nothing", called(there.entry.tag()))
    left = found.entry.what is Kind.DIRECTORY and draft.has_below(found.entry.object)
    parent = draft.directory(above, _fresh_id)
    if there is not None:
        draft.drop(there)
    made = draft.move(found, parent, name)
    if left:  # what is below stays where it is
        draft.adopt(found.entry.object, draft.directory(order.source, _fresh_id))
    if there is not None:
        draft.adopt(there.entry.object, found.entry.object)
    return Stored(tag=made.entry.tag())


def _there(draft: Draft, path: RelPath) -> Found | None:
    """What is at a path. Implied directories with nothing in them, which nobody is told of, are in nobody's way."""
    found = draft.lookup(path)
    return None if found is None or draft.drop_hollow(found) else found


def _checked(path: RelPath) -> RelPath:
    """A path that the tree can have, and that may be written."""
    rel_path(path)
    if path == b"" or is_reserved(path):
        raise UnsafeNameError(path, "it is the top of the share, or reserved")
    return path


def called(tag: RemoteTag) -> str:
    """A version, for a person."""
    return f"version {tag.version}"


def _required(found: Found | None, path: RelPath, expect: RemoteTag) -> Found:
    if found is None or found.entry.tag() != expect:
        now = "nothing" if found is None else called(found.entry.tag())
        raise ConflictOnRemoteError(path, called(expect), now)
    return found


def _fresh_id() -> bytes:
    return os.urandom(ID_BYTES)
