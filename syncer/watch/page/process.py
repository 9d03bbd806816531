"""The page's process: begun when somebody asks for it, ended with the daemon or by `blocksync ui --close`.

It is a process of its own. A page must never hold a cycle up, and what it looks at (states of roots, which LMDB lets a
process open once) would be in the daemon's way. It asks the daemon by the socket, as every command does.

It is told where to listen by its command line, and writes one line of JSON, a `Ready`, when it does. Each line that it
reads then asks for a link, which is the line that it writes. It ends when there is nobody who could ask.

Another one of its kind serves the daemon's figures and no page, where `[metrics]` of config.toml asks for them: see
`serve_figures` and `ui/oversight.py`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Final

import msgspec
import trio

from blockfs.exitcodes import ExitCode
from blockfs.runtime.logs import Log
from syncer.protocol.jsontext import MALFORMED
from syncer.watch.control import Page, Ready

log = Log()

NO_PAGE: Final = ()
"""For daemons that serve none."""

USUAL: Final = "127.0.0.1:8801"
_MAX_LINE_BYTES: Final = 1 << 16
_BEGIN_S: Final = 60.0  # half a second, on a machine that has nothing else to do
_AGAIN_S: Final = 30.0  # a port that is in use may be free then
_END_S: Final = 5.0  # a request that is being answered; then it is killed
_MALLOC: Final = {
    "MALLOC_ARENA_MAX": "1",  # its threads allocate little, and none at a time
    # Named, it stays. Else LMDB's table of dirty pages, 2 MB that a reader never uses, comes from the heap after the
    # first time, where all of it has to be cleared, and stays there.
    "MALLOC_MMAP_THRESHOLD_": "131072",
}


class PageProcess:
    """Begins and ends it, and asks it for links. For the trio thread."""

    def __init__(self, command: Sequence[str], name: str = "page") -> None:
        """Nothing is begun.

        Args:
            command: What runs it; HOST:PORT is added. Empty: there is no page.
            name: In the log.
        """
        self._command = command
        self._opened_event, self._closed_event = f"{name}.opened", f"{name}.closed"
        self._lock = trio.Lock()
        self._process: trio.Process | None = None
        self._ready = Ready()

    async def run(self) -> None:
        """Wait to be cancelled, and leave no process behind."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await self._end()

    async def open(self, listen: str) -> Page:
        """A link to the page, which is begun if need be.

        Args:
            listen: HOST:PORT; empty: wherever it is, or the usual place.
        """
        async with self._lock:
            if self._process is not None:
                link = await self._ask()
                if link is None:  # it has died since
                    await self._end()
                elif listen and listen != self._ready.listen:
                    told = f"the page is at {self._ready.listen} already; `blocksync ui --close` ends it there"
                    return Page(address=self._ready.address, refused=told, exit_code=ExitCode.LOCKED)
                else:
                    return Page(address=self._ready.address, link=link)
            return await self._begin(listen or USUAL)

    async def ended(self) -> None:
        """Wait until the process that was begun, if any, has ended."""
        if self._process is not None:
            await self._process.wait()

    async def close(self) -> Page:
        """End it; returns where it was."""
        async with self._lock:
            address = self._ready.address
            await self._end()
            return Page(address=address)

    async def _begin(self, listen: str) -> Page:
        if not self._command:
            return Page(refused="this daemon has no page", exit_code=ExitCode.NOT_FOUND)
        command = [*self._command, listen]
        self._process = await trio.lowlevel.open_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **_MALLOC},
        )
        line = b""
        with trio.move_on_after(_BEGIN_S):
            line = await self._line()
        try:
            self._ready = msgspec.json.decode(line, type=Ready)
        except MALFORMED:
            self._ready = Ready(
                refused="the page's process ended; the daemon's log says why", exit_code=ExitCode.UNEXPECTED
            )
        link = None if self._ready.refused else await self._ask()
        if link is None:
            refused = self._ready
            await self._end()
            return Page(refused=refused.refused or "the page's process ended", exit_code=refused.exit_code or 1)
        log.info(self._opened_event, address=self._ready.address)
        return Page(address=self._ready.address, link=link)

    async def _ask(self) -> str | None:
        """A link; None: the process has ended."""
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send_all(b"\n")
            return (await self._line()).decode().strip() or None
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None

    async def _line(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        received = bytearray()
        while not received.endswith(b"\n") and len(received) < _MAX_LINE_BYTES:
            piece = await self._process.stdout.receive_some(_MAX_LINE_BYTES)
            if not piece:
                break
            received += piece
        return bytes(received)

    async def _end(self) -> None:
        """Close what it listens to, then wait; kill it if it takes long."""
        process, self._process, self._ready = self._process, None, Ready()
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdin.aclose()
        with trio.move_on_after(_END_S) as ended:
            await process.wait()
        if ended.cancelled_caught:
            process.kill()
            await process.wait()
        await process.stdout.aclose()
        log.info(self._closed_event, exit_code=process.returncode)


async def serve_figures(command: Sequence[str], listen: str) -> None:
    """Have them served until cancelled. The process is begun again when it has died, or could not begin.

    Args:
        command: What runs the process; HOST:PORT is added.
        listen: HOST:PORT.
    """
    process, told = PageProcess(command, "metrics"), ""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.run)
        while True:
            begun = await process.open(listen)
            if begun.refused and begun.refused != told:  # once: a port may be in use for days, and roots sync meanwhile
                log.error("metrics.not_opened", listen=listen, reason=begun.refused)
            told = begun.refused
            await process.ended()
            await trio.sleep(_AGAIN_S)
