"""A mount on a slow disk: `python -m tests.system.slow_mount VOLUME MOUNTPOINT` is `blocksync mount`, with a delay."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Final

from blockfs.engine.content.files import Files
from blockfs.errors import WouldBlock
from blockfs.mount.daemon import run_daemon
from blockfs.mount.process import MountOptions
from blockfs.runtime.notify import ServiceManager
from tests.kit.chosen import frontend

WRITE_S: Final = 1.5  # far longer than a command that does not wait for the write


def main() -> None:
    """Mount, and return when it is ready."""
    whole = Files.write

    def write(files: Files, *arguments: Any, may_block: bool = False, **keywords: Any) -> int:
        if not may_block:
            raise WouldBlock("a slow disk")
        time.sleep(WRITE_S)
        return whole(files, *arguments, may_block=True, **keywords)

    Files.write = write  # type: ignore[method-assign,assignment]
    volume, mountpoint = (os.fsencode(argument) for argument in sys.argv[1:3])
    run_daemon(MountOptions(volume=volume, mountpoint=mountpoint, frontend=frontend()), ServiceManager(None))


if __name__ == "__main__":
    main()
