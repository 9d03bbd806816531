"""Runs the commands of guides as they stand there: each guide in one shell, in a home of its own.

    python -m tests.real.recipes IMAGE

takes an ext4 image without a partition table for the golden.img of docs/guide/vm-images.md, and shows each of its
commands, what it printed and what it took: where the guide's figures come from.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.real.guest import KERNEL, PROJECT, SYSTEM_PATH, make_initramfs, run

_MARK = "@@@ "

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


def blocks(page: str) -> list[str]:
    """The fenced blocks of a page, without their fences."""
    return re.findall(r"^```[a-z]*\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def in_one_shell(typed: Sequence[str], home: Path, environment: Mapping[str, str], cwd: Path) -> list[Took]:
    """Give commands to one shell, as somebody does who goes down a page.

    Raises:
        AssertionError: One failed; what came before it is in the message.
    """
    script = home / "script"
    marked = "".join(f'printf "\\n{_MARK}%s\\n" "$EPOCHREALTIME"\n{command}\n' for command in typed)
    script.write_text(f"trap 'exit' ERR\nset -E -o pipefail\n{marked}printf '\\n{_MARK}%s\\n' \"$EPOCHREALTIME\"\n")
    try:
        with tempfile.TemporaryFile("w+") as output:  # a file: what runs on in the background must not hold a pipe
            code = subprocess.call(
                ["bash", script], cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            output.seek(0)
            told = output.read()
    finally:
        script.unlink()
    parts = re.split(rf"\n{_MARK}([0-9.]+)\n", told)
    times, outputs = [float(each) for each in parts[1::2]], parts[2::2]
    assert code == 0, f"{typed[len(times) - 1] if times else 'the shell'}: exit code {code}\n{told}"
    spans = [until - since for since, until in pairwise(times)]
    return [Took(*each) for each in zip(typed, outputs, spans, strict=False)]


def environment_of(home: Path, path: str) -> dict[str, str]:
    """What a new user's shell has; and nothing is sent on this machine's network."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "BLOCKSYNC_", "KAMAKI_"))}
    return {**bare, "HOME": str(home), "PATH": path, "BLOCKSYNC_PEERS": "off"}


class Home:
    """A user's home: blocksync and qemu on the path, images to begin with."""

    def __init__(self, path: Path, golden: Path) -> None:
        self.path = path
        programs = path / "bin"
        programs.mkdir(exist_ok=True)
        make_initramfs(path / "initramfs", path, GUEST)
        if not (programs / "blocksync").is_symlink():
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
        self.environment = environment_of(path, f"{programs}:{SYSTEM_PATH}")

    def take(self, *typed: str) -> list[Took]:
        """Run commands in one shell."""
        return in_one_shell(typed, self.path, self.environment, self.path)

    def close(self) -> None:
        """Take away what a guide that broke off left: mounts, and processes whose ids it wrote down."""
        for name in ("images", "images2"):
            if os.path.ismount(self.path / name):
                self.take(f"blocksync umount ~/{name} || umount -l ~/{name}")
        for pid_file in self.path.glob("*.pid"):
            # A guest that has switched itself off has taken its file away; a server ends when it is told to.
            self.take(f"kill $(cat {pid_file}) || true")


def main() -> None:
    """Run the guide and show it."""
    golden = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory(prefix="blocksync-guide-") as name, closing(Home(Path(name), golden)) as home:
        for took in home.take(*commands(GUIDE.read_text())):
            print(f"$ {took.command}\n{took.output}[{took.seconds:.1f} s]", flush=True)


if __name__ == "__main__":
    main()
