"""One tree of a repository: names, directories, and how two trees differ.

Source: docs/design/repository.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from syncer.core.model import RelPath
from syncer.core.paths import NAME_BYTES, PARK_FOLDER
from syncer.errors import DamagedObjectError
from syncer.remote.repository.format import prolly
from syncer.remote.repository.format.entries import (
    ID_BYTES,
    PARKED,
    TOP,
    Entry,
    Up,
    decode_entry,
    decode_up,
    encode,
    key_of,
    split_key,
)
from syncer.remote.repository.format.prolly import Nodes, Root, Shape

ENTRIES_OF_A_NODE: Final = 32  # on average: 5 to 8 KiB
_MAX_DEPTH: Final = 4096  # of directories: deeper is a circle, which only damage makes


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An entry and where it is.

    Attributes:
        parent: Id of its directory.
        name: Its name there.
        entry: The entry.
    """

    parent: bytes
    name: bytes
    entry: Entry

    @property
    def key(self) -> bytes:
        """Its key."""
        return key_of(self.parent, self.name)


class Tree:
    """A tree, by its root. Reading only; `edited` makes another one.

    Attributes:
        root: Of the map; None for an empty tree.
    """

    def __init__(self, nodes: Nodes, root: Root | None) -> None:
        self.root = root
        self._nodes = nodes
        self._paths: dict[bytes, RelPath] = {TOP: RelPath(b""), PARKED: RelPath(PARK_FOLDER)}

    def at(self, keys: Iterable[bytes]) -> dict[bytes, Found]:
        """Those of some keys that are there."""
        found = prolly.get(self._nodes, self.root, keys)
        return {key: _found(key, raw) for key, raw in found.items()}

    def ups(self, directories: Iterable[bytes]) -> dict[bytes, Up]:
        """Where some directories are. The top and the park are nowhere."""
        found = prolly.get(self._nodes, self.root, (each for each in directories if each not in (TOP, PARKED)))
        return {key: decode_up(key, raw) for key, raw in found.items()}

    def directories(self, ids: Iterable[bytes]) -> dict[bytes, Found]:
        """Entries of those directories that are there, by their ids."""
        ups = self.ups(ids)
        at = self.at(key_of(up.parent, up.name) for up in ups.values())
        found = {each: at.get(key_of(up.parent, up.name)) for each, up in ups.items()}
        for each, entry in found.items():
            if entry is None or entry.entry.object != each:
                raise DamagedObjectError(f"directory {each.hex()}", "is malformed: it is not where it says")
        return {each: entry for each, entry in found.items() if entry is not None}

    def below(self, directory: bytes) -> Iterator[Found]:
        """The entries of one directory, by name."""
        for key, raw in prolly.items(self._nodes, self.root, directory + b"\0", directory + b"\xff" * (NAME_BYTES + 1)):
            yield _found(key, raw)

    def entries(self) -> Iterator[Found]:
        """All of them, by key."""
        for key, raw in prolly.items(self._nodes, self.root):
            if len(key) > ID_BYTES:
                yield _found(key, raw)
            else:
                self._note(key, decode_up(key, raw))

    def lookup(self, path: RelPath) -> Found | None:
        """What is at a path; None: nothing."""
        parent, names = place_of(path)
        found: Found | None = None
        for name in names:
            key = key_of(parent, name)
            found = self.at([key]).get(key)
            if found is None:
                return None
            parent = found.entry.object
        return found

    def paths(self, directories: Collection[bytes]) -> Mapping[bytes, RelPath]:
        """Paths of some directories; they stay known. A request for each level of them that is not known yet.

        Raises:
            DamagedObjectError: One is nowhere.
        """
        ups: dict[bytes, Up] = {}
        asked = {each for each in directories if each not in self._paths}
        while asked:
            found = self.ups(asked)
            for each in asked:
                if each not in found:
                    raise DamagedObjectError(f"directory {each.hex()}", "is missing: an entry is in it")
            ups.update(found)
            asked = {up.parent for up in found.values()} - self._paths.keys() - ups.keys()
        for each in ups:
            self._resolve(each, ups)
        return self._paths

    def edited(self, shape: Shape, edits: Mapping[bytes, bytes | None]) -> Tree:
        """Another tree: some values set, or removed."""
        return Tree(self._nodes, prolly.update(self._nodes, shape, self.root, edits))

    def differences(self, other: Tree) -> Iterator[tuple[Found | None, Found | None]]:
        """Entries that differ, at each key: here, and in the other tree. Each `Up` follows from the entries."""
        for key, one, two in prolly.diff(self._nodes, self.root, other.root):
            if len(key) > ID_BYTES:
                yield None if one is None else _found(key, one), None if two is None else _found(key, two)

    def _note(self, directory: bytes, up: Up) -> None:
        """Remember where a directory is, if its parent is known already."""
        parent = self._paths.get(up.parent)
        if parent is not None:
            self._paths[directory] = _joined(parent, up.name)

    def _resolve(self, directory: bytes, ups: Mapping[bytes, Up]) -> None:
        trail: list[bytes] = []
        while directory not in self._paths:
            trail.append(directory)
            if len(trail) > _MAX_DEPTH:
                raise DamagedObjectError(f"directory {directory.hex()}", "is malformed: it lies in itself")
            directory = ups[directory].parent
        for each in reversed(trail):
            self._paths[each] = _joined(self._paths[ups[each].parent], ups[each].name)


def place_of(path: RelPath) -> tuple[bytes, list[bytes]]:
    """From which directory on a path is looked up, and by which names."""
    if path.startswith(PARK_FOLDER + b"/"):
        return PARKED, path[len(PARK_FOLDER) + 1 :].split(b"/")
    return TOP, path.split(b"/")


def values(found: Iterable[Found]) -> dict[bytes, bytes | None]:
    """What a tree says of some objects: their entries, and where the directories among them are."""
    made: dict[bytes, bytes | None] = {}
    for each in found:
        made[each.key] = encode(each.entry)
        if each.entry.kind == 1:
            made[each.entry.object] = encode(Up(parent=each.parent, name=each.name))
    return made


def _found(key: bytes, raw: bytes) -> Found:
    parent, name = split_key(key)
    return Found(parent=parent, name=name, entry=decode_entry(key, raw))


def _joined(parent: RelPath, name: bytes) -> RelPath:
    return RelPath(parent + b"/" + name if parent else name)
