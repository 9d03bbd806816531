"""Makes docs/picture.svg: what a terminal shows when README's "Sixty seconds" is pasted into it.

    python scripts/picture.py

runs the block in a new home, for real, and draws what it printed. Nothing in the picture is written by hand.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

PROJECT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from tests.kit.ports import free_port  # noqa: E402 - a script is not in the package
from tests.real.guest import SYSTEM_PATH  # noqa: E402 - a script is not in the package
from tests.real.recipes import Took, blocks, environment_of, in_one_shell  # noqa: E402

PICTURE: Final = PROJECT / "docs/picture.svg"
WIDTH: Final = 100  # columns
_QUIET: Final = ("PATH=", "until ")  # lines that the picture does without

# Rich's own frame fetches a font from elsewhere; a picture in a clone must need nothing.
FRAME: Final = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>
.{unique_id}-matrix {{ font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px;
  line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>{lines}</defs>
<rect fill="#14181f" x="1" y="1" width="{width}" height="{height}" rx="8"/>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def typed() -> list[str]:
    """The README's block, line by line, without its remarks; what belongs to one command stays together."""
    section = (PROJECT / "README.md").read_text().partition("## Sixty seconds")[2]
    lines = [re.sub(r"\s+#.*", "", line) for line in blocks(section)[0].splitlines()]
    return [line for line in lines if line]


def took(home: Path) -> list[Took]:
    """Run it, and take it away again."""
    section = (PROJECT / "README.md").read_text().partition("## Sixty seconds")[2]
    away = blocks(section)[1].splitlines()
    port = f":{free_port()}"
    lines = [line.replace(":8800", port) for line in (*typed(), *away)]
    done = in_one_shell(lines, home, environment_of(home, SYSTEM_PATH), PROJECT)
    shown = [each._replace(command=line) for each, line in zip(done, typed(), strict=False)]
    return [
        each._replace(output=each.output.replace(port, ":8800").replace(str(home), "/home/me").strip("\n"))
        for each in shown
    ]


def draw(seen: list[Took]) -> str:
    """The picture."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for each in seen:
        if each.command.startswith(_QUIET):
            continue
        console.print(Text.assemble(("$ ", "bold green"), (each.command, "bold white")), soft_wrap=False)
        if each.output:
            console.print(Text(each.output, style="bright_black" if each.command.startswith("ls") else "white"))
    return console.export_svg(title="", code_format=FRAME, unique_id="t")


def main() -> None:
    """Draw it anew."""
    with tempfile.TemporaryDirectory(prefix="blocksync-picture-") as name:
        seen = took(Path(name))
    PICTURE.write_text(draw(seen))
    print(f"{PICTURE.relative_to(PROJECT)}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
