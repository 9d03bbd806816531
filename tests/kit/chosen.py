"""The front-end that this run's tests ask for, for mounts that are not made by the command line."""

from __future__ import annotations

import os

from blockfs.mount.choice import Choice


def frontend() -> Choice:
    """As `blocksync mount` takes it from the environment."""
    return Choice(os.environ.get("BLOCKSYNC_FRONTEND", Choice.AUTO))
