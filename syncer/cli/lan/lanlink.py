"""Peers for a command: through the running daemon's session, else by one of its own for as long as blocks are missing.

With its own it is a member as a daemon is: it answers, and gives what its root has and what it gets meanwhile.
"""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from blockfs.runtime.output import shown
from syncer.cli.lan.peering import is_silent, switched_off
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.session.opening import key_of_share, shared_root
from syncer.errors import SyncerError
from syncer.peer.exchange.lazily import LazySource

if TYPE_CHECKING:  # imported when a block is missing: with it come ciphers
    import trio

    from syncer.blocks.recent import RecentBlocks
    from syncer.engine.share.sharing import SharedRoot
    from syncer.peer.exchange.circle import ShareCircle
    from syncer.peer.session.keyring import RootKey
    from syncer.ports.blocks import BlockSource
    from syncer.watch.lan import Lan, Member

PARTS: Final = (
    "syncer.peer.wire.frames",
    "syncer.peer.session.session",
    "syncer.peer.exchange.channel",
    "syncer.peer.exchange.circle",
    "syncer.peer.exchange.exchange",
    "syncer.peer.links.opening",
    "syncer.peer.links.links",
    "syncer.watch.lan",
)
"""What talks with peers: each of these loads a few milliseconds' worth of it, and all together everything."""

LOOK_S: Final = 0.02  # who was there would mostly have been heard; a shorter look tells nothing
ATTEND_S: Final = 1.0  # so often a command looks for what a daemon is told: four files, 0.1 ms


class Giving:
    """What a command gives to its peers, of one root. Nothing is opened before a peer asks for a block.

    Attributes:
        index: The root's blocks.
        blocks: That peers got; known when the session has ended.
        bytes: Of these.
    """

    def __init__(self, root: LinkedRoot) -> None:
        """Nothing is given yet."""
        self.index: SharedRoot = shared_root(root)
        self.blocks = self.bytes = 0

    @property
    def recent(self) -> RecentBlocks:
        """Where a cycle notes what it got, for peers to have at once."""
        return self.index.recent_blocks


def peers_for(
    root: LinkedRoot,
    registry: Registry,
    environment: Mapping[str, str],
    *,
    no_peers: bool,
    giving: Giving | None = None,
) -> tuple[LazySource, ...]:
    """A root's source of blocks from peers, if it may have one. Nothing is opened before a block is missing.

    Args:
        root: Whose.
        registry: Says what is switched off, and where the daemon is.
        environment: Of this process.
        no_peers: The command line says so.
        giving: What it gives meanwhile, if no daemon does; None: nothing.

    Raises:
        UsageError, NotAllowedError: The environment or config.toml can't be understood.
    """
    if is_silent(environment) or no_peers or switched_off(root, registry, environment):
        return ()

    def later_s() -> float:
        return 0.0 if os.path.exists(registry.socket) else root.solitude.later_s()  # a daemon knows who is there

    return (LazySource(partial(_opened, root, registry, environment, giving), later_s),)


@asynccontextmanager
async def _opened(
    root: LinkedRoot, registry: Registry, environment: Mapping[str, str], giving: Giving | None
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
        is_ours = source is None
        if is_ours:
            source = await stack.enter_async_context(_own(root, registry, environment, giving))
        if giving is not None and (source is None or not is_ours):
            giving.recent.stop()  # the daemon gives, or nobody does
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
async def _own(
    root: LinkedRoot, registry: Registry, environment: Mapping[str, str], giving: Giving | None
) -> AsyncIterator[BlockSource | None]:
    """A session without a daemon; None: the share has no key to use."""
    import trio  # noqa: PLC0415 - see above

    await _load()
    from syncer.cli.registry.config import read_settings  # noqa: PLC0415 - see above
    from syncer.peer.exchange.exchange import Exchange  # noqa: PLC0415 - see above
    from syncer.peer.links.links import Links  # noqa: PLC0415 - see above
    from syncer.peer.links.opening import opened  # noqa: PLC0415 - see above
    from syncer.watch.lan import Lan  # noqa: PLC0415 - see above

    uuid = root.record.uuid
    look = _looker(root, registry, environment, None if giving is None else giving.index)
    member = look()
    if not member.keys:  # `status` says so; the server has all that peers have
        yield None
        return
    settings = read_settings(environment).peers
    with opened(settings) as sockets:
        made: list[Exchange] = []

        def make() -> Exchange:
            made.append(Exchange(settings, Links(settings, sockets.sockets, environment=environment)))
            return made[-1]

        lan = Lan(make, warms=False)
        lan.attend(uuid, member)
        circle: ShareCircle | None = None
        looked_since = math.inf
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lan.run)
                nursery.start_soon(_attend, lan, uuid, look, member)
                source = await lan.source(uuid)
                circle, looked_since = made[-1].circle(uuid) if made else None, trio.current_time()
                yield source
                nursery.cancel_scope.cancel()
        finally:
            heard = circle is not None and circle.last_heard_s > -math.inf
            if heard or trio.current_time() - looked_since >= LOOK_S:
                root.solitude.looked(heard=heard)
            if giving is not None:
                giving.blocks = sum(each.uploads.blocks for each in made)
                giving.bytes = sum(each.uploads.bytes for each in made)


def _looker(
    root: LinkedRoot, registry: Registry, environment: Mapping[str, str], index: SharedRoot | None
) -> Callable[[], Member]:
    """What tells how it is with the root now: who is paused asks, and gives nothing."""
    from syncer.watch.lan import Member  # noqa: PLC0415 - see above

    keys_now: Callable[[], tuple[RootKey, ...]] | None = None

    def look() -> Member:
        nonlocal keys_now
        keys: tuple[RootKey, ...] = ()
        try:
            off = switched_off(root, registry, environment)
            if not off:
                keys_now = keys_now or key_of_share(root).keys_now
                keys = keys_now()
        except (SyncerError, OSError) as error:
            off = str(error)
        shared = None if root.paused else index
        return Member(root=shown(root.path), block_size=root.record.block_size, keys=keys, off=off, index=shared)

    return look


async def _attend(lan: Lan, uuid: str, look: Callable[[], Member], member: Member) -> None:
    """Take over what users do meanwhile: pause, switch off, rotate. Nobody tells a command that runs."""
    import trio  # noqa: PLC0415 - see above

    while True:
        await trio.sleep(ATTEND_S)
        before, member = member, look()
        if member != before:
            lan.attend(uuid, member)


async def _load() -> None:
    """Load what talks with peers, 10 to 30 ms, while the server sends its first window.

    Part by part: who has all it lacks by then is cancelled between two of them, and does not wait for the others.
    """
    import trio  # noqa: PLC0415 - see above

    for part in PARTS:
        await trio.to_thread.run_sync(import_module, part)
    await trio.lowlevel.checkpoint()
