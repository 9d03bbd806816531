"""Opens what carries frames, as far as this process may, and gives up the right to open more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from blockfs.runtime.logs import Log
from syncer.peer.links.capability import drop_net_raw
from syncer.peer.links.packet import Packets
from syncer.peer.links.sockets import Sockets
from syncer.peer.links.udp4 import Broadcast
from syncer.peer.links.udp6 import Multicast
from syncer.peer.settings import Peers
from syncer.peer.wire.carrier import Carrier

log = Log()


class Opened:
    """The sockets of this process, and why it has no others.

    Attributes:
        sockets: By what they carry frames in.
        refused: Why the others could not be opened, for `doctor`.
    """

    def __init__(self, settings: Peers) -> None:
        """Open those that the settings name. What can't be opened is no error: the next best is used.

        Then CAP_NET_RAW is dropped for good, in all threads if there is no other yet.
        """
        makers: dict[Carrier, Callable[[], Sockets]] = {
            Carrier.ETHERNET: lambda: Packets(settings.ethertype),
            Carrier.UDP6: lambda: Multicast(settings.group, settings.port),
            Carrier.UDP4: lambda: Broadcast(settings.port),
        }
        self.sockets: dict[Carrier, Sockets] = {}
        self.refused: dict[Carrier, str] = {}
        for carrier in dict.fromkeys(settings.carriers):
            try:
                self.sockets[carrier] = makers[carrier]()
            except OSError as error:
                self.refused[carrier] = error.strerror or str(error)
        dropped = drop_net_raw()
        log.info("links.opened", carriers=list(self.sockets), refused=self.refused, right_dropped=dropped)

    def close(self) -> None:
        """Close them."""
        for sockets in self.sockets.values():
            sockets.close()


@contextlib.contextmanager
def opened(settings: Peers) -> Iterator[Opened]:
    """`Opened`, until the block ends."""
    made = Opened(settings)
    try:
        yield made
    finally:
        made.close()
