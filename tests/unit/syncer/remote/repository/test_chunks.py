"""Chunks: an edit cuts anew what it must and nothing else, and what comes out is what a full pass would make."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from pyfastcdc import FastCDC

from syncer.remote.repository.format import chunks
from syncer.remote.repository.format.chunks import Chunk, Chunker, Old, Range, cut_window, windows_to_cut
from tests import effort

SEED = 0xB10C5EED
SIZES = (64, 256, 1024)
STEP = 1024  # small windows and holes: so that random edits meet their edges
WINDOW = 8192
SMALL = Chunker(SEED, SIZES, STEP, WINDOW)
REAL = Chunker(SEED, (4096, 16384, 65536))
MARGIN = 8  # around edges, where rules differ


def plainly(data: bytes, step: int = STEP, window: int = WINDOW, sizes: tuple[int, int, int] = SIZES) -> list[Range]:
    """What a full pass makes, by the words of the definition and nothing clever."""
    cdc = FastCDC(sizes[1], min_size=sizes[0], max_size=sizes[2], seed=SEED)
    cuts: list[Range] = []
    run_start = 0

    def end_of_run(at: int) -> None:
        if at > run_start:
            cuts.extend((run_start + each.offset, each.length) for each in cdc.cut_buf(data[run_start:at]))

    for at in range(0, len(data), step):
        if at % window == 0:
            end_of_run(at)
            run_start = at
        if not any(data[at : at + step]):
            end_of_run(at)
            run_start = at + step
    end_of_run(len(data))
    return cuts


class Content:
    """Bytes that note what is read of them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[Range] = []
        self.calls = 0

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        self.calls += 1
        for start, end in ranges:
            assert 0 <= start < end <= len(self.data)
            assert start // WINDOW == (end - 1) // WINDOW or len(self.data) >= 1 << 18
        self.reads += ranges
        return [self.data[start:end] for start, end in ranges]

    @property
    def read_bytes(self) -> int:
        return sum(end - start for start, end in self.reads)


def cut_all(content: Content, chunker: Chunker = SMALL) -> list[Chunk]:
    size = len(content.data)
    return [
        chunk for at in range(0, size, chunker.window_bytes) for chunk in cut_window(chunker, at, size, content.read)
    ]


def cut_again(
    content: Content, old_size: int, old: list[Range], changed: list[Range], chunker: Chunker = SMALL, **more: object
) -> list[Chunk]:
    """All chunks after an edit, with those of the windows that it did not touch."""
    size, step = len(content.data), chunker.window_bytes
    windows = list(windows_to_cut(chunker, size, old_size, changed))
    assert windows == sorted(set(windows))
    by_window: dict[int, list[Range]] = {}
    for at, length in old:
        by_window.setdefault(at // step * step, []).append((at, length))
    result: list[Chunk] = []
    for at in range(0, size, step):
        here = by_window.get(at, [])
        if at in windows:
            known = Old(size_bytes=old_size, chunks=here, changed=changed)
            result.extend(cut_window(chunker, at, size, content.read, old=known, **more))  # type: ignore[arg-type]
        else:
            result.extend(Chunk(start, length, None) for start, length in here)
    return result


def extents(cut: list[Chunk]) -> list[Range]:
    return [(each.offset, each.length) for each in cut]


def content(rng: random.Random) -> bytes:
    """Random, poor, periodic, with holes: each is where another rule decides."""
    size = rng.choice((0, 1, STEP, WINDOW, rng.randrange(3 * WINDOW), 3 * WINDOW + rng.randrange(-MARGIN, MARGIN)))
    how = rng.randrange(4)
    if how == 0:
        data = bytearray(rng.randbytes(size))
    elif how == 1:
        data = bytearray(rng.choices(b"\0\1", k=size))
    elif how == 2:
        data = bytearray((rng.randbytes(rng.randrange(1, 700)) * (size + 1))[:size])
    else:
        data = bytearray(size)
    for _ in range(rng.choice((0, 0, 1, 5))):
        fill(rng, data, rng.randrange(size + 1), rng.randrange(2 * STEP))
    return bytes(data)


def fill(rng: random.Random, data: bytearray, start: int, length: int) -> Range:
    end = min(start + length, len(data))
    start = min(start, end)
    data[start:end] = rng.choice((rng.randbytes(end - start), bytes(end - start), b"a" * (end - start)))
    return start, end


def edited(rng: random.Random, data: bytes, cuts: list[Range]) -> tuple[bytes, list[Range]]:
    """A content after some edits, and what they may have changed: as it is, or wider, or told twice."""
    new, size = bytearray(data), len(data)
    if rng.random() < 0.3:
        length = rng.choice((rng.randrange(4 * WINDOW), max(0, size + rng.randrange(-MARGIN, MARGIN))))
        new = new[:length] + rng.randbytes(max(0, length - size))
        if rng.random() < 0.3:
            new[size:] = bytes(max(0, length - size))
    changed: list[Range] = []
    for _ in range(rng.choice((0, 1, 1, 2, 6))):
        edges = [0, size, rng.randrange(size + 1), *(at for at, _ in cuts), *range(0, size, STEP)]
        start = max(0, rng.choice(edges) + rng.randrange(-3, 4))
        length = rng.choice((1, 1, 2, 100, STEP, 3 * STEP))
        first, last = fill(rng, new, start, length)
        if first >= last:
            continue
        wide = rng.choice((0, 1, 512))
        changed.append((first, last) if not wide else (first // wide * wide, -(-last // wide) * wide))
    rng.shuffle(changed)
    return bytes(new), changed * rng.choice((1, 1, 2))


def cases(seeds: range) -> Iterator[tuple[int, bytes, list[Range], bytes, list[Range]]]:
    for seed in seeds:
        rng = random.Random(seed)
        data = content(rng)
        cuts = plainly(data)
        yield seed, data, cuts, *edited(rng, data, cuts)


def test_an_edit_leaves_what_a_full_pass_would_make() -> None:
    for seed, data, cuts, new, changed in cases(range(effort.count("cuts after edits"))):
        after = cut_again(Content(new), len(data), cuts, changed)
        assert extents(after) == plainly(new), seed
        for chunk in after:
            now = new[chunk.offset : chunk.offset + chunk.length]
            was = data[chunk.offset : chunk.offset + chunk.length] if chunk.data is None else chunk.data
            assert now == was, seed


def test_a_full_pass_makes_what_the_definition_says() -> None:
    for seed, data, cuts, _, _ in cases(range(300)):
        told = Content(data)
        after = cut_all(told)
        assert extents(after) == cuts, seed
        assert all(data[each.offset : each.offset + each.length] == each.data for each in after)
        assert told.read_bytes == len(data)


@pytest.mark.parametrize("rule", ["_LOOK_AHEAD", "_END_MARGIN"])
def test_without_the_rule_an_edit_goes_wrong(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's property that each rule is for: if none of these goes wrong, the test above proves nothing."""
    monkeypatch.setattr(chunks, rule, 0)
    wrong = sum(
        extents(cut_again(Content(new), len(data), cuts, changed)) != plainly(new)
        for _, data, cuts, new, changed in cases(range(1500))
    )
    assert wrong > 0


def test_of_a_large_content_only_what_changed_is_read() -> None:
    rng = random.Random(7)
    data = bytearray(rng.randbytes(20 << 20))
    old = extents(cut_all(Content(bytes(data)), REAL))
    changed = [(at << 16, at + 1 << 16) for at in (3, 70, 71, 200, 319)]
    for start, end in changed:
        data[start:end] = rng.randbytes(end - start)
    told = Content(bytes(data))
    after = cut_again(told, len(data), old, changed, REAL)
    assert extents(after) == extents(cut_all(Content(bytes(data)), REAL))
    assert told.read_bytes <= (5 << 16) + 4 * 2 * (1 << 16)  # for each place what decides the cuts around it
    assert sum(each.length for each in after if each.data is not None) <= (5 << 16) + 4 * 3 * (1 << 16)
    assert len(told.reads) <= 16


def test_what_an_edit_needs_of_a_window_is_asked_for_by_few_calls() -> None:
    """Breaks when each change, and what lies beside it, is waited for by itself."""
    rng = random.Random(8)
    data = bytearray(rng.randbytes(32 << 20))
    old = extents(cut_all(Content(bytes(data)), REAL))
    changed = [(at << 16, at + 1 << 16) for at in range(2, 512, 8)]
    for start, end in changed:
        data[start:end] = rng.randbytes(end - start)
    told = Content(bytes(data))
    assert extents(cut_again(told, len(data), old, changed, REAL)) == extents(cut_all(Content(bytes(data)), REAL))
    assert told.read_bytes <= 64 * 3 << 16
    assert told.calls <= 24  # of 8 windows, in which 64 places changed


def test_a_byte_before_all_others_changes_two_chunks_of_each_window() -> None:
    """Ten MiB with a byte prepended: contents are found again, though every window begins a byte later."""
    data = random.Random(8).randbytes(10 << 20)
    one = {bytes(each.data or b"") for each in cut_all(Content(data), REAL)}
    other = [bytes(each.data or b"") for each in cut_all(Content(b"x" + data), REAL)]
    assert sum(len(each) for each in other if each not in one) <= 256 << 10


def test_zeros_that_are_known_are_not_read() -> None:
    told = Content(bytes(3 * STEP) + b"data" * STEP + bytes(5000))
    size = len(told.data)
    zeros = [(0, 3 * STEP), (7 * STEP, size)]
    after = [each for at in range(0, size, WINDOW) for each in cut_window(SMALL, at, size, told.read, zeros=zeros)]
    assert extents(after) == plainly(told.data)
    assert told.reads == [(3 * STEP, 7 * STEP)]


def test_a_hole_is_no_chunk_and_costs_nothing_when_its_end_changes() -> None:
    data = bytes(2 * WINDOW)
    assert cut_all(Content(data)) == []
    new = Content(data[:-1] + b"x")
    assert extents(cut_again(new, len(data), [], [(len(data) - 1, len(data))])) == [(len(data) - STEP, STEP)]
    assert new.reads == [(len(data) - STEP, len(data))]


def test_another_repository_cuts_elsewhere() -> None:
    data = Content(random.Random(9).randbytes(WINDOW))
    other = Chunker(SEED + 1, SIZES, STEP, WINDOW)
    assert extents(cut_all(data)) != extents(cut_all(data, other))


def test_cuts_are_what_they_were() -> None:
    """Another release that cuts elsewhere would store everything anew."""
    data = random.Random(10).randbytes(1 << 18)
    assert [each.length for each in cut_all(Content(data), REAL)] == CUTS


def test_the_library_is_the_compiled_one() -> None:
    """Its fallback in Python is 300 times as slow, and says so only once."""
    assert FastCDC.__module__ == "pyfastcdc.cy.fastcdc"


CUTS = [19758, 16625, 31027, 37189, 14715, 26155, 8422, 21227, 5044, 16560, 35052, 25508, 4862]
