"""`blocksync repo` with the real program, on a directory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.kit import starting

PASSPHRASE = "correct horse battery"


class Repo:
    """A place for a repository, and the command.

    Attributes:
        folder: Of the repository.
        url: Of it.
        out: What the last command printed.
        err: What it told.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"file://{folder}"
        self.out = self.err = ""

    def __call__(
        self, verb: str, *arguments: str | Path, expect: int = 0, passphrase: str = PASSPHRASE
    ) -> list[dict[str, Any]]:
        """Run a verb with `--json`; returns its lines."""
        self.told(verb, *arguments, "--json", expect=expect, passphrase=passphrase)
        return [json.loads(line) for line in self.out.splitlines()]

    def told(self, verb: str, *arguments: str | Path, expect: int = 0, passphrase: str = PASSPHRASE) -> str:
        """Run a verb; returns what it printed."""
        environment = os.environ | {"BLOCKSYNC_PASSWORD": passphrase}
        done = starting.run(["repo", *verb.split(), self.url, *arguments], environment=environment)
        self.out, self.err = done.stdout, done.stderr
        assert done.returncode == expect, f"{done.returncode}: {done.stdout}{done.stderr}"
        return self.out


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
    assert "there is a repository already" in line["message"]
    assert sorted(repo.folder.rglob("*")) == before
    for name in ("IMG 0001.JPG", "photo.jpg"):
        other = Repo(tmp_path / name.replace(" ", "-").lower())
        other.folder.mkdir()
        (other.folder / name).write_bytes(b"mine")
        (line,) = other("init", expect=2)
        assert name in line["message"]
        assert "other things" in line["message"]
        assert [path.name for path in other.folder.iterdir()] == [name]


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
