"""The commands of docs/guide/vm-images.md work as they stand there."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

from tests.real.guest import make_disk
from tests.real.recipes import GUIDE, Home, commands


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_every_command_of_the_guide_to_vm_images_works(fuse: None, tmp_path: Path) -> None:
    golden = tmp_path / "made.img"
    make_disk(golden, tmp_path)
    guide = GUIDE.read_text().replace(":8800", f":{free_port()}")
    with closing(Home(tmp_path, golden)) as home:
        taken = list(home.take_all(guide))
    assert len(taken) > 40


def test_commands_are_what_follows_a_dollar_in_a_fenced_block() -> None:
    guide = "$ not this\n```\n$ one\noutput\n$ two \\\n> more\n```\n$ nor this\n"
    assert commands(guide) == ["one", "two \\\nmore"]
