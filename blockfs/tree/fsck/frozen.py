"""fsck of the border between live files and snapshots: all below `SNAPSHOTS_INO` is frozen, and nothing else is.

An inode that damage took and a step before this one made anew is live at first, wherever it is. In a snapshot it could
be written to, and would be journalled as if it were a file of the user's. So it is frozen again: by its place, and as a
copy of what the table of copies says. The other way round, a live inode whose row became that of a frozen one thaws.
What is being restored grows in `SNAPSHOTS_INO`, too, under a name that can't be asked for, and is live.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from blockfs.runtime.output import shown
from blockfs.tree.fsck.draft import Draft
from blockfs.tree.fsck.findings import Problem
from blockfs.tree.schema import (
    META_HOT,
    SNAPSHOTS_INO,
    TOP_INOS,
    UNFINISHED_PREFIX,
    Inode,
    Table,
    decode_u64,
    split_ino_key,
    u64,
)

_Name = tuple[int, bytes, int]  # parent, name, child


def keep_apart(draft: Draft) -> None:
    """Let no name lead over the border. Names and their reverse rows must agree.

    From above: a name in a directory that is itself on the wrong side is looked at again when that is settled. An inode
    changes sides once; after that it is the name that goes, so this ends.
    """
    changed: set[int] = set()
    while names := list(_names_over_the_border(draft)):
        children = {child for _, _, child in names}
        originals = originals_of(draft, children | {parent for parent, _, _ in names})
        for name in [name for name in names if name[0] not in children] or names:
            if _leads_over(draft, name):
                _settle(draft, name, originals, changed)


def originals_of(draft: Draft, inos: Collection[int]) -> dict[int, int]:
    """Those of these inodes that are recorded as copies in a snapshot, and of what."""
    if not inos:
        return {}
    found = {}
    for key, value in draft.rows.scan(Table.COPIES):
        ino = decode_u64(value)
        if ino in inos:
            found[ino] = decode_u64(key[8:])
    return found


def freeze(draft: Draft, inode: Inode, original: int | None) -> None:
    """Make an inode read-only; None: it is not known what it is a copy of, so of something that never was.

    Its version stays one that nothing else has: it can't be said which state of the original it is. What was staged for
    it was written after the instant; it is kept beside, as all that the tree does not name.
    """
    origin = draft.new_ino() if original is None else original
    draft.found(Problem.SNAPSHOT, inode.ino, "live, but in a snapshot", f"read-only, as the copy of {origin}")
    for generation in list(draft.generations(inode.ino)):
        draft.drop_generation(generation)
    for key, _ in list(draft.rows.scan(Table.META, META_HOT + u64(inode.ino))):
        draft.rows.delete(Table.META, key)
    draft.freeze(inode, origin)


def _names_over_the_border(draft: Draft) -> Iterator[_Name]:
    last, is_frozen = 0, False
    for key, row in draft.rows.scan(Table.DENTRIES):
        parent, name = split_ino_key(key)
        if parent != last:
            last, is_frozen = parent, _is_frozen(draft, parent)
        if _is_frozen(draft, decode_u64(row)) != is_frozen and not _is_unfinished(parent, name):
            yield parent, name, decode_u64(row)


def _leads_over(draft: Draft, name: _Name) -> bool:
    parent, text, child = name
    return draft.lookup(parent, text) == child and _is_frozen(draft, parent) != _is_frozen(draft, child)


def _settle(draft: Draft, name: _Name, originals: dict[int, int], changed: set[int]) -> None:
    parent, _, child = name
    above, below = draft.inode(parent), draft.inode(child)
    assert above is not None
    assert below is not None
    if above.is_frozen:
        names = _live_names(draft, child)
        if child in changed or (names and child not in originals):
            _take_away(draft, name, "a live file has a name in a snapshot")
            return
        freeze(draft, below, originals.get(child))
        changed.add(child)
        for other in names:
            _take_away(draft, other, "what is in a snapshot has a name outside")
    elif _is_lost_copy(draft, parent, originals, changed):
        freeze(draft, above, originals.get(parent))
        changed.add(parent)
    elif child in changed or child in originals or len(_live_names(draft, child)) < len(list(draft.places(child))):
        _take_away(draft, name, "what is in a snapshot has a name outside")
    else:
        draft.found(Problem.SNAPSHOT, child, "read-only, but in no snapshot", "writable")
        draft.put_inode(replace(below, origin=0), content_changed=True)
        changed.add(child)


def _is_lost_copy(draft: Draft, ino: int, originals: dict[int, int], changed: set[int]) -> bool:
    """Whether a live directory that holds frozen inodes was one of theirs: it has no place outside."""
    if ino in TOP_INOS or ino in changed or _live_names(draft, ino):
        return False
    return ino in originals or next(draft.places(ino), None) is None


def _take_away(draft: Draft, name: _Name, what: str) -> None:
    parent, text, child = name
    path = draft.path_in(parent, text)
    draft.found(Problem.SNAPSHOT, child, f"{what}: {shown(text)} in {parent}", "name removed")
    draft.lost(child, "one of its names", path=path)
    draft.unlink(parent, text, child)


def _live_names(draft: Draft, ino: int) -> list[_Name]:
    return [(parent, name, ino) for parent, name in draft.places(ino) if not _is_inside(draft, parent)]


def _is_inside(draft: Draft, ino: int) -> bool:
    """Whether a directory is frozen, or one above it: then it will be."""
    seen = set()
    while ino not in seen and not _is_frozen(draft, ino):
        seen.add(ino)
        place = next(draft.places(ino), None)
        if place is None or _is_unfinished(*place):
            return False
        ino = place[0]
    return ino not in seen


def _is_frozen(draft: Draft, ino: int) -> bool:
    inode = draft.inode(ino)
    return inode is not None and inode.is_frozen


def _is_unfinished(parent: int, name: bytes) -> bool:
    return parent == SNAPSHOTS_INO and name.startswith(UNFINISHED_PREFIX)
