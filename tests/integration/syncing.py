"""A real server and real roots for the sync tests; commands run in this process, which saves a second each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from syncer.cli.main import run
from syncer.core.conflict import parse_conflict_name
from tests.kit import starting

BLOCKSYNC = Path(sys.executable).with_name("blocksync")
BLOCK = 64 * 1024


@contextmanager
def server(folder: Path, *options: str, listen: str = "127.0.0.1:0") -> Iterator[str]:
    """A server of its own; yields http://HOST:PORT."""
    command = [BLOCKSYNC, "serve", folder, "--listen", listen, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        ready = next((line for line in process.stdout if "listening on " in line), None)
        assert ready, "the server ended before it was ready"
        yield ready.split("listening on ")[1].strip()
    finally:
        process.terminate()
        process.wait(120)
        process.stdout.close()


@dataclass
class Sync:
    """The command line against one server, with its own XDG folders and a container per test.

    Attributes:
        opens: The option of `link` that takes `token_file`.
        account: Whose token it has.
        out: stdout of the last command.
        err: stderr of the last command.
    """

    opens: ClassVar[str] = "--token-file"
    home: Path
    address: str
    token_file: Path
    capsys: pytest.CaptureFixture[str]
    account: str = "default"
    container: str = field(default_factory=lambda: uuid.uuid4().hex)
    out: str = ""
    err: str = ""

    @property
    def url(self) -> str:
        return f"pithos+{self.address}/v1/{self.account}/{self.container}"

    def __call__(self, *arguments: str | Path | bytes, expect: int = 0) -> list[dict[str, Any]]:
        """Run a command; returns the JSON lines of its stdout, if it printed some."""
        self.capsys.readouterr()
        code = run([os.fsdecode(argument) for argument in arguments])
        self.out, self.err = self.capsys.readouterr()
        assert code == expect, f"{arguments}: exit code {code}\n{self.out}\n{self.err}"
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]

    def folder(self, name: str) -> Path:
        """A linked folder."""
        path = self.home / name
        path.mkdir()
        self("link", path, self.url, self.opens, self.token_file)
        return path

    def reconcile(self, root: Path, *options: str, expect: int = 0) -> dict[str, Any]:
        """One cycle; returns its summary."""
        (summary,) = [line for line in self("reconcile", root, "--json", *options, expect=expect) if
                      line["type"] == "summary"]  # fmt: skip
        return summary

    def at_rest(self, *roots: Path) -> None:
        """A further cycle sends nothing that could change the server."""
        for root in roots:
            summary = self.reconcile(root)
            assert summary["mutating_requests"] == 0
            assert not any(summary[key] for key in ("pushed", "pulled", "moved", "deleted", "conflicts"))


def content(root: Path) -> dict[str, bytes | str]:
    """All files, links and folders of a root, but the private one, and what a daemon takes away meanwhile."""
    found: dict[str, bytes | str] = {}
    for path in root.rglob("*"):
        key = str(path.relative_to(root))
        if key.split("/", maxsplit=1)[0] == ".blocksync":
            continue
        with suppress(FileNotFoundError):
            if path.is_symlink():
                found[key] = f"-> {path.readlink()}"
            else:
                found[key] = "folder" if path.is_dir() else path.read_bytes()
    return found


def command(*arguments: str | Path) -> None:
    """Mounting forks: in a process of its own."""
    result = starting.run(arguments)
    assert result.returncode == 0, result.stderr


def in_conflict(
    sync: Sync,
    roots: tuple[Path, Path],
    name: str = "d/report.txt",
    edits: tuple[bytes, bytes] = (b"the server's", b"mine, and longer"),
) -> Path:
    """Both edit `name`; returns the copy that the second device keeps of its own."""
    first, second = roots
    (first / name).parent.mkdir(exist_ok=True)
    (first / name).write_bytes(b"both know this")
    for root in roots:
        sync.reconcile(root)
    (first / name).write_bytes(edits[0])
    (second / name).write_bytes(edits[1])
    sync.reconcile(first)
    sync.reconcile(second, expect=4)
    sync.reconcile(first)
    (copy,) = [path for path in (second / name).parent.iterdir() if parse_conflict_name(path.name.encode())]
    return copy


def deleted_and_replaced(sync: Sync, roots: tuple[Path, Path]) -> None:
    """The second root's trash gets an old version of `d/edited`, and `d/gone`, and a link."""
    first, second = roots
    (first / "d").mkdir()
    (first / "d/edited").write_bytes(b"version 1")
    (first / "d/gone").write_bytes(b"was deleted")
    (first / "d/link").symlink_to("gone")
    for root in roots:
        sync.reconcile(root)
    (first / "d/edited").write_bytes(b"version 2 of it")
    (first / "d/gone").unlink()
    (first / "d/link").unlink()
    for root in roots:
        sync.reconcile(root)
    assert content(second) == {"d": "folder", "d/edited": b"version 2 of it"}


def set_home(home: Path, monkeypatch: pytest.MonkeyPatch, token: str | None = None) -> None:
    """The XDG folders of commands that run in this process, and the token in their environment."""
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.delenv("BLOCKSYNC_TOKEN", raising=False)
    if token is not None:
        monkeypatch.setenv("BLOCKSYNC_TOKEN", token)


@contextmanager
def mounted(home: Path, *names: str, options: Mapping[str, Sequence[str]] = {}) -> Iterator[list[Path]]:
    """New volumes `volume-NAME`, with these options of `init`, mounted at NAME; unmounted again if they still are."""
    points = [home / name for name in names]
    for point in points:
        point.mkdir()
        command("init", home / f"volume-{point.name}", *options.get(point.name, ()))
        command("mount", home / f"volume-{point.name}", point)
    try:
        yield points
    finally:
        for point in points:
            if os.path.ismount(point):
                command("umount", point)


def clear(root: Path) -> None:
    """Remove all that is in a root."""
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextmanager
def linked(sync: Sync, roots: Sequence[Path], *options: str) -> Iterator[tuple[Path, ...]]:
    """Roots of the container; unlinked and empty again afterwards."""
    for root in roots:
        sync("link", root, sync.url, sync.opens, sync.token_file, *options)
    try:
        yield tuple(roots)
    finally:
        for root in roots:
            sync("unlink", root)
            clear(root)
