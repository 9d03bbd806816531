"""A file becomes a segment: not a byte is written again, and the file is whole as long as it has its own name."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.blocks import index as indexes
from blockfs.blocks import layout as layouts
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.blocks.index import Row, SegmentState
from blockfs.blocks.maintenance.gc import collect
from blockfs.blocks.maintenance.rebuild import RebuildResult, rebuild_index
from blockfs.blocks.maintenance.repair import complete_sidecars, repair_headers
from blockfs.blocks.maintenance.scrub import cut_segments, scrub
from blockfs.blocks.segment import ADOPTED, PAGE, RAW, pack_place, unpack_place
from blockfs.blocks.segments import reclaim
from blockfs.blocks.segments.adoption import Found
from blockfs.blocks.segments.reclaim import Reclaimer
from blockfs.errors import CorruptBlockError, FormatTooNewError, NoSpaceError
from tests import effort
from tests.unit.blockfs.blocks.disks import CountingDisk, Died, PowerCutDisk, memory_folder, no_space

BLOCK_SIZE = 4096
DATAS = [random.Random(number).randbytes(BLOCK_SIZE - 40 * number) for number in range(12)]
IDS = [block_id(data) for data in DATAS]
FAR = (1 << 40) - BLOCK_SIZE  # the last block of the largest staging file
ALL = range(len(DATAS))


@pytest.fixture(autouse=True)
def marks_that_tell_all_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blockfs.blocks.maintenance.gc.secrets.randbelow", lambda _: 0)


@pytest.fixture
def nothing_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments stay where they are, however little they hold."""
    monkeypatch.setattr(reclaim, "ADOPTED_LEAST_BYTES", 0)
    monkeypatch.setattr(indexes, "ADOPTED_LEAST_BYTES", 0)


def staged(folder: str, numbers: Iterable[int] = ALL, *, at: int = 0, name: str = "staged") -> str:
    """A file with these blocks, one after the other from a byte offset on, durable."""
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        for place, number in enumerate(numbers):
            file.seek(at + place * BLOCK_SIZE)
            file.write(DATAS[number].ljust(BLOCK_SIZE, b"\0"))
        file.flush()
        os.fsync(file.fileno())
    return path


def found(numbers: Iterable[int] = ALL, *, at: int = 0) -> list[Found]:
    return [Found(IDS[number], at + place * BLOCK_SIZE, len(DATAS[number])) for place, number in enumerate(numbers)]


def adopt(blocks: BlockDirectory, path: str, numbers: Iterable[int] = ALL, *, at: int = 0) -> int:
    with blocks.hold() as hold:
        number = blocks.adopt(path, found(numbers, at=at), hold)
    assert number is not None
    return number


def let_go(blocks: BlockDirectory, path: str, number: int) -> None:
    """What a caller does once its own commit is durable."""
    os.unlink(path)
    blocks.settle(number)


def adopted(blocks: BlockDirectory, folder: str, numbers: Iterable[int] = ALL, *, at: int = 0) -> int:
    path = staged(folder, numbers, at=at)
    number = adopt(blocks, path, numbers, at=at)
    let_go(blocks, path, number)
    return number


def row_of(blocks: BlockDirectory, number: int) -> Row:
    with blocks.index.reading() as txn:
        row = blocks.index.row(txn, IDS[number])
    assert row is not None
    return row


def allocated(path: str) -> int:
    return os.stat(path).st_blocks * 512


def check(blocks: BlockDirectory, numbers: Iterable[int] = ALL) -> None:
    for number in numbers:
        assert blocks.get(IDS[number], verify=True) == DATAS[number]
        assert blocks.read(IDS[number], 5, BLOCK_SIZE - 5) == DATAS[number][5:].ljust(BLOCK_SIZE - 5, b"\0")


@pytest.mark.parametrize("at", [0, BLOCK_SIZE, (1 << 32) - 3 * BLOCK_SIZE, FAR - (len(DATAS) - 1) * BLOCK_SIZE])
def test_a_file_becomes_a_segment_and_no_payload_is_written(tmp_path: Path, blocks: BlockDirectory, at: int) -> None:
    path = staged(str(tmp_path), at=at)
    identity = os.stat(path).st_ino
    number = adopt(blocks, path, at=at)
    assert os.stat(blocks.layout.segment(number)).st_ino == identity
    check(blocks)
    assert blocks.read_all([(known, 0, 1000) for known in IDS]) == b"".join(data[:1000] for data in DATAS)
    let_go(blocks, path, number)
    check(blocks)
    assert blocks.layout.segment_numbers() == [number]
    assert {(row_of(blocks, one).segment, row_of(blocks, one).codec) for one in ALL} == {(number, ADOPTED)}
    with BlockDirectory.open(blocks.path) as other:
        check(other)
        assert scrub(other).is_clean
        assert cut_segments(other) == []
        assert other.statistics().unique_bytes == sum(map(len, DATAS))


def test_the_format_is_raised_by_the_first_adoption_and_older_programs_refuse(
    tmp_path: Path, blocks: BlockDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert blocks.layout.read_format().number == 2
    before = blocks.layout.read_format()
    adopted(blocks, str(tmp_path))
    after = blocks.layout.read_format()
    assert (after.number, after.uuid, after.block_size) == (3, before.uuid, before.block_size)
    monkeypatch.setattr(layouts, "FORMAT", 2)
    with pytest.raises(FormatTooNewError) as caught:
        BlockDirectory.open(blocks.path)
    assert caught.value.exit_code == 14


def test_several_first_adoptions_at_once(tmp_path: Path, blocks: BlockDirectory) -> None:
    paths = [staged(str(tmp_path), [number], name=str(number)) for number in ALL]
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda number: adopt(blocks, paths[number], [number]), ALL))
    assert sorted(made) == blocks.layout.segment_numbers()
    check(blocks)
    assert blocks.layout.read_format().number == 3


def test_a_directory_of_format_1_can_adopt(tmp_path: Path, blocks: BlockDirectory) -> None:
    blocks.close()
    file = Path(blocks.layout.format_file)
    lines = [line for line in file.read_text().splitlines() if not line.startswith("compression")]
    file.write_text("\n".join(lines).replace("format = 2", "format = 1") + "\n")
    with BlockDirectory.open(blocks.path) as directory:
        adopted(directory, str(tmp_path))
    with BlockDirectory.open(blocks.path) as directory:
        check(directory)


def test_a_second_adoption_of_a_file_is_declined(tmp_path: Path, blocks: BlockDirectory) -> None:
    path = staged(str(tmp_path))
    adopt(blocks, path, [0, 1])
    with blocks.hold() as hold:
        assert blocks.adopt(path, found(), hold) is None


def test_a_file_that_is_gone_is_declined(tmp_path: Path, blocks: BlockDirectory) -> None:
    with blocks.hold() as hold:
        assert blocks.adopt(str(tmp_path / "gone"), found(), hold) is None


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_a_host_that_gives_no_second_name_declines_and_leaves_nothing(
    tmp_path: Path, blocks: BlockDirectory, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = staged(str(tmp_path))

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", refuse)
        with blocks.hold() as hold:
            assert blocks.adopt(path, found(), hold) is None
    adopt(blocks, path)
    assert blocks.layout.segment_numbers() == [1]
    check(blocks)


# --- what is stored already


def test_what_is_stored_pending_or_nothing_is_recognised(blocks: BlockDirectory) -> None:
    with blocks.hold() as hold:
        blocks.put(DATAS[0], hold)
        blocks.sync()
        blocks.put(DATAS[1], hold)
        names = blocks.recognise([DATAS[0], DATAS[1] + b"\0\0", bytes(100), DATAS[2]], hold)
        assert [one.block_id for one in names] == [IDS[0], IDS[1], ZERO_BLOCK, IDS[2]]
        assert [one.length for one in names] == [len(DATAS[0]), len(DATAS[1]), 0, len(DATAS[2])]
        assert [one.is_stored for one in names] == [True, True, True, False]


def test_a_damaged_block_is_replaced_by_the_one_in_the_file(tmp_path: Path, blocks: BlockDirectory) -> None:
    with blocks.hold() as hold:
        blocks.put(DATAS[0], hold)
        blocks.sync()
        row = row_of(blocks, 0)
        with open(blocks.layout.segment(row.segment), "r+b") as file:
            file.seek(row.offset)
            file.write(b"decay")
        assert not blocks.recognise([DATAS[0]], hold)[0].is_stored
    adopted(blocks, str(tmp_path))
    check(blocks)


def test_a_block_that_somebody_stored_first_is_his(tmp_path: Path, blocks: BlockDirectory) -> None:
    path = staged(str(tmp_path))
    with BlockDirectory.open(blocks.path) as other, other.hold() as hold:
        other.put(DATAS[3], hold)
        other.sync()
        number = adopt(blocks, path)
        let_go(blocks, path, number)
        assert row_of(blocks, 3).codec == RAW
    check(blocks)
    collect(blocks, lambda: IDS)
    check(blocks)
    assert scrub(blocks).is_clean
    assert rebuild_index_of(blocks).damaged == ()


def test_a_block_that_is_put_meanwhile_is_there_once(tmp_path: Path, blocks: BlockDirectory) -> None:
    path = staged(str(tmp_path))
    with BlockDirectory.open(blocks.path) as other, other.hold() as hold:
        other.put(DATAS[3], hold)
        number = adopt(blocks, path)
        other.sync()
        assert row_of(blocks, 3).segment == number
    let_go(blocks, path, number)
    assert blocks.statistics().blocks == len(DATAS)
    check(blocks)


# --- giving back


def test_nothing_is_punched_as_long_as_the_file_has_its_own_name(tmp_path: Path, blocks: BlockDirectory) -> None:
    path = staged(str(tmp_path))
    content = Path(path).read_bytes()
    number = adopt(blocks, path, [0, 1, 2])
    collect(blocks, lambda: [IDS[0]])
    assert Path(path).read_bytes() == content
    collect(blocks, list)
    assert Path(path).read_bytes() == content
    assert os.stat(path).st_nlink == 1, "a segment without rows goes, its bytes don't"
    assert number not in blocks.layout.segment_numbers()


def test_what_is_no_block_goes_as_soon_as_the_file_is_let_go(tmp_path: Path, blocks: BlockDirectory) -> None:
    size = 200
    path = os.path.join(tmp_path, "staged")
    with open(path, "wb") as file:
        file.writelines(DATAS[at % 12].ljust(BLOCK_SIZE, b"\0") for at in range(size))
        os.fsync(file.fileno())
    number = adopt(blocks, path)
    segment = blocks.layout.segment(number)
    assert allocated(segment) >= size * BLOCK_SIZE
    let_go(blocks, path, number)
    assert allocated(segment) <= (len(DATAS) + 2) * BLOCK_SIZE
    check(blocks)


def test_a_first_page_that_is_no_block_is_no_header_either(tmp_path: Path, blocks: BlockDirectory) -> None:
    path = staged(str(tmp_path), [0] * 40 + [1])
    number = adopt(blocks, path, [1], at=40 * BLOCK_SIZE)
    let_go(blocks, path, number)
    with open(blocks.layout.segment(number), "rb") as file:
        assert file.read(BLOCK_SIZE) == bytes(BLOCK_SIZE)
    check(blocks, [1])


@pytest.mark.usefixtures("nothing_is_little")
def test_dead_blocks_of_an_adopted_segment_are_punched_at_any_offset(tmp_path: Path, blocks: BlockDirectory) -> None:
    at = (1 << 32) - 4 * BLOCK_SIZE  # on both sides of 4 GiB
    number = adopted(blocks, str(tmp_path), at=at)
    segment = blocks.layout.segment(number)
    before = allocated(segment)
    collect(blocks, lambda: IDS[::2])
    check(blocks, ALL[::2])
    assert allocated(segment) <= before - (len(DATAS) // 2 - 1) * BLOCK_SIZE  # ext4 needs one for the extents
    collect(blocks, list)
    assert blocks.layout.segment_numbers() == []


def test_an_adopted_segment_with_little_left_is_moved(tmp_path: Path, blocks: BlockDirectory) -> None:
    number = adopted(blocks, str(tmp_path))
    with blocks.index.writing() as txn:
        row = blocks.index.segment(txn, number)
        assert row is not None
        blocks.index.set_segment(txn, number, row._replace(state=SegmentState.SETTLED))
    collect(blocks, lambda: IDS[1:])
    assert number not in blocks.layout.segment_numbers()
    assert {row_of(blocks, one).codec for one in ALL[1:]} == {RAW}
    check(blocks, ALL[1:])
    assert scrub(blocks).is_clean


@given(st.integers(0, FAR // PAGE), st.integers(1, 4 << 20), st.sampled_from([RAW, ADOPTED]))
def test_a_place_is_packed_in_two_words_and_unpacked(page: int, length: int, codec: int) -> None:
    offset = page * PAGE if codec == ADOPTED else page * PAGE % (1 << 32)
    packed = pack_place(offset, length, codec)
    assert max(packed) < 1 << 32
    assert unpack_place(*packed) == (offset, -(-length // PAGE) * PAGE)


# --- what mends


def rebuild_index_of(blocks: BlockDirectory) -> RebuildResult:
    blocks.close()
    return rebuild_index(blocks.path)


@pytest.fixture
def mended(tmp_path: Path, blocks: BlockDirectory) -> Iterator[str]:
    """The path of a closed directory with an adopted segment at both sides of 4 GiB and a common one."""
    adopted(blocks, str(tmp_path), ALL[:8], at=(1 << 32) - 2 * BLOCK_SIZE)
    with blocks.hold() as hold:
        for data in DATAS[8:]:
            blocks.put(data, hold)
        blocks.sync()
    blocks.close()
    yield blocks.path
    with BlockDirectory.open(blocks.path) as again:
        check(again)
        assert scrub(again).is_clean
        collect(again, lambda: IDS)
        check(again)


def sidecar_of_adopted(path: str) -> str:
    with BlockDirectory.open(path) as blocks:
        return blocks.layout.sidecar(row_of(blocks, 0).segment)


def test_a_rebuild_finds_adopted_blocks(mended: str) -> None:
    result = rebuild_index(mended)
    assert (result.blocks, result.damaged, result.findings) == (len(DATAS), (), ())


def test_a_damaged_header_is_written_again_and_no_block_is(mended: str) -> None:
    sidecar = sidecar_of_adopted(mended)
    with open(sidecar, "r+b") as file:
        file.write(b"?" * 30)
    with BlockDirectory.open(mended) as blocks, pytest.raises(CorruptBlockError):
        blocks.get(IDS[0])
    assert repair_headers(mended) == [f"{sidecar}: damaged header written again"]
    assert repair_headers(mended) == []


def test_a_lost_sidecar_is_written_again(mended: str) -> None:
    os.unlink(sidecar_of_adopted(mended))
    assert repair_headers(mended) == []
    with BlockDirectory.open(mended) as blocks:
        assert complete_sidecars(blocks) == 8
    assert rebuild_index(mended).blocks == len(DATAS)


def test_a_lost_record_is_written_again_by_a_scrub(mended: str) -> None:
    sidecar = sidecar_of_adopted(mended)
    with open(sidecar, "r+b") as file:
        file.seek(-20, os.SEEK_END)
        file.write(b"?" * 20)
    with BlockDirectory.open(mended) as blocks:
        assert scrub(blocks).repaired_records == 1
    assert rebuild_index(mended).blocks == len(DATAS)


def test_a_file_of_another_segment_is_found_out(tmp_path: Path, blocks: BlockDirectory) -> None:
    """Raw payloads are not verified by reads: the header says whether a sidecar is this segment's."""
    first = adopted(blocks, str(tmp_path), [0, 1])
    second = adopted(blocks, str(tmp_path), [2, 3])
    for one in (blocks.layout.segment, blocks.layout.sidecar):
        os.rename(one(first), one(second))
    with BlockDirectory.open(blocks.path) as other, pytest.raises(CorruptBlockError):
        other.get(IDS[2])


# --- the host fails, the process dies, the power is cut


def test_a_full_host_at_any_step_leaves_the_file_and_it_can_be_adopted_later(tmp_path: Path) -> None:
    for at in range(1, 100):
        folder = tmp_path / str(at)
        folder.mkdir()
        path = str(folder / "blocks")
        BlockDirectory.create(path, block_size=BLOCK_SIZE).close()
        disk = CountingDisk()
        with BlockDirectory.open(path, disk=disk) as blocks:
            file = staged(str(folder))
            disk.fault = lambda number, _, at=at: no_space() if number == at else None  # type: ignore[misc]
            try:
                adopt(blocks, file)
                assert len(disk.steps) < at
                return
            except NoSpaceError:
                disk.fault = lambda _number, _name: None
            assert Path(file).stat().st_nlink == 1 or disk.steps[-1] in ("sync_directory", "commit")
            with blocks.hold() as hold:
                number = blocks.adopt(file, found(), hold)
                if number is None:  # the failed one has left its name, and goes with the next new segment
                    for data in DATAS:
                        blocks.put(data, hold)
                    blocks.sync()
            check(blocks)
            os.unlink(file)
            collect(blocks, lambda: IDS)
            check(blocks)
            assert scrub(blocks).is_clean
    raise AssertionError("adoption has no end")


def test_a_collection_in_the_midst_of_an_adoption_leaves_its_segment(tmp_path: Path) -> None:
    """It has no rows yet, which is what segments are removed for."""
    path = str(tmp_path / "blocks")
    BlockDirectory.create(path, block_size=BLOCK_SIZE).close()
    disk = CountingDisk()
    with BlockDirectory.open(path, disk=disk) as blocks, BlockDirectory.open(path) as other:

        def collects(_: int, name: str) -> None:
            if name == "write" and disk.steps.count("write") == 2:  # the records
                Reclaimer(other.layout, other.index, other.disk).remove_empty(lambda: None)

        disk.fault = collects
        number = adopted(blocks, str(tmp_path))
        assert disk.steps.count("write") == 2
        assert blocks.layout.segment_numbers() == [number]
        check(blocks)
        assert scrub(blocks).is_clean


@pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power cut"])
def test_what_a_death_leaves_of_a_segment_goes_with_the_next_one(tmp_path: Path, power_cut: bool) -> None:
    path = str(tmp_path / "blocks")
    BlockDirectory.create(path, block_size=BLOCK_SIZE).close()
    disk = PowerCutDisk(lambda _, name: Died() if name == "commit" else None)
    file = staged(str(tmp_path))
    with BlockDirectory.open(path, disk=disk) as blocks, pytest.raises(Died):
        adopt(blocks, file)
    if power_cut:
        disk.cut_power()
    assert os.stat(file).st_nlink == 2
    os.unlink(file)  # it was sealed by copying, say
    with BlockDirectory.open(path) as blocks:
        assert adopted(blocks, str(tmp_path), [0]) == 1
        assert blocks.layout.segment_numbers() == [1]
        check(blocks, [0])


@dataclass
class Promises:
    """What a life was told: the blocks that must be there, and the files that must be whole."""

    numbers: set[int] = field(default_factory=set)
    files: dict[str, bytes] = field(default_factory=dict)


def live(folder: str, disk: PowerCutDisk, promises: Promises) -> None:
    """Adopt beside puts, collect before and after the file is let go, adopt again."""

    def promise(name: str, numbers: list[int], at: int) -> str:
        path = staged(folder, numbers, at=at, name=name)
        promises.files[path] = Path(path).read_bytes() if at < 1 << 30 else b""
        return path

    def forget(blocks: BlockDirectory, path: str, number: int) -> None:
        del promises.files[path]
        disk.unlink(path)
        blocks.settle(number)

    with BlockDirectory.open(f"{folder}/blocks", disk=disk) as blocks:
        with blocks.hold() as hold:
            blocks.put(DATAS[0], hold)
            blocks.sync()
        promises.numbers.add(0)
        first = promise("first", [1, 2, 3, 0, 1], 0)
        number = adopt(blocks, first, [1, 2, 3])
        promises.numbers |= {1, 2, 3}
        promises.numbers -= {3}
        collect(blocks, lambda: sorted(IDS[one] for one in promises.numbers))
        forget(blocks, first, number)
        second = promise("second", [4, 5, 6], (1 << 32) - BLOCK_SIZE)
        number = adopt(blocks, second, [4, 5, 6], at=(1 << 32) - BLOCK_SIZE)
        promises.numbers |= {4, 5, 6}
        forget(blocks, second, number)
        promises.numbers -= {1, 5}
        collect(blocks, lambda: sorted(IDS[one] for one in promises.numbers))
        with blocks.hold() as hold:
            blocks.put(DATAS[7], hold)
            blocks.sync()
        promises.numbers.add(7)


def life(at: int | None, *, power_cut: bool, little: int) -> list[str]:
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(reclaim, "ADOPTED_LEAST_BYTES", little)
        patched.setattr(indexes, "ADOPTED_LEAST_BYTES", little)
        path = f"{folder}/blocks"
        BlockDirectory.create(path, block_size=BLOCK_SIZE).close()
        disk = PowerCutDisk(lambda number, name: Died() if at is not None and number >= at else None)
        promises = Promises()
        with contextlib.suppress(Died):
            live(folder, disk, promises)
        if power_cut:
            disk.cut_power()
        for name, content in promises.files.items():
            assert not content or Path(name).read_bytes() == content
        with BlockDirectory.open(path) as blocks:
            assert all(blocks.get(known, verify=True) for known in blocks.ids()), "a dangling row"
            check(blocks, promises.numbers)
            assert scrub(blocks).is_clean
            # the files are still there: a caller that died has them sealed again, in whichever way
            for name, content in promises.files.items():
                if content:
                    with blocks.hold() as hold:
                        if blocks.adopt(name, found([1, 2, 3]), hold) is None:
                            for number in (1, 2, 3):
                                blocks.put(DATAS[number], hold)
                            blocks.sync()
                    promises.numbers |= {1, 2, 3}
                os.unlink(name)
            for _ in range(2):
                collect(blocks, lambda: sorted(IDS[one] for one in promises.numbers))
            check(blocks, promises.numbers)
            with blocks.hold() as hold:  # a new segment takes the place of what a death has left of one
                assert blocks.adopt(staged(folder, [10], name="last"), found([10]), hold) is not None
            segments = blocks.layout.segment_numbers()
            held = sum(allocated(blocks.layout.segment(one)) for one in segments)
            assert held <= PAGE * (len(promises.numbers) + 1 + 2 * len(segments)), "space that nobody will find again"
        assert rebuild_index(path).damaged == ()
        with BlockDirectory.open(path) as blocks:
            assert {BlockId(IDS[number]) for number in promises.numbers} <= set(blocks.ids())
        return disk.steps


@pytest.mark.parametrize("little", [0, 8 << 20], ids=["stays", "is moved"])
@pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power cut"])
def test_nothing_is_lost_by_a_death_at_any_step(power_cut: bool, little: int) -> None:
    steps = life(None, power_cut=False, little=little)
    assert {"link", "create", "commit", "sync_directory", "fdatasync", "punch", "unlink"} <= set(steps)
    last_link = len(steps) - steps[::-1].index("link")
    for at in range(1, len(steps) + 1, 100 // effort.count("deaths of a block store")):
        life(at, power_cut=power_cut, little=little)
    for at in range(max(1, steps.index("link") - 4), min(last_link + 6, len(steps))):  # all of adoption, at any effort
        life(at, power_cut=power_cut, little=little)
