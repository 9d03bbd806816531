"""Volume commands of `blocksync`: one module per verb, each with one click command named `command`."""

from typing import Final

COMMANDS: Final = ("init", "mount", "umount", "clone", "snapshot", "flush", "stats", "gc", "fsck", "scrub")
"""The verbs, in the order in which help lists them. Modules are loaded when their verb is used: a command that asks a
mount for figures need not import a FUSE library."""
