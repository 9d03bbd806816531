"""The `blocksync` command: its start, its verbs, and what they share."""
