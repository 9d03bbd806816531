"""What a user who is not root gets out of a killed run's temp file. A program of its own: rights can't be had back.

`python -m tests.unit.syncer.local.as_nobody FOLDER MODE` pulls a file into a new root in FOLDER, whose temp file,
complete and of that octal mode, is there already. Prints how many blocks it fetched, and the file's mode.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import trio

from syncer.core.model import Meta, RelPath
from syncer.local.folder.assembly import temp_name
from syncer.ports.localvalues import Install
from tests.unit.syncer.local.folders import BLOCK, Elsewhere, Place, done, new_place, noise, staged_by, wanted

NOBODY: Final = 65534


def main() -> None:
    """See the module."""
    folder, mode = sys.argv[1], int(sys.argv[2], 8)
    os.chdir(folder)  # from here on by relative paths: the way there may be root's
    become_nobody()
    place = new_place(Path())
    served, found = trio.run(_pull, place, mode)
    print(served, f"{found:o}")


def become_nobody() -> None:
    """Give up root's rights, and have the working directory."""
    if os.geteuid() == 0:
        os.chown(".", NOBODY, NOBODY)
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    assert os.geteuid() != 0


async def _pull(place: Place, mode: int) -> tuple[int, int]:
    data = noise(1, 5 * BLOCK + 7)
    elsewhere = Elsewhere(data)
    order = wanted(b"file", data, elsewhere.fetch, meta=Meta(mode=mode))
    left = place.path / ".blocksync/tmp" / os.fsdecode(temp_name(order.path, order.content, 0))
    left.write_bytes(data)
    left.chmod(mode)
    root = place.open()
    try:
        staged = await staged_by(root, order)
        await done(root, Install(path=RelPath(b"file"), staged=staged))
    finally:
        await root.close()
    found = (place.path / "file").stat().st_mode & 0o7777
    (place.path / "file").chmod(0o400)
    assert place.visible() == {"file": data}
    assert not list((place.path / ".blocksync/tmp").iterdir())
    return elsewhere.served, found


if __name__ == "__main__":
    main()
