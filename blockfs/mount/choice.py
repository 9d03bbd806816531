"""The names of the front-ends. Pure, and light: the command line knows them before anything is loaded."""

from __future__ import annotations

from enum import StrEnum


class Choice(StrEnum):
    """What `blocksync mount --frontend` takes."""

    AUTO = "auto"
    KERNEL = "kernel"
    PYFUSE3 = "pyfuse3"
