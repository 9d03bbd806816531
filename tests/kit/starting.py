"""Commands in processes of their own that do not load the program anew: forks of one interpreter that has loaded it.

Most of a short command is its start, and a run of the tests starts a thousand. What a fork runs is the entry point of
the console script, with the caller's files, environment and folder; only what is loaded already differs. Whoever tests
a start itself, or a process under a tool, starts the script.

    python -m tests.kit.starting    the process that forks; its stdin is the socket of requests
"""

from __future__ import annotations

import array
import atexit
import ctypes
import gc
import importlib
import os
import pickle
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

PROJECT: Final = Path(__file__).parents[2]
_STREAMS: Final = 3
_LENGTH_BYTES: Final = 4
_ADDRESS_BYTES: Final = 100  # of a Unix socket
_NETWORK: Final = 0x40000000  # CLONE_NEWNET
_FIELDS_BEFORE, _ARG_START, _ARG_END = 3, 48, 49  # of /proc/PID/stat, proc(5)
_ROOM: Final = "-" * 4096
"""An argument of the starter's: in its place stand those of a fork."""
_LOADED: Final = ("blockfs", "syncer")
_AT_START: Final = ("PYTHON", "LD_")
"""Variables of these prefixes count when an interpreter starts: with others than ours, it must be started."""


class Request(NamedTuple):
    """One command line."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    network: str


def run(
    arguments: Sequence[str | Path | bytes],
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    network: str = "",
    program: Path = PROJECT,
) -> subprocess.CompletedProcess[str]:
    """Run `blocksync` with these arguments to its end, as `subprocess.run` does with all that it says captured.

    Args:
        arguments: Without the program's name.
        environment: All of it; else this process's.
        folder: The folder it starts in; else this process's.
        network: A file of the network namespace it runs in (/proc/PID/ns/net); empty: this process's.
        program: The folder with the packages: another release's.
    """
    if _at_start(environment or os.environ) != _at_start(os.environ):
        assert program == PROJECT
        return _started(arguments, environment, folder, network)
    request = Request(
        [os.fsdecode(argument) for argument in arguments],
        dict(os.environ if environment is None else environment),
        str(Path.cwd() if folder is None else folder),
        network,
    )
    with (
        open(os.devnull, "rb") as nothing,
        tempfile.TemporaryFile("w+", errors="surrogateescape") as out,
        tempfile.TemporaryFile("w+", errors="surrogateescape") as err,
        socket.socket(socket.AF_UNIX) as connection,
    ):
        connection.connect(_starter(program))
        streams = array.array("i", [nothing.fileno(), out.fileno(), err.fileno()])
        packed = pickle.dumps(request)
        length = len(packed).to_bytes(_LENGTH_BYTES, "big")
        connection.sendmsg([length], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        connection.sendall(packed)
        code = int(connection.makefile("rb").read())
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["blocksync", *request.arguments], code, out.read(), err.read())


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_START)}


def _started(
    arguments: Sequence[str | Path | bytes], environment: Mapping[str, str] | None, folder: Path | None, network: str
) -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).with_name("blocksync")
    inside = ["nsenter", f"--net={network}", "--"] if network else []
    return subprocess.run(
        [*inside, script, *arguments], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )


@cache
def _starter(program: Path) -> str:
    """The address of this process's starter of a program, which ends with it."""
    address = f"\0blocksync-starting-{os.getpid()}-{program}"[:_ADDRESS_BYTES]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        ours, its = os.pipe()  # nothing is written: its end says that this process has ended
        command = [sys.executable, "-m", "tests.kit.starting", str(its), _ROOM]
        environment = {**os.environ, "PYTHONPATH": f"{program}:{PROJECT}"}  # its packages, and these tests
        process = subprocess.Popen(
            command, stdin=listener, stdout=subprocess.DEVNULL, cwd=program, env=environment, pass_fds=[its]
        )
        os.close(its)
    atexit.register(process.wait)
    atexit.register(os.close, ours)
    return address


class _Forker:
    """Forks a process for each request and tells its exit code when it has ended. One thread; forks inherit no file."""

    def __init__(self, listener: socket.socket, parent: int) -> None:
        self._listener, self._parent = listener, parent
        self._waiting = selectors.DefaultSelector()
        self._waiting.register(listener, selectors.EVENT_READ)
        self._waiting.register(parent, selectors.EVENT_READ)
        self._commands: dict[int, tuple[int, socket.socket]] = {}  # pidfd -> process and who waits for its end

    def serve(self) -> Request | None:
        """Until the parent ends, which is None; returns in each fork, too, with what that has to run."""
        while True:
            for key, _ in self._waiting.select():
                if key.fd == self._parent:
                    return None
                if key.fd in self._commands:
                    self._ended(key.fd)
                elif (request := self._accepted()) is not None:
                    return request

    def _accepted(self) -> Request | None:
        connection, _ = self._listener.accept()
        length, streams, _, _ = socket.recv_fds(connection, _LENGTH_BYTES, _STREAMS)
        packed = connection.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
        pid = os.fork()
        if pid == 0:
            for target, stream in enumerate(streams):
                os.dup2(stream, target)
            os.closerange(_STREAMS, os.sysconf("SC_OPEN_MAX"))
            request: Request = pickle.loads(packed)
            return request
        for stream in streams:
            os.close(stream)
        descriptor = os.pidfd_open(pid)
        self._commands[descriptor] = pid, connection
        self._waiting.register(descriptor, selectors.EVENT_READ)
        return None

    def _ended(self, descriptor: int) -> None:
        pid, connection = self._commands.pop(descriptor)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._waiting.unregister(descriptor)
        os.close(descriptor)
        with connection, suppress(BrokenPipeError):  # who asked was interrupted: nobody waits
            connection.sendall(str(code).encode())


def _load() -> None:
    """All of the program: what a verb would load when it is called, it then finds loaded."""
    for package in _LOADED:
        for module in pkgutil.walk_packages([str(Path.cwd() / package)], f"{package}."):
            if module.name.endswith(".__main__"):
                continue
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if error.name != "pyfuse3":  # an extra, which the demo does without
                    raise


def _be_called(words: list[str]) -> None:
    """Have /proc tell this command line, as far as there is room: tests look there for who is left behind."""
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = (int(stat[field - _FIELDS_BEFORE]) for field in (_ARG_START, _ARG_END))
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    ctypes.memmove(start, text[: end - start - 1].ljust(end - start, b"\0"), end - start)


def main() -> NoReturn:
    """Load, then fork on request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who runs the tests; a fork takes it as any program
    forker = _Forker(socket.socket(fileno=os.dup(0)), int(sys.argv[1]))
    _load()
    gc.collect()
    gc.freeze()
    request = forker.serve()
    if request is None:
        sys.exit()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    if request.network:
        _enter(request.network)
    sys.argv = [str(Path(sys.executable).with_name("blocksync")), *request.arguments]
    _be_called([sys.executable, *sys.argv])
    code: object = None
    try:
        importlib.import_module("syncer.cli.main").main()
    except SystemExit as end:
        code = end.code
    _end(code if isinstance(code, int) else 0)


def _enter(network: str) -> None:
    """See setns(2). This process has one thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(network, "rb") as namespace:
        if libc.setns(namespace.fileno(), _NETWORK) != 0:
            raise OSError(ctypes.get_errno(), f"setns: {network}")


def _end(code: int) -> NoReturn:
    """As an interpreter ends, without taking apart all that is loaded: that would copy what the forks share."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
