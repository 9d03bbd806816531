"""Hosts with reflinks."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockfs.engine.filesystem import Filesystem
from tests.kit.hostfs import REFLINKS, reflinking
from tests.unit.blockfs.engine.hot.hosts import config, make


@pytest.fixture(scope="module", params=REFLINKS)
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A filesystem with reflinks."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a filesystem")
    with reflinking(tmp_path_factory.mktemp("host"), request.param) as path:
        yield path
        gc.collect()  # descriptors of mounts that were killed


@pytest.fixture
def place(host: Path, request: pytest.FixtureRequest) -> Path:
    """A directory of its own there."""
    path = host / str(abs(hash(request.node.nodeid)))
    path.mkdir()
    return path


@pytest.fixture
def filesystem(place: Path) -> Iterator[Filesystem]:
    """An open native volume."""
    opened = Filesystem.open(make(place / "v"), config())
    yield opened
    opened.abandon()
