"""A page on a program that does what a test says."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence

import pytest
from starlette.types import ASGIApp

from syncer.errors import NotFoundError
from syncer.ui import jobs
from syncer.ui.app import make_app
from syncer.ui.ports import Compared, MapFacts, MountFacts, Ran, RootFacts, ServerFacts, StoreFacts, VolumeFacts
from syncer.ui.security import Keys
from syncer.watch.live import DaemonLive, RootLive
from tests.kit.asgi import HOST, Browser, ask


class Program:
    """`PagePorts` in memory."""

    def __init__(self) -> None:
        self.device = "laptop"
        self.facts: list[RootFacts] = []
        self.told: list[RootLive] | None = []
        self.done: list[tuple[str, ...]] = []
        self.ran: list[tuple[list[bytes], bytes]] = []
        self.outcomes: deque[Ran] = deque()
        self.compared: Compared | None = None
        self.token = "figures-token"
        self.on_lan: bytes | None = None
        self.mounted: list[MountFacts] = []
        self.held: VolumeFacts | None = None
        self.serving: list[ServerFacts] = []
        self.kept: StoreFacts | None = None
        self.drawn: MapFacts | None = None

    def roots(self) -> list[RootFacts]:
        return self.facts

    def live(self) -> DaemonLive | None:
        return None if self.told is None else DaemonLive(pid=1, started=0.0, roots=self.told)

    def metrics(self) -> str | None:
        self.done.append(("metrics",))
        return None if self.told is None else "figures 1\n"

    def sums(self) -> str | None:
        self.done.append(("sums",))
        return None if self.told is None else "sums 1\n"

    def metrics_token(self) -> str:
        return self.token

    def pause(self, uuid: str, *, paused: bool) -> None:
        if uuid not in {root.uuid for root in self.facts}:
            raise NotFoundError(f"no root with the UUID {uuid} is linked any more")
        self.done.append(("pause" if paused else "resume", uuid))

    def expedite(self, uuid: str) -> bool:
        self.done.append(("run", uuid))
        return self.told is not None

    def compare(self, uuid: str, path: bytes) -> Compared:
        self.done.append(("compare", path.decode("latin-1")))
        assert self.compared is not None
        return self.compared

    def peers(self) -> bytes:
        if self.on_lan is None:
            raise NotFoundError("no `blocksync watch` is running")
        return self.on_lan

    def mounts(self) -> list[MountFacts]:
        return self.mounted

    def volume(self, uuid: str) -> VolumeFacts:
        self.done.append(("volume", uuid))
        if self.held is None:
            raise NotFoundError("this volume is not mounted any more")
        return self.held

    def servers(self) -> list[ServerFacts]:
        return self.serving

    def store(self, ident: str) -> StoreFacts:
        self.done.append(("store", ident))
        if self.kept is None:
            raise NotFoundError("this server does not run any more")
        return self.kept

    def block_map(self, uuid: str, path: bytes, cells: int, part: tuple[int, int]) -> MapFacts:
        self.done.append(("map", uuid, path.decode("latin-1"), *map(str, part)))
        if self.drawn is None:
            raise NotFoundError("there is no file")
        return self.drawn

    async def run(
        self, arguments: Sequence[bytes], heard: Callable[[bytes], None] | None = None, *, given: bytes = b""
    ) -> Ran:
        self.ran.append((list(arguments), given))
        return self.outcomes.popleft()


class Page:
    """The application, its keys, and a clock that stands."""

    def __init__(self) -> None:
        self.program = Program()
        self.keys = Keys()
        self.now_s = 1_800_000_000.0
        self.app: ASGIApp = make_app(self.program, self.keys, HOST, lambda: self.now_s)

    async def browser(self) -> Browser:
        """Open a link."""
        opened = await ask(self.app, "GET", f"/open?key={self.keys.new_link(self.now_s)}")
        cookie = opened.headers["set-cookie"].partition(";")[0]
        roots = await ask(self.app, "GET", "/", {"cookie": cookie})
        found = re.search(r'name="proof" value="([^"]+)"', roots.text)
        assert found
        return Browser(self.app, cookie, found[1])


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are found however slow the machine is; a test that wants it otherwise says so."""
    monkeypatch.setattr(jobs, "FIRST_S", 600.0)


@pytest.fixture
def page() -> Page:
    return Page()
