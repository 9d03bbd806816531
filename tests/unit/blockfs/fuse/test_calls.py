"""The rules of requests that no front-end has of its own: without a kernel, without FUSE, without trio."""

from __future__ import annotations

import errno
import inspect
import os
import stat
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blockfs.engine import volume as volumes
from blockfs.engine.config import EngineConfig
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names import listing
from blockfs.engine.names.acl import ACCESS
from blockfs.engine.names.attributes import AttributeChanges, Attributes, Caller, RenameFlags
from blockfs.errors import CorruptBlockError, FsError, NoSpaceError, WouldBlock
from blockfs.fuse import calls as module
from blockfs.fuse.calls import LARGE_WRITE, Calls
from blockfs.fuse.requests import REQUESTS
from blockfs.service.counters import Counters
from blockfs.tree.schema import Kind
from tests.kit.committed import check

ROOT = 1
OWNER, SUPERUSER = Caller(uid=1000, gid=1001), Caller(uid=0, gid=0)
NOBODY = 1 << 30  # no process has this id


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[Filesystem]:
    path = os.fsencode(tmp_path / "v")
    volumes.init(path)
    opened = Filesystem.open(path, EngineConfig(background=False))
    yield opened
    opened.abandon()


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def calls(filesystem: Filesystem, counters: Counters) -> Calls:
    return Calls(filesystem, counters)


def created(calls: Calls, name: bytes = b"f", flags: int = os.O_RDWR, mode: int = 0o640) -> tuple[int, int]:
    """A new file's handle and inode."""
    fh, made = calls.create(ROOT, name, stat.S_IFREG | mode, flags, OWNER)
    return fh, made.ino


def fails_with(number: int, call: Callable[..., object], *arguments: Any, **keywords: Any) -> None:
    with pytest.raises(FsError) as caught:
        call(*arguments, **keywords)
    assert caught.value.errno == number


# --- the table ---


def test_the_table_has_every_request_and_where_each_is_repeated_that_may_have_to_wait() -> None:
    """A call without a row could not be asked for; one that says WouldBlock without a place would be a crash."""
    answers = {name for name, member in vars(Calls).items() if inspect.isfunction(member) and name[0] != "_"}
    assert answers - {"failed", "read_into"} == REQUESTS.keys()  # it is `read`, inline
    waits = {kind for kind, row in REQUESTS.items() if "may_block" in inspect.signature(row.call).parameters}
    assert {kind for kind, row in REQUESTS.items() if row.repeat is not None} == waits | {"readdir"}
    for kind, row in REQUESTS.items():
        assert not row.by_handle or list(inspect.signature(row.call).parameters)[1] in {"fh", "fh_in"}, kind


# --- names and references ---


def test_a_missing_name_is_an_answer(calls: Calls) -> None:
    assert calls.lookup(ROOT, b"missing") is None
    fails_with(errno.ENAMETOOLONG, calls.lookup, ROOT, b"n" * 256)
    fails_with(errno.ENOTDIR, calls.lookup, created(calls)[1], b"f")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["lookup", "link", "list", "list a part", "forget", "open and close"]), st.integers(1, 3)
    ),
    max_size=12,
)


@given(steps=STEPS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_inode_is_referred_to_as_often_as_it_was_answered_and_not_forgotten(
    calls: Calls, filesystem: Filesystem, steps: list[tuple[str, int]]
) -> None:
    """One too few, and the inode of an open file goes away; one too many, and it stays for ever."""
    folder = calls.mkdir(ROOT, os.urandom(8).hex().encode(), 0o755, OWNER).ino
    made = calls.mknod(folder, b"f", stat.S_IFREG | 0o644, 0, OWNER)
    expected, names = 1, 1
    for step, times in steps:
        for _ in range(times):
            match step:
                case "lookup":
                    assert calls.lookup(folder, b"f") == calls.getattr(made.ino)
                    expected += 1
                case "link":
                    names += 1
                    calls.link(made.ino, folder, b"f%d" % names)
                    expected += 1
                case "list" | "list a part":
                    room = 100 if step == "list" else 2 + names // 2  # "." and ".." count as no lookup
                    expected += min(names, room - 2)
                    _listed(calls, folder, room)
                case "open and close":
                    calls.release(calls.open(made.ino, os.O_RDONLY, OWNER))
                case _ if expected > 1:
                    calls.forget([(made.ino, 1)])
                    expected -= 1
    assert filesystem.namespace.inodes.references(made.ino) == expected
    for number in range(names):
        calls.unlink(folder, b"f%d" % (number + 1) if number else b"f")
    calls.forget([(folder, 0), (made.ino, expected - 1)])
    assert calls.getattr(made.ino).nlink == 0
    calls.forget([(made.ino, 1)])
    fails_with(errno.ENOENT, calls.getattr, made.ino)


def _listed(calls: Calls, folder: int, room: int) -> list[bytes]:
    """Names of a directory, as many as have room."""
    fh = calls.opendir(folder)
    found: list[bytes] = []

    def add(name: bytes, _found: Attributes, _next: int) -> bool:
        if len(found) == room:
            return False
        found.append(name)
        return True

    calls.readdir(fh, 0, add)
    calls.releasedir(fh)
    return found


def test_who_seeks_far_ahead_in_a_directory_lets_others_go_first(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        calls.mkdir(ROOT, b"%d" % number, 0o755, OWNER)
    monkeypatch.setattr(listing.Listing.reach, "__defaults__", (3,))  # names in one call
    fh = calls.opendir(ROOT)
    found: list[bytes] = []
    turns = 0
    while True:
        try:
            calls.readdir(fh, 10, lambda name, _found, _next: not found.append(name))  # type: ignore[func-returns-value]
            break
        except WouldBlock:
            turns += 1
    assert (turns, found) == (2, [b"8"])


def test_rename_knows_three_flags(calls: Calls) -> None:
    created(calls)
    for flags in (8, 2 | 4, 1 | 2):
        fails_with(errno.EINVAL, calls.rename, ROOT, b"f", ROOT, b"g", flags)
    calls.rename(ROOT, b"f", ROOT, b"g", 1)
    assert calls.lookup(ROOT, b"g") is not None


def test_a_whiteout_is_left_in_the_step_that_takes_the_name_away(calls: Calls, filesystem: Filesystem) -> None:
    """Overlayfs would show the file below in between."""
    _, ino = created(calls)
    moves = filesystem.commits
    calls.rename(ROOT, b"f", ROOT, b"g", RenameFlags.WHITEOUT, OWNER)
    left, moved = calls.lookup(ROOT, b"f"), calls.lookup(ROOT, b"g")
    assert left is not None
    assert moved is not None
    assert moved.ino == ino
    assert (left.kind, left.rdev, left.mode, left.nlink, left.uid) == (Kind.CHARACTER, 0, 0, 1, OWNER.uid)
    assert filesystem.commits == moves
    calls.rename(ROOT, b"g", ROOT, b"f", RenameFlags.WHITEOUT, OWNER)  # over a whiteout, leaving another
    calls.forget([(left.ino, 1)])
    fails_with(errno.ENOENT, calls.getattr, left.ino)
    assert calls.getattr(ino).nlink == 1


def test_a_whiteout_that_finds_no_room_moves_nothing(
    calls: Calls, filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(calls)

    def full(_length: int) -> None:
        raise NoSpaceError("full")

    monkeypatch.setattr(filesystem.namespace._room, "check", full)
    with pytest.raises(WouldBlock):
        calls.rename(ROOT, b"f", ROOT, b"g", RenameFlags.WHITEOUT)
    with pytest.raises(NoSpaceError):
        calls.rename(ROOT, b"f", ROOT, b"g", RenameFlags.WHITEOUT, may_block=True)
    assert calls.lookup(ROOT, b"g") is None
    calls.rename(ROOT, b"f", ROOT, b"g", 0)  # other renames ask for no room


# --- files without a name ---


def nameless(calls: Calls, flags: int = os.O_RDWR) -> tuple[int, int]:
    fh, made = calls.tmpfile(ROOT, 0o600, flags, OWNER)
    assert (made.nlink, made.mode, made.uid, made.size_bytes) == (0, 0o600, OWNER.uid, 0)
    return fh, made.ino


def test_a_nameless_file_can_be_used_and_goes_when_it_is_closed_and_forgotten(
    calls: Calls, filesystem: Filesystem
) -> None:
    fh, ino = nameless(calls)
    assert calls.write(fh, 0, b"content") == 7
    assert calls.read(fh, 0, 10) == b"content"
    calls.fsync(fh, False, may_block=True)
    assert list(filesystem.tree.orphans()) == [ino]
    calls.release(fh)
    calls.forget([(ino, 1)])
    fails_with(errno.ENOENT, calls.getattr, ino)
    assert (list(filesystem.tree.orphans()), filesystem.staged_bytes) == ([], 0)


def test_a_nameless_file_gets_one_name_once(calls: Calls, filesystem: Filesystem) -> None:
    fh, ino = nameless(calls)
    calls.write(fh, 0, b"content")
    assert calls.link(ino, ROOT, b"f").nlink == 1
    assert list(filesystem.tree.orphans()) == []
    calls.unlink(ROOT, b"f")
    fails_with(errno.ENOENT, calls.link, ino, ROOT, b"again")  # as linkat(2): it had its name


def test_a_nameless_file_that_was_opened_exclusively_stays_without(calls: Calls) -> None:
    _, ino = nameless(calls, os.O_RDWR | os.O_EXCL)
    fails_with(errno.ENOENT, calls.link, ino, ROOT, b"f")


@pytest.mark.parametrize("has_name", [False, True], ids=["without a name", "linked"])
def test_after_a_crash_a_nameless_file_is_gone_and_a_linked_one_is_there(tmp_path: Path, has_name: bool) -> None:
    path = os.fsencode(tmp_path / "v")
    volumes.init(path)
    filesystem = Filesystem.open(path, EngineConfig(background=False))
    calls = Calls(filesystem, Counters())
    fh, ino = nameless(calls)
    calls.write(fh, 0, os.urandom(100_000))
    filesystem.files.flush(ino)
    if has_name:
        calls.link(ino, ROOT, b"f")
    calls.fsync(fh, False, may_block=True)
    filesystem.abandon()
    again = Filesystem.open(path, EngineConfig(background=False))
    try:
        assert (again.tree.inode(ino) is not None) is has_name
        assert list(again.tree.orphans()) == []
        with again.tree.committed() as view:
            assert check(view, again.blocks.block_size, again.blocks.missing) == []
            leaves = list(view.leaf_keys(ino))
        assert bool(leaves) is has_name  # what nothing refers to is collected
    finally:
        again.close()


def test_a_nameless_file_is_its_directorys_child_in_all_but_name(calls: Calls) -> None:
    folder = calls.mkdir(ROOT, b"d", 0o2775, Caller(uid=5, gid=77))
    _, made = calls.tmpfile(folder.ino, 0o640, os.O_RDWR, OWNER)
    assert made.gid == 77  # of a setgid directory
    assert calls.getattr(folder.ino).mtime_ns == folder.mtime_ns
    _, ino = created(calls)
    fails_with(errno.ENOTDIR, calls.tmpfile, ino, 0o600, os.O_RDWR, OWNER)


# --- attributes ---


def test_only_root_sees_that_there_are_trusted_attributes(calls: Calls) -> None:
    _, ino = created(calls)
    for name in (b"trusted.overlay", b"user.trusted.", b"user.colour"):
        calls.setxattr(ino, name, b"value", OWNER, NOBODY)
    assert sorted(calls.listxattr(ino, SUPERUSER)) == [b"trusted.overlay", b"user.colour", b"user.trusted."]
    assert sorted(calls.listxattr(ino, OWNER)) == [b"user.colour", b"user.trusted."]


def acl() -> bytes:
    """rwxrwx--- as an access ACL."""
    return struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", tag, bits, 0xFFFFFFFF) for tag, bits in ((1, 7), (4, 7), (32, 0))
    )


@pytest.mark.parametrize(
    ("caller", "pid", "keeps"),
    [
        (Caller(uid=7, gid=7), NOBODY, False),
        (Caller(uid=7, gid=1001), NOBODY, True),  # a process that has ended has its first group still
        (Caller(uid=0, gid=7), NOBODY, True),
        (Caller(uid=7, gid=7), os.getpid(), True),
    ],
    ids=["a stranger", "of the group", "root", "of the group besides"],
)
def test_an_acl_set_by_a_stranger_to_the_group_ends_setgid(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, caller: Caller, pid: int, keeps: bool
) -> None:
    monkeypatch.setattr(module, "supplementary_groups", lambda of: {1001} if of == os.getpid() else _gone())
    _, ino = created(calls, mode=0o2770)
    calls.setxattr(ino, b"user.x", b"value", Caller(uid=7, gid=7), NOBODY)
    assert calls.getattr(ino).mode & stat.S_ISGID
    calls.setxattr(ino, ACCESS, acl(), caller, pid)
    assert bool(calls.getattr(ino).mode & stat.S_ISGID) is keeps


def _gone() -> set[int]:
    raise ProcessLookupError


def test_an_attribute_is_made_or_replaced_as_asked(calls: Calls) -> None:
    _, ino = created(calls)
    put = partial(calls.setxattr, ino, b"user.x", caller=OWNER, pid=NOBODY)
    fails_with(errno.ENODATA, put, value=b"1", flags=os.XATTR_REPLACE)
    put(value=b"1", flags=os.XATTR_CREATE)
    fails_with(errno.EEXIST, put, value=b"2", flags=os.XATTR_CREATE)
    assert calls.getxattr(ino, b"user.x") == b"1"
    put(value=b"2", flags=os.XATTR_REPLACE)
    put(value=b"3")
    assert calls.getxattr(ino, b"user.x") == b"3"
    fails_with(errno.EEXIST, put, value=b"4", flags=os.XATTR_CREATE | os.XATTR_REPLACE)
    fails_with(errno.EINVAL, put, value=b"4", flags=4)


# --- privileges of a file end with a change by somebody without ---

PRIVILEGED = {
    0o6755: 0o755,
    0o6745: 0o2745,  # setgid without group execution is no privilege
    0o755: 0o755,
}


def changes(calls: Calls, fh: int, ino: int) -> dict[str, Callable[..., object]]:
    """What an unprivileged process may do to a file."""
    return {
        "write": partial(calls.write, fh, 0, b"x"),
        "truncate": partial(calls.setattr, ino, 5, AttributeChanges()),
        "open": partial(calls.open, ino, os.O_RDWR | os.O_TRUNC, SUPERUSER),
    }


@pytest.mark.parametrize("kind", ["write", "truncate", "open"])
@pytest.mark.parametrize(("before", "after"), PRIVILEGED.items(), ids=oct)
def test_a_change_that_kills_privileges_kills_them_all_in_one_change_set(
    calls: Calls, filesystem: Filesystem, kind: str, before: int, after: int
) -> None:
    fh, ino = created(calls, mode=before)
    calls.setxattr(ino, b"security.capability", b"any", SUPERUSER, NOBODY)
    calls.setxattr(ino, b"user.x", b"stays", SUPERUSER, NOBODY)
    change = changes(calls, fh, ino)[kind]
    change(**({"kill_privileges": False} if kind == "open" else {}))
    assert (calls.getattr(ino).mode, len(calls.listxattr(ino, SUPERUSER))) == (before, 2)
    change(kill_privileges=True)
    assert (calls.getattr(ino).mode, calls.listxattr(ino, SUPERUSER)) == (after, [b"user.x"])
    change(kill_privileges=True)  # once more is nothing more
    filesystem.commit()
    with filesystem.tree.committed() as view:
        row = view.inode(ino)
        assert row is not None
        assert (row.mode, view.xattr(ino, b"security.capability")) == (after, None)


def test_no_content_is_durable_with_privileges_that_it_should_have_ended(calls: Calls, filesystem: Filesystem) -> None:
    """A write that finds no room has ended them already, as on any Linux filesystem."""
    fh, ino = created(calls, mode=0o4755)
    modes: list[int] = []
    write = filesystem.files.write

    def watched(*arguments: Any, **keywords: Any) -> int:
        modes.append(calls.getattr(ino).mode)
        return write(*arguments, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filesystem.files, "write", watched)
        calls.write(fh, 0, b"x", kill_privileges=True)
    assert modes == [0o755]


def test_a_size_and_attributes_are_set_in_one_request(calls: Calls) -> None:
    _, ino = created(calls)
    found = calls.setattr(ino, 12345, AttributeChanges(mode=0o711, mtime_ns=-1))
    assert (found.size_bytes, found.mode, found.mtime_ns) == (12345, 0o711, -1)
    assert calls.setattr(ino, None, AttributeChanges()) == found


# --- files ---


@pytest.mark.parametrize(("caller", "kept"), [(SUPERUSER, stat.S_ISUID), (OWNER, 0)], ids=["root", "others"])
def test_an_open_that_truncates_does_and_ends_setuid_unless_root_does_it(
    calls: Calls, caller: Caller, kept: int
) -> None:
    fh, ino = created(calls, mode=0o4755)
    calls.write(fh, 0, b"content")
    again = calls.open(ino, os.O_WRONLY | os.O_TRUNC, caller)
    found = calls.getattr(ino)
    assert (found.size_bytes, found.mode) == (0, kept | 0o755)
    assert calls.read(again, 0, 10) == b""  # the kernel reads through handles opened for writing


@pytest.mark.parametrize("error", [WouldBlock("a snapshot"), NoSpaceError("full")], ids=["later", "no room"])
def test_an_open_that_can_not_truncate_leaves_no_handle(
    calls: Calls, counters: Counters, filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fh, ino = created(calls)
    calls.release(fh)

    def truncate(*_arguments: object, **_keywords: object) -> None:
        raise error

    monkeypatch.setattr(filesystem.files, "truncate", truncate)
    with pytest.raises(type(error)):
        calls.open(ino, os.O_RDWR | os.O_TRUNC, OWNER)
    assert (counters.open_files, counters.activity.writers, filesystem.files.written()) == (0, 0, [])


@pytest.mark.parametrize(
    ("flags", "is_access"),
    [
        (os.O_RDONLY, True),
        (os.O_RDWR, True),
        (os.O_WRONLY, False),  # then the kernel reads to complete pages
        (os.O_RDONLY | os.O_NOATIME, False),
    ],
)
def test_only_who_reads_for_a_user_accesses(
    calls: Calls, filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch, flags: int, is_access: bool
) -> None:
    fh, _ = created(calls, flags=flags)
    accessed: list[int] = []
    monkeypatch.setattr(filesystem.namespace, "accessed", accessed.append)
    calls.write(fh, 0, b"x")
    assert calls.read(fh, 0, 1) == b"x"
    assert bool(accessed) is is_access


@given(parts=st.lists(st.integers(1, 3), min_size=1, max_size=4), full_after=st.integers(0, 4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_write_is_written_wholly_or_fails(
    calls: Calls, filesystem: Filesystem, parts: list[int], full_after: int
) -> None:
    """Of a page that it writes back, the kernel never asks how much was written."""
    fh, ino = created(calls, os.urandom(8).hex().encode())
    data = b"".join(bytes([65 + number]) * 4096 * pages for number, pages in enumerate(parts))
    write, done = filesystem.files.write, 0

    def in_part(ino: int, offset: int, data: bytes, **keywords: Any) -> int:
        nonlocal done
        if done == full_after:
            raise NoSpaceError("full")
        done += 1
        return write(ino, offset, bytes(data)[: parts[done - 1] * 4096], **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filesystem.files, "write", in_part)
        if full_after < len(parts):
            with pytest.raises(NoSpaceError):
                calls.write(fh, 0, data)
        else:
            assert calls.write(fh, 0, data) == len(data)
    whole = sum(parts[:full_after]) * 4096
    assert filesystem.files.read(ino, 0, len(data), may_block=True) == data[:whole]


def test_large_writes_wait_for_a_thread_while_somebody_waits_for_an_fsync_of_another_file(calls: Calls) -> None:
    (stream, _), (small, _) = created(calls, b"stream"), created(calls, b"small")
    large = bytes(LARGE_WRITE)

    def fsync(fh: int) -> None:
        with pytest.raises(WouldBlock):
            calls.fsync(fh, False)
        calls.fsync(fh, False, may_block=True)

    calls.write(stream, 0, large)
    fsync(stream)
    calls.write(stream, 0, large)
    fsync(small)
    with pytest.raises(WouldBlock):
        calls.write(stream, 0, large)
    assert calls.write(stream, 0, large, may_block=True) == LARGE_WRITE
    assert calls.write(small, 0, bytes(4096)) == 4096


def test_an_fsync_always_waits_and_then_is_durable(calls: Calls, filesystem: Filesystem) -> None:
    fh, ino = created(calls)
    calls.write(fh, 0, b"kept")
    calls.mkdir(ROOT, b"d", 0o755, OWNER)
    for call, arguments in ((calls.fsync, (fh, False)), (calls.fsyncdir, ())):
        before = filesystem.commits
        with pytest.raises(WouldBlock):
            call(*arguments)  # type: ignore[operator]
        assert filesystem.commits == before
        call(*arguments, may_block=True)  # type: ignore[operator]
    with filesystem.tree.committed() as view:
        assert view.lookup(ROOT, b"d") is not None
        found = view.inode(ino)
    assert found is not None
    assert found.size_bytes == 4


# --- holes ---

PAGE = 4096
BLOCK = 65536
KEEP, PUNCH, ZERO = 1, 2, 16


def test_data_and_holes_are_found_as_lseek_2_says(calls: Calls) -> None:
    fh, ino = created(calls)
    calls.write(fh, 10 * PAGE, b"x" * 100)
    calls.setattr(ino, 20 * PAGE, AttributeChanges())
    seek = partial(calls.lseek, fh)
    assert [seek(0, os.SEEK_DATA), seek(10 * PAGE + 7, os.SEEK_DATA)] == [10 * PAGE, 10 * PAGE + 7]
    assert [seek(at, os.SEEK_HOLE) for at in (0, 10 * PAGE, 15 * PAGE)] == [0, 11 * PAGE, 15 * PAGE]
    for offset in (11 * PAGE, 20 * PAGE, 1 << 62, -1):
        fails_with(errno.ENXIO, seek, offset, os.SEEK_DATA)
    for offset in (20 * PAGE, 1 << 62, -1):
        fails_with(errno.ENXIO, seek, offset, os.SEEK_HOLE)
    for whence in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END, 9):
        fails_with(errno.EINVAL, seek, 0, whence)


def test_pages_that_the_kernel_keeps_are_taken_before_a_hole_is_told(calls: Calls) -> None:
    """It asks without having written them: a copy would lack what a program wrote a moment ago."""
    fh, ino = created(calls)
    calls.setattr(ino, 20 * PAGE, AttributeChanges())
    taken: list[int] = []

    def take(of: int) -> None:
        taken.append(of)
        calls.write(fh, 5 * PAGE, b"kept")

    calls.take_pages = take
    with pytest.raises(WouldBlock):
        calls.lseek(fh, 0, os.SEEK_DATA)
    assert calls.lseek(fh, 0, os.SEEK_DATA, may_block=True) == 5 * PAGE
    assert taken == [ino]
    reader = calls.open(ino, os.O_RDONLY, OWNER)
    calls.release(fh)
    assert calls.lseek(reader, 0, os.SEEK_DATA) == 5 * PAGE  # closing has written them
    assert taken == [ino]


def test_where_the_kernel_keeps_its_pages_to_itself_a_search_is_refused_until_the_file_is_closed(calls: Calls) -> None:
    fh, ino = created(calls)
    calls.write(fh, 5 * PAGE, b"kept")

    def take(_ino: int) -> None:
        raise FsError(errno.EINVAL, "not now")

    calls.take_pages = take
    for whence in (os.SEEK_DATA, os.SEEK_HOLE):
        fails_with(errno.EINVAL, calls.lseek, fh, 0, whence, may_block=True)
    reader = calls.open(ino, os.O_RDONLY, OWNER)
    calls.release(fh)
    assert calls.lseek(reader, 0, os.SEEK_DATA) == 5 * PAGE


MODES = {
    "punch": (PUNCH | KEEP, True, 3 * BLOCK),
    "zero": (ZERO, True, 5 * BLOCK),
    "zero, keep": (ZERO | KEEP, True, 3 * BLOCK),
    "room": (0, False, 5 * BLOCK),
    "room, keep": (KEEP, False, 3 * BLOCK),
}


def test_times_of_writes_are_the_kernels_where_it_keeps_pages_and_else_ours(calls: Calls) -> None:
    fh, ino = created(calls)
    calls.setattr(ino, None, AttributeChanges(mtime_ns=1))
    calls.write(fh, 0, b"x")
    assert calls.getattr(ino).mtime_ns == 1
    calls.stamps_writes = True
    calls.write(fh, 0, b"y")
    assert calls.getattr(ino).mtime_ns > 1


@pytest.mark.parametrize(("mode", "zeros", "size"), MODES.values(), ids=list(MODES))
def test_a_range_is_a_hole_or_there_is_room_for_it(
    calls: Calls, filesystem: Filesystem, mode: int, zeros: bool, size: int
) -> None:
    fh, ino = created(calls, mode=0o4755)
    data = os.urandom(3 * BLOCK)
    calls.write(fh, 0, data)
    filesystem.files.flush()
    with pytest.raises(WouldBlock):
        calls.fallocate(fh, BLOCK - 5, 4 * BLOCK + 5, mode)
    before = calls.getattr(ino)
    calls.fallocate(fh, BLOCK - 5, 4 * BLOCK + 5, mode, may_block=True)
    found = calls.getattr(ino)
    expected = data[: BLOCK - 5].ljust(3 * BLOCK, b"\0") if zeros else data
    assert calls.read(fh, 0, size, may_block=True) == expected.ljust(size, b"\0")
    assert (found.size_bytes, found.mode) == (size, before.mode)
    assert (found.mtime_ns >= before.mtime_ns, found.ctime_ns >= before.ctime_ns) == (True, True)
    filesystem.files.flush()
    assert calls.getattr(ino).allocated_bytes == (BLOCK if zeros else 3 * BLOCK)
    calls.fallocate(fh, 0, 5, mode, kill_privileges=True, may_block=True)
    assert calls.getattr(ino).mode == 0o755


@pytest.mark.parametrize("mode", [mode for mode, _, _ in MODES.values()], ids=list(MODES))
def test_a_range_in_which_there_is_nothing_to_do_is_a_time_of_change_as_on_ext4(
    calls: Calls, filesystem: Filesystem, mode: int
) -> None:
    fh, ino = created(calls)
    calls.write(fh, 4 * BLOCK, b"x")
    filesystem.flush()
    calls.setattr(ino, None, AttributeChanges(mtime_ns=1, ctime_ns=1))
    calls.fallocate(fh, 0, BLOCK, mode, may_block=True)
    assert calls.getattr(ino).mtime_ns == 1  # a kernel with a writeback cache sends it
    calls.stamps_writes = True
    calls.fallocate(fh, 0, BLOCK, mode, may_block=True)
    found = calls.getattr(ino)
    assert (found.mtime_ns > 1, found.ctime_ns > 1) == (True, True)


def test_other_modes_and_ranges_are_refused_as_fallocate_2_says(calls: Calls) -> None:
    fh, ino = created(calls)
    change = partial(calls.fallocate, fh, may_block=True)
    for mode in (PUNCH, PUNCH | KEEP | ZERO, 8, 8 | KEEP, 32, 64, 64 | KEEP, 128, 1 << 40):
        fails_with(errno.EOPNOTSUPP, change, 0, 1, mode)
    for mode, _, _ in MODES.values():
        fails_with(errno.EINVAL, change, 0, 0, mode)
        fails_with(errno.EINVAL, change, -1, 5, mode)
        fails_with(errno.EFBIG, change, 2**63 - 5, 6, mode)
    assert calls.getattr(ino).size_bytes == 0


# --- copies ---


def test_a_copy_is_made_in_a_thread_and_counts_as_access_to_the_source(
    calls: Calls, filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source, ino), (target, copied) = created(calls), created(calls, b"copy", mode=0o6755)
    data = os.urandom(2 * BLOCK + 100)
    calls.write(source, 0, data)
    filesystem.files.flush()
    accessed: list[int] = []
    monkeypatch.setattr(filesystem.namespace, "accessed", accessed.append)
    copy = partial(calls.copy_file_range, source, 0, target, 0, 1 << 62)
    with pytest.raises(WouldBlock):
        copy(0)
    fails_with(errno.EINVAL, copy, 1, may_block=True)
    assert (calls.getattr(copied).size_bytes, accessed) == (0, [])
    assert copy(0, may_block=True) == len(data)
    assert (calls.read(target, 0, 1 << 20, may_block=True), accessed) == (data, [ino, copied])
    assert calls.getattr(copied).mode == 0o6755
    copy(0, kill_privileges=True, may_block=True)
    assert calls.getattr(copied).mode == 0o755


def test_a_copy_says_no_more_than_the_protocol_can(calls: Calls) -> None:
    """32 bits; and the next one begins at a block's border again."""
    (source, ino), (target, _) = created(calls), created(calls, b"copy")
    calls.setattr(ino, 10 << 30, AttributeChanges())
    done, length = 0, (1 << 32) - 4096  # what Linux asks for at most
    while more := calls.copy_file_range(source, done, target, done, length, 0, may_block=True):
        assert more == 2 << 30
        done += more
    assert done == 10 << 30


def test_a_copy_changes_no_page_in_part_and_leaves_that_to_the_kernel(calls: Calls) -> None:
    """The kernel drops the page, and what a program stored in the rest of it through a mapping meanwhile was lost."""
    (source, _), (target, copied) = created(calls), created(calls, b"copy")
    data = os.urandom(2 * PAGE + 100)
    calls.write(source, 0, data)
    calls.write(target, 0, bytes(4 * PAGE))
    copy = partial(calls.copy_file_range, source, may_block=True)
    fails_with(errno.EOPNOTSUPP, copy, 0, target, 100, PAGE, 0)
    fails_with(errno.EOPNOTSUPP, copy, 0, target, PAGE, 100, 0)
    fails_with(errno.EOPNOTSUPP, copy, 2 * PAGE, target, PAGE, PAGE, 0)
    assert calls.read(target, 0, 4 * PAGE) == bytes(4 * PAGE)
    assert copy(0, target, PAGE, 2 * PAGE + 100, 0) == 2 * PAGE
    assert copy(2 * PAGE, target, 4 * PAGE, PAGE, 0) == 100  # at the end: nobody has more of that page
    assert calls.read(target, 0, 5 * PAGE) == bytes(PAGE) + data[: 2 * PAGE] + bytes(PAGE) + data[2 * PAGE :]
    assert calls.getattr(copied).size_bytes == 4 * PAGE + 100


# --- room ---

MAKERS: dict[str, Callable[[Calls, int, bool], object]] = {
    "mknod": lambda calls, _, wait: calls.mknod(ROOT, b"n", stat.S_IFIFO | 0o600, 0, OWNER, may_block=wait),
    "mkdir": lambda calls, _, wait: calls.mkdir(ROOT, b"n", 0o755, OWNER, may_block=wait),
    "symlink": lambda calls, _, wait: calls.symlink(ROOT, b"n", b"to", OWNER, may_block=wait),
    "link": lambda calls, ino, wait: calls.link(ino, ROOT, b"n", may_block=wait),
    "create": lambda calls, _, wait: calls.create(ROOT, b"n", stat.S_IFREG | 0o600, os.O_RDWR, OWNER, may_block=wait),
    "tmpfile": lambda calls, _, wait: calls.tmpfile(ROOT, 0o600, os.O_RDWR, OWNER, may_block=wait),
    "setxattr": lambda calls, ino, wait: calls.setxattr(ino, b"user.x", b"value", OWNER, NOBODY, may_block=wait),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_new_gets_the_room_of_what_was_just_removed(
    calls: Calls, counters: Counters, filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    _, ino = created(calls, b"old")
    seen, given_back = counters.activity.wait(None, 0), False

    def give_back() -> None:
        nonlocal given_back
        given_back = True

    def check(_length: int) -> None:
        if not given_back:
            raise NoSpaceError("full")

    monkeypatch.setattr(filesystem._committer, "give_back", give_back)
    monkeypatch.setattr(filesystem.namespace._room, "check", check)
    with pytest.raises(WouldBlock):
        MAKERS[kind](calls, ino, False)
    assert not given_back
    assert (calls.lookup(ROOT, b"n"), calls.listxattr(ino, OWNER)) == (None, [])  # nothing was done
    assert counters.activity.wait(None, 0) == seen
    MAKERS[kind](calls, ino, True)
    assert given_back
    assert counters.activity.wait(None, 0) == seen + 1


# --- activity ---


def test_what_counts_as_activity(calls: Calls, counters: Counters) -> None:
    """Too little, and a watcher misses a change; too much, and a running VM wakes the syncer for ever."""

    def noted(call: Callable[[], object]) -> int:
        before = counters.activity.wait(None, 0)
        call()
        return counters.activity.wait(None, 0) - before

    def file(flags: int) -> int:
        return calls.open(ino, flags, OWNER)

    fh, ino = created(calls)
    touched = AttributeChanges(mtime_ns=5)
    assert noted(lambda: calls.write(fh, 0, b"x")) == 0
    assert noted(lambda: calls.setattr(ino, None, touched)) == 0  # a writer's times
    assert counters.activity.writers == 1
    assert noted(lambda: calls.release(fh)) == 1
    assert counters.activity.writers == 0
    assert noted(lambda: calls.setattr(ino, None, touched)) == 1
    assert noted(lambda: calls.setattr(ino, None, AttributeChanges())) == 0
    assert noted(lambda: calls.release(file(os.O_RDONLY))) == 0
    assert noted(lambda: calls.release(file(os.O_WRONLY | os.O_TRUNC))) == 1
    assert noted(lambda: calls.mkdir(ROOT, b"d", 0o755, OWNER)) == 1
    assert noted(lambda: calls.symlink(ROOT, b"s", b"to", OWNER)) == 1
    assert noted(lambda: calls.rename(ROOT, b"d", ROOT, b"e", 0)) == 1
    assert noted(lambda: calls.rmdir(ROOT, b"e")) == 1
    assert noted(lambda: calls.setxattr(ino, b"user.x", b"", OWNER, NOBODY)) == 1
    assert noted(lambda: calls.removexattr(ino, b"user.x")) == 1
    assert noted(lambda: calls.unlink(ROOT, b"f")) == 1
    for looks in (lambda: calls.getattr(ROOT), lambda: calls.lookup(ROOT, b"s"), lambda: _listed(calls, ROOT, 9)):
        assert noted(looks) == 0  # type: ignore[arg-type]
    with pytest.raises(FsError):
        noted(lambda: calls.unlink(ROOT, b"f"))
    assert counters.open_files == 0


# --- failures ---


class Log:
    """Notes what is logged."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []

    def error(self, event: str, **fields: object) -> None:
        self.events.append({"event": event, **fields})


def test_damage_is_an_io_error_whose_file_the_log_names(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "log", Log())
    fh, _ = created(calls)
    calls.rename(ROOT, b"f", ROOT, b"damaged", 0)
    damage = CorruptBlockError(bytes(32), "wrong")
    assert [calls.failed(damage, fh), calls.failed(damage), calls.failed(FsError(errno.EEXIST), fh)] == [
        *(errno.EIO, errno.EIO, errno.EEXIST)
    ]
    calls.unlink(ROOT, b"damaged")
    calls.failed(damage, fh)
    calls.release(fh)
    calls.failed(damage, fh)
    assert [event.get("path", "-") for event in module.log.events] == [b"damaged", "-", None, None]


def test_nobody_waits_for_an_answer_to_a_forget(
    calls: Calls, filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "log", Log())
    _, ino = created(calls)
    forget = filesystem.namespace.forget

    def damaged(number: int, times: int) -> None:
        if number == ROOT:
            raise CorruptBlockError(bytes(32), "wrong")
        forget(number, times)

    monkeypatch.setattr(filesystem.namespace, "forget", damaged)
    calls.forget([(ROOT, 1), (ino, 1)])
    assert filesystem.namespace.inodes.references(ino) == 0
    assert len(module.log.events) == 1
