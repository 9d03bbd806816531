"""The demo's last part: a machine gets its blocks from its neighbour on the same network, and not from the server.

The network is one of namespaces, with a bridge of its own: nothing leaves this machine, and nothing of it stays.
"""

from __future__ import annotations

import filecmp
from collections.abc import Callable
from pathlib import Path
from typing import Final

from scripts import images
from tests.kit.netns import Lan, why_not
from tests.kit.program import SHARE_BLOCK, Machine, Site, is_there

SERVER_MBIT_S: Final = 100.0  # as servers often are that are somewhere else
MOST_SHARE: Final = 10
"""This part may come from the server. It is asked for a 32nd at once (docs/design/board.md, section 3), and for some
more where a machine is busy with other things."""


def first_window(blocks: int) -> int:
    """So many of these blocks the server is asked for before it is known what neighbours have."""
    return max(1, min(blocks // 32, (4 << 20) // SHARE_BLOCK))


class NotAsPromisedError(Exception):
    """The blocks came from somewhere else."""


def show(home: Path, image: Path, say: Callable[[str], None]) -> dict[str, float]:
    """Let two machines sync an image, and say who gave the second one how many blocks.

    Args:
        home: Folder that is made, for what the machines have.
        image: A sparse file.
        say: Takes a line for the user.

    Returns:
        Blocks from both, and those of the server; nothing where it can't be shown.

    Raises:
        NotAsPromisedError: The server gave more than it should.
    """
    reason = why_not()
    if reason is not None:
        say(f"two machines on one network are not shown: {reason}")
        return {}
    with Lan(3, home=home) as lan:
        server = Site(lan.nodes[0])
        first, second = (Machine(node, server) for node in lan.nodes[1:])
        images.copy_sparse(image, first.root / image.name)
        first("reconcile", first.root)
        first.watch()
        first.until("peers", is_there)
        server.node.shape(SERVER_MBIT_S)
        told = second.json("reconcile", second.root)
        if not filecmp.cmp(first.root / image.name, second.root / image.name, shallow=False):
            raise NotAsPromisedError("the second machine's image is another one")
        near, far, took_s = told["blocks_from_peers"], told["blocks_received"], told["seconds"]
        which = " (its first window)" if far <= first_window(near + far) else ""
        say(
            f"two machines on one network, the server behind a line of {SERVER_MBIT_S:g} Mbit/s:\n"
            f"{image.name} came as {near:,} blocks from the neighbour and {far:,} from the server{which}, "
            f"{took_s:.1f} s"
        )
        if far > (near + far) // MOST_SHARE:
            raise NotAsPromisedError(f"{far:,} of {near + far:,} blocks came from the server")
        return {"near_blocks": float(near + far), "near_blocks_of_server": float(far)}
