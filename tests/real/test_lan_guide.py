"""The guide to the LAN as a new user reads it: every command, pasted into the shells of two machines on one network."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click

from syncer.cli.commands import blocksync
from tests import effort
from tests.kit.netns import Lan, Node
from tests.real.guest import PROJECT, SYSTEM_PATH

BLOCKSYNC = Path(sys.executable).with_name("blocksync")
GUIDE = PROJECT / "docs/guide/lan.md"
MARK = "@@@ "
EXPECTED = {
    "blocksync status": "from peers",
    "blocksync peers": "lan0",
    "blocksync doctor": "its share is all of the container",
    "blocksync peers passphrase": "images has a key made from the passphrase",
    "blocksync peers passphrase ~/images --clear": "takes the share's key on the server again",
    "blocksync peers rotate": "has a new key",
    "blocksync peers off": "off by `blocksync peers off`",
    "blocksync peers on": "images: on",
}
"""What the commands say, by how they begin; the longest beginning counts."""


def typed() -> list[tuple[str, str]]:
    """Machine and command, in order: the lines after `desktop$ ` and `laptop$ `."""
    return re.findall(r"^(desktop|laptop)\$ (.*)$", GUIDE.read_text(), re.MULTILINE)


class Shell:
    """A shell on one machine, in which a user types."""

    def __init__(self, node: Node) -> None:
        (node.home / "bin").mkdir()
        (node.home / "bin/blocksync").symlink_to(BLOCKSYNC)
        environment = {**node.environment, "PATH": f"{node.home}/bin:{SYSTEM_PATH}"}
        self._bash = node.start(
            "bash", "--noprofile", "--norc", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, env=environment, cwd=node.home,
        )  # fmt: skip

    def type(self, command: str) -> str:
        """Returns what it said; it must end well."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{command}\nprintf '\\n{MARK}%s\\n' $?\n")
        self._bash.stdin.flush()
        said = []
        for line in self._bash.stdout:
            if line.startswith(MARK):
                assert line == f"{MARK}0\n", f"{command}: {''.join(said)}"
                return "".join(said)
            said.append(line)
        raise AssertionError(f"{command}: the shell has ended: {''.join(said)}")


def test_every_command_of_the_guide_is_one_that_there_is() -> None:
    commands = [command for _, command in typed() if command.startswith("blocksync ")]
    assert len(commands) >= 15
    for typed_in in commands:
        _, *words = shlex.split(typed_in.partition(" 2>>")[0])
        below: click.Command = blocksync
        while isinstance(below, click.Group) and words and not words[0].startswith("-"):
            found = below.get_command(click.Context(below), words[0])
            assert found is not None, typed_in
            below, words = found, words[1:]
        below.make_context("blocksync", words)  # parses; a wrong option or a missing argument raises


def test_every_command_of_the_guide_works_on_two_machines(tmp_path: Path) -> None:
    commands = typed()[: effort.count("guide to the LAN")]
    with Lan(3, home=tmp_path) as lan:
        server, *machines = lan.nodes
        store = server.home / "store"
        serving = server.start(
            BLOCKSYNC, "serve", store, "--listen", f"{server.ipv4}:8800", stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert serving.stdout is not None
        assert any("listening on" in line for line in serving.stdout)
        server.shape(8.0)  # so that neighbours are asked before the server has sent all
        shells = {}
        for name, node in zip(("desktop", "laptop"), machines, strict=True):
            (node.home / "token").write_text((store / "token").read_text())
            (node.home / "passphrase").write_text("six words that nobody would guess\n")
            for private in ("token", "passphrase"):
                (node.home / private).chmod(0o600)
            shells[name] = Shell(node)
        for machine, line in commands:
            command = line.replace("pithos+https://files.example.org", f"pithos+http://{server.ipv4}")
            command = command.replace("ssh desktop cat ", f"cat {machines[0].home}/")
            said = shells[machine].type(command)
            beginnings = [beginning for beginning in EXPECTED if command.startswith(beginning)]
            if beginnings:
                assert EXPECTED[max(beginnings, key=len)] in said, f"{machine}$ {command}\n{said}"
