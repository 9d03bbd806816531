"""Twins of large files, by the command line: `status` tells the room that they hold, and they go when it is short."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.syncing import BLOCK, Sync
from tests.kit.hostfs import MIB, reflinking

SIZE = 64 * MIB
"""From here on a file has a twin."""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Path]:
    """A filesystem with reflinks, which says how full it is."""
    with reflinking(tmp_path, "xfs") as path:
        yield path


def twins(sync: Sync, root: Path) -> dict[str, Any]:
    """What `status --json` tells."""
    (told,) = sync("status", root, "--json")
    found: dict[str, Any] = told["twins"]
    return found


def change(path: Path, at: int, data: bytes) -> None:
    with path.open("rb+") as file:
        os.pwrite(file.fileno(), data, at)
        os.fsync(file.fileno())


def test_status_tells_the_room_that_twins_hold_and_they_go_when_it_is_short(sync: Sync, host: Path) -> None:
    root = host / "root"
    root.mkdir()
    sync("link", root, sync.url, sync.opens, sync.token_file)
    image = root / "image"
    image.write_bytes(os.urandom(BLOCK) * (SIZE // BLOCK))
    sync.reconcile(root)
    assert twins(sync, root) == {"files": 1, "bytes": 0}  # all is shared
    change(image, 5 * BLOCK, os.urandom(2 * BLOCK))
    assert twins(sync, root) == {"files": 1, "bytes": 2 * BLOCK}
    found = sync.reconcile(root)
    assert found["bytes_read_local"] < MIB
    assert twins(sync, root) == {"files": 1, "bytes": 0}

    change(image, 9 * BLOCK, os.urandom(BLOCK))
    with (host / "filler").open("wb") as filler:
        room = os.statvfs(host)
        left = room.f_blocks * room.f_frsize // 32  # 3 %
        os.posix_fallocate(filler.fileno(), 0, room.f_bavail * room.f_frsize - left)
    found = sync.reconcile(root)
    assert found["bytes_read_local"] >= SIZE  # the price
    assert found["pushed"] == 1
    assert twins(sync, root) == {"files": 0, "bytes": 0}
    assert not list((root / ".blocksync/twins").glob("*"))

    (host / "filler").unlink()
    change(image, 11 * BLOCK, os.urandom(BLOCK))
    sync.reconcile(root)
    assert twins(sync, root) == {"files": 1, "bytes": 0}
    (root / "small").write_bytes(b"so that not all is gone")
    image.unlink()
    assert twins(sync, root) == {"files": 1, "bytes": SIZE}  # all of a file that is gone, until the next cycle
    sync.reconcile(root)
    assert twins(sync, root) == {"files": 0, "bytes": 0}
    sync("unlink", root)
