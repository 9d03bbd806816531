"""Two Syncthing devices on the loopback, told what to do and asked how they stand by their REST interface.

Debian's package `syncthing`. Discovery, relays, port mapping, upgrades and reports are off: nothing leaves the machine.
A look for changes is asked for, so that its watcher's delay of ten seconds is not what is measured.
"""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

_FOLDER: Final = "bench"
_LOOK_S: Final = 0.005
_PATIENCE_S: Final = 120.0
_OFF: Final = {
    "globalAnnounceEnabled": "false",
    "localAnnounceEnabled": "false",
    "relaysEnabled": "false",
    "natEnabled": "false",
    "startBrowser": "false",
    "urAccepted": "-1",
    "crashReportingEnabled": "false",
    "autoUpgradeIntervalH": "0",
}


class Device:
    """One of them.

    Attributes:
        root: The folder that it syncs.
        ident: What it is called by the other one.
        listens: Where the other one finds it.
    """

    def __init__(self, home: Path, root: Path) -> None:
        """Make its key and its configuration."""
        self.root = root
        self._home = home
        _run("syncthing", "generate", f"--home={home}", "--no-default-folder", "--skip-port-probing")
        self._config = ET.parse(home / "config.xml")
        device = self._config.getroot().find("device")
        assert device is not None
        self.ident = device.attrib["id"]
        self.listens = f"tcp://127.0.0.1:{_free_port()}"
        self._api = f"http://127.0.0.1:{_free_port()}"
        self._key = secrets.token_hex(16)

    def introduce(self, other: Device) -> None:
        """Share the folder with another one."""
        root = self._config.getroot()
        gui, options = root.find("gui"), root.find("options")
        assert gui is not None
        assert options is not None
        _set(gui, "address", self._api.removeprefix("http://"))
        _set(gui, "apikey", self._key)
        _set(options, "listenAddress", self.listens)
        for name, value in _OFF.items():
            _set(options, name, value)
        device = ET.SubElement(root, "device", {"id": other.ident, "name": "other"})
        ET.SubElement(device, "address").text = other.listens
        shared = {"id": _FOLDER, "path": str(self.root), "fsWatcherEnabled": "false", "rescanIntervalS": "3600"}
        folder = ET.SubElement(root, "folder", shared)
        for ident in (self.ident, other.ident):
            ET.SubElement(folder, "device", {"id": ident})
        self._config.write(self._home / "config.xml")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have it run."""
        command = ["syncthing", "serve", f"--home={self._home}", "--no-browser", "--no-restart", "--no-upgrade"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _until(lambda: self._answers(process))
            yield
        finally:
            process.terminate()
            process.wait(60)

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        assert process.poll() is None, "syncthing has ended"
        try:
            return bool(self._ask("GET", "system/ping"))
        except OSError:
            return False

    def is_connected(self, other: Device) -> bool:
        """Whether it talks with another one."""
        return bool(self._ask("GET", "system/connections")["connections"][other.ident]["connected"])

    def look(self) -> None:
        """Have it look for changes; returns when it has."""
        self._ask("POST", "db/scan", folder=_FOLDER)

    def version(self, name: str) -> list[str] | None:
        """Which version of a file it has; None: none, or it has none that is whole."""
        try:
            return list(self._ask("GET", "db/file", folder=_FOLDER, file=name)["local"]["version"]) or None
        except urllib.error.HTTPError:
            return None

    def _ask(self, method: str, what: str, **query: str) -> Any:
        url = f"{self._api}/rest/{what}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, method=method, headers={"X-API-Key": self._key})
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as reply:
            body = reply.read()
        return json.loads(body) if body else None


@contextmanager
def pair(home: Path) -> Iterator[tuple[Device, Device]]:
    """Two that share a folder, and are connected."""
    devices = []
    for name in ("first", "second"):
        (home / name).mkdir()
        devices.append(Device(home / f"{name}-home", home / name))
    first, second = devices
    first.introduce(second)
    second.introduce(first)
    with ExitStack() as stack:
        for each in devices:
            stack.enter_context(each.running())
        _until(lambda: first.is_connected(second) and second.is_connected(first))
        yield first, second


def bring(first: Device, second: Device, name: str) -> None:
    """Have one look, and wait until the other one has what it found of a file."""
    first.look()
    wanted = first.version(name)
    assert wanted is not None
    _until(lambda: second.version(name) == wanted)


def _set(parent: ET.Element, name: str, value: str) -> None:
    found = parent.find(name)
    (ET.SubElement(parent, name) if found is None else found).text = value


def _until(holds: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < ends_s, "syncthing does not get there"
        time.sleep(_LOOK_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
