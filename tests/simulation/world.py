"""Two replicas, both keyed by path, and the users who work on them. No planner in here: this is the ground truth.

The local replica renames a directory in one step. The remote one is an object store: paths are keys, a directory is
a marker object (and exists without one while something lies below it), so renaming one is many steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from copy import copy
from typing import ClassVar, TypeAlias

import msgspec
from msgspec.structs import replace

from blockfs.blocks.ids import ObjectHash
from syncer.core.model import Content, FileStat, Kind, LocalTag, Meta, RelPath, RemoteStat, RemoteTag, Side, meta_of
from syncer.core.paths import PARK_FOLDER

NAMES = (b"a", b"b", b"c.x")
_LOCAL: dict[tuple[object, ...], FileStat] = {}  # observations are values, and most come again in other seeds
_REMOTE: dict[tuple[object, ...], RemoteStat] = {}
_KEPT = 200_000
FILE, DIRECTORY, SYMLINK = Kind.FILE, Kind.DIRECTORY, Kind.SYMLINK

Marks: TypeAlias = tuple[tuple[bytes, bytes | None], ...]
"""Extended attributes, ascending by name. A value of None, on the local side only: it is too large to travel."""
MARK_NAMES = (b"p", b"q")


class ActionRefusedError(Exception):
    """The replica is not what the action expects: the conditional apply says no."""


class Entry(msgspec.Struct):
    """One path of a replica. `payload`: content number of a file, target number of a symlink, 0 for a directory.

    `marks`: None where they are not synced; of symlinks; and on the server where nobody ever told of any.
    """

    identity: int
    kind: Kind
    payload: int
    mode: int
    mtime: int
    version: int
    marks: Marks | None = None

    def copy(self) -> Entry:
        return Entry(self.identity, self.kind, self.payload, self.mode, self.mtime, self.version, self.marks)

    def state(self) -> tuple[Kind, int, int, int]:
        """What must be equal on both sides in the end."""
        return (
            self.kind,
            self.payload,
            0 if self.kind is SYMLINK else self.mode,
            self.mtime if self.kind is FILE else 0,
        )


def written(have: Marks | None, want: Marks | None) -> Marks | None:
    """A local node's attributes after a write of a set. What is too large to travel is left as it is."""
    if want is None:
        return have
    kept = {name: value for name, value in have or () if value is None}
    return tuple(sorted({**dict(want), **kept}.items()))


def agree(local: Marks | None, told: Marks | None) -> bool:
    """Whether a local node has the attributes that somebody tells of it. None: nothing is told."""
    here, there = dict(local or ()), dict(told or ())
    large = {name for name, value in here.items() if value is None}
    return told is None or {*here.items()} - {(name, None) for name in large} == {
        (name, value) for name, value in there.items() if name not in large
    }


class Contents:
    """Content values by number, made once."""

    known: ClassVar[dict[int, Content]] = {}

    @classmethod
    def of(cls, number: int) -> Content:
        if number not in cls.known:
            raw = (number * 0x9E3779B97F4A7C15 % (1 << 256)).to_bytes(32, "big")[::-1]
            cls.known[number] = Content(size_bytes=number, object_hash=ObjectHash(raw))
        return cls.known[number]


class Replica:
    """Entries by path."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.entries: dict[bytes, Entry] = {}
        self.clock = 0
        self.fold: Callable[[bytes], bytes] | None = None

    def copy(self) -> Replica:
        twin = Replica(self.side)
        twin.entries = {path: entry.copy() for path, entry in self.entries.items()}
        twin.clock, twin.fold = self.clock, self.fold
        return twin

    # --- queries

    def below(self, path: bytes) -> list[bytes]:
        prefix = path + b"/"
        return [each for each in self.entries if each.startswith(prefix)]

    def is_directory(self, path: bytes) -> bool:
        if path in (b"", PARK_FOLDER):
            return True
        entry = self.entries.get(path)
        if entry is not None:
            return entry.kind is DIRECTORY
        return self.side is Side.REMOTE and bool(self.below(path))

    def can_hold(self, folder: bytes) -> bool:
        """Locally a directory; an object store needs none, and takes an object below another one, whatever that is."""
        return self.side is Side.REMOTE or self.is_directory(folder)

    def occupied(self, path: bytes, *, mover: bytes | None = None) -> bool:
        if self.fold is not None:
            folder, key = path.rpartition(b"/")[0], self.fold(path.rpartition(b"/")[2])
            for each in self.entries:
                if each != mover and each.rpartition(b"/")[0] == folder and self.fold(each.rpartition(b"/")[2]) == key:
                    return True
            return False
        return path in self.entries or (self.side is Side.REMOTE and bool(self.below(path)))

    def state(self) -> dict[bytes, tuple[Kind, int, int, int]]:
        """All entries' states."""
        return {path: entry.state() for path, entry in self.entries.items()}

    def contents(self) -> set[int]:
        return {entry.payload for entry in self.entries.values() if entry.kind is FILE}

    # --- steps

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def put(self, path: bytes, entry: Entry) -> None:
        parent = path.rpartition(b"/")[0]
        taken = path in self.entries if self.side is Side.REMOTE else self.occupied(path)
        if taken or not self.can_hold(parent):
            raise ActionRefusedError(path)
        self.entries[path] = entry

    def moves(
        self,
        old: bytes,
        new: bytes,
        hidden: Callable[[bytes], bool] | None = None,
        *,
        mover: bytes | None = None,
        hollow: bool = False,
    ) -> Iterator[None]:
        """Rename, step by step: one step locally; per object, deepest first and the marker last, remotely.

        An object that is no directory moves alone. `hollow`: what moves is the directory without a marker, not that.
        """
        alone = old in self.entries and self.entries[old].kind is not DIRECTORY and not hollow
        into_itself = new.startswith(old + b"/") and not (alone and self.side is Side.REMOTE)
        if self.occupied(new, mover=mover) or new == old or into_itself:
            raise ActionRefusedError(new)
        if not self.can_hold(new.rpartition(b"/")[0]):
            raise ActionRefusedError(new)
        paths = [] if alone else sorted(self.below(old), reverse=True)
        paths += [old] if old in self.entries and not hollow else []
        if hidden is not None and self.side is Side.REMOTE:  # objects that nobody lists stay where they are
            paths = [path for path in paths if not hidden(path)]
        for path in paths:
            self.entries[new + path[len(old) :]] = self.entries.pop(path)
            if self.side is Side.REMOTE:
                self.entries[new + path[len(old) :]].version = self.tick()
                yield
        if self.side is Side.LOCAL:
            yield

    def remove(self, path: bytes, hidden: Callable[[bytes], bool] | None = None) -> None:
        alone = path in self.entries and self.entries[path].kind is not DIRECTORY
        below = [] if alone else self.below(path)
        if hidden is not None and self.side is Side.REMOTE:
            below = [each for each in below if not hidden(each)]
        if below:
            raise ActionRefusedError(path)
        self.entries.pop(path, None)

    # --- observations

    def tag(self, path: bytes) -> LocalTag | RemoteTag | None:
        entry = self.entries.get(path)
        if entry is None:
            return None
        if self.side is Side.REMOTE:
            return RemoteTag(uuid=f"u{entry.identity}", version=entry.version, etag="", size_bytes=0)
        return LocalTag(
            device=1, ino=entry.identity, btime_ns=0, size_bytes=0, mtime_ns=entry.mtime, ctime_ns=entry.version
        )

    def observe_local(self, unknown: set[RelPath], unstable: set[RelPath]) -> list[FileStat]:
        hidden = tuple(path + b"/" for path in unknown)
        seen = []
        for path, e in self.entries.items():
            if hidden and path.startswith(hidden):
                continue
            key = (path, e.identity, e.kind, e.payload, e.mode, e.mtime, e.version, e.marks)
            stat = _LOCAL.get(key)
            if stat is None:
                stat = _LOCAL[key] = self._local_stat(path, e)
            seen.append(stat if path not in unstable else replace(stat, content=None))
        return seen

    def _local_stat(self, path: bytes, e: Entry) -> FileStat:
        tag = self.tag(path)
        assert isinstance(tag, LocalTag)
        return FileStat(
            path=RelPath(path),
            kind=e.kind,
            meta=Meta(mode=e.mode, mtime_ns=e.mtime, xattrs=e.marks),
            content=Contents.of(e.payload) if e.kind is FILE else None,
            target=b"%d" % e.payload if e.kind is SYMLINK else None,
            tag=tag,
        )

    def observe_remote(self) -> list[RemoteStat]:
        seen = []
        for path, e in self.entries.items():
            key = (path, e.identity, e.kind, e.payload, e.mode, e.mtime, e.version, e.marks)
            stat = _REMOTE.get(key)
            if stat is None:
                stat = _REMOTE[key] = self._remote_stat(path, e)
            seen.append(stat)
        return seen

    def _remote_stat(self, path: bytes, e: Entry) -> RemoteStat:
        tag = self.tag(path)
        assert isinstance(tag, RemoteTag)
        return RemoteStat(
            path=RelPath(path),
            kind=e.kind,
            meta=meta_of(e.mode, mtime_ns=e.mtime if e.kind is FILE else None, xattrs=e.marks),
            content=Contents.of(e.payload) if e.kind is FILE else None,
            target=b"%d" % e.payload if e.kind is SYMLINK else None,
            tag=tag,
        )


def trees(*replicas: Replica) -> list[str]:
    """What replicas hold, for people."""
    lines = []
    for replica in replicas:
        for path, e in sorted(replica.entries.items()):
            what = {FILE: f"file {e.payload}", DIRECTORY: "directory", SYMLINK: f"symlink {e.payload}"}[e.kind]
            marks = "" if e.marks is None else f" marks {e.marks}"
            lines.append(
                f"{replica.side.value}: {path!r} {what} mode {e.mode:o} mtime {e.mtime} id {e.identity}{marks}"
            )
        lines += [] if replica.entries else [f"{replica.side.value}: nothing"]
    return lines


def forget_observations() -> None:
    """Now and then, or a million seeds would fill the memory."""
    for kept in (_LOCAL, _REMOTE):
        if len(kept) > _KEPT:
            kept.clear()


class Users:
    """Random edits. Keeps the account of versions that must not get lost (I4)."""

    def __init__(self, rng: random.Random, log: list[str]) -> None:
        self.rng = rng
        self.log = log
        self.acts = 0
        self.parted = 0
        self.names = NAMES
        self.marking = False  # attributes are synced, so users set them
        self.large = True  # some are too large to travel
        self.given: set[tuple[bytes, bytes | None]] = set()
        self.identities = 0
        self.payloads = 1
        self.must: set[int] = set()
        self.promised: set[int] = set()  # what a plan brings back for the sake of a directory that was moved
        self.copies_count = True  # False once the base may know content 1: then a second 1 may be a moved first one

    def copy(self, log: list[str]) -> Users:
        twin = copy(self)
        twin.log, twin.must, twin.promised, twin.given = log, set(self.must), set(self.promised), set(self.given)
        return twin

    def identity(self) -> int:
        self.identities += 1
        return self.identities

    def new_payload(self) -> int:
        if self.rng.random() < 0.12:
            return 1  # equal content made independently
        self.payloads += 1
        return self.payloads

    def act(self, replica: Replica) -> None:
        """One random operation; it may turn out to be impossible, then nothing happens."""
        self.acts += 1
        choice = self.rng.random()
        if choice < 0.24 or not replica.entries:
            self._create(replica)
            return
        path = self.rng.choice(sorted(replica.entries))
        if path.startswith(b".blocksync"):
            return  # users leave the private folder alone
        entry = replica.entries[path]
        if self.marking and entry.kind is not SYMLINK and self.rng.random() < 0.25:
            self._mark(replica, path, entry)
        elif choice < 0.44 and entry.kind is not DIRECTORY:
            self._edit(replica, path, entry)
        elif choice < 0.72:
            self._move(replica, path)
        elif choice < 0.84:
            self._delete(replica, path)
        elif choice < 0.90:
            self._change_kind(replica, path, entry)
        else:
            self._touch(replica, path, entry)

    def _note(self, replica: Replica, text: str) -> None:
        self.log.append(f"{replica.side.value} user: {text}")

    def cross(self, local: Replica, remote: Replica) -> None:
        """Two directories are moved into each other, one on each side: a cycle, if both were done."""
        folders = sorted(path for path, entry in local.entries.items() if entry.kind is DIRECTORY and b"/" not in path)
        if len(folders) >= 2:
            one, two = self.rng.sample(folders, 2)
            for replica, old, into in ((local, one, two), (remote, two, one)):
                new = into + b"/" + self.rng.choice(NAMES)
                if not replica.occupied(new):
                    self._note(replica, f"move {old!r} -> {new!r}")
                    for _ in replica.moves(old, new):
                        pass

    def _account(self, new: Entry) -> None:
        if new.kind is FILE and (new.payload != 1 or self.copies_count):
            self.must.add(new.payload)

    def _gave_up(self, payload: int) -> None:
        """A user who had this version replaced or deleted it."""
        self.must.discard(payload)
        self.promised.discard(payload)

    def _folder(self, replica: Replica) -> bytes:
        folders = [path for path, entry in replica.entries.items() if entry.kind is DIRECTORY]
        return self.rng.choice([b"", *sorted(path for path in folders if not path.startswith(b".blocksync"))])

    def _slot(self, replica: Replica) -> bytes:
        folder, name = self._folder(replica), self.rng.choice(self.names)
        return folder + b"/" + name if folder else name

    def _entry(self, replica: Replica) -> Entry:
        roll = self.rng.random()
        kind = DIRECTORY if roll < 0.4 else SYMLINK if roll < 0.5 else FILE
        payload = self.new_payload() if kind is not DIRECTORY else 0
        mode, marks = self.rng.choice((0o644, 0o755)), self.no_marks(replica, kind)
        return Entry(self.identity(), kind, payload, mode, self.identities, replica.tick(), marks)

    def no_marks(self, replica: Replica, kind: Kind) -> Marks | None:
        """What something new has: on the server nobody tells of none."""
        return () if self.marking and replica.side is Side.LOCAL and kind is not SYMLINK else None

    def _mark(self, replica: Replica, path: bytes, entry: Entry) -> None:
        """Give an attribute, take one away; or write with a client that does not know of any."""
        marks, name, roll = dict(entry.marks or ()), self.rng.choice(MARK_NAMES), self.rng.random()
        if replica.side is Side.REMOTE and roll < 0.1:
            self._note(replica, f"drops the attributes of {path!r}")
            entry.marks, entry.version = None, replica.tick()
            return
        if name in marks and roll < 0.5:
            self._note(replica, f"takes {name!r} from {path!r}")
            del marks[name]
        else:
            self.payloads += 1
            large = self.large and replica.side is Side.LOCAL and roll > 0.9
            marks[name] = None if large else b"%d" % self.payloads
            self.given.add((name, marks[name]))
            self._note(replica, f"gives {name!r} {marks[name]!r} to {path!r}")
        entry.marks, entry.version = tuple(sorted(marks.items())), replica.tick()

    def _create(self, replica: Replica) -> None:
        path, entry = self._slot(replica), self._entry(replica)
        if replica.occupied(path):
            return
        self._note(replica, f"create {entry.kind.value} {path!r} payload {entry.payload}")
        replica.put(path, entry)
        self._account(entry)

    def _edit(self, replica: Replica, path: bytes, entry: Entry) -> None:
        self.payloads += 1
        payload = self.payloads
        self._note(replica, f"edit {path!r} {entry.payload} -> {payload}")
        if entry.kind is FILE:
            self._gave_up(entry.payload)
            self.must.add(payload)
        entry.payload, entry.version = payload, replica.tick()
        entry.mtime = 1000 + payload
        if self.rng.random() < 0.5:  # many editors replace the file
            entry.identity = self.identity()

    def _move(self, replica: Replica, path: bytes) -> None:
        new = self._slot(replica)
        if replica.occupied(new, mover=path) or new == path or new.startswith(path + b"/"):
            return
        self._note(replica, f"move {path!r} -> {new!r}")
        for _ in replica.moves(path, new, mover=path):
            pass

    def _delete(self, replica: Replica, path: bytes) -> None:
        self._note(replica, f"delete {path!r}")
        for each in [*replica.below(path), path]:
            if replica.entries[each].kind is FILE:
                self._gave_up(replica.entries[each].payload)
            del replica.entries[each]

    def _change_kind(self, replica: Replica, path: bytes, entry: Entry) -> None:
        if replica.below(path):
            return
        self._delete(replica, path)
        if not replica.is_directory(path.rpartition(b"/")[0]):
            return
        new = self._entry(replica)
        if new.kind is not entry.kind and not replica.occupied(path):
            self._note(replica, f"replace {path!r} by {new.kind.value} payload {new.payload}")
            replica.put(path, new)
            self._account(new)

    def _touch(self, replica: Replica, path: bytes, entry: Entry) -> None:
        if replica.side is Side.REMOTE and entry.kind is DIRECTORY and self.rng.random() < 0.3:
            if replica.below(path):  # some clients never make markers, or lose them
                self._note(replica, f"drop the marker of {path!r}")
                del replica.entries[path]
            return
        self._note(replica, f"touch {path!r}")
        if self.rng.random() < 0.5:
            entry.mode = self.rng.choice((0o600, 0o640, 0o755))
        elif entry.kind is FILE:
            entry.mtime = 2000 + self.rng.randrange(1000)
        entry.version = replica.tick()
