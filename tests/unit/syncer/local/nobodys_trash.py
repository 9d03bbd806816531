"""What a user who is not root gets back of an unseen version. A program of its own: rights can't be had back.

`python -m tests.unit.syncer.local.nobodys_trash FOLDER` makes a root in FOLDER with two versions in its trash that
nobody has seen: one that can't be read and whose name is taken, one whose folder can't be written to. Prints `back`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.unit.syncer.local.as_nobody import become_nobody
from tests.unit.syncer.local.folders import NO_BASE, new_place, with_root


def main() -> None:
    """See the module."""
    os.chdir(sys.argv[1])
    become_nobody()
    place = new_place(Path())
    (place.path / "taken").write_bytes(b"theirs")
    (place.path / "d").mkdir()
    for at, (origin, data) in enumerate({"taken": b"unreadable", "d/file": b"homeless"}.items(), 1):
        entry = place.path / f".blocksync/trash/1-0000000{at}-1.1.1.1.0"
        entry.mkdir()
        (entry / "item").write_bytes(data)
        (entry / "origin").symlink_to(origin)
        if origin == "taken":
            (entry / "item").chmod(0)
    (place.path / "d").chmod(0o500)
    with_root(place, lambda root: root.observe(NO_BASE))
    (place.path / "d").chmod(0o700)
    for path in place.path.iterdir():
        if path.is_file():
            path.chmod(0o600)
    assert sorted(place.visible().values()) == [b"homeless", b"theirs", b"unreadable"], place.visible()
    assert not list((place.path / ".blocksync/trash").iterdir())
    print("back")


if __name__ == "__main__":
    main()
