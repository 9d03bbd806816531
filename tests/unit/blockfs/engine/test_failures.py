"""Which pages a reader must not get, and which the next mount must know of: against a model, page by page."""

from __future__ import annotations

import errno

from hypothesis import given
from hypothesis import strategies as st

from blockfs.engine.content.filestate import FileState, LowWater
from blockfs.engine.content.pagemap import PAGE, PageMap
from blockfs.engine.durable.failures import Failures
from blockfs.tree.schema import Inode, Kind, decode_failed_flush, encode_failed_flush, failed_flush_key

BLOCK = 2 * PAGE
PAGES = 12

pages = st.frozensets(st.integers(0, PAGES - 1), min_size=1)
runs = st.tuples(st.integers(0, PAGES - 1), st.integers(1, PAGES))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("fail"), pages),
        st.tuples(st.just("write"), runs),
        st.tuples(st.just("begin"), st.none()),
        st.tuples(st.just("end"), st.integers(0, 3)),
        st.tuples(st.just("cut"), st.integers(0, PAGES)),
    ),
    max_size=30,
)


def page_map(found: frozenset[int] | set[int]) -> PageMap:
    made = PageMap(BLOCK)
    for page in found:
        made.add(page, 1)
    return made


def pages_of(found: PageMap) -> set[int]:
    return {page for first, count in found.extents() for page in range(first, first + count)}


class Model:
    """When each lost page was written again: 0 is not yet. One that is well is not there."""

    def __init__(self) -> None:
        self.now = 1
        self.lost: dict[int, int] = {}
        self.flushes: list[tuple[int, LowWater]] = []

    @property
    def failed(self) -> set[int]:
        return {page for page, written in self.lost.items() if not written}


@given(steps)
def test_a_page_is_failed_until_it_is_written_and_known_until_that_is_on_the_disk(
    script: list[tuple[str, object]],
) -> None:
    times = dict.fromkeys(("atime_ns", "mtime_ns", "ctime_ns", "btime_ns"), 0)
    state = FileState(Inode(ino=7, kind=Kind.FILE, mode=0, uid=0, gid=0, nlink=1, size_bytes=PAGES * PAGE, **times))
    model = Model()
    for what, argument in script:
        model.now += 1
        match what, argument:
            case "fail", frozenset() as found:
                state.note_failure(page_map(found), errno.EIO, BLOCK)
                model.lost.update(dict.fromkeys(found, 0))
            case "write", (int(first), int(count)):
                if state.failures is not None:
                    state.failures.rewritten(first, count)
                for page in model.failed & set(range(first, first + count)):
                    model.lost[page] = model.now
            case "begin", _:
                model.flushes.append((model.now, state.watch()))
            case "end", int(number) if model.flushes:
                began, mark = model.flushes.pop(number % len(model.flushes))
                state.unwatch(mark)
                if state.failures is not None:
                    assert mark.failed is not None
                    state.failures.flushed(mark.failed)
                model.lost = {page: at for page, at in model.lost.items() if not 0 < at < began}
            case "cut", int(first):
                state.note_cut(first * PAGE)
                model.lost = {page: at for page, at in model.lost.items() if page < first}
            case _:
                continue
        if state.failures is not None:
            assert pages_of(state.failures.pages) == model.failed
            assert pages_of(state.failures.recorded) == set(model.lost)


@given(pages, st.booleans())
def test_a_row_is_read_as_it_was_written(found: frozenset[int], is_told: bool) -> None:
    failures = Failures(7, BLOCK)
    failures.note(page_map(found), errno.ENOSPC)
    failures.is_told = is_told
    row = failures.row
    assert row is not None
    again = Failures.found(decode_failed_flush(failed_flush_key(7), encode_failed_flush(row)), BLOCK)
    assert again.row == row
    assert pages_of(again.pages) == found
    assert again.sample() == (1 if is_told else 0)


@given(pages, pages, runs)
def test_maps_combine_like_sets(first: frozenset[int], second: frozenset[int], run: tuple[int, int]) -> None:
    stretch = set(range(run[0], run[0] + run[1]))
    assert page_map(first).overlaps(*run) == bool(first & stretch)
    for name, expected in (("subtract", first - second), ("intersect", first & second)):
        made = page_map(first)
        assert getattr(made, name)(page_map(second)) == len(first) - len(expected)
        assert (pages_of(made), made.count) == (expected, len(expected))
    made = page_map(first)
    copy = made.copy()
    made.unite(page_map(second))
    assert (pages_of(made), made.count) == (first | second, len(first | second))
    assert made.remove(*run) == len((first | second) & stretch)
    assert pages_of(copy) == first
