"""What a device remembers of its own head, so that no two devices ever write one.

A device id may come to be on two machines: a virtual machine is cloned, a root's state is copied, or put back from a
backup. Two who write one head would each make the other's commits vanish, and give two commits one dot. So a device
keeps which head it wrote last, and which one it is about to write, and holds them against what is there:

- it is one of the two: all is well;
- it is a later one that builds on ours: somebody else goes on under this id, or what we remember is old. From here on
  we are another device: nothing that anybody wrote is touched;
- it is anything else: the store was put back, or two wrote one head at the same moment. Nothing is done then.

The file is JSON, written before the head that it tells of:

    {"origin": "HEX", "device": "HEX", "sequence": 3, "commit": "HEX", "next": "HEX", "place": "HEX",
     "unseen": true, "agreed": true}

origin: the id that `link` gave, for another link begins anew. device: the id that counts. next: commit of the head that
is about to be written, with the number after `sequence`; "" if none is. place: where this file was in use when the head
was written, see `Memory.place`; not there, or "", if that is not known. unseen: what was there before it was known by a
listing only; not there: no. agreed: `link --relink` was told that the store has lost its heads, and goes on without;
until the first head of ours. Not there: no.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from blockfs.runtime.atomic import write_atomically
from syncer.errors import CorruptionError
from syncer.remote.repository.format.history import DEVICE_BYTES, DeviceId, Head

_MOST_BYTES = 4096
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Own(msgspec.Struct, frozen=True, kw_only=True):
    """What a device remembers.

    Attributes:
        device: Its id.
        sequence: Of the head that it wrote last; 0: none.
        commit: That head's commit; b"": none.
        next: Of the head that it is about to write; b"": none.
        place: Where that was remembered, see `Memory.place`; "": not known.
        unseen: The last head was written without a look at the one before it, but by a listing.
        agreed: That no device has a head was agreed to, see `headless.py`.
    """

    device: DeviceId
    sequence: int = 0
    commit: bytes = b""
    next: bytes = b""
    place: str = ""
    unseen: bool = False
    agreed: bool = False


class Standing(Enum):
    """How the head that is there stands to what is remembered."""

    OURS = "ours"
    LATER = "later"
    UNDONE = "undone"


def judge(own: Own, head: Head | None) -> Standing:
    """How a head stands to what is remembered. That a later one builds on ours is still to be seen. Pure.

    A head that is gone is not judged: it may have been forgotten (`repo devices forget`), and others have what it told.
    Whether they do, `headless.was_forgotten` says.
    """
    if head is None or (head.sequence, head.commit) in {(own.sequence, own.commit), (own.sequence + 1, own.next)}:
        return Standing.OURS
    return Standing.LATER if head.sequence > own.sequence else Standing.UNDONE


class Memory(Protocol):
    """Where it is kept. Blocking."""

    def read(self) -> Own:
        """What is remembered now; another process may have written it."""
        ...

    def write(self, own: Own) -> None:
        """Remember this, durably."""
        ...

    def place(self) -> str:
        """Where it is remembered now. No copy that is in use at the same time has the same; "": not known.

        But for a machine that was copied with its memory, while it ran: both sides have the same then.
        """
        ...


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    origin: str
    device: str
    sequence: int
    commit: str
    next: str
    place: str = ""
    unseen: bool = False
    agreed: bool = False


class MemoryFile:
    """In a file of the root's state, which has one writer at a time: who has the state's lock."""

    def __init__(self, path: str, origin: DeviceId, *, boot_id: str = _BOOT_ID) -> None:
        """At `path`; `origin` is the id that `link` gave, and `boot_id` a file that tells one start from all others."""
        self._path = path
        self._origin = origin
        self._boot_id = boot_id

    def read(self) -> Own:
        """See Memory.

        Raises:
            CorruptionError: It can't be understood.
        """
        try:
            with open(self._path, "rb") as file:
                raw = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return Own(device=self._origin)
        try:
            found = msgspec.json.decode(raw, type=_Record)
            device, commit, following = (bytes.fromhex(text) for text in (found.device, found.commit, found.next))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            device, commit, following = b"", b"", b""
        if len(device) != DEVICE_BYTES:
            raise CorruptionError(f"{self._path} is damaged; `blocksync link` with --relink makes a new device of it")
        if found.origin != self._origin.hex():
            return Own(device=self._origin)
        return Own(
            device=DeviceId(device),
            sequence=found.sequence,
            commit=commit,
            next=following,
            place=found.place,
            unseen=found.unseen,
            agreed=found.agreed,
        )

    def write(self, own: Own) -> None:
        """See Memory."""
        record = _Record(
            origin=self._origin.hex(),
            device=own.device.hex(),
            sequence=own.sequence,
            commit=own.commit.hex(),
            next=own.next.hex(),
            place=own.place,
            unseen=own.unseen,
            agreed=own.agreed,
        )
        write_atomically(self._path, msgspec.json.encode(record) + b"\n", mode=0o600)

    def place(self) -> str:
        """See Memory: this start of this machine's kernel, and the folder on it."""
        try:
            with open(self._boot_id, encoding="ascii") as file:
                boot = file.read(_MOST_BYTES).strip()
            folder = os.stat(os.path.dirname(self._path))
        except (OSError, UnicodeDecodeError):
            return ""
        said = f"{boot} {folder.st_dev} {folder.st_ino} {os.path.abspath(self._path)}"
        return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest() if boot else ""


def new_device(random: Callable[[int], bytes] = os.urandom) -> DeviceId:
    """An id that nobody has."""
    return DeviceId(random(DEVICE_BYTES))
