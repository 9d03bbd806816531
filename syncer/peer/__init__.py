"""Blocks from machines on the same network: who has what, asked by L2 broadcast, and fetched over TCP, verified."""
