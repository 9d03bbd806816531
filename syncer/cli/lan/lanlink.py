"""Peers for a command without the daemon's own session: through the running daemon's, else one for as long."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from syncer.cli.lan.peering import is_silent, switched_off
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.session.opening import key_of_share
from syncer.errors import SyncerError
from syncer.peer.exchange.lazily import LazySource

if TYPE_CHECKING:  # imported when a block is missing: with it come ciphers
    import trio

    from syncer.peer.session.keyring import RootKey
    from syncer.ports.blocks import BlockSource

PARTS: Final = (
    "syncer.peer.wire.frames",
    "syncer.peer.session.session",
    "syncer.peer.exchange.channel",
    "syncer.peer.exchange.circle",
    "syncer.peer.exchange.exchange",
    "syncer.peer.links.opening",
    "syncer.peer.links.links",
)
"""What talks with peers: each of these loads a few milliseconds' worth of it, and all together everything."""


def peers_for(
    root: LinkedRoot, registry: Registry, environment: Mapping[str, str], *, no_peers: bool
) -> tuple[LazySource, ...]:
    """A root's source of blocks from peers, if it may have one. Nothing is opened before a block is missing.

    Args:
        root: Whose.
        registry: Says what is switched off, and where the daemon is.
        environment: Of this process.
        no_peers: The command line says so.

    Raises:
        UsageError, NotAllowedError: The environment or config.toml can't be understood.
    """
    if is_silent(environment) or no_peers or switched_off(root, registry, environment):
        return ()
    return (LazySource(partial(_opened, root, registry, environment)),)


@asynccontextmanager
async def _opened(
    root: LinkedRoot, registry: Registry, environment: Mapping[str, str]
) -> AsyncIterator[BlockSource | None]:
    """The daemon's session; our own where it has none for this root, is of an older release, or does not run."""
    async with AsyncExitStack() as stack:
        source: BlockSource | None = None
        stream = await _connected(registry.socket)
        if stream is not None:
            from syncer.peer.exchange.relay import relayed  # noqa: PLC0415 - see above
            from syncer.watch.control import question  # noqa: PLC0415 - see above

            asking = relayed(stream, question("blocks", root.record.uuid))
            source = await stack.enter_async_context(asking)
        if source is None:
            source = await stack.enter_async_context(_own(root, environment))
        yield source


async def _connected(path: str) -> trio.SocketStream | None:
    """The daemon's socket; None: there is no daemon."""
    if not os.path.exists(path):  # mostly so where there is none: then what asks a daemon is not loaded
        return None
    import trio  # noqa: PLC0415 - see above

    from syncer.watch.control import short  # noqa: PLC0415 - see above

    connection = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
    try:
        with short(path) as address:
            await connection.connect(address)
    except OSError:
        connection.close()
        return None
    return trio.SocketStream(connection)


@asynccontextmanager
async def _own(root: LinkedRoot, environment: Mapping[str, str]) -> AsyncIterator[BlockSource | None]:
    """A session that asks and gives nothing, without a daemon; None: the share has no key to use."""
    import trio  # noqa: PLC0415 - see above

    await _load()
    from syncer.cli.registry.config import read_settings  # noqa: PLC0415 - see above
    from syncer.peer.exchange.exchange import Exchange  # noqa: PLC0415 - see above
    from syncer.peer.links.links import Links  # noqa: PLC0415 - see above
    from syncer.peer.links.opening import opened  # noqa: PLC0415 - see above

    keys: tuple[RootKey, ...] = ()
    with suppress(SyncerError, OSError):  # `status` says so; the server has all that peers have
        keys = key_of_share(root).keys_now()
    if not keys:
        yield None
        return
    settings, uuid = read_settings(environment).peers, root.record.uuid
    with opened(settings) as sockets:
        exchange = Exchange(settings, Links(settings, sockets.sockets, environment=environment))
        async with trio.open_nursery() as nursery:
            await nursery.start(exchange.run)
            exchange.share(uuid, keys, None)
            yield exchange.source(uuid)
            nursery.cancel_scope.cancel()


async def _load() -> None:
    """Load what talks with peers, 10 to 30 ms, while the server sends its first window.

    Part by part: who has all it lacks by then is cancelled between two of them, and does not wait for the others.
    """
    import trio  # noqa: PLC0415 - see above

    for part in PARTS:
        await trio.to_thread.run_sync(import_module, part)
    await trio.lowlevel.checkpoint()
