"""Volumes on the page: what they hold, who shares, and maps; names are text."""

from __future__ import annotations

import asyncio
import re
from typing import Final

import msgspec

from syncer.ui.ports import MapFacts, MountFacts, SharerFacts, SnapshotFacts, Use, VolumeFacts
from syncer.ui.views.volumes import BANDS, CELLS, view_map, view_plot, view_volume
from tests.unit.syncer.ui.conftest import Page

UUID: Final = "0f8fad5b-d9cb-469f-a165-70867728950e"
MOUNT: Final = MountFacts(uuid=UUID, volume=b"/v", mountpoint=b"/home/me/<b>images", staged_bytes=4096)
NOW: Final = Use(at_s=1_800_000_000.0, logical_bytes=3 << 30, unique_bytes=1 << 30, stored_bytes=1 << 30)
MOST: Final = SharerFacts(
    path=b"caf\xe9+<u>.img", size_bytes=1 << 30, blocks=1000, shared=995, shared_bytes=995 << 16, other=b"b.img"
)
HELD: Final = VolumeFacts(
    files=3,
    filled_bytes=2 << 30,
    now=NOW,
    past=(),
    snapshots=(SnapshotFacts(name=b"<i>", source=b"", created_s=1.7e9, files=3, logical_bytes=3 << 30),),
    sharers=(MOST,),
    is_whole=True,
)
CELL: Final = {"hole": (9, 0, 1, 0, -1), "own": (0, 0, 6, 4, 0), "other0": (2, 0, 3, 5, 0), "staged": (0, 9, 1, 0, -1)}


def drawn(*kinds: str, others: int = 1) -> MapFacts:
    """A map of cells of these kinds, ten blocks each."""
    more = {"other9": (0, 0, 0, 10, 9), "others": (0, 0, 0, 10, -1)}
    return MapFacts(
        size_bytes=len(kinds) * 10 * 65536,
        block_size=65536,
        blocks=len(kinds) * 10,
        cells=tuple({**CELL, **more}[kind] for kind in kinds),
        others=tuple((b"%d.img" % number, 5) for number in range(others)),
        is_whole=False,
        is_behind=True,
    )


def test_a_map_has_a_stretch_for_each_run_of_a_kind_in_a_row() -> None:
    view = view_map(drawn(*["hole"] * 60, *["own"] * 10, "other0", "staged", "other9", "others"))
    told = [(each.kind, each.x, each.y, each.width) for each in view.stretches]
    assert told == [
        ("hole", 0, 0, 60), ("own", 60, 0, 4), ("own", 0, 1, 6), ("other0", 6, 1, 1), ("staged", 7, 1, 1),
        ("others", 8, 1, 2),
    ]  # fmt: skip
    assert (view.columns, view.rows) == (64, 2)
    assert [each.kind for each in view.legend] == ["hole", "staged", "own", "shared"]
    assert view.scale == "Each piece is 640 KiB, and has the colour of what most of it is."
    assert len(view.remarks) == 2


def test_the_largest_map_is_bounded() -> None:
    """A tebibyte is drawn by as many pieces as a gibibyte."""
    kinds = [("own", "hole")[number % 2] for number in range(CELLS)]
    assert len(view_map(drawn(*kinds)).stretches) == CELLS


def part_of(first: int, blocks: int, of: int) -> MapFacts:
    """The map of a part of a file, in as many cells as there can be."""
    return msgspec.structs.replace(
        drawn(*["own"] * CELLS), first=first, blocks=blocks, file_blocks=of, size_bytes=of * 65536
    )


def test_the_parts_of_a_map_are_all_of_it_and_lead_closer_until_a_piece_is_a_block() -> None:
    whole = view_map(part_of(0, 1 << 24, 1 << 24))
    assert (whole.shown, whole.before, whole.after, whole.wider) == (None, None, None, None)
    assert [(each.first, each.count) for each in whole.bands] == [(k << 21, 1 << 21) for k in range(BANDS)]
    assert [(each.y, each.height) for each in whole.bands] == [(3 * k, 3) for k in range(BANDS)]
    assert whole.bands[1].label == "128 GiB to 256 GiB"
    assert not view_map(part_of(0, CELLS, CELLS)).bands


def test_from_a_part_of_a_map_others_are_reached() -> None:
    of = (1 << 24) + 77
    found = view_map(part_of(1 << 21, 1 << 21, of))
    around = [found.shown, found.before, found.after, found.wider]
    assert [(each.first, each.count) for each in around if each] == [
        (1 << 21, 1 << 21), (0, 1 << 21), (1 << 22, 1 << 21), (0, 1 << 24),
    ]  # fmt: skip
    last = view_map(part_of(7 << 21, of - (7 << 21), of))
    assert last.before is not None
    assert (last.after, last.wider) == (None, None)


def test_a_map_of_an_empty_file_says_so() -> None:
    view = view_map(
        MapFacts(size_bytes=0, block_size=65536, blocks=0, cells=(), others=(), is_whole=True, is_behind=False)
    )
    assert (view.stretches, view.scale, view.remarks) == ((), "The file is empty.", ())


def test_a_curve_begins_with_the_first_note_and_ends_now() -> None:
    past = tuple(Use(at_s=NOW.at_s - 3600.0 * ago, logical_bytes=0, unique_bytes=0, stored_bytes=0) for ago in (4, 2))
    logical, unique, _ = view_plot(past, NOW, NOW.at_s).lines
    assert logical.points == "0.0,220.0 500.0,220.0 1000.0,0.0"
    assert unique.points.endswith("1000.0,146.7")
    assert (logical.first, logical.now, unique.first, unique.now) == ("0 B", "3 GiB", "0 B", "1 GiB")
    assert not view_plot((), NOW, NOW.at_s).lines[0].points


def test_figures_are_told_in_words() -> None:
    view = view_volume(HELD, NOW.at_s)
    assert view.summary == "3 files; each unique byte stands for 2.00"
    (sharer,) = view.sharers
    assert (sharer.path, sharer.shared, sharer.percent) == ("caf\\xe9+<u>.img", "62.2 MiB (99 %)", 100)
    assert [(each.name, each.source, each.holds) for each in view.snapshots] == [("<i>", "all of it", "3 files, 3 GiB")]


def test_from_all_volumes_to_a_map_names_are_text_and_paths_are_bytes(page: Page) -> None:
    async def scenario() -> None:
        page.program.mounted = [MOUNT, MountFacts(uuid="", volume=b"/x", mountpoint=b"/m", trouble="it <hangs>")]
        page.program.held, page.program.drawn = HELD, drawn("own", "other0")
        browser = await page.browser()
        text = (await browser.get("/volumes")).text
        assert "&lt;b&gt;images" in text
        assert "it &lt;hangs&gt;" in text
        text = (await browser.get(f"/volumes/{UUID}")).text
        assert "&lt;u&gt;.img" in text
        assert "<u>" not in text
        (target,) = re.findall(r'href="(/volumes/[^"]+path=[^"]+)"', text)
        text = (await browser.get(target)).text
        assert 'class="other0"' in text
        assert page.program.done == [("volume", UUID), ("map", UUID, "caf\xe9+<u>.img", "0", "0")]
        await browser.get(f"/volumes/{UUID}?again=1")
        await browser.get(f"/volumes/{UUID}")
        assert page.program.done[-1] == ("volume", UUID)

    asyncio.run(scenario())


def test_what_is_gone_is_told(page: Page) -> None:
    async def scenario() -> None:
        browser = await page.browser()
        assert "None is mounted" in (await browser.get("/volumes")).text
        assert (await browser.get("/volumes/x")).status == 404
        page.program.mounted = [MOUNT]
        assert "not mounted any more" in (await browser.get(f"/volumes/{UUID}")).text
        assert "there is no file" in (await browser.get(f"/volumes/{UUID}/map?path=x")).text
        assert (await browser.get(f"/volumes/{UUID}/map?path=%00")).status == 303

    asyncio.run(scenario())
