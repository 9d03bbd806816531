"""Snapshots on the engine: what is in them, that they never change, and that a crash leaves all of one or nothing."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from blockfs.blocks.maintenance.gc import collect
from blockfs.engine.copies.subtree_copy import unfinished_name
from blockfs.engine.copies.subtree_delete import SubtreeRemoval
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.acl import ACCESS, Acl, AclEntry, Tag
from blockfs.engine.names.attributes import AttributeChanges, Attributes
from blockfs.engine.names.xattrs import OWN_MODE
from blockfs.engine.portions import StoppedError
from blockfs.errors import FsError, NoSpaceError, WouldBlock
from blockfs.service.snapshot_changes import SnapshotListing
from blockfs.tree.schema import ROOT_INO, SNAPSHOTS_INO, SNAPSHOTS_NAME, UNFINISHED_PREFIX, Kind
from tests.unit.blockfs.engine import volumes
from tests.unit.blockfs.engine.volumes import USER, Died, Killer, config, create, findings

BLOCK = 4096


@pytest.fixture
def fs(tmp_path: Path) -> Iterator[Filesystem]:
    filesystem = Filesystem.open(volumes.make(tmp_path / "v"), config())
    yield filesystem
    filesystem.close()


def write(fs: Filesystem, ino: int, data: bytes, offset: int = 0) -> None:
    fs.files.write(ino, offset, data, may_block=True)


def read(fs: Filesystem, path: bytes) -> bytes:
    found = fs.namespace.resolve(path)
    return fs.files.read(found.ino, 0, found.size_bytes, may_block=True)


def paths(fs: Filesystem, top: bytes = b"") -> dict[bytes, object]:
    """Everything below a directory: path → what stat, read, readlink and listxattr say, inode numbers as paths."""
    seen: dict[int, bytes] = {}
    found: dict[bytes, object] = {}

    def visit(ino: int, path: bytes) -> None:
        attributes = fs.namespace.getattr(ino)
        same_as = seen.setdefault(ino, path)
        found[path] = (same_as, *facts(fs, attributes))
        if attributes.kind is Kind.DIRECTORY:
            for entry in fs.namespace.listing(ino).read():
                visit(entry.attributes.ino, path + b"/" + entry.name)

    visit(fs.namespace.resolve(top).ino, b"")
    return found


def facts(fs: Filesystem, attributes: Attributes) -> tuple[object, ...]:
    ino = attributes.ino
    content: object = None
    if attributes.kind is Kind.FILE:
        content = fs.files.read(ino, 0, min(attributes.size_bytes, 1 << 20), may_block=True)
    elif attributes.kind is Kind.SYMLINK:
        content = fs.namespace.readlink(ino)
    xattrs = [(name, fs.namespace.getxattr(ino, name)) for name in fs.namespace.listxattr(ino)]
    stat = (attributes.st_mode, attributes.nlink, attributes.uid, attributes.gid, attributes.rdev)
    times = (attributes.atime_ns, attributes.mtime_ns, attributes.ctime_ns, attributes.btime_ns)
    return stat, attributes.size_bytes, times, content, xattrs


def furnish(fs: Filesystem) -> int:
    """A directory with one of each; returns its inode."""
    names = fs.namespace
    top = names.mkdir(ROOT_INO, b"d", mode=0o751, caller=USER).ino
    plain = names.create(top, b"plain", mode=0o640, caller=USER).ino
    write(fs, plain, b"content" * 1000)
    names.link(plain, top, b"again")
    sub = names.mkdir(top, b"sub", mode=0o1777, caller=USER).ino
    names.link(plain, sub, b"and again")
    names.symlink(sub, b"link", target=b"../plain", caller=USER)
    names.mknod(sub, b"fifo", kind=Kind.FIFO, mode=0o600, caller=USER)
    names.mknod(sub, b"disk", kind=Kind.BLOCK, mode=0o600, caller=USER, rdev=0x801)
    sparse = names.create(sub, b"sparse", mode=0o4755, caller=USER).ino
    write(fs, sparse, b"far", 1 << 40)
    names.setxattr(sparse, b"user.a", b"1")
    names.setxattr(sub, b"user.b", b"2")
    names.create(top, b"empty", mode=0o600, caller=USER)
    names.setattr(sub, AttributeChanges(mtime_ns=5, atime_ns=6))
    return top


def test_a_snapshot_has_all_there_is_in_the_subtree(fs: Filesystem) -> None:
    top = furnish(fs)
    before = paths(fs, b"d")
    made = fs.snapshots.create(top, b"s")
    assert paths(fs, b".snapshots/s") == before
    assert (made.row.files, made.row.source) == (3, b"d")
    assert made.row.logical_bytes == 7000 + (1 << 40) + 3
    assert fs.snapshots.all() == [made]
    assert findings(fs) == []


def test_a_snapshot_of_files_that_come_to_more_than_a_row_holds_tells_the_most_that_it_holds(fs: Filesystem) -> None:
    for number in range(3):
        ino = create(fs, b"%d" % number)
        fs.files.truncate(ino, 2**63 - 1)
    made = fs.snapshots.create(ROOT_INO, b"s")
    assert (made.row.files, made.row.logical_bytes) == (3, 2**64 - 1)
    assert fs.snapshots.all() == [made]


def test_a_snapshot_of_the_root_contains_no_snapshots(fs: Filesystem) -> None:
    furnish(fs)
    before = paths(fs)
    fs.snapshots.create(ROOT_INO, b"one")
    fs.snapshots.create(ROOT_INO, b"two")
    assert paths(fs, b".snapshots/one") == before
    assert paths(fs, b".snapshots/two") == before
    assert findings(fs) == []


def test_a_snapshot_of_one_file(fs: Filesystem) -> None:
    ino = create(fs, b"f")
    write(fs, ino, b"old")
    fs.snapshots.create(ino, b"s")
    write(fs, ino, b"new")
    assert read(fs, b".snapshots/s") == b"old"
    assert findings(fs) == []


def test_a_snapshot_stays_what_it_was(fs: Filesystem) -> None:
    """The promise: nothing that happens to the originals shows."""
    top = furnish(fs)
    fs.snapshots.create(top, b"s")
    before = paths(fs, b".snapshots/s")
    plain = fs.namespace.resolve(b"d/plain").ino
    write(fs, plain, b"X" * 100, 3000)
    fs.files.truncate(plain, 3500, may_block=True)
    fs.namespace.unlink(top, b"empty")
    fs.namespace.rename(top, b"sub", ROOT_INO, b"elsewhere")
    fs.files.flush()
    collect(fs.blocks, fs.tree.view_for_marking().live_ids)
    assert paths(fs, b".snapshots/s") == before
    assert findings(fs) == []


def test_files_without_a_name_are_not_in_a_snapshot(fs: Filesystem) -> None:
    ino = create(fs, b"f")
    fs.namespace.remember(ino)
    fs.namespace.unlink(ROOT_INO, b"f")
    write(fs, ino, b"x")
    made = fs.snapshots.create(ROOT_INO, b"s")
    assert made.row.files == 0
    assert list(paths(fs, b".snapshots/s")) == [b""]


def test_a_snapshot_survives_the_mount_with_the_same_inode_numbers(tmp_path: Path) -> None:
    volume = volumes.make(tmp_path / "v")
    fs = Filesystem.open(volume, config())
    made = fs.snapshots.create(furnish(fs), b"s")
    before = paths(fs, b".snapshots/s")
    inos = {ino for _, ino in fs.tree.entries(made.ino)}
    fs.close()
    fs = Filesystem.open(volume, config())
    assert fs.snapshots.all() == [made]
    assert paths(fs, b".snapshots/s") == before
    assert {ino for _, ino in fs.tree.entries(made.ino)} == inos
    fs.close()


# --- read-only ---


def test_nothing_in_a_snapshot_can_be_changed(fs: Filesystem) -> None:
    live = create(fs, b"live")
    top = fs.snapshots.create(furnish(fs), b"s").ino
    names, files = fs.namespace, fs.files
    plain = names.resolve(b".snapshots/s/plain").ino
    before = paths(fs, b".snapshots")
    changes: list[Callable[[], object]] = [
        lambda: files.open(plain, os.O_RDWR),
        lambda: files.open(plain, os.O_WRONLY),
        lambda: write(fs, plain, b"x"),
        lambda: files.truncate(plain, 0, may_block=True),
        lambda: files.truncate(plain, 1 << 20, may_block=True),
        lambda: names.setattr(plain, AttributeChanges(mode=0)),
        lambda: names.setattr(top, AttributeChanges(mtime_ns=0)),
        lambda: names.setattr(SNAPSHOTS_INO, AttributeChanges(mode=0)),
        lambda: names.setxattr(plain, b"user.x", b""),
        lambda: names.removexattr(names.resolve(b".snapshots/s/sub/sparse").ino, b"user.a"),
        lambda: names.create(top, b"new", mode=0o600, caller=USER),
        lambda: names.mkdir(top, b"new", mode=0o700, caller=USER),
        lambda: names.mkdir(SNAPSHOTS_INO, b"new", mode=0o700, caller=USER),
        lambda: names.symlink(top, b"new", target=b"x", caller=USER),
        lambda: names.link(live, top, b"new"),
        lambda: names.unlink(top, b"plain"),
        lambda: names.rmdir(top, b"sub"),
        lambda: names.rmdir(SNAPSHOTS_INO, b"s"),
        lambda: names.rename(top, b"plain", top, b"other"),
        lambda: names.rename(top, b"plain", ROOT_INO, b"other"),
        lambda: names.rename(ROOT_INO, b"live", top, b"other"),
        lambda: names.rename(SNAPSHOTS_INO, b"s", SNAPSHOTS_INO, b"t"),
    ]
    for number, change in enumerate(changes):
        with pytest.raises(FsError) as refused:
            change()
        assert refused.value.errno == errno.EROFS, number
    with pytest.raises(FsError) as refused:
        names.link(plain, ROOT_INO, b"hard")
    assert refused.value.errno == errno.EXDEV
    names.accessed(plain)
    assert paths(fs, b".snapshots") == before
    assert findings(fs) == []


def test_the_directory_of_snapshots_is_found_but_not_listed(fs: Filesystem) -> None:
    names = fs.namespace
    assert names.lookup(ROOT_INO, SNAPSHOTS_NAME).ino == SNAPSHOTS_INO
    assert names.lookup(SNAPSHOTS_INO, b"..").ino == ROOT_INO
    assert [entry.name for entry in names.listing(ROOT_INO).read()] == []
    assert names.getattr(ROOT_INO).nlink == 2
    sub = names.mkdir(ROOT_INO, b"sub", mode=0o700, caller=USER).ino
    assert names.mkdir(sub, SNAPSHOTS_NAME, mode=0o700, caller=USER)  # reserved in the root only


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda names: names.mkdir(ROOT_INO, SNAPSHOTS_NAME, mode=0o700, caller=USER), errno.EEXIST),
        (lambda names: names.create(ROOT_INO, SNAPSHOTS_NAME, mode=0o700, caller=USER), errno.EEXIST),
        (lambda names: names.symlink(ROOT_INO, SNAPSHOTS_NAME, target=b"x", caller=USER), errno.EEXIST),
        (lambda names: names.rename(ROOT_INO, b"d", ROOT_INO, SNAPSHOTS_NAME), errno.EBUSY),
        (lambda names: names.rename(ROOT_INO, SNAPSHOTS_NAME, ROOT_INO, b"x"), errno.EBUSY),
        (lambda names: names.rmdir(ROOT_INO, SNAPSHOTS_NAME), errno.EBUSY),
        (lambda names: names.unlink(ROOT_INO, SNAPSHOTS_NAME), errno.EISDIR),
    ],
)
def test_the_reserved_name_cannot_be_taken_or_moved(fs: Filesystem, change: Callable[..., object], code: int) -> None:
    fs.namespace.mkdir(ROOT_INO, b"d", mode=0o700, caller=USER)
    with pytest.raises(FsError) as refused:
        change(fs.namespace)
    assert refused.value.errno == code
    assert fs.namespace.lookup(ROOT_INO, SNAPSHOTS_NAME).ino == SNAPSHOTS_INO


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (b"", errno.EINVAL),
        (b".", errno.EINVAL),
        (b"..", errno.EINVAL),
        (b"a/b", errno.EINVAL),
        (b"x" * 256, errno.ENAMETOOLONG),
        (b"taken", errno.EEXIST),
    ],
)
def test_names_of_snapshots(fs: Filesystem, name: bytes, code: int) -> None:
    fs.snapshots.create(ROOT_INO, b"taken")
    with pytest.raises(FsError) as refused:
        fs.snapshots.create(ROOT_INO, name)
    assert refused.value.errno == code
    fs.snapshots.create(ROOT_INO, b"\xff" * 255)
    assert len(fs.snapshots.all()) == 2


def test_a_snapshot_of_a_snapshot_is_refused(fs: Filesystem) -> None:
    made = fs.snapshots.create(ROOT_INO, b"s")
    for source in (made.ino, SNAPSHOTS_INO):
        with pytest.raises(FsError) as refused:
            fs.snapshots.create(source, b"t")
        assert refused.value.errno == errno.EROFS


def test_a_file_of_a_snapshot_can_be_cloned(fs: Filesystem) -> None:
    fs.snapshots.create(furnish(fs), b"s")
    ino = fs.clone(fs.namespace.resolve(b".snapshots/s/plain").ino, ROOT_INO, b"c")
    write(fs, ino, b"mine")
    assert read(fs, b"c").startswith(b"mine")
    assert read(fs, b".snapshots/s/plain") == b"content" * 1000
    fs.commit()
    assert findings(fs) == []


# --- the instant ---


def test_the_gate_holds_writes_back_while_the_instant_is_fixed(fs: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that got in between sealing and freeze would be lost to the snapshot, or be half in it."""
    ino = create(fs, b"f")
    write(fs, ino, b"before")
    commit_if = fs._committer.commit_if
    reads: list[bytes] = []

    def meanwhile(is_ready: Callable[[], bool]) -> None:
        with pytest.raises(WouldBlock):
            fs.files.write(ino, 0, b"during")
        reads.append(fs.files.read(ino, 0, 10, may_block=True))
        commit_if(is_ready)

    monkeypatch.setattr(fs._committer, "commit_if", meanwhile)
    fs.snapshots.create(ROOT_INO, b"s")
    write(fs, ino, b"after!")
    assert reads == [b"before"]
    assert read(fs, b".snapshots/s/f") == b"before"


def test_a_writer_that_waits_at_the_gate_goes_on_afterwards(fs: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    ino = create(fs, b"f")
    writer = threading.Thread(target=write, args=(fs, ino, b"late"))
    commit_if = fs._committer.commit_if

    def meanwhile(is_ready: Callable[[], bool]) -> None:
        if not writer.ident:
            writer.start()
        commit_if(is_ready)

    monkeypatch.setattr(fs._committer, "commit_if", meanwhile)
    fs.snapshots.create(ROOT_INO, b"s")
    writer.join()
    assert read(fs, b".snapshots/s/f") == b""
    assert read(fs, b"f") == b"late"


def test_unsealed_data_that_are_moved_in_at_the_last_moment_are_sealed(
    fs: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = fs.namespace.mkdir(ROOT_INO, b"d", mode=0o700, caller=USER).ino
    write(fs, create(fs, b"outside"), b"data")
    commit_if = fs._committer.commit_if
    moved: list[bool] = []

    def meanwhile(is_ready: Callable[[], bool]) -> None:
        if not moved:
            fs.namespace.rename(ROOT_INO, b"outside", top, b"inside")
        moved.append(True)
        commit_if(is_ready)

    monkeypatch.setattr(fs._committer, "commit_if", meanwhile)
    fs.snapshots.create(top, b"s")
    assert len(moved) == 2
    assert read(fs, b".snapshots/s/inside") == b"data"


def test_only_the_subtree_is_sealed(fs: Filesystem) -> None:
    top = fs.namespace.mkdir(ROOT_INO, b"d", mode=0o700, caller=USER).ino
    write(fs, create(fs, b"outside"), b"data")
    fs.snapshots.create(top, b"s")
    assert fs.staged_bytes


def test_changes_between_instant_and_copy_do_not_show(fs: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are copied after the instant, from the state of the instant: also leaves that are gone meanwhile."""
    ino = create(fs, b"f")
    write(fs, ino, b"old" * 5000)
    work = fs._committer.commit_if

    def then(is_ready: Callable[[], bool]) -> None:
        work(is_ready)
        fs.namespace.create(ROOT_INO, b"too late", mode=0o600, caller=USER)
        fs.files.truncate(ino, 0, may_block=True)
        fs.commit()

    monkeypatch.setattr(fs._committer, "commit_if", then)
    fs.snapshots.create(ROOT_INO, b"s")
    assert read(fs, b".snapshots/s/f") == b"old" * 5000
    assert len(paths(fs, b".snapshots/s")) == 2
    assert findings(fs) == []


def test_a_collection_waits_for_leaves_that_are_being_copied(fs: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between instant and copy a leaf may have no reference: a collection that marked then would take its blocks."""
    ino = create(fs, b"f")
    write(fs, ino, b"old" * 5000)
    commit_if = fs._committer.commit_if
    collector = threading.Thread(target=lambda: collect(fs.blocks, fs.tree.view_for_marking().live_ids))

    def then(is_ready: Callable[[], bool]) -> None:
        commit_if(is_ready)
        fs.files.truncate(ino, 0, may_block=True)
        fs.commit()
        collector.start()
        # It has begun its epoch and waits for us, or it would not need `copying` at all.
        assert fs.tree.copying.locked()

    monkeypatch.setattr(fs._committer, "commit_if", then)
    fs.snapshots.create(ROOT_INO, b"s")
    collector.join()
    assert read(fs, b".snapshots/s/f") == b"old" * 5000
    assert findings(fs) == []


# --- deleting ---


def test_a_deleted_snapshot_leaves_nothing(fs: Filesystem) -> None:
    top = furnish(fs)
    fs.files.flush()
    with fs.tree.committed() as view:
        rows = len(list(view.inodes())), len(list(view.leaf_references()))
    fs.snapshots.create(top, b"s")
    fs.snapshots.remove(fs.snapshots.take_away(b"s"))
    assert fs.snapshots.all() == []
    with fs.tree.committed() as view:
        assert (len(list(view.inodes())), len(list(view.leaf_references()))) == rows
        assert view.copy_of(top, top) is None
        inode = view.inode(SNAPSHOTS_INO)
    assert inode is not None
    assert inode.nlink == 2
    assert findings(fs) == []


def test_deleting_gives_back_what_only_the_snapshot_held(fs: Filesystem) -> None:
    ino = create(fs, b"f")
    write(fs, ino, os.urandom(64 * BLOCK))
    fs.snapshots.create(ROOT_INO, b"s")
    fs.files.truncate(ino, 0, may_block=True)
    fs.commit()
    assert collect(fs.blocks, fs.tree.view_for_marking().live_ids).blocks_removed == 0
    fs.snapshots.remove(fs.snapshots.take_away(b"s"))
    assert collect(fs.blocks, fs.tree.view_for_marking().live_ids).blocks_removed == 64


def test_what_is_open_in_a_deleted_snapshot_stays_readable_until_closed(fs: Filesystem) -> None:
    big = create(fs, b"big")
    for leaf in range(20):
        write(fs, big, b"%d" % leaf, leaf * 256 * BLOCK)
    fs.snapshots.create(furnish(fs), b"other")
    fs.snapshots.create(ROOT_INO, b"s")
    opened = fs.namespace.resolve(b".snapshots/s/big").ino
    folder = fs.namespace.resolve(b".snapshots/s/d/sub").ino
    for ino in (opened, folder):
        fs.namespace.remember(ino)
    in_use = fs.snapshots.remove(fs.snapshots.take_away(b"s"))
    assert [name for _, name in in_use] == [b"big", b"sub"]
    assert fs.files.read(opened, 19 * 256 * BLOCK, 10, may_block=True) == b"19"
    assert [entry.name for entry in fs.namespace.listing(folder).read()] == []
    assert findings(fs) == []
    for ino in (opened, folder):
        fs.namespace.forget(ino)
    fs.commit()
    assert fs.tree.inode(opened) is None
    assert findings(fs) == []
    assert [one.name for one in fs.snapshots.all()] == [b"other"]


def test_large_files_go_in_portions(fs: Filesystem) -> None:
    ino = create(fs, b"big")
    for leaf in range(100):
        write(fs, ino, b"%d" % leaf, leaf * 256 * BLOCK)
    fs.snapshots.create(ROOT_INO, b"s")
    copy = fs.namespace.resolve(b".snapshots/s/big").ino
    assert len(list(fs.tree.leaf_keys(copy))) == 100
    fs.snapshots.remove(fs.snapshots.take_away(b"s"))
    assert fs.tree.inode(copy) is None
    assert list(fs.tree.leaf_keys(copy)) == []
    assert findings(fs) == []


@pytest.mark.parametrize("name", [b"none", b"..", b"", b"x" * 300])
def test_a_snapshot_that_is_not_there_cannot_be_deleted(fs: Filesystem, name: bytes) -> None:
    with pytest.raises(FsError):
        fs.snapshots.take_away(name)


def test_a_mount_that_ends_leaves_the_rest_of_a_removal_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blockfs.engine.portions._STEPS_PER_HOLD", 1)
    monkeypatch.setattr("blockfs.engine.portions._HOLDS_PER_COMMIT", 1)
    volume = volumes.make(tmp_path / "v")
    fs = Filesystem.open(volume, config())
    fs.snapshots.create(furnish(fs), b"s")
    fs.snapshots.remove(fs.snapshots.take_away(b"s"), stop=lambda: True)
    with pytest.raises(StoppedError):
        fs.snapshots.create(ROOT_INO, b"t", stop=lambda: True)
    assert len(list(fs.tree.entries(SNAPSHOTS_INO))) == 2
    assert [entry.name for entry in fs.namespace.listing(SNAPSHOTS_INO).read()] == []
    fs.close()
    fs = Filesystem.open(volume, config())
    assert fs.snapshots.all() == []
    fs.snapshots.remove_unfinished()
    assert list(fs.tree.entries(SNAPSHOTS_INO)) == []
    assert findings(fs) == []
    fs.close()


# --- what a folder above hides ---


def hide(fs: Filesystem, *, above: int) -> int:
    """d in alice's folder with this mode, with an ACL of its own; returns d."""
    private = fs.namespace.mkdir(ROOT_INO, b"private", mode=above, caller=USER).ino
    top = fs.namespace.mkdir(private, b"d", mode=0o2755, caller=USER).ino
    write(fs, fs.namespace.create(top, b"f", mode=0o644, caller=USER).ino, b"secret")
    fs.namespace.setxattr(top, b"user.a", b"1")
    fs.namespace.setxattr(top, ACCESS, acl(1234, 0o7).encode())
    return top


def acl(user: int, permissions: int) -> Acl:
    """rwx for the owner and one named user, r-x for the others."""
    nobody = 0xFFFFFFFF
    return Acl(
        (
            AclEntry(Tag.OWNER, 7, nobody),
            AclEntry(Tag.USER, permissions, user),
            AclEntry(Tag.OWNING_GROUP, 5, nobody),
            AclEntry(Tag.MASK, 7, nobody),
            AclEntry(Tag.OTHERS, 5, nobody),
        )
    )


@pytest.mark.parametrize("above", [0o700, 0o750, 0o770, 0o701, 0o744])
def test_what_a_folder_above_hides_a_snapshot_hides_too(fs: Filesystem, above: int) -> None:
    """Breaks when who may not enter alice's folder reads what is in it by a snapshot of a part of it."""
    top = hide(fs, above=above)
    made = fs.snapshots.create(top, b"s")
    assert fs.namespace.getattr(made.ino).st_mode & 0o7777 == 0o2700
    assert Acl.decode(fs.namespace.getxattr(made.ino, ACCESS)).mode == 0o700
    assert fs.namespace.resolve(b".snapshots/s/f").st_mode & 0o7777 == 0o644
    assert findings(fs) == []


def test_a_folder_above_with_an_acl_hides(fs: Filesystem) -> None:
    top = hide(fs, above=0o755)
    fs.namespace.setxattr(fs.namespace.resolve(b"private").ino, ACCESS, acl(1234, 0).encode())
    made = fs.snapshots.create(top, b"s")
    assert fs.namespace.getattr(made.ino).st_mode & 0o7777 == 0o2700


def test_the_root_of_the_mount_hides_too_but_not_itself(fs: Filesystem) -> None:
    top = hide(fs, above=0o755)
    fs.namespace.setattr(ROOT_INO, AttributeChanges(mode=0o750))
    assert fs.namespace.getattr(fs.snapshots.create(top, b"part").ino).st_mode & 0o7777 == 0o2700
    assert fs.namespace.getattr(fs.snapshots.create(ROOT_INO, b"all").ino).st_mode & 0o7777 == 0o750


def test_where_all_folders_above_are_open_the_mode_stays(fs: Filesystem) -> None:
    before = paths_of(fs, hide(fs, above=0o711))
    assert paths_of(fs, fs.snapshots.create(fs.namespace.resolve(b"private/d").ino, b"s").ino) == before


def test_a_hidden_snapshot_is_restored_and_told_with_its_own_mode(fs: Filesystem) -> None:
    """Breaks when what is restored keeps out those who had rights, or the syncer tells others of the lesser mode."""
    top = hide(fs, above=0o700)
    before = paths_of(fs, top)
    made = fs.snapshots.create(top, b"s")
    assert fs.namespace.listxattr(made.ino) == [ACCESS, b"user.a"]
    with fs.tree.committed() as view:
        rows = SnapshotListing(view, None, b"s").page(0, 10, lambda _: 0).rows
        assert [row.mode for row in rows if row.ino == top] == [before[0] & 0o7777]
    assert paths_of(fs, fs.snapshots.restore(b"s", b"", ROOT_INO, b"back")) == before
    again = fs.snapshots.create(fs.namespace.resolve(b"back").ino, b"again")
    assert paths_of(fs, again.ino) == before
    assert findings(fs) == []


def test_nobody_can_say_which_mode_a_restored_one_gets(fs: Filesystem) -> None:
    with pytest.raises(FsError) as caught:
        fs.namespace.setxattr(hide(fs, above=0o700), OWN_MODE, b"\x0d\xff")
    assert caught.value.errno == errno.EOPNOTSUPP


def test_a_clone_of_a_hidden_file_is_one_like_others(fs: Filesystem) -> None:
    private = fs.namespace.mkdir(ROOT_INO, b"private", mode=0o700, caller=USER).ino
    file = fs.namespace.create(private, b"f", mode=0o644, caller=USER).ino
    write(fs, file, b"secret")
    made = fs.snapshots.create(file, b"s")
    clone = fs.clone(made.ino, ROOT_INO, b"clone")
    assert fs.namespace.getattr(clone).st_mode & 0o777 == 0o600
    assert fs.namespace.getattr(fs.snapshots.create(clone, b"t").ino).st_mode & 0o777 == 0o600
    assert fs.namespace.getattr(fs.snapshots.restore(b"t", b"", ROOT_INO, b"u")).st_mode & 0o777 == 0o600


def paths_of(fs: Filesystem, ino: int) -> tuple[int, list[tuple[bytes, bytes]], list[bytes]]:
    """Mode, attributes and names of a directory."""
    xattrs = [(name, fs.namespace.getxattr(ino, name)) for name in fs.namespace.listxattr(ino)]
    names = [entry.name for entry in fs.namespace.listing(ino).read()]
    return fs.namespace.getattr(ino).st_mode, xattrs, names


# --- restoring ---


def test_a_restored_tree_is_live_and_equal(fs: Filesystem) -> None:
    fs.snapshots.create(furnish(fs), b"s")
    before = paths(fs, b".snapshots/s")
    with fs.tree.committed() as view:
        cursor = view.cursor
    fs.snapshots.restore(b"s", b"", ROOT_INO, b"back")
    restored = paths(fs, b"back")

    def without_times(found: dict[bytes, object]) -> dict[bytes, object]:
        # ctime and btime are those of the restoring; atime and mtime are kept
        return {path: (*value[:3], value[3][:2], *value[4:]) for path, value in found.items()}  # type: ignore[index]

    assert without_times(restored) == without_times(before)
    write(fs, fs.namespace.resolve(b"back/plain").ino, b"changed")
    fs.namespace.mkdir(fs.namespace.resolve(b"back/sub").ino, b"new", mode=0o700, caller=USER)
    assert read(fs, b".snapshots/s/plain") == b"content" * 1000
    fs.commit()
    assert findings(fs) == []
    with fs.tree.committed() as view:
        assert view.changes(cursor) is None  # compare everything
        assert view.changes(view.cursor) is not None


def test_a_snapshot_that_is_deleted_while_its_restoring_waits_is_not_restored_in_part(fs: Filesystem) -> None:
    """Copies of old leaves are made one after the other; what was left by then was told to be all of it."""
    furnish(fs)
    top = fs.snapshots.create(ROOT_INO, b"s").ino
    waits = iter([True])
    fs.tree.copying.acquire()

    def begin_to_delete() -> bool:
        """It waits for another copy."""
        if next(waits, False):
            fs.snapshots.take_away(b"s")
            removal = SubtreeRemoval(fs._stores, fs.namespace.inodes, top, unfinished_name(top))
            with fs.lock:
                assert len(list(islice(removal.steps(), 2))) == 2
            fs.commit()
            fs.tree.copying.release()
        return False

    with pytest.raises(FsError) as caught:
        fs.snapshots.restore(b"s", b"", ROOT_INO, b"back", stop=begin_to_delete)
    assert caught.value.errno == errno.ENOENT
    assert fs.tree.lookup(ROOT_INO, b"back") is None
    fs.snapshots.remove(top)
    fs.commit()
    assert findings(fs) == []


def test_a_part_of_a_snapshot_can_be_restored(fs: Filesystem) -> None:
    fs.snapshots.create(furnish(fs), b"s")
    fs.snapshots.restore(b"s", b"sub/link", ROOT_INO, b"link")
    fs.snapshots.restore(b"s", b"/again/", ROOT_INO, b"file")
    fs.snapshots.restore(b"s", b"sub", ROOT_INO, b"sub")
    assert fs.namespace.readlink(fs.namespace.resolve(b"link").ino) == b"../plain"
    assert fs.namespace.resolve(b"file").nlink == 1
    assert read(fs, b"sub/and again") == b"content" * 1000
    assert findings(fs) == []


@pytest.mark.parametrize(
    ("name", "path", "new_name", "code"),
    [
        (b"none", b"", b"new", errno.ENOENT),
        (b"s", b"nothing", b"new", errno.ENOENT),
        (b"s", b"f/x", b"new", errno.ENOTDIR),
        (b"s", b"", b"f", errno.EEXIST),
        (b"s", b"", SNAPSHOTS_NAME, errno.EEXIST),
        (b"s", b"", b"", errno.EINVAL),
    ],
)
def test_what_cannot_be_restored(fs: Filesystem, name: bytes, path: bytes, new_name: bytes, code: int) -> None:
    create(fs, b"f")
    fs.snapshots.create(ROOT_INO, b"s")
    with pytest.raises(FsError) as refused:
        fs.snapshots.restore(name, path, ROOT_INO, new_name)
    assert refused.value.errno == code
    with pytest.raises(FsError) as refused:
        fs.snapshots.restore(b"s", b"", SNAPSHOTS_INO, b"new")
    assert refused.value.errno == errno.EROFS


# --- crashes and failures ---


def scene(fs: Filesystem) -> None:
    top = furnish(fs)
    fs.snapshots.create(top, b"old")
    write(fs, fs.namespace.resolve(b"d/plain").ino, b"newer")


def make_one(fs: Filesystem) -> None:
    fs.snapshots.create(ROOT_INO, b"new")


def delete_one(fs: Filesystem) -> None:
    fs.snapshots.remove(fs.snapshots.take_away(b"old"))


def restore_one(fs: Filesystem) -> None:
    fs.snapshots.restore(b"old", b"", ROOT_INO, b"back")


@pytest.mark.parametrize("action", [make_one, delete_one, restore_one])
def test_a_crash_at_any_step_leaves_all_or_nothing(
    tmp_path: Path, action: Callable[[Filesystem], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small portions, so that there are many commits to die between."""
    monkeypatch.setattr("blockfs.engine.portions._STEPS_PER_HOLD", 2)
    monkeypatch.setattr("blockfs.engine.portions._HOLDS_PER_COMMIT", 1)
    template = volumes.make(tmp_path / "template")
    fs = Filesystem.open(template, config())
    scene(fs)
    fs.files.flush()
    old = paths(fs, b".snapshots/old")
    fs.close()
    done, steps = False, 0
    while not done:
        killer = Killer()
        fs = Filesystem.open(volumes.copy(template, tmp_path / f"{steps}"), config(killer))
        killer.arm(steps)
        try:
            action(fs)
            done = True
        except Died:
            pass
        fs.abandon()
        fs = Filesystem.open(os.fsencode(tmp_path / f"{steps}"), config())
        assert findings(fs) == [], steps
        fs.snapshots.remove_unfinished()
        assert findings(fs) == [], steps
        found = {one.name for one in fs.snapshots.all()}
        if action is delete_one:
            assert found <= {b"old"}
        else:
            assert b"old" in found
        if b"old" in found:
            assert paths(fs, b".snapshots/old") == old
        if b"new" in found:
            assert paths(fs, b".snapshots/new") == paths(fs)
        if fs.tree.lookup(ROOT_INO, b"back") is not None:
            assert set(paths(fs, b"back")) == set(old)
        assert [name for name, _ in fs.tree.entries(SNAPSHOTS_INO) if name.startswith(UNFINISHED_PREFIX)] == []
        fs.close()
        steps += 1
    assert steps > 10


def test_a_full_disk_leaves_no_snapshot_and_the_next_try_makes_it(
    fs: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    furnish(fs)
    fs.files.flush()
    commit, calls = fs._committer.commit, 0

    def fails_once() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise NoSpaceError("full")
        commit()

    monkeypatch.setattr(fs._committer, "commit", fails_once)
    with pytest.raises(NoSpaceError):
        fs.snapshots.create(ROOT_INO, b"s")
    assert fs.snapshots.all() == []
    assert list(fs.tree.entries(SNAPSHOTS_INO)) == []
    fs.snapshots.create(ROOT_INO, b"s")
    assert paths(fs, b".snapshots/s") == paths(fs)
    assert findings(fs) == []
