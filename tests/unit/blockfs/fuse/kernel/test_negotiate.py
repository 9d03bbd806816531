"""INIT: what is agreed, with which kernels, and how others are refused."""

from __future__ import annotations

import pytest

from blockfs.errors import MountError
from blockfs.fuse.kernel import wire
from blockfs.fuse.kernel.decode import Init
from blockfs.fuse.kernel.negotiate import REQUIRED, WANTED, negotiate
from blockfs.fuse.kernel.wire import InitFlag, Opcode


def offer(major: int = 7, minor: int = 45, flags: int = (1 << 64) - 1) -> Init:
    return Init(major=major, minor=minor, max_readahead=131072, flags=flags)


def test_a_kernel_that_can_do_everything_gets_what_we_want_and_nothing_else() -> None:
    agreed = negotiate(offer(), "6.18")
    assert agreed is not None
    assert agreed.flags == REQUIRED | WANTED
    assert agreed.tells_privileges
    major, minor, readahead, flags, _, _, max_write, granularity, pages, _, upper, depth = wire.INIT_OUT.unpack(
        agreed.body
    )
    assert (major, minor, readahead, flags, upper) == (7, 45, 131072, int(REQUIRED | WANTED), 0)
    assert (max_write, granularity, pages, depth) == (1 << 20, 1, 256, 0)
    assert not agreed.passes_through


def test_a_native_mount_passes_through_and_has_no_writeback_cache() -> None:
    """Both at once are granted, and then each file that is registered is refused."""
    agreed = negotiate(offer(), "6.18", native=True)
    assert agreed is not None
    assert agreed.passes_through
    told = wire.INIT_OUT.unpack(agreed.body)
    flags, upper, depth = told[3], told[10], told[11]
    assert not flags & InitFlag.WRITEBACK_CACHE
    assert flags & InitFlag.INIT_EXT
    assert (upper, depth) == (1 << 5, 1)
    assert flags | upper << 32 == agreed.flags


@pytest.mark.parametrize("missing", [InitFlag.PASSTHROUGH, InitFlag.INIT_EXT])
def test_without_passthrough_a_mount_is_as_always(missing: InitFlag) -> None:
    without = offer(minor=39, flags=(1 << 64) - 1 & ~missing)
    agreed = negotiate(without, "6.8", native=True)
    assert agreed is not None
    assert not agreed.passes_through
    assert agreed == negotiate(without, "6.8")


def test_a_kernel_without_what_is_only_wanted_is_good_enough() -> None:
    agreed = negotiate(offer(minor=31, flags=REQUIRED), "5.4")
    assert agreed is not None
    assert (agreed.minor, agreed.flags, agreed.tells_privileges) == (31, REQUIRED, False)


@pytest.mark.parametrize(("minor", "unlocked"), [(31, False), (36, False), (44, False), (45, True), (60, True)])
def test_pages_are_asked_for_under_the_inodes_lock_only_where_nothing_waits_for_that_lock(
    minor: int, unlocked: bool
) -> None:
    """Breaks when a search for data in a file that is open for writing hangs, with all who touch that file."""
    agreed = negotiate(offer(minor=minor), "6.1")
    assert agreed is not None
    assert agreed.writes_unlocked is unlocked


@pytest.mark.parametrize(("minor", "is_done"), [(31, True), (32, False), (45, False)])
def test_flush_is_supported_where_else_closing_writes_no_pages(minor: int, is_done: bool) -> None:
    agreed = negotiate(offer(minor=minor), "5.4")
    assert agreed is not None
    assert (Opcode.FLUSH in agreed.nothing_to_do) is is_done
    assert Opcode.DESTROY in agreed.nothing_to_do


def test_the_older_version_of_the_two_counts() -> None:
    later = negotiate(offer(minor=60), "9.9")
    assert later is not None
    assert later.minor == wire.MINOR


@pytest.mark.parametrize(
    "old",
    [offer(minor=30), offer(major=6), offer(flags=int(~InitFlag.WRITEBACK_CACHE & REQUIRED)), offer(flags=0)],
    ids=["minor", "major", "without the writeback cache", "without anything"],
)
def test_an_old_kernel_is_refused_with_what_it_is_what_is_needed_and_what_to_do(old: Init) -> None:
    with pytest.raises(
        MountError, match=rf"4\.19\.0, FUSE {old.major}\.{old.minor}.* 7\.31 \(Linux 5\.4\).*--frontend pyfuse3"
    ):
        negotiate(old, "4.19.0")


def test_a_kernel_of_a_later_major_version_is_asked_to_ask_again() -> None:
    assert negotiate(offer(major=8), "9.9") is None
