"""Ring R3's histories: what users and devices do on real roots, step by step, and what must hold in the end.

A history is made up as it goes, by a seed. What was done is kept as steps that can be done again without it, also a
part of them: a step whose file is gone, or whose place is taken by then, does nothing. So a failure gets shorter.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec

from syncer.cli.main import run
from tests.integration.syncing import Sync, content
from tests.simulation.invariants import ViolationError, require

NAMES = ("a", "b", "c.x")
ROUNDS = 3
TRIES = 40  # of a failing history, one to three seconds each
_REST = 8
_SHOWN = 20  # bytes of a content

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

Roots: TypeAlias = tuple[Path, Path]
Anew: TypeAlias = Callable[[], AbstractContextManager[tuple[Sync, Roots]]]
"""Two empty roots of one new container each time."""

_Item = TypeVar("_Item")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a user or a device does.

    Attributes:
        device: Which root, 0 or 1.
        does: write, replace, move, delete, make, give, take; cycle, killed.
        path: Of what, within the root.
        more: Where to it moves; which attribute.
        value: A file's content, an attribute's value.
        at: The fsync that a cycle does not survive.
    """

    device: int
    does: str
    path: str = ""
    more: str = ""
    value: bytes = b""
    at: int = 0

    def __str__(self) -> str:
        who = ("first", "second")[self.device]
        if self.does == "cycle":
            return f"cycle of {who}"
        if self.does == "killed":
            return f"cycle of {who}, to be killed at fsync {self.at}"
        value = f" {self.value[:_SHOWN]!r}" if self.value else ""
        return f"user of {who}: {self.does} {self.path} {self.more}{value}"


class History:
    """One history, and the account of the versions that must not get lost.

    Attributes:
        steps: What was done, in order.
    """

    def __init__(self, seed: int, sync: Sync, roots: Roots) -> None:
        """Take two linked roots. Every third seed syncs extended attributes, too."""
        self.rng = random.Random(seed)
        self.sync = sync
        self.roots = roots
        self.count = 0
        self.must: set[bytes] = set()
        self.steps: list[Step] = []
        self.with_xattrs = seed % 3 == 0
        if self.with_xattrs:
            for root in roots:
                sync("link", root, sync.url, sync.opens, sync.token_file, "--xattrs")

    # --- what to do

    def play(self) -> None:
        """Users and cycles at random."""
        for number in range(ROUNDS):
            for _ in range(self.rng.randrange(1, 5)):
                step = self._invent(self.rng.randrange(len(self.roots)))
                if step is not None:
                    self.do(step)
            device = self.rng.randrange(len(self.roots))
            if number == 1:
                self.do(Step(device=device, does="killed", at=self.rng.randrange(6)))
            else:
                self.do(Step(device=device, does="cycle"))

    def _invent(self, device: int) -> Step | None:
        """A random step of a user; None if it is not possible."""
        root = self.roots[device]
        paths = sorted(path for path in root.rglob("*") if ".blocksync" not in path.relative_to(root).parts)
        does = self.rng.choice(["write", "write", "move", "delete", "make", *(["mark"] * 2 * self.with_xattrs)])
        place = self.rng.choice([root, *(path for path in paths if path.is_dir())]) / self.rng.choice(NAMES)
        if does == "make":
            return Step(device=device, does=does, path=str(place.relative_to(root)))
        if does == "write" and (not paths or self.rng.random() < 0.5):
            return self._version(device, place)
        if not paths:
            return None
        path = self.rng.choice(paths)
        if does == "write":
            return self._version(device, path)
        name = str(path.relative_to(root))
        if does == "mark":
            return self._mark(device, path)
        return Step(device=device, does=does, path=name, more=str(place.relative_to(root)) if does == "move" else "")

    def _version(self, device: int, path: Path) -> Step:
        self.count += 1
        version = b"version %d\n" % self.count * self.rng.choice((1, 1, 9000))
        does = "write" if self.rng.random() < 0.5 else "replace"
        return Step(device=device, does=does, path=str(path.relative_to(self.roots[device])), value=version)

    def _mark(self, device: int, path: Path) -> Step:
        """Set or take away an attribute. No version of a content."""
        name, more = str(path.relative_to(self.roots[device])), self.rng.choice(("user.one", "user.two"))
        if more in os.listxattr(path) and self.rng.random() < 0.4:
            return Step(device=device, does="take", path=name, more=more)
        self.count += 1
        return Step(device=device, does="give", path=name, more=more, value=b"%d" % self.count)

    # --- doing it

    def repeat(self, steps: Iterable[Step]) -> None:
        """What another history did, or a part of it."""
        for step in steps:
            self.do(step)

    def do(self, step: Step) -> None:
        """Do it, if it can be done, and keep it then."""
        root = self.roots[step.device]
        if step.does == "cycle":
            self.steps.append(step)
            self.cycle(root)
        elif step.does == "killed":
            self.steps.append(step)
            self._killed(root, step.at)
        elif self._act(step, root / step.path, root):
            self.steps.append(step)

    def _act(self, step: Step, path: Path, root: Path) -> bool:
        if step.does in ("write", "replace"):
            return self._write(step, path)
        if step.does == "make":
            return _make(path)
        if step.does == "move":
            return _move(path, root / step.more)
        return path.exists() and self._change(step, path)

    def _change(self, step: Step, path: Path) -> bool:
        if step.does == "take" and step.more not in os.listxattr(path):
            return False
        if step.does == "delete":
            self._delete(path)
        elif step.does == "give":
            os.setxattr(path, step.more, step.value)
        else:
            os.removexattr(path, step.more)
        return True

    def _write(self, step: Step, path: Path) -> bool:
        if path.is_dir() or not path.parent.is_dir():
            return False
        self._gave_up(path)
        if step.does == "write" or not path.exists():
            path.write_bytes(step.value)
        else:  # as editors do
            temporary = path.with_name("~new")
            temporary.write_bytes(step.value)
            temporary.rename(path)
        self.must.add(step.value)
        return True

    def _delete(self, path: Path) -> None:
        for each in (path, *path.rglob("*")):
            self._gave_up(each)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()

    def _gave_up(self, path: Path) -> None:
        """What a user replaces or deletes need not be kept."""
        if path.is_file():
            self.must.discard(path.read_bytes())

    # --- cycles

    def cycle(self, root: Path) -> None:
        """One cycle; the safety stop is agreed to."""
        code, told = self._run("reconcile", root)
        if code == 16:
            code, told = self._run("reconcile", root, "--allow-deletes", told.split("--allow-deletes ")[1].split()[0])
        if code not in {0, 3, 4}:
            raise ViolationError(f"I2 termination: a cycle of {root.name} ended with {code}\n{told}")

    def _run(self, *arguments: str | Path) -> tuple[int, str]:
        """Exit code, and what it said."""
        self.sync.capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = self.sync.capsys.readouterr()
        return code, out + err

    def _killed(self, root: Path, at: int) -> None:
        """A cycle that dies at some fsync, or had none left."""
        command = [sys.executable, "-c", KILLED, str(at), "reconcile", str(root)]
        code = subprocess.run(command, capture_output=True, check=False).returncode
        require(code in {-signal.SIGKILL, 0, 3, 4, 16}, f"I8 crash: a cycle to be killed ended with {code}")

    # --- at rest

    def check(self) -> None:
        """Let it come to rest; what must hold then: convergence, no loss, idempotence."""
        for _ in range(_REST):
            for root in self.roots:
                self.cycle(root)
            if self.state(self.roots[0]) == self.state(self.roots[1]):
                break
        one, two = (self.state(root) for root in self.roots)
        differing = sorted(name for name in one.keys() | two.keys() if one.get(name) != two.get(name))
        require(not differing, f"I3 convergence: {differing} differ")
        lost = self.must - {data for data, _ in one.values() if isinstance(data, bytes)}
        require(not lost, f"I4 no loss: {[version[:_SHOWN] for version in sorted(lost)]}")
        try:
            self.sync.at_rest(*self.roots)
        except AssertionError as error:
            raise ViolationError(f"I6 idempotence: a cycle at rest did something\n{error}") from error

    def state(self, root: Path) -> dict[str, tuple[bytes | str, dict[str, bytes]]]:
        """What must be equal at rest: contents, and attributes if they are synced."""
        found = {}
        for name, what in content(root).items():
            names = os.listxattr(root / name) if self.with_xattrs else []
            marks = {mark: os.getxattr(root / name, mark) for mark in names if mark.startswith("user.")}
            found[name] = (what, marks)
        return found

    def trees(self) -> list[str]:
        """What the roots hold, for people."""
        lines = []
        for root in self.roots:
            held = sorted(self.state(root).items())
            lines += [f"{root.name}: {name} {what[:_SHOWN]!r} {marks or ''}".rstrip() for name, (what, marks) in held]
            lines += [] if held else [f"{root.name}: nothing"]
        return lines


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A history that violates an invariant.

    Attributes:
        text: Which one, and how. Its first words name the invariant.
        steps: What was done.
        trees: What the roots held.
    """

    text: str
    steps: list[Step]
    trees: list[str]

    @property
    def kind(self) -> str:
        """Which invariant."""
        return self.text.partition(":")[0]

    def lines(self) -> list[str]:
        """For people."""
        return [*map(str, self.steps), *self.trees, self.text]


def failure_of(seed: int, anew: Anew, steps: Sequence[Step] | None = None) -> Failure | None:
    """Run the history of a seed, or these steps of it, on new roots; what it violates, or None."""
    with anew() as (sync, roots):
        history = History(seed, sync, roots)
        try:
            if steps is None:
                history.play()
            else:
                history.repeat(steps)
            history.check()
        except ViolationError as error:
            return Failure(text=str(error), steps=history.steps, trees=history.trees())
    return None


def shrink(seed: int, anew: Anew, found: Failure, tries: int = TRIES) -> Failure | None:
    """The shortest part of a history that was found to violate the same; None if it does not do so again."""
    smallest: Failure | None = None

    def fails(steps: Sequence[Step]) -> bool:
        nonlocal smallest
        failure = failure_of(seed, anew, steps)
        if failure is None or failure.kind != found.kind:
            return False
        smallest = failure
        return True

    if fails(found.steps):
        shortened(found.steps, fails, tries - 1)
    return smallest


def shortened(items: Sequence[_Item], fails: Callable[[Sequence[_Item]], bool], tries: int) -> Sequence[_Item]:
    """Leave out halves, quarters, … and single items of what fails, as long as the rest still fails.

    Args:
        items: A failing sequence.
        fails: Whether a part of it does.
        tries: How often to ask at most.
    """
    size = len(items) // 2
    while size:
        before, at = len(items), 0
        while at < len(items) and tries:
            rest = [*items[:at], *items[at + size :]]
            tries -= 1
            if fails(rest):
                items = rest
            else:
                at += size
        if size > 1 or len(items) == before:  # with single ones until none can be left out
            size //= 2
    return items


def report(name: str, seed: int, found: Failure, smallest: Failure | None) -> str:
    """What a failing test says.

    Args:
        name: Of the test, as pytest takes it.
        seed: Of the history.
        found: How it failed.
        smallest: What it was shrunk to.
    """
    shrunk = ["", "When its steps were repeated, it did not fail again."]
    if smallest is not None:
        shrunk = ["", f"Shrunk to {len(smallest.steps)} of {len(found.steps)} steps:", *smallest.lines()]
    return "\n".join((f"seed {seed}, again by: pytest '{name}'", *found.lines(), *shrunk))


def _make(path: Path) -> bool:
    if path.exists() or not path.parent.is_dir():
        return False
    path.mkdir()
    return True


def _move(path: Path, target: Path) -> bool:
    if not path.exists() or target.exists() or not target.parent.is_dir() or path in target.parents:
        return False
    path.rename(target)
    return True
