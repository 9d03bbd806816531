"""Make the picture of `stats --map` for docs/guide/vm-images.md: `python -m scripts.terminalmap`, where FUSE works.

A volume with the disks of a few machines is made for it, as for the pictures of the page, and taken away again. The
command is run on a terminal of 80 columns and 24 rows; what it writes there, colours too, is drawn and not touched.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from scripts.picture import FRAME
from scripts.screens import BLOCKSYNC, PICTURES, Disks, Scene

COLUMNS: Final = 80
ROWS: Final = 24
PICTURE: Final = PICTURES / "map-terminal.svg"


def on_a_terminal(words: Sequence[str], scene: Scene) -> str:
    """What a command writes to its terminal, with what sets the colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**scene.environment, "TERM": "xterm-256color"}
    with open(ours, "rb", closefd=True) as screen:
        with subprocess.Popen(
            words, cwd=scene.home, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
        ) as run:
            os.close(theirs)
            written = _all_of(screen.fileno())
        assert run.returncode == 0, written
    return written


def _all_of(screen: int) -> str:
    found = b""
    while True:
        try:
            found += os.read(screen, 1 << 16)
        except OSError:  # EIO: the last one who had the terminal has ended
            return found.decode().replace("\r\n", "\n")


def drawn(typed: str, written: str) -> str:
    """The picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), (typed, "bold white")))
    console.print(Text.from_ansi(written.rstrip("\n")))
    return console.export_svg(title="", code_format=FRAME, unique_id="t")


def main() -> int:
    """Make it."""
    home = Path(tempfile.mkdtemp(prefix="blocksync-"))
    scene = Scene(home)
    try:
        disks = Disks(scene)
        try:
            disks.fill()
            disks.write_on()
            path = os.path.join(disks.path.name, "web.img")
            written = on_a_terminal([str(BLOCKSYNC), "stats", "--map", path], scene)
        finally:
            scene("umount", disks.path)
    finally:
        shutil.rmtree(home)
    PICTURE.write_text(drawn(f"blocksync stats --map {path}", written))
    return 0


if __name__ == "__main__":
    sys.exit(main())
