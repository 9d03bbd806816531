"""Files that the kernel reads and writes itself: one way and one id per inode, from first open to last RELEASE."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable

import pytest
import structlog
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from blockfs.engine.portions import Stop, never
from blockfs.errors import NoSpaceError, WouldBlock
from blockfs.fuse.kernel import wire
from blockfs.fuse.kernel.encode import CACHE_S
from blockfs.fuse.kernel.native import WAITED_FOR_BYTES, WORTH_IT_BYTES, NativeFiles

INO, SMALL, REFUSED, LARGE, EMPTY, OTHER = 7, 8, 9, 10, 11, 12
THROUGH_US = (wire.FOPEN_KEEP_CACHE, 0)


class Hot:
    """Hot files and the kernel's register of them, without files.

    Attributes:
        users: ino → opened and not released.
        ids: Backing ids that are known → descriptor.
        events: What happened, in order.
        hot: inos whose file is their content.
        mapped: Descriptors of files that somebody else has open, or mapped.
        unnamed: inos whose file would not be found again after a crash.
        cant_name: Why that stays so.
    """

    def __init__(self) -> None:
        self.users: dict[int, int] = {}
        self.ids: dict[int, int] = {}
        self.events: list[str] = []
        self.hot: set[int] = set()
        self.mapped: set[int] = set()
        self.unnamed: set[int] = set()
        self.cant_name: Exception | None = None
        self.refusal: OSError | None = None
        self.failure: Exception | None = None
        self.meanwhile: Callable[[], None] = lambda: None
        self.last_id = 0
        self.stop: Stop = never

    def open(self, ino: int, *, may_block: bool = False, stop: Stop = never) -> int | None:
        self.meanwhile()
        if stop is not never:
            self.stop = stop
        if ino == LARGE and ino not in self.hot and not may_block:
            raise WouldBlock("it must be made")
        if self.failure is not None:
            raise self.failure
        if ino == REFUSED:
            return None
        self.events.append("open")
        self.users[ino] = self.users.get(ino, 0) + 1
        self.hot.add(ino)
        return 100 + ino

    def release(self, ino: int) -> None:
        self.events.append("release")
        self.users[ino] -= 1

    def is_hot(self, ino: int) -> bool:
        return ino in self.hot

    def is_durable(self, ino: int) -> bool:
        return ino not in self.unnamed

    def make_durable(self, ino: int) -> None:
        if self.cant_name is not None:
            raise self.cant_name
        self.events.append("make durable")
        self.unnamed.discard(ino)

    def register(self, descriptor: int) -> int:
        if self.refusal is not None:
            raise self.refusal
        self.events.append("register")
        self.last_id += 1
        self.ids[self.last_id] = descriptor
        return self.last_id

    def unregister(self, backing_id: int) -> None:
        self.events.append("unregister")
        del self.ids[backing_id]

    def forget_pages(self, ino: int) -> None:
        self.events.append("forget")

    def native(self) -> NativeFiles:
        sizes = {SMALL: 1, LARGE: WAITED_FOR_BYTES, EMPTY: 0, OTHER: 0}
        return NativeFiles(
            self,
            self,
            lambda ino: sizes.get(ino, WORTH_IT_BYTES),
            self.forget_pages,
            self.mapped.__contains__,
            waits_s=(0.0, 60.0),
        )


@pytest.fixture
def hot() -> Hot:
    return Hot()


@pytest.fixture
def native(hot: Hot) -> NativeFiles:
    return hot.native()


def opened(native: NativeFiles, fh: int, ino: int = INO, flags: int = os.O_RDWR) -> tuple[int, int]:
    native.opening(ino, flags, may_block=True)
    return native.opened(ino, fh)


def test_all_handles_have_one_id_and_the_last_one_ends_it(native: NativeFiles, hot: Hot) -> None:
    """Breaks when a second open fails with EIO, or the kernel keeps files that nobody uses."""
    assert opened(native, 1) == (wire.FOPEN_PASSTHROUGH, 1)
    native.opening(INO, os.O_RDONLY)  # no reason to wait any more
    assert native.opened(INO, 2) == (wire.FOPEN_PASSTHROUGH, 1)
    native.closed(1)
    assert (hot.users, hot.ids) == ({INO: 1}, {1: 100 + INO})
    assert native.passes_through(INO)
    native.closed(2)
    assert not native.passes_through(INO)
    assert hot.events == ["open", "register", "forget", "unregister", "release"]
    assert opened(native, 3) == (wire.FOPEN_PASSTHROUGH, 2)


def test_a_file_that_is_to_be_made_is_waited_for_in_a_thread(native: NativeFiles, hot: Hot) -> None:
    with pytest.raises(WouldBlock):
        native.opening(INO, os.O_RDWR)
    assert not hot.events
    assert opened(native, 1) == (wire.FOPEN_PASSTHROUGH, 1)


def test_a_new_file_waits_for_nothing(native: NativeFiles, hot: Hot) -> None:
    native.opening(INO, os.O_WRONLY, is_new=True)
    assert native.opened(INO, 1) == (wire.FOPEN_PASSTHROUGH, 1)
    assert hot.events == ["open", "register"]  # and the kernel keeps nothing of it


def test_a_new_file_that_would_have_to_wait_goes_through_us(native: NativeFiles, hot: Hot) -> None:
    """Breaks if it is asked for again: it is there then, and the program that has made it is told EEXIST."""
    hot.failure = WouldBlock("a snapshot is being taken")
    native.opening(INO, os.O_WRONLY, is_new=True)
    assert native.opened(INO, 1) == THROUGH_US
    with pytest.raises(WouldBlock):
        native.opening(LARGE, os.O_RDWR)
    native.closed(1)
    hot.failure = None
    native.opening(INO, os.O_RDWR, may_block=True)
    assert native.opened(INO, 2) != THROUGH_US
    native.closed(2)


def test_a_small_file_with_content_goes_through_us_for_all(native: NativeFiles, hot: Hot) -> None:
    """Breaks when who writes gets another way than who reads already: the kernel fails that with EIO."""
    native.opening(SMALL, os.O_RDONLY)
    assert native.opened(SMALL, 1) == THROUGH_US
    native.opening(SMALL, os.O_RDWR)
    assert native.opened(SMALL, 2) == THROUGH_US
    native.closed(1)
    native.closed(2)
    assert not hot.events
    assert opened(native, 3, SMALL) == THROUGH_US
    native.closed(3)
    assert not hot.events


def test_an_empty_file_that_is_written_passes_through(native: NativeFiles, hot: Hot) -> None:
    assert opened(native, 1, EMPTY, os.O_RDONLY) == THROUGH_US
    native.closed(1)
    assert opened(native, 2, EMPTY, os.O_WRONLY) == (wire.FOPEN_PASSTHROUGH, 1)


def test_a_file_that_is_hot_already_waits_for_nothing(native: NativeFiles, hot: Hot) -> None:
    """Breaks when each open of a small file that was just written takes a thread, and a notification."""
    opened(native, 1)
    native.closed(1)
    hot.events.clear()
    native.opening(INO, os.O_RDWR)
    assert native.opened(INO, 2) == (wire.FOPEN_PASSTHROUGH, 2)
    assert hot.events == ["open", "register"]


def test_what_went_through_us_while_it_was_hot_is_forgotten(native: NativeFiles, hot: Hot) -> None:
    """Breaks when the kernel shows pages of the time in which it did not take the file."""
    hot.refusal = OSError(errno.ENOMEM, "Cannot allocate memory")
    with structlog.testing.capture_logs():
        assert opened(native, 1) == THROUGH_US
    native.closed(1)
    hot.refusal = None
    assert hot.is_hot(INO)
    with pytest.raises(WouldBlock):
        native.opening(INO, os.O_RDWR)
    assert opened(native, 2) == (wire.FOPEN_PASSTHROUGH, 1)
    assert hot.events[-1] == "forget"


def test_a_small_file_that_is_hot_is_never_read_through_us(native: NativeFiles, hot: Hot) -> None:
    """A mapping may still write to it, and the kernel would show its own pages."""
    hot.hot.add(SMALL)
    assert opened(native, 1, SMALL, os.O_RDONLY) == (wire.FOPEN_PASSTHROUGH, 1)


def test_a_file_that_cant_be_hot_goes_through_us(native: NativeFiles, hot: Hot) -> None:
    assert opened(native, 1, REFUSED) == THROUGH_US
    native.closed(1)
    assert not hot.events


def test_what_the_kernel_does_not_take_goes_through_us_and_is_told_once(native: NativeFiles, hot: Hot) -> None:
    hot.refusal = OSError(errno.EPERM, "Operation not permitted")
    with structlog.testing.capture_logs() as logs:
        assert opened(native, 1) == THROUGH_US
        assert opened(native, 2, INO + 10) == THROUGH_US
    assert [one["event"] for one in logs] == ["native.refused"]
    assert set(hot.users.values()) == {0}


def test_an_open_that_fails_leaves_nothing(native: NativeFiles, hot: Hot) -> None:
    hot.failure = NoSpaceError("full")
    with pytest.raises(NoSpaceError):
        native.opening(INO, os.O_RDWR, may_block=True)
    hot.failure = None
    assert opened(native, 1) == (wire.FOPEN_PASSTHROUGH, 1)
    native.opening(INO, os.O_RDWR)
    native.closing(INO)  # counted, and then not opened
    native.closed(1)
    assert (hot.users, hot.ids) == ({INO: 0}, {})


def test_attributes_are_told_for_this_moment_only_while_a_file_is_hot(native: NativeFiles, hot: Hot) -> None:
    assert native.valid_s(INO) == CACHE_S
    opened(native, 1)
    native.closed(1)
    assert native.valid_s(INO) == 0  # mappings outlive handles
    hot.hot.clear()
    assert native.valid_s(INO) == CACHE_S


def test_a_file_is_given_back_when_its_last_mapping_has_gone(native: NativeFiles, hot: Hot) -> None:
    """Breaks when what a program stores into a mapping after it has closed the file is lost."""
    opened(native, 1)
    hot.mapped.add(100 + INO)
    told: list[bool] = []
    native.tell = lambda: told.append(True)
    native.closed(1)
    assert told
    assert native.sweep()
    assert (hot.users, hot.ids) == ({INO: 1}, {})
    native.opening(INO, os.O_RDWR)  # it is there: nothing to wait for
    assert native.opened(INO, 2) == (wire.FOPEN_PASSTHROUGH, 2)
    assert hot.ids == {2: 100 + INO}
    assert hot.events.count("open") == 1
    native.closed(2)
    hot.mapped.clear()
    assert hot.users == {INO: 1}
    assert not native.sweep()
    assert hot.users == {INO: 0}
    assert opened(native, 3) == (wire.FOPEN_PASSTHROUGH, 3)


def test_a_mapped_file_that_cant_be_registered_again_stays_as_it_is(native: NativeFiles, hot: Hot) -> None:
    opened(native, 1)
    hot.mapped.add(100 + INO)
    native.closed(1)
    hot.refusal = OSError(errno.ENOMEM, "Cannot allocate memory")
    with pytest.raises(OSError, match="Cannot allocate"):
        native.opening(INO, os.O_RDWR)
    hot.refusal = None
    assert opened(native, 2) == (wire.FOPEN_PASSTHROUGH, 2)
    assert hot.users == {INO: 1}


def test_who_opens_a_file_that_is_being_made_waits_and_shares_it(native: NativeFiles, hot: Hot) -> None:
    """Breaks when two first opens register two files, and one of the two programs gets EIO."""
    makes, may_go_on = threading.Event(), threading.Event()

    def meanwhile() -> None:
        makes.set()
        assert may_go_on.wait(60)

    hot.meanwhile = meanwhile
    answers = {}
    threads = [
        threading.Thread(target=lambda fh=fh: answers.update({fh: opened(native, fh)}), daemon=True) for fh in range(8)
    ]
    for thread in threads:
        thread.start()
    assert makes.wait(60)
    with pytest.raises(WouldBlock):
        native.opening(INO, os.O_RDONLY)
    may_go_on.set()
    for thread in threads:
        thread.join(60)
    assert answers == dict.fromkeys(range(8), (wire.FOPEN_PASSTHROUGH, 1))
    for fh in range(8):
        native.closed(fh)
    assert (hot.users, hot.ids) == ({INO: 0}, {})


@pytest.mark.parametrize("fails", [False, True])
def test_who_reads_a_large_file_does_not_wait_and_the_next_one_finds_it_ready(
    native: NativeFiles, hot: Hot, *, fails: bool
) -> None:
    """Breaks when the first read of an image waits for seconds, or when its file is never made."""
    may_go_on = threading.Event()

    def meanwhile() -> None:
        assert may_go_on.wait(60)

    hot.meanwhile = meanwhile
    assert opened(native, 1, LARGE, os.O_RDONLY) == THROUGH_US
    native.opening(LARGE, os.O_RDWR)  # whoever comes meanwhile goes the same way
    assert native.opened(LARGE, 2) == THROUGH_US
    if fails:
        hot.failure = NoSpaceError("full")
        may_go_on.set()
        native._preparing.ready(LARGE, 60)
        hot.failure = None
    may_go_on.set()
    native._preparing.ready(LARGE, 60 * (not fails))
    assert opened(native, 3, LARGE, os.O_RDONLY) == THROUGH_US  # also when it is ready
    for fh in (1, 2, 3):
        native.closed(fh)
    assert opened(native, 4, LARGE) == (wire.FOPEN_PASSTHROUGH, 1)  # who writes waits for a moment
    assert hot.events[-1] == "forget"  # the kernel has pages of the time before
    native.closed(4)
    assert set(hot.users.values()) == {0}
    native.opening(LARGE, os.O_RDWR)
    assert native.opened(LARGE, 5) == (wire.FOPEN_PASSTHROUGH, 2)
    native.closed(5)
    native.end()
    assert hot.stop()


SYNCS = [os.O_RDWR, os.O_WRONLY | os.O_DSYNC, os.O_WRONLY | os.O_SYNC]
"""What a handle may sync without telling us."""


@pytest.mark.parametrize("flags", SYNCS)
def test_who_may_sync_unseen_has_a_file_when_it_outlives_a_crash(native: NativeFiles, hot: Hot, flags: int) -> None:
    """Breaks when what was msync'ed, or written with O_DSYNC, into a file that was just made is gone after a kill."""
    hot.unnamed.add(EMPTY)
    with pytest.raises(WouldBlock):
        native.opening(EMPTY, flags)
    assert opened(native, 1, EMPTY, flags) == (wire.FOPEN_PASSTHROUGH, 1)
    assert hot.events == ["open", "make durable", "register", "forget"]
    assert hot.users == {EMPTY: 1}


@pytest.mark.parametrize("flags", SYNCS)
def test_who_joins_a_file_that_was_made_for_writing_alone_waits_until_it_outlives_a_crash(
    native: NativeFiles, hot: Hot, flags: int
) -> None:
    hot.unnamed.add(INO)
    native.opening(INO, os.O_WRONLY, is_new=True)
    assert native.opened(INO, 1) == (wire.FOPEN_PASSTHROUGH, 1)
    with pytest.raises(WouldBlock):
        native.opening(INO, flags)
    hot.cant_name = NoSpaceError("full")
    with pytest.raises(NoSpaceError):
        native.opening(INO, flags, may_block=True)
    hot.cant_name = None
    assert opened(native, 2, flags=flags) == (wire.FOPEN_PASSTHROUGH, 1)
    assert hot.events == ["open", "register", "make durable"]
    native.closed(1)
    hot.unnamed.add(INO)
    hot.mapped.add(100 + INO)
    native.closed(2)
    with pytest.raises(WouldBlock):
        native.opening(INO, flags)  # which is mapped still
    assert opened(native, 3, flags=flags) == (wire.FOPEN_PASSTHROUGH, 2)
    hot.mapped.clear()
    native.closed(3)
    assert (hot.users, hot.ids) == ({INO: 0}, {})


@pytest.mark.parametrize("flags", SYNCS)
def test_new_files_that_may_be_synced_unseen_are_native_now_and_then(native: NativeFiles, hot: Hot, flags: int) -> None:
    """Breaks when each temporary file of rsync costs a commit; or when no new image is native."""
    native.clock = lambda: 1000.0
    assert not native.creates_in_thread(os.O_WRONLY)
    assert native.creates_in_thread(flags)
    hot.unnamed |= {EMPTY, OTHER}
    native.opening(EMPTY, flags, is_new=True, may_block=True)
    assert native.opened(EMPTY, 1) == (wire.FOPEN_PASSTHROUGH, 1)
    assert hot.events == ["open", "make durable", "register"]
    assert not native.creates_in_thread(flags)
    native.opening(OTHER, flags, is_new=True)
    assert native.opened(OTHER, 2) == THROUGH_US
    native.clock = lambda: 1000.1
    assert native.creates_in_thread(flags)


def test_a_new_file_that_cant_be_made_durable_goes_through_us(native: NativeFiles, hot: Hot) -> None:
    """Breaks if it is refused: it is there then, and the program that has made it is told EEXIST."""
    hot.unnamed.add(EMPTY)
    hot.cant_name = NoSpaceError("full")
    with structlog.testing.capture_logs() as logs:
        native.opening(EMPTY, os.O_RDWR, is_new=True, may_block=True)
    assert [one["event"] for one in logs] == ["native.not_durable"]
    assert native.opened(EMPTY, 1) == THROUGH_US
    native.closed(1)
    hot.cant_name = None
    assert opened(native, 2, EMPTY) == (wire.FOPEN_PASSTHROUGH, 1)
    assert hot.events[-1] == "forget"  # the kernel has pages of the time before
    assert hot.users == {EMPTY: 1}


class Machine(RuleBasedStateMachine):
    """Opens and closes in any order: at any time the handles of an inode have one way and one living id."""

    def __init__(self) -> None:
        super().__init__()
        self.hot = Hot()
        self.native = self.hot.native()
        self.handles: dict[int, tuple[int, tuple[int, int]]] = {}
        self.last = 0

    @rule(
        ino=st.sampled_from([INO, SMALL, REFUSED, LARGE]), flags=st.sampled_from([os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
    )
    def open(self, ino: int, flags: int) -> None:
        self.last += 1
        self.handles[self.last] = (ino, opened(self.native, self.last, ino, flags))

    @rule(ino=st.sampled_from([INO, SMALL, REFUSED, LARGE]), flags=st.sampled_from([os.O_RDONLY, os.O_RDWR]))
    def open_and_fail(self, ino: int, flags: int) -> None:
        self.native.opening(ino, os.O_RDWR if ino == LARGE else flags, may_block=True)
        self.native.closing(ino)

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        fh = data.draw(st.sampled_from(sorted(self.handles)))
        del self.handles[fh]
        self.native.closed(fh)

    @rule(ino=st.sampled_from([INO, SMALL, LARGE]))
    def map(self, ino: int) -> None:
        if any((each, way[0]) == (ino, wire.FOPEN_PASSTHROUGH) for each, way in self.handles.values()):
            self.hot.mapped.add(100 + ino)

    @rule(ino=st.sampled_from([INO, SMALL, LARGE]))
    def unmap(self, ino: int) -> None:
        self.hot.mapped.discard(100 + ino)
        self.native.sweep()

    @rule(ino=st.sampled_from([INO, SMALL, LARGE]))
    def cool_down(self, ino: int) -> None:
        if not self.hot.users.get(ino):
            self.hot.hot.discard(ino)

    @invariant()
    def one_way(self) -> None:
        ways: dict[int, set[tuple[int, int]]] = {}
        for ino, way in self.handles.values():
            ways.setdefault(ino, set()).add(way)
        assert all(len(each) == 1 for each in ways.values())
        living = {ino: way[1] for ino, [way] in ((ino, list(each)) for ino, each in ways.items()) if way[1]}
        assert self.hot.ids == {backing_id: 100 + ino for ino, backing_id in living.items()}
        mapped = {descriptor - 100 for descriptor in self.hot.mapped}
        assert {ino for ino, users in self.hot.users.items() if users} == set(living) | mapped
        assert all(users in {0, 1} for users in self.hot.users.values())


Machine.TestCase.settings = settings(stateful_step_count=30)
TestMachine = Machine.TestCase
