"""`blocksync repo` with the real program on a real OpenStack Swift, as a new user would."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import starting
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


def pushes_a_hundred(repo: Repo, home: Path) -> list[tuple[int, int, int]]:
    """Of a root's pushes and two cycles of nothing: files, requests that change something, requests."""
    repo("init")
    root = Root(repo, home)
    (root.folder / "first").write_bytes(b"first")
    root.reconcile()
    done = []
    for push in range(3):
        if push == 0:
            for number in range(100):
                (root.folder / f"file{number}").write_bytes(os.urandom(10_000))
        told = root.summary()
        done.append((told["pushed"], told["mutating_requests"], told["requests"]))
    return done


SIX_THEN_ONE = [(100, 5, 6), (0, 0, 1), (0, 0, 1)]
"""Which they are, and why none can go: docs/design/repository.md, section 19."""


def test_a_push_of_a_hundred_files_is_six_requests(repo: Repo, tmp_path: Path) -> None:
    assert pushes_a_hundred(repo, tmp_path / "one") == SIX_THEN_ONE


def test_it_is_six_by_clouds_yaml_too(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    auth = f"{{auth_url: '{os.environ['ST_AUTH']}', username: '{USER}', password: {KEY}}}"
    file = tmp_path / "clouds.yaml"
    file.write_text(f"clouds:\n  home:\n    auth_type: v1password\n    auth: {auth}\n")
    for name in ("ST_AUTH", "ST_USER", "ST_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
    repo.url = "swift://home/photos/by-cloud"
    assert pushes_a_hundred(repo, tmp_path / "one") == SIX_THEN_ONE
    (token,) = (tmp_path / "one/state").rglob("store-token")
    assert token.stat().st_mode & 0o777 == 0o600
    starting.run(
        ["unlink", tmp_path / "one/root"], environment=os.environ | {"XDG_STATE_HOME": str(tmp_path / "one/state")}
    )
    assert not token.exists()


def test_it_is_six_by_a_token_that_was_given_too(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = urllib.request.Request(os.environ["ST_AUTH"], headers={"X-Auth-User": USER, "X-Auth-Key": KEY})
    with urllib.request.urlopen(asked) as reply:
        token, storage = reply.headers["X-Auth-Token"], reply.headers["X-Storage-Url"]
    for name in ("ST_AUTH", "ST_USER", "ST_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("OS_STORAGE_URL", storage)
    monkeypatch.setenv("OS_AUTH_TOKEN", "another")
    repo("init", expect=12)
    assert "OS_AUTH_TOKEN" in repo.out + repo.err
    monkeypatch.setenv("OS_AUTH_TOKEN", token)
    assert pushes_a_hundred(repo, tmp_path / "one") == SIX_THEN_ONE
    assert not list((tmp_path / "one/state").rglob("store-token"))
