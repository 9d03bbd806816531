"""Ring R3: random histories on real folders and real mounts, with a real server and SIGKILL.

Two devices of one share. Users act, cycles run, one of them is killed at some fsync; then all comes to rest. A failure
names its seed, `pytest tests/integration/test_scenarios.py -k SEED`, and tells what was done and what both roots hold.
Every third history syncs extended attributes, too.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from syncer.cli.main import run
from tests.integration.syncing import Sync, content

SEEDS = 52  # on folders and on volumes: 104 scenarios
NAMES = ("a", "b", "c.x")
ROUNDS = 3
_REST = 8

KILLED = """
import os, signal, sys
from syncer.cli.main import run
left, fsync = int(sys.argv[1]), os.fsync
def killing(descriptor):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(descriptor)
os.fsync = killing
sys.exit(run(sys.argv[2:]))
"""


class Scenario:
    """One history, and the account of the versions that must not get lost."""

    def __init__(self, seed: int, sync: Sync, roots: tuple[Path, Path]) -> None:
        self.rng = random.Random(seed)
        self.sync = sync
        self.roots = roots
        self.count = 0
        self.must: set[bytes] = set()
        self.story: list[str] = []
        self.with_xattrs = seed % 3 == 0
        if self.with_xattrs:
            for root in roots:
                sync("link", root, sync.url, "--token-file", sync.token_file, "--xattrs")

    # --- users

    def act(self, root: Path) -> None:
        """One random operation; what a user replaces or deletes need not be kept."""
        paths = sorted(path for path in root.rglob("*") if ".blocksync" not in path.relative_to(root).parts)
        actions = [self.write, self.write, self.move, self.delete, self.make_folder]
        if self.with_xattrs:
            actions += [self.mark, self.mark]
        self.rng.choice(actions)(root, paths)

    def write(self, root: Path, paths: list[Path]) -> None:
        path = self.place(root, paths) if self.rng.random() < 0.5 or not paths else self.rng.choice(paths)
        if path.is_dir():
            return
        self.gave_up(path)
        self.count += 1
        version = b"version %d\n" % self.count * self.rng.choice((1, 1, 9000))
        if self.rng.random() < 0.5 or not path.exists():
            path.write_bytes(version)
        else:  # as editors do
            temporary = path.with_name("~new")
            temporary.write_bytes(version)
            temporary.rename(path)
        self.must.add(version)
        self.tell(root, f"writes version {self.count} to", path)

    def move(self, root: Path, paths: list[Path]) -> None:
        target = self.place(root, paths)
        if not paths or target.exists():
            return
        path = self.rng.choice(paths)
        if path in target.parents:
            return
        path.rename(target)
        self.tell(root, f"moves {path.relative_to(root)} to", target)

    def delete(self, root: Path, paths: list[Path]) -> None:
        if not paths:
            return
        path = self.rng.choice(paths)
        for each in (path, *path.rglob("*")):
            self.gave_up(each)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        self.tell(root, "deletes", path)

    def make_folder(self, root: Path, paths: list[Path]) -> None:
        path = self.place(root, paths)
        if not path.exists():
            path.mkdir()
            self.tell(root, "makes", path)

    def mark(self, root: Path, paths: list[Path]) -> None:
        """Set or take away an attribute. No version of a content."""
        if not paths:
            return
        path, name = self.rng.choice(paths), self.rng.choice(("user.one", "user.two"))
        if name in os.listxattr(path) and self.rng.random() < 0.4:
            os.removexattr(path, name)
            self.tell(root, f"takes {name} from", path)
        else:
            self.count += 1
            os.setxattr(path, name, b"%d" % self.count)
            self.tell(root, f"gives {name} {self.count} to", path)

    def place(self, root: Path, paths: list[Path]) -> Path:
        return self.rng.choice([root, *(path for path in paths if path.is_dir())]) / self.rng.choice(NAMES)

    def gave_up(self, path: Path) -> None:
        if path.is_file():
            self.must.discard(path.read_bytes())

    def tell(self, root: Path, did: str, path: Path) -> None:
        self.story.append(f"user of {root.name} {did} {path.relative_to(root)}")

    # --- cycles

    def cycle(self, root: Path) -> None:
        """One cycle; the safety stop is agreed to."""
        code, told = self.run("reconcile", root)
        self.story.append(f"cycle of {root.name}: {code}")
        if code == 16:
            code, told = self.run("reconcile", root, "--allow-deletes", told.split("--allow-deletes ")[1].split()[0])
        assert code in {0, 3, 4}, told

    def run(self, *arguments: str | Path) -> tuple[int, str]:
        """Exit code, and what it said."""
        self.sync.capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = self.sync.capsys.readouterr()
        return code, out + err

    def killed(self, root: Path) -> None:
        """A cycle that dies at some fsync, or had none left."""
        at = self.rng.randrange(6)
        command = [sys.executable, "-c", KILLED, str(at), "reconcile", str(root)]
        code = subprocess.run(command, capture_output=True, check=False).returncode
        self.story.append(f"cycle of {root.name}, to be killed at fsync {at}: {code}")
        assert code in {-signal.SIGKILL, 0, 3, 4, 16}

    def play(self) -> None:
        """Users and cycles, then rest."""
        for number in range(ROUNDS):
            for _ in range(self.rng.randrange(1, 5)):
                self.act(self.rng.choice(self.roots))
            root = self.rng.choice(self.roots)
            if number == 1:
                self.killed(root)
            else:
                self.cycle(root)
        for _ in range(_REST):
            for root in self.roots:
                self.cycle(root)
            if self.state(self.roots[0]) == self.state(self.roots[1]):
                break

    def state(self, root: Path) -> dict[str, tuple[bytes | str, dict[str, bytes]]]:
        """What must be equal at rest: contents, and attributes if they are synced."""
        found = {}
        for name, what in content(root).items():
            names = os.listxattr(root / name) if self.with_xattrs else []
            marks = {mark: os.getxattr(root / name, mark) for mark in names if mark.startswith("user.")}
            found[name] = (what, marks)
        return found

    def tree(self, root: Path) -> list[str]:
        """What a root holds, for people."""
        held = sorted(self.state(root).items())
        return [f"{root.name}: {name} {what[:20]!r} {marks or ''}" for name, (what, marks) in held]

    def check(self) -> None:
        """What must hold at rest: convergence, no loss, idempotence."""
        one, two = (self.state(root) for root in self.roots)
        assert one == two, "I3 convergence"
        lost = self.must - {data for data, _ in one.values() if isinstance(data, bytes)}
        assert not lost, f"I4 no loss: {[version[:12] for version in lost]}"
        self.sync.at_rest(*self.roots)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_history_comes_to_rest_and_loses_nothing(commands: Sync, roots: tuple[Path, Path], seed: int) -> None:
    scenario = Scenario(seed, commands, roots)
    try:
        scenario.play()
        scenario.check()
    except AssertionError as error:
        trees = [line for root in roots for line in scenario.tree(root)]
        raise AssertionError("\n".join((*scenario.story, *trees, str(error)))) from error


def test_there_are_scenarios_enough() -> None:
    kinds = 2  # of roots
    assert SEEDS * kinds >= 100
