"""Two folders on a Synnefo Pithos: whole cycles by the command line, against the fake that behaves as the real one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.pithos import FakePithos, Fault, FaultKind
from tests.fakes.pithos_calls import ObjectCall
from tests.integration.syncing import Sync, content, set_home


@pytest.fixture
def pithos() -> Iterator[FakePithos]:
    with FakePithos(block_size=4096) as fake:
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


def write(pithos: FakePithos, name: str, data: bytes) -> None:
    """What kamaki does: no metadata."""
    pithos.store.put_body(pithos.container(), name, data, "application/octet-stream", {})


def test_what_tells_no_mtime_has_its_versions_time_on_every_device(sync: Sync, pithos: FakePithos) -> None:
    """It kept the old mtime, so that rsync and make missed the change, or had the time of each download (12.27)."""
    first, second = linked(sync, pithos, "first"), linked(sync, pithos, "second")
    (first / "ours").write_bytes(b"base")
    write(pithos, "theirs", b"made by kamaki")
    sync.reconcile(first)
    sync.reconcile(second)
    before = (first / "ours").stat()
    write(pithos, "ours", b"news")
    for root in (first, second, first):
        sync.reconcile(root)
    for name in ("ours", "theirs"):
        times = {(root / name).stat().st_mtime_ns for root in (first, second)}
        version = pithos.container().history[name][-1]
        assert times == {round(float(version.timestamp) * 1_000_000) * 1000}
    assert (first / "ours").stat().st_size == before.st_size
    assert (first / "ours").stat().st_mtime_ns != before.st_mtime_ns
    sync.at_rest(first, second)


@pytest.mark.parametrize("size", [10, 4096 + 100, 2 * 4096 + 7])
def test_an_object_that_was_cut_on_the_server_arrives(sync: Sync, pithos: FakePithos, size: int) -> None:
    """It has the hash of the longer block, and was exit 15 for ever (12.27)."""
    root, other = linked(sync, pithos, "first"), linked(sync, pithos, "second")
    data = os.urandom(2 * 4096 + 1000)
    write(pithos, "cut", data)
    write(pithos, "whole", b"whole")
    pithos.store.change(pithos.container(), "cut", 0, data[:size], size)
    sync.reconcile(root, expect=3)
    assert "was cut" in sync.out
    assert content(root) == {"whole": b"whole"}
    for each in (root, other):
        sync.reconcile(each)
        assert content(each) == {"cut": data[:size], "whole": b"whole"}
    sync.at_rest(root, other)


def test_an_object_whose_block_is_damaged_is_not_taken_for_a_cut_one(sync: Sync, pithos: FakePithos) -> None:
    root = linked(sync, pithos, "first")
    data = os.urandom(4096 + 1000)
    write(pithos, "damaged", data)
    pithos.store.change(pithos.container(), "damaged", 0, b"", 4096 + 100)
    last = pithos.container().history["damaged"][-1].hashes[-1]
    block = pithos.store.blocks[last]
    pithos.store.blocks[last] = bytes([block[0] ^ 1]) + block[1:]
    sync.reconcile(root, expect=15)
    assert content(root) == {}


def requests(sync: Sync, pithos: FakePithos, root: Path) -> list[str]:
    pithos.requests.clear()
    sync.reconcile(root)
    return [f"{method} {target.rpartition('/vms')[2]}" for method, target in pithos.requests]


def test_a_cycle_without_changes_lists_once_and_a_small_file_is_asked_for_once(sync: Sync, pithos: FakePithos) -> None:
    """It asked for a second page, and for each small file with HEAD and GET (12.29)."""
    first, second = linked(sync, pithos, "first"), linked(sync, pithos, "second")
    for number in range(20):
        (first / f"f{number}").write_bytes(b"%d" % number)
    (first / "empty").write_bytes(b"")
    (first / "link").symlink_to("f1")
    sync.reconcile(first)
    pulled = requests(sync, pithos, second)
    assert content(second) == content(first)
    assert sum("/f" in each for each in pulled) == 20
    assert sum("/link" in each for each in pulled) == 1
    for root in (first, second):
        assert requests(sync, pithos, root) == ["HEAD ", "GET ?format=json&limit=10000"]


def test_what_has_no_room_in_memory_is_described_first_and_read_later(
    sync: Sync, pithos: FakePithos, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No content is fetched twice: what would push another one out is not fetched yet."""
    monkeypatch.setattr("syncer.remote.pithos.read._KEPT_BYTES", 10_000)
    first, second = linked(sync, pithos, "first"), linked(sync, pithos, "second")
    for number in range(5):
        (first / f"f{number}").write_bytes(os.urandom(3000))
    sync.reconcile(first)
    pulled = [each for each in requests(sync, pithos, second) if "/f" in each]
    assert content(second) == content(first)
    assert sorted(each.partition(" ")[0] for each in pulled) == ["GET"] * 5 + ["HEAD"] * 2


def test_what_others_keep_with_an_object_stays_over_an_edit_and_a_rename(sync: Sync, pithos: FakePithos) -> None:
    """An edit dropped foreign metadata, a rename sharing and public links (12.28)."""
    root, box = linked(sync, pithos, "first"), pithos.container
    (root / "d").mkdir()
    (root / "d/file").write_bytes(b"base")
    (root / "long").write_bytes(os.urandom(9000))
    sync.reconcile(root)
    for name in ("d/file", "long"):
        pithos.store.change_meta(box(), name, {"x-object-meta-colour": "röt +1"}, update=True)
        box().sharing[name] = "read=bob"
        box().public[name] = "link"
    sync.reconcile(root)
    (root / "d/file").write_bytes(b"edited")
    (root / "long").write_bytes(os.urandom(9001))
    sync.reconcile(root)
    (root / "d").rename(root / "moved")
    (root / "long").rename(root / "longer")
    sync.reconcile(root)
    for name, size in (("moved/file", 6), ("longer", 9001)):
        version = box().current(name)
        assert version is not None
        assert (version.size, version.meta["x-object-meta-colour"]) == (size, "röt +1")
        assert box().sharing[name] == "read=bob"
        assert name in box().public
    sync.at_rest(root)


def renamed(sync: Sync, pithos: FakePithos) -> Path:
    """A device that has renamed a shared file, and was not run since."""
    root = linked(sync, pithos, "first")
    (root / "old").write_bytes(b"data")
    sync.reconcile(root)
    pithos.container().sharing["old"] = "read=bob"
    pithos.container().public["old"] = "link"
    (root / "old").rename(root / "new")
    return root


def test_a_rename_and_its_sharing_are_one_request(sync: Sync, pithos: FakePithos) -> None:
    """A kill after the MOVE ended the sharing for good (12.28)."""
    root = renamed(sync, pithos)
    pithos.requests.clear()
    sync.reconcile(root)
    assert pithos.container().sharing == {"new": "read=bob"}
    assert not [target for method, target in pithos.requests if method == "POST"]


@pytest.mark.parametrize("refusing", [False, True])
def test_sharing_that_a_rename_dropped_is_given_back_or_named(
    refusing: bool, sync: Sync, pithos: FakePithos, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal was not reported (12.28)."""
    root = renamed(sync, pithos)
    share = ObjectCall.share

    def only_by_itself(self: ObjectCall, name: str | None = None) -> bool:
        return name is None and share(self)

    monkeypatch.setattr(ObjectCall, "share", only_by_itself)
    if refusing:
        pithos.inject(Fault(FaultKind.STATUS_BEFORE, method="POST", containing="/new", times=99, status=403))
    sync.reconcile(root, expect=3 if refusing else 0)
    assert pithos.container().sharing == ({} if refusing else {"new": "read=bob"})
    assert ("ended its sharing and public link" in sync.out) == refusing
    pithos.clear_faults()
    sync.at_rest(root)


def test_who_may_rename_an_object_and_not_share_it_renames_it(sync: Sync, pithos: FakePithos) -> None:
    """The sharing is what can't be kept then, and that is said."""
    root = renamed(sync, pithos)
    pithos.inject(Fault(FaultKind.STATUS_BEFORE, method="MOVE", times=1, status=403))
    sync.reconcile(root)
    assert "new" in pithos.container().live()
    sync.at_rest(root)


def test_what_the_account_may_not_do_with_one_object_is_that_objects_failure(sync: Sync, pithos: FakePithos) -> None:
    """A 403 on one folder ended the cycle with "refused the token" (12.28)."""
    root = linked(sync, pithos, "first")
    for name in ("allowed", "forbidden"):
        (root / name).mkdir()
        (root / name / "file").write_bytes(b"data")
    pithos.inject(Fault(FaultKind.STATUS_BEFORE, method="PUT", containing="/forbidden", times=99, status=403))
    sync.reconcile(root, expect=3)
    assert "403" in sync.out
    assert "allowed/file" in pithos.container().live()
    pithos.clear_faults()
    sync.reconcile(root)
    sync.at_rest(root)
    pithos.inject(Fault(FaultKind.STATUS_BEFORE, containing="/vms", times=99, status=403))
    (sync.home / "other").mkdir()
    sync("link", sync.home / "other", pithos.url(), expect=12)


def test_a_name_whose_url_the_server_does_not_take_is_that_files_failure(sync: Sync, pithos: FakePithos) -> None:
    """Its 400 is HTML, and ended every cycle with 13 (12.29)."""
    root = linked(sync, pithos, "first")
    deep = root.joinpath(*["ü" * 120] * 6)
    deep.mkdir(parents=True)
    (root / "file").write_bytes(b"data")
    sync.reconcile(root, expect=3)
    assert "takes no URL of" in sync.out
    assert "file" in pithos.container().live()
    assert len(pithos.container().live()) == 8  # with the share's key and its directory


def test_a_copy_onto_a_name_of_ours_is_a_change_of_that_file(sync: Sync, pithos: FakePithos) -> None:
    """COPY gives the name another uuid (12.29)."""
    first, second = linked(sync, pithos, "first"), linked(sync, pithos, "second")
    (first / "file").write_bytes(b"base")
    (first / "source").write_bytes(b"source")
    sync.reconcile(first)
    sync.reconcile(second)
    box = pithos.container()
    pithos.store.copy(box, box.history["source"][-1], "file", {})
    (second / "source").rename(second / "renamed")
    for root in (first, second, first, second):
        sync.reconcile(root)
    assert content(first) == content(second) == {"file": b"source", "renamed": b"source"}
    sync.at_rest(first, second)


def test_a_conflict_copy_that_is_reported_is_there_although_the_server_refuses_its_folder(
    sync: Sync, pithos: FakePithos
) -> None:
    """The cycle ended before the copy was made, and counted it (12.28)."""
    first, second = linked(sync, pithos, "first"), linked(sync, pithos, "second")
    (first / "d").mkdir()
    (first / "d/file").write_bytes(b"base")
    sync.reconcile(first)
    sync.reconcile(second)
    (first / "d/file").write_bytes(b"first's")
    (second / "d/file").write_bytes(b"second's")
    sync.reconcile(first)
    pithos.inject(Fault(FaultKind.STATUS_BEFORE, method="PUT", containing="/d/", times=99, status=403))
    summary = sync.reconcile(second, expect=3)
    made = [path for path in (second / "d").iterdir() if "(conflict " in path.name]
    assert summary["conflicts"] == len(made) == 1
    assert {path.read_bytes() for path in (second / "d").iterdir()} >= {b"second's"}
    pithos.clear_faults()
    for root in (second, first):
        sync.reconcile(root)
        assert sorted(path.read_bytes() for path in (root / "d").iterdir()) == [b"first's", b"second's"]
