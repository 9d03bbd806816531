"""The mount and the server as services of `Type=notify`: what a service manager hears, on a real socket."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.machines import BLOCKSYNC, Machines, is_mounted, signal_and_wait


class Manager:
    """The receiving end of sd_notify."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self._socket.settimeout(60)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "NOTIFY_SOCKET": self.address}

    def told(self) -> dict[str, str]:
        """The next notification."""
        return dict(line.split("=", 1) for line in self._socket.recv(4096).decode().splitlines())

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path)
    yield made
    made.close()


@pytest.fixture
def mountpoint(machines: Machines) -> Path:
    path = machines.home / "m"
    path.mkdir()
    return path


@pytest.mark.parametrize("end", ["signal", "umount"])
def test_a_mount_is_ready_when_it_is_mounted_and_tells_its_end(
    manager: Manager, volume: Path, mountpoint: Path, end: str
) -> None:
    process = subprocess.Popen(
        [BLOCKSYNC, "mount", "--foreground", volume, mountpoint],
        env=manager.environment,
        stderr=subprocess.DEVNULL,
    )
    told = manager.told()
    assert told == {"READY": "1", "MAINPID": str(process.pid), "STATUS": f"serving {volume} at {mountpoint}"}
    assert is_mounted(mountpoint)
    (mountpoint / "file").write_bytes(b"x")
    if end == "signal":
        process.send_signal(signal.SIGTERM)
    else:
        subprocess.run([BLOCKSYNC, "umount", mountpoint], check=True)
    assert manager.told()["STOPPING"] == "1"
    assert process.wait(60) == 0
    assert not is_mounted(mountpoint)


def test_a_mount_that_forks_tells_which_process_goes_on(manager: Manager, volume: Path, mountpoint: Path) -> None:
    subprocess.run([BLOCKSYNC, "mount", volume, mountpoint], env=manager.environment, check=True)
    pid = int((volume / "lock").read_text())
    assert manager.told()["MAINPID"] == str(pid)
    signal_and_wait(pid, signal.SIGTERM)
    assert manager.told()["STOPPING"] == "1"


def test_a_service_that_is_started_again_after_a_kill_takes_the_stale_mountpoint(
    manager: Manager, volume: Path, mountpoint: Path
) -> None:
    command = [BLOCKSYNC, "mount", "--foreground", volume, mountpoint]
    first = subprocess.Popen(command, env=manager.environment, stderr=subprocess.DEVNULL)
    manager.told()
    (mountpoint / "file").write_bytes(b"kept")
    subprocess.run([BLOCKSYNC, "flush", mountpoint], check=True)
    first.kill()
    first.wait()
    with pytest.raises(OSError, match="not connected"):
        os.listdir(mountpoint)
    second = subprocess.Popen(command, env=manager.environment, stderr=subprocess.DEVNULL)
    assert manager.told()["READY"] == "1"
    assert (mountpoint / "file").read_bytes() == b"kept"
    second.terminate()
    assert second.wait(60) == 0


def test_the_server_is_ready_when_it_listens(manager: Manager, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [BLOCKSYNC, "serve", tmp_path / "server", "--listen", "127.0.0.1:0"],
        env=manager.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    told = manager.told()
    url = next(iter(process.stdout)).split()[-1]
    assert (told["READY"], told["MAINPID"], told["STATUS"]) == ("1", str(process.pid), f"listening on {url}")
    process.terminate()
    assert manager.told()["STOPPING"] == "1"
    assert process.wait(60) == 0
    process.stdout.close()
