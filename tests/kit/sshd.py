"""A real sshd on the loopback, with keys of its own, that gives away nothing but SFTP."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.kit.ports import free_port


class Sshd(msgspec.Struct, frozen=True):
    """A server.

    Attributes:
        folder: With its keys: `client`, `known_hosts`, `sshd.log`.
    """

    port: int
    folder: Path

    @property
    def options(self) -> dict[str, Any]:
        """For `asyncssh.connect`."""
        return {
            "port": self.port,
            "username": "root",
            "client_keys": [str(self.folder / "client")],
            "known_hosts": str(self.folder / "known_hosts"),
            "config": None,
            "agent_path": None,
        }


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Sshd]:
    program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    assert program is not None, "openssh-server is not installed: make test-bootstrap"
    Path("/run/sshd").mkdir(exist_ok=True)
    port = free_port()
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    shutil.copy(folder / "client.pub", folder / "authorized_keys")
    key = " ".join((folder / "host.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {key}\n")
    settings = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "authorized_keys",
        "PidFile": "none",
        "UsePAM": "no",
        "StrictModes": "no",
        "PasswordAuthentication": "no",
        "PermitRootLogin": "yes",
        "ForceCommand": "internal-sftp",
        "Subsystem": "sftp internal-sftp",
        "MaxStartups": "100",
    }
    (folder / "config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    process = subprocess.Popen([program, "-D", "-f", folder / "config", "-E", folder / "sshd.log"])
    try:
        until = time.monotonic() + 30
        while "Server listening" not in _text(folder / "sshd.log"):
            assert process.poll() is None, _text(folder / "sshd.log")
            assert time.monotonic() < until, "sshd does not listen"
            time.sleep(0.01)
        yield Sshd(port, folder)
    finally:
        process.terminate()
        process.wait()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
