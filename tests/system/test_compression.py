"""A compressed volume from end to end: sync, remount, deletion, and the checks, by the command line only."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.machines import Machines, content

MIB = 1 << 20


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    yield made
    made.close()


def stored(machines: Machines, mountpoint: Path) -> int:
    """Bytes of segments on the host."""
    folder = machines.home / f"volume-{mountpoint.name}" / "blocks" / "segments"
    return sum(path.stat().st_blocks * 512 for path in folder.glob("*.seg"))


def test_a_compressed_volume_syncs_with_a_raw_one_and_gives_space_back(machines: Machines) -> None:
    machines.serve()
    packed, plain = (
        machines.volume("packed", "--compression", "zstd"),
        machines.volume("plain", "--compression", "none"),
    )
    machines.link(packed, plain)
    noise = random.Random(5)
    (packed / "text.img").write_bytes(noise.randbytes(4 * MIB).hex().encode())  # compressed to half
    (packed / "noise.img").write_bytes(noise.randbytes(2 * MIB + 77))
    (plain / "other.img").write_bytes(noise.randbytes(MIB).hex().encode())
    for root in (packed, plain, packed):
        machines.reconcile(root)
    assert content(packed) == content(plain)
    assert stored(machines, packed) < 8 * MIB < 12 * MIB < stored(machines, plain)

    machines.run("umount", packed)
    machines.remount("packed")
    assert content(packed) == content(plain)
    with (packed / "text.img").open("rb") as file:
        file.seek(3 * MIB + 1000)
        assert file.read(4096) == (plain / "text.img").read_bytes()[3 * MIB + 1000 :][:4096]
    for command in ("scrub", "fsck"):
        machines.run(command, packed)

    before = stored(machines, packed)
    (packed / "text.img").unlink()
    assert json.loads(machines.run("gc", packed, "--json").stdout)["bytes_freed"] >= 3 * MIB
    assert before - stored(machines, packed) >= 3 * MIB
    machines.run("scrub", packed)
