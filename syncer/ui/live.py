"""What the page knows of the roots now, looked at once for all who watch; and the stream that tells a browser of it.

Nobody watches: nobody looks. A browser gets only what has changed, as a piece of HTML and the id of its place.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final

import msgspec

from syncer.ui.ports import PagePorts, RootFacts
from syncer.ui.views.roots import RootView, view_root
from syncer.ui.views.summary import Summary, view_summary
from syncer.watch.live import DaemonLive

LOOK_S: Final = 1.0
HEARTBEAT_S: Final = 15.0  # so that a browser that is gone is noticed, and one that waits knows that we are there
MAX_STREAMS: Final = 16

Pieces = Callable[[], Awaitable[Mapping[str, str]]]
"""Makes the pieces of a page that may change: id → HTML."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """One look.

    Attributes:
        roots: By path.
        summary: All of them together.
        has_daemon: It answers.
    """

    roots: tuple[RootView, ...]
    summary: Summary
    has_daemon: bool

    def root(self, uuid: str) -> RootView | None:
        """One of them."""
        return next((root for root in self.roots if root.uuid == uuid), None)


class Lookout:
    """Looks when somebody wants to know, at most once a second."""

    def __init__(self, ports: PagePorts, now_s: Callable[[], float]) -> None:
        self._ports = ports
        self._now_s = now_s
        self._lock = asyncio.Lock()
        self._scene: Scene | None = None
        self._looked_s = 0.0

    async def scene(self, *, fresh: bool = False) -> Scene:
        """How things are: now, or a moment ago.

        Args:
            fresh: Look again: somebody loads a page, or has just changed something.
        """
        async with self._lock:
            if fresh or self._scene is None or not 0 <= self._now_s() - self._looked_s < LOOK_S:
                self._scene = await asyncio.to_thread(self._look)
                self._looked_s = self._now_s()
            return self._scene

    def _look(self) -> Scene:
        live = self._ports.live()  # first: what the daemon has just done is in the states then
        return view_scene(self._ports.roots(), live, self._now_s())


def view_scene(facts: list[RootFacts], live: DaemonLive | None, now_s: float) -> Scene:
    """What is known and what the daemon says, together."""
    told = {} if live is None else {each.uuid: each for each in live.roots}
    roots = tuple(view_root(each, told.get(each.uuid), now_s) for each in facts)
    return Scene(roots=roots, summary=view_summary(roots), has_daemon=live is not None)


class Streams:
    """Browsers that are told of changes. When there are too many, the one that has been told longest is told no more.

    A page in a tab that nobody sees holds none (`page.js`): a browser has six connections for all its tabs.
    """

    def __init__(self, most: int = MAX_STREAMS) -> None:
        self._most = most
        self._open: dict[asyncio.Event, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def tell(self, pieces: Pieces, may_hear: Callable[[], bool] = lambda: True) -> AsyncIterator[bytes]:
        """Server-sent events, until the browser is gone, may hear no more, or another one needs the place.

        Args:
            pieces: Makes all pieces of a page: id → HTML.
            may_hear: Whether its session goes on.
        """
        ended = asyncio.Event()
        while len(self._open) >= self._most:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.set()
        self._open[ended] = None
        try:
            async for event in stream(pieces, ended, may_hear):
                yield event
        finally:
            self._open.pop(ended, None)


async def stream(pieces: Pieces, ended: asyncio.Event, may_hear: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Server-sent events: of the pieces of a page those that have changed.

    Args:
        pieces: Makes all of them: id → HTML.
        ended: Set when the browser is to be told no more. It hears of that, and does not come back by itself.
        may_hear: Whether its session goes on; asked before each look. Else the stream ends, and who comes back is a
            stranger.
    """
    told: dict[str, str] = {}
    quiet_s = 0.0
    yield b"retry: 2000\n\n"
    while not ended.is_set() and may_hear():
        now = await pieces()
        changed = {key: html for key, html in now.items() if told.get(key) != html}
        if changed:
            told |= changed
            quiet_s = 0.0
            yield b"data: " + msgspec.json.encode(changed) + b"\n\n"
        elif quiet_s >= HEARTBEAT_S:
            quiet_s = 0.0
            yield b": still here\n\n"
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), LOOK_S)
        quiet_s += LOOK_S
    if ended.is_set():
        yield b"event: full\ndata: \n\n"
