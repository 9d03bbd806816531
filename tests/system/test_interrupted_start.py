"""Ctrl-C at any moment of a command's start and of its end: exit code 130, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# What the console script does, with a Ctrl-C while the Nth module is looked for.
_STRUCK = """
import os, signal, sys
number = int(sys.argv[1])
FRONT
class Striking:
    seen = 0
    def find_spec(self, name, path=None, target=None):
        self.seen += 1
        if self.seen == number:
            os.kill(os.getpid(), signal.SIGINT)
from syncer.cli.main import main
sys.argv = ["blocksync", *sys.argv[2:]]
striking = Striking()
sys.meta_path.insert(0, striking)
try:
    main()
finally:
    print(striking.seen)
"""

_STRUCK_AT_THE_END = """
import atexit, os, signal, sys
FRONT
atexit.register(os.kill, os.getpid(), signal.SIGINT)
from syncer.cli.main import main
sys.argv = ["blocksync", *sys.argv[1:]]
main()
"""

# As in front of a terminal: the tests themselves may run in the background of a script, where Ctrl-C is ignored.
_IN_FRONT = "signal.signal(signal.SIGINT, signal.default_int_handler)"
_IN_THE_BACKGROUND = "signal.signal(signal.SIGINT, signal.SIG_IGN)"

MOMENTS = 8


def run(program: str, home: Path, *arguments: str, where: str = _IN_FRONT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_STATE_HOME": str(home), "XDG_DATA_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-c", program.replace("FRONT", where), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["--help"], ["status"], ["reconcile"], ["serve", "--help"]], ids=" ".join)
def test_ctrl_c_while_a_command_starts_ends_it_without_a_traceback(tmp_path: Path, arguments: list[str]) -> None:
    unstruck = run(_STRUCK, tmp_path, "0", *arguments)
    assert unstruck.returncode == 0, unstruck.stderr
    imports = int(unstruck.stdout.split()[-1])
    assert imports > MOMENTS
    for number in range(1, imports, max(1, imports // MOMENTS)):
        struck = run(_STRUCK, tmp_path, str(number), *arguments)
        assert struck.returncode == 130, (number, struck.stderr)
        assert struck.stderr.strip() in {"", "blocksync: interrupted"}, number


def test_ctrl_c_while_the_interpreter_ends_is_no_traceback(tmp_path: Path) -> None:
    struck = run(_STRUCK_AT_THE_END, tmp_path, "status")
    assert struck.returncode == 130
    assert "Traceback" not in struck.stderr


def test_a_command_in_the_background_of_a_script_keeps_ignoring_ctrl_c(tmp_path: Path) -> None:
    """A shell starts `command &` with SIGINT ignored, so that Ctrl-C ends only what is in front."""
    assert run(_STRUCK, tmp_path, "5", "status", where=_IN_THE_BACKGROUND).returncode == 0
