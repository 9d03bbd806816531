"""Folders as devices of a repository in a directory: the commands, from link to unlink."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.core.conflict import parse_conflict_name
from tests.integration.sharing import Share, new_share
from tests.integration.syncing import content, in_conflict


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Share:
    return new_share(tmp_path, monkeypatch, capsys)


def root_at(path: Path) -> LinkedRoot:
    return Registry(os.environ).get(os.fsencode(path))


def objects(share: Share) -> dict[str, bytes]:
    store = share.home / "repository"
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def test_changes_go_both_ways_and_then_all_is_at_rest(share: Share) -> None:
    first, second = share.folder("first"), share.folder("second")
    (first / "d").mkdir()
    (first / "d/small").write_bytes(b"small")
    (first / "large").write_bytes(os.urandom(300_000))
    (first / "link").symlink_to("d/small")
    assert share.reconcile(first)["pushed"] == 4
    assert share.reconcile(second)["pulled"] == 4
    assert content(second) == content(first)
    (second / "d/small").write_bytes(b"smaller")
    (second / "large").unlink()
    (second / "d").rename(second / "e")
    share.reconcile(second)
    share.reconcile(first)
    assert content(first) == content(second) == {"e": "folder", "e/small": b"smaller", "link": "-> d/small"}
    before = objects(share)
    share.at_rest(first, second)
    assert objects(share) == before


def test_a_large_file_that_changes_a_little_sends_a_little(share: Share) -> None:
    first, second = share.folder("first"), share.folder("second")
    data = bytearray(os.urandom(4 << 20))
    (first / "image").write_bytes(data)
    share.reconcile(first)
    share.reconcile(second)
    data[2 << 20] ^= 1
    (first / "image").write_bytes(data)
    assert share.reconcile(first)["bytes_sent"] < 256 << 10
    assert share.reconcile(second)["bytes_received"] < 256 << 10
    assert (second / "image").read_bytes() == data


def test_a_conflict_keeps_both_versions_on_both_devices(share: Share) -> None:
    first, second = share.folder("first"), share.folder("second")
    copy = in_conflict(share, (first, second))
    assert copy.read_bytes() == b"mine, and longer"
    assert (first / "d" / copy.name).read_bytes() == b"mine, and longer"
    assert (second / "d/report.txt").read_bytes() == b"the server's"
    assert parse_conflict_name(copy.name.encode()) is not None
    share.at_rest(first, second)


def test_of_two_that_commit_at_the_same_moment_the_copy_is_called_after_the_device_that_lost(
    share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = share.folder("first"), share.folder("second")
    (first / "report.txt").write_bytes(b"both know this")
    share.reconcile(first)
    share.reconcile(second)
    (head,) = (share.home / "repository/heads").iterdir()
    before = head.read_bytes()
    for root, host in ((first, "desk"), (second, "laptop")):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        (root / "report.txt").write_bytes(f"of the {host}".encode())
        share.reconcile(root)
        if root is first:
            after = head.read_bytes()
            head.write_bytes(before)  # the second one has looked before this one committed
    head.write_bytes(after)
    monkeypatch.setattr(socket, "gethostname", lambda: "a third one")
    for root in (first, second):
        share("reconcile", root)
        (told,) = share("conflicts", root, "--json")
        assert (told["host"], told["original"], told["differs"]) == ("laptop", "report.txt", True)
        assert (root / told["path"]).read_bytes() == b"of the laptop"
        assert (root / "report.txt").read_bytes() == b"of the desk"
    share("resolve", first / told["path"], "--take", "local")
    share.reconcile(first)
    share.reconcile(second)
    assert content(first) == content(second)
    assert share("conflicts", second, "--json") == []
    share.at_rest(first, second)


def test_how_often_the_store_is_asked_is_a_setting_of_the_root(share: Share) -> None:
    first = share.folder("first")
    assert root_at(first).record.settings.poll_s is None
    share("link", first, share.url, "--poll-interval", "10s")
    share("link", first, share.url)
    assert root_at(first).record.settings.poll_s == 10.0
    share("link", first, share.url, "--poll-interval", "0.5s", expect=2)
    assert "expected 1s or more" in share.err
    share("link", first, share.url, "--poll-interval", "0")
    assert root_at(first).record.settings.poll_s is None


def test_a_root_is_all_of_a_repository(share: Share) -> None:
    path = share.home / "folder"
    path.mkdir()
    share("link", path, f"{share.url}?prefix=photos", "--password-file", share.token_file, expect=2)
    assert "a root is all of a repository" in share.err
    assert "make a repository for the folder" in share.err


def test_after_link_no_command_needs_a_passphrase_and_all_of_them_work(share: Share) -> None:
    first = share.folder("first")
    share.token_file.unlink()
    (first / "file").write_bytes(b"content")
    (planned,) = share("plan", first, "--json")
    assert [action["path"] for action in planned["actions"]] == ["file"]
    share.reconcile(first)
    share("verify", first)
    share("explain", first / "file")
    assert "server      unchanged" in share.out
    (told,) = share("status", first, "--json")
    assert (told["condition"], told["url"]) == ("ok", share.url)
    checks = {line["subject"]: line for line in share("doctor", first, "--json")}
    assert {checks[name]["level"] for name in ("state", "store", "clock")} == {"ok"}
    assert "repository on directory" in checks["store"]["text"]


def test_the_key_is_kept_where_nobody_else_reads_it_and_goes_with_the_link(share: Share) -> None:
    first = share.folder("first")
    root = root_at(first)
    assert stat.S_IMODE(os.stat(root.secret_file).st_mode) == 0o600
    assert not (Path(root.state) / "token").exists()
    share("unlink", first)
    assert not os.path.exists(root.secret_file)


def test_a_recovery_key_opens_as_a_passphrase_does(share: Share, monkeypatch: pytest.MonkeyPatch) -> None:
    path = share.home / "by recovery key"
    path.mkdir()
    monkeypatch.setenv("BLOCKSYNC_PASSWORD", share.recovery.lower().replace("-", " "))
    share("link", path, share.url)
    share.reconcile(path)


def test_one_place_has_one_name_however_it_is_spelled(share: Share) -> None:
    first = share.folder("first")
    share.token_file.unlink()
    spelled = share.url.replace("file:///", "file://localhost/").replace("repository", "%72epository") + "/"
    share("link", first, spelled)
    assert "is linked to" in share.err
    assert "its key is kept" in share.err
    assert root_at(first).record.url == share.url


@pytest.mark.parametrize("url", ["file:repository", "file://repository", "file:///", "file:///a/../b", "swift://cloud"])
def test_what_is_no_place_is_refused_with_what_is_expected(share: Share, url: str) -> None:
    path = share.home / "folder"
    path.mkdir()
    share("link", path, url, expect=2)
    assert "expected" in share.err or "give pithos" in share.err


def test_a_root_and_the_repository_can_not_lie_in_each_other(share: Share) -> None:
    first = share.folder("first")
    inside = share.home / "repository/root"
    inside.mkdir()
    for root in (inside, share.home / "repository"):
        for url in (share.url, "file:///elsewhere"):
            share("link", root, url, "--password-file", share.token_file, expect=2)
            assert "lie in each other" in share.err
    assert root_at(first)


def test_where_there_is_no_repository_it_says_what_makes_one(share: Share, tmp_path: Path) -> None:
    path = share.home / "folder"
    path.mkdir()
    (tmp_path / "empty").mkdir()
    for place in ("empty", "nowhere"):
        share("link", path, f"file://{tmp_path}/{place}", expect=10)
        assert f"`blocksync repo init file://{tmp_path}/{place}` makes one" in share.err
    assert not list((tmp_path / "empty").iterdir())


@pytest.mark.parametrize(
    ("damage", "code", "said"),
    [
        (lambda raw: raw[:5] + bytes([9]) + raw[6:], 14, "use a newer blocksync"),
        (lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), 15, "config"),
        (lambda raw: raw[:9], 15, "config"),
        (lambda raw: b"", 15, "config"),
    ],
)
def test_a_config_that_is_newer_or_damaged_is_left_alone(share: Share, damage, code: int, said: str) -> None:
    first = share.folder("first")
    (first / "file").write_bytes(b"content")
    config = share.home / "repository/config"
    config.write_bytes(damage(config.read_bytes()))
    before = objects(share)
    share("reconcile", first, expect=code)
    assert said in share.err
    other = share.home / "other"
    other.mkdir()
    share("link", other, share.url, "--password-file", share.token_file, expect=code)
    assert objects(share) == before


def test_a_wrong_passphrase_opens_nothing(share: Share, monkeypatch: pytest.MonkeyPatch) -> None:
    path = share.home / "folder"
    path.mkdir()
    monkeypatch.setenv("BLOCKSYNC_PASSWORD", "wrong horse battery staple")
    share("link", path, share.url, expect=12)
    assert "wrong passphrase" in share.err
    share("link", path, share.url, "--password-file", share.home / "none", expect=10)
    monkeypatch.delenv("BLOCKSYNC_PASSWORD")
    share("link", path, share.url, expect=2)
    assert "--password-file" in share.err


def test_a_place_that_is_not_mounted_is_no_empty_share(share: Share) -> None:
    first = share.folder("first")
    (first / "file").write_bytes(b"content")
    share.reconcile(first)
    place, away = share.home / "repository", share.home / "away"
    place.rename(away)
    share("reconcile", first, expect=10)
    place.mkdir()
    share("reconcile", first, expect=10)
    assert (first / "file").read_bytes() == b"content"
    assert not list(place.iterdir())
    place.rmdir()
    away.rename(place)
    share.at_rest(first)


def test_another_repository_in_the_same_place_is_not_the_one_that_was_linked(
    share: Share, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = share.folder("first")
    (first / "file").write_bytes(b"content")
    share.reconcile(first)
    (share.home / "repository").rename(share.home / "old")
    other = new_share(tmp_path, monkeypatch, capsys)
    other("reconcile", first, expect=15)
    other("link", first, other.url, expect=18)
    assert "another" in other.err or "expected" in other.err
    other("link", first, other.url, "--relink", "--password-file", other.token_file)
    assert other.reconcile(first)["pushed"] == 1


def test_keys_of_shares_are_not_set_where_a_repository_has_one(share: Share) -> None:
    first = share.folder("first")
    share("peers", "rotate", first, expect=2)
    assert "comes from the repository's key" in share.err
    share("peers", "passphrase", first, "--file", share.token_file, expect=2)
    checks = [line for line in share("doctor", first, "--json") if line["root"] and line["subject"] == "LAN"]
    assert "its key is derived from the repository's, mark" in checks[0]["text"]
