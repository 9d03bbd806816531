"""Make the pictures of docs/guide/from-the-package.md: `python -m scripts.walk`, as root.

It wants what `make test-bootstrap` installs, and takes the way of `tests/kit/newcomer.py` for real: the package, a
fresh Debian tree, a conflict, the page.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from scripts.picture import FRAME
from tests.kit.chromium import Visit, chromium
from tests.kit.newcomer import walk

PICTURES: Final = Path(__file__).parents[1] / "docs/guide/pictures"
WIDTH: Final = 110


def drawn(told: str) -> str:
    """What a terminal shows of it."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for line in told.splitlines():
        typed = line.startswith("$ ")
        console.print(Text(line, style="bold white" if typed else "bright_black"), soft_wrap=False)
    return console.export_svg(title="", code_format=FRAME, unique_id="t")


def main() -> int:
    """Make them all."""

    def take(seen: Visit, step: str) -> None:
        seen.page.screenshot(path=PICTURES / f"walk-{step}.png", animations="disabled")

    with tempfile.TemporaryDirectory(prefix="blocksync-walk-") as home, chromium() as browser:
        told = walk(Path(home), browser, take)
    for step, text in told.items():
        (PICTURES / f"walk-{step}.svg").write_text(drawn(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
