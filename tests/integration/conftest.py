"""A server and pairs of roots of both kinds, for tests of what holds for any root."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import msgspec
import pytest

from tests.integration.histories import Anew
from tests.integration.live_server import private_text
from tests.integration.sharing import Share
from tests.integration.syncing import Sync, linked, mounted, server, set_home
from tests.kit import swift as swifts
from tests.kit.repositories import make_repository, password_file
from tests.kit.swift import Swift

SUITES = 100


class Served(msgspec.Struct, frozen=True):
    """An account of a server: each module has its own, and none possesses what another has sent."""

    address: str
    token_file: Path
    account: str


@pytest.fixture(scope="session")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Iterator[Served]]:
    """Of one server for all tests of a worker."""
    folder = tmp_path_factory.mktemp("server")
    lines = {f"suite-{number}": f"token-{number} suite-{number}\n" for number in range(SUITES)}
    with server(folder / "store", "--token-file", private_text(folder / "tokens", "".join(lines.values()))) as address:
        yield (Served(address, private_text(folder / account, line), account) for account, line in lines.items())


@pytest.fixture(scope="module")
def served(accounts: Iterator[Served]) -> Served:
    """The account of a module."""
    return next(accounts)


@pytest.fixture
def sync(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sync:
    """The command line with XDG folders and a container of its own."""
    set_home(tmp_path, monkeypatch)
    return Sync(tmp_path, served.address, served.token_file, capsys, served.account)


@pytest.fixture(scope="session")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Two mounted volumes that all tests of a worker share: each empties them."""
    with mounted(tmp_path_factory.mktemp("mounts"), "first", "second") as points:
        yield points


@pytest.fixture(params=["folder", "volume"])
def roots(request: pytest.FixtureRequest, sync: Sync) -> Iterator[tuple[Path, Path]]:
    """Two linked roots of one kind, devices of one share."""
    if request.param == "folder":
        yield sync.folder("first"), sync.folder("second")
        return
    with linked(sync, request.getfixturevalue("mounts")) as points:
        yield points


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swift]:
    """A real OpenStack Swift for all tests of a worker."""
    with swifts.running(tmp_path_factory.mktemp("swift")) as found:
        yield found


@pytest.fixture
def new_place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Path], str]:
    """URLs of places for repositories: below a folder, or in a container of a real Swift."""

    def make(kind: str, home: Path) -> str:
        if kind == "directory":
            return f"file://{home}/repository"
        swift = request.getfixturevalue("swift")
        for name, value in {"ST_AUTH": f"{swift.url}/auth/v1.0", "ST_USER": swifts.USER, "ST_KEY": swifts.KEY}.items():
            monkeypatch.setenv(name, value)
        return f"swift://{swift.url.partition('://')[2]}/{uuid.uuid4().hex}"

    return make


@pytest.fixture(params=["folder", "volume"])
def anew(request: pytest.FixtureRequest, sync: Sync, new_place: Callable[[str, Path], str]) -> Anew:
    """As `roots`, but as often as one asks for them: each time they are empty, and their container is new.

    `folder of a directory`, `folder of a swift`, `volume of a directory`: of a new repository there instead.
    """
    root, _, place = request.param.partition(" of a ")
    points = None if root == "folder" else request.getfixturevalue("mounts")
    numbers = count()

    @contextmanager
    def begin() -> Iterator[tuple[Sync, tuple[Path, ...]]]:
        home = sync.home / str(next(numbers))
        home.mkdir()
        again = replace(sync, home=home, container=uuid.uuid4().hex)
        if place:
            url = new_place(place, home)
            recovery = make_repository(url)
            again = Share(home, "", password_file(home), sync.capsys, place=url, recovery=recovery)
        if points is None:
            yield again, (again.folder("first"), again.folder("second"))
            return
        with linked(again, points) as roots:
            yield again, roots

    return begin
