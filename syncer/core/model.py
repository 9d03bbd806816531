"""Values that the planner, the two sides and the StateDB share. Pure.

A *node* is a file, directory or symlink that keeps its number (`Nid`) through renames, edits and restarts; a *tree*
maps numbers to nodes. The three trees (local, base, remote) are comparable because `identify` gives the same number
to what is the same thing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NewType, Protocol, TypeAlias

import msgspec

from blockfs.blocks.ids import ObjectHash
from blockfs.xattrs import Carried

Nid = NewType("Nid", int)
"""Number of a node: ours, positive, stable, never reused."""

ROOT: Final = Nid(0)
"""Parent of the top-level nodes. The root itself is no node: it is never created, moved or deleted."""

PARK: Final = Nid(-1)
"""Parent of parked nodes: the private folder `.blocksync/park`. A parked node has no opinion on its place."""

RelPath = NewType("RelPath", bytes)
"""Path relative to the root: segments joined by "/", none empty, "." or ".."; b"" is the root. See `core.paths`."""


class Side(Enum):
    """One of the two replicas."""

    LOCAL = "local"
    REMOTE = "remote"

    __hash__ = object.__hash__  # members are singletons; Enum's own is Python code, run at every look at the books


class Kind(Enum):
    """What a node is. It never changes: a file that becomes a directory is a deletion and a new node."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of a file's bytes, given the share's one block size.

    Attributes:
        size_bytes: Length of the file.
        object_hash: Merkle root over its block ids. Alone it does not name content (docs/design/blocks.md).
    """

    size_bytes: int
    object_hash: ObjectHash


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata that is synced. None means "this side has no opinion", never "reset it".

    Attributes:
        mode: Permission bits 0o777. None for symlinks, and for remote objects that carry none.
        special: The setuid, setgid and sticky bits, 0o7000. None where `mode` is, and on a local side that takes no
            part in their sync (`link --special-modes`).
        mtime_ns: Nanoseconds since the epoch. Only files have it: a directory's changes with every child.
        xattrs: Extended attributes of users; see `core.xattrs`. None for symlinks, and where they are not synced.
    """

    mode: int | None = None
    special: int | None = None
    mtime_ns: int | None = None
    xattrs: Carried | None = None

    @property
    def full_mode(self) -> int | None:
        """All mode bits, as chmod(2) takes them; those of no opinion are unset."""
        return None if self.mode is None else self.mode | (self.special or 0)

    def overlaid(self, new: Meta) -> Meta:
        """With what `new` has an opinion on."""
        return Meta(
            mode=self.mode if new.mode is None else new.mode,
            special=self.special if new.special is None else new.special,
            mtime_ns=self.mtime_ns if new.mtime_ns is None else new.mtime_ns,
            xattrs=self.xattrs if new.xattrs is None else new.xattrs,
        )


NO_META: Final = Meta()

PERMISSION_BITS: Final = 0o777
SPECIAL_BITS: Final = 0o7000  # setuid, setgid, sticky


def meta_of(
    mode: int | None, *, special: bool = True, mtime_ns: int | None = None, xattrs: Carried | None = None
) -> Meta:
    """Metadata with a mode of 12 bits.

    Args:
        mode: As stat(2) and the server say it; what is beyond 0o7777 does not count.
        special: There is an opinion on the setuid, setgid and sticky bits.
        mtime_ns: See Meta.
        xattrs: See Meta.
    """
    if mode is None:
        return Meta(mtime_ns=mtime_ns, xattrs=xattrs)
    bits = mode & SPECIAL_BITS if special else None
    return Meta(mode=mode & PERMISSION_BITS, special=bits, mtime_ns=mtime_ns, xattrs=xattrs)


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """State of one node on one side, or as it should be.

    Attributes:
        parent: Directory that holds it, `ROOT`, or `PARK`.
        name: One path segment.
        kind: Never changes for one nid.
        content: Files only. None for a file whose bytes are not known (it is then frozen).
        target: Symlinks only: the link text.
        meta: What of it is synced.
    """

    parent: Nid
    name: bytes
    kind: Kind
    content: Content | None = None
    target: bytes | None = None
    meta: Meta = NO_META

    @property
    def slot(self) -> tuple[Nid, bytes]:
        """Its place: parent and name. A tree has at most one node in a slot."""
        return (self.parent, self.name)

    def placed(self, parent: Nid, name: bytes) -> Node:
        """This node in another slot."""
        return Node(parent=parent, name=name, kind=self.kind, content=self.content, target=self.target, meta=self.meta)

    def same_payload(self, other: Node) -> bool:
        """Equal kind and equal bytes (files) or link text (symlinks)."""
        return self.kind is other.kind and self.content == other.content and self.target == other.target


Tree: TypeAlias = Mapping[Nid, Node]
"""A side's nodes by number. `ROOT` and `PARK` are not in it."""


class LocalTag(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence that a local file is unchanged: if any field differs, the file is looked at (hashed) again.

    Attributes:
        device: st_dev; for a blockfs root 0, because the mount's device number changes with each mount.
        ino: st_ino. blockfs never reuses one.
        btime_ns: Birth time, 0 where the filesystem does not tell. With `ino` it names the inode.
        size_bytes: st_size.
        mtime_ns: st_mtime_ns.
        ctime_ns: st_ctime_ns; for a blockfs root 0, since `version` says more.
        version: blockfs content_version of the inode; None on an ordinary filesystem.
    """

    device: int
    ino: int
    btime_ns: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    version: int | None = None

    @property
    def inode(self) -> tuple[int, int, int]:
        """What survives a rename and an edit in place: device, inode and birth time."""
        return (self.device, self.ino, self.btime_ns)


class RemoteTag(msgspec.Struct, frozen=True, kw_only=True):
    """Which version of which remote object was seen; every mutating request carries it as its condition.

    Equal tags are the same version. What else `version` and `etag` mean is the remote's affair, and that of the codecs
    and of `core.subtrees`: which of two is the later one its `Ages` tell, what the content is a `RemoteStat` says.

    Attributes:
        uuid: Survives moves and new versions. Empty if the server does not tell.
        version: The server's global serial of this version.
        etag: x_object_hash in hex, for content; compared only for equality.
        size_bytes: Length of the object.
    """

    uuid: str
    version: int
    etag: str
    size_bytes: int

    @property
    def name(self) -> str:
        """Names the version of an object, as text that may be kept."""
        return f"{self.version}.{self.etag}"


Tag: TypeAlias = LocalTag | RemoteTag


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """A moment in the history of a remote. Kept and given back as it is; which of two is the later one `Ages` tell.

    Attributes:
        raw: As the remote wrote it.
    """

    raw: bytes


class Ages(Protocol):
    """How the versions of a remote, and the moments of its history, follow each other. Pure; the remote provides it."""

    def is_later(self, one: RemoteTag | Position, than: RemoteTag | Position) -> bool:
        """Whether `one` was made after `than`. False where that can't be told.

        But it must be right for two versions of one object that this device saw one after the other: a wrong "no" would
        delete both of them (`identify`).
        """
        ...

    def after(self, moment: Position, written: Iterable[RemoteTag]) -> Position:
        """A moment that has these versions of ours, too; it only tells an age, and is no cursor.

        `moment` itself where that can't be told, or where the remote tells by itself that our writes are gone.
        """
        ...

    def last_written(self, moment: Position, since: Position) -> str:
        """UUID of the object that `after` put into a moment; "" if it was not made after `since`, or is not told."""
        ...

    def name(self, one: RemoteTag | Position) -> str:
        """What a person calls it, e.g. "version 12"."""
        ...

    def older(self, expected: str, found: str) -> Exception:
        """What to raise where a remote is older than what is known of it; both in words."""
        ...


def latest(tags: Iterable[RemoteTag], ages: Ages) -> RemoteTag | None:
    """One that no other is later than; None if there is none at all."""
    found: RemoteTag | None = None
    for tag in tags:
        if found is None or ages.is_later(tag, found):
            found = tag
    return found


class FileStat(msgspec.Struct, frozen=True, kw_only=True):
    """One local observation.

    Attributes:
        path: Where it was seen. Entries of `.blocksync/park/` are reported too; nothing else of `.blocksync/` is.
        kind: What it is.
        meta: As the filesystem says; `identify` drops what is not synced for this kind.
        content: Files only. None = not hashed, or it changed while it was read: the node is frozen for this cycle.
        target: Symlinks only.
        tag: The evidence.
        nlink: Hard links; each name of one inode is a node of its own.
    """

    path: RelPath
    kind: Kind
    meta: Meta
    content: Content | None = None
    target: bytes | None = None
    tag: LocalTag
    nlink: int = 1


class RemoteStat(msgspec.Struct, frozen=True, kw_only=True):
    """One remote observation: a row of a complete listing.

    Attributes:
        path: Safe by construction (`protocol.pithos.names` refuses the others).
        kind: From the content type.
        meta: None if the listing does not carry metadata (plain Pithos): then the base's counts while the tag is
            the base's, else it is "no opinion".
        content: Files only.
        target: Symlinks only. None = not fetched: then the base's counts while the tag is the base's, else the
            node is frozen for this cycle.
        tag: The condition for changing it.
        modified_us: Microseconds since the epoch when this version was made; 0 if that is not told. No identity.
        device: Who wrote its content; empty: nobody knows; None: it is not told here (`Remote.writers`). No identity.
    """

    path: RelPath
    kind: Kind
    meta: Meta | None
    content: Content | None = None
    target: bytes | None = None
    tag: RemoteTag
    modified_us: int = 0
    device: str | None = None

    @property
    def is_bare(self) -> bool:
        """It lacks what a listing may not carry: `resolve` fetches that."""
        return self.meta is None or (self.kind is Kind.SYMLINK and self.target is None)

    def __eq__(self, other: object) -> bool:
        """Whether it is the same observation; how much was told of its making does not matter."""
        return isinstance(other, RemoteStat) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[object, ...]:
        return self.path, self.kind, self.meta, self.content, self.target, self.tag


class BaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """The last state of a node on which both sides were observed to agree (StateDB rule A).

    Attributes:
        nid: The node.
        node: What they agreed on.
        local: Evidence for the local side; None if it could not be had.
        remote: Evidence for the remote side; None if it could not be had.
    """

    nid: Nid
    node: Node
    local: LocalTag | None
    remote: RemoteTag | None


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One step on one side. The lists of a plan are ordered; the two sides' lists are independent of each other.

    Attributes:
        side: Where it happens.
        nid: On which node.
        path: Where the node will be afterwards (for `Trash`: where it was), if all earlier actions of this side
            succeeded. For display; the engine asks `Outcome.path`, which knows what really happened.
        expected: The evidence the plan was made with; None for nodes that this side did not have. The engine asks
            `Outcome.tag`, which also knows the effects of our own earlier actions.
    """

    side: Side
    nid: Nid
    path: RelPath
    expected: Tag | None = None


class Mkdir(Action, frozen=True, kw_only=True):
    """Make the directory `name` in `parent`.

    On the remote also: write the marker object of a directory that exists only because something lies below it.
    """

    parent: Nid
    name: bytes
    meta: Meta


class Create(Action, frozen=True, kw_only=True):
    """Make a file (with `content`) or symlink (with `target`) in an empty slot.

    Attributes:
        copy_of: The node whose local version this is (a conflict copy): a local source of the bytes, no transfer.
    """

    parent: Nid
    name: bytes
    kind: Kind
    content: Content | None
    target: bytes | None
    meta: Meta
    copy_of: Nid | None = None


class Update(Action, frozen=True, kw_only=True):
    """Replace a file's content or a symlink's target, and its metadata, where it is.

    Attributes:
        after: A node that must exist on this side first: the conflict copy that keeps what this replaces.
    """

    kind: Kind
    content: Content | None
    target: bytes | None
    meta: Meta
    after: Nid | None = None


class SetMeta(Action, frozen=True, kw_only=True):
    """Change metadata only; None fields stay as they are. Transfers no content."""

    meta: Meta


class Move(Action, frozen=True, kw_only=True):
    """Rename within the side, into an empty slot. Transfers no content.

    A directory takes everything below it along. On the remote, where paths are keys, the engine moves the objects
    below it first, deepest first, and the directory's marker last: a crash in between then resumes by itself. A
    directory without a marker (no tag) and with nothing below it is already gone: then there is nothing to do, and a
    `Mkdir` follows in the plan.
    """

    parent: Nid
    name: bytes


class Park(Action, frozen=True, kw_only=True):
    """Move out of the way, to `path`, which lies in `paths.PARK_FOLDER`. Its name there says which node it is."""


class Trash(Action, frozen=True, kw_only=True):
    """Delete into the trash; a directory only when it is empty of what we don't know.

    Attributes:
        absorbed_by: Not a deletion in a person's eyes: this node is a second one of that node, which stays.
        after: A node that must exist on this side first: the conflict copy of what this was here.
    """

    kind: Kind
    absorbed_by: Nid | None = None
    after: Nid | None = None


class Adopt(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides already are what the target says, and the base row is missing or older: record it. No I/O."""

    nid: Nid


class NoteKind(Enum):
    """Why a node was treated in a way that its owner should be able to read."""

    CONFLICT = "conflict"  # a conflict copy was made
    RENAMED = "renamed"  # two nodes wanted one name; this one lost it
    EDIT_WINS = "edit-wins"  # deleted on one side, changed on the other: kept
    REMOTE_PLACE = "remote-place"  # moved differently on both sides
    CYCLE = "cycle"  # moves that would have made a directory its own ancestor
    KEPT = "kept"  # a deleted directory that survives for what is below it
    UNKNOWN = "unknown"  # unreadable or changing: left alone in this cycle
    WAITS = "waits"  # needs the place of a node that is left alone
    UNHOLDABLE = "unholdable"  # one side can't have this name: left alone (exit 3)


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """One remark on one path. `text` is complete: what, and what will happen.

    Attributes:
        kind: Why.
        path: Where.
        text: For a person.
        copy_nid: Of a conflict: the node that is the conflict copy.
    """

    kind: NoteKind
    path: RelPath
    text: str
    copy_nid: Nid | None = None


class Deletions(msgspec.Struct, frozen=True, kw_only=True):
    """What the safety stop judges, per side.

    Attributes:
        side: Where nodes would go to the trash.
        nodes_before: Nodes on this side now (parked ones included).
        nodes_after: Nodes on this side if the plan is done.
        deleted: Trash actions, without those that only unify two nodes of equal content. Moves don't count.
    """

    side: Side
    nodes_before: int
    nodes_after: int
    deleted: int


class Identified(msgspec.Struct, frozen=True, kw_only=True):
    """One side's observations as a tree.

    Attributes:
        tree: What the side has. Nodes that could not be read are in it as the base knows them.
        tags: Evidence of each observed node, directories reduced to their identity (`identify.evidence`).
        frozen: Nodes that must be left alone in this cycle, with the reason. May name base nodes not in `tree`.
        opaque: Frozen directories (and the placeholder of something unreadable) into which nothing may be put.
        implicit: Remote directories without a marker object: they exist only because of what lies below them.
        holding: Directories with something in them that is not synced (ignored, special): they must not go away.
        notes: Observations that no tree can hold.
    """

    tree: Tree
    tags: Mapping[Nid, Tag]
    frozen: Mapping[Nid, str] = msgspec.field(default_factory=dict)
    opaque: frozenset[Nid] = frozenset()
    implicit: frozenset[Nid] = frozenset()
    holding: frozenset[Nid] = frozenset()
    notes: tuple[Note, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one cycle will do.

    Attributes:
        target: The tree both sides should have (frozen nodes excepted).
        local: Ordered actions of the local side.
        remote: Ordered actions of the remote side.
        adopt: Nodes that only need a base row.
        forget: Base rows of nodes that neither side has any more.
        untrack: Base rows that must go before anything is done: the nodes are made anew on one side, and a crash
            half-way must not look like their deletion there.
        notes: Remarks, sorted by path.
        deletions: For the safety stop: local, remote.
        digest: Names the deletions of this plan: hex, no times in it. The same state gives the same digest.
        local_state: The local side as the actions presuppose it: `Identified`, with relabelled nodes.
        remote_state: The remote side, likewise. `Outcome` starts from both.
    """

    target: Tree
    local: tuple[Action, ...]
    remote: tuple[Action, ...]
    adopt: tuple[Adopt, ...]
    forget: tuple[Nid, ...]
    untrack: tuple[Nid, ...]
    notes: tuple[Note, ...]
    deletions: tuple[Deletions, Deletions]
    digest: str
    local_state: Identified
    remote_state: Identified

    @property
    def is_empty(self) -> bool:
        """Nothing to do on either side (base rows may still be written)."""
        return not self.local and not self.remote
