"""What a golden volume holds, as a manifest that can be compared."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Any

_SAMPLE = 64 << 10

Manifest = dict[str, dict[str, Any]]
"""Path relative to the root → what `lstat` and reading say. Bytes of a name that are no UTF-8 are lone surrogates."""


def describe(root: Path) -> Manifest:
    """Everything below a mounted volume's root, the root itself as ".", and what is in its snapshots.

    The syncer's private folder is left out.
    """
    found: Manifest = {}
    links: dict[int, list[str]] = {}
    paths = [root]
    for start in (root, root / ".snapshots"):  # no listing of the root has it; versions before snapshots have none
        for folder, folders, names in os.walk(start):
            if Path(folder) == root and ".blocksync" in folders:
                folders.remove(".blocksync")
            paths += [Path(folder, name) for name in (*folders, *names)]
    for path in sorted(paths):
        name = os.path.relpath(path, root)
        found[name] = _entry(path)
        links.setdefault(path.lstat().st_ino, []).append(name)
    for same in links.values():
        for name in same:
            if len(same) > 1:
                found[name]["links"] = same
    return found


def _entry(path: Path) -> dict[str, Any]:
    status = path.lstat()
    entry: dict[str, Any] = {
        "kind": stat.filemode(status.st_mode)[0],
        "mode": stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
        "nlink": status.st_nlink,
        "mtime_ns": status.st_mtime_ns,
    }
    if stat.S_ISLNK(status.st_mode):
        return entry | {"target": os.readlink(path)}
    entry["xattrs"] = {name: os.getxattr(path, name).hex() for name in sorted(os.listxattr(path))}
    if stat.S_ISREG(status.st_mode):
        entry |= {"size": status.st_size, "sha256": _sha256(path)}
    return entry


def _sha256(path: Path) -> str:
    """Digest of a file; of one that reaches past 1 TiB only the first 64 KiB after each TiB count: it is sparse."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for start in range(0, max(path.lstat().st_size, 1), 1 << 40):
            file.seek(start)
            digest.update(file.read(_SAMPLE) if path.lstat().st_size > 1 << 40 else file.read())
    return digest.hexdigest()
