"""The `blocksync` command and its sync verbs: one module per verb, each with one click command named `command`."""
