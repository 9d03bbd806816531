"""What a trial has: a network that is whole, machines of a share of its own, and data that nobody has yet."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from tests.kit.program import BLOCKSYNC, SHARE_BLOCK, Machine, is_there
from tests.kit.village import Village

MIB: Final = 1 << 20
SLOW_MBIT_S: Final = 4.0
"""Of the server's cable: what goes by it is seen, and neighbours are faster on any machine, however busy it is."""

Trial = Callable[["Ground"], None]


class Ground:
    """Where one trial takes place."""

    def __init__(self, village: Village, home: Path, name: str) -> None:
        self.village = village
        self.home = home
        self.name = name
        self.server = village.lan.nodes[0]

    def machines(self, count: int, *, container: str = "") -> list[Machine]:
        """So many machines of one share."""
        return self.village.household(self.home, count, container or self.name)

    def seed(self, machine: Machine, **files: int) -> dict[str, bytes]:
        """Files of so many bytes, on the server and this machine, which watches; then the server's cable is slow."""
        made = put(machine, **files)
        machine("reconcile", machine.root)
        machine.watch()
        machine.until("peers", is_there)
        self.server.shape(SLOW_MBIT_S)
        return made


def put(machine: Machine, **files: int) -> dict[str, bytes]:
    """Write files of so many bytes that nobody can know."""
    made = {name: os.urandom(size) for name, size in files.items()}
    for name, data in made.items():
        (machine.root / name).write_bytes(data)
    return made


def has(machine: Machine, files: dict[str, bytes]) -> bool:
    """Whether it has exactly these files."""
    there = {path.name for path in machine.root.iterdir() if not path.name.startswith(".")}
    return there == set(files) and all((machine.root / name).read_bytes() == data for name, data in files.items())


def pulled(machine: Machine, files: dict[str, bytes], *, share: float = 0.25) -> dict[str, Any]:
    """Reconcile: it gets these files, and at least such a share of their blocks from peers. Returns the summary."""
    summary = machine.json("reconcile", machine.root)
    assert has(machine, files)
    blocks = sum(-(-len(data) // SHARE_BLOCK) for data in files.values())
    assert summary["blocks_from_peers"] + summary["blocks_received"] >= blocks
    assert summary["blocks_from_peers"] >= share * blocks, summary
    return summary


def on_volume(ground: Ground, number: int, block_size: str = "64KiB") -> Machine:
    """A machine whose root is a volume of this block size, in the network's node of this number, from 1 on."""
    node = ground.village.lan.nodes[number]
    home = ground.home / f"m{node.number}"
    point = home / "mounted"
    point.mkdir(parents=True)
    node.run(BLOCKSYNC, "init", home / "volume", "--block-size", block_size)
    node.run(BLOCKSYNC, "mount", home / "volume", point)
    return Machine(node, ground.village.site, ground.name, root=point, home=home)


def put_away(machine: Machine) -> None:
    """End all that runs on a machine of `on_volume`, its mount last."""
    machine.node.namespace.kill_all()
    subprocess.run(["umount", "-l", machine.root], check=True)


def damaged(machine: Machine, texts: Iterable[bytes]) -> int:
    """Spoil the blocks of its volume that begin with these bytes. Returns how many were found."""
    count = 0
    for segment in (machine.node.home / "volume" / "blocks" / "segments").glob("*.seg"):
        raw = segment.read_bytes()
        with segment.open("r+b") as file:
            for text in texts:
                if (found := raw.find(text)) >= 0:
                    file.seek(found)
                    file.write(b"damage!")
                    count += 1
    return count
