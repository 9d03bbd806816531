"""Faults to plant in the process of a mount: Python that runs before it; see `trial.blocksync`."""

from __future__ import annotations

from typing import Final

FAIL_ONE_FLUSH: Final = """
import errno, os
fdatasync = os.fdatasync
def fail(number):
    if os.path.exists({trigger!r}) and b"/staging/" in os.readlink(b"/proc/self/fd/%d" % number):
        os.unlink({trigger!r})
        os.pwrite(number, bytes(os.fstat(number).st_size), 0)
        raise OSError(errno.EIO, "Input/output error")
    fdatasync(number)
os.fdatasync = fail
"""
"""One flush of a staging file fails, and its pages are NUL afterwards: the page cache has dropped them. `trigger`: a
file that makes it happen, and goes with it."""

ADOPTS_ALL: Final = """
import msgspec
from blockfs.engine.durable import in_place
prepare = in_place.InPlace.__init__
def adopt_all(self, stores, state, frozen):
    msgspec.structs.force_setattr(stores.config, "adopt_bytes", 1)
    prepare(self, stores, state, frozen)
in_place.InPlace.__init__ = adopt_all
"""
"""No fault: whatever is new in a staging file makes a segment of it, however little."""
