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
def records(commands: Sync) -> tuple[Path, Path, Path, Path]:
    """A root that is fine, its record, another root, and its record, which is damaged."""
    good, bad = commands.folder("good"), commands.folder("bad")
    found = record_of(good), record_of(bad)
    found[1].write_bytes(found[1].read_bytes()[:100])
    return good, found[0], bad, found[1]


@pytest.mark.parametrize("damage", DAMAGE, ids=range(len(DAMAGE)))
def test_a_reconcile_of_all_does_the_others(commands: Sync, damage: bytes) -> None:
    """Breaks when one bad record keeps every root of the user from being synced."""
    good, bad = commands.folder("good"), commands.folder("bad")
    (good / "file").write_bytes(b"1")
    record = record_of(bad)
    record.write_bytes(damage)
    lines = commands("reconcile", "--json", expect=15)
    assert [line["pushed"] for line in lines if line["type"] == "summary"] == [1]
    (error,) = [line for line in lines if line["type"] == "error"]
    assert (error["root"], error["record"], error["exit_code"]) == (None, str(record), 15)
    for text in (error["message"], commands.err):
        assert str(record) in text
        assert "expected the line of JSON" in text
        assert "link that root again" in text
    commands("reconcile", good)
    assert not commands.err


@pytest.mark.parametrize("verb", ["status", "verify", "plan", "conflicts", "pause", "resume"])
def test_every_verb_for_all_roots_does_the_others(
    commands: Sync, records: tuple[Path, Path, Path, Path], verb: str
) -> None:
    good, _, _, record = records
    commands("reconcile", expect=15)
    commands(verb, expect=15)
    assert str(record) in commands.err
    assert verb == "conflicts" or str(good) in commands.out + commands.err
    commands(verb, good)


def test_status_and_trash_show_the_record(commands: Sync, records: tuple[Path, Path, Path, Path]) -> None:
    good, _, _, record = records
    commands("reconcile", expect=15)
    commands("status", expect=15)
    assert f"{record}\n" in commands.out
    assert "condition  damaged: " in commands.out
    status, error = commands("status", "--json", expect=15)
    assert (status["root"], status["condition"]) == (str(good), "ok")
    assert (error["type"], error["record"], error["exit_code"]) == ("error", str(record), 15)
    commands("trash", "ls", expect=15)
    assert str(good) in commands.out


def test_a_damaged_state_stops_no_other_root_either(commands: Sync) -> None:
    bad, good = commands.folder("bad"), commands.folder("good")
    commands("reconcile")
    (Path(Registry(os.environ).get(os.fsencode(bad)).state) / "db/data.mdb").write_bytes(b"garbage" * 1000)
    for verb in ("status", "verify", "plan", "conflicts"):
        lines = commands(verb, "--json", expect=15)
        (error,) = [line for line in lines if line["type"] == "error"]
        assert (error["root"], error["exit_code"]) == (str(bad), 15)
        assert str(bad) in commands.err
        assert verb == "conflicts" or [line["root"] for line in lines if line["type"] != "error"] == [str(good)]
        commands(verb, bad, expect=15)


def test_the_doctor_looks_at_the_others(commands: Sync, records: tuple[Path, Path, Path, Path]) -> None:
    good, _, _, record = records
    commands("reconcile", expect=15)
    lines = commands("doctor", "--json", expect=15)
    (found,) = [line for line in lines if line["subject"] == "linked roots"]
    assert (found["level"], str(record) in found["text"], str(record) in found["remedy"]) == ("fail", True, True)
    assert {line["subject"] for line in lines if line["root"] == str(good)} >= {"root", "state", "server"}
    commands("doctor", good)


def test_what_may_be_the_damaged_root_is_not_called_unlinked(
    commands: Sync, records: tuple[Path, Path, Path, Path], tmp_path: Path
) -> None:
    """Breaks when a root inside, or twice, the one that nobody can read of gets linked."""
    _, _, bad, record = records
    (tmp_path / "new").mkdir()
    for command in (
        ("reconcile", bad),
        ("unlink", bad),
        ("trash", "restore", bad / "file"),
        ("link", tmp_path / "new", commands.url, "--token-file", commands.token_file),
    ):
        commands(*command, expect=15)
        assert str(record) in commands.err


def test_the_remedy_helps_and_deletes_nothing(commands: Sync, records: tuple[Path, Path, Path, Path]) -> None:
    good, _, bad, record = records
    (good / "there").write_bytes(b"1")
    (bad / "here").write_bytes(b"2")
    commands("reconcile", expect=15)
    record.unlink()
    commands("link", bad, commands.url, "--token-file", commands.token_file)
    commands("reconcile")
    commands("reconcile")
    for root in (good, bad):
        assert ((root / "there").read_bytes(), (root / "here").read_bytes()) == (b"1", b"2")


def test_a_newer_record_ends_with_its_own_code(commands: Sync, records: tuple[Path, Path, Path, Path]) -> None:
    good, _, _, record = records
    record.write_bytes(b'{"format":99}')
    (error,) = [line for line in commands("reconcile", "--json", expect=14) if line["type"] == "error"]
    assert (error["record"], error["exit_code"]) == (str(record), 14)
    commands("reconcile", good)


def test_the_daemon_serves_the_others_and_shows_the_record(
    commands: Sync, records: tuple[Path, Path, Path, Path], tmp_path: Path
) -> None:
    good, good_record, bad, record = records
    with watching(tmp_path / "watch.log") as daemon:
        found = daemon.until_root(record, "damaged")
        assert "link that root again" in found.detail
        (good / "file").write_bytes(b"1")
        daemon.until(lambda live: root_of(live, good).last.get("pushed", 0) == 1)
        commands("status", expect=15)
        assert "the daemon waits for the record" in commands.out
        record.unlink()
        commands("link", bad, commands.url, "--token-file", commands.token_file)
        daemon.until_there(bad / "file", b"1")
        daemon.until(lambda live: {root.root for root in live.roots} == {str(good), str(bad)})
        # What is damaged while the daemon runs stops that root only.
        good_record.write_bytes(b"{")
        commands("pause", expect=15)
        commands("resume", expect=15)
        daemon.until_root(good_record, "damaged")
        daemon.until_root(bad, "idle")
        assert daemon.stop() == 0
    assert "watch.damaged" in (tmp_path / "watch.log").read_text()
