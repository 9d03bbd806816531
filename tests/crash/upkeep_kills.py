"""SIGKILL of the real program while it makes a repository, changes its keys, or forgets a device.

After each death the repository is checked to the last byte with each passphrase that opens it, and the same command
ends the work. That nothing was made is fine only for `init`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from tests.kit.repos import Repo, Root, mortal
from tests.kit.repositories import PASSPHRASE, make_repository, password_file

OTHER: Final = "staple and more of it"
_FIRST_BOUND: Final = {"init": 120}  # changes to the directory; a run of the other verbs makes a dozen
_BOUND: Final = 16
VERBS: Final = ("key add", "key change", "key remove", "devices forget", "init")


class Tally(msgspec.Struct, kw_only=True):
    """What was done.

    Attributes:
        kills: By verb.
        ends: Runs that made fewer changes than the one at which they were to die.
    """

    kills: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(VERBS, 0))
    ends: int = 0


def kill_often(home: Path, seed: int, kills: int) -> Tally:
    """Kill each verb so often, each time on a copy of the same repository.

    Args:
        home: An empty folder.
        seed: Of where they die.
        kills: Of each verb.

    Raises:
        AssertionError: Something was lost, or nobody can open it any more.
    """
    random, tally, trials = Random(seed), Tally(), _Trials(home)
    for verb in VERBS:
        bound = _FIRST_BOUND.get(verb, _BOUND)
        while tally.kills[verb] < kills:
            last = random.randrange(1, bound + 1)
            if trials.try_once(verb, last):
                tally.kills[verb] += 1
            else:
                tally.ends += 1
                bound = max(4, last)  # a killed run was shorter, so what made fewer says how many there are
    return tally


class _Trials:
    """What is there before: two devices with a file each, and two passphrases where a verb needs them."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._new = password_file(home, OTHER)
        self._ready = Repo(home / "ready")
        make_repository(self._ready.url)
        one, two = Root(self._ready, home / "one"), Root(self._ready, home / "two")
        for root, name in ((one, "ones"), (two, "twos")):
            root.reconcile()
            (root.folder / name).write_bytes(os.urandom(50_000))
            root.reconcile()
        self._contents = two.contents
        assert {*self._contents} == {"ones", "twos"}
        (self._lost,) = [line["device"] for line in self._ready("devices list") if line["has_followers"]]
        self._two_keys = Repo(home / "keys")
        shutil.copytree(self._ready.folder, self._two_keys.folder)
        self._two_keys("key add", "--new-password-file", self._new)
        (self._key,) = [line["key"] for line in self._two_keys("key list") if line["used"]]
        self._count = 0

    def try_once(self, verb: str, last: int) -> bool:
        """Run a verb that dies at this change, and see what it left; whether it was killed."""
        self._count += 1
        repo = Repo(self._home / f"trial{self._count}")
        if verb != "init":
            template = self._two_keys if verb == "key remove" else self._ready
            shutil.copytree(template.folder, repo.folder)
        arguments, passphrase = self._command(verb)
        line: list[str | Path] = ["repo", *verb.split(), *arguments, repo.url]
        was_killed = mortal(line, os.environ | {"BLOCKSYNC_PASSWORD": passphrase}, last)
        see: dict[str, Callable[[Repo], None]] = {
            "key add": self._after_add,
            "key change": self._after_change,
            "key remove": self._after_remove,
            "devices forget": self._after_forget,
            "init": self._after_init,
        }
        see[verb](repo)
        shutil.rmtree(repo.folder)
        return was_killed

    def _command(self, verb: str) -> tuple[tuple[str | Path, ...], str]:
        """Arguments, and the passphrase that opens it."""
        if verb in {"key add", "key change"}:
            return ("--new-password-file", self._new), PASSPHRASE
        if verb == "key remove":
            return (self._key,), OTHER
        return (self._lost,) if verb == "devices forget" else (), PASSPHRASE

    def _again(self, repo: Repo, verb: str, expect: int = 0) -> None:
        arguments, passphrase = self._command(verb)
        repo(verb, *arguments, passphrase=passphrase, expect=expect)

    def _after_add(self, repo: Repo) -> None:
        opening = _opening(repo)
        assert PASSPHRASE in opening
        if OTHER not in opening:
            self._again(repo, "key add")
        assert _opening(repo) == {PASSPHRASE, OTHER}

    def _after_change(self, repo: Repo) -> None:
        opening = _opening(repo)
        assert opening
        if PASSPHRASE in opening:
            self._again(repo, "key change")
        assert _opening(repo) == {OTHER}

    def _after_remove(self, repo: Repo) -> None:
        opening = _opening(repo)
        assert OTHER in opening
        if PASSPHRASE in opening:
            self._again(repo, "key remove")
        assert _opening(repo) == {OTHER}

    def _after_forget(self, repo: Repo) -> None:
        is_gone = self._lost not in {line["device"] for line in repo("devices list")}
        self._again(repo, "devices forget", expect=10 if is_gone else 0)
        assert self._lost not in {line["device"] for line in repo("devices list")}
        assert _opening(repo) == {PASSPHRASE}
        new = Root(repo, self._home / f"new{self._count}")
        new.reconcile()
        assert new.contents == self._contents

    def _after_init(self, repo: Repo) -> None:
        is_made = (repo.folder / "config").exists()
        if is_made:
            repo("init", expect=2)
        else:
            repo("check", expect=10)
            repo("init", passphrase=OTHER)
        assert _opening(repo) == {PASSPHRASE if is_made else OTHER}


def _opening(repo: Repo) -> set[str]:
    """Which of the two passphrases open it; with each of them a check that reads all finds nothing."""
    found: set[str] = set()
    for secret in (PASSPHRASE, OTHER):
        try:
            checked = repo("check", "--read-data", "100%", passphrase=secret)
        except AssertionError:
            repo("check", passphrase=secret, expect=12)
            continue
        assert [line["type"] for line in checked] == ["check"], checked
        assert checked[0]["problems"] == 0
        found.add(secret)
    return found
