"""Benchmarks: each measures blocksync next to its baselines in the same run. See README.md for the method."""

import os

# Nothing that a benchmark starts sends anything on this machine's network; what measures that has its own namespace.
os.environ["BLOCKSYNC_PEERS"] = "off"
