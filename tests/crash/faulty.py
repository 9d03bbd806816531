"""A mount with bugs: `python -m tests.crash.faulty VOLUME MOUNTPOINT` is `blocksync mount`, but for some names.

What is looked for as "bug-look" meets an error that nobody expects. What would be made as "bug-half" meets one in the
middle of the change: some of its rows are in the change set, others are not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Final

from blockfs.engine.names.inodes import Inodes
from blockfs.mount.daemon import run_daemon
from blockfs.mount.process import MountOptions
from blockfs.runtime.notify import ServiceManager
from blockfs.tree.store import Tree
from tests.kit.chosen import frontend

LOOK: Final = b"bug-look"
HALF: Final = b"bug-half"


def failing(whole: Callable[..., Any], mark: bytes, *, half: bool) -> Callable[..., Any]:
    """The same, but for one name; after its work if `half`."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        is_marked = any(isinstance(one, bytes) and mark in one for one in arguments)
        done = whole(*arguments, **keywords) if half or not is_marked else None
        if is_marked:
            raise AssertionError("a bug")
        return done

    return call


def main() -> None:
    """Mount, and return when it is ready."""
    for owner, method, mark, half in (
        (Inodes, "child", LOOK, False),
        (Tree, "link", HALF, True),
        (Tree, "set_xattr", HALF, True),
    ):
        setattr(owner, method, failing(getattr(owner, method), mark, half=half))
    volume, mountpoint = (os.fsencode(argument) for argument in sys.argv[1:3])
    run_daemon(MountOptions(volume=volume, mountpoint=mountpoint, frontend=frontend()), ServiceManager(None))


if __name__ == "__main__":
    main()
