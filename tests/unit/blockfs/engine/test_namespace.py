"""Rules of names and attributes that a comparison with the host cannot show: times, setgid, xattrs, orphans."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from blockfs.engine.durable.recovery import remove_orphans
from blockfs.engine.names import inodes
from blockfs.engine.names.attributes import AttributeChanges, Attributes, Caller, RenameFlags, XattrFlags
from blockfs.engine.names.namespace import Namespace
from blockfs.engine.space.ballast import Ballast
from blockfs.engine.space.room import Room
from blockfs.errors import FsError, WouldBlock
from blockfs.tree.schema import NAME_MAX, ROOT_INO, SNAPSHOTS_INO, Kind
from blockfs.tree.store import Tree
from tests.fakes.sizes import RecordedSizes

ALICE = Caller(uid=1000, gid=100)
DAY_NS = 86_400 * 10**9


@dataclass
class World:
    """A namespace with a clock that ticks at each question."""

    path: bytes
    tree: Tree
    files: RecordedSizes
    namespace: Namespace
    now: list[int]

    def file(self, name: bytes = b"file", parent: int = ROOT_INO, mode: int = 0o644) -> Attributes:
        return self.namespace.create(parent, name, mode=mode, caller=ALICE)

    def directory(self, name: bytes = b"dir", parent: int = ROOT_INO, mode: int = 0o755) -> Attributes:
        return self.namespace.mkdir(parent, name, mode=mode, caller=ALICE)

    def get(self, ino: int) -> Attributes:
        return self.namespace.getattr(ino)


def make_namespace(path: bytes, tree: Tree, files: RecordedSizes, now: list[int]) -> Namespace:
    def tick() -> int:
        now[0] += 1
        return now[0]

    room = Room(path, Ballast(path, 0), reserve_bytes=0)
    return Namespace(
        tree,
        files,
        lock=threading.RLock(),
        now_ns=tick,
        block_size=65536,
        room=room,
    )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    path = bytes(tmp_path / "tree")
    tree = Tree.create(path)
    tree.begin_mount()
    files, now = RecordedSizes(), [1000]
    yield World(path, tree, files, make_namespace(path, tree, files, now), now)
    tree.close()


def fails(code: int) -> AbstractContextManager[None]:
    @contextmanager
    def expect() -> Iterator[None]:
        with pytest.raises(FsError) as caught:
            yield
        assert errno.errorcode[caught.value.errno] == errno.errorcode[code]

    return expect()


# --- making ---


def test_a_new_file_belongs_to_its_caller_and_has_one_time(world: World) -> None:
    made = world.file(mode=0o100640)
    assert made == Attributes(
        ino=made.ino, kind=Kind.FILE, mode=0o640, nlink=1, uid=1000, gid=100, rdev=0, size_bytes=0, allocated_bytes=0,
        atime_ns=1001, mtime_ns=1001, ctime_ns=1001, btime_ns=1001,
    )  # fmt: skip
    root = world.get(ROOT_INO)
    assert (root.mtime_ns, root.ctime_ns, root.btime_ns, root.nlink) == (1001, 1001, 0, 2)
    assert made.st_mode == 0o100640


def test_devices_keep_their_number_and_others_have_none(world: World) -> None:
    device = world.namespace.mknod(ROOT_INO, b"d", kind=Kind.BLOCK, mode=0o600, caller=ALICE, rdev=0x801)
    fifo = world.namespace.mknod(ROOT_INO, b"f", kind=Kind.FIFO, mode=0o600, caller=ALICE, rdev=0x801)
    assert (device.rdev, fifo.rdev) == (0x801, 0)
    with fails(errno.EINVAL):
        world.namespace.mknod(ROOT_INO, b"x", kind=Kind.DIRECTORY, mode=0o600, caller=ALICE)


def test_a_setgid_directory_gives_its_group_and_directories_the_bit(world: World) -> None:
    shared = world.directory()
    world.namespace.setattr(shared.ino, AttributeChanges(gid=777))
    world.namespace.setattr(shared.ino, AttributeChanges(mode=0o2775))
    file = world.file(parent=shared.ino)
    below = world.directory(parent=shared.ino)
    assert (file.gid, file.mode, below.gid, below.mode) == (777, 0o644, 777, 0o2755)
    assert world.directory(b"plain").gid == ALICE.gid


@pytest.mark.parametrize(
    ("name", "code"),
    [(b"x" * (NAME_MAX + 1), errno.ENAMETOOLONG), (b"", errno.EINVAL), (b"..", errno.EINVAL), (b"a/b", errno.EINVAL)],
)
def test_names_that_cannot_be_are_refused_everywhere(world: World, name: bytes, code: int) -> None:
    file = world.file()
    namespace = world.namespace
    calls: list[Callable[[], object]] = [
        lambda: world.file(name),
        lambda: world.directory(name),
        lambda: namespace.symlink(ROOT_INO, name, target=b"x", caller=ALICE),
        lambda: namespace.link(file.ino, ROOT_INO, name),
        lambda: namespace.unlink(ROOT_INO, name),
        lambda: namespace.rename(ROOT_INO, name, ROOT_INO, b"new"),
        lambda: namespace.rename(ROOT_INO, b"file", ROOT_INO, name),
    ]
    for call in calls:
        with fails(code):
            call()


def test_the_private_folder_is_an_ordinary_directory(world: World) -> None:
    made = world.directory(b".blocksync")
    assert world.namespace.lookup(ROOT_INO, b".blocksync").ino == made.ino
    world.namespace.rmdir(ROOT_INO, b".blocksync")


def test_a_symlink_has_the_size_of_its_target_and_any_bytes(world: World) -> None:
    target = b"/\xff\n" + b"x" * 4000
    made = world.namespace.symlink(ROOT_INO, b"s", target=target, caller=ALICE)
    assert (made.size_bytes, made.mode, world.namespace.readlink(made.ino)) == (len(target), 0o777, target)
    with fails(errno.EINVAL):
        world.namespace.readlink(ROOT_INO)
    with fails(errno.ENAMETOOLONG):
        world.namespace.symlink(ROOT_INO, b"t", target=b"x" * 4096, caller=ALICE)
    with fails(errno.ENOENT):
        world.namespace.symlink(ROOT_INO, b"t", target=b"", caller=ALICE)


def test_a_refused_call_changes_nothing(world: World) -> None:
    world.file()
    world.directory()
    world.tree.commit()
    for call in (
        world.file,
        lambda: world.namespace.symlink(ROOT_INO, b"dir", target=b"x", caller=ALICE),
        lambda: world.namespace.rmdir(ROOT_INO, b"file"),
        lambda: world.namespace.unlink(ROOT_INO, b"dir"),
        lambda: world.namespace.rename(ROOT_INO, b"dir", ROOT_INO, b"file"),
        lambda: world.namespace.setxattr(ROOT_INO, b"user.x", b"", XattrFlags.REPLACE),
    ):
        with pytest.raises(FsError):
            call()
    assert world.tree.is_clean


def test_link_counts_end_somewhere(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("namespace", "rename"):
        monkeypatch.setattr(f"blockfs.engine.names.{module}.LINKS_MAX", 3)
    file = world.file()
    for name in (b"2", b"3"):
        world.namespace.link(file.ino, ROOT_INO, name)
    with fails(errno.EMLINK):
        world.namespace.link(file.ino, ROOT_INO, b"4")
    full = world.directory()
    world.directory(b"sub", parent=full.ino)
    with fails(errno.EMLINK):
        world.directory(b"another", parent=full.ino)
    other = world.directory(b"other", parent=world.namespace.lookup(full.ino, b"sub").ino)
    with fails(errno.EMLINK):
        world.namespace.rename(world.namespace.parent(other.ino), b"other", full.ino, b"other")
    assert inodes.LINKS_MAX > 10**9


# --- links, removal, lifetime ---


def test_a_link_changes_ctime_but_not_mtime(world: World) -> None:
    file = world.file()
    linked = world.namespace.link(file.ino, ROOT_INO, b"other")
    assert (linked.nlink, linked.mtime_ns) == (2, file.mtime_ns)
    assert linked.ctime_ns == world.get(ROOT_INO).mtime_ns > file.ctime_ns
    world.namespace.unlink(ROOT_INO, b"file")
    left = world.get(file.ino)
    assert (left.nlink, left.mtime_ns) == (1, file.mtime_ns)
    assert left.ctime_ns > linked.ctime_ns


def test_directories_and_removed_files_take_no_link(world: World) -> None:
    file, directory = world.file(), world.directory()
    world.namespace.remember(file.ino)
    world.namespace.unlink(ROOT_INO, b"file")
    with fails(errno.EPERM):
        world.namespace.link(directory.ino, ROOT_INO, b"x")
    with fails(errno.ENOENT):
        world.namespace.link(file.ino, ROOT_INO, b"x")


def test_an_unlinked_file_lives_until_the_last_reference(world: World) -> None:
    file = world.file()
    world.namespace.remember(file.ino, 3)
    world.namespace.unlink(ROOT_INO, b"file")
    assert world.get(file.ino).nlink == 0
    world.namespace.setattr(file.ino, AttributeChanges(mode=0o600))
    world.namespace.forget(file.ino, 2)
    assert world.namespace.inodes.references(file.ino) == 1
    assert list(world.tree.orphans()) == [file.ino]
    world.namespace.forget(file.ino)
    assert world.files.discarded == [file.ino]
    assert list(world.tree.orphans()) == []
    with fails(errno.ENOENT):
        world.get(file.ino)


def test_forgetting_a_file_with_a_name_keeps_it(world: World) -> None:
    file = world.file()
    world.namespace.remember(file.ino)
    world.namespace.forget(file.ino)
    assert world.get(file.ino) == file
    assert world.files.discarded == []


def test_a_removed_directory_takes_no_names_but_can_be_read(world: World) -> None:
    directory = world.directory()
    world.namespace.remember(directory.ino)
    listing = world.namespace.listing(directory.ino)
    world.namespace.rmdir(ROOT_INO, b"dir")
    assert [entry.name for entry in listing.read(dots=True)] == [b".", b".."]
    assert world.get(directory.ino).nlink == 0
    assert world.namespace.parent(directory.ino) == directory.ino
    file = world.file()
    for call in (
        lambda: world.file(parent=directory.ino),
        lambda: world.directory(parent=directory.ino),
        lambda: world.namespace.link(file.ino, directory.ino, b"x"),
        lambda: world.namespace.rename(ROOT_INO, b"file", directory.ino, b"x"),
    ):
        with fails(errno.ENOENT):
            call()


def test_orphans_of_a_crash_are_removed_at_mount(world: World) -> None:
    file, kept, directory = world.file(), world.file(b"kept"), world.directory()
    for ino in (file.ino, kept.ino, directory.ino):
        world.namespace.remember(ino)
    world.namespace.unlink(ROOT_INO, b"file")
    world.namespace.rmdir(ROOT_INO, b"dir")
    world.tree.commit()
    world.tree.close()
    world.tree = Tree.open(world.path)
    world.tree.begin_mount()
    world.namespace = make_namespace(world.path, world.tree, world.files, world.now)
    remove_orphans(world.tree)
    world.tree.commit()
    with world.tree.committed() as view:
        assert [inode.ino for inode in view.inodes()] == [ROOT_INO, kept.ino, SNAPSHOTS_INO]
    world.tree.close()


# --- rename ---


def test_a_rename_sets_ctime_of_the_inode_and_both_times_of_the_directories(world: World) -> None:
    source, target = world.directory(b"from"), world.directory(b"to")
    file = world.file(parent=source.ino)
    world.now[0] = 5000
    world.namespace.rename(source.ino, b"file", target.ino, b"new")
    moved = world.get(file.ino)
    assert (moved.mtime_ns, moved.ctime_ns) == (file.mtime_ns, 5001)
    for ino in (source.ino, target.ino):
        assert (world.get(ino).mtime_ns, world.get(ino).ctime_ns) == (5001, 5001)
    assert world.get(ROOT_INO).mtime_ns < 5000


def test_a_rename_is_a_change_of_the_inode_for_the_journal(world: World) -> None:
    """The syncer finds moved files by it."""
    file = world.file()
    before = world.tree.inode(file.ino)
    world.namespace.rename(ROOT_INO, b"file", ROOT_INO, b"new")
    after = world.tree.inode(file.ino)
    assert before is not None
    assert after is not None
    assert after.version > before.version
    assert after.content_version == before.content_version


def test_renaming_onto_another_link_of_the_same_file_does_nothing(world: World) -> None:
    file = world.file()
    world.namespace.link(file.ino, ROOT_INO, b"other")
    before = world.get(ROOT_INO)
    world.namespace.rename(ROOT_INO, b"file", ROOT_INO, b"other")
    assert world.namespace.lookup(ROOT_INO, b"file").ino == world.namespace.lookup(ROOT_INO, b"other").ino
    assert world.get(ROOT_INO) == before


@pytest.mark.parametrize("flags", [RenameFlags(3), RenameFlags(6), RenameFlags(8)])
def test_unknown_rename_flags_are_refused(world: World, flags: RenameFlags) -> None:
    world.file()
    with fails(errno.EINVAL):
        world.namespace.rename(ROOT_INO, b"file", ROOT_INO, b"new", flags=flags)


def test_an_exchange_of_a_file_and_a_directory_moves_both(world: World) -> None:
    left, right = world.directory(b"left"), world.directory(b"right")
    file, below = world.file(parent=left.ino), world.directory(b"below", parent=right.ino)
    world.namespace.rename(left.ino, b"file", right.ino, b"below", flags=RenameFlags.EXCHANGE)
    assert world.namespace.lookup(left.ino, b"file").ino == below.ino
    assert world.namespace.lookup(right.ino, b"below").ino == file.ino
    assert (world.get(left.ino).nlink, world.get(right.ino).nlink) == (3, 2)
    assert world.namespace.lookup(below.ino, b"..").ino == left.ino


def test_a_replaced_file_goes_unless_somebody_has_it_open(world: World) -> None:
    first, second, third = (world.file(name) for name in (b"1", b"2", b"3"))
    world.namespace.remember(second.ino)
    world.namespace.rename(ROOT_INO, b"1", ROOT_INO, b"3")
    world.namespace.rename(ROOT_INO, b"3", ROOT_INO, b"2")
    assert world.files.discarded == [third.ino]
    assert world.get(second.ino).nlink == 0
    assert world.namespace.lookup(ROOT_INO, b"2").ino == first.ino


def test_a_rename_over_a_file_publishes_the_renamed_one_first(world: World) -> None:
    """Else a crash could leave an empty file where the old content was."""
    new = world.file(b"new")
    world.file(b"old")
    world.files.unpublished[new.ino] = (100, 2000)
    with pytest.raises(WouldBlock):
        world.namespace.rename(ROOT_INO, b"new", ROOT_INO, b"old")
    assert world.namespace.lookup(ROOT_INO, b"new").ino == new.ino, "nothing may have happened"
    world.namespace.rename(ROOT_INO, b"new", ROOT_INO, b"old", may_block=True)
    assert world.files.published == [new.ino]
    assert world.namespace.lookup(ROOT_INO, b"old").ino == new.ino


def test_a_rename_over_nothing_or_in_exchange_publishes_nothing(world: World) -> None:
    new = world.file(b"new")
    world.file(b"old")
    world.files.unpublished[new.ino] = (100, 2000)
    world.namespace.rename(ROOT_INO, b"new", ROOT_INO, b"newer")
    world.namespace.rename(ROOT_INO, b"newer", ROOT_INO, b"old", flags=RenameFlags.EXCHANGE)
    assert world.files.published == []


def test_a_rename_looks_again_after_it_waited_for_the_disk(world: World) -> None:
    """The lock is free meanwhile: somebody may have renamed another file to the source's name."""
    new, other = world.file(b"new"), world.file(b"other")
    world.file(b"old")
    for ino in (new.ino, other.ino):
        world.files.unpublished[ino] = (100, 2000)
    publish = world.files.publish_before_replace

    def publish_slowly(ino: int, *, may_block: bool) -> None:
        publish(ino, may_block=may_block)
        if may_block and ino == new.ino:
            world.namespace.rename(ROOT_INO, b"other", ROOT_INO, b"new", flags=RenameFlags.EXCHANGE)

    world.files.publish_before_replace = publish_slowly  # type: ignore[method-assign]
    world.namespace.rename(ROOT_INO, b"new", ROOT_INO, b"old", may_block=True)
    assert world.namespace.lookup(ROOT_INO, b"old").ino == other.ino
    assert world.files.published == [new.ino, other.ino]


def test_what_only_the_kernel_has_of_a_file_comes_in_before_it_replaces_another(world: World) -> None:
    """Only what is open for writing has such pages; and nobody waits for them under the lock."""
    new, old = world.file(b"new"), world.file(b"old")
    taken: list[int] = []

    def take_pages(ino: int) -> None:
        assert world.namespace.lookup(ROOT_INO, b"old").ino == old.ino
        world.files.unpublished[ino] = (100, 2000)
        taken.append(ino)

    world.namespace.take_pages = take_pages
    rename = partial(world.namespace.rename, ROOT_INO, b"new", ROOT_INO)
    world.files.written.add(new.ino)
    with pytest.raises(WouldBlock):
        rename(b"old")
    assert taken == []
    rename(b"old", may_block=True)
    assert world.namespace.lookup(ROOT_INO, b"old").ino == new.ino
    assert taken == world.files.published == [new.ino]
    world.file(b"new")
    rename(b"old")  # closed: it has none
    world.files.written.add(world.namespace.lookup(ROOT_INO, b"old").ino)
    world.namespace.rename(ROOT_INO, b"old", ROOT_INO, b"newer")  # it replaces nothing
    assert taken == [new.ino]


# --- attributes ---


def test_chmod_keeps_only_permission_bits_and_changes_ctime(world: World) -> None:
    file = world.file()
    changed = world.namespace.setattr(file.ino, AttributeChanges(mode=0o107755))
    assert (changed.mode, changed.mtime_ns) == (0o7755, file.mtime_ns)
    assert changed.ctime_ns > file.ctime_ns


@pytest.mark.parametrize(("before", "after"), [(0o6755, 0o0755), (0o6745, 0o2745), (0o4644, 0o0644), (0o1777, 0o1777)])
def test_chown_clears_setuid_and_setgid_like_ext4(world: World, before: int, after: int) -> None:
    file, directory = world.file(), world.directory()
    for ino in (file.ino, directory.ino):
        world.namespace.setattr(ino, AttributeChanges(mode=before))
    assert world.namespace.setattr(file.ino, AttributeChanges(uid=5)).mode == after
    assert world.namespace.setattr(directory.ino, AttributeChanges(gid=5)).mode == before
    world.namespace.setattr(file.ino, AttributeChanges(mode=before))
    assert world.namespace.setattr(file.ino, AttributeChanges(uid=6, mode=0o4711)).mode == 0o4711
    world.namespace.setattr(file.ino, AttributeChanges(mode=before))
    world.namespace.kill_privileges(file.ino)
    assert world.get(file.ino).mode == after


def test_explicit_times_are_kept_to_the_nanosecond_and_replace_unpublished_ones(world: World) -> None:
    file = world.file()
    world.files.unpublished[file.ino] = (10, 9999)
    world.namespace.setattr(file.ino, AttributeChanges(atime_ns=-5, mtime_ns=123456789))
    assert (world.get(file.ino).atime_ns, world.get(file.ino).mtime_ns) == (-5, 123456789)
    far = world.namespace.setattr(file.ino, AttributeChanges(mtime_ns=2**80, ctime_ns=-(2**80)))
    assert (far.mtime_ns, far.ctime_ns) == (2**63 - 1, -(2**63))


def test_attributes_show_the_live_size_and_staged_bytes(world: World) -> None:
    file = world.file()
    world.files.unpublished[file.ino] = (10_000, 5000)
    world.files.staged[file.ino] = 8192
    shown = world.get(file.ino)
    assert (shown.size_bytes, shown.mtime_ns, shown.allocated_bytes) == (10_000, 5000, 8192)
    world.tree.set_leaf(file.ino, 0, b"x" * 32)
    assert world.get(file.ino).allocated_bytes == 10_240, "never more than the size, in units of 512"


def test_other_changes_do_not_publish_a_live_size(world: World) -> None:
    file = world.file()
    world.files.unpublished[file.ino] = (10_000, 5000)
    world.namespace.setattr(file.ino, AttributeChanges(mode=0o600))
    world.namespace.rename(ROOT_INO, b"file", ROOT_INO, b"new")
    row = world.tree.inode(file.ino)
    assert row is not None
    assert row.size_bytes == 0


def test_atime_follows_relatime_and_is_written_with_the_next_change(world: World) -> None:
    file = world.file()
    world.tree.commit()
    world.now[0] = 2000
    world.namespace.accessed(file.ino)
    assert world.get(file.ino).atime_ns == 2001
    world.namespace.accessed(file.ino)
    assert world.get(file.ino).atime_ns == 2001, "newer than mtime and not a day old"
    assert world.tree.is_clean
    world.now[0] += 2 * DAY_NS
    world.namespace.accessed(file.ino)
    assert world.get(file.ino).atime_ns > 2 * DAY_NS
    world.namespace.setattr(file.ino, AttributeChanges(mode=0o600))
    row = world.tree.inode(file.ino)
    assert row is not None
    assert row.atime_ns > 2 * DAY_NS
    world.namespace.accessed(file.ino)
    assert world.namespace.setattr(file.ino, AttributeChanges(atime_ns=7)).atime_ns == 7


def test_atimes_in_memory_are_bounded_and_stored_without_a_new_version(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blockfs.engine.names.inodes._ATIMES_MAX", 2)
    files = [world.file(name).ino for name in (b"1", b"2", b"3")]
    before = [world.tree.inode(ino) for ino in files]
    world.now[0] = 5000
    for ino in files:
        world.namespace.accessed(ino)
    assert len(world.namespace.inodes._atimes) == 1
    world.namespace.store_atimes()
    assert not world.namespace.inodes._atimes
    for ino, old in zip(files, before, strict=True):
        row = world.tree.inode(ino)
        assert row is not None
        assert old is not None
        assert row.atime_ns >= 5000
        assert row == replace(old, atime_ns=row.atime_ns)


def test_statfs_is_the_hosts_room(world: World) -> None:
    world.file()
    world.tree.commit()
    numbers, host = world.namespace.statfs(), os.statvfs(world.path)
    assert (numbers.blocks, numbers.fragment_bytes, numbers.name_max) == (host.f_blocks, host.f_frsize, 255)
    assert numbers.files - numbers.files_free == 3  # also the directory of snapshots


def test_paths_are_followed_without_symlinks(world: World) -> None:
    directory = world.directory()
    file = world.file(parent=directory.ino)
    world.namespace.symlink(ROOT_INO, b"s", target=b"dir", caller=ALICE)
    assert world.namespace.resolve(b"dir/./file") == world.namespace.resolve(b"//dir/../dir/file") == file
    assert world.namespace.resolve(b"").ino == ROOT_INO
    with fails(errno.ENOTDIR):
        world.namespace.resolve(b"s/file")
    with fails(errno.ENOTDIR):
        world.namespace.lookup(file.ino, b"..")


def test_a_dot_of_any_inode_is_itself(world: World) -> None:
    """The kernel asks so for the inode of a file handle that it has forgotten."""
    file = world.file(parent=world.directory().ino)
    assert world.namespace.lookup(file.ino, b".") == file
    with fails(errno.ENOENT):
        world.namespace.lookup(file.ino + 1000, b".")


# --- xattrs ---


def test_xattrs_are_set_replaced_listed_and_removed(world: World) -> None:
    namespace, file = world.namespace, world.file()
    namespace.setxattr(file.ino, b"user.b", b"1")
    namespace.setxattr(file.ino, b"user.a", b"", XattrFlags.CREATE)
    namespace.setxattr(file.ino, b"user.b", b"\0" * 65536, XattrFlags.REPLACE)
    assert namespace.listxattr(file.ino) == [b"user.a", b"user.b"]
    assert namespace.getxattr(file.ino, b"user.b") == b"\0" * 65536
    namespace.removexattr(file.ino, b"user.b")
    assert namespace.listxattr(file.ino) == [b"user.a"]
    assert world.get(file.ino).ctime_ns > file.ctime_ns
    assert world.get(file.ino).mtime_ns == file.mtime_ns


@pytest.mark.parametrize(
    ("name", "value", "flags", "code"),
    [
        (b"user.there", b"", XattrFlags.CREATE, errno.EEXIST),
        (b"user.new", b"", XattrFlags.REPLACE, errno.ENODATA),
        (b"user.there", b"", XattrFlags(3), errno.EEXIST),
        (b"user.new", b"", XattrFlags(3), errno.ENODATA),
        (b"user.new", b"x" * 65537, XattrFlags.NONE, errno.E2BIG),
        (b"user." + b"n" * 251, b"", XattrFlags.NONE, errno.ERANGE),
        (b"system.posix_acl_access", b"", XattrFlags.NONE, errno.EINVAL),
        (b"system.other", b"", XattrFlags.NONE, errno.EOPNOTSUPP),
        (b"plain", b"", XattrFlags.NONE, errno.EOPNOTSUPP),
        (b"user.", b"", XattrFlags.NONE, errno.EINVAL),
    ],
)
def test_xattrs_that_cannot_be_set_are_refused(
    world: World, name: bytes, value: bytes, flags: XattrFlags, code: int
) -> None:
    file = world.file()
    world.namespace.setxattr(file.ino, b"user.there", b"v")
    with fails(code):
        world.namespace.setxattr(file.ino, name, value, flags)
    assert world.namespace.listxattr(file.ino) == [b"user.there"]


def test_missing_xattrs_and_inodes_are_told_apart(world: World) -> None:
    for call in (world.namespace.getxattr, world.namespace.removexattr):
        with fails(errno.ENODATA):
            call(ROOT_INO, b"user.none")
        with fails(errno.ENOENT):
            call(99, b"user.none")
        with fails(errno.EOPNOTSUPP):
            call(ROOT_INO, b"system.none")


def test_the_names_of_all_xattrs_fit_a_list(world: World) -> None:
    file = world.file()
    for number in range(256):
        world.namespace.setxattr(file.ino, b"user.%03d" % number + b"x" * 247, b"")
    with fails(errno.ENOSPC):
        world.namespace.setxattr(file.ino, b"user.more", b"")
    world.namespace.setxattr(file.ino, b"user.000" + b"x" * 247, b"again")


# --- listing ---


def test_a_listing_goes_on_after_any_entry(world: World) -> None:
    for name in (b"c", b"a", b"b"):
        world.file(name)
    listing = world.namespace.listing(ROOT_INO)
    entries = list(listing.read(dots=True))
    assert [entry.name for entry in entries] == [b".", b"..", b"a", b"b", b"c"]
    assert [entry.attributes.ino for entry in entries[:2]] == [ROOT_INO, ROOT_INO]
    for at, entry in enumerate(entries):
        rest = [later.name for later in listing.read(entry.next_position, dots=True)]
        assert rest == [later.name for later in entries[at + 1 :]]
    assert [entry.name for entry in listing.read()] == [b"a", b"b", b"c"]


def test_removing_while_listing_in_pieces_skips_nothing(world: World) -> None:
    """`rm -r`: reads a piece, removes it, reads on from the position."""
    names = {b"%04d" % number for number in range(500)}
    for name in sorted(names):
        world.file(name)
    listing = world.namespace.listing(ROOT_INO)
    position, removed = 0, set()
    while True:
        piece = [entry for entry, _ in zip(listing.read(position), range(7), strict=False)]
        if not piece:
            break
        position = piece[-1].next_position
        for entry in piece:
            world.namespace.unlink(ROOT_INO, entry.name)
            removed.add(entry.name)
    assert removed == names


def test_positions_stay_valid_when_names_come_and_go(world: World) -> None:
    for name in (b"b", b"d", b"f"):
        world.file(name)
    listing = world.namespace.listing(ROOT_INO)
    entries = list(listing.read())
    world.namespace.unlink(ROOT_INO, b"d")
    world.file(b"a")
    world.file(b"g")
    assert [entry.name for entry in listing.read(entries[0].next_position)] == [b"f"]  # what came is not met
    assert [entry.name for entry in listing.read(0)] == [b"a", b"b", b"f", b"g"]


def test_only_directories_are_listed(world: World) -> None:
    with fails(errno.ENOTDIR):
        world.namespace.listing(world.file().ino)


def test_the_version_of_content_is_set_at_creation(world: World) -> None:
    file = world.file()
    row = world.tree.inode(file.ino)
    assert row is not None
    assert row.content_version == row.version > 0


def test_a_symlink_target_has_no_nul(world: World) -> None:
    """No kernel sends one; the control socket can."""
    with pytest.raises(FsError) as refused:
        world.namespace.symlink(ROOT_INO, b"link", target=b"a\0b", caller=ALICE)
    assert refused.value.errno == errno.EINVAL
