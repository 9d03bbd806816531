"""Two folders on a Synnefo Pithos: whole cycles by the command line, against the fake that behaves as the real one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.pithos import FakePithos, Fault, FaultKind
from tests.integration.syncing import Sync, content


@pytest.fixture
def pithos() -> Iterator[FakePithos]:
    with FakePithos(block_size=4096) as fake:
        yield fake


@pytest.fixture
def sync(
    pithos: FakePithos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Sync:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("BLOCKSYNC_TOKEN", pithos.token)
    return Sync(tmp_path, "", tmp_path / "unused", capsys)


def linked(sync: Sync, pithos: FakePithos, name: str) -> Path:
    root = sync.home / name
    root.mkdir()
    sync("link", root, pithos.url())
    return root


def of_server(sync: Sync, root: Path) -> dict[str, Any]:
    """What doctor says of the server; the clock of the fake is another one, so that the exit code is 3."""
    (found,) = [line for line in sync("doctor", root, "--json", expect=3) if line["subject"] == "server"]
    return found


def test_files_folders_and_links_come_to_the_other_device(sync: Sync, pithos: FakePithos) -> None:
    first, second = linked(sync, pithos, "first"), linked(sync, pithos, "second")
    (first / "d").mkdir()
    (first / "d/small").write_bytes(b"small")
    (first / "long").write_bytes(os.urandom(3 * 4096 + 5))
    (first / "link").symlink_to("long")
    sync.reconcile(first)
    sync.reconcile(second)
    assert content(second) == content(first)
    (second / "d/small").write_bytes(b"changed")
    sync.reconcile(second)
    sync.reconcile(first)
    assert content(first) == content(second)
    assert of_server(sync, first)["level"] == "ok"


def test_doctor_notices_a_server_that_describes_its_objects_in_no_way_we_know(sync: Sync, pithos: FakePithos) -> None:
    """It said that all was well while no cycle could go through (12.23)."""
    root = linked(sync, pithos, "first")
    (root / "file").write_bytes(b"data")
    sync.reconcile(root)
    pithos.inject(Fault(FaultKind.NOT_JSON, method="HEAD", containing="/vms/file", times=9))
    found = of_server(sync, root)
    assert (found["level"], "X-Object-Hash" in found["text"]) == ("fail", True)
    pithos.clear_faults()
    assert of_server(sync, root)["level"] == "ok"
