"""A server with short time-outs: for tests of what happens when they pass.

Usage: python -m tests.integration.impatient_server FOLDER
"""

from __future__ import annotations

import logging
import sys

import structlog

from blockfs.runtime import logs
from syncer.server import process
from syncer.server.app import App
from syncer.server.budget import Budgets
from syncer.server.folder import ServerFolder
from syncer.server.http import arriving
from syncer.server.http.bounded_protocol import Patience, Reception
from syncer.server.http.guests import Bounds, Guests
from syncer.server.process import Server
from syncer.server.store.store import Store
from syncer.server.tokens import parse_tokens
from tests.integration.live_server import BLOCK, TOKENS

PATIENCE = Patience(handshake_s=1, head_s=1, stranger_s=1, linger_s=1, stall_s=1)


def main(folder: str) -> None:
    logs.log_to(sys.stderr)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    arriving.IDLE_S = arriving.BRIEF_S = 1.0  # type: ignore[misc]  # that is the point
    reception = Reception(guests=Guests(Bounds.within(500)), patience=PATIENCE)
    with Store(ServerFolder.open(folder, block_size=BLOCK)) as opened, process.bind("127.0.0.1:0") as listener:
        address = process.url(listener)
        app = App(opened, parse_tokens(TOKENS, "t"), Budgets(patience_s=0.2))
        Server(app, lambda: print(f"listening on {address}", flush=True), reception=reception).run([listener])


if __name__ == "__main__":
    main(sys.argv[1])
