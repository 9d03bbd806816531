"""The server's folder: what is where in it, making it, and the lock that keeps a second server away.

DIR/lock        flock, holds the pid of the running server
DIR/blocks/     block directory
DIR/catalogue/  LMDB catalogue
DIR/token       made without --token-file: one line, `TOKEN default`
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from typing import Final

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.layout import check_block_size
from blockfs.runtime.atomic import space_errors, sync_directory
from syncer.errors import CorruptionError, LockedError, UsageError
from syncer.server.catalogue.catalogue import Catalogue

DEFAULT_BLOCK_SIZE: Final = 64 * 1024
_OWN: Final = frozenset({"lock", "blocks", "catalogue", "token", "lost+found"})  # the last: a filesystem of its own


class ServerFolder:
    """A server's folder, locked for this process until `close`."""

    def __init__(self, path: str, lock_fd: int) -> None:
        """Use `open`."""
        self.path: Final = path
        self.blocks: Final = os.path.join(path, "blocks")
        self.catalogue: Final = os.path.join(path, "catalogue")
        self.token: Final = os.path.join(path, "token")
        self._lock_fd = lock_fd

    @classmethod
    def open(cls, path: str, *, block_size: int | None = None, given: Sequence[str] = ()) -> ServerFolder:
        """Lock a server's folder; make what is missing in a new one.

        Order: block directory → catalogue, each durable by itself. The catalogue is what makes a folder a server's: a
        crash before that leaves blocks without any name, and the next start continues.

        Args:
            path: The folder, made if it is missing.
            block_size: Bytes of a block for a new one (64 KiB if None); for an existing one the same or None.
            given: Files of the server that may lie in a new one (tokens, certificate).

        Raises:
            LockedError: A server runs on it.
            UsageError: It has another block size, the block size is not acceptable, the path can't be such a folder, or
                it has files in it that are not a server's.
            CorruptionError: Blocks without a catalogue, or the reverse.
        """
        path = os.path.abspath(path)
        if block_size is not None:
            check_block_size(block_size)  # before a folder is made
        try:
            with space_errors(path):
                os.makedirs(path, mode=0o700, exist_ok=True)
                _refuse_foreign(path, given)
                sync_directory(os.path.dirname(path))
                folder = cls(path, _lock(path))
        except OSError as error:
            raise UsageError(f"{path} can't be a server's folder: {error.strerror or error}") from None
        try:
            folder._prepare(block_size)
        except BaseException:
            folder.close()
            raise
        return folder

    def close(self) -> None:
        """Unlock."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _prepare(self, block_size: int | None) -> None:
        has_blocks = os.path.exists(os.path.join(self.blocks, "blocks.toml"))
        has_catalogue = _is_filled(os.path.join(self.catalogue, "data.mdb"))
        if has_catalogue and not has_blocks:
            raise CorruptionError(f"{self.path} has a catalogue, but no blocks; restore the folder from a backup")
        if not has_blocks:
            BlockDirectory.create(self.blocks, block_size=block_size or DEFAULT_BLOCK_SIZE).close()
        with BlockDirectory.open(self.blocks) as blocks:
            if block_size not in {None, blocks.block_size}:
                raise UsageError(
                    f"{self.path} has blocks of {blocks.block_size} bytes, not {block_size}: the block size is chosen "
                    "when a server's folder is made; leave --block-size out, or use a new folder"
                )
            if not has_catalogue and blocks.statistics().blocks:
                raise CorruptionError(
                    f"{self.path} has blocks, but no catalogue that says whose they are; restore it from a backup"
                )
            Catalogue.create(self.catalogue, block_size=blocks.block_size)


def _refuse_foreign(path: str, given: Sequence[str]) -> None:
    """Don't make a server of a folder that is somebody's: a home, a volume, what was meant to be synced.

    The catalogue tells a server's folder. Before it is there, a start that was cut short has left names of ours only.
    """
    if _is_filled(os.path.join(path, "catalogue", "data.mdb")):
        return
    allowed = {os.path.basename(one) for one in given if os.path.dirname(os.path.abspath(one)) == path}
    foreign = sorted(set(os.listdir(path)) - _OWN - allowed)
    if foreign:
        raise UsageError(
            f"{path} has files in it that are not a server's ({foreign[0]}{', …' if foreign[1:] else ''}): give a new "
            "or an empty folder; nothing was changed"
        )


def _is_filled(path: str) -> bool:
    """Whether a file is there and not empty: LMDB takes an empty one for a new database."""
    try:
        return os.stat(path).st_size > 0
    except FileNotFoundError:
        return False


def _lock(path: str) -> int:
    """Take the lock and write our pid into it.

    Raises:
        LockedError: With the pid of who has it.
    """
    fd = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(fd, 20, 0)
        os.close(fd)
        raise LockedError(path, int(text) if text.strip().isdigit() else None) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    return fd
