"""Stores that were put back, devices that were cloned, places that refuse: what the program does then."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from syncer.cli.registry.roots import LinkedRoot, Registry
from tests.integration.sharing import Share, new_share
from tests.integration.syncing import content


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Share:
    return new_share(tmp_path, monkeypatch, capsys)


def root_at(path: Path) -> LinkedRoot:
    return Registry(os.environ).get(os.fsencode(path))


def heads(share: Share) -> set[str]:
    return {path.name for path in (share.home / "repository/heads").iterdir()}


def test_a_store_that_was_put_back_stops_and_linking_anew_agrees(share: Share) -> None:
    first, second = share.folder("first"), share.folder("second")
    (first / "old").write_bytes(b"old")
    share.reconcile(first)
    share.reconcile(second)
    store, backup = share.home / "repository", share.home / "backup"
    shutil.copytree(store, backup)
    (first / "new").write_bytes(b"came after the backup")
    share.reconcile(first)
    share.reconcile(second)
    shutil.rmtree(store)
    shutil.copytree(backup, store)
    for root in (first, second):
        for verb in ("reconcile", "plan", "verify"):
            share(verb, root, expect=16)
            assert "link ROOT URL --relink" in share.err
        (told,) = share("status", root, "--json")
        assert told["last_cycle"]["exit_code"] == 16
        assert (root / "new").exists()
    for root in (first, second):
        share("link", root, share.url, "--relink")
        share.reconcile(root)
    share.reconcile(first)
    assert content(first) == content(second) == {"old": b"old", "new": b"came after the backup"}
    share.at_rest(first, second)


def test_heads_that_are_all_gone_are_told_everywhere_and_nothing_is_condemned(share: Share) -> None:
    first = share.folder("first")
    (first / "file").write_bytes(b"file")
    share.reconcile(first)
    reader = share.folder("reader")
    share.reconcile(reader)
    share.reconcile(reader)
    for head in (share.home / "repository/heads").iterdir():
        head.unlink()
    store = share.home / "repository"
    for path in store.rglob("*"):
        os.utime(path, (0, 0))
    before = {path for path in store.rglob("*") if path.is_file()}
    share("repo", "check", share.url, expect=15)
    assert "heads/* is missing" in share.out
    for verb in (("gc",), ("repack",), ("gc", "--dry-run"), ("repack", "--dry-run")):
        share("repo", *verb, share.url, expect=16)
        share("repo", *verb, share.url, "--password-file", share.token_file, expect=16)
    share("repo", "stats", share.url, expect=15)
    for root in (first, reader):
        share("reconcile", root, expect=16)
    new = share.home / "new"
    new.mkdir()
    share("link", new, share.url, share.opens, share.token_file, expect=16)
    assert "looks empty, and is not" in share.err
    assert before == {path for path in store.rglob("*") if path.is_file()}
    assert content(first) == content(reader) == {"file": b"file"}
    # Who agrees begins anew; of what only the repository had nothing is in the share.
    share("link", new, share.url, share.opens, share.token_file, "--relink")
    share.reconcile(new)
    assert content(new) == {}
    for root in (first, reader):
        share("link", root, share.url, "--relink")
        share.reconcile(root)
    share.reconcile(new)
    assert content(new) == content(first) == content(reader) == {"file": b"file"}
    share("repo", "gc", share.url)
    share("repo", "check", share.url, "--read-data", "100%")


@pytest.mark.parametrize("kept", [(), ("packs",)])
def test_a_store_that_withholds_everything_is_held_against_what_a_root_has_seen(
    kept: tuple[str, ...], share: Share
) -> None:
    root = share.folder("root")
    (root / "file").write_bytes(b"file")
    share.reconcile(root)
    for folder in {"heads", "commits", "indexes", "packs"}.difference(kept):
        shutil.rmtree(share.home / "repository" / folder)
    for verb in ("check", "gc", "repack"):
        share("repo", verb, share.url, expect=16)
        assert "older than it was" in share.err
        assert "nothing is damaged" not in share.out
    told, error = share("repo", "check", share.url, "--json", expect=16)
    assert (told["type"], told["problems"], error["type"]) == ("check", 0, "error")
    share("reconcile", root, expect=16)
    share("unlink", root)
    share("repo", "check", share.url, "--password-file", share.token_file)


def test_a_device_whose_state_was_copied_does_not_write_the_others_head(share: Share) -> None:
    """A cloned machine: the same folder with the same inode is there twice, and each has the other's state."""
    first = share.folder("first")
    (first / "both").write_bytes(b"both")
    share.reconcile(first)
    state = Path(root_at(first).state)
    clone = share.home / "clone of the state"
    shutil.copytree(state, clone)
    (first / "one").write_bytes(b"of the one")
    share.reconcile(first)
    assert len(heads(share)) == 1
    ours = share.home / "state of the one"
    state.rename(ours)
    clone.rename(state)
    (first / "one").unlink()  # as the clone's disk never had it
    (first / "other").write_bytes(b"of the other")
    share.reconcile(first)
    assert len(heads(share)) == 2
    assert content(first) == {"both": b"both", "one": b"of the one", "other": b"of the other"}
    state.rename(clone)
    ours.rename(state)
    (first / "other").unlink()
    share.reconcile(first)
    assert len(heads(share)) == 2
    assert content(first) == {"both": b"both", "one": b"of the one", "other": b"of the other"}


def test_a_state_that_was_put_back_goes_on_as_another_device(share: Share) -> None:
    first, second = share.folder("first"), share.folder("second")
    (first / "a").write_bytes(b"a")
    share.reconcile(first)
    state, backup = Path(root_at(first).state), share.home / "backup"
    shutil.copytree(state, backup)
    (first / "b").write_bytes(b"b")
    share.reconcile(first)
    shutil.rmtree(state)
    shutil.copytree(backup, state)
    (first / "c").write_bytes(b"c")
    share.reconcile(first)
    share.reconcile(second)
    assert content(first) == content(second) == {"a": b"a", "b": b"b", "c": b"c"}
    assert len(heads(share)) == 2


def test_something_else_in_place_of_an_object_is_named(share: Share) -> None:
    first = share.folder("first")
    (first / "file").write_bytes(b"content")
    config = share.home / "repository/config"
    config.rename(share.home / "config")
    config.mkdir()
    share("reconcile", first, expect=13)
    assert "config is not a regular file" in share.err
    config.rmdir()
    (share.home / "config").rename(config)
    assert share.reconcile(first)["pushed"] == 1


def test_what_is_kept_is_damaged_or_gone(share: Share) -> None:
    first = share.folder("first")
    root = root_at(first)
    kept = Path(root.secret_file).read_bytes()
    for raw in (b"", b"{}", kept[:-20], b"\xff\xfe", kept.replace(b'"master"', b'"mister"')):
        Path(root.secret_file).write_bytes(raw)
        share("reconcile", first, expect=15)
        assert "--relink" in share.err
    Path(root.secret_file).unlink()
    share("reconcile", first, expect=10)
    checks = {line["subject"]: line for line in share("doctor", first, "--json", expect=3)}
    assert checks["state"]["text"] == "the key is gone"
    share("link", first, share.url, "--password-file", share.token_file)
    share.reconcile(first)


def test_a_name_that_is_not_utf8_stays_here_and_is_told(share: Share) -> None:
    first, second = share.folder("first"), share.folder("second")
    (first / "sound").write_bytes(b"content")
    with open(os.path.join(os.fsencode(first), b"caf\xe9"), "wb") as file:
        file.write(b"content")
    assert share.reconcile(first, expect=3)["pushed"] == 1
    assert "it is not UTF-8" in share.out
    share.reconcile(second)
    assert content(second) == {"sound": b"content"}
