"""The map of a file, as a terminal shows it."""

from __future__ import annotations

import re

from blockfs.cli.maps import painted
from blockfs.runtime.terminal import Painter

ROW = "..~~##aab+##."


def test_colours_repeat_what_the_characters_say() -> None:
    assert painted(ROW, Painter(is_on=False)) == ROW
    shown = painted(ROW, Painter(is_on=True))
    assert re.sub(r"\x1b\[[0-9]+m", "", shown) == ROW
    assert shown == "\x1b[2m..\x1b[0m\x1b[36m~~\x1b[0m##\x1b[32maab+\x1b[0m##\x1b[2m.\x1b[0m"
