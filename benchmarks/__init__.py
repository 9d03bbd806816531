"""Benchmarks: each measures blocksync next to its baselines in the same run. See README.md for the method."""

import os

# Nothing that a benchmark starts sends anything on this machine's network; who measures that has a namespace of its own.
os.environ["BLOCKSYNC_PEERS"] = "off"
