"""Relative paths, the private folder, and which names a side can hold. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from syncer.core.model import PARK, ROOT, Nid, RelPath, Tree
from syncer.errors import UnsafeNameError

PRIVATE: Final = b".blocksync"
"""Reserved at the top of both sides; nothing in it is synced."""

PARK_FOLDER: Final = PRIVATE + b"/park"
"""Where nodes wait while their place is needed by another one."""

LAN_KEY: Final = PRIVATE + b"/lan-key"
"""On the server: the object with the key of the share (`peer.sharekey`)."""

NAME_BYTES: Final = 255
"""NAME_MAX of every Linux filesystem we meet. A longer segment can't exist locally."""

TARGET_BYTES: Final = 4095  # of a symlink: PATH_MAX without the NUL


def rel_path(raw: bytes) -> RelPath:
    """Accept bytes from outside as a path.

    Raises:
        UnsafeNameError: Absolute, an empty, "." or ".." segment, a NUL byte, a segment over 255 bytes.
    """
    if raw == b"":
        return RelPath(raw)
    for segment in raw.split(b"/"):
        reason = unsafe_segment(segment)
        if reason is not None:
            raise UnsafeNameError(raw, reason)
    return RelPath(raw)


def unsafe_segment(segment: bytes) -> str | None:
    """Why `segment` can't be a name in a directory, or None if it can."""
    if segment in (b"", b".", b".."):
        return "it has an empty segment, is absolute or ends in a slash" if not segment else "it contains . or .."
    if b"\0" in segment:
        return "it contains a NUL byte"
    if b"/" in segment:
        return "a name contains a slash"
    if len(segment) > NAME_BYTES:
        return f"a segment is longer than {NAME_BYTES} bytes"
    return None


def target_objection(target: bytes) -> str | None:
    """Why no symlink can have this text; None if one can. Whoever writes to the share chose it."""
    if not target:
        return "it is empty"
    if b"\0" in target:
        return "it contains a NUL byte"
    return f"it is longer than {TARGET_BYTES} bytes" if len(target) > TARGET_BYTES else None


def is_private(path: RelPath) -> bool:
    """True for the private folder and everything in it."""
    return path == PRIVATE or path.startswith(PRIVATE + b"/")


def is_hidden(path: RelPath) -> bool:
    """Whether an object of this name on the server is ours, and told to nobody: all private ones but parked nodes."""
    return is_private(path) and not is_parked(path)


def is_reserved(path: RelPath) -> bool:
    """Whether no request may name an object so: hidden ones, but for the share's key and the directory it is in."""
    return is_hidden(path) and path not in {PRIVATE, LAN_KEY}


def local_objection(name: bytes) -> str | None:
    """Why an ordinary Linux directory can't hold `name`; None if it can."""
    return unsafe_segment(name)


def remote_objection(name: bytes) -> str | None:
    """Why a Pithos container can't hold `name`; None if it can. Object names are UTF-8 text."""
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        return "it is not UTF-8, and object names on the server must be"
    if not text.isprintable() and any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
        return "it contains a control character, which a listing can't carry safely"
    return unsafe_segment(name)


def cut_name(name: bytes, limit: int) -> bytes:
    """The first `limit` bytes, fewer if that would split a UTF-8 character (at most 3 continuation bytes)."""
    if len(name) <= limit:
        return name
    end = limit
    while end > limit - 4 and name[end] & 0xC0 == 0x80:
        end -= 1
    return name[:end] if name[end] & 0xC0 != 0x80 else name[:limit]


def shown(name: bytes) -> str:
    """A name or path as messages show it; what is not UTF-8 is escaped."""
    return name.decode("utf-8", "backslashreplace")


def join(parent: RelPath, name: bytes) -> RelPath:
    """Path of `name` in `parent`."""
    return RelPath(parent + b"/" + name) if parent else RelPath(name)


def split(path: RelPath) -> tuple[RelPath, bytes]:
    """Parent path and last segment. The root has neither: don't ask."""
    assert path
    parent, _, name = path.rpartition(b"/")
    return RelPath(parent), name


def ancestors(path: RelPath) -> Iterator[RelPath]:
    """The directories above `path`, nearest first, without the root."""
    at = path.rfind(b"/")
    while at > 0:
        yield RelPath(path[:at])
        at = path.rfind(b"/", 0, at)


def park_name(nid: Nid, name: bytes, attempt: int = 0) -> bytes:
    """Name of a parked node: its number, and as much of its name as fits (a crash may leave nothing else of it).

    Args:
        nid: The node.
        name: The name it has.
        attempt: How many such names were found taken, by the torn half of an earlier remote move.
    """
    prefix = b"%d-" % nid + b"~" * attempt
    return prefix + cut_name(name, NAME_BYTES - len(prefix))


def is_parked(path: bytes) -> bool:
    """Whether a path is in the park."""
    return path.startswith(PARK_FOLDER + b"/")


def parse_park_name(raw: bytes) -> tuple[Nid | None, bytes]:
    """Number and name of a parked node; number None if it is not one of ours."""
    number, dash, name = raw.partition(b"-")
    if dash and number.isdigit() and name:
        return Nid(int(number)), name
    return None, raw


def path_in(tree: Tree, nid: Nid) -> RelPath | None:
    """Path of a node in a tree; None if it is not connected to the root (or in a cycle)."""
    segments: list[bytes] = []
    seen: set[Nid] = set()
    while nid != ROOT:
        if nid == PARK:
            segments.append(PARK_FOLDER)
            break
        node = tree.get(nid)
        if node is None or nid in seen:
            return None
        seen.add(nid)
        segments.append(node.name)
        nid = node.parent
    return RelPath(b"/".join(reversed(segments)))


def paths_of(tree: Tree) -> dict[Nid, RelPath]:
    """Paths of all nodes connected to the root or the park, in O(nodes); the others are left out."""
    paths: dict[Nid, RelPath] = {ROOT: RelPath(b""), PARK: RelPath(PARK_FOLDER)}
    broken: set[Nid] = set()
    for nid in tree:
        trail: list[Nid] = []
        on_trail: set[Nid] = set()
        at = nid
        while at not in paths and at not in broken:
            node = tree.get(at)
            if node is None or at in on_trail:
                broken.add(at)
                break
            trail.append(at)
            on_trail.add(at)
            at = node.parent
        for member in reversed(trail):
            parent = paths.get(tree[member].parent)
            if parent is None:
                broken.add(member)
            else:
                paths[member] = join(parent, tree[member].name)
    del paths[ROOT], paths[PARK]
    return paths
