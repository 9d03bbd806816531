"""Conditional changes of a mounted volume, as the mount makes them; one commit for many. Blocking."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Final, TypeAlias, TypedDict

import msgspec
from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import ID_SIZE
from blockfs.control import protocol
from blockfs.control.protocol import Expect
from blockfs.xattrs import Carried
from syncer.core.model import NO_META, Kind, LocalTag, Meta, RelPath
from syncer.core.paths import target_objection
from syncer.core.xattrs import MAX_BYTES
from syncer.errors import LocalChangedError, UnholdableError
from syncer.local.safe_open import open_directory, parent_directory
from syncer.local.verbs.trash import ITEM, ORIGIN, Why, new_folder
from syncer.local.volume.observer import OPEN, TRASH_FOLDER, Connection
from syncer.ports.localvalues import OWN, Applied, BusyError, outcomes

_DEFAULT_DIRECTORY_MODE: Final = 0o755
REASONS: Final = {
    "changed": "it was written to",
    "occupied": "the name is taken",
    "gone": "it is gone",
    "not_empty": "it holds something that is not synced, or that is new",
}


_Change = (
    protocol.InstallFile
    | protocol.ApplyMkdir
    | protocol.ApplySymlink
    | protocol.ApplyMove
    | protocol.ApplyRemove
    | protocol.ApplySetMeta
)


_Answer: TypeAlias = protocol.Applied | protocol.Refused | protocol.MissingBlocks | Exception

VANISHED: Final = "blocks vanished from the volume while the file was assembled"


class NewFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is to be made.

    Attributes:
        path: Its name, which is free.
        blocks: Its block list, as the volume cuts it.
        mode: Permission bits.
        owner: User and group.
        mtime_ns: Its time of change.
    """

    path: RelPath
    blocks: BlockList
    mode: int
    owner: tuple[int, int]
    mtime_ns: int


class _TrashPlace(TypedDict, total=False):
    trash_parent: int
    trash_name: bytes


class VolumeChanges:
    """Makes changes below one mount point. Several threads may."""

    def __init__(self, root: int, connection: Connection) -> None:
        """Take over the mount point's descriptor and a connection (neither closed here)."""
        self._root = root
        self._connection = connection
        self._uncommitted = False

    def commit(self) -> None:
        """Make durable what was changed since the last call; nothing to do if nothing was."""
        if self._uncommitted:
            self._uncommitted = False  # before the request: a change that is made meanwhile sets it again
            try:
                self._connection.ask(self._connection.client.commit)
            except BaseException:
                self._uncommitted = True
                raise

    def install(self, path: RelPath, handle: int, size_bytes: int, mtime_ns: int, expect: LocalTag | None) -> Applied:
        """Put a prepared file under a name that is free, or holds what is expected."""
        with (
            parent_directory(self._root, path) as (directory, name),
            _nowhere() if expect is None else self._trash_place(path, Why.REPLACED) as trash,
        ):
            change = protocol.InstallFile(
                commit=False,
                handle=handle,
                parent=os.fstat(directory).st_ino,
                name=name,
                expect=_expect(expect),
                **trash,
            )
            done = self._apply(change, path)
        return Applied(tag=_own_tag(done, size_bytes, mtime_ns))

    def make_files(self, files: Sequence[NewFile]) -> list[Applied | Exception]:
        """Make files whose blocks are there under free names, by few requests; each directory is looked up once."""
        found: list[Applied | Exception] = []
        for at in range(0, len(files), protocol.MOST_MADE):
            found += self._make_some(files[at : at + protocol.MOST_MADE])
        return found

    def _make_some(self, files: Sequence[NewFile]) -> list[Applied | Exception]:
        parents: dict[bytes, int | Exception] = {}
        for file in files:
            above = file.path.rpartition(b"/")[0]
            if above not in parents:
                (parents[above],) = outcomes([file.path], self._parent_of)
        asked = [(file, parents[file.path.rpartition(b"/")[0]]) for file in files]
        wanted = [_new_file(file, parent) for file, parent in asked if isinstance(parent, int)]
        answers = iter(self._answers(wanted) if wanted else ())
        return [parent if isinstance(parent, Exception) else _made(file, next(answers)) for file, parent in asked]

    def _answers(self, wanted: Sequence[protocol.NewFile]) -> Sequence[_Answer]:
        try:
            answers = self._connection.ask(self._connection.client.make_files, wanted, commit=False)
        except OWN as error:
            return [error] * len(wanted)
        self._uncommitted = True  # only now, as below
        return answers

    def _parent_of(self, path: RelPath) -> int:
        with parent_directory(self._root, path) as (directory, _):
            return os.fstat(directory).st_ino

    def make_directory(self, path: RelPath, meta: Meta) -> Applied:
        """Make it under a free name."""
        with parent_directory(self._root, path) as (directory, name):
            full = replace(meta, mode=_DEFAULT_DIRECTORY_MODE if meta.mode is None else meta.mode)
            assert full.mode is not None
            change = protocol.ApplyMkdir(
                commit=False,
                parent=os.fstat(directory).st_ino,
                name=name,
                mode=full.mode,
                uid=os.geteuid(),
                gid=os.getegid(),
            )
            tag = _own_tag(self._apply(change, path), 0, 0)
            # Without an opinion it has the special bits that it is made with: setgid is its directory's.
            late = Meta(mode=full.mode if full.special is not None else None, special=full.special, xattrs=full.xattrs)
            if late != NO_META:
                self.set_meta(path, late, tag)
            return Applied(tag=tag, meta=full)

    def make_symlink(self, path: RelPath, target: bytes, expect: LocalTag | None) -> Applied:
        """Make it; an old one goes to the trash first."""
        objection = target_objection(target)
        if objection is not None:
            raise UnholdableError(path, f"no symlink can have its target: {objection}")
        if expect is not None:
            self.remove(path, Kind.SYMLINK, expect, Why.REPLACED)
        with parent_directory(self._root, path) as (directory, name):
            change = protocol.ApplySymlink(
                commit=False,
                parent=os.fstat(directory).st_ino,
                name=name,
                target=target,
                uid=os.geteuid(),
                gid=os.getegid(),
            )
            return Applied(tag=_own_tag(self._apply(change, path), len(target), 0))

    def move(self, source: RelPath, target: RelPath, expect: LocalTag) -> Applied:
        """Rename to a free name if it still is that inode."""
        with parent_directory(self._root, source) as (old, name), parent_directory(self._root, target) as (new, wanted):
            change = protocol.ApplyMove(
                commit=False,
                parent=os.fstat(old).st_ino,
                name=name,
                new_parent=os.fstat(new).st_ino,
                new_name=wanted,
                expect=Expect(ino=expect.ino),
            )
            self._apply(change, source)
        return Applied(tag=expect)

    def remove(self, path: RelPath, kind: Kind, expect: LocalTag, why: Why, origin: RelPath | None = None) -> Applied:
        """Move into the trash, as what was at `origin` (else at `path`); a directory is removed if it is empty."""
        with (
            parent_directory(self._root, path) as (directory, name),
            _nowhere() if kind is Kind.DIRECTORY else self._trash_place(origin or path, why) as trash,
        ):
            condition = Expect(ino=expect.ino) if kind is not Kind.FILE else _expect(expect)
            change = protocol.ApplyRemove(
                commit=False, parent=os.fstat(directory).st_ino, name=name, expect=condition, **trash
            )
            self._apply(change, path)
            return Applied(tag=None)

    def set_meta(self, path: RelPath, meta: Meta, expect: LocalTag, seen: Meta | None = None) -> Applied:
        """Set metadata of that inode."""
        change = protocol.ApplySetMeta(
            commit=False,
            expect=_expect(expect),
            mode=meta.full_mode,
            keep_special=meta.special is None,
            mtime_ns=meta.mtime_ns,
            xattrs=meta.xattrs,
            xattr_bytes=MAX_BYTES,
            seen_xattrs=None if seen is None else seen.xattrs,
        )
        done = self._apply(change, path)
        mtime_ns = expect.mtime_ns if meta.mtime_ns is None else meta.mtime_ns
        return Applied(tag=_own_tag(done, expect.size_bytes, mtime_ns))

    def add_xattrs(self, path: RelPath, made: Applied, xattrs: Carried | None) -> Applied:
        """Give something that was just put in place its attributes. Cut short, the next cycle does it."""
        if xattrs is None:
            return made
        assert made.tag is not None
        return self.set_meta(path, Meta(xattrs=xattrs), made.tag)

    @contextmanager
    def _trash_place(self, path: RelPath, why: Why) -> Iterator[_TrashPlace]:
        """A new entry of the trash for what is displaced from `path`; taken away again if nothing is.

        It is made through the kernel before the change that fills it. The mount commits in order, so an entry that has
        an item also has its origin, wherever the power goes; one that has none is removed when it is old.
        """
        trash = open_directory(self._root, RelPath(TRASH_FOLDER))
        try:
            entry, folder = new_folder(trash, path, why)
            try:
                yield {"trash_parent": os.fstat(folder).st_ino, "trash_name": ITEM}
            except BaseException:
                with suppress(OSError):  # whatever it is, the change's own failure says more
                    if os.listdir(folder) == [os.fsdecode(ORIGIN)]:  # a lost reply: it may have been done
                        os.unlink(ORIGIN, dir_fd=folder)
                        os.rmdir(entry, dir_fd=trash)
                raise
            finally:
                os.close(folder)
        finally:
            os.close(trash)

    def _apply(self, change: _Change, path: RelPath) -> protocol.Applied:
        done = self._connection.ask(self._connection.client.apply, change)
        self._uncommitted = True  # only now: set before, a commit before the change could take the sign away
        if isinstance(done, protocol.Refused):
            raise _refusal(path, done)
        return done


def _refusal(path: RelPath, refused: protocol.Refused) -> LocalChangedError:
    if refused.reason == "busy":
        return BusyError(path, OPEN)
    return LocalChangedError(path, REASONS.get(refused.reason, refused.reason))


def _new_file(file: NewFile, parent: int) -> protocol.NewFile:
    return protocol.NewFile(
        parent=parent,
        name=file.path.rpartition(b"/")[2],
        size_bytes=file.blocks.size_bytes,
        mode=file.mode,
        uid=file.owner[0],
        gid=file.owner[1],
        mtime_ns=file.mtime_ns,
        ids=file.blocks.ids,
    )


def _made(file: NewFile, answer: _Answer) -> Applied | Exception:
    match answer:
        case protocol.Applied():
            return Applied(tag=_own_tag(answer, file.blocks.size_bytes, file.mtime_ns))
        case protocol.Refused():
            return _refusal(file.path, answer)
        case protocol.MissingBlocks():
            return LocalChangedError(file.path, VANISHED)
        case _:
            return answer


def changed_runs(blocks: BlockList, old: BlockList) -> Iterator[tuple[int, bytes]]:
    """Runs of ids to set in a file that starts with `old`, resized: (first index, concatenated ids)."""
    changed = blocks.changed_from(old.splice(blocks.size_bytes, {}))
    first, ids = 0, bytearray()
    for index in sorted(changed):
        if ids and (index != first + len(ids) // ID_SIZE or len(ids) >= protocol.MAX_PAGE_IDS * ID_SIZE):
            yield first, bytes(ids)
            ids.clear()
        if not ids:
            first = index
        ids += changed[index]
    if ids:
        yield first, bytes(ids)


def _nowhere() -> AbstractContextManager[_TrashPlace]:
    """Nothing is displaced."""
    return nullcontext(_TrashPlace())


def _expect(tag: LocalTag | None) -> Expect:
    return Expect(ino=None) if tag is None else Expect(ino=tag.ino, content_version=tag.version)


def _own_tag(done: protocol.Applied, size_bytes: int, mtime_ns: int) -> LocalTag:
    """Evidence of what we made ourselves, without asking again."""
    return LocalTag(
        device=0,
        ino=done.ino,
        btime_ns=0,
        size_bytes=size_bytes,
        mtime_ns=mtime_ns,
        ctime_ns=0,
        version=done.content_version,
    )
