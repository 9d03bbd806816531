"""Through which modules one write, one seal, one push and one pull go: `python -m tests.kit.walk`.

docs/design/walk.md tells the same in sentences; tests/integration/test_walk.py compares.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import trio

from blockfs.engine import volume
from blockfs.engine.config import EngineConfig
from blockfs.engine.filesystem import Filesystem
from blockfs.fuse.calls import Calls
from blockfs.service.counters import Counters
from tests.contract.remotes import serve_process
from tests.fakes.memory import MemoryContainer
from tests.unit.blockfs.engine.volumes import USER, create
from tests.unit.syncer.engine.devices import Device
from tests.unit.syncer.local.folders import new_place

_VALUES: Final = {
    *("syncer.core.model", "syncer.core.base", "syncer.core.paths", "syncer.errors", "syncer.engine.report"),
    *(
        "syncer.ports.local",
        "syncer.ports.localvalues",
        "syncer.ports.remote",
        "blockfs.errors",
        "blockfs.runtime.logs",
    ),
    *("blockfs.tree.schema", "blockfs.blocks.ids", "blockfs.blocks.hashing", "blockfs.blocks.extents"),
    *("blockfs.blocks.blocklist", "blockfs.engine.config", "blockfs.engine.fatal", "blockfs.engine.clock"),
    *("syncer.ports.orders", "syncer.protocol.pithos.headers", "syncer.protocol.pithos.names"),
}
"""Modules of values, how they are spelt, and what all stand on: in every journey, and no step of any."""

TO_THE_SOCKET: Final = "push, from the decision to the socket"


class Steps:
    """The modules that are entered, each when it is first.

    Attributes:
        modules: Their names without the package.
    """

    def __init__(self, begin: str | None, end: str | None) -> None:
        self.modules: dict[str, None] = {}
        self._begin, self._end = begin, end
        self._is_on = begin is None
        self._is_over = False
        self._callers: frozenset[FrameType] = frozenset()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or self._is_over:
            return
        module = str(frame.f_globals.get("__name__", ""))
        place = f"{module}:{frame.f_code.co_name}"
        if place == self._end and self._is_on:
            self._is_over = True
        elif place == self._begin and not self._is_on:
            self._is_on = True
            self._callers = _callers(frame)
        if frame in self._callers:
            return  # goes on after a wait; it was entered before
        is_ours = module.startswith(("blockfs.", "syncer.")) and module not in _VALUES
        if self._is_on and is_ours and frame.f_code.co_name not in {"<module>", "__init__"}:
            self.modules[module] = None


def _callers(frame: FrameType) -> frozenset[FrameType]:
    found: list[FrameType] = []
    above = frame.f_back
    while above is not None:
        found.append(above)
        above = above.f_back
    return frozenset(found)


@contextmanager
def walked(begin: str | None = None, end: str | None = None) -> Iterator[Steps]:
    """Note the modules, in all threads.

    Args:
        begin: `module:function` with whose call it begins; None: at once.
        end: The one with whose call it ends.
    """
    steps = Steps(begin, end)
    threading.setprofile(steps)
    sys.setprofile(steps)
    try:
        yield steps
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type] # typeshed forgets None


def write_and_seal(folder: Path) -> tuple[list[str], list[str]]:
    """A page into a file, as the front-end asks for it, and fsync; then the sealing of it."""
    path = volume.init(os.fsencode(folder / "volume"), block_size=4096).path
    filesystem = Filesystem.open(path, EngineConfig(background=False, ballast_bytes=0, reserve_bytes=0, quiet_s=0.0))
    try:
        calls = Calls(filesystem, Counters())
        fh = calls.open(create(filesystem, b"file"), os.O_WRONLY, USER)
        with walked() as written:
            calls.write(fh, 0, b"x" * 4096)
            calls.fsync(fh, False, may_block=True)
        with walked() as sealed:
            filesystem.files.flush()
    finally:
        filesystem.close()
    return list(written.modules), list(sealed.modules)


def push_and_pull(folder: Path) -> dict[str, list[str]]:
    """A new file of 1 KiB from the decision to its base row; another one's from the decision to its base row.

    And the first half of the push: from an action in its hands to the thread that has the socket.
    """
    with serve_process(folder) as remote:
        remote.new_container()
        here, there = (Device(name, new_place(folder, name), MemoryContainer()) for name in ("here", "there"))

        def cycle(device: Device) -> None:
            async def main() -> None:
                client = remote.client()
                await client.open(create=True)
                await device.cycle(client=client)
                await client.close()

            trio.run(main)

        cycle(here)
        cycle(there)
        here.write("new", b"x" * 1024)
        with walked("syncer.engine.schedule:run_waves", "syncer.engine.cycle:_keep_foreign") as pushed:
            cycle(here)
        with walked("syncer.engine.schedule:run_waves", "syncer.engine.cycle:_keep_foreign") as pulled:
            cycle(there)
        here.write("newer", b"x" * 1024)
        with walked("syncer.engine.push:perform", "syncer.remote.http.transport:send") as sent:
            cycle(here)
    return {"push": list(pushed.modules), "pull": list(pulled.modules), TO_THE_SOCKET: list(sent.modules)}


def journeys(folder: Path) -> dict[str, list[str]]:
    """Modules in order, by journey."""
    written, sealed = write_and_seal(folder)
    return {"write": written, "seal": sealed, **push_and_pull(folder)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for name, modules in journeys(Path(scratch)).items():
            print(f"{name}: {len(modules)}")
            for each in modules:
                print(f"  {each.replace('.', '/')}.py")
