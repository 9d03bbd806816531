"""Six devices on one share: real folders, a real server, users who edit at random, kills, skewed clocks, restarts.

Everything runs in processes forked from one that has no threads: `python -m tests.devices PLACE SECONDS SEED`. What
users wrote is remembered; a version leaves the books only when a user replaced or deleted it in a folder that held it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from syncer.cli import main
from syncer.cli.verbs import reconcile
from syncer.core.planner.merge import Policy
from syncer.local.syscalls import rename_exchange, rename_noreplace
from tests.devices.places import PLACES, SharedPlace

DEVICES: Final = 6
_WIDE: Final = "\N{GRINNING FACE}" * 63 + "abc"  # 255 bytes
_NAMES: Final = ("a", "b", "c.txt", "d", "d/e", "d/f", "g/h", _WIDE, f"d/{_WIDE}")
_SKEWS: Final = (0, 0, 3600, -3600, 86400 * 400, -86400 * 4000)  # seconds
_ROUNDS: Final = 40
_TICK_S: Final = 0.02


class LostError(AssertionError):
    """A version is nowhere, or the devices differ."""


@dataclass
class Device:
    """One folder with its state, and the reconcile that runs on it."""

    name: str
    home: Path
    skew_s: int
    place: SharedPlace
    child: int = 0
    consent: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.home / "root"

    @property
    def output(self) -> Path:
        return self.home / "output"

    def run(self, arguments: list[str]) -> int:
        """Fork a process for one command; returns its pid."""
        pid = os.fork()
        if pid:
            return pid
        code = 70
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            os.environ.update(XDG_STATE_HOME=str(self.home / "state"), XDG_DATA_HOME=str(self.home / "data"))
            out = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(out, 1)
            os.dup2(out, 2)
            reconcile.policy_now = self._policy
            self.place.skew(self.skew_s)
            code = main.run(arguments)
            sys.stdout.flush()
        finally:
            os._exit(code)

    def _policy(self) -> Policy:
        """A device whose clock is wrong."""
        now = datetime.now(UTC) + timedelta(seconds=self.skew_s)
        return Policy(host=self.name, utc=now.strftime("%Y%m%dT%H%M%SZ"))

    def start(self) -> None:
        """Begin a cycle."""
        self.child = self.run(["reconcile", str(self.root), "--json", *self.consent])
        self.consent = []

    def ended(self, code: int) -> None:
        """Note how it went: a guard that stopped is agreed with, as these users mean what they do."""
        self.child = 0
        if code == 16:
            words = self.output.read_text().split()
            self.consent = ["--allow-deletes", words[words.index("--allow-deletes") + 1].strip('."}')]

    def files(self) -> dict[str, bytes]:
        """Everything visible."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file() and ".blocksync" not in path.parts
        }

    def folders(self) -> dict[str, int]:
        """Their modes."""
        found = [path for path in self.root.rglob("*") if path.is_dir() and ".blocksync" not in path.parts]
        return {str(path.relative_to(self.root)): path.stat().st_mode for path in found}

    def trash(self) -> set[bytes]:
        """Contents in the trash."""
        folder = self.root / ".blocksync/trash"
        return {path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}


class Share:
    """The whole set-up."""

    def __init__(self, home: Path, place: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.place: SharedPlace = PLACES[place](home)
        self.devices = [
            Device(f"device{number}", home / str(number), skew, self.place) for number, skew in enumerate(_SKEWS)
        ]
        self.must: set[bytes] = set()
        self.counts = dict.fromkeys(("written", "cycles", "kills", "restarts", "conflict_copies"), 0)

    def close(self) -> None:
        """End what was started."""
        for device in self.devices:
            if device.child:
                os.kill(device.child, signal.SIGKILL)
                os.waitpid(device.child, 0)
        self.place.close()

    # --- users

    def act(self, device: Device) -> None:
        """One user does something, whatever the engine is doing."""
        path = device.root / self.rng.choice(_NAMES)
        choice = self.rng.random()
        try:
            if choice < 0.35:
                self._rewrite(path)
            elif choice < 0.6:
                self._replace(device, path)
            elif choice < 0.75:
                target = device.root / self.rng.choice(_NAMES).replace("/", "-")[-66:]
                rename_noreplace(os.fsencode(path), -100, os.fsencode(target), -100)
            elif choice < 0.82:
                self._swap(device, path)
            elif choice < 0.86 and path.is_dir():
                path.chmod(self.rng.choice((0o700, 0o711, 0o750)))
            else:
                self._delete(device, path)
        except OSError:
            return  # the folder is not as this user thought: nothing happened

    def _content(self) -> bytes:
        self.counts["written"] += 1
        return b"version %d of %d\n" % (self.counts["written"], self.seed)

    def _rewrite(self, path: Path) -> None:
        """In place, through one descriptor: what it held is what is replaced."""
        path.parent.mkdir(parents=True, exist_ok=True)
        new = self._content()
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
            old = file.read()
            file.seek(0)
            file.write(new)
            file.truncate()
        self.must.discard(old)
        self.must.add(new)

    def _replace(self, device: Device, path: Path) -> None:
        """By another file, as editors do; an exchange tells what really was replaced."""
        path.parent.mkdir(parents=True, exist_ok=True)
        aside, new = device.home / "aside", self._content()
        aside.write_bytes(new)
        if not path.exists():
            os.link(aside, path)  # fails if somebody was quicker
            aside.unlink()
        else:
            rename_exchange(os.fsencode(aside), -100, os.fsencode(path), -100)
            if aside.is_dir():  # not what this user meant
                rename_exchange(os.fsencode(aside), -100, os.fsencode(path), -100)
                return
            self.must.discard(aside.read_bytes())
            aside.unlink()
        self.must.add(new)

    def _swap(self, device: Device, path: Path) -> None:
        """A folder becomes a file, and a file a folder with something in it, whatever others are doing there."""
        was_folder = path.is_dir()
        self._delete(device, path)
        self._rewrite(path if was_folder else path / self.rng.choice(("e", _WIDE)))

    def _delete(self, device: Device, path: Path) -> None:
        aside = device.home / "deleted"
        path.rename(aside)
        gone = [aside] if aside.is_file() else [each for each in aside.rglob("*") if each.is_file()]
        self.must -= {each.read_bytes() for each in gone}
        for each in sorted([aside, *aside.rglob("*")] if aside.is_dir() else [aside], reverse=True):
            each.rmdir() if each.is_dir() else each.unlink()

    # --- time

    def prepare(self) -> None:
        """Link all."""
        for device in self.devices:
            device.root.mkdir(parents=True)
            pid = device.run(["link", str(device.root), self.place.url, *self.place.link])
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, device.output.read_text()

    def trouble(self, seconds: float) -> None:
        """Users, cycles, kills and restarts at random, for so long, and until a cycle was killed: machines are busy."""
        end = time.monotonic() + seconds
        while time.monotonic() < end or not self.counts["kills"]:
            signal.sigtimedwait({signal.SIGCHLD}, _TICK_S)
            device = self.rng.choice(self.devices)
            if self.rng.random() < 0.5:
                self.act(device)
            if device.child:
                if self.rng.random() < 0.02:
                    os.kill(device.child, signal.SIGKILL)
                    self.counts["kills"] += 1
            elif sum(bool(each.child) for each in self.devices) < 3:
                device.start()
                self.counts["cycles"] += 1
            if self.rng.random() < 0.002:
                self.place.restart()
                self.counts["restarts"] += 1
            for each in self.devices:
                self._reap(each, os.WNOHANG)

    def _reap(self, device: Device, options: int = 0) -> int | None:
        if not device.child:
            return None
        pid, status = os.waitpid(device.child, options)
        if not pid:
            return None
        code = os.waitstatus_to_exitcode(status)
        device.ended(code)
        return code

    def settle(self) -> None:
        """Nobody acts any more: cycles until none of a whole round does anything.

        Raises:
            LostError: It does not come to rest, or the devices differ, or a version is nowhere.
        """
        for device in self.devices:
            self._reap(device)
        for _ in range(_ROUNDS):
            busy = False
            self.place.settle()
            for device in self.devices:
                device.start()
                code = self._reap(device)
                lines = [json.loads(line) for line in device.output.read_text().splitlines() if line.startswith("{")]
                busy = busy or code != 0 or any(line["type"] == "action" for line in lines)
            if not busy:
                break
        else:
            raise LostError(f"still busy: {self.devices[0].output.read_text()[-2000:]}")
        self._check()

    def _check(self) -> None:
        first = self.devices[0].files()
        for device in self.devices[1:]:
            if device.files() != first:
                raise LostError(f"{device.name} differs: {sorted(device.files().items() ^ first.items())}")
            if device.folders() != self.devices[0].folders():
                different = sorted(device.folders().items() ^ self.devices[0].folders().items())
                raise LostError(f"{device.name} has other folders: {different}")
        different = self.place.differs(first)
        if different:
            raise LostError(f"a new device would get something else at {sorted(different)}")
        self.counts["conflict_copies"] = sum("(conflict " in name for name in first)
        found = set(first.values()).union(*(device.trash() for device in self.devices))
        nowhere = self.place.lacks(self.must - found)
        if nowhere:
            raise LostError(f"nowhere: {sorted(nowhere)}")
