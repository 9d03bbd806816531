"""A volume on disk: its description, how it is made, and the lock that lets one process at a time write it.

`volume.toml` is written once, last of all files, so a directory that has it is a whole volume:

| key | meaning |
| --- | --- |
| format | format number of the volume's layout; readers refuse a greater one |
| uuid | identity of the volume, in hex with dashes; a copied or restored volume keeps it |
| block_size | bytes of a block, a power of two from 4096 to 4194304 |
| compression | "none" or "zstd": of new blocks; format 1 has "none" only |
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tomllib
import uuid as uuids
from typing import Final

import msgspec

from blockfs.blocks.codec import Compression
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.layout import Layout
from blockfs.errors import CorruptionError, FormatTooNewError, LockedError, NotFoundError, UsageError
from blockfs.runtime.atomic import space_errors, sync_directory, write_all, write_atomically
from blockfs.runtime.mountinfo import mounts_of_volume
from blockfs.runtime.output import shown
from blockfs.runtime.volumes import DESCRIPTION, has_stores
from blockfs.tree.store import Tree

FORMAT: Final = 2  # 1 knew no compression
MIN_BLOCK_SIZE: Final = 4096  # one page: what staging tells apart
MAX_BLOCK_SIZE: Final = 4 << 20  # the default of Pithos servers
DEFAULT_BLOCK_SIZE: Final = 64 << 10  # 6.6 times cheaper per daily snapshot than 4 MiB (architecture, section 3)
COMPRESSIONS: Final = tuple(one.value for one in Compression)
DEFAULT_COMPRESSION: Final = Compression.NONE.value  # ADR 0006

_LOCK: Final = b"lock"
_LOCK_FLAGS: Final = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_STORES: Final = {b"blocks": "its blocks", b"tree": "names and block lists"}
_DESCRIBE_ADVICE: Final = "`blocksync fsck --repair` makes it anew"
_UNFINISHED_MARK: Final = b"init\n"  # what the lock says until the first mount; with no volume.toml: an init was killed
_UNFINISHED: Final = frozenset({_LOCK, b"blocks", b"tree", b"staging", b"volume.toml.tmp"})
_PID_WIDTH: Final = 19  # a line of 20 bytes: any pid fits


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """What volume.toml says, and where it lies.

    Attributes:
        path: Absolute path of the volume's directory.
        uuid: Identity of the volume, in hex with dashes.
        block_size: Bytes of a block.
        compression: One of `COMPRESSIONS`.
    """

    path: bytes
    uuid: str
    block_size: int
    compression: str

    @property
    def blocks_path(self) -> str:
        """The block directory."""
        return os.fsdecode(os.path.join(self.path, b"blocks"))

    @property
    def tree_path(self) -> bytes:
        """The metadata's LMDB."""
        return os.path.join(self.path, b"tree")

    @property
    def staging_path(self) -> bytes:
        """The staging files."""
        return os.path.join(self.path, b"staging")

    @property
    def hot_path(self) -> bytes:
        """Where the hot files are; there is none before a native mount."""
        return os.path.join(self.path, b"hot")

    @classmethod
    def load(cls, path: bytes) -> Volume:
        """Read the description of the volume at `path`.

        Raises:
            NotFoundError: There is no volume.
            FormatTooNewError: Made by a newer blocksync.
            CorruptionError: volume.toml is not readable as one; or it, the blocks or the tree are gone.
        """
        absolute = os.path.abspath(path)
        text = _read_description(absolute)
        if text is None:
            if not has_stores(absolute):
                raise NotFoundError(f"{shown(absolute)}: no blocksync volume here; make one with `blocksync init`")
            raise CorruptionError(f"{shown(absolute)}/volume.toml is gone: {_DESCRIBE_ADVICE}")
        volume = decode_description(absolute, text)
        for store, holds in _STORES.items():
            if not os.path.isdir(os.path.join(absolute, store)):
                raise CorruptionError(
                    f"{shown(absolute)}/{shown(store)} is gone, where a volume has {holds}: restore it from a backup, "
                    "or get your files from where this volume was synced to"
                )
        return volume

    @classmethod
    def describe_anew(cls, path: bytes) -> tuple[Volume, bool]:
        """Make the description of a volume whose volume.toml is damaged or gone. Nothing is written.

        Block size and compression are those of its block directory; the identity is what is left of volume.toml.

        Returns:
            The description, and whether its identity is the old one; else it is a new one.

        Raises:
            FormatTooNewError: Made by a newer blocksync.
            CorruptionError, NotFoundError: The block directory can't be described either.
        """
        absolute = os.path.abspath(path)
        text = _read_description(absolute) or b""
        newer = re.search(rb"^format *= *([0-9]{1,9})", text, re.MULTILINE)
        if newer is not None and int(newer[1]) > FORMAT:
            raise FormatTooNewError(shown(os.path.join(absolute, DESCRIPTION)), int(newer[1]), FORMAT)
        left = re.search(rb'^uuid = "([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"$', text, re.MULTILINE)
        blocks = Layout(os.fsdecode(os.path.join(absolute, b"blocks"))).read_format()
        volume = cls(
            path=absolute,
            uuid=left[1].decode() if left is not None else str(uuids.uuid4()),
            block_size=blocks.block_size,
            compression=blocks.compression.value,
        )
        return volume, left is not None

    def write_description(self) -> None:
        """Write volume.toml, durably. With the volume's lock held."""
        write_atomically(os.path.join(self.path, DESCRIPTION), encode_description(self))


def _read_description(path: bytes) -> bytes | None:
    try:
        with open(os.path.join(path, DESCRIPTION), "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def encode_description(volume: Volume) -> bytes:
    """The content of volume.toml."""
    return (
        "# A blocksync volume. Written once; don't edit: block size and compression describe what is stored.\n"
        f"format = {FORMAT}\n"
        f'uuid = "{volume.uuid}"\n'
        f"block_size = {volume.block_size}\n"
        f'compression = "{volume.compression}"\n'
    ).encode()


def decode_description(path: bytes, text: bytes) -> Volume:
    """Read the content of the volume.toml of the volume at `path`.

    Raises:
        FormatTooNewError: Made by a newer blocksync.
        CorruptionError: Not such a file, or values out of range.
    """
    name = shown(os.path.join(path, DESCRIPTION))
    try:
        table = tomllib.loads(text.decode())
        _check_format(name, int(table["format"]), table["compression"])
        volume = Volume(
            path=path,
            uuid=str(uuids.UUID(table["uuid"])),
            block_size=table["block_size"],
            compression=table["compression"],
        )
        _check(volume)
    except (ValueError, KeyError, TypeError, AttributeError, UsageError) as error:
        raise CorruptionError(f"{name} is damaged ({error}): {_DESCRIBE_ADVICE}") from None
    return volume


def _check_format(name: str, found: int, compression: str) -> None:
    if found > FORMAT:
        raise FormatTooNewError(name, found, FORMAT)
    if found < 1:
        raise UsageError(f"format {found}")
    if found == 1 and compression != Compression.NONE.value:
        raise UsageError("format 1 knows no compression")


def _check(volume: Volume) -> None:
    size = volume.block_size
    if not isinstance(size, int) or size & (size - 1) or not MIN_BLOCK_SIZE <= size <= MAX_BLOCK_SIZE:
        raise UsageError(f"block size {size}: expected a power of two from 4096 to 4194304 (4KiB to 4MiB)")
    if volume.compression not in COMPRESSIONS:
        raise UsageError(f"compression {volume.compression!r}: this version knows {', '.join(COMPRESSIONS)}")


def init(
    path: bytes, *, block_size: int = DEFAULT_BLOCK_SIZE, compression: str = DEFAULT_COMPRESSION, now_ns: int = 0
) -> Volume:
    """Make a new volume, durably.

    Order: lock, marked as an unfinished volume's → block directory → tree → staging directory → volume.toml. Without
    volume.toml it is no volume. What a failed call has made, it removes; what a killed one has left, the next one does.

    Args:
        path: Must not exist, or be a directory that is empty or holds only what an init that was killed has left. Its
            parent must exist.
        block_size: Bytes, a power of two from 4 KiB to 4 MiB.
        compression: One of `COMPRESSIONS`.
        now_ns: Times of the root directory.

    Raises:
        UsageError: `path` holds something else or its parent is missing, or a value out of range.
        LockedError: Another process makes a volume there just now.
        NoSpaceError: The host is full.
    """
    absolute = os.path.abspath(path)
    volume = Volume(path=absolute, uuid=str(uuids.uuid4()), block_size=block_size, compression=compression)
    _check(volume)
    with space_errors(os.fsdecode(absolute)):
        is_new, lock = _claim(absolute)
        try:
            _clear(absolute)
            _fill(volume, now_ns)
        except BaseException:
            # A repeated call, with more room, must find what this one found.
            _clear(absolute)
            _remove(os.path.join(absolute, _LOCK))
            if is_new:
                _remove(absolute)
            raise
        finally:
            os.close(lock)
    return volume


def _claim(path: bytes) -> tuple[bool, int]:
    """Make or take the directory for a new volume; returns whether it is new, and its lock, held.

    Raises:
        UsageError: `path` holds something, or its parent is missing.
        LockedError: Somebody else has claimed it.
    """
    name = os.fsdecode(path)
    is_new = False
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
            is_new = True
        present = set(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{name}: not a directory, or its parent does not exist; make the parent first") from None
    if present and not (_LOCK in present and present <= _UNFINISHED):
        raise UsageError(f"{name}: not empty; a volume needs an empty or new directory")
    fd = -1
    try:
        fd = os.open(os.path.join(path, _LOCK), _LOCK_FLAGS, 0o600)
        _lock(fd, path)
        _mark(fd, path)
    except BaseException:
        if fd >= 0:
            os.close(fd)
        if is_new:
            _remove(path)
        raise
    return is_new, fd


def _mark(lock: int, path: bytes) -> None:
    """Mark what will be in a directory as an unfinished volume's, durably, before it is there.

    Raises:
        UsageError: Something is there already, without that mark: a mount puts its pid in the mark's place.
    """
    if os.pread(lock, 32, 0) == _UNFINISHED_MARK:
        return
    if set(os.listdir(path)) != {_LOCK}:
        raise UsageError(
            f"{os.fsdecode(path)}: was a volume, but volume.toml is gone: restore that file; if nothing in there is "
            "needed any more, remove the directory"
        )
    write_all(lock, _UNFINISHED_MARK, 0)
    os.fsync(lock)


def _clear(path: bytes) -> None:
    """Remove all that an unfinished volume has, but for its lock: that goes last, as it says what the others are."""
    for entry in os.listdir(path):
        if entry != _LOCK:
            _remove(os.path.join(path, entry))


def _fill(volume: Volume, now_ns: int) -> None:
    BlockDirectory.create(
        volume.blocks_path, block_size=volume.block_size, compression=Compression(volume.compression)
    ).close()
    Tree.create(volume.tree_path, now_ns=now_ns, uid=os.geteuid(), gid=os.getegid()).close()
    os.mkdir(volume.staging_path, 0o700)
    sync_directory(volume.path)
    volume.write_description()
    sync_directory(os.path.dirname(volume.path))


def _remove(path: bytes) -> None:
    """Remove a file or a directory with all that is in it, as far as the host lets us."""
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def lock_holder(path: bytes) -> int | None:
    """The process that holds a volume's lock, or held it last, as it wrote itself down; None: nobody did."""
    try:
        fd = os.open(os.path.join(path, _LOCK), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        digits = (file.read(32) or b"").strip()  # None: a fifo that somebody holds open
    return int(digits) if digits.isdigit() else None


def _lock(fd: int, path: bytes) -> None:
    """Take the flock of a volume's lock file.

    Raises:
        LockedError: Another process (or another descriptor of this one) holds it.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        mounts = mounts_of_volume(os.path.realpath(path))
        mounted_at = shown(mounts[0].mountpoint) if mounts else None
        raise LockedError(shown(path), lock_holder(path), mounted_at=mounted_at) from None


class VolumeLock:
    """The right to change a volume: a flock that the kernel releases when the process ends, however it ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def acquire(cls, path: bytes) -> VolumeLock:
        """Lock the volume at `path`, or say who has it.

        Raises:
            LockedError: Another process (or another lock of this one) holds it.
            OSError: As open(2).
        """
        fd = os.open(os.path.join(path, _LOCK), _LOCK_FLAGS, 0o600)
        lock = cls(fd)
        try:
            _lock(fd, path)
            lock.record_holder()
        except BaseException:
            lock.release()
            raise
        return lock

    def record_holder(self) -> None:
        """Write this process's id into the lock: again after a fork that hands the lock on.

        In place and always as long: cutting the file first would need a new block, which a full host does not have.
        """
        with space_errors("lock"):
            os.pwrite(self._fd, f"{os.getpid():<{_PID_WIDTH}}\n".encode(), 0)

    def release(self) -> None:
        """Let others have the volume. Idempotent."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)
