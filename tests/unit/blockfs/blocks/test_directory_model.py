"""The block directory against a dict: any sequence of operations, reopenings, crashes and decay."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from blockfs.blocks import index as indexes
from blockfs.blocks.codec import Compression
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.blocks.maintenance.gc import collect
from blockfs.blocks.maintenance.rebuild import rebuild_index
from blockfs.blocks.maintenance.scrub import scrub
from blockfs.blocks.segments import reclaim
from blockfs.blocks.segments.adoption import Found
from blockfs.errors import CorruptBlockError, MissingBlockError
from tests import effort
from tests.unit.blockfs.blocks.disks import memory_folder

BLOCK_SIZE = 4096
LIMIT = 4 * 4096  # three blocks per segment
OWNERS = ["00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"]
DATAS = [
    b"",
    *(random.Random(number).randbytes(1 + number * 371) + b"\1" for number in range(7)),
    *(bytes([number]) * (number * 500) for number in range(1, 5)),  # these are compressed to a few bytes
]
IDS = [block_id(data) for data in DATAS]

numbers = st.integers(0, len(DATAS) - 1)
handles = st.integers(0, 1)
subsets = st.sets(numbers)


class Model(RuleBasedStateMachine):
    """Two handles of one directory. `durable` is what both see, `pending` what each has put and not synced."""

    compression = Compression.NONE

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(dir=memory_folder())
        self.path = f"{self.folder}/blocks"
        BlockDirectory.create(self.path, block_size=BLOCK_SIZE, compression=self.compression).close()
        self.durable: set[int] = set()
        self.quarantined: set[int] = set()
        self.pending: list[set[int]] = [set(), set()]
        self.pins: dict[str, set[int]] = {owner: set() for owner in OWNERS}

    @initialize()
    def open_both(self) -> None:
        self.open = [self.opened(), self.opened()]
        self.holds = [directory.hold() for directory in self.open]

    def opened(self) -> BlockDirectory:
        return BlockDirectory.open(self.path, segment_limit_bytes=LIMIT)

    def teardown(self) -> None:
        for directory in self.open:
            directory.close()
        shutil.rmtree(self.folder)

    def place(self, number: int) -> tuple[str, int]:
        with self.open[0].index.reading() as txn:
            row = self.open[0].index.row(txn, IDS[number])
        assert row is not None
        return self.open[0].layout.segment(row.segment), row.offset

    def has(self, handle: int, number: int) -> bool:
        return number == 0 or number in self.durable | self.pending[handle]

    # --- rules

    @rule(handle=handles, number=numbers, zeros=st.integers(0, 5))
    def put(self, handle: int, number: int, zeros: int) -> None:
        assert self.open[handle].put(DATAS[number] + bytes(zeros), self.holds[handle]) == IDS[number]
        if number and number not in self.durable:
            self.pending[handle].add(number)

    @rule(handle=handles, some=st.lists(numbers), zeros=st.integers(0, 5))
    def put_all(self, handle: int, some: list[int], zeros: int) -> None:
        contents = [DATAS[number] + bytes(zeros) for number in some]
        assert self.open[handle].put_all(contents, self.holds[handle]) == [IDS[number] for number in some]
        self.pending[handle] |= set(some) - {0} - self.durable

    @rule(handle=handles)
    def sync(self, handle: int) -> None:
        self.open[handle].sync()
        self.durable |= self.pending[handle]
        self.quarantined -= self.pending[handle]
        self.pending[handle] = set()

    @rule(handle=handles, number=numbers, verify=st.booleans())
    def get(self, handle: int, number: int, verify: bool) -> None:
        if self.has(handle, number):
            assert self.open[handle].get(IDS[number], verify=verify) == DATAS[number]
            assert self.open[handle].read(IDS[number], 3, 7) == DATAS[number][3:10].ljust(7, b"\0")
        else:
            expected = CorruptBlockError if number in self.quarantined else MissingBlockError
            with pytest.raises(expected):
                self.open[handle].get(IDS[number], verify=verify)

    @rule(handle=handles, wanted=st.lists(numbers), claim=st.booleans())
    def missing(self, handle: int, wanted: list[int], claim: bool) -> None:
        hold = self.holds[handle] if claim else None
        expected = [IDS[number] for number in dict.fromkeys(wanted) if not self.has(handle, number)]
        assert self.open[handle].missing([IDS[number] for number in wanted], hold) == expected

    @rule(handle=handles, owner=st.sampled_from(OWNERS), some=subsets)
    def pin(self, handle: int, owner: str, some: set[int]) -> None:
        self.open[handle].pin(owner, [IDS[number] for number in some])
        self.pins[owner] |= some - {0}

    @rule(handle=handles, owner=st.sampled_from(OWNERS), some=subsets | st.none())
    def unpin(self, handle: int, owner: str, some: set[int] | None) -> None:
        self.open[handle].unpin(owner, None if some is None else [IDS[number] for number in some])
        self.pins[owner] = set() if some is None else self.pins[owner] - some

    @rule(handle=handles, live=subsets)
    def gc(self, handle: int, live: set[int]) -> None:
        for hold in self.holds:
            hold.release()
        collect(self.open[handle], lambda: [IDS[number] for number in live])
        dead = (self.durable | self.quarantined) - live - set().union(*self.pins.values())
        gone = {number for number in dead if not self.is_stored(number)}  # a few may share a bit with live ones
        self.durable -= gone
        self.quarantined -= gone
        self.holds = [directory.hold() for directory in self.open]

    def is_stored(self, number: int) -> bool:
        with self.open[0].index.reading() as txn:
            return self.open[0].index.row(txn, IDS[number]) is not None

    @rule(handle=handles)
    def reopen_or_crash(self, handle: int) -> None:
        self.open[handle].close()
        self.open[handle] = self.opened()
        self.holds[handle] = self.open[handle].hold()
        self.pending[handle] = set()

    @precondition(lambda self: self.durable)
    @rule(data=st.data())
    def decay(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.durable)))
        path, offset = self.place(number)
        with open(path, "r+b") as file:
            file.seek(offset)
            file.write(bytes([DATAS[number][0] ^ 1]))
        assert set(scrub(self.open[0]).corrupt) == {IDS[other] for other in self.quarantined | {number}}
        self.durable.discard(number)
        self.quarantined.add(number)
        # Who has it pending has put a sound copy; that it was taken for a dedup hit before is the caller's bad luck.

    @rule()
    def scrubs(self) -> None:
        assert set(scrub(self.open[1]).corrupt) == {IDS[number] for number in self.quarantined}

    @rule()
    def rebuild(self) -> None:
        for directory in self.open:
            directory.close()
        result = rebuild_index(self.path)
        self.pending = [set(), set()]
        self.open_both()
        back = {number for number in range(len(DATAS)) if number not in self.durable and self.is_stored(number)}
        # A second copy, put before either was durable, is as good as the one that decayed.
        assert {IDS[number] for number in self.durable | back} | set(result.damaged) >= {
            IDS[number] for number in self.quarantined
        }
        self.quarantined = set()
        if type(self) is Model:
            assert not back, "a collected block is back"
        # Packed ones are, if they share their pages with others, and those of a file; the next collection takes them.
        self.durable |= back

    # --- what holds at any time

    @invariant()
    def the_index_is_the_model(self) -> None:
        stored = self.durable | self.quarantined
        assert set(self.open[0].ids()) == {IDS[number] for number in stored}
        found = self.open[1].statistics()
        assert (found.blocks, found.unique_bytes) == (len(stored), sum(len(DATAS[number]) for number in stored))

    @invariant()
    def pins_are_the_model(self) -> None:
        for owner, some in self.pins.items():
            assert list(self.open[0].pinned(owner)) == sorted(IDS[number] for number in some)

    @invariant()
    def nothing_that_is_durable_is_lost(self) -> None:
        for number in self.durable:
            assert self.open[0].get(IDS[number], verify=True) == DATAS[number]
        lengths = self.open[1].stored_lengths([BlockId(IDS[0]), *(IDS[number] for number in sorted(self.durable))])
        assert list(lengths) == [0, *(len(DATAS[number]) for number in sorted(self.durable))]
        assert IDS[0] == ZERO_BLOCK


class PackedModel(Model):
    """The same with compression."""

    compression = Compression.ZSTD


class AdoptingModel(Model):
    """Files become segments, and keep their own names for a while: as long as that they are whole."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, tuple[bytes, int]] = {}
        self.made = 0

    @rule(handle=handles, some=st.lists(numbers, min_size=1))
    def adopt(self, handle: int, some: list[int]) -> None:
        directory, hold = self.open[handle], self.holds[handle]
        self.made += 1
        path = f"{self.folder}/{self.made}"
        contents = [DATAS[number].ljust(BLOCK_SIZE, b"\0") for number in some]
        with open(path, "wb") as file:
            file.write(b"".join(contents))
        named = directory.recognise(contents, hold)
        assert [one.block_id for one in named] == [IDS[number] for number in some]
        assert [one.is_stored for one in named] == [self.has(handle, number) for number in some]
        new = {
            number: Found(one.block_id, place * BLOCK_SIZE, one.length)
            for place, (number, one) in enumerate(zip(some, named, strict=True))
            if not one.is_stored
        }
        if new:
            segment = directory.adopt(path, new.values(), hold)
            assert segment is not None
            self.files[path] = b"".join(contents), segment
            self.durable |= set(new)
            self.quarantined -= set(new)

    @precondition(lambda self: self.files)
    @rule(handle=handles, data=st.data())
    def let_go(self, handle: int, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.files)))
        _, segment = self.files.pop(path)
        os.unlink(path)
        self.open[handle].settle(segment)

    @precondition(lambda self: self.durable)
    @rule(data=st.data())
    def decay(self, data: st.DataObject) -> None:
        super().decay(data)
        for path, (_, segment) in self.files.items():
            self.files[path] = Path(path).read_bytes(), segment

    @invariant()
    def files_are_whole(self) -> None:
        for path, (content, _) in self.files.items():
            assert Path(path).read_bytes() == content


class LargeAdoptingModel(AdoptingModel):
    """As if all that is adopted were a lot: nothing of it is moved."""

    def __init__(self) -> None:
        super().__init__()
        self.patched = pytest.MonkeyPatch()
        for module in (indexes, reclaim):
            self.patched.setattr(module, "ADOPTED_LEAST_BYTES", 0)

    def teardown(self) -> None:
        super().teardown()
        self.patched.undo()


TestModel = Model.TestCase
TestPackedModel = PackedModel.TestCase
TestAdoptingModel = AdoptingModel.TestCase
TestLargeAdoptingModel = LargeAdoptingModel.TestCase
for case in (TestModel, TestPackedModel, TestAdoptingModel, TestLargeAdoptingModel):
    case.settings = settings(
        max_examples=effort.count("block directory"),
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
del case  # pytest would collect it once more
