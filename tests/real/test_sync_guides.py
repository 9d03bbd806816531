"""The commands of the guides to syncing work as they stand there, in a new user's home, with a real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.real.guest import PROJECT, SYSTEM_PATH
from tests.real.recipes import commands
from tests.real.test_guide import free_port

GUIDES = ("conflicts", "moving-a-root", "part-of-a-container", "two-laptops")


class Home:
    """A home with nothing but the programs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "bin").mkdir()
        (path / "bin/blocksync").symlink_to(Path(sys.executable).with_name("blocksync"))
        self._environment = {**os.environ, "HOME": str(path), "PATH": f"{path}/bin:{SYSTEM_PATH}"}
        for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
            self._environment.pop(name, None)

    def take(self, command: str) -> str:
        """Run one command; what it printed. A file takes it: what runs on in the background must not hold a pipe."""
        with tempfile.TemporaryFile("w+") as output:
            code = subprocess.call(
                ["bash", "-euo", "pipefail", "-c", command],
                cwd=self.path,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            output.seek(0)
            told = output.read()
        assert code == 0, f"{command}: exit code {code}\n{told}"
        return told

    def close(self) -> None:
        """End what a guide that broke off has left: it wrote the ids down."""
        for file in self.path.glob("*.pid"):
            try:
                os.kill(int(file.read_text()), signal.SIGTERM)
            except (ProcessLookupError, ValueError):
                continue


@pytest.mark.parametrize("name", GUIDES)
def test_every_command_of_the_guide_works(name: str, tmp_path: Path) -> None:
    guide = (PROJECT / "docs/guide" / f"{name}.md").read_text().replace(":8800", f":{free_port()}")
    home = Home(tmp_path)
    try:
        told = [home.take(command) for command in commands(guide)]
    finally:
        home.close()
    assert len(told) > 15
    said = " ".join(told)
    for expected in EXPECTED[name]:
        assert expected in said, expected


def test_every_command_of_the_guide_to_a_first_sync_works(fuse: None, tmp_path: Path) -> None:
    guide = (PROJECT / "docs/guide/first-sync.md").read_text().replace(":8800", f":{free_port()}")
    home = Home(tmp_path)
    try:
        said = " ".join(" ".join(home.take(command) for command in commands(guide)).split())
    finally:
        home.close()
        if os.path.ismount(tmp_path / "images"):
            home.take("blocksync umount ~/images || umount -l ~/images")
    assert (tmp_path / "copy/web.img").read_bytes() == (tmp_path / "golden.img").read_bytes()
    for expected in ("unique 40 MiB", "blocks 640", "dedup ratio 2.00", "listening on", "golden.img web.img"):
        assert expected in said, expected


EXPECTED = {
    "conflicts": (
        "exit code 4",
        "it is a conflict",
        "1 conflict copies",
        "written on the desktop",
        "no conflict copies",
    ),
    "moving-a-root": ("exit code 18", "linked ", "ok    "),
    "part-of-a-container": ("two.jpg", "three.jpg", "one.jpg", "one.txt", "four"),
    "two-laptops": ("exit code 16", "actions", "condition", "ok    "),
}
