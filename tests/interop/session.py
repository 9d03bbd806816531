"""A real `blocksync serve` and what the checks need around it: accounts, folders, and what the server was asked."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final, Self

from tests.interop.clients import Program

BLOCKSYNC: Final = str(Path(sys.executable).with_name("blocksync"))
BLOCK: Final = 64 * 1024
TOKENS: Final = {"alice": "interop-token-alice", "bob": "interop-token-bob"}
_TIMEOUT_S: Final = 300


class CommandError(Exception):
    """A command of a client failed."""


class Session:
    """A server with two accounts, ended when the block is left.

    Attributes:
        url: `http://HOST:PORT`.
        folder: For files; removed by whoever made it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tokens = folder / "tokens"
        tokens.write_text("".join(f"{token} {account}\n" for account, token in TOKENS.items()))
        tokens.chmod(0o600)
        command = [BLOCKSYNC, "serve", str(folder / "served"), "--listen", "127.0.0.1:0", "--token-file", str(tokens)]
        self._process = subprocess.Popen(
            [*command, "--json", "--verbose"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._requests: list[tuple[str, str]] = []
        self._log = threading.Thread(target=self._read_log, args=(self._process.stderr,))
        self._log.start()
        ready = self._process.stdout.readline()
        if not ready:
            raise CommandError(f"the server ended before it was ready, with {self._process.wait()}")
        self.url: Final = str(json.loads(ready)["url"])

    def run(
        self, program: Program, *arguments: str | Path, answer: str = "", environment: dict[str, str] | None = None
    ) -> str:
        """Run a client's command; returns what it wrote to stdout.

        Raises:
            CommandError: It failed.
        """
        command = [*program.command, *map(str, arguments)]
        done = subprocess.run(
            command,
            env={**os.environ, **program.environment, **(environment or {})},
            input=answer,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            shown = " ".join(map(str, arguments))
            raise CommandError(f"{shown}: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
        return done.stdout

    def requests(self) -> list[tuple[str, str]]:
        """Method and path of what the server was asked so far."""
        return list(self._requests)

    def file(self, name: str, data: bytes) -> Path:
        """A local file."""
        path = self.folder / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def place(self, name: str) -> Path:
        """A local path where nothing is."""
        path = self.folder / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _read_log(self, stream: IO[str]) -> None:
        for line in stream:
            if line.startswith("{"):
                entry = json.loads(line)
                if entry.get("event") == "request.served":
                    self._requests.append((str(entry["method"]), str(entry["path"])))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=60)
        self._log.join()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


def refused(act: Callable[[], object], word: str = "") -> None:
    """Fail when a command succeeds, or fails with other words."""
    try:
        act()
    except CommandError as error:
        if word not in str(error):
            raise
        return
    raise AssertionError("this should have been refused")


def data(size: int, seed: int) -> bytes:
    """Bytes without any repetition."""
    return random.Random(seed).randbytes(size)


def same(found: object, wanted: object, what: str) -> None:
    """Fail with both, shortly, when they differ."""
    assert found == wanted, f"{what}: {str(found)[:150]!r} instead of {str(wanted)[:150]!r}"


def tree(folder: Path) -> dict[str, bytes]:
    """All files of a folder by relative path."""
    files: Sequence[Path] = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
