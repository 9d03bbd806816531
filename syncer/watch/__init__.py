"""The daemon: notice changes, decide when to look, run cycles, tell how it stands. Above the engine, below the CLI."""
