"""Interfaces that come, change and go: asks the kernel, and hears from it when to ask again."""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import Final

import msgspec
import trio

from syncer.peer.links.rtnetlink import GROUPS, RTM_GETADDR, RTM_GETLINK, Dump, Interface, read, request

_TRIES: Final = 8
_WAIT_S: Final = 2.0  # for an answer of the kernel: it has it when it was asked
_READ_BYTES: Final = 1 << 17
POLL_S: Final = 1.0
_OF_LINKS, _OF_ADDRESSES = 1, 2


def interfaces() -> list[Interface]:
    """All interfaces of this network namespace, with the addresses that can be used now.

    Raises:
        OSError: The host does not let us ask (a sandbox without AF_NETLINK).
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asking:
        asking.settimeout(_WAIT_S)
        for _ in range(_TRIES):
            links = _ask(asking, RTM_GETLINK, _OF_LINKS)
            addresses = _ask(asking, RTM_GETADDR, _OF_ADDRESSES)
            if not links.torn and not addresses.torn:
                break
    by_index: dict[int, list[bytes]] = {}
    for index, address in addresses.addresses:
        by_index.setdefault(index, []).append(address)
    return [
        msgspec.structs.replace(link, addresses=tuple(by_index.get(link.index, ())))
        for link in sorted(links.links, key=lambda link: link.index)
    ]


def _ask(asking: socket.socket, kind: int, sequence: int) -> Dump:
    asking.send(request(kind, sequence))
    parts: list[Dump] = []
    while not parts or not parts[-1].done:
        parts.append(read(asking.recv(_READ_BYTES), sequence))
    return Dump(
        links=tuple(link for part in parts for link in part.links),
        addresses=tuple(address for part in parts for address in part.addresses),
        done=True,
        torn=any(part.torn for part in parts),
    )


class Changes:
    """When to ask again. Where the kernel does not tell (a sandbox), each second."""

    def __init__(self) -> None:
        """Listen from now on: what changes later is told, however late `wait` is called."""
        self._told: socket.socket | None = None
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
            told = stack.enter_context(socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE))
            told.bind((0, GROUPS))
            stack.pop_all()
            self._told = told

    async def wait(self) -> None:
        """Return when something may have changed since the last call returned."""
        if self._told is None:
            await trio.sleep(POLL_S)
            return
        await trio.lowlevel.wait_readable(self._told)
        while True:
            try:
                self._told.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # more than the kernel could keep: as good as a message
                    raise

    def close(self) -> None:
        """Listen no more."""
        if self._told is not None:
            self._told.close()
