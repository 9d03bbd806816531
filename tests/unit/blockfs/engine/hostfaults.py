"""A host that fails at its k-th call, under a script that goes through staging, blocks, tree and snapshots.

Each operation of the script is one call of the engine. When one fails, its caller must get the host's errno; what had
been made durable must be there for a process that comes after a kill at that moment; and when the host works again, the
same call must succeed, in the same mount. At the end all contents are as if nothing had happened, and sound.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import lmdb
import msgspec

from blockfs.blocks.codec import Compression
from blockfs.blocks.disk import Disk
from blockfs.blocks.maintenance.scrub import scrub
from blockfs.engine import volume as volumes
from blockfs.engine.content import staging
from blockfs.engine.durable.failing import FlushFailedError
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.space.ballast import Ballast
from blockfs.errors import BlockfsError
from blockfs.runtime.atomic import space_errors
from blockfs.service import maintenance
from blockfs.service.errnos import errno_of
from blockfs.tree.fsck.findings import Problem
from blockfs.tree.overlay import ChangeSet, OverlayStore
from blockfs.tree.schema import ROOT_INO, SNAPSHOTS_INO
from tests.unit.blockfs.blocks.disks import memory_folder
from tests.unit.blockfs.engine.volumes import PowerCut, config, content, copy, create, find, findings

BLOCK: Final = 4096
MANY: Final = 256
"""Blocks of a file whose half dies: enough for a collection to move the rest."""

_CODES: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
_IN_A_ROW: Final = 4

Finish = Callable[["lmdb.Transaction[bytes]"], None]


class Fault(msgspec.Struct, frozen=True):
    """What the host does wrong.

    Attributes:
        code: The errno.
        at: Number of the first call that fails, from 1.
        lasts: Whether all later calls fail, too, until the host is repaired.
    """

    code: int
    at: int
    lasts: bool


class FaultyHost:
    """The host below one volume: counts its calls while `watching`, and fails as told until `repair`ed."""

    def __init__(self, volume: bytes, fault: Fault | None) -> None:
        self.calls: list[str] = []
        self.fault = fault
        self.has_failed = False
        self._volume = os.path.realpath(volume) + b"/"

    def repair(self) -> None:
        self.fault = None

    def _fails(self, name: str) -> OSError | None:
        self.calls.append(name)
        fault = self.fault
        if fault is None or len(self.calls) < fault.at or (len(self.calls) > fault.at and not fault.lasts):
            return None
        self.has_failed = True
        return OSError(fault.code, os.strerror(fault.code))

    def _is_below(self, place: int | str | bytes, directory: int | None = None) -> bool:
        if isinstance(place, int):
            path = os.readlink(b"/proc/self/fd/%d" % place)
        elif directory is not None:
            path = os.readlink(b"/proc/self/fd/%d" % directory)
        else:
            path = os.fsencode(place)
        return (path + b"/").startswith(self._volume)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Stand between the process and the host."""
        with contextlib.ExitStack() as stack:
            for name in ("fdatasync", "fsync", "ftruncate", "unlink", "posix_fallocate"):
                stack.enter_context(mock.patch.object(os, name, self._failing(name, getattr(os, name))))
            check = self._failing("check_written", staging.check_written)
            stack.enter_context(mock.patch.object(staging, "check_written", check))
            stack.enter_context(mock.patch.object(os, "open", self._open(os.open)))
            stack.enter_context(mock.patch.object(os, "pwrite", self._pwrite(os.pwrite)))
            stack.enter_context(mock.patch.object(os, "pwritev", self._pwritev(os.pwritev)))
            stack.enter_context(mock.patch.object(Disk, "punch", self._punch(Disk.punch)))
            stack.enter_context(mock.patch.object(Disk, "commit", self._commit(Disk.commit)))
            stack.enter_context(mock.patch.object(OverlayStore, "write", self._tree_write(OverlayStore.write)))
            yield

    def _failing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(place: int | str | bytes, *arguments: Any, **keywords: Any) -> Any:
            if self._is_below(place, keywords.get("dir_fd")) and (error := self._fails(name)):
                raise error
            return real(place, *arguments, **keywords)

        return call

    def _open(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(path: str | bytes, flags: int, *arguments: Any, **keywords: Any) -> int:
            makes = flags & os.O_CREAT and self._is_below(path, keywords.get("dir_fd"))
            if makes and (error := self._fails("create")):
                raise error
            return real(path, flags, *arguments, **keywords)

        return call

    def _pwrite(self, real: Callable[[int, Any, int], int]) -> Callable[[int, Any, int], int]:
        def call(fd: int, data: Any, offset: int) -> int:
            if self._is_below(fd) and (error := self._fails("write")):
                real(fd, bytes(data)[: len(data) // 2], offset)
                raise error
            return real(fd, data, offset)

        return call

    def _pwritev(self, real: Callable[[int, Any, int], int]) -> Callable[[int, Any, int], int]:
        def call(fd: int, parts: Any, offset: int) -> int:
            if self._is_below(fd) and (error := self._fails("write")):
                data = b"".join(parts)
                real(fd, [data[: len(data) // 2]], offset)
                raise error
            return real(fd, parts, offset)

        return call

    def _punch(self, real: Callable[[Disk, int, int, int], None]) -> Callable[[Disk, int, int, int], None]:
        def call(disk: Disk, fd: int, offset: int, length: int) -> None:
            if error := self._fails("punch"):
                with space_errors("the test's host"):
                    raise error
            real(disk, fd, offset, length)

        return call

    def _commit(self, real: Callable[[Disk, Any], None]) -> Callable[[Disk, Any], None]:
        def call(disk: Disk, transaction: lmdb.Transaction[bytes]) -> None:
            if error := self._fails("index commit"):
                raise _lmdb_error(error)
            real(disk, transaction)

        return call

    def _tree_write(self, real: Callable[..., None]) -> Callable[..., None]:
        def call(store: OverlayStore, change_set: ChangeSet, finish: Finish) -> None:
            def fail_or_finish(transaction: lmdb.Transaction[bytes]) -> None:
                finish(transaction)
                if error := self._fails("tree commit"):
                    raise _lmdb_error(error)

            real(store, change_set, fail_or_finish)

        return call


def _lmdb_error(error: OSError) -> lmdb.Error:
    """As LMDB tells it: the transaction is rolled back."""
    made = lmdb.Error(os.strerror(error.errno or 0))
    made.code = error.errno
    return made


def _half_full(number: int) -> bytes:
    """A block that is stored in about 600 bytes."""
    return random.Random(number).randbytes(600).hex().encode().ljust(BLOCK, b"\0")


class Script:
    """A mount, what is done to it, and what its files must hold."""

    def __init__(self, path: bytes, host: FaultyHost, home: Path) -> None:
        self.host = host
        self.path = path
        self.home = home
        self.cuts = PowerCut()
        self._open()
        self.live: dict[bytes, bytes] = {}
        self.durable: dict[bytes, bytes | None] = {}
        self.kept: dict[bytes, bytes] = {}

    # --- one call of the engine each

    def do(self, call: Callable[[], object]) -> bool:
        """Do something; when the host fails: check what it did, repair it, and do it again. Whether it failed."""
        fault = self.host.fault
        error = self._failure(call)
        if error is None:
            return False
        assert fault is not None, f"a sound host failed: {error!r}"
        assert errno_of(error) == fault.code, f"{error!r} is not {os.strerror(fault.code)}"
        for power_cut in (False, True):
            self.check_killed(power_cut=power_cut)
        self.host.repair()
        try:
            call()
        except BlockfsError:
            self.mend()
            call()
        return True

    def mend(self) -> None:
        """Write again what failed flushes have lost, as programs must, and be told of them."""
        for name, data in self.live.items():
            ino = self.ino(name)
            if self.fs.files.failure(ino) is not None:
                self.fs.files.write(ino, 0, data, may_block=True)
            with contextlib.suppress(FlushFailedError):
                self.fs.files.fsync(ino)
        self.fs.files.flush()

    def _failure(self, call: Callable[[], object]) -> BlockfsError | OSError | None:
        try:
            with self.host.watching():
                call()
        except (BlockfsError, OSError) as error:
            return error
        return None

    def create(self, name: bytes) -> None:
        create(self.fs, name)
        self.live[name] = b""
        self.durable[name] = None

    def write(self, name: bytes, offset: int, data: bytes) -> None:
        ino = self.ino(name)

        def act() -> None:
            done = 0
            while done < len(data):
                done += self.fs.files.write(ino, offset + done, data[done:], may_block=True)

        old = self.live[name].ljust(offset, b"\0")
        self.change(name)
        self.do(act)
        self.live[name] = old[:offset] + data + old[offset + len(data) :]

    def truncate(self, name: bytes, size: int) -> None:
        self.change(name)
        self.do(lambda: self.fs.files.truncate(self.ino(name), size, may_block=True))
        self.live[name] = self.live[name][:size].ljust(size, b"\0")

    def zero(self, name: bytes, offset: int, length: int) -> None:
        self.change(name)
        self.do(lambda: self.fs.files.zero(self.ino(name), offset, length, keeps_size=True))
        old = self.live[name]
        self.live[name] = old[:offset] + bytes(length) + old[offset + length :]

    def copy_range(self, source: bytes, name: bytes, to: int) -> None:
        """All of the source."""
        data = self.live[source]

        def act() -> None:
            done = 0
            while done < len(data):
                done += self.fs.copy_range(self.ino(source), done, self.ino(name), to + done, len(data) - done)

        old = self.live[name].ljust(to, b"\0")
        self.change(name)
        self.do(act)
        self.live[name] = old[:to] + data + old[to + len(data) :]

    def fsync(self, name: bytes) -> None:
        has_failed = self.do(lambda: self.fs.files.fsync(self.ino(name)))
        self.durable[name] = self.live[name]
        if has_failed:
            self.check_killed(power_cut=True)  # a flush that failed before must not be taken for done

    def flush(self) -> None:
        self.do(self.fs.files.flush)
        self.durable.update(self.live)

    def commit(self) -> None:
        self.do(self.fs.commit)

    def replace(self, name: bytes, data: bytes) -> None:
        """A temporary file, renamed over."""
        self.create(b"new")
        self.write(b"new", 0, data)
        self.change(name)
        self.do(lambda: self.fs.namespace.rename(ROOT_INO, b"new", ROOT_INO, name, may_block=True))
        self.live[name] = self.live.pop(b"new")
        del self.durable[b"new"]

    def clone(self, name: bytes, new: bytes) -> None:
        self.do(lambda: self.fs.clone(self.ino(name), ROOT_INO, new))
        self.live[new] = self.live[name]
        self.durable[new] = None

    def unlink(self, name: bytes) -> None:
        self.durable.pop(name, None)
        self.do(lambda: self.fs.namespace.unlink(ROOT_INO, name))
        del self.live[name]

    def collect(self) -> None:
        ballast = Ballast(self.path, 0)
        self.do(lambda: maintenance.gc(self.fs.blocks, self.fs.tree, ballast, commit=self.fs.commit))

    def snapshot(self) -> None:
        self.do(lambda: self.fs.snapshots.create(ROOT_INO, b"s"))
        self.kept = dict(self.live)
        self.durable.update(self.live)

    def delete_snapshot(self) -> None:
        taken: list[int] = []
        self.do(lambda: taken.append(self.fs.snapshots.take_away(b"s")))
        self.kept = {}
        with contextlib.suppress(BlockfsError), self.host.watching():
            self.fs.snapshots.remove(taken[0])  # what fails here is done by the next mount

    def remount(self) -> None:
        """All is durable before; a failed end leaves the volume as a kill does."""
        self.do(self.fs.sync)
        self.durable.update(self.live)
        with contextlib.suppress(BlockfsError, OSError), self.host.watching():
            self.fs.close()
        self.do(self._open)

    def _open(self) -> None:
        self.fs = Filesystem.open(self.path, config())
        self.cuts.watch(self.fs)
        self.fs.snapshots.remove_unfinished()  # as the background does

    # --- checking

    def change(self, name: bytes) -> None:
        """From now on a kill may leave the new content of a file."""
        self.durable[name] = None

    def ino(self, name: bytes) -> int:
        ino = find(self.fs, name)
        assert ino is not None
        return ino

    def check_killed(self, *, power_cut: bool) -> None:
        """A process that comes after a kill or power cut finds what is durable, and a sound volume."""
        with tempfile.TemporaryDirectory(dir=self.home) as folder:
            path = copy(self.path, Path(folder, "killed"))
            if power_cut:
                self.cuts.strike(os.path.join(path, b"staging"), seed=len(self.host.calls))
            again = Filesystem.open(path, config())
            try:
                for name, data in self.durable.items():
                    if data is not None:
                        assert content(again, name) == data, f"{name!r} is not what was made durable"
                self.check_snapshot(again)
                with contextlib.suppress(FlushFailedError):
                    again.files.flush()
                assert [found for found in findings(again) if found.problem is not Problem.FAILED_FLUSH] == []
            finally:
                again.abandon()

    def check_snapshot(self, filesystem: Filesystem) -> None:
        for name, data in self.kept.items():
            ino = filesystem.namespace.resolve(b".snapshots/s/" + name).ino
            assert filesystem.files.read(ino, 0, len(data) + 1, may_block=True) == data

    def check(self) -> None:
        """All contents are as they must be, and the volume is sound."""
        self.host.repair()
        for name, data in self.live.items():
            assert content(self.fs, name) == data, f"{name!r}"
        self.check_snapshot(self.fs)
        self.fs.files.flush()
        assert findings(self.fs) == []
        assert scrub(self.fs.blocks).is_clean
        assert not list(self.fs.tree.orphans())

    # --- the script

    def run(self) -> None:
        """Do everything once."""
        many = [_half_full(number) for number in range(MANY)]
        self.create(b"a")
        self.write(b"a", 100, b"a" * 9000)
        self.fsync(b"a")
        self.write(b"a", 5000, b"A" * 3000)
        self.fsync(b"a")
        self.create(b"many")
        self.write(b"many", 0, b"".join(many))
        self.flush()
        self.truncate(b"a", 4500)
        self.fsync(b"a")
        self.create(b"b")
        self.write(b"b", 0, b"b" * 20_000)
        self.write(b"a", 4000, b"x" * 100)
        self.clone(b"a", b"c")
        self.commit()
        self.write(b"many", 5 * BLOCK, b"m" * BLOCK)
        self.zero(b"many", BLOCK // 2, 6 * BLOCK)
        self.copy_range(b"c", b"many", 9 * BLOCK)
        self.fsync(b"many")
        self.replace(b"b", b"B" * 5000)
        self.fsync(b"b")
        for number in range(0, MANY, 2):
            many[number] = bytes(BLOCK)
        self.write(b"many", 0, b"".join(many))
        self.flush()
        self.collect()
        self.write(b"a", 0, b"y" * 6000)
        self.snapshot()
        self.check_snapshot(self.fs)
        self.unlink(b"b")
        self.commit()
        self.write(b"a", 0, b"z" * 700)
        self.remount()
        self.collect()
        self.delete_snapshot()
        self.truncate(b"many", 10 * BLOCK + 5)
        self.commit()
        self.collect()
        self.remount()
        self.check()
        assert not list(self.fs.tree.entries(SNAPSHOTS_INO))


def play(fault: Fault | None) -> FaultyHost:
    """Run the script on a host with a fault; returns the host.

    Raises:
        AssertionError: Something was lost, or told wrongly, or could not be done again.
    """
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        home = Path(folder)
        path = volumes.init(os.fsencode(home / "volume"), block_size=BLOCK, compression=Compression.ZSTD.value).path
        host = FaultyHost(path, fault)
        script = Script(path, host, home)
        try:
            script.run()
        finally:
            script.fs.abandon()
        return host


def failure_of(fault: Fault) -> str | None:
    """What goes wrong under a fault; None: nothing."""
    try:
        host = play(fault)
    except (AssertionError, BlockfsError, OSError) as error:
        return f"{fault}: {type(error).__name__}: {error}"
    return None if host.has_failed else f"{fault}: the host has not so many calls"


def all_faults() -> list[Fault]:
    """Every call of the script with every errno, once and for good. Of many equal writes in a row, the first few."""
    faults = []
    in_a_row = 0
    calls = play(None).calls
    for number, name in enumerate(calls, 1):
        in_a_row = in_a_row + 1 if number > 1 and calls[number - 2] == name else 0
        if in_a_row < _IN_A_ROW:
            faults += [Fault(code, number, lasts) for code in _CODES for lasts in (False, True)]
    return faults
