"""A root whose record can't be read: the others go on, and everything says which record it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from syncer.cli.registry.roots import Registry
from tests.integration.syncing import Sync
from tests.integration.watching import root_of, watching

DAMAGE = [b"", b"\0" * 300, b'{"format":1}', b'{"format":1,"uu']


def record_of(root: Path) -> Path:
    return Path(Registry(os.environ).get(os.fsencode(root)).state) / "root.json"


@pytest.fixture
def records(sync: Sync) -> tuple[Path, Path, Path, Path]:
    """A root that is fine, its record, another root, and its record, which is damaged."""
    good, bad = sync.folder("good"), sync.folder("bad")
    found = record_of(good), record_of(bad)
    found[1].write_bytes(found[1].read_bytes()[:100])
    return good, found[0], bad, found[1]


@pytest.mark.parametrize("damage", DAMAGE, ids=range(len(DAMAGE)))
def test_a_reconcile_of_all_does_the_others(sync: Sync, damage: bytes) -> None:
    """Breaks when one bad record keeps every root of the user from being synced."""
    good, bad = sync.folder("good"), sync.folder("bad")
    (good / "file").write_bytes(b"1")
    record = record_of(bad)
    record.write_bytes(damage)
    lines = sync("reconcile", "--json", expect=15)
    assert [line["pushed"] for line in lines if line["type"] == "summary"] == [1]
    (error,) = [line for line in lines if line["type"] == "error"]
    assert (error["root"], error["record"], error["exit_code"]) == (None, str(record), 15)
    for text in (error["message"], sync.err):
        assert str(record) in text
        assert "expected the line of JSON" in text
        assert "link that root again" in text
    sync("reconcile", good)
    assert not sync.err


@pytest.mark.parametrize("verb", ["status", "verify", "plan", "conflicts", "pause", "resume"])
def test_every_verb_for_all_roots_does_the_others(
    sync: Sync, records: tuple[Path, Path, Path, Path], verb: str
) -> None:
    good, _, _, record = records
    sync("reconcile", expect=15)
    sync(verb, expect=15)
    assert str(record) in sync.err
    assert verb == "conflicts" or str(good) in sync.out + sync.err
    sync(verb, good)


def test_status_and_trash_show_the_record(sync: Sync, records: tuple[Path, Path, Path, Path]) -> None:
    good, _, _, record = records
    sync("reconcile", expect=15)
    sync("status", expect=15)
    assert f"{record}\n" in sync.out
    assert "condition  damaged: " in sync.out
    status, error = sync("status", "--json", expect=15)
    assert (status["root"], status["condition"]) == (str(good), "ok")
    assert (error["type"], error["record"], error["exit_code"]) == ("error", str(record), 15)
    sync("trash", "ls", expect=15)
    assert str(good) in sync.out


def test_a_damaged_state_stops_no_other_root_either(sync: Sync) -> None:
    bad, good = sync.folder("bad"), sync.folder("good")
    sync("reconcile")
    (Path(Registry(os.environ).get(os.fsencode(bad)).state) / "db/data.mdb").write_bytes(b"garbage" * 1000)
    for verb in ("status", "verify", "plan", "conflicts"):
        lines = sync(verb, "--json", expect=15)
        (error,) = [line for line in lines if line["type"] == "error"]
        assert (error["root"], error["exit_code"]) == (str(bad), 15)
        assert str(bad) in sync.err
        assert verb == "conflicts" or [line["root"] for line in lines if line["type"] != "error"] == [str(good)]
        sync(verb, bad, expect=15)


def test_the_doctor_looks_at_the_others(sync: Sync, records: tuple[Path, Path, Path, Path]) -> None:
    good, _, _, record = records
    sync("reconcile", expect=15)
    lines = sync("doctor", "--json", expect=15)
    (found,) = [line for line in lines if line["subject"] == "linked roots"]
    assert (found["level"], str(record) in found["text"], str(record) in found["remedy"]) == ("fail", True, True)
    assert {line["subject"] for line in lines if line["root"] == str(good)} >= {"root", "state", "server"}
    sync("doctor", good)


def test_what_may_be_the_damaged_root_is_not_called_unlinked(
    sync: Sync, records: tuple[Path, Path, Path, Path], tmp_path: Path
) -> None:
    """Breaks when a root inside, or twice, the one that nobody can read of gets linked."""
    _, _, bad, record = records
    (tmp_path / "new").mkdir()
    for command in (
        ("reconcile", bad),
        ("unlink", bad),
        ("trash", "restore", bad / "file"),
        ("link", tmp_path / "new", sync.url, "--token-file", sync.token_file),
    ):
        sync(*command, expect=15)
        assert str(record) in sync.err


def test_the_remedy_helps_and_deletes_nothing(sync: Sync, records: tuple[Path, Path, Path, Path]) -> None:
    good, _, bad, record = records
    (good / "there").write_bytes(b"1")
    (bad / "here").write_bytes(b"2")
    sync("reconcile", expect=15)
    record.unlink()
    sync("link", bad, sync.url, "--token-file", sync.token_file)
    sync("reconcile")
    sync("reconcile")
    for root in (good, bad):
        assert ((root / "there").read_bytes(), (root / "here").read_bytes()) == (b"1", b"2")


def test_a_newer_record_ends_with_its_own_code(sync: Sync, records: tuple[Path, Path, Path, Path]) -> None:
    good, _, _, record = records
    record.write_bytes(b'{"format":99}')
    (error,) = [line for line in sync("reconcile", "--json", expect=14) if line["type"] == "error"]
    assert (error["record"], error["exit_code"]) == (str(record), 14)
    sync("reconcile", good)


def test_the_daemon_serves_the_others_and_shows_the_record(
    sync: Sync, records: tuple[Path, Path, Path, Path], tmp_path: Path
) -> None:
    good, good_record, bad, record = records
    with watching(tmp_path / "watch.log") as daemon:
        found = daemon.until_root(record, "damaged")
        assert "link that root again" in found.detail
        (good / "file").write_bytes(b"1")
        daemon.until(lambda live: root_of(live, good).changed.get("pushed", 0) == 1)
        sync("status", expect=15)
        assert "the daemon waits for the record" in sync.out
        record.unlink()
        sync("link", bad, sync.url, "--token-file", sync.token_file)
        daemon.until_there(bad / "file", b"1")
        daemon.until(lambda live: {root.root for root in live.roots} == {str(good), str(bad)})
        # What is damaged while the daemon runs stops that root only.
        good_record.write_bytes(b"{")
        sync("pause", expect=15)
        sync("resume", expect=15)
        daemon.until_root(good_record, "damaged")
        daemon.until_root(bad, "idle")
        assert daemon.stop() == 0
    assert "watch.damaged" in (tmp_path / "watch.log").read_text()


def test_a_path_in_another_root_is_not_concerned(sync: Sync, records: tuple[Path, Path, Path, Path]) -> None:
    good, _, _, _ = records
    entry = good / ".blocksync/trash/1760000000-0000002a"
    entry.mkdir()
    (entry / "item").write_bytes(b"old")
    (entry / "origin").symlink_to("old")
    sync("trash", "restore", good / "old", "--to", good / "back")
    assert (good / "back").read_bytes() == b"old"
