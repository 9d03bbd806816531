"""Benchmarks: each measures blocksync next to its baselines in the same run. See README.md for the method."""
