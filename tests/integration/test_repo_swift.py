"""`blocksync repo` with the real program on a real OpenStack Swift, as a new user would."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit.repos import Repo, Root
from tests.kit.swift import KEY, USER, running


def test_a_repository_is_made_used_looked_after_and_checked_on_a_real_swift(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "swift").mkdir()
    with running(tmp_path / "swift") as swift:
        for name, value in {"ST_AUTH": f"{swift.url}/auth/v1.0", "ST_USER": USER, "ST_KEY": KEY}.items():
            monkeypatch.setenv(name, value)
        repo = Repo(tmp_path / "unused")
        repo.url = f"swift://{swift.url.partition('://')[2]}/photos/below"
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
