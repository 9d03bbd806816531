"""The remotes of the contract suites: a real server for all, where each module has an account; a fake Synnefo each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.blobplaces import place_of
from tests.contract.remotes import (
    BLOCK,
    REPOSITORIES,
    FakeRemote,
    MemoryRemote,
    RepositoryRemote,
    ServeRemote,
    Subject,
    anew,
    serve_process,
    with_folders,
)
from tests.fakes.pithos import FakePithos
from tests.kit import sshd as ssh
from tests.kit.swift import Swift, running

SUITES = 50


@pytest.fixture(scope="session")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Iterator[ServeRemote]]:
    """Accounts of a real server. None possesses what another has sent."""
    tokens = {f"token-{number}": f"suite-{number}" for number in range(SUITES)}
    with serve_process(tmp_path_factory.mktemp("serve"), others=tokens) as found:
        yield (ServeRemote(found.address, token, account) for token, account in tokens.items())


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swift]:
    """A real OpenStack Swift."""
    with running(tmp_path_factory.mktemp("swift")) as found:
        yield found


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ssh.Sshd]:
    """A real sshd."""
    with ssh.serving(tmp_path_factory.mktemp("sshd")) as found:
        yield found


@pytest.fixture(scope="module")
def served(accounts: Iterator[ServeRemote]) -> ServeRemote:
    return next(accounts)


@pytest.fixture(scope="module")
def server() -> Iterator[FakePithos]:
    with FakePithos(block_size=BLOCK) as fake:
        yield fake


@pytest.fixture(scope="module")
def remotes(server: FakePithos, served: ServeRemote) -> dict[str, Subject]:
    """All of them by name. Which of them a suite is for, its own `remote` says."""
    return with_folders(memory=MemoryRemote(), fake=FakeRemote(server), serve=served, repository=RepositoryRemote())


PITHOS = ["memory", "fake", "serve", "memory-folder", "fake-folder", "serve-folder"]


@pytest.fixture(params=[*PITHOS, *REPOSITORIES])
def remote(request: pytest.FixtureRequest, remotes: dict[str, Subject]) -> Subject:
    """One after the other, each with a container that does not exist yet."""
    return remote_of(request.param, request, remotes)


@pytest.fixture(params=["memory", "serve", "memory-folder", "serve-folder", *REPOSITORIES])
def telling(request: pytest.FixtureRequest, remotes: dict[str, Subject]) -> Subject:
    """Those that tell changes."""
    return remote_of(request.param, request, remotes)


@pytest.fixture(params=REPOSITORIES)
def repository(request: pytest.FixtureRequest, remotes: dict[str, Subject]) -> Subject:
    """Repositories alone, on each store."""
    return remote_of(request.param, request, remotes)


def remote_of(name: str, request: pytest.FixtureRequest, remotes: dict[str, Subject]) -> Subject:
    """One of them, with a new container; stores of repositories run once for a session."""
    _, _, kind = name.partition("repository on ")
    if not kind:
        return anew(remotes[name])
    folders = request.getfixturevalue("tmp_path_factory")
    return anew(RepositoryRemote(lambda: place_of(kind, request, folders)))


@pytest.fixture(params=PITHOS)
def pithos(request: pytest.FixtureRequest, remotes: dict[str, Subject]) -> Subject:
    """Those that are containers: versions are named by their contents, and who writes first of two is the only one.

    In a repository both are kept, and each change writes nodes of trees.
    """
    return anew(remotes[request.param])


@pytest.fixture
def serve(served: ServeRemote) -> ServeRemote:
    """Our server alone."""
    anew(served)
    return served


@pytest.fixture
def synnefo(server: FakePithos) -> FakeRemote:
    """The fake Synnefo alone, empty."""
    found = FakeRemote(server)
    found.box_name = f"box{len(server.store.containers)}"
    server.store.blocks.clear()
    server.requests.clear()
    return found
