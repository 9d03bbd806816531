"""`blocksync repo` with the real program on a real OpenStack Swift, as a new user would."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.repos import Repo, Root
from tests.kit.swift import KEY, USER, running


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repo]:
    """A place for one in a container."""
    (tmp_path / "swift").mkdir()
    with running(tmp_path / "swift") as swift:
        for name, value in {"ST_AUTH": f"{swift.url}/auth/v1.0", "ST_USER": USER, "ST_KEY": KEY}.items():
            monkeypatch.setenv(name, value)
        place = Repo(tmp_path / "unused")
        place.url = f"swift://{swift.url.partition('://')[2]}/photos/below"
        yield place


def test_a_repository_is_made_used_looked_after_and_checked_on_a_real_swift(repo: Repo, tmp_path: Path) -> None:
    (made,) = repo("init")
    assert made["store"]["most_winners"] >= 1
    repo("init", expect=2)
    root, other = Root(repo, tmp_path / "one"), Root(repo, tmp_path / "other")
    contents = {"large": os.urandom(3_000_000), "small": b"small"}
    for name, data in contents.items():
        (root.folder / name).write_bytes(data)
    root.reconcile()
    other.reconcile()
    assert other.contents == contents
    (other.folder / "small").write_bytes(b"edited")
    other.reconcile()
    (stats,) = repo("stats")
    assert (stats["files"], stats["devices"]) == (2, 2)
    (collected,) = repo("gc")
    (repacked,) = repo("repack")
    assert (collected["condemned_packs"], repacked["sparse_packs"]) == (0, 0)  # all is young
    lost = next(line for line in repo("devices list") if line["has_followers"])
    repo("devices forget", lost["device"])
    (added,) = repo("key add", "--recovery-key")
    (checked,) = repo("check", "--read-data", "100%", passphrase=added["recovery_key"])
    assert (checked["problems"], checked["packs_read"]) == (0, stats["packs"])


def test_a_push_of_a_hundred_files_is_eight_requests_of_which_one_signs_in(repo: Repo, tmp_path: Path) -> None:
    """Which they are, and why none can go: docs/design/repository.md, section 19. The target was six."""
    repo("init")
    root = Root(repo, tmp_path / "one")
    (root.folder / "first").write_bytes(b"first")
    root.reconcile()
    for number in range(100):
        (root.folder / f"file{number}").write_bytes(os.urandom(10_000))
    pushed = root.summary()
    assert (pushed["pushed"], pushed["mutating_requests"], pushed["requests"]) == (100, 5, 8)
    assert root.summary()["requests"] == 2  # a sign-in, and a listing
