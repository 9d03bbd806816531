"""How much work something is, on any machine the same: the lines of the project that it executes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any


def steps_of(what: Callable[[], object], below: str) -> int:
    """Lines of the project's own code that a call executes, in this thread.

    Args:
        what: Is called.
        below: Only lines of files whose path has this in it count: "syncer/blocks/".
    """
    steps = 0
    ours: dict[CodeType, bool] = {}

    def local(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        steps += event == "line"
        return local

    def trace(frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        if code not in ours:
            ours[code] = below in code.co_filename
        return local if ours[code] else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        what()
    finally:
        sys.settrace(before)
    return steps
