"""Devices that share a repository: each changes its tree at random, and looks at what others committed now and then.

All in memory; a seed says everything that happens.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from random import Random

import msgspec

from syncer.core.model import Kind, Meta, RelPath
from syncer.remote.repository.format.entries import TOP, Bytes
from syncer.remote.repository.format.history import Commit, CommitId, DeviceId, Dot, Vector
from syncer.remote.repository.format.prolly import Root, Shape
from syncer.remote.repository.merge import EMPTY, View, view_of
from syncer.remote.repository.tree import Found, Tree
from syncer.remote.repository.writing.draft import Draft
from tests.unit.syncer.remote.repository.nodes import KEYS, MemoryNodes

SHAPE = Shape(split=KEYS.split, entries=3)
NAMES = [b"a", b"b", b"c.txt"]


def root_of(raw: bytes) -> Root | None:
    return msgspec.msgpack.decode(raw, type=Root) if raw else None


def content(data: bytes) -> Bytes:
    digest = hashlib.sha256(data).digest()
    return Bytes(size_bytes=len(data), object_hash=digest, blocks=b"", chunks=data)


@dataclass(frozen=True)
class Written:
    """A content that a device wrote.

    Attributes:
        data: The bytes.
        dot: When it was committed.
    """

    data: bytes
    dot: Dot


@dataclass
class World:
    """All devices.

    Attributes:
        random: Where everything random comes from.
        nodes: Of all trees.
        commits: All that were made, with ids.
        heads: The last one of each device.
        written: All contents that anybody wrote.
        ended: By content, the commits that replaced or removed it.
    """

    random: Random
    nodes: MemoryNodes = field(default_factory=MemoryNodes)
    commits: dict[CommitId, Commit] = field(default_factory=dict)
    heads: dict[DeviceId, CommitId] = field(default_factory=dict)
    written: list[Written] = field(default_factory=list)
    ended: dict[bytes, list[Vector]] = field(default_factory=dict)
    _count: int = 0

    def view(self, heads: list[CommitId] | None = None) -> View:
        chosen = list(self.heads.values()) if heads is None else heads
        return view_of(self.nodes, SHAPE, [(each, self.commits[each]) for each in chosen], root_of)

    def fresh(self) -> bytes:
        self._count += 1
        return b"%d" % self._count


@dataclass
class Device:
    """One device, which never looks but in `look`.

    Attributes:
        seen: Numbers of the versions that it saw, by object, in order.
    """

    world: World
    id: DeviceId
    view: View = EMPTY
    seen: dict[bytes, tuple[int, str]] = field(default_factory=dict)

    def look(self, some: list[CommitId] | None = None) -> None:
        """See others' commits: all heads, or some of them; its own always."""
        own = self.world.heads.get(self.id)
        chosen = list(self.world.heads.values()) if some is None else [*some, *([own] if own else [])]
        self.view = self.world.view([*chosen, *self.view.heads])
        self.check_numbers()

    def check_numbers(self) -> None:
        """What follows has a higher number: `Ages` must be right for what one device saw one after the other."""
        for found in Tree(self.world.nodes, self.view.root).entries():
            tag = found.entry.tag()
            place = f"{found.parent.hex()}/{found.name!r}"
            number, known = self.seen.get(found.entry.object, (0, ""))
            if known != tag.etag + place:
                assert found.entry.number > number or not known
            self.seen[found.entry.object] = (found.entry.number, tag.etag + place)

    def act(self, steps: int) -> None:
        """Change the tree, and commit."""
        draft = Draft(self.world.nodes, self.view, self.id)
        for _ in range(steps):
            self._step(draft)
        self.commit(draft)

    def commit(self, draft: Draft) -> None:
        world = self.world
        root = draft.finish(SHAPE)
        commit = Commit(
            parents=self.view.heads,
            vector=draft.vector,
            root=msgspec.msgpack.encode(root) if root is not None else b"",
            number=draft.dot.number,
            device=self.id,
            time_ns=world.random.randrange(5) * 10**9,
            tool="test",
            name=f"host{self.id[0]}",
        )
        name = CommitId(hashlib.sha256(msgspec.msgpack.encode((commit.number, commit.device, commit.root))).digest())
        world.commits[name] = commit
        world.heads[self.id] = name
        self.view = world.view([name])
        self.check_numbers()

    def _step(self, draft: Draft) -> None:
        random, world = self.world.random, self.world
        everything = _all(draft)
        parents = [TOP, *(found.entry.object for found in everything if found.entry.kind == 1)]
        parent, name = random.choice(parents), random.choice(NAMES)
        there = draft.at(parent, name)
        meta = Meta(mode=random.choice([0o600, 0o644]), mtime_ns=random.choice([None, 1, 2]))
        match random.randrange(6):
            case 0 | 1 if there is None:
                kind = random.choice([Kind.FILE, Kind.FILE, Kind.DIRECTORY, Kind.SYMLINK])
                object_id = hashlib.blake2b(world.fresh(), digest_size=16).digest()
                if kind is Kind.FILE:
                    data = self._write(draft)
                    draft.make(object_id, parent, name, meta, 0, file=content(data))
                else:
                    draft.make(object_id, parent, name, meta, 0, target=b"to" if kind is Kind.SYMLINK else None)
            case 2 if everything:
                found = random.choice(everything)
                if found.entry.file is not None:
                    self._end(found, draft)
                    draft.fill(found, meta, 0, file=content(self._write(draft)))
            case 3 if everything and there is None:
                found = random.choice(everything)
                if parent not in {found.entry.object, *_below(draft, found.entry.object)}:
                    draft.move(found, parent, name)
            case 4 if everything:
                found = random.choice(everything)
                if not draft.has_below(found.entry.object):
                    self._end(found, draft)
                    draft.remove(found)
            case 5 if everything:
                draft.note(random.choice(everything), meta, 0)
            case _:
                pass

    def _write(self, draft: Draft) -> bytes:
        # Now and then what somebody else writes, too.
        data = self.world.random.choice([self.world.fresh(), b"same"])
        self.world.written.append(Written(data, draft.dot))
        return data

    def _end(self, found: Found, draft: Draft) -> None:
        if found.entry.file is not None:
            assert isinstance(found.entry.file.chunks, bytes)
            self.world.ended.setdefault(found.entry.file.chunks, []).append(draft.vector)


def _all(draft: Draft) -> list[Found]:
    found = {each.key: each for each in draft._tree.entries()}
    found.update({key: each for key, each in draft._changed.items() if each is not None})
    gone = {key for key, each in draft._changed.items() if each is None}
    return [each for key, each in sorted(found.items()) if key not in gone]


def _below(draft: Draft, directory: bytes) -> set[bytes]:
    everything = _all(draft)
    below: set[bytes] = set()
    while True:
        more = {e.entry.object for e in everything if e.parent in {directory, *below}} - below
        if not more:
            return below
        below |= more


def paths(world: World, view: View) -> dict[RelPath, tuple[object, ...]]:
    """What a person sees of a view; checks that the tree is one."""
    tree = Tree(world.nodes, view.root)
    found = list(tree.entries())
    objects = [each.entry.object for each in found]
    assert len(objects) == len(set(objects)), "one object at two places"
    directories = {each.entry.object for each in found if each.entry.kind == 1}
    known = tree.paths({each.parent for each in found})
    assert {each.parent for each in found} <= {TOP, *directories}, "an entry in what is no directory"
    assert tree.ups(directories).keys() == directories
    shown: dict[RelPath, tuple[object, ...]] = {}
    for each in found:
        above = known[each.parent]
        path = RelPath(above + b"/" + each.name if above else each.name)
        shown[path] = (each.entry.what, each.entry.file and each.entry.file.content, each.entry.target, each.entry.meta)
    return shown


def contents(world: World, view: View) -> set[bytes]:
    """All contents that a view has."""
    return {
        each.entry.file.chunks
        for each in Tree(world.nodes, view.root).entries()
        if each.entry.file is not None and isinstance(each.entry.file.chunks, bytes)
    }


def lost(world: World, view: View) -> list[Written]:
    """What somebody wrote, nobody who had seen it replaced or removed, and the view has not.

    Of equal contents that two devices wrote, who replaced either has seen both: they are one where they meet.
    """
    there = contents(world, view)
    dots: dict[bytes, list[Dot]] = {}
    for each in world.written:
        dots.setdefault(each.data, []).append(each.dot)
    return [
        each
        for each in world.written
        if each.data not in there
        and not any(seen.covers(dot) for seen in world.ended.get(each.data, ()) for dot in dots[each.data])
    ]


def a_world(seed: int, devices: int, rounds: int) -> tuple[World, list[Device]]:
    """Something happened."""
    world = World(Random(seed))
    crowd = [Device(world, DeviceId(bytes([number]) * 16)) for number in range(1, devices + 1)]
    for _ in range(rounds):
        device = world.random.choice(crowd)
        match world.random.randrange(4):
            case 0:
                device.look()
            case 1 if world.heads:
                device.look(world.random.sample(sorted(world.heads.values()), 1))
            case _:
                device.act(world.random.randint(1, 6))
    return world, crowd
