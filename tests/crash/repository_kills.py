"""SIGKILL of the real program while it pushes to a repository, collects and repacks: nothing committed is lost.

After each death the repository is checked to the last byte. At the end a new device restores the share.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import msgspec

from tests.kit.repos import Repo, Root
from tests.kit.repositories import make_repository

VERBS = ("push", "gc", "repack")
_FIRST_BOUND = 60  # changes; a run makes a few dozen


class Tally(msgspec.Struct, kw_only=True):
    """What was done.

    Attributes:
        kills: By verb.
        ends: Runs that made fewer changes than the one at which they were to die.
    """

    kills: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(VERBS, 0))
    ends: int = 0


def kill_often(home: Path, seed: int, kills: int) -> Tally:
    """Kill each verb so often.

    Args:
        home: An empty folder.
        seed: Of what happens.
        kills: Of each verb.

    Raises:
        AssertionError: A check found something, or the share is not what it was.
    """
    random, tally = Random(seed), Tally()
    repo = Repo(home / "repo")
    make_repository(repo.url)
    root = Root(repo, home / "one")
    contents: dict[str, bytes] = {}
    bounds = dict.fromkeys(VERBS, _FIRST_BOUND)
    while min(tally.kills.values()) < kills:
        _change(root, contents, random)
        for verb in VERBS:
            if tally.kills[verb] < kills:
                last = random.randrange(1, bounds[verb] + 1)
                if verb != "push":
                    repo.age(random.choice([3, 40]))
                if root.killed(last) if verb == "push" else repo.killed(verb, last):
                    tally.kills[verb] += 1
                else:
                    tally.ends += 1
                    bounds[verb] = max(8, last)
                _check(repo, f"{verb} killed at change {last}, seed {seed}, {tally}")
            if verb == "push":
                root.reconcile()  # whatever the death left is no obstacle
    assert root.contents == contents
    new = Root(repo, home / "new")
    new.reconcile()
    assert new.contents == contents
    return tally


def _change(root: Root, contents: dict[str, bytes], random: Random) -> None:
    """Some files are new or other ones, some go: never so many that somebody would have to agree."""
    for number in random.sample(range(12), 5):
        data = os.urandom(random.choice([100, 40_000, 200_000]))
        (root.folder / f"file{number}").write_bytes(data)
        contents[f"file{number}"] = data
    if len(contents) > 8:
        name = random.choice(sorted(contents))
        (root.folder / name).unlink()
        del contents[name]


def _check(repo: Repo, when: str) -> None:
    *findings, checked = repo("check", "--read-data", "100%")
    assert not findings, (when, findings)
    assert checked["problems"] == 0, when
