"""A repository on a store, and its devices, each command in a process of its own; other tools on the same data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.bench_filesystem import BLOCKSYNC

RESTIC, BORG, RCLONE = "restic", "borg", "rclone"
OURS: Final = "blocksync"
PASSPHRASE: Final = "correct horse battery staple"


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What a cycle took.

    Attributes:
        seconds: Of the whole command, its start included.
        figures: Its summary.
        anonymous_bytes: RssAnon, the most that was seen.
    """

    seconds: float
    figures: Mapping[str, float]
    anonymous_bytes: float = 0


class Share:
    """A repository, and what its devices keep.

    Attributes:
        home: Below it everything lies.
        url: Of the store.
    """

    def __init__(self, home: Path, url: str | None = None, environment: Mapping[str, str] | None = None) -> None:
        """Make the repository, if it is not there from an earlier run.

        Args:
            home: A directory; made if need be.
            url: Of a store; None: a directory in `home`.
            environment: For the store's credentials.
        """
        self.home = home
        self.url = f"file://{home}/store" if url is None else url
        places = {"XDG_STATE_HOME": str(home / "state"), "XDG_DATA_HOME": str(home / "data")}
        self._environment = {**os.environ, **places, **(environment or {})}
        self._password = home / "password"
        if not self._password.exists():
            home.mkdir(parents=True, exist_ok=True)
            self._password.write_text(PASSPHRASE)
            self._password.chmod(0o600)
            run(BLOCKSYNC, "repo", "init", self.url, *self._with_password, environment=self._environment)

    @property
    def stored_bytes(self) -> int:
        """What the store has, as its files say; directories only."""
        return size_of(self.home / "store")

    def link(self, root: Path) -> None:
        """Make a folder, or a mounted volume, a device."""
        run(BLOCKSYNC, "link", root, self.url, *self._with_password, environment=self._environment)

    def unlink(self, root: Path) -> None:
        """Reverse of `link`."""
        run(BLOCKSYNC, "unlink", root, environment=self._environment)

    def reconcile(self, root: Path) -> Done:
        """A cycle of a linked root."""
        command = [str(BLOCKSYNC), "reconcile", str(root), "--json", "--no-peers"]
        began, most = time.perf_counter(), 0.0
        with tempfile.TemporaryFile("w+") as out:
            process = subprocess.Popen(command, env=self._environment, stdout=out)
            while process.poll() is None:
                most = max(most, anonymous_bytes(process.pid))
                time.sleep(0.02)
            took = time.perf_counter() - began
            assert process.returncode == 0, process.returncode
            out.seek(0)
            summary = json.loads(out.read().splitlines()[-1])
        return Done(seconds=took, figures=summary, anonymous_bytes=most)

    def pull(self, root: Path, device: str) -> Done:
        """A cycle of a root by `child`: which bytes came of packs is told, too. Its seconds are not the command's."""
        began = time.perf_counter()
        out = self._child("cycle", root, self.home / device)
        return Done(seconds=time.perf_counter() - began, figures=json.loads(out))

    def generations(self, folder: Path, count: int) -> None:
        """As many commits by one process; see `child.generations`."""
        self._child("generations", folder, str(count))

    def chunks(self) -> dict[str, int]:
        """Chunks that the newest commit needs, and how long each is in its pack."""
        found: dict[str, int] = json.loads(self._child("chunks"))
        return found

    @property
    def _with_password(self) -> tuple[str, Path]:
        return "--password-file", self._password

    def _child(self, what: str, *words: str | Path) -> str:
        command = [sys.executable, "-m", "benchmarks.repository.child", what, self.url, self._password, *words]
        done = subprocess.run([*map(str, command)], env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout


def anonymous_bytes(pid: int) -> float:
    """RssAnon of a process now; 0 when it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024.0
    return 0.0


def size_of(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(folder) for name in names)


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """Another tool with a repository of its own.

    Attributes:
        init: Makes it in a directory.
        save: Brings a folder into it.
        restore: Brings the newest state of it into an empty folder.
    """

    init: Callable[[Path], None]
    save: Callable[[Path, Path, str], None]
    restore: Callable[[Path, Path, Path], None]


def _restic(home: Path) -> dict[str, str]:
    return {"RESTIC_REPOSITORY": str(home / "restic"), "RESTIC_PASSWORD": "x", "HOME": str(home)}


def _borg(home: Path) -> dict[str, str]:
    return {"BORG_BASE_DIR": str(home), "BORG_PASSPHRASE": "x", "BORG_REPO": str(home / "borg")}


def _rclone(home: Path) -> dict[str, str]:
    # A crypt remote on a directory; both passwords are "x", as rclone obscures it.
    secret = subprocess.run(["rclone", "obscure", "x"], capture_output=True, text=True, check=True).stdout.strip()
    return {
        "RCLONE_CONFIG": "/dev/null",
        "RCLONE_CONFIG_SAFE_TYPE": "crypt",
        "RCLONE_CONFIG_SAFE_REMOTE": str(home / "rclone"),
        "RCLONE_CONFIG_SAFE_PASSWORD": secret,
    }


TOOLS: Final[dict[str, Tool]] = {
    RESTIC: Tool(
        init=lambda home: run("restic", "init", "--repository-version=2", environment=_restic(home)),
        save=lambda home, folder, _: run("restic", "backup", ".", cwd=folder, environment=_restic(home)),
        restore=lambda home, _, to: run("restic", "restore", "latest", "--target", to, environment=_restic(home)),
    ),
    BORG: Tool(
        init=lambda home: run("borg", "init", "--encryption=repokey", environment=_borg(home)),
        save=lambda home, folder, name: run(
            "borg", "create", "--compression=zstd,3", f"::{name}", ".", cwd=folder, environment=_borg(home)
        ),
        restore=lambda home, _, to: run("borg", "extract", "--sparse", "::first", cwd=to, environment=_borg(home)),
    ),
    RCLONE: Tool(
        init=lambda home: (home / "rclone").mkdir(),
        save=lambda home, folder, _: run("rclone", "sync", folder, "safe:", environment=_rclone(home)),
        restore=lambda home, _, to: run("rclone", "sync", "safe:", to, environment=_rclone(home)),
    ),
}


def run(*command: str | Path, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
    """A command that must not fail."""
    full = {**os.environ, **(environment or {})}
    done = subprocess.run([*map(str, command)], env=full, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr[-2000:])


def seconds(action: Callable[[], object]) -> float:
    """Wall-clock time of one call, what it wrote durable at its end."""
    began = time.perf_counter()
    action()
    os.sync()
    return time.perf_counter() - began


@contextmanager
def warm(folder: Path) -> Iterator[None]:
    """Have the files of a folder in the machine's memory, and nothing left to be written."""
    for at, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(at, name), "rb") as file:
                while file.read(8 << 20):
                    pass
    os.sync()
    yield
