"""python -m tests.crash.load MOUNT VOLUME FOLDER LOGS NUMBER SEED: a mixed load until the mount is gone.

Each worker is a process of its own: one that has mapped a page dies of SIGBUS when the mount does. Prints a line as
soon as all of them have begun. Worker n's record is LOGS/n.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from blockfs.control.client import ConnectionLostError, ControlClient, NotMountedError
from blockfs.errors import BlockfsError
from tests.crash import named, paged
from tests.crash.log import Log

NAMED = 2
"""Workers on names; each has a folder of its own."""

_GONE = {errno.ENOTCONN, errno.ECONNABORTED}


class Operator:
    """Seals, collects, takes snapshots and asks, beside the others."""

    def __init__(self, volume: Path, folder: Path, seed: int) -> None:
        self.volume = os.fsencode(volume)
        self.folder = os.fsencode(folder.name)
        self.noise = random.Random(seed)

    def run(self, log: Log) -> None:
        """Work for ever."""
        with ControlClient(self.volume) as client:
            while True:
                name = self.noise.choice(["flush", "flush", "gc", "fsck", "changes", "snapshot"])
                with log.step(name):
                    if name == "changes":
                        client.changes(None)
                    elif name == "fsck":
                        assert not (findings := client.fsck().findings), findings
                    elif name == "snapshot":
                        client.create_snapshot(self.folder, self.folder)
                        client.delete_snapshot(self.folder)
                    else:
                        getattr(client, name)()


def workers(mount: Path, volume: Path, folder: Path, number: int, seed: int) -> list[Callable[[Log], None]]:
    """All workers, in the order of their numbers."""
    noise = random.Random(seed)
    return [
        *(
            paged.PagedWorker(manner, number * 100 + place, mount, volume, folder, noise.getrandbits(32)).run
            for place, manner in enumerate(paged.MANNERS)
        ),
        *(named.NamedWorker(place, folder, noise.getrandbits(32)).run for place in range(NAMED)),
        Operator(volume, folder, noise.getrandbits(32)).run,
    ]


def is_gone(mount: Path) -> bool:
    """Whether the mount was killed, or even taken away since."""
    try:
        os.statvfs(mount)
    except OSError as error:
        return error.errno in _GONE
    return not os.path.ismount(mount)


def work(run: Callable[[Log], None], log: Log, mount: Path) -> None:
    """Body of a worker's process: any failure but the mount's end is noted."""
    try:
        run(log)
    except (OSError, BlockfsError, AssertionError) as error:
        if not isinstance(error, ConnectionLostError | NotMountedError) and not is_gone(mount):
            log.unexpected(error)


def start(run: Callable[[Log], None], path: Path, mount: Path) -> int:
    """Fork a worker; returns its process id."""
    log = Log(path)
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(KeyboardInterrupt):
            work(run, log, mount)
        os._exit(0)
    return pid


def main(mount: Path, volume: Path, folder: Path, logs: Path, number: int, seed: int) -> None:
    """Run the load."""
    os.umask(0o022)
    pids = [
        start(run, logs / str(place), mount) for place, run in enumerate(workers(mount, volume, folder, number, seed))
    ]

    descriptors = [os.pidfd_open(pid) for pid in pids]

    def kill(_number: int, _frame: object) -> None:
        for descriptor in descriptors:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)

    signal.signal(signal.SIGTERM, kill)  # and this ends when all have
    print("begun", flush=True)
    for pid in pids:
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) in {0, -signal.SIGBUS, -signal.SIGKILL}, f"a worker ended: {status}"


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:5]), int(sys.argv[5]), int(sys.argv[6]))
    os._exit(0)  # an interpreter that ends as usual can be killed by SIGTERM, which may come at any time
