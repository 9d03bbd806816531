"""The mount process: takes the volume and the mountpoint, serves FUSE and the control socket, ends cleanly.

Start: fork (`daemon`; before any thread) → volume lock and recovery → mountpoint → mount → control socket → loop →
"ready" to the parent.
End, whoever asks (umount, SIGTERM, the control socket): kernel writes its dirty pages and unmounts → the loop ends →
control socket closed → everything committed → lock released → process gone.
End by a bug, in whatever thread: nothing is committed any more → the loop ends → the connection is cut, the mountpoint
let go → control socket closed → lock released → process gone.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import msgspec
import trio

from blockfs.control.server import ControlServer
from blockfs.engine.config import OPEN_STAGING_FILES, EngineConfig
from blockfs.engine.fatal import Fatal
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import KernelTooOldError, LockedError, MountError
from blockfs.exitcodes import ExitCode
from blockfs.fuse.forgetting import Forgetter
from blockfs.fuse.writeback import take_pages_below
from blockfs.mount import frontends, mountpoints, native
from blockfs.mount.choice import Choice
from blockfs.mount.connection_limits import ConnectionLimits
from blockfs.mount.ending_signals import EndingSignals
from blockfs.mount.frontends import Frontend, Load
from blockfs.runtime import descriptors
from blockfs.runtime.linux import syncfs_descriptor
from blockfs.runtime.logs import Log
from blockfs.runtime.mountinfo import mounts_of_volume
from blockfs.runtime.notify import ServiceManager
from blockfs.runtime.output import shown
from blockfs.service.collector import Collector
from blockfs.service.counters import Counters
from blockfs.service.handler import MountHandler

LOG_NAME: Final = b"mount.log"
ENDING_TIMEOUT_S: Final = 30.0  # for the process of an earlier mount that has unmounted and still commits
ABANDONED_TIMEOUT_S: Final = 60.0  # for the threads of a mount that a bug has ended

log = Log()

_STAGING_FILES: Final = 16_384  # each is an inode that the kernel keeps; more with unsynced data are rare
_GIL_INTERVAL_S: Final = 0.0001  # a request that waits for a busy sealing thread waits this long, not Python's 5 ms


class MountOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to mount where, and how.

    Attributes:
        volume: Absolute real path.
        mountpoint: Absolute real path.
        read_only: The kernel refuses what would write, and the volume stays as it is.
        allow_other: Users other than the mount's own may come in.
        kernel_flags: Further options that the kernel enforces, such as "noexec".
        log_level: The least that is logged, `logging.DEBUG` to `logging.ERROR`.
        frontend: What serves it.
        native: Whether the kernel shall read and write files of the host itself, where it can; None: as is safe there.
    """

    volume: bytes
    mountpoint: bytes
    read_only: bool = False
    allow_other: bool = False
    kernel_flags: frozenset[str] = frozenset()
    log_level: int = logging.INFO
    frontend: Choice = Choice.AUTO
    native: bool | None = None

    @property
    def fuse_flags(self) -> frozenset[str]:
        """As front-ends want them."""
        ours = {"ro": self.read_only, "allow_other": self.allow_other}
        return self.kernel_flags | {flag for flag, wanted in ours.items() if wanted}


def serve(options: MountOptions, manager: ServiceManager, *, ready: Callable[[], None]) -> None:
    """Open the volume, mount it, serve until unmounted, commit.

    Raises:
        AbandonedError: A bug ended it.
        BlockfsError: Locked, corrupt, no space, mountpoint not usable, FUSE not available.
    """
    load = frontends.loaded(options.frontend)
    descriptors.raise_limit()  # a native mount has one for each file that is open, or not sealed yet
    sys.setswitchinterval(_GIL_INTERVAL_S)
    # To learn who has a hot file open the engine takes a lease on it, for a moment; who opens it then has us told so.
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    filesystem = _opened(options)
    # Until everything is committed: when the kernel has unmounted, a service manager or a system that shuts down sends
    # SIGTERM to who is still there.
    with EndingSignals() as signals, _deadline(filesystem.fatal):
        seal = False
        try:
            with filesystem.fatal.owning("the event loop"):
                seal = _serve_mounted(options, manager, load, filesystem, signals, ready)
        finally:
            filesystem.close(seal=seal)  # or abandon it
    log.info("mount.ended", volume=options.volume)


@contextmanager
def _deadline(fatal: Fatal) -> Iterator[None]:
    """Once the mount is abandoned, nothing that its threads could still do counts: after a while, end without them."""
    timer = threading.Timer(ABANDONED_TIMEOUT_S, os._exit, [ExitCode.CHANGES_LOST])
    timer.daemon = True

    def start() -> None:
        with suppress(RuntimeError):  # the host has no thread for it
            timer.start()

    fatal.listen(start)
    try:
        yield
    finally:
        timer.cancel()


def _serve_mounted(
    options: MountOptions,
    manager: ServiceManager,
    load: Load,
    filesystem: Filesystem,
    signals: EndingSignals,
    ready: Callable[[], None],
) -> bool:
    """Mount an open volume and serve it until the kernel has unmounted; whether it shall be sealed, now that it has."""
    place = f"{shown(options.volume)} at {shown(options.mountpoint)}"

    def serving() -> None:
        ready()
        manager.ready(f"serving {place}")

    mountpoints.take(options.mountpoint)
    counters = Counters()
    frontend = _mounted(options, load, filesystem, counters)
    why_not = native.why_not(options.frontend, wanted=options.native, volume=options.volume) or frontend.why_not_native
    if why_not is not None:
        filesystem.hot.why_not = why_not  # those that an earlier mount left go when they are sealed
        log.debug("mount.not_native", reason=why_not)
    limits = ConnectionLimits(options.mountpoint)

    def cut_off() -> None:
        """If the kernel has not unmounted: nobody serves it any more, so who waits for an answer must not go on."""
        if frontend.is_unmounted:
            return
        limits.cut()
        mount = mountpoints.mount_at(options.mountpoint)
        if mount is not None and mount.source == options.volume:
            mountpoints.unmount(options.mountpoint, lazy=True)

    with ExitStack() as parts:
        parts.callback(limits.close)
        parts.callback(frontend.close)
        parts.callback(cut_off)
        forget_pages = Forgetter(frontend.forget_pages)
        parts.callback(forget_pages.end)
        filesystem.files.call_on_failure(forget_pages)
        filesystem.fatal.listen(frontend.abandon)
        limits.shorten()
        limits.read_ahead()
        end = _Ending(options.mountpoint, filesystem, frontend, lambda: manager.stopping(f"committing {place}"))
        handler = MountHandler(filesystem, frontend, options.mountpoint, end.unmount, counters)
        handler.why_not_native = why_not
        server = filesystem.ballast.spend(lambda: ControlServer(options.volume, handler))
        parts.callback(server.stop)
        if not options.read_only:
            parts.callback(Collector(filesystem, handler.ending, counters).join)
        parts.callback(counters.activity.end)
        parts.callback(handler.ending.set)
        parts.callback(cut_off)  # first: a thread of ours may wait, in the kernel, for who waits for an answer
        parts.callback(end.announce)
        log.info("mount.ready", volume=options.volume, mountpoint=options.mountpoint, pid=os.getpid())
        trio.run(_run_loop, frontend, limits, end, signals, serving)
    return handler.seals


def _mounted(options: MountOptions, load: Load, filesystem: Filesystem, counters: Counters) -> Frontend:
    """Mount by this front-end, or by the other one if `auto` asked for what this kernel can do."""
    frontend = load(filesystem, counters)
    try:
        frontend.mount(options.volume, options.mountpoint, flags=options.fuse_flags)
    except KernelTooOldError as error:
        frontend = frontends.after_refusal(options.frontend, error)(filesystem, counters)
        frontend.mount(options.volume, options.mountpoint, flags=options.fuse_flags)
    return frontend


def _opened(options: MountOptions) -> Filesystem:
    """Open the volume. umount(8) returns while the mount process still commits: a mount after it waits for that end.

    Raises:
        LockedError: Mounted, or somebody else holds it for longer than `ENDING_TIMEOUT_S`.
    """
    is_native = native.why_not(options.frontend, wanted=options.native, volume=options.volume) is None
    open_files = min(max(descriptors.limit() // 16, OPEN_STAGING_FILES), _STAGING_FILES)
    config = EngineConfig(read_only=options.read_only, native=is_native, open_staging_files=open_files)
    try:
        return Filesystem.open(options.volume, config)
    except LockedError as error:
        holder = error.holder_pid
        if holder is None or mounts_of_volume(options.volume) or not _has_ended(holder, ENDING_TIMEOUT_S):
            raise
    return Filesystem.open(options.volume, config)


def _has_ended(pid: int, timeout_s: float) -> bool:
    """Wait for the end of a process; whether it came in time."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], timeout_s)[0])
    finally:
        os.close(process)


async def _run_loop(
    frontend: Frontend, limits: ConnectionLimits, end: _Ending, signals: EndingSignals, ready: Callable[[], None]
) -> None:
    """Serve requests until the kernel has unmounted."""
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end_on_signal, signals, end)
            nursery.start_soon(frontend.keep_dirty_low, limits)
            ready()
            await frontend.serve()
            nursery.cancel_scope.cancel()
    finally:
        signals.ignore()  # they have nothing more to tell


async def _end_on_signal(signals: EndingSignals, end: _Ending) -> None:
    """End the mount for a signal that comes, or has come before anybody listened."""
    number = await signals.first()
    log.info("mount.signalled", signal=number.name)
    end.announce()
    # In a thread: the kernel writes dirty pages back through this very loop before it lets go.
    await trio.to_thread.run_sync(end.now)


class _Ending:
    """The ways to end a mount. Called from threads, never from the loop: unmounting needs the loop to answer.

    Attributes:
        announce: Say that the end has begun.
    """

    def __init__(
        self, mountpoint: bytes, filesystem: Filesystem, frontend: Frontend, announce: Callable[[], None]
    ) -> None:
        self._mountpoint = mountpoint
        self._filesystem = filesystem
        self._frontend = frontend
        self.announce = announce

    def unmount(self) -> None:
        """Unmount if nobody uses it.

        Raises:
            MountBusyError: Somebody does; the mount goes on.
        """
        mountpoints.unmount(self._mountpoint)

    def now(self) -> None:
        """Unmount; if somebody uses it, take what the kernel holds and cut it off: open files fail with ENOTCONN."""
        try:
            self.unmount()
        except MountError as error:
            # Someone detached it lazily before us: it lives only for files that are still open.
            log.warning("mount.not_unmounted", reason=str(error))
            self._frontend.terminate()
        except mountpoints.MountBusyError:
            log.warning("mount.cut_off", mountpoint=self._mountpoint)
            descriptor = os.open(self._mountpoint, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                mountpoints.unmount(self._mountpoint, lazy=True)
                syncfs_descriptor(descriptor)  # after the detach: nobody new can come and write
                take_pages_below(self._filesystem, descriptor)
            finally:
                os.close(descriptor)
            self._frontend.terminate()
