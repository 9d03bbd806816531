"""`blocksync repo` on a directory, with the real program, and folders that are linked to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kit import starting
from tests.kit.repositories import PASSPHRASE


def mortal(arguments: list[str | Path], environment: Mapping[str, str], last: int) -> bool:
    """Run a command line in a process that ends by SIGKILL at a change to the repository's directory; see `crooked`.

    Returns:
        Whether it was killed; else it has done its work.
    """
    command = [sys.executable, "-m", "tests.kit.crooked", f"die:{last}", "--", *arguments]
    done = subprocess.run(command, env=environment, cwd=starting.PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode in {0, -signal.SIGKILL}, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done.returncode != 0


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

    def age(self, days: float) -> None:
        """Let time pass for all that is stored: the clock of a directory is its filesystem's."""
        for path in [path for path in self.folder.rglob("*") if path.is_file()]:
            os.utime(path, ns=(0, path.stat().st_mtime_ns - int(days * 86_400 * 10**9)))

    def __call__(
        self, verb: str, *arguments: str | Path, expect: int = 0, passphrase: str = PASSPHRASE
    ) -> list[dict[str, Any]]:
        """Run a verb with `--json`; returns its lines."""
        self.told(verb, *arguments, "--json", expect=expect, passphrase=passphrase)
        return [json.loads(line) for line in self.out.splitlines()]

    def killed(self, verb: str, last: int) -> bool:
        """Run a verb that dies at this change; whether it was killed."""
        return mortal(["repo", verb, self.url], os.environ | {"BLOCKSYNC_PASSWORD": PASSPHRASE}, last)

    def told(self, verb: str, *arguments: str | Path, expect: int = 0, passphrase: str = PASSPHRASE) -> str:
        """Run a verb; returns what it printed."""
        environment = os.environ | {"BLOCKSYNC_PASSWORD": passphrase}
        done = starting.run(["repo", *verb.split(), *arguments, self.url], environment=environment)
        self.out, self.err = done.stdout, done.stderr
        assert done.returncode == expect, f"{done.returncode}: {done.stdout}{done.stderr}"
        return self.out


class Root:
    """A folder that is linked to a repository, as a machine of its own."""

    def __init__(self, repo: Repo, home: Path) -> None:
        self.folder = home / "root"
        self.folder.mkdir(parents=True)
        self._environment = os.environ | {
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "BLOCKSYNC_PASSWORD": PASSPHRASE,
        }
        self("link", self.folder, repo.url)

    def __call__(self, *arguments: str | Path) -> str:
        """Run a command that must not fail; returns what it printed."""
        done = starting.run(arguments, environment=self._environment)
        assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def repo(self, verb: str, *arguments: str | Path, expect: int = 0) -> list[dict[str, Any]]:
        """Run a verb of `repo` with `--json` here, where no passphrase is given; returns its lines."""
        environment = {name: text for name, text in self._environment.items() if not name.startswith("BLOCKSYNC_PASS")}
        done = starting.run(["repo", *verb.split(), *arguments, "--json"], environment=environment)
        assert done.returncode == expect, f"{done.returncode}: {done.stdout}{done.stderr}"
        return [json.loads(line) for line in done.stdout.splitlines()]

    def killed(self, last: int) -> bool:
        """A reconcile that dies at this change; whether it was killed."""
        return mortal(["reconcile", self.folder], self._environment, last)

    def reconcile(self, *options: str) -> None:
        self("reconcile", self.folder, *options)

    def summary(self) -> dict[str, Any]:
        """What a reconcile counts."""
        found: dict[str, Any] = json.loads(self("reconcile", self.folder, "--json", "--no-peers").splitlines()[-1])
        return found

    @property
    def contents(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}
