"""Whether commands without a daemon were alone on their network lately: then they ask the server first.

Who is alone each time would load code and wait for answers each time, for nothing. Who was, and is not any more, has
so much more from the server as that sends in `LATER_S`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Final

LOOKS: Final = 3  # so many in a row that heard nobody: one may have been a moment before somebody came
FRESH_S: Final = 86_400.0  # the last of them
LATER_S: Final = 1.0


class Solitude:
    """What one root's commands remember of it, a byte for each look in a row that heard nobody. Blocking; never fails.

    Losing it costs a look, so it is not written durably.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.time) -> None:
        """Keep the path; the folder exists.

        Args:
            path: Of the file.
            clock: Seconds since the epoch.
        """
        self._path = path
        self._clock = clock

    def later_s(self) -> float:
        """For how many seconds the server is to have all alone."""
        return LATER_S if self._looks() >= LOOKS else 0.0

    def looked(self, *, heard: bool) -> None:
        """Remember that somebody was heard, or nobody."""
        with contextlib.suppress(OSError):
            if heard:
                os.unlink(self._path)
            else:
                looks = min(self._looks() + 1, LOOKS)
                with open(self._path, "wb") as file:
                    file.write(b"." * looks)

    def _looks(self) -> int:
        try:
            found = os.stat(self._path)
        except OSError:
            return 0
        return found.st_size if abs(self._clock() - found.st_mtime) < FRESH_S else 0
