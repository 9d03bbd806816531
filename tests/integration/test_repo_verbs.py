"""`blocksync repo` with the real program, on a directory."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.integration.syncing import BLOCKSYNC
from tests.kit.repos import Repo, Root
from tests.kit.repositories import PASSPHRASE


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


def test_init_makes_one_and_its_recovery_key_opens_it(repo: Repo) -> None:
    (line,) = repo("init", "--block-size", "128KiB", "--label", "mine")
    assert (line["type"], line["block_size"]) == ("repository", 128 << 10)
    assert line["store"]["lists_at_once"] is True
    for secret in (PASSPHRASE, line["recovery_key"]):
        (checked,) = repo("check", passphrase=secret)
        assert (checked["problems"], checked["commits"]) == (0, 0)
    repo("check", expect=12, passphrase="another passphrase")
    assert "wrong passphrase" in repo.err


def test_for_people_the_recovery_key_is_printed_once_with_what_to_do_with_it(repo: Repo) -> None:
    printed = repo.told("init")
    assert printed.count("recovery key: ") == 1
    assert "shown only now" in repo.err
    assert "nothing is damaged or missing" in repo.told("check", "--read-data", "100%")


def test_init_refuses_a_place_that_is_not_empty_and_leaves_it_alone(repo: Repo, tmp_path: Path) -> None:
    repo("init")
    before = sorted(repo.folder.rglob("*"))
    (line,) = repo("init", expect=2)
    assert f"{repo.url}: there is a repository already" in line["message"]
    assert sorted(repo.folder.rglob("*")) == before
    for name in ("IMG 0001.JPG", "photo.jpg"):
        other = Repo(tmp_path / name.replace(" ", "-").lower())
        other.folder.mkdir()
        (other.folder / name).write_bytes(b"mine")
        (line,) = other("init", expect=2)
        assert name in line["message"]
        assert "other things" in line["message"]
        assert [path.name for path in other.folder.iterdir()] == [name]


def test_init_looks_before_it_asks_for_a_passphrase(repo: Repo, tmp_path: Path) -> None:
    repo("init")
    (line,) = repo("init", "--password-file", tmp_path / "none", expect=2)
    assert "there is a repository already" in line["message"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--block-size", "5000"), "power of two from 4 KiB to 4 MiB"),
        (("--password-file", "/nowhere/passphrase"), "/nowhere/passphrase does not exist"),
    ],
)
def test_what_init_can_not_take_is_told_and_nothing_is_made(repo: Repo, arguments: tuple[str, ...], said: str) -> None:
    repo("init", *arguments, expect=2 if arguments[0] == "--block-size" else 10)
    assert said in repo.err
    assert not repo.folder.exists()


def test_check_names_what_is_damaged_and_where_there_is_no_repository(repo: Repo) -> None:
    repo("check", expect=10)
    repo.folder.mkdir()
    repo("check", expect=10)
    assert "repo init" in repo.err
    repo("init")
    repo("check", "--read-data", "200%", expect=2)
    assert "0% to 100%" in repo.err
    config = repo.folder / "config"
    raw = config.read_bytes()
    config.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    repo("check", expect=15)
    assert "config" in repo.err


def test_no_verb_touches_a_repository_of_a_newer_format(repo: Repo) -> None:
    repo("init")
    config = repo.folder / "config"
    raw = config.read_bytes()
    config.write_bytes(raw[:5] + bytes([9]) + raw[6:])
    before = {path: path.read_bytes() for path in repo.folder.rglob("*") if path.is_file()}
    for verb in ("check", "gc", "repack", "stats", "devices list", "key list", "key add --recovery-key"):
        (line,) = repo(verb, expect=14)
        assert "use a newer blocksync" in line["message"]
    repo("init", expect=2)
    assert {path: path.read_bytes() for path in repo.folder.rglob("*") if path.is_file()} == before


def test_what_is_deleted_in_a_share_leaves_the_store_after_repack_and_gc(repo: Repo, tmp_path: Path) -> None:
    repo("init")
    root = Root(repo, tmp_path / "home")
    contents = {f"file{number}": os.urandom(300_000) for number in range(6)}
    for name, data in contents.items():
        (root.folder / name).write_bytes(data)
    root.reconcile()
    (stats,) = repo("stats")
    assert (stats["files"], stats["logical_bytes"], stats["devices"]) == (6, 1_800_000, 1)
    assert stats["distinct_bytes"] == 1_800_000 <= stats["live_bytes"] <= stats["pack_bytes"] <= stats["stored_bytes"]
    for name in ("file1", "file2", "file3", "file4"):
        (root.folder / name).unlink()
    root.reconcile()
    repo.age(40)
    (told,) = repo("repack", "--dry-run")
    assert (told["sparse_packs"] > 0, told["new_packs"], told["dry_run"]) == (True, 0, True)
    (done,) = repo("repack")
    assert (done["sparse_packs"], done["new_packs"] > 0) == (told["sparse_packs"], True)
    for _ in range(2):
        (would,) = repo("gc", "--dry-run")
        (done,) = repo("gc")
        assert {**would, "dry_run": False} == done
        repo.age(3)
    assert "deleted: " in repo.told("gc")
    (after,) = repo("stats")
    assert after["pack_bytes"] < stats["pack_bytes"] / 2
    (checked,) = repo("check", "--read-data", "100%")
    assert checked["problems"] == 0
    other = Root(repo, tmp_path / "other")
    other.reconcile()
    assert other.contents == {name: contents[name] for name in ("file0", "file5")}


def with_a_past(repo: Repo, home: Path) -> Root:
    """A repository with a file that only older commits have, and who wrote it."""
    repo("init")
    root = Root(repo, home)
    for name in ("file", "other"):
        (root.folder / name).write_bytes(os.urandom(100_000))
        root.reconcile()
    (root.folder / "file").unlink()
    root.reconcile()
    return root


def test_nothing_goes_before_its_time(repo: Repo, tmp_path: Path) -> None:
    with_a_past(repo, tmp_path / "home")
    repo.age(20)
    (done,) = repo("gc")
    assert (done["condemned_packs"], done["deleted_packs"]) == (0, 0)
    (done,) = repo("gc", "--keep", "10d")
    assert (done["condemned_packs"] > 0, done["deleted_packs"]) == (True, 0)
    (done,) = repo("gc", "--keep", "10d")
    assert (done["condemned_packs"], done["waiting_packs"] > 0, done["deleted_packs"]) == (0, True, 0)
    repo("gc", "--keep", "a while", expect=2)


def test_what_is_kept_of_the_past_is_set_once_for_all_who_collect(repo: Repo, tmp_path: Path) -> None:
    root = with_a_past(repo, tmp_path / "home")
    repo.age(40)
    (line,) = repo("settings")
    assert (line["type"], line["keep_s"]) == ("repository_settings", 30 * 86_400)
    assert repo.told("settings", "--keep", "60d") == "keep: 60d\n"
    for verb in ("gc", "repack"):
        repo(verb)
    (line,) = repo("gc", "--dry-run")
    assert (line["condemned_packs"], line["waiting_packs"]) == (0, 0)
    (line,) = repo("gc", "--keep", "30d", "--dry-run")  # for this run
    assert line["condemned_packs"] > 0
    assert root.repo("settings", repo.url)[0]["keep_s"] == 60 * 86_400  # another device
    root.repo("settings", "--keep", "36h", repo.url)
    assert repo.told("settings") == "keep: 36h\n"
    (stats,) = repo("stats")
    assert stats["keep_s"] == 36 * 3600
    (line,) = repo("gc")
    assert line["condemned_packs"] > 0
    repo("settings", "--keep", "a while", expect=2)
    repo("settings", "--keep", "1000000d", expect=2)
    (checked,) = repo("check", "--read-data", "100%")
    assert checked["problems"] == 0


def test_keys_are_added_changed_and_removed(repo: Repo, tmp_path: Path) -> None:
    (made,) = repo("init")
    key_file, new = tmp_path / "key", tmp_path / "new"
    (added,) = repo("key add", "--key-file", key_file, "--label", "cron")
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert (added["label"], added["recovery_key"]) == ("cron", None)
    repo("key add", "--key-file", key_file, expect=2)
    (line,) = [line for line in repo("key list", "--password-file", key_file) if line["used"]]
    assert line["key"] == added["key"]
    new.write_text("another passphrase\n")
    new.chmod(0o600)
    repo("key change", expect=2)
    assert "--new-password-file" in repo.err
    (changed,) = repo("key change", "--new-password-file", new)
    repo("check", expect=12)
    repo("check", "--password-file", new)
    repo("key remove", changed["key"], "--password-file", new, expect=2)
    repo("key remove", changed["key"], passphrase=made["recovery_key"])
    repo("check", "--password-file", new, expect=12)
    assert len(repo("key list", "--password-file", key_file)) == 2


@pytest.mark.parametrize("label", ["x" * 65, os.fsdecode(b"no text: \xff")])
def test_a_key_file_that_would_open_nothing_does_not_stay(repo: Repo, tmp_path: Path, label: str) -> None:
    repo("init")
    repo("key add", "--key-file", tmp_path / "key", "--label", label, expect=2)
    assert "the label of a key has at most 64 bytes" in repo.err
    repo("key add", "--key-file", tmp_path / "key")
    repo("check", "--password-file", tmp_path / "key")


def test_a_lost_device_is_forgotten_once_another_one_has_what_it_committed(repo: Repo, tmp_path: Path) -> None:
    repo("init")
    lost, other = Root(repo, tmp_path / "lost"), Root(repo, tmp_path / "other")
    (lost.folder / "mine").write_bytes(b"mine")
    lost.reconcile()
    other.reconcile()
    (device,) = repo("devices")
    assert device["has_followers"] is False
    repo("devices forget", device["device"], expect=2)
    assert "would lose" in repo.err
    (other.folder / "theirs").write_bytes(b"theirs")
    other.reconcile()
    repo.told("devices forget", device["device"][:10])
    assert "make a new repository" in repo.err
    assert device["device"] not in repo.told("devices list")
    (lost.folder / "again").write_bytes(b"again")
    lost.reconcile()
    other.reconcile()
    assert lost.contents == other.contents == {"mine": b"mine", "theirs": b"theirs", "again": b"again"}
    assert device["device"] in repo.told("devices list")


def test_where_a_root_is_linked_to_it_its_key_opens_the_repository(repo: Repo, tmp_path: Path) -> None:
    (made,) = repo("init")
    root = Root(repo, tmp_path / "home")
    (root.folder / "file").write_bytes(b"content")
    root.reconcile()
    for verb in ("check", "stats", "gc", "repack", "devices", "devices list", "key list"):
        (line, *_) = root.repo(verb, repo.url)
        assert line["url"] == repo.url
    assert not any(line["used"] for line in root.repo("key list", repo.url))
    (line,) = root.repo("stats", f"file://localhost{repo.folder}/")  # the same place
    assert line["repository"] == made["repository"]
    new = tmp_path / "new"
    new.write_text("another passphrase\n")
    new.chmod(0o600)
    (added,) = root.repo("key add", repo.url, "--new-password-file", new)  # who has lost all passphrases can go on
    repo("check", passphrase="another passphrase")
    for verb in (("key change", repo.url, "--new-password-file", new), ("key remove", added["key"], repo.url)):
        (line,) = root.repo(*verb, expect=2)
        assert "--password-file" in line["message"]
    root("unlink", root.folder)
    (line,) = root.repo("check", repo.url, expect=2)
    assert "no passphrase of the repository" in line["message"]


def test_a_passphrase_that_is_given_counts_and_no_key_is_of_another_repository(repo: Repo, tmp_path: Path) -> None:
    repo("init")
    root = Root(repo, tmp_path / "home")
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong horse battery\n")
    wrong.chmod(0o600)
    root.repo("check", repo.url, "--password-file", wrong, expect=12)
    repo.folder.rename(tmp_path / "old")
    root.repo("check", repo.url, expect=10)
    repo("init")
    (line,) = root.repo("check", repo.url, expect=2)
    assert "no passphrase of the repository" in line["message"]


def test_limits_and_authorities_are_taken_by_every_verb_or_refused_with_what_is_expected(repo: Repo) -> None:
    repo("init", "--limit-up", "10MiB")
    repo("check", "--limit-down", "10MiB")
    (line,) = repo("gc", "--limit-down", "fast", expect=2)
    assert "fast" in line["message"]
    (line,) = repo("stats", "--ca-file", "/etc/ssl/certs/ca-certificates.crt", expect=2)
    assert "--ca-file is for swift://" in line["message"]


def test_on_a_terminal_a_verb_says_what_it_does_and_elsewhere_nothing(repo: Repo) -> None:
    repo("init")
    assert repo.err == ""
    keyboard, terminal = os.openpty()
    try:
        environment = os.environ | {"BLOCKSYNC_PASSWORD": PASSPHRASE, "TERM": "xterm"}
        done = subprocess.run(
            [BLOCKSYNC, "repo", "stats", repo.url], env=environment, stdout=PIPE, stderr=terminal, check=True
        )
        told = os.read(keyboard, 1 << 16)
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert b"opening the repository" in told
    assert b"repository " in done.stdout
