"""Runs the commands of docs/guide/vm-images.md as they stand there, in a home of their own.

    python -m tests.real.recipes IMAGE

takes an ext4 image without a partition table for the guide's golden.img, and shows each command, what it printed and
what it took: where the guide's figures come from.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tests.real.guest import KERNEL, PROJECT, SYSTEM_PATH, make_initramfs, run

GUIDE = PROJECT / "docs" / "guide" / "vm-images.md"

# Any ext4 image becomes a guest: it starts, changes its disk for a moment, and switches itself off.
GUEST = """
set -e
busybox mkdir -p /root/guest
for number in 1 2 3 4 5 6 7 8; do
    busybox date > /root/guest/$number
    busybox sync /root/guest/$number
done
busybox umount /root
busybox poweroff -f
"""


class Took(NamedTuple):
    """A command that ended well."""

    command: str
    output: str
    seconds: float


def commands(guide: str) -> list[str]:
    """The commands of a guide: the lines after `$ ` in its fenced blocks, with those that continue them after `> `."""
    found: list[str] = []
    fenced = False
    for line in guide.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced and line.startswith("$ "):
            found.append(line[2:])
        elif fenced and line.startswith("> "):
            found[-1] += "\n" + line[2:]
    return found


class Home:
    """A user's home: blocksync and qemu on the path, images to begin with."""

    def __init__(self, path: Path, golden: Path) -> None:
        self.path = path
        programs = path / "bin"
        programs.mkdir()
        make_initramfs(path / "initramfs", path, GUEST)
        (programs / "blocksync").symlink_to(Path(sys.executable).with_name("blocksync"))
        qemu = programs / "qemu-system-x86_64"
        # The image holds no kernel: it is given from outside. The host need not have KVM.
        qemu.write_text(
            f'#!/bin/sh\nexec {shutil.which("qemu-system-x86_64")} "$@" -machine accel=tcg -m 192 -display none '
            f"-no-reboot -kernel {KERNEL}/vmlinuz -initrd {path}/initramfs -append 'quiet panic=-1'\n"
        )
        qemu.chmod(0o755)
        run("cp", "--sparse=always", golden, path / "golden.img")
        run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", golden, path / "old.qcow2")
        self._environment = {**os.environ, "HOME": str(path), "PATH": f"{programs}:{SYSTEM_PATH}"}
        for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
            self._environment.pop(name, None)

    def take(self, command: str) -> Took:
        """Run one command.

        Raises:
            AssertionError: It failed.
        """
        started = time.monotonic()
        with tempfile.TemporaryFile("w+") as output:  # a file: what runs on in the background must not hold a pipe
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
        return Took(command, told, time.monotonic() - started)

    def close(self) -> None:
        """Take away what a guide that broke off left: mounts, and processes whose ids it wrote down."""
        for name in ("images", "images2"):
            if os.path.ismount(self.path / name):
                self.take(f"blocksync umount ~/{name} || umount -l ~/{name}")
        for pid_file in self.path.glob("*.pid"):
            # A guest that has switched itself off has taken its file away; a server ends when it is told to.
            self.take(f"kill $(cat {pid_file}) || true")

    def take_all(self, guide: str) -> Iterator[Took]:
        """Run all commands of a guide, in order."""
        for command in commands(guide):
            yield self.take(command)


def main() -> None:
    """Run the guide and show it."""
    golden = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory(prefix="blocksync-guide-") as name, closing(Home(Path(name), golden)) as home:
        for took in home.take_all(GUIDE.read_text()):
            print(f"$ {took.command}\n{took.output}[{took.seconds:.1f} s]", flush=True)


if __name__ == "__main__":
    main()
