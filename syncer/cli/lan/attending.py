"""Which of the daemon's roots take part on the LAN, as the registry and the shares' keys have it now."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from blockfs.runtime.logs import Log
from blockfs.runtime.output import shown
from syncer.cli.lan.peering import is_silent, switched_off
from syncer.cli.registry.config import read_settings
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.session.opening import key_of_share, shared_root
from syncer.errors import NotAllowedError, SyncerError, UsageError
from syncer.peer.exchange.lazily import LazySource
from syncer.peer.links.capability import drop_net_raw
from syncer.ports.blocks import BlockSource

if TYPE_CHECKING:  # imported where there is a LAN to attend: with it come ciphers
    from syncer.blocks.recent import RecentBlocks
    from syncer.engine.share.sharing import SharedRoot
    from syncer.peer.exchange.exchange import Exchange
    from syncer.peer.links.opening import Opened
    from syncer.peer.session.keyring import RootKey
    from syncer.peer.settings import Peers

log = Log()

OPENED_WITH: Final = ("carriers", "ethertype", "port", "group")
"""Settings of the sockets, for as long as the daemon runs."""


class Attendance:
    """Tells the LAN of roots."""

    def __init__(self, sockets: Opened, settings: Peers, registry: Registry, environment: Mapping[str, str]) -> None:
        """No root is known.

        Args:
            sockets: What carries frames.
            settings: They were opened with these.
            registry: Says what is switched off.
            environment: Of the daemon.
        """
        from syncer.watch.lan import Lan  # noqa: PLC0415 - see above

        self.lan = Lan(self._exchange)
        self._sockets = sockets
        self._settings = settings
        self._registry = registry
        self._environment = environment
        self._indexes: dict[str, tuple[LinkedRoot, SharedRoot]] = {}

    def follow(self, roots: Sequence[LinkedRoot]) -> None:
        """These are the daemon's roots now, and config.toml is read anew."""
        self._read_settings()
        uuids = {root.record.uuid for root in roots}
        self.lan.keep_only(uuids)
        self._indexes = {uuid: known for uuid, known in self._indexes.items() if uuid in uuids}
        for root in roots:
            self.attend(root)

    def attend(self, root: LinkedRoot) -> None:
        """Tell how it is with one root: it was paused, its share has another key."""
        from syncer.watch.lan import Member  # noqa: PLC0415 - see above

        uuid = root.record.uuid
        keys: tuple[RootKey, ...] = ()
        try:
            off = "it is paused" if root.paused else switched_off(root, self._registry, self._environment)
            if not off:
                keeper = key_of_share(root)
                keys, off = keeper.keys_now(), keeper.kept().off
        except (SyncerError, OSError) as error:
            off = str(error)
        known = self._indexes.get(uuid)
        if known is None or known[0].record != root.record:
            known = self._indexes[uuid] = (root, shared_root(root))
        path, block_size = shown(root.path), root.record.block_size
        member = Member(root=path, block_size=block_size, keys=keys, off=off, index=known[1])
        self.lan.attend(uuid, member)

    def sources(self, root: LinkedRoot) -> tuple[BlockSource, ...]:
        """Where blocks for a root's cycle come from, beside the server."""
        return (LazySource(partial(self._opened, root)),)

    @asynccontextmanager
    async def _opened(self, root: LinkedRoot) -> AsyncIterator[BlockSource | None]:
        """Asked for when a block is missing: by then a first cycle has read the share's key."""
        self.attend(root)
        yield await self.lan.source(root.record.uuid)

    def recent(self, root: LinkedRoot) -> RecentBlocks | None:
        """Where a cycle notes what it got, for peers to have at once; None: nobody is served."""
        known = self._indexes.get(root.record.uuid)
        return None if known is None else known[1].recent_blocks

    def _exchange(self) -> Exchange:
        from syncer.peer.exchange.exchange import Exchange  # noqa: PLC0415 - see above
        from syncer.peer.links.links import Links  # noqa: PLC0415 - see above

        links = Links(self._settings, self._sockets.sockets, environment=self._environment)
        return Exchange(self._settings, links)

    def _read_settings(self) -> None:
        """Take over what has changed. The sockets stay: the right to open others was given up at the start."""
        try:
            settings = read_settings(self._environment).peers
        except (UsageError, NotAllowedError) as error:  # `attend` says so of each root
            log.warning("watch.settings", refused=str(error))
            return
        later = [key for key in OPENED_WITH if getattr(settings, key) != getattr(self._settings, key)]
        if later:
            log.warning("watch.settings", restart_for=later)
            settings = msgspec.structs.replace(settings, **{key: getattr(self._settings, key) for key in later})
        if settings != self._settings:
            self._settings = settings
            log.info("watch.settings", peers=msgspec.to_builtins(settings))
            self.lan.begin_anew()

    def given(self, root: LinkedRoot) -> tuple[int, int]:
        """Blocks, and their bytes, that peers got from a root since this was asked last."""
        return self.lan.given(root.record.uuid)


@contextmanager
def attendance(registry: Registry, environment: Mapping[str, str], *, no_peers: bool) -> Iterator[Attendance | None]:
    """What carries frames, as long as the block lasts. Begin it before there is another thread.

    Args:
        registry: See `Attendance`.
        environment: See `Attendance`.
        no_peers: The command line says so.

    Yields:
        None: this process sends nothing.

    Raises:
        UsageError: The environment or config.toml can't be understood.
    """
    if is_silent(environment) or no_peers or not (settings := read_settings(environment).peers).enabled:
        drop_net_raw()  # it is for a socket that is not opened
        yield None
        return
    from syncer.peer.links.opening import opened  # noqa: PLC0415 - see above

    with opened(settings) as sockets:
        yield Attendance(sockets, settings, registry, environment)
