"""A mount that has opened a file to wait for its pages, and stays there.

python -m tests.system.waiting_mount VOLUME MOUNTPOINT TOLD
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from blockfs.fuse import writeback
from blockfs.mount.daemon import run_daemon
from blockfs.mount.process import MountOptions
from blockfs.runtime.notify import ServiceManager
from tests.kit.chosen import frontend


def main() -> None:
    """Mount, and return when it is ready. It makes the file TOLD when it is there."""
    volume, mountpoint, told = (os.fsencode(argument) for argument in sys.argv[1:4])

    def write_back_all(_: int) -> None:
        Path(os.fsdecode(told)).touch()
        threading.Event().wait()

    writeback.write_back_all = write_back_all
    run_daemon(MountOptions(volume=volume, mountpoint=mountpoint, frontend=frontend()), ServiceManager(None))


if __name__ == "__main__":
    main()
