"""A native mount without the engine's part: `python -m tests.system.hot_mount VOLUME MOUNTPOINT [OPTION…]`.

Options: `allow_other`; `hold=FIFO`, see `HotDirectory`.
"""

from __future__ import annotations

import os
import sys

from blockfs.engine.filesystem import Filesystem
from blockfs.fuse.kernel.frontend import KernelFrontend
from blockfs.mount import frontends
from blockfs.mount.choice import Choice
from blockfs.mount.daemon import run_daemon
from blockfs.mount.frontends import Frontend
from blockfs.mount.process import MountOptions
from blockfs.runtime.notify import ServiceManager
from blockfs.service.counters import Counters
from tests.kit.hot_directory import HotDirectory


def main() -> None:
    """Mount, and return when it is ready. Options: as front-ends take them."""
    volume, mountpoint, *flags = (os.fsencode(argument) for argument in sys.argv[1:])

    def load(filesystem: Filesystem, counters: Counters) -> Frontend:
        hot = HotDirectory(filesystem, os.path.join(volume, b"hot-files"))
        hot.hold = next((flag.removeprefix(b"hold=") for flag in flags if flag.startswith(b"hold=")), None)
        return KernelFrontend(filesystem, counters, hot)

    frontends.loaded = lambda _choice: load
    options = MountOptions(
        volume=volume,
        mountpoint=mountpoint,
        frontend=Choice.KERNEL,
        native=True,
        allow_other=b"allow_other" in flags,
    )
    run_daemon(options, ServiceManager(None))


if __name__ == "__main__":
    main()
