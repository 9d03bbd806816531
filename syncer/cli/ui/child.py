"""The page's process: `python -m syncer.cli.ui.child [--figures] HOST:PORT`. See `watch.page.process`."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time

from blockfs.runtime import logs
from syncer.errors import EXPECTED


def main(listen: str, *, only_figures: bool) -> int:
    """Serve the page of this user's roots, or the daemon's figures, until there is nobody who asks."""
    _load_uvicorn()
    from syncer.cli.ui.program import Program  # noqa: PLC0415 - after the log
    from syncer.ui.serving import serve, serve_figures  # noqa: PLC0415 - likewise

    program = Program(os.environ, time.monotonic)
    with contextlib.suppress(*EXPECTED):  # who wants figures finds the file; a full disk costs figures, not the page
        program.metrics_token()
    return (serve_figures if only_figures else serve)(program, listen, sys.stdin, sys.stdout)


def _load_uvicorn() -> None:
    """Without its command line, which the package imports: click and multiprocessing are 1.7 MB of 30."""
    found = importlib.util.find_spec("uvicorn")
    assert found is not None
    package = sys.modules["uvicorn"] = importlib.util.module_from_spec(found)
    from uvicorn.config import Config  # noqa: PLC0415 - from here on it can be

    vars(package)["Config"] = Config  # where its other modules look for it


if __name__ == "__main__":
    logs.log_rarely()  # a fifth of its memory, else
    sys.exit(main(sys.argv[-1], only_figures="--figures" in sys.argv[1:-1]))
