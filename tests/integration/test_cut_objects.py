"""Objects that were cut on a Synnefo Pithos have the hash of the longer block: they arrive, or what is said helps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.pithos import FakePithos
from tests.integration.syncing import Sync, content, set_home

BLOCK = 4096


@pytest.fixture
def pithos() -> Iterator[FakePithos]:
    with FakePithos(block_size=BLOCK) as fake:
        fake.others["bobs-token"] = "bob"
        fake.store.make_container("alice", "vms")
        yield fake


@pytest.fixture
def sync(
    pithos: FakePithos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Sync:
    set_home(tmp_path, monkeypatch, pithos.token)
    return Sync(tmp_path, "", tmp_path / "unused", capsys)


def linked(sync: Sync, pithos: FakePithos, name: str) -> Path:
    root = sync.home / name
    root.mkdir()
    sync("link", root, pithos.url())
    return root


def write(pithos: FakePithos, name: str, data: bytes) -> None:
    """What kamaki does: no metadata."""
    pithos.store.put_body(pithos.container(), name, data, "application/octet-stream", {})


def left(pithos: FakePithos) -> list[str]:
    """What was made to see a whole block."""
    return [name for name in pithos.container().live() if name.startswith(".blocksync/whole/")]


def cut_with_a_history(pithos: FakePithos, data: bytes, size: int) -> None:
    write(pithos, "cut", data)
    pithos.store.change(pithos.container(), "cut", 0, data[:size], size)


def cut_without_versions(pithos: FakePithos, data: bytes, size: int) -> None:
    pithos.container().versioning = "none"
    cut_with_a_history(pithos, data, size)


def cut_and_renamed(pithos: FakePithos, data: bytes, size: int) -> None:
    cut_with_a_history(pithos, data, size)
    pithos.store.move(pithos.container(), "cut", "elsewhere")
    pithos.container().history.pop("cut")
    pithos.store.move(pithos.container(), "elsewhere", "cut")
    pithos.container().history.pop("elsewhere")


def born_short(pithos: FakePithos, data: bytes, size: int) -> None:
    """A block list whose last block is longer than the object."""
    hashes = tuple(pithos.store.put_blocks(data))[: -(-size // BLOCK)]
    pithos.store.put_hashmap(pithos.container(), "cut", size, hashes, "application/octet-stream", {})


Cut = Callable[[FakePithos, bytes, int], None]
WAYS = [cut_without_versions, cut_and_renamed, born_short]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [10, BLOCK + 100, 2 * BLOCK + 7])
def test_a_cut_object_that_no_earlier_version_explains_arrives(
    way: Cut, size: int, sync: Sync, pithos: FakePithos
) -> None:
    """It was exit 15 for ever (12.27)."""
    root, other = linked(sync, pithos, "first"), linked(sync, pithos, "second")
    data = os.urandom(2 * BLOCK + 1000)
    way(pithos, data, size)
    write(pithos, "whole", b"whole")
    sync.reconcile(root, expect=3)
    assert "was cut" in sync.out
    assert content(root) == {"whole": b"whole"}
    assert not left(pithos)
    for each in (root, other):
        sync.reconcile(each)
        assert content(each) == {"cut": data[:size], "whole": b"whole"}
    sync.at_rest(root, other)


@pytest.mark.parametrize("way", [cut_with_a_history, *WAYS])
def test_a_dry_run_does_not_look_into_a_cut_object(way: Cut, sync: Sync, pithos: FakePithos) -> None:
    root = linked(sync, pithos, "first")
    way(pithos, os.urandom(BLOCK + 1000), BLOCK + 100)
    pithos.requests.clear()
    sync.reconcile(root, "--dry-run")
    assert {method for method, _ in pithos.requests} <= {"HEAD", "GET"}


@pytest.mark.parametrize("size", [10, BLOCK + 100])
def test_a_file_that_is_here_whole_and_was_cut_there_is_cut_here(size: int, sync: Sync, pithos: FakePithos) -> None:
    """The block with that id is here, too, and longer than it may be."""
    root, other = linked(sync, pithos, "first"), linked(sync, pithos, "second")
    data = os.urandom(BLOCK + 1000)
    (root / "cut").write_bytes(data)
    (root / "same").write_bytes(data)
    sync.reconcile(root)
    sync.reconcile(other)
    pithos.store.change(pithos.container(), "cut", 0, data[:size], size)
    for each in (root, other, root, other):
        sync("reconcile", each, expect=0)
    assert content(root) == content(other) == {"cut": data[:size], "same": data}
    sync.at_rest(root, other)


def shared_with_bob(sync: Sync, pithos: FakePithos, monkeypatch: pytest.MonkeyPatch, right: str) -> Path:
    for name in ("cut", "whole"):
        pithos.container().sharing[name] = f"{right}=bob"
    monkeypatch.setenv("BLOCKSYNC_TOKEN", "bobs-token")
    return linked(sync, pithos, "bobs")


SIZES = pytest.mark.parametrize("size", [10, BLOCK + 100])


@SIZES
def test_who_may_only_read_is_told_who_can_mend_a_cut_object(
    size: int, sync: Sync, pithos: FakePithos, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version proves what it is: no damage, code 3. A 403 to its last block ended the cycle with 12."""
    data = os.urandom(BLOCK + 1000)
    cut_with_a_history(pithos, data, size)
    write(pithos, "whole", b"whole")
    root = shared_with_bob(sync, pithos, monkeypatch, "read")
    for _ in range(2):
        sync.reconcile(root, expect=3)
        assert "sync it once with a token of its owner" in sync.out
        assert content(root) == {"whole": b"whole"}
    monkeypatch.setenv("BLOCKSYNC_TOKEN", pithos.token)
    owner = linked(sync, pithos, "owners")
    sync.reconcile(owner, expect=3)
    monkeypatch.setenv("BLOCKSYNC_TOKEN", "bobs-token")
    sync.reconcile(root)
    assert content(root) == {"cut": data[:size], "whole": b"whole"}


@SIZES
def test_who_may_only_read_is_told_when_nothing_proves_what_an_object_is(
    size: int, sync: Sync, pithos: FakePithos, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be damage: code 15. Everything else is synced."""
    born_short(pithos, os.urandom(BLOCK + 1000), size)
    write(pithos, "whole", b"whole")
    root = shared_with_bob(sync, pithos, monkeypatch, "read")
    sync.reconcile(root, expect=15)
    assert "kamaki's `file truncate`" in sync.out
    assert "sync it once with a token of its owner" in sync.out
    assert content(root) == {"whole": b"whole"}
    assert not left(pithos)


def test_who_may_write_an_object_that_was_cut_mends_it(
    sync: Sync, pithos: FakePithos, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though only the owner may send blocks by themselves."""
    data = os.urandom(1000)
    cut_with_a_history(pithos, data, 10)
    write(pithos, "whole", b"whole")
    root = shared_with_bob(sync, pithos, monkeypatch, "write")
    sync.reconcile(root, expect=3)
    sync.reconcile(root)
    assert content(root) == {"cut": data[:10], "whole": b"whole"}
    sync.at_rest(root)


def test_a_long_file_that_may_not_be_sent_is_that_files_failure(
    sync: Sync, pithos: FakePithos, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is no owner may not send blocks (403). That ended the cycle with 12."""
    write(pithos, "cut", b"one")
    write(pithos, "whole", b"two")
    root = shared_with_bob(sync, pithos, monkeypatch, "write")
    sync.reconcile(root)
    (root / "cut").write_bytes(os.urandom(BLOCK + 1))
    (root / "whole").write_bytes(b"short")
    sync.reconcile(root, expect=3)
    assert "403" in sync.out
    assert pithos.store.read(pithos.container().live()["whole"]) == b"short"
