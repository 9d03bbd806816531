"""Starting the mount process: in the foreground; or as a daemon, which tells once whether the mount answers."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import msgspec

from blockfs.errors import EXPECTED
from blockfs.exitcodes import ExitCode
from blockfs.mount import mountpoints
from blockfs.mount.abort import end_dying
from blockfs.mount.process import LOG_NAME, MountOptions, serve
from blockfs.runtime.failures import code_of, said
from blockfs.runtime.logs import Log, log_to, open_log
from blockfs.runtime.notify import ServiceManager
from blockfs.runtime.output import shown
from blockfs.service.child import ChildError, Report, killed

log = Log()


def run_foreground(options: MountOptions, manager: ServiceManager, ready: Callable[[], None]) -> None:
    """Serve until unmounted or interrupted; logs go to stderr. `ready`: called when the mount answers."""
    _check(options)
    log_to(sys.stderr, level=options.log_level)
    serve(options, manager, ready=ready)


def run_daemon(options: MountOptions, manager: ServiceManager) -> None:
    """Start a mount process and return when the mount answers.

    Raises:
        BlockfsError: It could not start; the process is gone.
    """
    _check(options)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        os._exit(_child(options, manager, writer))
    os.close(writer)
    with open(reader, "rb") as pipe:
        try:
            told = pipe.read()
        except KeyboardInterrupt:
            os.kill(pid, signal.SIGTERM)  # it has a session of its own: Ctrl-C does not reach it
            os.waitpid(pid, 0)
            raise
    if not told:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code < 0:
            raise killed(options.volume, -code)
        path = shown(os.path.join(options.volume, LOG_NAME))
        raise ChildError(ExitCode.UNEXPECTED, f"the mount process ended with status {code}; see {path}")
    report = msgspec.json.decode(told, type=Report)
    if report.exit_code != ExitCode.DONE:
        os.waitpid(pid, 0)
    report.check()
    os.statvfs(options.mountpoint)  # the first request: its answer is the proof that the mount works


def _check(options: MountOptions) -> None:
    """Refuse what can't work, before anything is opened."""
    end_dying(options.volume)  # first: else the check would wait for its answer
    mountpoints.check_places(options.volume, options.mountpoint)
    mountpoints.check_rights(allow_other=options.allow_other)


def _child(options: MountOptions, manager: ServiceManager, writer: int) -> int:
    """Body of the forked process; returns its exit code."""
    os.setsid()
    os.chdir("/")  # a daemon must not keep the directory it was started from busy
    os.umask(0o077)

    def tell(report: Report) -> None:
        nonlocal writer
        if writer >= 0:
            with open(writer, "wb") as pipe:
                pipe.write(msgspec.json.encode(report))
            writer = -1

    def ready() -> None:
        _detach(options)
        tell(Report())

    try:
        log_to(open_log(os.path.join(options.volume, LOG_NAME)), level=options.log_level)
        serve(options, manager, ready=ready)
    except EXPECTED as error:
        log.error("mount.failed", reason=said(error))  # noqa: TRY400 - an expected failure has no use for a traceback
        tell(Report(exit_code=code_of(error), message=said(error)))
        return code_of(error)
    except Exception:
        log.exception("mount.crashed")  # the top of this process: there is nobody else to write it down
        return ExitCode.UNEXPECTED
    return ExitCode.DONE


def _detach(options: MountOptions) -> None:
    """Let go of the terminal. Only now: what libfuse has to say about a failed mount goes to the user."""
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    with open_log(os.path.join(options.volume, LOG_NAME)) as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
