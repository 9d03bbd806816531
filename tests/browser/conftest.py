"""A daemon with a page, and Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.integration.live_server import private_text
from tests.integration.syncing import Sync, server, set_home
from tests.kit.chromium import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For a module: as long as there is one, its loop runs on this thread, and no other can be run there."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("server")
    tokens = private_text(folder / "tokens", "token me\n")
    with server(folder / "store", "--token-file", tokens) as found:
        yield found, tokens


@pytest.fixture
def sync(
    address: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Sync:
    set_home(tmp_path, monkeypatch)
    return Sync(tmp_path, address[0], address[1], capsys, "me")
