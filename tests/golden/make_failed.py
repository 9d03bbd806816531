"""Make the golden volume of a failed flush: `python -m tests.golden.make_failed ARCHIVE`, with a checkout's own code.

A file `f` of four sealed pages, of which the second was written again, and the host failed to write it; a file `sound`.
"""

from __future__ import annotations

import errno
import os
import sys
import tarfile
import tempfile
from contextlib import suppress

from blockfs.engine import volume as volumes
from blockfs.engine.config import EngineConfig
from blockfs.engine.durable.failing import FlushFailedError
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.attributes import Caller
from blockfs.tree.schema import ROOT_INO
from tests.golden.make import LEFT_OUT

PAGE = 4096
CONTENTS = {b"f": b"o" * 4 * PAGE, b"sound": b"s" * 100}


def make(path: bytes) -> None:
    """Make the volume."""
    volumes.init(path, block_size=2 * PAGE)
    filesystem = Filesystem.open(path, EngineConfig())
    user = Caller(uid=os.getuid(), gid=os.getgid())
    inos = {name: filesystem.namespace.create(ROOT_INO, name, mode=0o644, caller=user).ino for name in CONTENTS}
    for name, ino in inos.items():
        filesystem.files.write(ino, 0, CONTENTS[name], may_block=True)
    filesystem.files.flush()
    filesystem.files.write(inos[b"f"], PAGE, b"n" * PAGE, may_block=True)
    real = os.fdatasync

    def fails(descriptor: int) -> None:
        if b"/staging/" in os.readlink(b"/proc/self/fd/%d" % descriptor):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    os.fdatasync = fails
    with suppress(FlushFailedError):
        filesystem.files.fsync(inos[b"f"])
    os.fdatasync = real
    filesystem.commit()
    filesystem.close()


def main() -> None:
    """Make it, and pack it."""
    (archive,) = sys.argv[1:]
    with tempfile.TemporaryDirectory() as home:
        make(os.fsencode(os.path.join(home, "failed")))
        with tarfile.open(archive, "w:xz") as packed:
            packed.add(
                os.path.join(home, "failed"),
                "failed",
                filter=lambda one: None if os.path.basename(one.name) in LEFT_OUT else one,
            )


if __name__ == "__main__":
    main()
