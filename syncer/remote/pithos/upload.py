"""Sending a whole file: first its block list, then what the server lacks, then the block list again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from blockfs.runtime.output import shown
from syncer.core.model import Kind, Meta, RelPath, RemoteTag
from syncer.errors import LocalChangedError
from syncer.remote.client import CloudClient, KnownBase, MissingBlocks, PutResult
from syncer.remote.http.transport import BadReplyError
from syncer.remote.parallel import for_each

ReadBlock = Callable[[int, BlockId], Awaitable[bytes]]
"""Gives the block at an index, canonical or not. It may have changed since: it is compared with its id."""

BATCH_BYTES: Final = 4 << 20
"""Of one POST: large enough that the server's sync of a batch costs little, small enough to repeat after a loss."""

BATCH_BLOCKS: Final = 64

_ROUNDS: Final = 5
"""A second 409 is possible (the server collected a block meanwhile); a fifth means that it keeps nothing."""


async def upload_file(
    client: CloudClient,
    path: RelPath,
    blocks: BlockList,
    read: ReadBlock,
    meta: Meta,
    expect: RemoteTag | None,
    base: KnownBase | None = None,
) -> PutResult:
    """Create or replace a file; only blocks that the server lacks travel.

    Args:
        client: Where to.
        path: As what.
        blocks: The content. Of at most one block: one plain request.
        read: Source of the blocks' bytes. Memory: four batches.
        meta: Stored with it.
        expect: The version that it replaces; None: there must be none.
        base: What is known of that version: then only what differs from it is looked at and sent.

    Raises:
        ConflictOnRemoteError: The current object is not `expect`.
        LocalChangedError: `read` gave other bytes than the block list says. Nothing became visible.
    """
    if len(blocks) <= 1:
        data = await read_checked(path, blocks, 0, read) if len(blocks) else b""
        whole = data[: blocks.size_bytes].ljust(blocks.size_bytes, b"\0")
        return await client.put_small(path, Kind.FILE, whole, meta, expect)
    for _ in range(_ROUNDS):
        result = await client.put_object(path, blocks, meta, expect, base)
        if not isinstance(result, MissingBlocks):
            return result
        await send_blocks(client, path, blocks, result.ids, read, base=base)
    raise BadReplyError(f"{shown(path)}: after {_ROUNDS} rounds the server still lacks blocks that it accepted")


async def send_blocks(
    client: CloudClient,
    path: RelPath,
    blocks: BlockList,
    wanted: Sequence[BlockId],
    read: ReadBlock,
    *,
    base: KnownBase | None = None,
    workers: int = 4,
) -> None:
    """Send some of a file's blocks, in batches, several at once.

    Args:
        client: Where to.
        path: The file, for messages.
        blocks: Its content.
        wanted: Distinct ids.
        read: As for `upload_file`.
        base: As for `upload_file`.
        workers: Batches at once.

    Raises:
        LocalChangedError: As for `upload_file`.
        BadReplyError: The server asks for a block that is not in the file.
    """
    places = {} if base is None else places_of_changes(base.blocks, blocks, wanted)
    if len(places) != len(wanted):
        places = first_places(blocks, wanted)  # a block of the old version, too, may have been collected
    if len(places) != len(wanted):
        raise BadReplyError(f"{shown(path)}: the server asks for blocks that the file does not have")

    async def send(batch: Sequence[int]) -> None:
        await client.put_blocks([await read_checked(path, blocks, index, read) for index in batch])

    await for_each(batches(sorted(places.values()), blocks.block_size), send, workers)


def first_places(blocks: BlockList, wanted: Sequence[BlockId]) -> dict[BlockId, int]:
    """Where each wanted id first stands in a block list; ids that don't are left out."""
    left = set(wanted)
    places: dict[BlockId, int] = {}
    for index, name in enumerate(blocks):
        if not left:
            break
        if name in left:
            left.remove(name)
            places[name] = index
    return places


def places_of_changes(old: BlockList, new: BlockList, wanted: Sequence[BlockId]) -> dict[BlockId, int]:
    """The same among what differs from an older list: no look at each id of a long one."""
    if old.block_size != new.block_size:
        return {}
    left = set(wanted)
    return {name: index for index, name in reversed(new.changed_from(old).items()) if name in left}


def batches(indexes: Sequence[int], block_size: int) -> Iterator[Sequence[int]]:
    """Cut indexes into runs for one POST each."""
    step = max(1, min(BATCH_BLOCKS, BATCH_BYTES // block_size))
    return (indexes[at : at + step] for at in range(0, len(indexes), step))


async def read_checked(path: RelPath, blocks: BlockList, index: int, read: ReadBlock) -> bytes:
    """One block, compared with its id: a file that changes while it is sent must not become a mixture."""
    data = await read(index, blocks[index])
    if block_id(data) != blocks[index]:
        raise LocalChangedError(path, f"block {index} is not what it was when it was hashed")
    return data
