"""SIGKILL of a mount under a mixed load, again and again, on one volume; after each, everything promised is checked."""

from __future__ import annotations

import hashlib
import json
import os
import random
import select
import shutil
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from blockfs.control.client import ControlClient
from tests.crash import named, paged
from tests.crash.load import NAMED
from tests.crash.log import read_log
from tests.crash.triggers import Trigger
from tests.system.machines import Machines

PROJECT = Path(__file__).parents[2]
KEPT = 2  # earlier rounds whose files must outlive further kills; then they are removed, which makes garbage
OFFLINE_EVERY = 8  # kills after which fsck and scrub run on the killed volume, before it is mounted again


@dataclass
class Tally:
    """What a number of kills has found.

    Attributes:
        kills: How many.
        moments: What was waited for → kills.
        hit: Operation that was under way in a worker → kills it was hit by.
        steps: Operations that were recorded.
        undying: Kills after which the mount had to be ended by `blocksync umount`.
        failures: What does not hold.
    """

    kills: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    hit: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    undying: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count another one's kills, too."""
        self.kills += other.kills
        self.moments += other.moments
        self.hit += other.hit
        self.steps += other.steps
        self.undying += other.undying
        self.failures += other.failures


class Victim:
    """A volume whose mount is killed: a native one is on a host with reflinks."""

    def __init__(self, home: Path, seed: int, *, is_native: bool) -> None:
        self.machines = Machines(home)
        self.machines.environment["BLOCKSYNC_NATIVE"] = "1" if is_native else "0"
        self.noise = random.Random(seed)
        self.is_native = is_native
        self.mount = self.machines.volume("victim")
        told = json.loads(self.machines.run("stats", self.mount, "--json").stdout)
        assert (told["mode"] == "native") == is_native, told
        self.volume = home / "volume-victim"
        self.logs = home / "logs"
        self.tally = Tally()
        self.earlier: deque[tuple[Path, dict[str, str]]] = deque()

    def kill_often(self, kills: int) -> Tally:
        """Kill so often, or until something is found."""
        while self.tally.kills < kills and not self.tally.failures:
            self.kill_once()
        if not self.tally.failures:
            self.end(lambda: self.machines.run("umount", self.mount, "--seal"))
            self.check_offline()
        return self.tally

    def kill_once(self) -> None:
        """Load, kill, mount again, check."""
        number = self.tally.kills
        folder = self.mount / f"round-{number}"
        folder.mkdir()
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir()
        self.load_until_killed(folder, number)
        self.tally.kills += 1
        if self.tally.kills % OFFLINE_EVERY == 0:
            self.check_offline()
        mounted = self.machines.run("mount", self.volume, self.mount, expect=None)
        if mounted.exit_code != 0:
            self.tally.failures.append(f"kill {number}: mount: {mounted.stderr}")
            return
        self.tally.failures += [f"kill {number}: {problem}" for problem in self.problems(folder, number)]
        self.remember(folder)

    def load_until_killed(self, folder: Path, number: int) -> None:
        """Run the load, and kill the mount at some moment."""
        trigger = Trigger(self.volume, self.noise, is_native=self.is_native)
        places = [self.mount, self.volume, folder, self.logs]
        command = [sys.executable, "-m", "tests.crash.load", *places, str(number), str(self.noise.getrandbits(32))]
        with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE) as load:
            assert load.stdout is not None
            assert load.stdout.readline(), "the load did not begin"
            self.tally.moments[trigger.wait()] += 1
            if not self.machines.kill_mount("victim", patience_s=10):
                self.tally.undying += 1  # blockfs/mount/abort.py: the load waits, too, until somebody ends it
                self.machines.run("umount", self.mount)
            if self.is_native:
                # What the kernel writes itself goes on without the mount, and would for ever. Those that are ended now
                # wrote to the file that the next mount finds; test_native_mount.py has some that go on beside it.
                time.sleep(self.noise.uniform(0.0, 0.3))
                load.terminate()
            load.wait()
        assert load.returncode == 0

    def close(self) -> None:
        """Unmount, if it is mounted."""
        if self.mount.is_mount():
            self.end(self.machines.close)
        else:
            self.machines.close()

    def end(self, unmount: Callable[[], object]) -> None:
        """Unmount, and wait until the process does not use the host any more."""
        process = os.pidfd_open(self.machines.mount_pid("victim"))
        try:
            unmount()
            select.select([process], [], [])
        finally:
            os.close(process)

    def check_offline(self) -> None:
        """fsck and scrub of the volume that nobody has mounted."""
        for command in ("fsck", "scrub"):
            ended = self.machines.run(command, self.volume, expect=None)
            if ended.exit_code != 0:
                self.tally.failures.append(f"{command}: exit code {ended.exit_code}: {ended.stdout} {ended.stderr}")

    def problems(self, folder: Path, number: int) -> Iterator[str]:
        """Everything that does not hold after the mount is back."""
        with ControlClient(os.fsencode(self.volume)) as client:
            yield from (f"fsck: {finding}" for finding in client.fsck().findings)
            scrubbed = client.scrub()
            if scrubbed.corrupt:
                yield f"scrub: {scrubbed}"
        yield from self.problems_of_round(folder, number)
        for old, contents in self.earlier:
            if (found := digests(old)) != contents:
                changed = {path for path in found.keys() | contents.keys() if found.get(path) != contents.get(path)}
                yield f"{old.name} is not as it was before this kill: {sorted(changed)[:5]}"

    def problems_of_round(self, folder: Path, number: int) -> Iterator[str]:
        """What does not hold in the files that the load has worked on."""
        places = [*paged.MANNERS, *range(NAMED), "operator"]
        for place, who in enumerate(places):
            record = read_log(self.logs / str(place))
            self.tally.steps += len(record.steps)
            if record.unfinished == "unexpected":
                yield f"{who}: {record.steps[-1]}"
            elif record.unfinished is not None:
                self.tally.hit[record.unfinished] += 1
            if who in paged.MANNERS:
                yield from paged.problems(str(who), number * 100 + place, record, folder)
            elif isinstance(who, int):
                yield from named.problems(who, record, folder)

    def remember(self, folder: Path) -> None:
        """From now on these files must stay as they are; old ones go."""
        if not folder.is_dir():
            return  # killed before the first commit: nobody had fsynced its name, nor anything in it
        self.earlier.append((folder, digests(folder)))
        if len(self.earlier) > KEPT:
            shutil.rmtree(self.earlier.popleft()[0])


def digests(folder: Path) -> dict[str, str]:
    """What is below a folder: path → mode, attribute, hash of the content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        entry = named.find(path)
        found[str(path.relative_to(folder))] = (
            f"{entry.kind} {entry.mode:o} {entry.tag} {hashlib.sha256(entry.data).hexdigest()}"
        )
    return found


def kill_often(home: Path, seed: int, kills: int, *, is_native: bool) -> Tally:
    """Kill the mount of a new volume below `home` so often, or until something is found."""
    victim = Victim(home, seed, is_native=is_native)
    try:
        return victim.kill_often(kills)
    finally:
        victim.close()
