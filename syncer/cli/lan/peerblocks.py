"""`scrub --from peers`: damaged blocks of a linked root come from devices of its share; the server is not asked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

import trio

from blockfs.blocks.ids import BlockId
from blockfs.blocks.sources import Deliver, Store
from blockfs.engine.volume import Volume
from blockfs.runtime.output import note, shown
from blockfs.runtime.volumes import is_volume
from syncer.blocks.board import Blocks
from syncer.cli.lan.lanlink import peers_for
from syncer.cli.lan.peering import VARIABLE, is_silent, switched_off
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.session.opening import key_of_share, other_roots
from syncer.engine.fetch import serving
from syncer.errors import SyncerError, UsageError
from syncer.local.blocklists import BlockLists
from syncer.local.volume.reblock import Pair
from syncer.local.volume.repair import BlockRepair
from syncer.ports.blocks import Priority, Want
from syncer.state.statedb import StateDB

_AT_ONCE: Final = 1024  # damaged blocks, so that what waits for its other parts stays small


def find(blocks_path: str) -> Deliver:
    """Who delivers the blocks of a block directory.

    Args:
        blocks_path: Of a volume, or of an ordinary root.

    Raises:
        UsageError: No linked root is there, or it has no peers.
        SyncerError: A record of a linked root can't be read, and it may be the one.
    """
    registry = Registry(os.environ)
    linked = registry.look()
    volume_path = os.fsencode(os.path.dirname(blocks_path))
    volume = Volume.load(volume_path) if is_volume(volume_path) else None
    for root in linked.roots:
        if _is_of(root, blocks_path, volume):
            _refuse_if_off(root, registry)
            _warn_without_key(root)
            return partial(_deliver, root, root.record.block_size if volume is None else volume.block_size)
    if linked.bad:
        raise linked.bad[0].error
    raise UsageError(
        f"{shown(os.fsencode(blocks_path))} is of no linked root, so there is no share whose devices could be asked; "
        "`blocksync status` lists the roots. A folder called peers is ./peers"
    )


def _is_of(root: LinkedRoot, blocks_path: str, volume: Volume | None) -> bool:
    if volume is not None:
        return root.record.volume_uuid == volume.uuid
    return root.record.folder is not None and os.path.realpath(root.blocks) == blocks_path


def _refuse_if_off(root: LinkedRoot, registry: Registry) -> None:
    off = f"by {VARIABLE}=off" if is_silent(os.environ) else switched_off(root, registry, os.environ)
    if off:
        raise UsageError(f"peers of {shown(root.path)} are off {off}; nobody can be asked")


def _warn_without_key(root: LinkedRoot) -> None:
    """Say why only other roots of this machine will be looked into; a scrub of hours must not end with that."""
    try:
        keeper = key_of_share(root)
        has_key = bool(keeper.keys_now())
        why = "" if has_key else keeper.kept().off or "the share's key is not known yet; `blocksync reconcile`"
    except (SyncerError, OSError) as error:
        why = str(error)
    if why:
        note(f"warning: devices on the network can't be asked for {shown(root.path)}: {why}")


def _deliver(root: LinkedRoot, block_size: int, wanted: Sequence[BlockId], store: Store) -> None:
    """A `Deliver`: whatever peers and other roots have of it."""
    trio.run(_fetch, root, block_size, wanted, store)


async def _fetch(root: LinkedRoot, block_size: int, wanted: Sequence[BlockId], store: Store) -> None:
    registry = Registry(os.environ)
    board = Blocks((other_roots(root), *peers_for(root, registry, os.environ, no_peers=False)))
    async with serving(board):
        left = iter(wanted)
        while batch := list(islice(left, _AT_ONCE)):
            repair = await trio.to_thread.run_sync(_repair_of, root, block_size, batch)

            async def receive(got: Sequence[tuple[BlockId, bytes]], repair: BlockRepair = repair) -> None:
                await trio.to_thread.run_sync(store, repair.came(got))

            length = root.record.block_size
            wants = [Want(id=name, length=length) for name in repair.wanted]
            await board.fetch(wants, receive, priority=Priority.LARGE)  # what nobody has is told by who asked us


def _repair_of(root: LinkedRoot, block_size: int, lacking: Sequence[BlockId]) -> BlockRepair:
    return BlockRepair(lacking, () if block_size == root.record.block_size else _pairs(root, block_size))


def _pairs(root: LinkedRoot, block_size: int) -> Iterator[Pair]:
    """What is in the share, as the volume cuts it and as the share does, as far as a cycle has kept that."""
    near = BlockLists(f"{root.lists}-near", block_size, named_by=root.record.block_size)
    far = BlockLists(root.lists, root.record.block_size)
    with StateDB.open(root.state, read_only=True) as database:
        contents = {row.node.content for row in database.load_base().rows.values() if row.node.content is not None}
    for content in contents:
        here, there = near.load(content), far.load(content)
        if here is not None and there is not None:
            yield Pair(near=here, far=there)
