"""Exit codes are a contract: each is told wherever people look for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from blockfs.runtime.exitcodes import ExitCode

PROJECT = Path(__file__).parents[4]


def test_the_reference_has_every_exit_code() -> None:
    text = (PROJECT / "docs/reference/exit-codes.md").read_text()
    assert [code for code in ExitCode if f"\n| {code.value} | " not in text] == []


def test_the_man_page_has_every_exit_code() -> None:
    page = subprocess.run(
        [sys.executable, PROJECT / "scripts/manpages.py", "blocksync"], capture_output=True, text=True, check=True
    )
    assert [code for code in ExitCode if f".TP\n{code.value}\n" not in page.stdout] == []
