"""Walk an ordinary directory: every entry, each with its evidence; nothing is read but directories and link texts."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from syncer.core.ignore import IGNORE_FILE, IgnoreRules
from syncer.core.model import FileStat, Kind, Meta, RelPath, meta_of
from syncer.core.parts import NO_PARTS, Parts
from syncer.core.paths import PARK_FOLDER, PRIVATE, join, split
from syncer.core.xattrs import Xattrs
from syncer.errors import LocalChangedError
from syncer.local.folder.xattrs import read_entry, reason_left_out
from syncer.local.rules import read_rules
from syncer.local.safe_open import open_directory, tag_of
from syncer.local.syscalls import Status, status
from syncer.ports.localvalues import Problem

_SPECIAL: Final = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


@dataclass(slots=True, kw_only=True)
class Scan:
    """What a walk found. Files have no content yet.

    Attributes:
        parts: What the root takes part in: extended attributes are read, there is an opinion on special bits.
        stats: What can be synced.
        unknown: What could not be read.
        problems: Why, and what is not synced.
        holding: Directories that hold something which is not synced: ignored, or a special file.
        sealed: Those of `unknown` that nothing can have been moved into: other filesystems.
    """

    parts: Parts = NO_PARTS
    stats: list[FileStat] = field(default_factory=list)
    unknown: list[RelPath] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    holding: set[RelPath] = field(default_factory=set)
    sealed: set[RelPath] = field(default_factory=set)


def scan(root: int, rules: IgnoreRules | None = None, *, parts: Parts = NO_PARTS) -> Scan:
    """List everything below a root, the park folder included, the rest of the private folder not.

    Args:
        root: Descriptor of the root.
        rules: What is ignored: it is not reported, and no ignored directory is entered. Completed with the rules of
            the `.blocksyncignore` files that are met.
        parts: What the root takes part in.

    Returns:
        What is there. A directory that can't be listed, an entry that can't be examined and everything on another
        filesystem is in `unknown`.

    Raises:
        OSError: The root itself can't be listed.
    """
    found = Scan(parts=parts)
    rules = IgnoreRules() if rules is None else rules
    home = status(b"", root).device
    pending: list[RelPath] = [RelPath(b"")]
    while pending:
        path = pending.pop()
        try:
            pending += list_directory(root, path, home, rules, found)
        except (OSError, LocalChangedError) as error:
            if not path:
                raise
            _give_up(found, path, error)
    return found


def list_directory(root: int, path: RelPath, home: int, rules: IgnoreRules, found: Scan) -> list[RelPath]:
    """Report one directory's entries; return the directories among them."""
    descriptor = open_directory(root, path)
    try:
        with os.scandir(descriptor) as entries:
            # All names before the first stat: a directory that changes under the listing is read in one go.
            names = sorted(os.fsencode(entry.name) for entry in entries)
        if not path and PRIVATE in names:
            names.remove(PRIVATE)
        if IGNORE_FILE in names or rules.text(path):
            # Unreadable rules make the whole directory unknown: what they hide must not be sent.
            rules.add(path, read_rules(descriptor, path))
        below = [join(path, name) for name in names if _report(descriptor, join(path, name), home, rules, found)]
    finally:
        os.close(descriptor)
    return below if path else [*below, RelPath(PARK_FOLDER)]


def look_at_entries(
    root: int, path: RelPath, names: Sequence[bytes], home: int, rules: IgnoreRules, found: Scan
) -> None:
    """Report some entries of a directory, those of them that are there."""
    descriptor = open_directory(root, path)
    try:
        for name in names:
            if path or name != PRIVATE:
                _report(descriptor, join(path, name), home, rules, found)
    finally:
        os.close(descriptor)


def _report(directory: int, path: RelPath, home: int, rules: IgnoreRules, found: Scan) -> bool:
    """Report one entry; True if it is a directory to be listed."""
    name = path.rpartition(b"/")[2]
    try:
        entry = status(name, directory)
        if rules.matches(path, directory=stat.S_ISDIR(entry.mode)):
            found.holding.add(split(path)[0])
            return False
        if entry.device != home:
            found.unknown.append(path)
            found.sealed.add(path)
            reason = "it lies on another filesystem (a mount point); link that one as a root of its own"
            found.problems.append(Problem(path=path, reason=reason))
            return False
        return _report_kind(directory, path, entry, found)
    except FileNotFoundError:
        return False  # gone between listing and looking: absent is the truth
    except OSError as error:
        _give_up(found, path, error)
        return False


def _report_kind(directory: int, path: RelPath, entry: Status, found: Scan) -> bool:
    kind = stat.S_IFMT(entry.mode)
    if kind in _SPECIAL:
        found.problems.append(Problem(path=path, reason=f"{_SPECIAL[kind]} is not synced", partly=False))
        found.holding.add(split(path)[0])
        return False
    mode = stat.S_IMODE(entry.mode)
    tag = tag_of(entry)
    if kind == stat.S_IFDIR:
        meta = meta_of(mode, special=found.parts.special_modes, xattrs=_xattrs(directory, path, found))
        found.stats.append(FileStat(path=path, kind=Kind.DIRECTORY, meta=meta, tag=tag))
        return True
    if kind == stat.S_IFLNK:
        target = os.readlink(path.rpartition(b"/")[2], dir_fd=directory)
        found.stats.append(FileStat(path=path, kind=Kind.SYMLINK, meta=Meta(), target=target, tag=tag))
        return False
    xattrs = _xattrs(directory, path, found)
    meta = meta_of(mode, special=found.parts.special_modes, mtime_ns=entry.mtime_ns, xattrs=xattrs)
    found.stats.append(FileStat(path=path, kind=Kind.FILE, meta=meta, tag=tag, nlink=entry.nlink))
    return False


def _xattrs(directory: int, path: RelPath, found: Scan) -> Xattrs | None:
    if not found.parts.xattrs:
        return None
    xattrs = read_entry(directory, path.rpartition(b"/")[2])
    reason = reason_left_out(xattrs)
    if reason is not None:
        found.problems.append(Problem(path=path, reason=reason))
    return xattrs


def _give_up(found: Scan, path: RelPath, error: OSError | LocalChangedError) -> None:
    text = error.strerror if isinstance(error, OSError) else error.reason
    found.unknown.append(path)
    found.problems.append(Problem(path=path, reason=f"can't be read ({text}); left alone until it can"))
