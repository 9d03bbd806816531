"""The folder `hot` of a volume: hot files by inode and number, their descriptors, and who else has them open."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable
from typing import Final

from blockfs.engine.content.hostfile import translated
from blockfs.errors import CorruptionError
from blockfs.runtime.atomic import space_errors
from blockfs.runtime.logs import Log
from blockfs.runtime.reflink import clone_file, copy_in_pages

log = Log()

Key = tuple[int, int]
"""(inode, number): names a hot file."""

_NAME: Final = re.compile(rb"([1-9][0-9]*)\.([1-9][0-9]*)")
_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOATIME


class Descriptor:
    """An open hot file; it is closed when the last user lets go of it."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)

    def is_shared(self) -> bool:
        """Whether somebody else, of whichever process, has the file open or mapped.

        The host grants a lease for writing only if nobody has. In doubt somebody has.
        """
        try:
            fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError:
            return True
        return False


class HotFolder:
    """The folder of one volume. Thread-safe.

    Args:
        path: Where it is; made when the first hot file is.
        checkpoint: Called with the name of each durability step before it is done.
        read_only: Nothing is written.
    """

    def __init__(self, path: bytes, checkpoint: Callable[[str], None], *, read_only: bool = False) -> None:
        self.path = path
        self._read_only = read_only
        self._checkpoint = checkpoint
        self._doomed: list[Key] = []
        self._last_number = 0

    def make(self) -> None:
        """See that it is there. Its name is durable then."""
        try:
            os.mkdir(self.path, 0o700)
        except FileExistsError:
            return
        self._sync(os.path.dirname(self.path))

    def used(self, number: int) -> None:
        """Note that a number was used, in whichever mount."""
        self._last_number = max(self._last_number, number)

    def new_key(self, ino: int) -> Key:
        """A key that no hot file has had. Under the engine's lock."""
        self._last_number += 1
        return ino, self._last_number

    def create(self, key: Key) -> Descriptor:
        """Make an empty hot file. Its name is durable after the next `sync_names`.

        Raises:
            NoSpaceError: The host is full.
            OSError: As open(2).
        """
        self._checkpoint("hot.create")
        with space_errors("hot"):
            file = Descriptor(os.open(self._name(key), _FLAGS | os.O_CREAT | os.O_EXCL, 0o600))
        copy_in_pages(file.fd)
        return file

    def open(self, key: Key) -> Descriptor:
        """Open a hot file.

        Raises:
            CorruptionError: It is gone: the tree names one only once its name is durable.
        """
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC if self._read_only else _FLAGS
            return Descriptor(os.open(self._name(key), flags | os.O_NOFOLLOW))
        except FileNotFoundError:
            where = os.fsdecode(self._name(key))
            raise CorruptionError(
                f"{where}: the hot file of inode {key[0]} is missing; restore it from a backup, or run `blocksync fsck`"
            ) from None

    def capture(self, file: Descriptor, filled: Descriptor | None = None) -> Descriptor | None:
        """A nameless file that shares all of a hot file, as of one instant; None: the host can't.

        Args:
            file: The hot file.
            filled: A nameless file that shares much of it already and is shorter, to become the copy; None: a new one.

        Raises:
            NoSpaceError: The host is full.
        """
        self._checkpoint("hot.capture")
        with space_errors("hot"):
            copy = filled or self.nameless()
            return copy if clone_file(file.fd, copy.fd) else None

    def nameless(self) -> Descriptor:
        """An empty file without a name.

        Raises:
            NoSpaceError: The host is full.
        """
        with space_errors("hot"):
            return Descriptor(os.open(self.path, _FLAGS | os.O_TMPFILE, 0o600))

    def sync_names(self) -> None:
        """Make the names of new hot files durable.

        Raises:
            NoSpaceError: The host is full.
            HostIoError: The host failed.
        """
        self._checkpoint("hot.sync_names")
        self._sync(self.path)

    def _sync(self, path: bytes) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with translated("hot"):
                os.fsync(fd)
        finally:
            os.close(fd)

    def sync(self, file: Descriptor) -> None:
        """Make a hot file's content and size durable.

        Raises:
            NoSpaceError: The host is full.
            HostIoError: The host failed.
        """
        self._checkpoint("hot.fdatasync")
        with translated("hot"):
            os.fdatasync(file.fd)

    def link(self, key: Key, new: Key) -> None:
        """Give a hot file a second name, durable after the next `sync_names`."""
        self._checkpoint("hot.link")
        with translated("hot"), contextlib.suppress(FileExistsError):
            os.link(self._name(key), self._name(new))

    # --- the end of one ---

    def doom(self, key: Key) -> None:
        """Note that a hot file may go; `sweep` removes it. Under the engine's lock."""
        self._doomed.append(key)

    def sweep(self) -> bool:
        """Remove doomed files; says whether there were any. Without the engine's lock: btrfs takes seconds for one."""
        is_any = False
        while self._doomed:
            try:
                key = self._doomed.pop()
            except IndexError:
                break
            self.unlink(key)
            is_any = True
        return is_any

    def unlink(self, key: Key) -> None:
        """Remove a hot file; one that is gone is fine. What the host refuses is left to the next mount."""
        self._checkpoint("hot.unlink")
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._name(key))
        except OSError as error:
            log.warning("hot.not_removed", name=self._name(key), reason=str(error))

    def is_being_written(self, key: Key) -> bool:
        """Whether somebody, of whichever process, may write to a hot file of an earlier mount: has it open, or mapped.

        The host grants a lease for reading only if nobody has. In doubt somebody has.
        """
        try:
            fd = os.open(self._name(key), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError:
            return True
        finally:
            os.close(fd)  # with its lease
        return False

    def _name(self, key: Key) -> bytes:
        return os.path.join(self.path, b"%d.%d" % key)


def names(path: bytes) -> list[Key]:
    """Keys of the hot files in a folder; foreign names are left out. None if there is no folder."""
    try:
        found = [_NAME.fullmatch(os.fsencode(name)) for name in os.listdir(path)]
    except FileNotFoundError:
        return []
    return sorted((int(match[1]), int(match[2])) for match in found if match is not None)
