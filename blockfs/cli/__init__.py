"""Volume commands of `blocksync`: one module per verb, each with one click command named `command`."""
