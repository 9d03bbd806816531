"""A server that collects garbage all the time and grants uploaded blocks no time of grace: for crash tests.

Usage: python -m tests.integration.collecting_server FOLDER
"""

from __future__ import annotations

import logging
import sys

import structlog

from blockfs.runtime import logs
from syncer.server import process
from syncer.server.app import App
from syncer.server.folder import ServerFolder
from syncer.server.process import Collector, Server
from syncer.server.store import store
from syncer.server.store.store import Store
from syncer.server.tokens import parse_tokens
from tests.integration.live_server import BLOCK, TOKENS


def main(folder: str) -> None:
    logs.log_to(sys.stderr)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    store.GRACE_US = 0  # type: ignore[misc]  # that is the point
    with Store(ServerFolder.open(folder, block_size=BLOCK)) as opened, process.bind("127.0.0.1:0") as listener:
        collector = Collector(opened, first_s=0, every_s=0)
        address = process.url(listener)
        server = Server(App(opened, parse_tokens(TOKENS, "t")), lambda: print(f"listening on {address}", flush=True))
        server.run([listener])
        collector.close()


if __name__ == "__main__":
    main(sys.argv[1])
