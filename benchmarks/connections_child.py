"""A child of bench_transfers: `blocksync reconcile` with a fixed number of connections; the command adapts it."""

from __future__ import annotations

import sys

from msgspec.structs import replace

from syncer.cli.main import run
from syncer.cli.verbs import reconcile
from syncer.remote.prefix import open_container

if __name__ == "__main__":
    connections = int(sys.argv[1])

    def open_fixed(root, settings):  # type: ignore[no-untyped-def] # as open_share
        """`open_share` with our number."""
        settings = replace(settings, concurrency=connections, adaptive=False)
        return open_container(root.record.url, root.secret(), settings=settings)

    vars(reconcile)["open_share"] = open_fixed
    sys.exit(run(["reconcile", sys.argv[2], "--json"]))
