"""Kill the process, or cut the power, before each step of a working life; then everything promised must be there."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from blockfs.blocks.codec import Compression
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from blockfs.blocks.maintenance.gc import collect
from blockfs.blocks.maintenance.rebuild import rebuild_index
from blockfs.blocks.maintenance.scrub import scrub
from tests import effort
from tests.unit.blockfs.blocks.disks import Died, PowerCutDisk, memory_folder

BLOCK_SIZE = 4096
OWNER = "12345678-1234-5678-1234-567812345678"
DATAS = [random.Random(number).randbytes(random.Random(number).randrange(1, BLOCK_SIZE)) for number in range(10)]
IDS = [block_id(data) for data in DATAS]
LIMIT = 3 * 4096  # two blocks per segment, so that the life has rollovers
SMALL = [random.Random(-number - 1).randbytes(500).hex().encode() for number in range(300)]  # compressed to half
SMALL_IDS = [block_id(data) for data in SMALL]


@dataclass
class Promises:
    """What the life was told: these must survive."""

    blocks: set[BlockId] = field(default_factory=set)
    pins: set[BlockId] = field(default_factory=set)


def live(path: str, disk: PowerCutDisk, promises: Promises) -> None:
    """Put, sync, pin, collect, lose a race, take a segment over."""

    def put_and_sync(directory: BlockDirectory, *numbers: int) -> None:
        with directory.hold() as hold:
            for number in numbers:
                directory.put(DATAS[number], hold)
            directory.sync()
        promises.blocks.update(IDS[number] for number in numbers)

    def collect_but(directory: BlockDirectory, *numbers: int) -> None:
        keep = {IDS[number] for number in numbers}
        promises.blocks &= keep | promises.pins
        collect(directory, lambda: sorted(keep))

    opened = []
    try:
        blocks = BlockDirectory.open(path, disk=disk, segment_limit_bytes=LIMIT)
        opened.append(blocks)
        put_and_sync(blocks, 0, 1, 2)
        blocks.pin(OWNER, [IDS[1], IDS[3]])
        promises.pins |= {IDS[1], IDS[3]}
        put_and_sync(blocks, 3, 4)
        collect_but(blocks, 2)
        other = BlockDirectory.open(path, disk=disk, segment_limit_bytes=LIMIT)
        opened.append(other)
        with blocks.hold() as hold:
            blocks.put(DATAS[5], hold)  # the other one is first
            blocks.put(DATAS[6], hold)
            put_and_sync(other, 5, 7)
            blocks.sync()
            promises.blocks.add(IDS[6])
        collect_but(blocks, 5, 7)
        promises.pins.discard(IDS[1])
        blocks.unpin(OWNER, [IDS[1]])
        other.close()
        blocks.close()
        again = BlockDirectory.open(path, disk=disk, segment_limit_bytes=LIMIT)
        opened.append(again)
        put_and_sync(again, 0, 8, 9)
        collect_but(again, 8)
        with again.hold() as hold:
            again.put_all([DATAS[number] for number in (1, 8, 2, 0, 1)], hold)
            again.sync()
        promises.blocks.update(IDS[number] for number in (0, 1, 2, 8))
    finally:
        for directory in opened:
            directory.close()


def check(path: str, promises: Promises) -> None:
    with BlockDirectory.open(path) as blocks:
        for known in promises.blocks:
            assert blocks.get(known, verify=True) == DATAS[IDS.index(known)]
        stored = list(blocks.ids())
        assert all(blocks.get(known, verify=True) for known in stored), "a dangling row"
        assert promises.pins <= set(blocks.pinned(OWNER))
        assert blocks.statistics().blocks == len(stored)
        result = scrub(blocks)
        assert result.is_clean, result
        # and life goes on
        with blocks.hold() as hold:
            for data in DATAS:
                blocks.put(data, hold)
            blocks.sync()
        assert [blocks.get(known, verify=True) for known in IDS] == DATAS
        keep = {*promises.blocks, *promises.pins}
        collect(blocks, lambda: sorted(keep))
        assert keep <= set(blocks.ids())
    with BlockDirectory.open(path) as blocks:
        collect(blocks, lambda: sorted(keep))
        held = sum(entry.stat().st_blocks * 512 for entry in Path(blocks.layout.segments).glob("*.seg"))
        pinned = set(blocks.pinned(OWNER))
        segments = len(blocks.layout.segment_numbers())
        assert held <= 4096 * (len(keep | pinned) + 2 * segments), "space that nobody will find again"
    assert rebuild_index(path).damaged == ()
    with BlockDirectory.open(path) as blocks:
        assert keep <= set(blocks.ids())


def packed_life(path: str, disk: PowerCutDisk, promises: Promises) -> None:
    """Compress, collect every second block, so that the others are moved, and go on."""
    with BlockDirectory.open(path, disk=disk) as blocks:
        with blocks.hold() as hold:
            for data in SMALL:
                blocks.put(data, hold)
            blocks.sync()
        promises.blocks.update(SMALL_IDS)
        promises.blocks -= set(SMALL_IDS[1::2])
        collect(blocks, lambda: SMALL_IDS[::2])
        with blocks.hold() as hold:
            blocks.put(SMALL[1], hold)
            blocks.sync()
        promises.blocks.add(SMALL_IDS[1])


def packed_steps(at: int | None, *, power_cut: bool) -> list[str]:
    """Let a packed life die at a step; then check what was promised."""
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        path = f"{folder}/blocks"
        BlockDirectory.create(path, block_size=BLOCK_SIZE, compression=Compression.ZSTD).close()
        disk = PowerCutDisk(lambda number, name: Died() if at is not None and number >= at else None)
        promises = Promises()
        with contextlib.suppress(Died):
            packed_life(path, disk, promises)
        if power_cut:
            disk.cut_power()
        with BlockDirectory.open(path) as blocks:
            assert all(blocks.get(known, verify=True) for known in blocks.ids()), "a dangling row"
            for known in promises.blocks:
                assert blocks.get(known, verify=True) == SMALL[SMALL_IDS.index(known)]
            collect(blocks, lambda: sorted(promises.blocks))
            assert scrub(blocks).is_clean
            if at is None:
                assert not blocks.missing(SMALL_IDS[::2])
                assert len(blocks.layout.segment_numbers()) == 1
                assert blocks.layout.segment_numbers() != [1], "nothing was moved"
        assert rebuild_index(path).damaged == ()
        with BlockDirectory.open(path) as blocks:
            assert promises.blocks <= set(blocks.ids())
        return disk.steps


def test_packed_payload_survives_a_death_at_any_step() -> None:
    """The writes of single payloads are alike: a sample of them is enough."""
    steps = packed_steps(None, power_cut=False)
    for at, name in enumerate(steps, 1):
        if name != "write" or at % 41 == 0:
            for power_cut in (False, True):
                packed_steps(at, power_cut=power_cut)


def life_of(tmp_path: Path, fault: Callable[[int, str], BaseException | None]) -> tuple[str, PowerCutDisk, Promises]:
    path = str(tmp_path / "blocks")
    BlockDirectory.create(path, block_size=BLOCK_SIZE).close()
    disk, promises = PowerCutDisk(fault), Promises()
    with contextlib.suppress(Died):
        live(path, disk, promises)
    return path, disk, promises


def steps_of_a_life(tmp_path: Path) -> list[str]:
    return life_of(tmp_path, lambda number, name: None)[1].steps


def test_the_life_has_every_kind_of_step(tmp_path: Path) -> None:
    steps = steps_of_a_life(tmp_path)
    assert set(steps) == {
        "create", "write", "fdatasync", "sync_directory", "commit", "punch", "truncate", "unlink",
    }  # fmt: skip
    assert STEPS - 15 < len(steps) <= STEPS, "adjust STEPS, so that every step is tried"


STEPS = 164


@pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("at", range(1, STEPS + 1, 100 // effort.count("deaths of a block store")))
def test_nothing_promised_is_lost_by_a_death_at_any_step(at: int, power_cut: bool) -> None:
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        path, disk, promises = life_of(Path(folder), lambda number, name: Died() if number >= at else None)
        if power_cut:
            disk.cut_power()
        check(path, promises)
