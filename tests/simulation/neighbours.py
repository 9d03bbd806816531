"""Users and clients that get in each other's way: kinds swapped beside creations below, wide names, lost markers."""

from __future__ import annotations

import random

from syncer.core.model import Meta, RelPath, Side
from tests.fakes.memory import MemoryContainer
from tests.simulation.disk import blocks_of, parts_of
from tests.simulation.world import DIRECTORY, FILE, Entry, Replica, Users
from tests.simulation.world import NAMES as SHORT

WIDE = ("ä" * 127 + "x").encode()
WIDER = ("y" + "\N{GRINNING FACE}" * 63 + "yz").encode()
NAMES = (*SHORT, WIDE, WIDER)


class Neighbours(Users):
    """Users who replace what is not empty, and fill folders that others are about to replace; some names are long."""

    def __init__(self, rng: random.Random, log: list[str]) -> None:
        super().__init__(rng, log)
        self.names = NAMES

    def twist(self, one: Replica, two: Replica) -> None:
        """One replaces a folder; another one, who does not know, makes something in it."""
        folders = [path for path, entry in one.entries.items() if entry.kind is DIRECTORY]
        common = sorted(path for path in folders if two.is_directory(path) and not path.startswith(b".blocksync"))
        if common:
            path = self.rng.choice(common)
            self.log.append(f"twist of {path!r}")
            self.swap(one, path)
            self.fill(two, path)

    def act(self, replica: Replica) -> None:
        self.acts += 1
        roll = self.rng.random()
        if roll < 0.1 and replica.side is Side.REMOTE:
            self.double(replica, self._any(replica))
        elif roll < 0.2:
            self.swap(replica, self._any(replica))
        elif roll < 0.4:
            self.fill(replica, self._folder(replica))
        elif roll < 0.48:
            self._close(replica, self._folder(replica))
        else:
            super().act(replica)

    def _any(self, replica: Replica) -> bytes | None:
        paths = sorted(path for path in replica.entries if not path.startswith(b".blocksync"))
        return self.rng.choice(paths) if paths else None

    def swap(self, replica: Replica, path: bytes | None) -> None:
        """Another kind of thing gets the name; what a folder held is deleted with it."""
        if path is None or path not in replica.entries:
            return
        kind = replica.entries[path].kind
        self._delete(replica, path)
        new = self._entry(replica)
        if new.kind is not kind and not replica.occupied(path) and replica.can_hold(path.rpartition(b"/")[0]):
            self._note(replica, f"replace {path!r} by {new.kind.value} payload {new.payload}")
            replica.put(path, new)
            self._account(new)

    def double(self, replica: Replica, path: bytes | None) -> None:
        """What an object store takes: an object in the place of a folder that is not empty, one below a file."""
        if path is None:
            return
        kind = replica.entries[path].kind
        if kind is not DIRECTORY:
            path += b"/" + self.rng.choice(SHORT)
        elif not replica.below(path):
            return
        if kind is DIRECTORY or path not in replica.entries:
            new = Entry(self.identity(), FILE, self.new_payload(), 0o644, self.identities, replica.tick())
            self._note(replica, f"put {path!r} payload {new.payload} over or below another object")
            replica.entries[path] = new
            self._account(new)

    def fill(self, replica: Replica, folder: bytes) -> None:
        """Something new in a folder."""
        path = folder + b"/" + self.rng.choice(self.names) if folder else self.rng.choice(self.names)
        if not replica.occupied(path) and replica.can_hold(folder):
            new = self._entry(replica)
            self._note(replica, f"create {new.kind.value} {path!r} payload {new.payload}")
            replica.put(path, new)
            self._account(new)

    def _close(self, replica: Replica, folder: bytes) -> None:
        if folder in replica.entries:
            entry = replica.entries[folder]
            entry.mode, entry.version = self.rng.choice((0o700, 0o711, 0o750)), replica.tick()
            self._note(replica, f"mode {entry.mode:o} of {folder!r}")


class Stranger:
    """Somebody with another client: an object store takes what no tree can hold, and markers that tell nothing."""

    def __init__(self, container: MemoryContainer, users: Users) -> None:
        self.container, self.users, self.rng, self.log = container, users, users.rng, users.log

    def act(self) -> None:
        """One request."""
        box = self.container
        markers = [path for path, version in sorted(box.objects.items()) if version.kind is DIRECTORY]
        above = {path.rpartition(b"/")[0] for path in box.objects if b"/" in path}
        mine = sorted({path for path in above if not path.startswith(b".blocksync")})
        roll = self.rng.random()
        if roll < 0.5 and (alone := [path for path in markers if path in above]):
            path = self.rng.choice(alone)
            self.log.append(f"stranger: removes the marker of {path!r}")
            box.remove(path)
        elif roll < 0.7 and mine:
            path = RelPath(self.rng.choice(mine))
            if path not in box.objects or box.objects[path].kind is DIRECTORY:
                self.log.append(f"stranger: makes a marker of {path!r}")
                box.put(path, kind=DIRECTORY, blocks=box.store_all(b""), meta=Meta())
        elif roll < 0.85 and mine:
            path = self.rng.choice(mine)
            if RelPath(path) not in box.objects:
                self._put(path)
        else:
            files = [path for path, version in sorted(box.objects.items()) if version.kind is not DIRECTORY]
            files = [path for path in files if not path.startswith(b".blocksync")]
            if files and len(path := self.rng.choice(files) + b"/" + self.rng.choice(SHORT)) < 1000:
                self._put(path)

    def _put(self, path: bytes) -> None:
        box, payload = self.container, self.users.new_payload()
        if RelPath(path) in box.objects:
            return
        self.log.append(f"stranger: puts {path!r} payload {payload}")
        for part in parts_of(payload):
            box.store(part)
        box.put(RelPath(path), kind=FILE, blocks=blocks_of(payload), meta=Meta(mode=0o644, mtime_ns=payload))
        if payload != 1 or self.users.copies_count:
            self.users.must.add(payload)
