"""The page's process: `python -m syncer.cli.ui.child HOST:PORT`. See `watch.page`."""

from __future__ import annotations

import logging
import os
import sys
import time

from blockfs.runtime import logs


def main(listen: str) -> int:
    """Serve the page of this user's roots until there is nobody who asks."""
    from syncer.cli.ui.program import Program  # noqa: PLC0415 - after the log
    from syncer.ui.serving import serve  # noqa: PLC0415 - likewise

    return serve(Program(os.environ, time.monotonic), listen, sys.stdin, sys.stdout)


if __name__ == "__main__":
    logs.log_to(sys.stderr, level=logging.INFO)
    sys.exit(main(sys.argv[1]))
