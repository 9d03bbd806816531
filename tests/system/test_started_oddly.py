"""Commands that are started without standard streams, without news of children, or whose output nobody can take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Mounted
from tests.system.machines import BLOCKSYNC, Machines

WAYS = ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"]


def run(redirection: str, *arguments: str | Path) -> int:
    """The script itself: what it finds open is what this is about."""
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh"]
    done = subprocess.run([*shell, BLOCKSYNC, *arguments], capture_output=True, check=False)
    assert b"Traceback" not in done.stderr
    return done.returncode


@pytest.mark.parametrize("redirection", WAYS)
def test_a_mount_that_was_started_without_streams_answers_and_keeps_its_lock(
    machines: Machines, volume: Path, redirection: str
) -> None:
    """Its pipe, or the volume's lock, had the number of a stream, and was gone once it let go of its terminal."""
    mountpoint, second = machines.home / "m", machines.home / "second"
    mountpoint.mkdir()
    second.mkdir()
    assert run(redirection, "mount", volume, mountpoint) == 0
    try:
        machines.run("mount", volume, second, expect=11)
    finally:
        machines.run("umount", mountpoint)
    assert "mount.ended" in (volume / "mount.log").read_text()
    machines.run("fsck", volume)


def test_a_command_without_streams_does_what_it_was_told(mounted: Mounted) -> None:
    for redirection in WAYS:
        for options in ([], ["--json"]):
            assert run(redirection, "stats", mounted.path, *options) == 0, redirection


def test_who_can_not_be_told_learns_it_from_the_exit_code(mounted: Mounted) -> None:
    assert run(">/dev/full", "stats", mounted.path, "--json") == 17
    assert run("2>/dev/full", "stats", mounted.path / "none") == 10
    assert run("2>/dev/full", "stats", mounted.path, "--nonsense") == 2
    assert run(">/dev/full 2>/dev/full", "stats", mounted.path / "none", "--json") == 10


def test_who_was_started_with_sigchld_ignored_learns_how_its_children_end(mounted: Mounted) -> None:
    def run_deaf(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        deaf = "import os, signal as s, sys; s.signal(s.SIGCHLD, s.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
        command = [sys.executable, "-c", deaf, BLOCKSYNC, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    refused = run_deaf("mount", mounted.volume, mounted.path)
    assert (refused.returncode, "is mounted at" in refused.stderr) == (11, True)
    mounted.umount()
    collected = run_deaf("gc", mounted.volume)
    assert (collected.returncode, collected.stderr) == (0, "")
    mounted.remount()
