"""`blocksync doctor`: every line, on folders and volumes, and that it changes nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from syncer.cli.registry.roots import LinkedRoot, Registry
from tests.integration.syncing import Sync


def checked(sync: Sync, root: Path, expect: int = 0) -> dict[str, dict[str, Any]]:
    """The checks of a root by subject."""
    return {line["subject"]: line for line in sync("doctor", root, "--json", expect=expect)}


def linked(root: Path) -> LinkedRoot:
    return Registry(os.environ).get(os.fsencode(root))


def everything(*folders: Path) -> dict[str, tuple[int, int, int]]:
    """Names, times and sizes: what a change of anything would change. LMDB's table of readers is no state."""
    found = {}
    for folder in folders:
        for path in (folder, *folder.rglob("*")):
            if path.name != "lock.mdb":
                status = path.lstat()
                found[str(path)] = (status.st_ino, status.st_mtime_ns, status.st_size)
    return found


def test_all_is_well_and_nothing_is_changed(sync: Sync, roots: tuple[Path, Path], tmp_path: Path) -> None:
    first, _ = roots
    (first / "d").mkdir()
    sync.reconcile(first)
    before = everything(first, tmp_path / "state")
    found = checked(sync, first)
    assert everything(first, tmp_path / "state") == before
    for subject in ("kernel", "root", "filesystem", "names", "state", "server", "clock", "inotify watches"):
        assert found[subject]["level"] == "ok", found[subject]
        assert found[subject]["remedy"] == ""
    assert "1 node, last cycle ended with 0" in found["state"]["text"]
    sync("doctor")
    assert f"{first}: server: reachable, the token is valid" in sync.out


def test_before_the_first_cycle_all_is_well_too(sync: Sync, roots: tuple[Path, Path]) -> None:
    assert "never reconciled" in checked(sync, roots[0])["state"]["text"]


def test_a_server_that_is_away_or_refuses_the_token_or_has_another_container(
    sync: Sync, roots: tuple[Path, Path]
) -> None:
    first, _ = roots
    sync.reconcile(first)
    record, token = linked(first).record, linked(first).secret()
    import msgspec  # noqa: PLC0415

    registry = Registry(os.environ)
    registry.write(record, "wrong")
    assert "link" in checked(sync, first, expect=3)["server"]["remedy"]
    registry.write(msgspec.structs.replace(record, url=record.url + "2"), token)
    assert "does not exist" in checked(sync, first, expect=3)["server"]["text"]
    registry.write(msgspec.structs.replace(record, url="pithos+http://127.0.0.1:9/v1/default/c"), token)
    assert checked(sync, first, expect=3)["server"]["level"] == "fail"
    registry.write(record, token)
    assert checked(sync, first)["server"]["level"] == "ok"


def test_a_root_that_is_away_or_another_one(sync: Sync, tmp_path: Path) -> None:
    root = sync.folder("first")
    root.rename(tmp_path / "elsewhere")
    assert checked(sync, root, expect=3)["root"]["level"] == "fail"
    root.mkdir()
    found = checked(sync, root, expect=3)["root"]
    assert "not the one that was linked" in found["text"]
    assert list(root.iterdir()) == []


def test_a_state_that_is_damaged_hidden_or_shows_the_token(
    sync: Sync, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = sync.folder("first")
    folder = Path(linked(root).state)
    (folder / "token").chmod(0o644)
    found = checked(sync, root)["state"]
    assert (found["level"], "chmod 600" in found["remedy"]) == ("warn", True)
    (folder / "token").chmod(0o600)
    data = folder / "db/data.mdb"
    good = data.read_bytes()
    data.write_bytes(b"garbage" * 1000)
    found = checked(sync, root, expect=15)["state"]
    assert "--relink" in found["remedy"]
    assert data.read_bytes() == b"garbage" * 1000
    data.write_bytes(good)
    assert checked(sync, root)["state"]["level"] == "ok"
