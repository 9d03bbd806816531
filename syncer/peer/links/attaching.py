"""Calls for sockets that Python has no words for: a filter, an address of AF_PACKET for all interfaces."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from typing import Final

_SO_ATTACH_FILTER: Final = 26
_SO_LOCK_FILTER: Final = 44
_INSTRUCTION_BYTES: Final = 8
_SOCKADDR_LL: Final = struct.Struct(
    "=HHiHBB8s"
)  # family, protocol (big-endian), interface, and what only the kernel fills in
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def attach(to: socket.socket, program: bytes) -> None:
    """Attach a filter for good; needs no privilege.

    Args:
        to: What has not received anything yet, or may have.
        program: Of filters.py.
    """
    memory = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("@HP", len(program) // _INSTRUCTION_BYTES, ctypes.addressof(memory))
    to.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, fprog)
    to.setsockopt(socket.SOL_SOCKET, _SO_LOCK_FILTER, 1)


def bind_everywhere(packets: socket.socket, ethertype: int) -> None:
    """Bind a packet socket to this EtherType on all interfaces, also on those that come later.

    Raises:
        OSError: As bind(2).
    """
    address = _SOCKADDR_LL.pack(socket.AF_PACKET, socket.htons(ethertype), 0, 0, 0, 0, b"")
    if _LIBC.bind(packets.fileno(), address, len(address)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "bind of a packet socket")
