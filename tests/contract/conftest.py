"""A fake Synnefo for the tests of its quirks; the contract suite brings its own remotes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.remotes import BLOCK, FakeRemote
from tests.fakes.pithos import FakePithos


@pytest.fixture(scope="module")
def server() -> Iterator[FakePithos]:
    with FakePithos(block_size=BLOCK) as fake:
        yield fake


@pytest.fixture
def synnefo(server: FakePithos) -> FakeRemote:
    found = FakeRemote(server)
    found.box_name = f"box{len(server.store.containers)}"
    server.store.blocks.clear()
    server.requests.clear()
    return found
