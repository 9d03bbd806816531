"""Real mounts, a real server and real folders for the tests of the main job, driven by the command line only."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from blockfs.runtime.mountinfo import read_mounts
from tests.kit import starting

BLOCKSYNC = Path(sys.executable).with_name("blocksync")


class Ended(msgspec.Struct, frozen=True):
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON lines of stdout."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def summary(self) -> dict[str, Any]:
        """The last summary line of a reconcile."""
        return next(line for line in reversed(self.lines) if line["type"] == "summary")


class Machines:
    """Volumes, mounts, folders and one server below one temporary folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.program = starting.PROJECT  # another release's packages: what is started from then on is that
        self.server: subprocess.Popen[str] | None = None
        self.address = ""
        self.mounts: dict[str, Path] = {}
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_DATA_HOME": str(home / "data"),
        }

    def run(self, *arguments: str | Path | bytes, expect: int | None = 0) -> Ended:
        """Run blocksync; `expect=None` accepts every exit code."""
        result = starting.run(arguments, environment=self.environment, program=self.program)
        if expect is not None:
            assert result.returncode == expect, (
                f"{arguments}: exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
            )
        return Ended(result.returncode, result.stdout, result.stderr)

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Start blocksync in the background, to be killed at some point."""
        return subprocess.Popen(
            [*self.command, *arguments],
            env=self.environment,
            cwd=self.program,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    @property
    def command(self) -> list[str | Path]:
        """Starts the program from its own folder."""
        if self.program == starting.PROJECT:
            return [BLOCKSYNC]
        return [sys.executable, "-c", "from syncer.cli.main import main; main()"]

    def volume(self, name: str, *options: str) -> Path:
        """A mounted volume; returns the mount point."""
        self.run("init", self.home / f"volume-{name}", *options)
        mountpoint = self.home / name
        mountpoint.mkdir()
        return self.remount(name)

    def remount(self, name: str, *options: str) -> Path:
        """Mount a volume that exists."""
        mountpoint = self.home / name
        self.run("mount", self.home / f"volume-{name}", mountpoint, *options)
        self.mounts[name] = mountpoint
        return mountpoint

    def mount_pid(self, name: str) -> int:
        """The process that serves a mount."""
        return int((self.home / f"volume-{name}" / "lock").read_text().split()[0])

    def kill_mount(self, name: str, *, patience_s: float = 120) -> bool:
        """SIGKILL the mount process and wait until it is gone; returns whether it is."""
        pid = self.mount_pid(name)
        descriptor = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            return bool(select.select([descriptor], [], [], patience_s)[0])
        finally:
            os.close(descriptor)

    def folder(self, name: str) -> Path:
        """An ordinary directory."""
        path = self.home / name
        path.mkdir()
        return path

    def serve(self, *options: str) -> str:
        """Start the server (again on the same port, if it ran before); returns the container's URL."""
        command = [*self.command, "serve", self.home / "server", "--listen", self.address or "127.0.0.1:0", *options]
        self.server = subprocess.Popen(
            command,
            env=self.environment,
            cwd=self.program,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.server.stdout is not None
        ready = next((line for line in self.server.stdout if "listening on http://" in line), None)
        assert ready, "the server ended before it was ready"
        self.address = ready.split("http://")[1].strip()
        return self.url

    @property
    def url(self) -> str:
        """The container that the tests share."""
        return f"pithos+http://{self.address}/v1/default/images"

    @property
    def token_file(self) -> Path:
        """The token that the server made for itself."""
        return self.home / "server" / "token"

    def stop_server(self) -> None:
        """End the server as a service manager does."""
        assert self.server is not None
        self.server.terminate()
        assert self.server.wait(60) == 0
        assert self.server.stdout is not None
        self.server.stdout.close()
        self.server = None

    def kill_server(self) -> None:
        """SIGKILL the server."""
        assert self.server is not None
        self.server.kill()
        self.server.wait()
        if self.server.stdout is not None:
            self.server.stdout.close()
        self.server = None

    def link(self, *roots: Path) -> None:
        """Link roots to the shared container."""
        for root in roots:
            self.run("link", root, self.url, "--token-file", self.token_file)

    def reconcile(self, root: Path, *options: str, expect: int | None = 0) -> dict[str, Any]:
        """Reconcile one root; returns its summary."""
        return self.run("reconcile", root, "--json", *options, expect=expect).summary

    def close(self) -> None:
        """Take everything away; a mount that doesn't end cleanly fails the test."""
        if self.server is not None:
            self.server.terminate()
            self.server.wait(120)
            if self.server.stdout is not None:
                self.server.stdout.close()
        for mountpoint in self.mounts.values():
            if os.path.ismount(mountpoint):
                self.run("umount", mountpoint)
        left = [
            line
            for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
            if str(self.home) in line
        ]
        assert not left, f"mounts left behind: {left}"


def content(root: Path) -> dict[str, bytes | str]:
    """All files and links of a root by relative path, the private folder left out."""
    found: dict[str, bytes | str] = {}
    for folder, folders, names in os.walk(root):
        if Path(folder) == root and ".blocksync" in folders:
            folders.remove(".blocksync")
        for name in [*names, *folders]:
            path = Path(folder, name)
            key = str(path.relative_to(root))
            if path.is_symlink():
                found[key] = f"-> {os.readlink(path)}"
            elif path.is_dir():
                found[key + "/"] = ""
            else:
                found[key] = path.read_bytes()
    return found


def is_mounted(path: Path) -> bool:
    return any(mount.mountpoint == os.fsencode(path) for mount in read_mounts())


def signal_and_wait(pid: int, number: int) -> None:
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, number)
        ready, _, _ = select.select([descriptor], [], [], 120)
        assert ready, f"process {pid} did not end on signal {number}"
    finally:
        os.close(descriptor)
