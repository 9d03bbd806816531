"""200 MiB new, unchanged, and with one block changed: until the other place has it. Ours beside other programs.

Each program does it in its own way: through a server (blocksync, rsync's daemon), between devices (Syncthing), from
folder to folder (rclone, unison), into a repository (restic, borg). All on one machine, in turns. S3QL, which brings
nothing to another place, has a benchmark of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from benchmarks import syncthing
from benchmarks.bench_sync import BLOCKSYNC, change_page, rsync_daemon, serve, transfer, write
from benchmarks.bench_transfers import REPETITIONS
from benchmarks.harness import Result, seconds

SIZE: Final = 200 << 20
STEPS: Final = ("200 MiB, new", "unchanged", "one block changed")
Bring = Callable[[], object]
"""Makes the other place as `first` is."""


def run() -> list[Result]:
    """All steps with all programs, each repetition from nothing."""
    rows = {(step, name): Result(work=step, subject=name, unit="s", values=[]) for step in STEPS for name in PROGRAMS}
    for repetition in range(REPETITIONS):
        data = os.urandom(SIZE)
        for name, program in PROGRAMS.items():
            with tempfile.TemporaryDirectory(prefix="blocksync-tools-") as folder:
                home = Path(folder)
                with program(home) as bring:
                    write(home / "first/image", data)
                    rows[STEPS[0], name].values.append(seconds(bring))
                    rows[STEPS[1], name].values.append(seconds(bring))
                    change_page(home / "first/image")
                    rows[STEPS[2], name].values.append(seconds(bring))
        print(f"sync-tools: repetition {repetition + 1} of {REPETITIONS}", file=sys.stderr)
    return list(rows.values())


@contextmanager
def _blocksync(home: Path) -> Iterator[Bring]:
    """Up from a folder, and down into another one: two commands."""
    environment = {**os.environ, "XDG_STATE_HOME": str(home / "state"), "XDG_DATA_HOME": str(home / "data")}

    def run(*command: str | Path) -> None:
        subprocess.run([BLOCKSYNC, *command], env=environment, check=True, capture_output=True)

    with serve(home / "server", environment) as url:
        for name in ("first", "second"):
            (home / name).mkdir()
            run("link", home / name, url, "--token-file", home / "server/token")

        def bring() -> None:
            run("reconcile", home / "first")
            run("reconcile", home / "second")

        yield bring


@contextmanager
def _rsync(home: Path) -> Iterator[Bring]:
    """To its daemon, contents durable at the end."""
    for name in ("first", "second"):
        (home / name).mkdir()
    with rsync_daemon(home, home / "second") as url:
        yield lambda: transfer(f"{home}/first/", url)


@contextmanager
def _syncthing(home: Path) -> Iterator[Bring]:
    with syncthing.pair(home) as (first, second):
        yield lambda: syncthing.bring(first, second, "image")


def _command(*command: str, first: tuple[str, ...] = ()) -> Callable[[Path], AbstractContextManager[Bring]]:
    """One command from a folder to another place.

    Args:
        command: With `{home}` for where `first`, `second` and `repo` are.
        first: What makes a repository.
    """

    @contextmanager
    def program(home: Path) -> Iterator[Bring]:
        for name in ("first", "second"):
            (home / name).mkdir()
        environment = {**os.environ, "HOME": str(home), "RESTIC_PASSWORD": "x", "UNISON": f"{home}/.unison"}
        environment["BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK"] = "yes"
        number = 0

        def run(parts: tuple[str, ...]) -> None:
            nonlocal number
            number += 1
            filled = [part.format(home=home, number=number) for part in parts]
            subprocess.run(filled, env=environment, check=True, capture_output=True)

        if first:
            run(first)
        yield lambda: run(command)

    return program


PROGRAMS: Final[dict[str, Callable[[Path], AbstractContextManager[Bring]]]] = {
    "blocksync, folders": _blocksync,
    "syncthing": _syncthing,
    "rsync daemon": _rsync,
    "rclone, local": _command("rclone", "copy", "{home}/first", "{home}/second"),
    "unison, local": _command("unison", "-batch", "-silent", "{home}/first", "{home}/second"),
    "restic, local": _command(
        "restic", "--no-cache", "-q", "-r", "{home}/repo", "backup", "{home}/first",
        first=("restic", "-q", "-r", "{home}/repo", "init"),
    ),
    "borg, local": _command(
        "borg", "create", "{home}/repo::{number}", "{home}/first", first=("borg", "init", "-e", "none", "{home}/repo")
    ),
}  # fmt: skip
