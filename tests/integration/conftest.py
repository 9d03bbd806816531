"""A server and pairs of roots of both kinds, for tests of what holds for any root."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from tests.integration.histories import Anew
from tests.integration.syncing import Sync, command, server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and token file of a server for the tests of a module."""
    folder = tmp_path_factory.mktemp("server") / "store"
    with server(folder) as address:
        yield address, folder / "token"


@pytest.fixture
def sync(
    served: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Sync:
    """The command line with XDG folders of its own, against the module's server."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("BLOCKSYNC_TOKEN", raising=False)
    return Sync(tmp_path, *served, capsys)


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and token file of a server that all tests of a worker share: each has a container of its own."""
    folder = tmp_path_factory.mktemp("server") / "store"
    with server(folder) as address:
        yield address, folder / "token"


@pytest.fixture(scope="session")
def shared_mounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Two mounted volumes that all tests of a worker share: each empties them."""
    home = tmp_path_factory.mktemp("mounts")
    points = (home / "first", home / "second")
    for point in points:
        point.mkdir()
        command("init", home / f"volume-{point.name}")
        command("mount", home / f"volume-{point.name}", point)
    yield points
    for point in points:
        if os.path.ismount(point):
            command("umount", point)


@pytest.fixture
def commands(
    shared_server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Sync:
    """The command line with XDG folders and a container of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return Sync(tmp_path, *shared_server, capsys)


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A mounted volume, for all tests of a module: each leaves it empty."""
    home = tmp_path_factory.mktemp("volume")
    point = home / "mounted"
    point.mkdir()
    command("init", home / "volume")
    command("mount", home / "volume", point)
    yield point
    command("umount", point)


@pytest.fixture(params=["folder", "volume"])
def roots(request: pytest.FixtureRequest, commands: Sync) -> Iterator[tuple[Path, Path]]:
    """Two linked roots of one kind, devices of one share."""
    if request.param == "folder":
        yield commands.folder("first"), commands.folder("second")
        return
    with _linked(commands, request.getfixturevalue("shared_mounts")) as points:
        yield points


@pytest.fixture(params=["folder", "volume"])
def anew(request: pytest.FixtureRequest, commands: Sync) -> Anew:
    """As `roots`, but as often as one asks for them: each time they are empty, and their container is new."""
    points = None if request.param == "folder" else request.getfixturevalue("shared_mounts")
    numbers = count()

    @contextmanager
    def begin() -> Iterator[tuple[Sync, tuple[Path, Path]]]:
        home = commands.home / str(next(numbers))
        home.mkdir()
        sync = replace(commands, home=home, container=uuid.uuid4().hex)
        if points is None:
            yield sync, (sync.folder("first"), sync.folder("second"))
            return
        with _linked(sync, points) as roots:
            yield sync, roots

    return begin


@contextmanager
def _linked(commands: Sync, points: tuple[Path, Path]) -> Iterator[tuple[Path, Path]]:
    """Two mounts as roots; empty again afterwards."""
    for root in points:
        commands("link", root, commands.url, "--token-file", commands.token_file)
    try:
        yield points
    finally:
        for root in points:
            commands("unlink", root)
            _clear(root)


def _clear(root: Path) -> None:
    for folder, folders, files in os.walk(root, topdown=False):
        for name in files:
            os.unlink(os.path.join(folder, name))
        for name in folders:
            path = Path(folder, name)
            path.unlink() if path.is_symlink() else path.rmdir()
