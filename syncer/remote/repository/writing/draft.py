"""The next commit of a device, before it is made: a view, and what was done to it since. Pure.

Source: docs/design/repository.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from syncer.core.model import NO_META, Kind, Meta, RelPath
from syncer.core.paths import PARK_FOLDER
from syncer.core.xattrs import settled
from syncer.errors import ConflictOnRemoteError
from syncer.remote.repository.format.entries import (
    PARKED,
    TOP,
    Bytes,
    Entry,
    key_of,
    kind_number,
    split_key,
)
from syncer.remote.repository.format.history import DeviceId, Dot, Vector
from syncer.remote.repository.format.prolly import Nodes, Root, Shape
from syncer.remote.repository.merge import NOBODY, View, age
from syncer.remote.repository.tree import Found, Tree, place_of, values


class Draft:
    """A tree that is being changed. Not safe for many threads.

    Whoever calls has looked: what is made, moved or removed is in the tree as it is here (`at`), places are free, and
    directories that go are empty.

    Attributes:
        dot: Of the commit to be.
    """

    def __init__(self, nodes: Nodes, view: View, device: DeviceId) -> None:
        self.dot = Dot(device, view.vector.next_number())
        self._view = view
        self._tree = Tree(nodes, view.root)
        self._number = age(self.vector)
        self._changed: dict[bytes, Found | None] = {}  # by key
        self._inside: dict[bytes, set[bytes]] = {}  # keys of what was put into a directory, by the directory

    @property
    def is_empty(self) -> bool:
        """Nothing was done, and there is nothing that a commit has to say."""
        return not self._changed and not self._view.unsettled

    @property
    def vector(self) -> Vector:
        """What the commit will have seen."""
        return self._view.vector.adding(self.dot)

    def at(self, parent: bytes, name: bytes) -> Found | None:
        """What is there now."""
        key = key_of(parent, name)
        if key in self._changed:
            return self._changed[key]
        return self._tree.at([key]).get(key)

    def lookup(self, path: RelPath) -> Found | None:
        """What is at a path now."""
        parent, names = place_of(path)
        found: Found | None = None
        for name in names:
            found = self.at(parent, name)
            if found is None:
                return None
            parent = found.entry.object
        return found

    def directory(self, path: RelPath, fresh: Callable[[], bytes]) -> bytes:
        """The id of the directory at a path; what is missing of it is made, as implied.

        Args:
            path: b"" for the top.
            fresh: Makes ids.

        Raises:
            ConflictOnRemoteError: Something else is there, or above.
        """
        parent, names = place_of(path) if path else (TOP, [])
        if path == PARK_FOLDER:
            return PARKED
        for name in names:
            found = self.at(parent, name)
            if found is None:
                found = self.make(fresh(), parent, name, NO_META, 0)
                found = self._put(replace(found, entry=replace(found.entry, implied=True)))
            elif found.entry.what is not Kind.DIRECTORY:
                raise ConflictOnRemoteError(path, "a directory", "something else in its path")
            parent = found.entry.object
        return parent

    def adopt(self, directory: bytes, other: bytes) -> None:
        """Put what is in a directory into another one, where nothing of these names is."""
        for found in list(self.below(directory)):
            self._changed[found.key] = None
            entry = replace(found.entry, number=self._number, placed=self.dot)
            self._put(Found(parent=other, name=found.name, entry=entry))

    def below(self, directory: bytes) -> Iterator[Found]:
        """What is in a directory now."""
        for found in self._tree.below(directory):
            if found.key not in self._changed:
                yield found
        put = [self._changed[key] for key in sorted(self._inside.get(directory, ()))]
        yield from [found for found in put if found is not None]

    def has_below(self, directory: bytes) -> bool:
        """Whether something is in a directory."""
        return next(self.below(directory), None) is not None

    def make(
        self,
        object_id: bytes,
        parent: bytes,
        name: bytes,
        meta: Meta,
        made_us: int,
        *,
        file: Bytes | None = None,
        target: bytes | None = None,
    ) -> Found:
        """A new object in a free place: a file, a symlink, or else a directory."""
        assert object_id not in (TOP, PARKED)
        kind = Kind.FILE if file is not None else Kind.SYMLINK if target is not None else Kind.DIRECTORY
        entry = Entry(
            object=object_id,
            kind=kind_number(kind),
            number=self._number,
            placed=self.dot,
            filled=self.dot,
            noted=self.dot,
            made_us=made_us,
            mode=meta.mode,
            special=meta.special,
            mtime_ns=meta.mtime_ns,
            xattrs=settled(meta.xattrs),
            file=file,
            target=target,
        )
        return self._put(Found(parent=parent, name=name, entry=entry))

    def fill(
        self, found: Found, meta: Meta, made_us: int, *, file: Bytes | None = None, target: bytes | None = None
    ) -> Found:
        """Another content, and all metadata."""
        entry = _noted(found.entry, meta)
        entry = replace(
            entry, number=self._number, filled=self.dot, noted=self.dot, made_us=made_us, file=file, target=target
        )
        return self._put(replace(found, entry=entry))

    def note(self, found: Found, meta: Meta, made_us: int) -> Found:
        """Other metadata."""
        entry = replace(_noted(found.entry, meta), number=self._number, noted=self.dot, made_us=made_us)
        return self._put(replace(found, entry=entry))

    def move(self, found: Found, parent: bytes, name: bytes) -> Found:
        """To a free place; what is below a directory goes with it."""
        self._changed[found.key] = None
        entry = replace(found.entry, number=self._number, placed=self.dot)
        return self._put(Found(parent=parent, name=name, entry=entry))

    def remove(self, found: Found) -> None:
        """An object; a directory with something in it stays, as implied."""
        if found.entry.what is Kind.DIRECTORY and self.has_below(found.entry.object):
            stays = replace(_noted(found.entry, NO_META), number=self._number, noted=self.dot, implied=True)
            self._put(replace(found, entry=stays))
        else:
            self._changed[found.key] = None

    def drop(self, found: Found) -> None:
        """An implied directory, whatever is in it."""
        self._changed[found.key] = None

    def drop_hollow(self, found: Found) -> bool:
        """Remove an implied directory in which there is nothing that anybody is told of; False: there is something."""
        hollow = [found] if found.entry.implied else []
        for each in hollow:  # grows while it is walked
            for inside in self.below(each.entry.object):
                if not inside.entry.implied:
                    return False
                hollow.append(inside)
        self._changed.update((each.key, None) for each in hollow)
        return bool(hollow)

    def changed(self) -> list[Found]:
        """What is there now and was not so in the view."""
        return [found for found in self._changed.values() if found is not None]

    def located(self, found: Found, file: Bytes) -> None:
        """Where the chunks of a content are: no other version by that."""
        assert found.entry.file is not None
        assert found.entry.file.content == file.content
        self._put(replace(found, entry=replace(found.entry, file=file)))

    def finish(self, shape: Shape) -> Root | None:
        """The tree to commit: all that the view had to decide is said by this commit, no implied directory is empty."""
        self._drop_left()
        loose = [key for key in self._view.unsettled if key not in self._changed]
        for found in self._tree.at(loose).values():
            self._put(found)
        gone = {
            found.entry.object
            for found in self._tree.at(self._changed).values()
            if found.entry.kind == kind_number(Kind.DIRECTORY)
        }
        there = [self._settled(found) for found in self._changed.values() if found is not None]
        edits = dict.fromkeys(self._changed) | dict.fromkeys(gone) | values(there)
        return self._tree.edited(shape, edits).root

    def _drop_left(self) -> None:
        """Implied directories in which nothing is left go, too."""
        left = {split_key(key)[0] for key, found in self._changed.items() if found is None}
        left |= {found.entry.object for found in self.changed() if found.entry.implied}
        while left := left - {TOP, PARKED}:
            here = {found.entry.object: found for found in self.changed()}
            there = self._tree.directories(left - here.keys())
            found = [here[each] for each in left & here.keys()]
            found += [each for each in there.values() if each.key not in self._changed]
            left = {each.parent for each in found if self.drop_hollow(each)}

    def _put(self, found: Found) -> Found:
        key = found.key
        self._changed[key] = found
        self._inside.setdefault(found.parent, set()).add(key)
        return found

    def _settled(self, found: Found) -> Found:
        entry = found.entry
        own = {field: self.dot for field in ("placed", "filled", "noted") if getattr(entry, field).device == NOBODY}
        return replace(found, entry=replace(entry, number=self._number, **own)) if own else found


def _noted(entry: Entry, meta: Meta) -> Entry:
    return replace(
        entry, implied=False, mode=meta.mode, special=meta.special, mtime_ns=meta.mtime_ns, xattrs=settled(meta.xattrs)
    )
