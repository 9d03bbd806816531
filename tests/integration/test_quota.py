"""What the server's quota has no room for is one node's failure; a server whose disk is full ends the cycle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from blockfs.errors import NoSpaceError
from syncer.server.errors import TooLarge
from syncer.server.folder import ServerFolder
from syncer.server.store.store import Store
from tests.fakes.pithos import FakePithos
from tests.integration.live_server import BLOCK, serving
from tests.integration.syncing import Sync, set_home

QUOTA = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(ServerFolder.open(str(tmp_path / "server"), block_size=BLOCK)) as found:
        yield found


@pytest.fixture
def small(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Sync]:
    """The command line against a server that gives its account 1 MiB."""
    set_home(tmp_path, monkeypatch)
    tokens = f"token default {QUOTA}\n"
    (tmp_path / "tokens").write_text(tokens)
    with serving(store, tokens) as address:
        yield Sync(tmp_path, f"http://{address}", tmp_path / "tokens", capsys)


def failures(lines: list[dict[str, Any]]) -> list[str]:
    return sorted(line["path"] for line in lines if line["type"] == "failure")


def test_one_file_over_the_quota_stops_no_other(small: Sync) -> None:
    """Breaks when one large file keeps everything else from being synced, in both directions."""
    one, two = small.folder("one"), small.folder("two")
    (two / "pulled").write_bytes(b"from the other device")
    small.reconcile(two)
    (one / "folder").mkdir()
    (one / "folder" / "large").write_bytes(os.urandom(QUOTA + 1))
    for number in range(30):
        (one / "folder" / f"small-{number}").write_bytes(b"%d" % number * 100)
    (one / "several blocks").write_bytes(os.urandom(5 * BLOCK))
    lines = small("reconcile", one, "--json", expect=3)
    (failure,) = [line for line in lines if line["type"] == "failure"]
    assert failure["path"] == "folder/large"
    assert "Resource Limit Exceeded" in failure["reason"]
    assert "have the quota raised" in failure["reason"]
    assert (lines[-1]["pushed"], lines[-1]["pulled"], lines[-1]["failures"]) == (32, 1, 1)
    assert not [line for line in lines if line["type"] == "error"]
    (status,) = small("status", one, "--json")
    assert (status["condition"], [each["path"] for each in status["pending"]]) == ("degraded", ["folder/large"])
    # Nothing else is sent again, and what did not fit is tried in each cycle.
    assert failures(small("reconcile", one, "--json", expect=3)) == ["folder/large"]
    (one / "folder" / "large").write_bytes(os.urandom(QUOTA // 2))
    assert small.reconcile(one)["pushed"] == 1
    small.at_rest(one)
    assert small.reconcile(two)["pulled"] == 33
    assert (two / "folder" / "large").read_bytes() == (one / "folder" / "large").read_bytes()


def test_of_many_small_files_those_that_fit_are_pushed(small: Sync, store: Store) -> None:
    """Several in one request: each has its own answer."""
    root = small.folder("one")
    for number in range(400):
        (root / f"{number}").write_bytes(os.urandom(BLOCK))
    lines = small("reconcile", root, "--json", expect=3)
    fit = QUOTA // BLOCK - 1  # the share's key takes a part of one
    assert lines[-1]["pushed"] == fit
    assert len(failures(lines)) == lines[-1]["failures"] == 400 - fit
    store.set_quotas({"default": 4 * QUOTA})
    assert small.reconcile(root)["pushed"] == 400 - fit
    small.at_rest(root)


def test_a_file_that_grew_beyond_the_quota_stays_what_it_was_on_the_server(small: Sync) -> None:
    one, two = small.folder("one"), small.folder("two")
    for name in ("tiny", "blocks"):
        (one / name).write_bytes(os.urandom(100 if name == "tiny" else 100 * BLOCK))
    small.reconcile(one)
    small.reconcile(two)
    before = {name: (two / name).read_bytes() for name in ("tiny", "blocks")}
    (one / "blocks").write_bytes(os.urandom(2 * QUOTA))
    (one / "tiny").write_bytes(b"changed")
    assert failures(small("reconcile", one, "--json", expect=3)) == ["blocks"]
    assert small.reconcile(two)["pulled"] == 1
    assert ((two / "tiny").read_bytes(), (two / "blocks").read_bytes()) == (b"changed", before["blocks"])
    assert (one / "blocks").stat().st_size == 2 * QUOTA


def test_a_plain_pithos_with_a_quota_too(sync: Sync, monkeypatch: pytest.MonkeyPatch) -> None:
    root = sync.home / "root"
    root.mkdir()
    with FakePithos(block_size=BLOCK) as fake:
        fake.store.quota_bytes = 2 * BLOCK  # of one object
        monkeypatch.setenv("BLOCKSYNC_TOKEN", fake.token)
        sync("link", root, fake.url())
        for name, blocks in (("large", 3), ("other", 2), ("small", 1), ("tiny", 0)):
            (root / name).write_bytes(os.urandom(blocks * BLOCK))
        lines = sync("reconcile", root, "--json", expect=3)
        assert (failures(lines), lines[-1]["pushed"]) == (["large"], 3)


@pytest.mark.parametrize("files", [1, 50])
def test_a_server_whose_disk_is_full_ends_the_cycle(
    small: Sync, store: Store, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """It is full for all of them: thousands of failures, each after a request of its own, would say no more."""

    def full(*_arguments: object, **_named: object) -> NoReturn:
        raise NoSpaceError("the server's disk")

    root = small.folder("one")
    for number in range(files):
        (root / f"{number}").write_bytes(b"%d" % number)
    with monkeypatch.context() as patch:
        for name in ("bulk", "put_content"):
            patch.setattr(store, name, full)
        lines = small("reconcile", root, "--json", expect=17)
        (error,) = [line for line in lines if line["type"] == "error"]
        assert (error["exit_code"], "507" in error["message"]) == (17, True)
        assert not failures(lines)
    assert small.reconcile(root)["pushed"] == files


def test_a_request_of_many_that_is_too_long_as_a_whole_is_made_by_single_ones(
    small: Sync, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a proxy does that lets only short bodies through."""

    def too_long(*_arguments: object, **_named: object) -> NoReturn:
        raise TooLarge("The body is too long")

    root = small.folder("one")
    monkeypatch.setattr(store, "bulk", too_long)
    for number in range(20):
        (root / f"{number}").write_bytes(b"%d" % number)
    (root / "large").write_bytes(os.urandom(2 * QUOTA))
    lines = small("reconcile", root, "--json", expect=3)
    assert (failures(lines), lines[-1]["pushed"]) == (["large"], 20)
    for number in range(20):
        (root / f"{number}").write_bytes(b"changed %d" % number)
    (root / "large").unlink()
    assert small.reconcile(root)["pushed"] == 20
    for number in range(20):
        (root / f"{number}").rename(root / f"renamed {number}")
    assert small.reconcile(root)["moved"] == 20
    for number in range(20):
        (root / f"renamed {number}").unlink()
    assert small("plan", root, "--json")[0]["needs_consent"]
    digest = small("plan", root, "--json")[0]["digest"]
    assert small.reconcile(root, "--allow-deletes", digest)["deleted"] == 20
