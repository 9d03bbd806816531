"""Which program this is: the release, and the commit that an installed one was built of."""

from __future__ import annotations

import importlib.metadata
from importlib import resources

DISTRIBUTION = "blocksync"


def release() -> str:
    """The version, which stands in setup.cfg and nowhere else."""
    return importlib.metadata.version(DISTRIBUTION)


def commit() -> str | None:
    """The commit that this was built of, `-dirty` behind it if there was more; None in a clone, or without git."""
    try:
        return resources.files("blockfs").joinpath("BUILD").read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None


def build_text() -> str:
    """Both, in a few words."""
    built = commit()
    return release() if built is None else f"{release()} (build {built})"
