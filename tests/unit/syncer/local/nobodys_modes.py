"""How a user who is not root changes metadata of a file that is not theirs to read. A program of its own, as as_nobody.

`python -m tests.unit.syncer.local.nobodys_modes FOLDER` makes a root in FOLDER with a file of mode 0, as another device
may have made it, sets its time and then its mode. Prints the mode after each.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from syncer.core.model import Meta
from syncer.local.folder.root import LocalDirectory
from syncer.ports.localvalues import ChangeMeta
from tests.unit.syncer.local.as_nobody import become_nobody
from tests.unit.syncer.local.folders import P, done, new_place, tag, with_root


def main() -> None:
    """See the module."""
    os.chdir(sys.argv[1])
    become_nobody()
    place = new_place(Path())
    path = place.path / "f"
    path.write_bytes(b"data")

    async def work(root: LocalDirectory) -> None:
        last = await tag(root, b"f")
        for meta in (Meta(mode=0), Meta(mtime_ns=77), Meta(mode=0o604)):
            last = (await done(root, ChangeMeta(path=P(b"f"), meta=meta, expect=last))).tag
            print(f"{path.stat().st_mode & 0o7777:o}")

    with_root(place, work)
    assert path.stat().st_mtime_ns == 77
    assert place.visible() == {"f": b"data"}


if __name__ == "__main__":
    main()
