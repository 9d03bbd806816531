"""Make the golden volume with hot files: `python -m tests.golden.make_hot ARCHIVE`, with a checkout's code, as root.

Left by a native mount that was killed: a file `f` of four sealed pages, of which the second was written again; `cut`,
sealed with two pages and cut to 100 bytes; `new`, never sealed. All of that is in hot files only.
"""

from __future__ import annotations

import os
import sys
import tarfile
import tempfile
from pathlib import Path

from blockfs.engine import volume as volumes
from blockfs.engine.config import EngineConfig
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.attributes import Caller
from blockfs.tree.schema import ROOT_INO
from tests.golden.make import LEFT_OUT
from tests.kit.hostfs import reflinking

PAGE = 4096
CONTENTS = {b"f": b"o" * PAGE + b"n" * PAGE + b"o" * 2 * PAGE, b"cut": b"c" * 100, b"new": b"w" * 5000}
_BEFORE = {b"f": b"o" * 4 * PAGE, b"cut": b"c" * 2 * PAGE, b"new": b""}


def make(path: bytes) -> None:
    """Make the volume, on a filesystem with reflinks."""
    volumes.init(path, block_size=2 * PAGE)
    filesystem = Filesystem.open(path, EngineConfig(native=True, background=False))
    user = Caller(uid=os.getuid(), gid=os.getgid())
    inos = {name: filesystem.namespace.create(ROOT_INO, name, mode=0o644, caller=user).ino for name in CONTENTS}
    for name, ino in inos.items():
        filesystem.files.write(ino, 0, _BEFORE[name], may_block=True)
    filesystem.files.flush()
    for name, ino in inos.items():
        fd = filesystem.hot.open(ino, may_block=True)
        assert fd is not None
        os.pwrite(fd, CONTENTS[name], 0)
        os.ftruncate(fd, len(CONTENTS[name]))
        filesystem.files.fsync(ino)
    filesystem.commit()
    filesystem.abandon()


def main() -> None:
    """Make it, and pack it."""
    (archive,) = sys.argv[1:]
    with tempfile.TemporaryDirectory() as home, reflinking(Path(home), "xfs") as host:
        make(os.fsencode(host / "hot"))
        with tarfile.open(archive, "w:xz") as packed:
            packed.add(host / "hot", "hot", filter=lambda one: None if os.path.basename(one.name) in LEFT_OUT else one)


if __name__ == "__main__":
    main()
