"""The namespace against a directory of the host: same calls, same errno, same tree."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from blockfs.engine.durable.recovery import remove_orphans
from blockfs.engine.names.attributes import AttributeChanges, Attributes, Caller, RenameFlags
from blockfs.engine.names.namespace import Namespace
from blockfs.engine.space.ballast import Ballast
from blockfs.engine.space.room import Room
from blockfs.errors import FsError
from blockfs.tree.schema import ROOT_INO, Kind
from blockfs.tree.store import Tree
from tests import effort
from tests.fakes.sizes import RecordedSizes
from tests.kit.committed import check

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
CALLER = Caller(uid=os.geteuid(), gid=os.getegid())
NAMES = [b"a", b"b", b"c"]
ODD_NAMES = [b"\xff\xfe", b"d" * 255, b"e" * 256]
RENAMES = [RenameFlags.NONE, *RenameFlags, RenameFlags.NOREPLACE | RenameFlags.WHITEOUT]
ANY_PATH = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map(b"/".join) | st.sampled_from(ODD_NAMES)


def renameat2(old: bytes, new: bytes, flags: RenameFlags) -> None:
    """A whiteout is made by hand: not every filesystem that tests run on can."""
    is_wanted = RenameFlags.WHITEOUT in flags and RenameFlags.EXCHANGE not in flags
    if is_wanted:
        flags &= ~RenameFlags.WHITEOUT
    if LIBC.renameat2(AT_FDCWD, old, AT_FDCWD, new, int(flags)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    if is_wanted and not os.path.lexists(old):
        os.mknod(old, stat.S_IFCHR, 0)


class NamespaceMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp().encode()
        self.host = self.folder + b"/host"
        os.mkdir(self.host)
        self.clock = 0
        self.tree = Tree.create(self.folder + b"/tree")
        self.tree.begin_mount()
        self.files = RecordedSizes()
        self.namespace = Namespace(
            self.tree,
            self.files,
            lock=threading.RLock(),
            now_ns=self.tick,
            block_size=4096,
            room=Room(self.folder, Ballast(self.folder, 0), reserve_bytes=0),
        )
        self.handles: list[tuple[int, int]] = []  # host descriptor, ino

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def teardown(self) -> None:
        for descriptor, _ in self.handles:
            os.close(descriptor)
        self.tree.close()
        shutil.rmtree(self.folder)

    def place(self, path: bytes) -> tuple[int, bytes]:
        """Parent ino and name, as the kernel would look them up."""
        parent, _, name = path.rpartition(b"/")
        ino = self.namespace.resolve(parent).ino
        self.namespace.parent(ino)  # ENOTDIR
        return ino, name

    def both(self, on_host: Callable[[], object], here: Callable[[], object]) -> None:
        expected = actual = 0
        try:
            on_host()
        except OSError as error:
            expected = error.errno or 0
        try:
            here()
        except FsError as error:
            actual = error.errno
        assert errno.errorcode.get(actual, "done") == errno.errorcode.get(expected, "done")

    def at(self, path: bytes) -> bytes:
        return self.host + b"/" + path

    def draw_entry(self, data: st.DataObject) -> bytes:
        """Something that is there; else calls would mostly miss."""
        entries = [
            os.path.relpath(os.path.join(folder, name), self.host)
            for folder, directories, files in os.walk(self.host)
            for name in directories + files
        ]
        return data.draw(st.sampled_from(sorted(entries)) if entries else ANY_PATH, label="entry")

    def draw_path(self, data: st.DataObject) -> bytes:
        """A name in a directory that is there, or anything."""
        if data.draw(st.integers(0, 9)) == 0:
            return data.draw(ANY_PATH, label="path")
        folders = sorted(os.path.relpath(folder, self.host) for folder, _, _ in os.walk(self.host))
        folder, name = data.draw(st.sampled_from(folders)), data.draw(st.sampled_from(NAMES))
        return os.path.normpath(os.path.join(folder, name))

    @initialize()
    def populate(self) -> None:
        for path in (b"a", b"a/b", b"a/b/c", b"b", b"b/a"):
            os.mkdir(self.at(path))
            os.chmod(self.at(path), 0o755)
            self.namespace.mkdir(*self.place(path), mode=0o755, caller=CALLER)
        for path in (b"c", b"a/c", b"a/b/c/c"):
            os.mknod(self.at(path), 0o100644)
            os.chmod(self.at(path), 0o644)
            self.namespace.create(*self.place(path), mode=0o644, caller=CALLER)

    # --- calls ---

    @rule(data=st.data(), mode=st.integers(0, 0o777))
    def create(self, data: st.DataObject, mode: int) -> None:
        path = self.draw_path(data)

        def on_host() -> None:
            os.close(os.open(self.at(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
            os.chmod(self.at(path), mode)

        self.both(on_host, lambda: self.namespace.create(*self.place(path), mode=mode, caller=CALLER))

    @rule(data=st.data(), linked=st.booleans(), mode=st.integers(0, 0o777))
    def tmpfile(self, data: st.DataObject, linked: bool, mode: int) -> None:
        """Open one, which may get a name at once, or stays without."""
        path = self.draw_path(data)
        ino = self.namespace.tmpfile(ROOT_INO, mode=mode, caller=CALLER, may_get_name=linked).ino
        self.namespace.remember(ino)
        descriptor = os.open(self.folder, os.O_TMPFILE | os.O_RDWR)
        os.fchmod(descriptor, mode)
        self.handles.append((descriptor, ino))

        def on_host() -> None:
            os.link(f"/proc/self/fd/{descriptor}", self.at(path), src_dir_fd=descriptor)  # or it would not follow

        if linked:
            self.both(on_host, lambda: self.namespace.link(ino, *self.place(path)))

    @rule(data=st.data())
    def mkdir(self, data: st.DataObject) -> None:
        path = self.draw_path(data)
        self.both(
            lambda: os.mkdir(self.at(path), 0o755),
            lambda: self.namespace.mkdir(*self.place(path), mode=0o755, caller=CALLER),
        )

    @rule(data=st.data())
    def mkfifo(self, data: st.DataObject) -> None:
        path = self.draw_path(data)
        self.both(
            lambda: os.mkfifo(self.at(path), 0o600),
            lambda: self.namespace.mknod(*self.place(path), kind=Kind.FIFO, mode=0o600, caller=CALLER),
        )

    @rule(data=st.data())
    def symlink(self, data: st.DataObject) -> None:
        path = self.draw_path(data)
        # To a file: a path that goes on behind the symlink is ENOTDIR, followed by the host's kernel or not.
        target = self.folder + b"/tree/data.mdb"
        self.both(
            lambda: os.symlink(target, self.at(path)),
            lambda: self.namespace.symlink(*self.place(path), target=target, caller=CALLER),
        )

    @rule(data=st.data())
    def link(self, data: st.DataObject) -> None:
        old, new = self.draw_entry(data), self.draw_path(data)
        self.both(
            lambda: os.link(self.at(old), self.at(new), follow_symlinks=False),
            lambda: self.namespace.link(self.namespace.lookup(*self.place(old)).ino, *self.place(new)),
        )

    @rule(data=st.data())
    def unlink(self, data: st.DataObject) -> None:
        path = self.draw_entry(data)
        self.both(lambda: os.unlink(self.at(path)), lambda: self.namespace.unlink(*self.place(path)))

    @rule(data=st.data())
    def rmdir(self, data: st.DataObject) -> None:
        path = self.draw_entry(data)
        self.both(lambda: os.rmdir(self.at(path)), lambda: self.namespace.rmdir(*self.place(path)))

    @rule(data=st.data(), flags=st.sampled_from(RENAMES))
    def rename_onto_something(self, data: st.DataObject, flags: RenameFlags) -> None:
        old, new = self.draw_entry(data), self.draw_entry(data)
        self.both(
            lambda: renameat2(self.at(old), self.at(new), flags),
            lambda: self.namespace.rename(*self.place(old), *self.place(new), flags=flags),
        )

    @rule(data=st.data(), flags=st.sampled_from(RENAMES))
    def rename(self, data: st.DataObject, flags: RenameFlags) -> None:
        old, new = self.draw_entry(data), self.draw_path(data)
        self.both(
            lambda: renameat2(self.at(old), self.at(new), flags),
            lambda: self.namespace.rename(*self.place(old), *self.place(new), flags=flags),
        )

    @rule(data=st.data(), mode=st.integers(0, 0o777))
    def chmod(self, data: st.DataObject, mode: int) -> None:
        path = self.draw_entry(data)

        def here() -> None:
            ino = self.namespace.lookup(*self.place(path)).ino
            self.namespace.setattr(ino, AttributeChanges(mode=mode))

        if not os.path.islink(self.at(path)):
            self.both(lambda: os.chmod(self.at(path), mode), here)

    @rule(data=st.data())
    def readlink(self, data: st.DataObject) -> None:
        path = self.draw_entry(data)
        self.both(
            lambda: os.readlink(self.at(path)),
            lambda: self.namespace.readlink(self.namespace.lookup(*self.place(path)).ino),
        )

    @rule(data=st.data())
    def open(self, data: st.DataObject) -> None:
        path = self.draw_entry(data)

        def on_host() -> None:
            descriptors.append(os.open(self.at(path), os.O_PATH | os.O_NOFOLLOW))

        def here() -> None:
            ino = self.namespace.lookup(*self.place(path)).ino
            self.namespace.remember(ino)
            self.handles.append((descriptors[0], ino))

        descriptors: list[int] = []
        self.both(on_host, here)

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        descriptor, ino = self.handles.pop(data.draw(st.integers(0, len(self.handles) - 1)))
        os.close(descriptor)
        self.namespace.forget(ino)

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), name=st.sampled_from([b"a", b"b"]), call=st.sampled_from(["lookup", "mkdir", "rename"]))
    def use_open_directory(self, data: st.DataObject, name: bytes, call: str) -> None:
        """Also one that was removed meanwhile."""
        descriptor, ino = data.draw(st.sampled_from(self.handles))
        if call == "lookup":
            self.both(lambda: os.lstat(name, dir_fd=descriptor), lambda: self.namespace.lookup(ino, name))
        elif call == "mkdir":
            self.both(
                lambda: os.mkdir(name, 0o755, dir_fd=descriptor),
                lambda: self.namespace.mkdir(ino, name, mode=0o755, caller=CALLER),
            )
        else:
            self.both(
                lambda: os.rename(self.at(b"c"), name, dst_dir_fd=descriptor),
                lambda: self.namespace.rename(ROOT_INO, b"c", ino, name),
            )

    @rule()
    def commit(self) -> None:
        self.tree.commit()
        with self.tree.committed() as view:
            assert check(view, 4096) == []

    @rule()
    def crash_after_a_commit(self) -> None:
        """Orphans go, everything else stays."""
        self.tree.commit()
        self.tree.close()
        for descriptor, _ in self.handles:
            os.close(descriptor)
        self.handles = []
        self.tree = Tree.open(self.folder + b"/tree")
        self.tree.begin_mount()
        self.namespace = Namespace(
            self.tree,
            self.files,
            lock=threading.RLock(),
            now_ns=self.tick,
            block_size=4096,
            room=Room(self.folder, Ballast(self.folder, 0), reserve_bytes=0),
        )
        remove_orphans(self.tree)
        assert list(self.tree.orphans()) == []

    # --- what must hold ---

    @invariant()
    def both_trees_are_the_same(self) -> None:
        self.identities: dict[int, int] = {}
        self.reached = 0
        self.compare(self.host, ROOT_INO)
        for descriptor, ino in self.handles:
            found = os.fstat(descriptor)
            attributes = self.namespace.getattr(ino)
            assert stat.S_IFMT(found.st_mode) == attributes.kind.value
            if attributes.kind is not Kind.DIRECTORY:
                assert found.st_nlink == attributes.nlink
        unreached = {ino for _, ino in self.handles if ino not in self.identities.values()}
        assert set(self.tree.orphans()) == unreached

    def compare(self, path: bytes, ino: int) -> None:
        directories = 0
        entries = list(self.namespace.listing(ino).read(dots=True))
        assert [entry.name for entry in entries[:2]] == [b".", b".."]
        assert [entry.name for entry in entries[2:]] == sorted(os.listdir(path))
        self.identities[os.lstat(path).st_ino] = ino
        for entry in entries[2:]:
            below = path + b"/" + entry.name
            found = os.lstat(below)
            self.same(below, found, entry.attributes)
            if entry.attributes.kind is Kind.DIRECTORY:
                directories += 1
                assert self.namespace.parent(entry.attributes.ino) == ino
                self.compare(below, entry.attributes.ino)
        assert self.namespace.getattr(ino).nlink == 2 + directories

    def same(self, path: bytes, found: os.stat_result, attributes: Attributes) -> None:
        assert self.identities.setdefault(found.st_ino, attributes.ino) == attributes.ino
        assert (found.st_uid, found.st_gid) == (attributes.uid, attributes.gid)
        assert found.st_mode == attributes.st_mode
        if attributes.kind is not Kind.DIRECTORY:  # btrfs says 1
            assert (found.st_nlink, found.st_size) == (attributes.nlink, attributes.size_bytes)
        if attributes.kind is Kind.SYMLINK:
            assert os.readlink(path) == self.namespace.readlink(attributes.ino)


TestNamespace = NamespaceMachine.TestCase
TestNamespace.settings = settings(max_examples=effort.count("namespace"), stateful_step_count=50, deadline=None)
