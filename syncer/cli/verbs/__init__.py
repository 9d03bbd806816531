"""The sync verbs of `blocksync`: one module per verb, each with one click command named `command`."""
