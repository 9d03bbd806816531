"""The page's process: `python -m syncer.cli.ui.child HOST:PORT`. See `watch.page`."""

from __future__ import annotations

import contextlib
import os
import sys
import time

from blockfs.runtime import logs
from syncer.errors import EXPECTED


def main(listen: str) -> int:
    """Serve the page of this user's roots until there is nobody who asks."""
    from syncer.cli.ui.program import Program  # noqa: PLC0415 - after the log
    from syncer.ui.serving import serve  # noqa: PLC0415 - likewise

    program = Program(os.environ, time.monotonic)
    with contextlib.suppress(*EXPECTED):  # who wants figures finds the file; a full disk costs figures, not the page
        program.metrics_token()
    return serve(program, listen, sys.stdin, sys.stdout)


if __name__ == "__main__":
    logs.log_rarely()  # a fifth of its memory, else
    sys.exit(main(sys.argv[1]))
