"""Requests of the kernel, without a kernel: who is answered at once, who waits, and who not at all."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
import trio.testing

from blockfs.engine import volume as volumes
from blockfs.engine.config import EngineConfig
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.portions import Stop, never
from blockfs.errors import WouldBlock
from blockfs.fuse import answering as answering_module
from blockfs.fuse.answering import Answering
from blockfs.fuse.calls import Calls
from blockfs.fuse.kernel import serving as module
from blockfs.fuse.kernel import wire
from blockfs.fuse.kernel.native import NativeFiles
from blockfs.fuse.kernel.serving import Refused, Serving
from blockfs.fuse.kernel.translation import UNANSWERED, Translation
from blockfs.fuse.kernel.wire import Opcode
from blockfs.fuse.requests import REQUESTS, Repeat
from blockfs.service.counters import Counters
from tests.kit.kernel_requests import BODIES, UNIQUE, Wireless, request


class World:
    """A filesystem that is served to nobody."""

    def __init__(self, filesystem: Filesystem) -> None:
        self.filesystem = filesystem
        self.counters = Counters()
        self.calls = Calls(filesystem, self.counters)
        self.answering = Answering(filesystem, self.calls, self.counters, Refused)
        self.rows = Translation(self.calls, tells_privileges=True).rows

    def serve(self, messages: Iterable[bytes]) -> dict[int, tuple[int, bytes]]:
        """Answer these, and unmount."""
        wireless = Wireless(messages)
        trio.run(self.run, wireless)
        return wireless.answers

    async def run(self, wireless: Wireless, nothing_to_do: frozenset[int] = frozenset({Opcode.DESTROY})) -> None:
        async with trio.open_nursery() as nursery:
            await Serving(wireless, self.rows, self.answering, nothing_to_do).run(nursery)

    def ask(self, opcode: Opcode, body: bytes | None = None, *, node: int = 1, uid: int = 1000) -> bytes:
        """The answer to one request."""
        number, answer = self._told(opcode, body, node, uid)
        assert not number, errno.errorcode[number]
        return answer

    def refused(self, opcode: Opcode, body: bytes | None = None, *, node: int = 1, uid: int = 1000) -> int:
        """The errno that is the answer to one request."""
        return self._told(opcode, body, node, uid)[0]

    def _told(self, opcode: Opcode, body: bytes | None, node: int, uid: int) -> tuple[int, bytes]:
        return self.serve([request(opcode, BODIES[opcode] if body is None else body, node=node, uid=uid)])[UNIQUE]

    def mode(self, ino: int) -> int:
        """Permissions of an inode."""
        return stat.S_IMODE(wire.ATTR.unpack_from(self.ask(Opcode.GETATTR, node=ino), wire.ATTR_OUT.size)[9])

    def file(self, content: bytes = b"content") -> tuple[int, int]:
        """A new file; its ino and a handle."""
        made = self.ask(Opcode.CREATE)
        ino = wire.ENTRY.unpack_from(made)[0]
        fh = wire.OPEN_OUT.unpack_from(made, 128)[0]
        self.ask(Opcode.WRITE, wire.WRITE_IN.pack(fh, 0, len(content), 0, 0, 0, 0) + content)
        return ino, fh


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    path = os.fsencode(tmp_path / "v")
    volumes.init(path)
    filesystem = Filesystem.open(path, EngineConfig(background=False))
    yield World(filesystem)
    filesystem.abandon()


def test_a_file_is_made_written_read_and_found(world: World) -> None:
    ino, fh = world.file(b"content")
    assert world.ask(Opcode.READ, wire.READ_IN.pack(fh, 2, 100) + bytes(20)) == b"ntent"
    found = world.ask(Opcode.LOOKUP)
    assert wire.ENTRY.unpack_from(found)[0] == ino
    attributes = wire.ATTR.unpack_from(found, wire.ENTRY.size)
    assert attributes[:2] == (ino, 7)
    assert attributes[9] == stat.S_IFREG | 0o640
    assert attributes[11:13] == (1000, 1001)
    world.ask(Opcode.RELEASE, wire.HANDLE_IN.pack(fh) + bytes(16))


def test_a_missing_name_is_an_answer_the_kernel_may_remember(world: World) -> None:
    assert wire.ENTRY.unpack_from(world.ask(Opcode.LOOKUP))[0] == 0


def test_entries_come_with_their_attributes_and_count_as_lookups(world: World) -> None:
    ino, opened = world.file()
    fh = wire.OPEN_OUT.unpack(world.ask(Opcode.OPENDIR))[0]
    body = world.ask(Opcode.READDIRPLUS, wire.READ_IN.pack(fh, 0, 4096) + bytes(20))
    names = []
    while body:
        length = wire.DIRENT.unpack_from(body, 128)[2]
        names.append(body[152 : 152 + length])
        body = body[152 + length + 7 & ~7 :]
    assert names == [b".", b"..", b"name"]
    world.ask(Opcode.UNLINK)
    world.ask(Opcode.RELEASE, wire.HANDLE_IN.pack(opened) + bytes(16))
    forget = [request(Opcode.FORGET, wire.FORGET_IN.pack(1), node=ino)]
    world.serve(forget)
    assert world.refused(Opcode.GETATTR, node=ino) == 0  # the entry counted
    world.serve(forget)
    assert world.refused(Opcode.GETATTR, node=ino) == errno.ENOENT


def test_a_program_with_much_room_gets_its_entries_in_portions(world: World) -> None:
    """Others' requests go in between: a million bytes of entries took 100 ms."""
    for number in range(250):
        world.ask(Opcode.MKNOD, wire.MKNOD_IN.pack(stat.S_IFREG, 0, 0, 0) + b"%d\0" % number)
    fh = wire.OPEN_OUT.unpack(world.ask(Opcode.OPENDIR))[0]
    body = world.ask(Opcode.READDIRPLUS, wire.READ_IN.pack(fh, 0, 1 << 20) + bytes(20))
    assert 30_000 < len(body) <= 32_768


def test_a_change_of_owner_that_changes_none_ends_privileges(world: World) -> None:
    """chown(-1, -1): with KILLPRIV_V2 the kernel sends a time of change, and nothing else ever does."""
    ino, fh = world.file()
    chmod = wire.SETATTR_IN.pack(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, stat.S_IFREG | 0o6775, 0, 0)
    chown = wire.SETATTR_IN.pack(0x400, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0)
    world.ask(Opcode.SETATTR, chmod, node=ino)
    world.ask(Opcode.SETATTR, chown, node=ino, uid=4242)
    assert world.mode(ino) == 0o6775  # not theirs to take
    world.ask(Opcode.SETATTR, chown, node=ino)
    assert world.mode(ino) == 0o775
    world.ask(Opcode.RELEASE, wire.HANDLE_IN.pack(fh) + bytes(16))


class HotFile:
    """One file of the host for all inodes; the kernel that it is registered with is not there."""

    def __init__(self) -> None:
        self.users = 0
        self.registered: list[int] = []

    def open(self, ino: int, *, may_block: bool = False, stop: Stop = never) -> int | None:
        self.users += 1
        return 5

    def release(self, ino: int) -> None:
        self.users -= 1

    def is_hot(self, ino: int) -> bool:
        return self.users > 0

    def is_durable(self, _ino: int) -> bool:
        return True

    def make_durable(self, ino: int) -> None:
        raise AssertionError(ino)

    def register(self, descriptor: int) -> int:
        self.registered.append(descriptor)
        return 9

    def unregister(self, backing_id: int) -> None:
        self.registered.remove(5)

    def translation(self, world: World) -> Translation:
        size = partial(_size, world)
        native = NativeFiles(self, self, size, lambda _ino: None, is_used=lambda _descriptor: False)
        return Translation(world.calls, tells_privileges=True, native=native)


def _size(world: World, ino: int) -> int:
    return world.calls.getattr(ino).size_bytes


@pytest.fixture
def hot(world: World) -> HotFile:
    """All files of the world are native."""
    made = HotFile()
    world.rows = made.translation(world).rows
    return made


def test_files_are_made_opened_and_closed_natively(world: World, hot: HotFile) -> None:
    made = world.ask(Opcode.CREATE)
    ino, fh = wire.ENTRY.unpack_from(made)[0], wire.OPEN_OUT.unpack_from(made, 128)[0]
    assert wire.ENTRY.unpack_from(made)[3] == 0  # whatever attributes come with it
    assert wire.OPEN_OUT.unpack_from(made, 128)[1:] == (wire.FOPEN_PASSTHROUGH, 9)
    again, *way = wire.OPEN_OUT.unpack(world.ask(Opcode.OPEN, node=ino))
    assert way == [wire.FOPEN_PASSTHROUGH, 9]
    for each in (fh, again):
        assert hot.registered == [5]
        world.ask(Opcode.RELEASE, wire.HANDLE_IN.pack(each) + bytes(16))
    assert (hot.registered, hot.users, world.counters.open_files) == ([], 0, 0)
    assert wire.OPEN_OUT.unpack(world.ask(Opcode.OPEN, node=ino))[1] == wire.FOPEN_PASSTHROUGH  # in a thread


def test_an_open_that_fails_is_not_counted(world: World, hot: HotFile) -> None:
    ino, fh = world.file()
    directory = wire.ENTRY.unpack_from(world.ask(Opcode.MKDIR, wire.MKDIR_IN.pack(0o755, 0) + b"d\0"))[0]
    assert world.refused(Opcode.OPEN, node=directory) == errno.EISDIR
    assert world.refused(Opcode.OPEN, node=4242) == errno.ENOENT
    world.ask(Opcode.RELEASE, wire.HANDLE_IN.pack(fh) + bytes(16))
    assert (hot.registered, hot.users, world.counters.open_files) == ([], 0, 0)
    assert ino != directory


def test_a_native_write_by_somebody_else_ends_privileges(world: World, hot: HotFile) -> None:
    """The kernel sends a change of nothing then, as for chown(-1, -1)."""
    ino, fh = world.file()
    chmod = wire.SETATTR_IN.pack(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, stat.S_IFREG | 0o6775, 0, 0)
    nothing = wire.SETATTR_IN.pack(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    world.ask(Opcode.SETATTR, chmod, node=ino)
    world.ask(Opcode.SETATTR, nothing, node=ino, uid=4242)
    assert world.mode(ino) == 0o775
    world.ask(Opcode.RELEASE, wire.HANDLE_IN.pack(fh) + bytes(16))
    world.ask(Opcode.SETATTR, chmod, node=ino)
    world.ask(Opcode.SETATTR, nothing, node=ino, uid=4242)
    assert world.mode(ino) == 0o6775  # nobody has it open: a chown, and not theirs to ask for
    world.ask(Opcode.SETATTR, nothing, node=ino)
    assert world.mode(ino) == 0o775


def test_each_call_has_a_request(world: World) -> None:
    assert {row.request.kind for row in world.rows.values()} == set(REQUESTS)


def test_what_is_not_supported_is_told_so(world: World) -> None:
    unknown = [34, 25, 36, 39, 40, 31, 50, 4096, 0, 0xFFFF_FFFF]  # ACCESS, FLUSH, INTERRUPT, IOCTL, POLL, GETLK, …
    answers = world.serve(request(opcode, bytes(8), unique=number) for number, opcode in enumerate(unknown))
    assert answers == dict.fromkeys(range(len(unknown)), (errno.ENOSYS, b""))
    assert not world.counters.requests


def test_what_needs_nothing_is_done_at_once(world: World) -> None:
    wireless = Wireless(request(opcode, bytes(24), unique=opcode) for opcode in (Opcode.DESTROY, Opcode.FLUSH))
    trio.run(world.run, wireless, frozenset({Opcode.DESTROY, Opcode.FLUSH}))
    assert wireless.answers == {Opcode.DESTROY: (0, b""), Opcode.FLUSH: (0, b"")}


def test_searches_that_wait_for_other_requests_do_not_take_their_threads(world: World) -> None:
    """Breaks when as many searches for data as there are threads hang, each waiting for a read that finds no thread."""
    came, count = threading.Event(), 2 * answering_module.BLOCKING_CALLS

    async def repeat() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(world.answering.repeated, Repeat.PAGES, _never, came.wait)
            await trio.testing.wait_all_tasks_blocked()
            for repeated in (Repeat.DISK, Repeat.WRITE, Repeat.SYNC):
                await world.answering.repeated(repeated, _never, threading.Event().is_set)
            came.set()

    trio.run(repeat)


def _never() -> bool:
    raise WouldBlock("always")


def test_a_request_that_makes_no_sense_is_refused(world: World) -> None:
    assert world.refused(Opcode.LOOKUP, b"no end") == errno.EINVAL
    assert world.refused(Opcode.WRITE, b"short") == errno.EINVAL
    assert world.counters.errors == {errno.EINVAL: 2}
    assert not world.filesystem.fatal.has_struck


def test_a_message_that_lies_about_its_length_is_dropped_and_the_next_is_answered(world: World) -> None:
    with structlog.testing.capture_logs() as logs:
        answers = world.serve([request(Opcode.GETATTR)[:-1] + b"", b"", request(Opcode.STATFS, unique=2)])
    assert set(answers) == {2}
    assert [one["event"] for one in logs] == ["request.malformed"] * 2


def test_nobody_waits_for_the_answer_to_a_forget(world: World) -> None:
    ino, fh = world.file()
    world.ask(Opcode.RELEASE, wire.HANDLE_IN.pack(fh) + bytes(16))
    world.ask(Opcode.LOOKUP)
    world.ask(Opcode.UNLINK)
    one = request(Opcode.FORGET, wire.FORGET_IN.pack(1), node=ino)
    batch = request(Opcode.BATCH_FORGET, wire.BATCH_FORGET_IN.pack(1, 0) + wire.FORGET_ONE.pack(ino, 1))
    assert world.serve([one, request(Opcode.FORGET, b"short")]) == {}
    assert world.refused(Opcode.GETATTR, node=ino) == 0
    assert world.serve([batch]) == {}
    assert world.refused(Opcode.GETATTR, node=ino) == errno.ENOENT
    assert world.counters.requests["forget"] == 3
    assert not world.filesystem.fatal.has_struck


def test_xattrs_are_created_replaced_and_told(world: World) -> None:
    ino, _ = world.file()

    def put(flags: int, value: bytes) -> int:
        return world.refused(Opcode.SETXATTR, wire.SETXATTR_IN.pack(len(value), flags) + b"user.x\0" + value, node=ino)

    assert put(2, b"a") == errno.ENODATA  # XATTR_REPLACE
    assert put(1, b"first\0") == 0  # XATTR_CREATE
    assert put(1, b"b") == errno.EEXIST
    assert world.ask(Opcode.GETXATTR, node=ino) == b"first\0"
    assert world.ask(Opcode.GETXATTR, wire.GETXATTR_IN.pack(0, 0) + b"user.x\0", node=ino) == wire.GETXATTR_OUT.pack(
        6, 0
    )
    assert world.refused(Opcode.GETXATTR, wire.GETXATTR_IN.pack(5, 0) + b"user.x\0", node=ino) == errno.ERANGE
    assert world.ask(Opcode.LISTXATTR, node=ino) == b"user.x\0"


def test_a_write_that_ends_privileges_takes_setuid_away(world: World) -> None:
    ino, fh = world.file()
    mode = stat.S_IFREG | 0o6755
    world.ask(Opcode.SETATTR, wire.SETATTR_IN.pack(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, mode, 0, 0), node=ino)
    world.ask(Opcode.WRITE, wire.WRITE_IN.pack(fh, 0, 1, 0, 0, 0, 0) + b"x")
    assert _mode(world, ino) == mode
    world.ask(Opcode.WRITE, wire.WRITE_IN.pack(fh, 0, 1, wire.WRITE_KILL_SUIDGID, 0, 0, 0) + b"x")
    assert _mode(world, ino) == stat.S_IFREG | 0o755


def test_an_open_that_truncates_ends_privileges_only_where_the_kernel_says_so(world: World) -> None:
    ino, _ = world.file()
    mode = stat.S_IFREG | 0o6755
    world.ask(Opcode.SETATTR, wire.SETATTR_IN.pack(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, mode, 0, 0), node=ino)
    world.ask(Opcode.OPEN, wire.OPEN_IN.pack(os.O_WRONLY | os.O_TRUNC, 0), node=ino)
    assert _mode(world, ino) == mode
    world.ask(Opcode.OPEN, wire.OPEN_IN.pack(os.O_WRONLY | os.O_TRUNC, wire.OPEN_KILL_SUIDGID), node=ino)
    assert _mode(world, ino) == stat.S_IFREG | 0o755


def _mode(world: World, ino: int) -> int:
    return int(wire.ATTR.unpack_from(world.ask(Opcode.GETATTR, node=ino), wire.ATTR_OUT.size)[9])


def test_a_file_without_a_name_can_be_written(world: World) -> None:
    made = world.ask(Opcode.TMPFILE)
    fh = wire.OPEN_OUT.unpack_from(made, 128)[0]
    world.ask(Opcode.WRITE, wire.WRITE_IN.pack(fh, 0, 1, 0, 0, 0, 0) + b"x")


def test_what_may_wait_is_done_in_a_thread_and_others_go_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a cold read holds everybody up: the second request is answered while the first one waits."""
    _, fh = world.file(b"content")
    reading, go_on = threading.Event(), threading.Event()

    def read(*_arguments: object, may_block: bool = False) -> bytes:
        if not may_block:
            raise WouldBlock("cold")
        assert threading.current_thread() is not threading.main_thread()
        reading.set()
        go_on.wait()
        return b"cold"

    monkeypatch.setattr(world.filesystem.files, "read_into", read)
    monkeypatch.setattr(world.filesystem.files, "read", read)
    wireless = Wireless([request(Opcode.READ, wire.READ_IN.pack(fh, 0, 7) + bytes(20), unique=1)])
    wireless.is_open = True

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.run, wireless)
            await trio.to_thread.run_sync(reading.wait)
            wireless.put(request(Opcode.STATFS, unique=2))
            while 2 not in wireless.answers:
                await trio.lowlevel.checkpoint()
            assert 1 not in wireless.answers
            go_on.set()
            wireless.end()

    trio.run(serve)
    assert wireless.answers[1] == (0, b"cold")
    assert world.counters.requests["read"] == 1


def test_the_loop_does_not_stand_still_while_somebody_waits_for_a_thread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when answers from threads come only after somebody else's next request."""
    _, fh = world.file(b"content")

    def read(*_arguments: object, may_block: bool = False) -> bytes:
        if not may_block:
            raise WouldBlock("cold")
        return b"cold"

    monkeypatch.setattr(world.filesystem.files, "read_into", read)
    monkeypatch.setattr(world.filesystem.files, "read", read)
    wireless = Wireless([request(Opcode.READ, wire.READ_IN.pack(fh, 0, 7) + bytes(20), unique=1)])
    wireless.is_open = True

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.run, wireless)
            while not wireless.answers:
                await trio.lowlevel.checkpoint()
            wireless.end()

    trio.run(serve)
    assert wireless.answers[1] == (0, b"cold")


def test_the_message_of_who_waits_is_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer is used again: breaks when a write that had to wait stores what came after it."""
    ino, fh = world.file(b"")
    write = world.filesystem.files.write

    def patient(*arguments: Any, may_block: bool = False, **keywords: Any) -> int:
        if not may_block:
            raise WouldBlock("held back")
        return write(*arguments, may_block=True, **keywords)

    monkeypatch.setattr(world.filesystem.files, "write", patient)
    later = Later(request(Opcode.WRITE, wire.WRITE_IN.pack(fh, 0, 4, 0, 0, 0, 0) + b"mine", unique=1))
    trio.run(world.run, later)
    assert later.answers[1] == (0, wire.WRITE_OUT.pack(4, 0))
    assert world.filesystem.files.read(ino, 0, 9, may_block=True) == b"mine"


class Later(Wireless):
    """Its buffer has something else in it as soon as the next message is asked for."""

    def __init__(self, message: bytes) -> None:
        super().__init__()
        self._buffer = bytearray(message)
        self._asked = 0

    def receive(self) -> memoryview | None:
        self._asked += 1
        if self._asked == 1:
            return memoryview(self._buffer)
        self._buffer[:] = b"!" * len(self._buffer)
        raise EOFError


def held_back(world: World, monkeypatch: pytest.MonkeyPatch, call: str) -> threading.Event:
    """Calls of this that may not wait would have to; those that may do so until this is set."""
    go_on = threading.Event()

    def wait(*_arguments: object, may_block: bool = True, **_keywords: object) -> int:
        if not may_block:
            raise WouldBlock("too much is staged")
        go_on.wait()
        return 1

    monkeypatch.setattr(world.filesystem.files, call, wait)
    return go_on


def answers_before_and_after(world: World, messages: list[bytes], go_on: threading.Event) -> tuple[set[int], set[int]]:
    """Who is answered while the rest waits, and in the end."""
    wireless = Wireless([*messages, request(Opcode.STATFS, unique=9)])
    before: set[int] = set()

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.run, wireless)
            await trio.testing.wait_all_tasks_blocked()
            before.update(wireless.answers)
            go_on.set()

    trio.run(serve)
    return before, set(wireless.answers)


def test_only_so_many_writes_wait_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a crowd of writers that are held back takes all of the memory."""
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    _, fh = world.file()
    go_on = held_back(world, monkeypatch, "write")
    body = wire.WRITE_IN.pack(fh, 0, 1, 0, 0, 0, 0) + b"x"
    writes = [request(Opcode.WRITE, body, unique=number) for number in range(3)]
    # The third one has no place, so nobody behind it is read.
    assert answers_before_and_after(world, writes, go_on) == (set(), {0, 1, 2, 9})


def test_any_number_of_others_may_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when searches for data, which wait for writes of the kernel, keep those writes from being read."""
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    _, fh = world.file()
    go_on = held_back(world, monkeypatch, "fsync")
    syncs = [request(Opcode.FSYNC, wire.FSYNC_IN.pack(fh, 0, 0), unique=number) for number in range(5)]
    assert answers_before_and_after(world, syncs, go_on) == ({9}, {0, 1, 2, 3, 4, 9})


class Broken:
    """Every call of it is a bug."""

    def __getattr__(self, name: str) -> Any:
        def fails(*_arguments: object, **_keywords: object) -> None:
            raise AssertionError(name)

        return fails


@pytest.mark.parametrize("opcode", BODIES, ids=lambda opcode: opcode.name)
def test_a_bug_is_an_error_and_ends_the_mount_if_it_may_have_changed_something(
    world: World, monkeypatch: pytest.MonkeyPatch, opcode: Opcode
) -> None:
    """Handles are such as the kernel never names."""
    monkeypatch.setattr(world.calls, "_names", Broken())
    monkeypatch.setattr(world.calls, "_files", Broken())
    monkeypatch.setattr(world.filesystem, "commit", Broken().commit)
    row = world.rows[opcode].request
    with structlog.testing.capture_logs() as logs:
        answers = world.serve([request(opcode, BODIES[opcode])])
    assert answers == ({} if opcode in UNANSWERED else {UNIQUE: (errno.EIO, b"")})
    assert world.counters.errors == {errno.EIO: 1}
    assert [one["event"] for one in logs] == ["mount.abandoned" if row.changes else "request.crashed"]
    assert world.filesystem.fatal.has_struck is row.changes
