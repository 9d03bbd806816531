from __future__ import annotations

import itertools
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.blocks.maintenance import gc
from blockfs.blocks.maintenance.gc import CollectionStopped, Marks, collect, is_due, unreferenced_bytes
from blockfs.blocks.segments.freed import FreedPlaces
from tests.unit.blockfs.blocks.disks import CountingDisk, Died

BLOCK_SIZE = 4096
OWNER = "12345678-1234-5678-1234-567812345678"
DATAS = [random.Random(number).randbytes(BLOCK_SIZE) for number in range(6)]
IDS = [block_id(data) for data in DATAS]


def put_all(blocks: BlockDirectory, *datas: bytes) -> list[BlockId]:
    with blocks.hold() as hold:
        ids = [blocks.put(data, hold) for data in datas]
        blocks.sync()
    return ids


def payload_bytes(blocks: BlockDirectory) -> int:
    """Allocated bytes of all segments."""
    return sum(os.stat(blocks.layout.segment(number)).st_blocks * 512 for number in blocks.layout.segment_numbers())


class Waits:
    """A `stop` that lets the collection wait a few times, then runs `act` once."""

    def __init__(self, act: Callable[[], object], rounds: int = 3) -> None:
        self.rounds = rounds
        self.act = act
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        if self.asked == self.rounds:
            self.act()
        return False


def test_unnamed_blocks_go_and_named_ones_stay(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    result = collect(blocks, lambda: [IDS[0], ZERO_BLOCK + IDS[1] + IDS[2]])
    assert (result.blocks_checked, result.blocks_removed) == (6, 3)
    assert blocks.missing(IDS) == IDS[3:]
    assert [blocks.get(known, verify=True) for known in IDS[:3]] == DATAS[:3]
    assert blocks.statistics().blocks == 3


def test_space_is_given_back_to_the_host(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    before = payload_bytes(blocks)
    result = collect(blocks, lambda: IDS[:1])
    assert result.bytes_freed == before - payload_bytes(blocks) == 5 * BLOCK_SIZE


def test_empty_segments_are_removed_once_nobody_appends_to_them(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    with BlockDirectory.open(blocks.path) as other:
        assert collect(other, list).segments_removed == 0
    assert collect(blocks, list).segments_removed == 1
    assert os.listdir(blocks.layout.segments) == []
    assert put_all(blocks, DATAS[0]) == IDS[:1]
    assert blocks.layout.segment_numbers() == [2]  # a number is never used again


def test_descriptors_of_removed_segments_are_closed_with_the_next_that_is_opened(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    blocks.get(IDS[0])
    with BlockDirectory.open(blocks.path) as other:
        collect(other, list)
    assert collect(blocks, list).segments_removed == 1
    put_all(blocks, DATAS[0])
    blocks.get(IDS[0])
    held = (os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if is_open(number))
    assert not [name for name in held if name.startswith(blocks.path) and name.endswith("(deleted)")]


def is_open(number: str) -> bool:
    """Not so the descriptor of the listing itself, by now."""
    return os.path.lexists(f"/proc/self/fd/{number}")


def test_pinned_blocks_stay(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    blocks.pin(OWNER, IDS[4:])
    assert collect(blocks, list).blocks_removed == 4
    assert blocks.missing(IDS) == IDS[:4]
    blocks.unpin(OWNER, IDS[4:5])
    assert collect(blocks, list).blocks_removed == 1
    assert blocks.missing(IDS) == IDS[:5]


def test_a_collection_waits_for_the_holders_of_older_epochs(blocks: BlockDirectory) -> None:
    """Their blocks are in no tree yet."""
    tree: list[bytes] = []
    hold = blocks.hold()
    ids = [blocks.put(data, hold) for data in DATAS[:2]]
    blocks.sync()

    def commit_and_release() -> None:
        tree.extend(ids[:1])
        hold.release()

    waits = Waits(commit_and_release)
    collect(blocks, lambda: tree, stop=waits)
    assert waits.asked >= waits.rounds
    assert blocks.missing(ids) == ids[1:]


def test_a_commit_runs_in_time_to_end_holds(blocks: BlockDirectory) -> None:
    """The mount commits its change sets there; without it a collection would wait for the next commit."""
    hold = blocks.hold()
    collect(blocks, list, commit=hold.release)
    assert hold.released


def test_holders_of_the_new_epoch_are_not_waited_for(blocks: BlockDirectory) -> None:
    epochs: list[int] = []
    holds = []

    def commit() -> None:
        epochs.append(blocks.index.epoch())
        if epochs[-1] > epochs[0]:
            holds.append(blocks.hold())

    collect(blocks, list, commit=commit)
    (hold,) = holds
    assert not hold.released
    hold.release()


class CommitFailedError(Exception):
    """Of the mount's."""


def _failing_from(call: int) -> Callable[[], None]:
    """A commit that fails from its n-th call on."""
    calls = itertools.count(1)

    def commit() -> None:
        if next(calls) >= call:
            raise CommitFailedError

    return commit


def test_a_collection_whose_first_commit_fails_begins_no_epoch(blocks: BlockDirectory) -> None:
    """Until it were swept, each block that is stored already would be appended again: on a full disk, of all places."""
    put_all(blocks, *DATAS)
    before = payload_bytes(blocks)
    with pytest.raises(CommitFailedError):
        collect(blocks, lambda: IDS, commit=_failing_from(1))
    put_all(blocks, *DATAS)
    assert payload_bytes(blocks) == before


def test_a_collection_that_fails_is_due_again(blocks: BlockDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had set down that it had collected, before it did: the next one came after another GiB."""
    monkeypatch.setattr(gc, "_DUE_BYTES", 3 * BLOCK_SIZE)
    put_all(blocks, *DATAS)
    for call in (1, 2):
        with pytest.raises(CommitFailedError):
            collect(blocks, lambda: IDS, commit=_failing_from(call))
        assert is_due(blocks, 0)
    collect(blocks, lambda: IDS)
    assert not is_due(blocks, 0)


@pytest.mark.parametrize("asked", [1, 3])
def test_a_collection_that_began_and_did_not_end_is_due(blocks: BlockDirectory, asked: int) -> None:
    """However little was appended: until the epoch is swept, hits are appended again."""
    put_all(blocks, *DATAS)
    assert not is_due(blocks, 0)
    answers = itertools.count(1)
    with pytest.raises(CollectionStopped):
        collect(blocks, lambda: iter(IDS[:4]), stop=lambda: next(answers) >= asked)
    assert is_due(blocks, 0)
    collect(blocks, lambda: IDS[:4])
    assert not is_due(blocks, 0)


def test_blocks_put_during_a_collection_stay(blocks: BlockDirectory) -> None:
    """New ones, and old ones that the collection is about to delete."""
    put_all(blocks, *DATAS[:3])
    holds = []

    def live() -> Iterator[bytes]:
        hold = blocks.hold()
        holds.append(hold)
        assert [blocks.put(data, hold) for data in DATAS[1:5]] == IDS[1:5]
        yield b""
        blocks.sync()

    collect(blocks, live)
    assert blocks.missing(IDS) == [IDS[0], IDS[5]]
    assert [blocks.get(known, verify=True) for known in IDS[1:5]] == DATAS[1:5]
    assert blocks.statistics().blocks == 4
    holds[0].release()
    assert collect(blocks, list).blocks_removed == 4


def test_blocks_put_during_a_collection_and_synced_after_it_stay(blocks: BlockDirectory) -> None:
    """A dedup hit that only looked would now point to nothing."""
    put_all(blocks, *DATAS[:3])
    hold = []

    def live() -> list[bytes]:
        hold.append(blocks.hold())
        blocks.put(DATAS[1], hold[0])
        return []

    assert collect(blocks, live).blocks_removed == 3
    blocks.sync()
    assert blocks.get(IDS[1], verify=True) == DATAS[1]
    assert blocks.missing(IDS[:3]) == [IDS[0], IDS[2]]


def test_blocks_pinned_during_a_collection_stay(blocks: BlockDirectory) -> None:
    """The collection has read the pins already."""
    put_all(blocks, *DATAS[:3])

    def pin_after_the_pins_were_read(number: int) -> None:
        blocks.pin(OWNER, [IDS[1], IDS[5]])

    marked = []

    class MarksThatPin(Marks):
        def unmarked(self, ids: Sequence[bytes]) -> list[bytes]:
            marked.extend(ids)
            pin_after_the_pins_were_read(0)
            return super().unmarked(ids)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "Marks", MarksThatPin)
        collect(blocks, list)
    assert sorted(marked) == sorted(IDS[:3])
    assert blocks.missing(IDS[:3]) == [IDS[0], IDS[2]]


def test_claimed_blocks_stay_while_held(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS[:3])
    holds = []

    def live() -> list[bytes]:
        hold = blocks.hold()
        holds.append(hold)
        assert blocks.missing([IDS[5], IDS[1]], hold) == [IDS[5]]
        return []

    assert collect(blocks, live).blocks_removed == 2
    assert blocks.missing(IDS[:3]) == [IDS[0], IDS[2]]
    holds[0].release()


def test_claims_outside_a_collection_write_nothing(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS[:3])
    collect(blocks, lambda: IDS)
    before = blocks.index._environment.info()["last_txnid"]
    with blocks.hold() as hold:
        assert blocks.missing(IDS[:4], hold) == IDS[3:4]
        assert blocks.put(DATAS[0], hold) == IDS[0]
    assert blocks.index._environment.info()["last_txnid"] == before


def test_a_dedup_hit_after_a_collection_keeps_the_block_from_the_next_one(blocks: BlockDirectory) -> None:
    put_all(blocks, DATAS[0])
    collect(blocks, lambda: IDS)
    hold = blocks.hold()
    assert blocks.put(DATAS[0], hold) == IDS[0]
    tree: list[bytes] = []

    def commit_and_release() -> None:
        tree.append(IDS[0])
        hold.release()

    collect(blocks, lambda: tree, stop=Waits(commit_and_release))
    assert blocks.get(IDS[0], verify=True) == DATAS[0]


def test_a_reader_keeps_the_payload_that_it_found(blocks: BlockDirectory) -> None:
    """Between lookup and pread the collection must not punch: the reader would get NUL bytes."""
    put_all(blocks, *DATAS)
    with blocks.index.begin() as txn:
        row = blocks.index.row(txn, IDS[0])
        assert row is not None
        with ThreadPoolExecutor(1) as pool:
            waiting = threading.Event()
            proceed = threading.Event()

            def act() -> None:
                waiting.set()
                proceed.wait()

            done = pool.submit(collect, blocks, list, stop=Waits(act, rounds=6))
            waiting.wait()
            assert blocks.missing(IDS) == IDS  # the rows are gone already
            assert blocks.reader.read(IDS[0], row, 0, BLOCK_SIZE) == DATAS[0]
            txn.abort()
            proceed.set()
            assert done.result().bytes_freed == len(DATAS) * BLOCK_SIZE


def test_a_second_collection_waits_for_the_first(blocks: BlockDirectory) -> None:
    order: list[str] = []
    with BlockDirectory.open(blocks.path) as other, ThreadPoolExecutor(1) as pool:
        waited = threading.Event()

        def live() -> list[bytes]:
            second = pool.submit(collect, other, lambda: order.append("second") or [], stop=Waits(waited.set))
            seconds.append(second)
            waited.wait()
            order.append("first")
            return []

        seconds: list[object] = []
        collect(blocks, live)
        assert seconds
    assert order == ["first", "second"]


def test_a_collection_can_be_stopped_while_it_waits(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    with blocks.hold(), pytest.raises(CollectionStopped):
        collect(blocks, list, stop=lambda: True)
    assert blocks.missing(IDS) == []
    assert collect(blocks, list).blocks_removed == 6


def test_dedup_is_safe_after_a_collection_that_was_broken_off(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS[:2])
    with pytest.raises(CollectionStopped):
        collect(blocks, lambda: [b""], stop=lambda: True)
    with blocks.hold() as hold:
        assert blocks.put(DATAS[0], hold) == IDS[0]
        assert blocks.missing(IDS[:3], hold) == [IDS[2]]
        blocks.sync()
    assert blocks.statistics().blocks == 2
    assert blocks.get(IDS[0], verify=True) == DATAS[0]


def test_space_of_blocks_that_were_never_committed_is_found_again(blocks: BlockDirectory) -> None:
    put_all(blocks, DATAS[0])
    with blocks.hold() as hold:
        for data in DATAS[1:]:
            blocks.put(data, hold)
        blocks.close()
    with BlockDirectory.open(blocks.path) as again:
        assert collect(again, lambda: IDS).bytes_freed == 5 * BLOCK_SIZE
        assert again.get(IDS[0], verify=True) == DATAS[0]


def test_a_segment_with_a_damaged_sidecar_is_not_punched(blocks: BlockDirectory) -> None:
    """Its records are what says where live payload is."""
    put_all(blocks, *DATAS)
    blocks.close()
    os.truncate(blocks.layout.sidecar(1), 64 + 3 * 64)
    with BlockDirectory.open(blocks.path) as again:
        assert collect(again, lambda: IDS).bytes_freed == 0
        assert [again.get(known, verify=True) for known in IDS] == DATAS


def test_a_host_without_holes_keeps_the_space_and_the_data(
    blocks: BlockDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_all(blocks, *DATAS)

    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(blocks.disk, "punch", unsupported)
    result = collect(blocks, lambda: IDS[:2])
    assert (result.blocks_removed, result.bytes_freed) == (4, 0)
    assert [blocks.get(known, verify=True) for known in IDS[:2]] == DATAS[:2]


def test_what_a_collection_that_died_has_listed_is_punched_by_the_next_one(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    before = payload_bytes(blocks)
    blocks.close()
    dying = CountingDisk(lambda _, name: Died() if name == "punch" else None)
    with BlockDirectory.open(blocks.path, disk=dying) as mine, pytest.raises(Died):
        collect(mine, lambda: IDS[:1])
    with BlockDirectory.open(blocks.path) as again:
        assert again.missing(IDS) == IDS[1:]
        assert payload_bytes(again) == before
        assert collect(again, lambda: IDS[:1]).bytes_freed == 5 * BLOCK_SIZE
        assert again.get(IDS[0], verify=True) == DATAS[0]


def test_a_collection_is_due_when_a_lot_was_appended(blocks: BlockDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "_DUE_BYTES", 3 * BLOCK_SIZE)
    put_all(blocks, *DATAS[:3])
    assert not is_due(blocks, 0)
    put_all(blocks, DATAS[3])
    assert is_due(blocks, 0)
    collect(blocks, lambda: IDS)
    assert not is_due(blocks, 0)


def test_a_collection_is_due_when_a_lot_is_dead(blocks: BlockDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "_DEAD_BYTES", 2 * BLOCK_SIZE)
    put_all(blocks, *DATAS)
    assert unreferenced_bytes(blocks, 8) == 0
    assert unreferenced_bytes(blocks, 4) == 2 * BLOCK_SIZE
    assert not is_due(blocks, 2 * BLOCK_SIZE)
    assert is_due(blocks, unreferenced_bytes(blocks, 3))


def test_long_sweeps_work_in_short_transactions(blocks: BlockDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blockfs.blocks.index.SCAN_IDS", 7)
    monkeypatch.setattr(gc, "_SWEPT_ROWS", 3)
    monkeypatch.setattr("blockfs.blocks.segments.freed._PLACES", 2)
    monkeypatch.setattr("blockfs.blocks.segments.reclaim._SWEPT", 5)
    monkeypatch.setattr("blockfs.blocks.segments.reclaim.BATCH_ROWS", 1)
    ids = put_all(blocks, *(b"%d" % number for number in range(40)))
    result = collect(blocks, lambda: ids[::2])
    assert result.blocks_removed == 20
    assert result.bytes_freed >= 19 * 4096  # the host may need a page for the longer list of extents
    assert blocks.missing(ids) == ids[1::2]


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=50), st.integers(0, 24), st.data())
def test_marks_never_forget(ids: list[bytes], offset: int, data: st.DataObject) -> None:
    marks = Marks(len(ids), offset)
    cut = data.draw(st.integers(0, len(ids)))
    marks.add(b"".join(ids[:cut]))
    for known in ids[cut:]:
        marks.add(known)
    assert marks.unmarked(ids) == []


def test_marks_tell_most_ids_apart() -> None:
    marks = Marks(1 << 15, 5)
    source = random.Random(3)
    marks.add(source.randbytes(32 << 15))
    strangers = [source.randbytes(32) for _ in range(10_000)]
    assert len(marks.unmarked(strangers)) > 9_500  # 1.5 % expected


def test_writers_readers_and_collections_at_once_lose_nothing(blocks: BlockDirectory) -> None:
    """Each writer has a handle of its own, as if it were a process; the tree is what they all committed."""
    tree: dict[str, list[BlockId]] = {}
    lock = threading.Lock()
    finished = threading.Event()

    def committed() -> list[bytes]:
        with lock:
            return [known for ids in tree.values() for known in ids]

    def write(name: str) -> None:
        source = random.Random(name)
        with BlockDirectory.open(blocks.path, segment_limit_bytes=8 * 4096) as mine:
            for _ in range(40):
                datas = [b"%d" % source.randrange(30) for _ in range(4)]
                with mine.hold() as hold:
                    ids = [mine.put(data, hold) for data in datas[:3]]
                    if not mine.missing([block_id(datas[3])], hold):
                        ids.append(block_id(datas[3]))  # without its content, as a server's client would
                    mine.sync()
                    with lock:
                        tree[name] = ids
                for known in ids:
                    mine.get(known, verify=True)

    def collect_all() -> int:
        count = 0
        while not finished.is_set():
            collect(blocks, committed)
            count += 1
        return count

    with ThreadPoolExecutor(4) as pool:
        collector = pool.submit(collect_all)
        writers = [pool.submit(write, f"writer {number}") for number in range(3)]
        try:
            for writer in writers:
                writer.result()
        finally:
            finished.set()
        assert collector.result() > 0
    for known in committed():
        blocks.get(BlockId(known), verify=True)


def test_a_block_that_leaves_the_pending_ones_during_a_read_is_found_in_the_index(
    blocks: BlockDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader's snapshot is older than the commit, its look at the pending blocks is newer."""
    real = blocks.index.begin
    with blocks.hold() as hold:
        blocks.put(DATAS[0], hold)

        def begin_before_a_sync() -> object:
            monkeypatch.undo()
            txn = real()
            blocks.sync()
            return txn

        monkeypatch.setattr(blocks.index, "begin", begin_before_a_sync)
        assert blocks.get(IDS[0]) == DATAS[0]


def test_a_put_during_a_group_commit_reaches_the_row_with_its_own_epoch(blocks: BlockDirectory) -> None:
    """The group took the block with an older epoch; the collection of the newer one must not sweep it."""
    holds = []

    def advance_and_put(number: int, name: str) -> None:
        if armed and name == "fdatasync" and not holds:
            first.release()
            gc._advance(mine)
            holds.append(mine.hold())
        elif holds and name == "commit" and not puts:
            puts.append(mine.put(DATAS[0], holds[0]))  # the transaction has the row already, with the old epoch

    puts: list[BlockId] = []
    armed = False
    with BlockDirectory.open(blocks.path, disk=CountingDisk(advance_and_put)) as mine:
        first = mine.hold()
        mine.put(DATAS[0], first)
        armed = True
        mine.sync()
        mine.sync()
        assert gc._sweep(mine, FreedPlaces(mine.index), Marks(1, 0), 2, lambda: False)[1] == 0
        assert mine.get(IDS[0], verify=True) == DATAS[0]


def test_a_hold_that_comes_too_late_for_its_epoch_takes_the_next_one(
    blocks: BlockDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector has looked for holders already: it would not wait."""
    real = blocks.index.epoch

    def epoch_before_a_collection() -> int:
        monkeypatch.undo()
        seen = real()
        collect(blocks, list)
        return seen

    monkeypatch.setattr(blocks.index, "epoch", epoch_before_a_collection)
    with blocks.hold() as hold:
        assert hold.epoch == 2
