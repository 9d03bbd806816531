"""What came in lately: what is told can be read, and memory is bounded."""

from __future__ import annotations

from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from syncer.blocks.recent import RecentBlocks


def small(number: int, size: int = 100) -> tuple[BlockId, bytes]:
    data = b"%d:" % number + b"x" * size
    return BlockId(block_id(data)), data


def test_what_is_held_is_read_without_looking_elsewhere() -> None:
    recent = RecentBlocks()
    got = [small(number) for number in range(3)]
    recent.use(lambda _: None)
    recent.hold(got)
    assert [recent.read(block) for block, _ in got] == [data for _, data in got]
    assert recent.since(0) == (3, [block for block, _ in got])


def test_the_oldest_that_is_held_is_read_from_where_the_cycle_put_it() -> None:
    """Devices were told of it: who lacks what it offers is left alone."""
    recent = RecentBlocks(held_bytes=250)
    got = [small(number) for number in range(3)]
    looked: list[BlockId] = []

    def find(block: BlockId) -> bytes | None:
        looked.append(block)
        return dict(got)[block]

    recent.use(find)
    recent.hold(got)
    assert [recent.read(block) for block, _ in got] == [data for _, data in got]
    assert looked == [got[0][0]]
    assert recent.since(0)[1] == [block for block, _ in got]


def test_what_was_forgotten_makes_room() -> None:
    recent = RecentBlocks(most=2, held_bytes=250)
    for number in range(10):
        recent.hold([small(number)])
    assert recent.since(0)[1] == [small(8)[0], small(9)[0]]


def test_nothing_is_held_after_the_cycle() -> None:
    recent = RecentBlocks(held_bytes=250)
    recent.use(lambda _: None)
    recent.hold([small(1), small(2)])
    recent.use(None)
    assert recent.read(small(1)[0]) is None
    recent.hold([small(3), small(4)])
    assert recent.read(small(3)[0]) == small(3)[1]


def test_a_block_of_zeros_is_nobodys() -> None:
    recent = RecentBlocks()
    recent.hold([(ZERO_BLOCK, b"")])
    assert recent.since(0) == (0, [])


def test_who_will_not_be_asked_holds_nothing() -> None:
    recent = RecentBlocks()
    recent.hold([small(1)])
    recent.stop()
    recent.use(lambda _: b"read")
    recent.hold([small(2)])
    recent.came([small(3)[0]])
    assert not recent
    assert [recent.read(small(number)[0]) for number in (1, 2, 3)] == [None] * 3
