"""A server and pairs of roots of both kinds, for tests of what holds for any root."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import msgspec
import pytest

from tests.integration.histories import Anew
from tests.integration.live_server import private_text
from tests.integration.syncing import Sync, linked, mounted, server, set_home

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


@pytest.fixture(params=["folder", "volume"])
def anew(request: pytest.FixtureRequest, sync: Sync) -> Anew:
    """As `roots`, but as often as one asks for them: each time they are empty, and their container is new."""
    points = None if request.param == "folder" else request.getfixturevalue("mounts")
    numbers = count()

    @contextmanager
    def begin() -> Iterator[tuple[Sync, tuple[Path, ...]]]:
        home = sync.home / str(next(numbers))
        home.mkdir()
        again = replace(sync, home=home, container=uuid.uuid4().hex)
        if points is None:
            yield again, (again.folder("first"), again.folder("second"))
            return
        with linked(again, points) as roots:
            yield again, roots

    return begin
