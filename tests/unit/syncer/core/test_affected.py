"""A plan for the part in which something changed is the plan for the whole."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import pytest
from msgspec.structs import replace

from syncer.core.base import BaseIndex
from syncer.core.model import (
    BaseRow,
    FileStat,
    Kind,
    Meta,
    Nid,
    RelPath,
    RemoteStat,
    RemoteTag,
)
from syncer.core.partial.affected import Affected, AffectedPart, Calm, UnboundedError, is_unchanged
from syncer.core.partial.listing_diff import Known, ListingDiff
from syncer.core.paths import split
from syncer.core.planner.merge import Policy
from syncer.core.subtrees import touches
from syncer.core.xattrs import Xattrs
from syncer.remote.serials import SERIALS, Cursor
from tests import effort
from tests.kit.rows import MemoryRows
from tests.simulation.scenario import HISTORIES, Limits, Scenario
from tests.unit.syncer.core.trees import (
    base_of,
    deep_tree,
    essence,
    file,
    folder,
    folder_stat,
    local_tag,
    plan_of,
    wide_tree,
)

SINCE = Cursor(identity="life", version=10, modified_us=0).position
POLICY = Policy(host="pc", utc="T")
SEEDS = effort.count("parts of a tree")
# What is too large to travel is no difference, so a part is not told of it, and a plan of the whole may say less.
LIMITS = Limits(base_steps=24, side_steps=2, lost_base=False, large_marks=False)


def calm_in(scenario: Scenario, stats: Sequence[FileStat], changed: frozenset[RelPath]) -> Calm:
    """Judges moved directories by all that is known: what is below them is as in the base, on both sides."""
    base = BaseIndex(scenario.rows.values())
    seen = {stat.path: stat for stat in stats}

    def calm(row: BaseRow, stat: FileStat) -> bool:
        old = base.paths[row.nid]
        below = {path[len(old) :]: nid for nid, path in base.paths.items() if path.startswith(old + b"/")}
        here = {path[len(stat.path) :]: each for path, each in seen.items() if path.startswith(stat.path + b"/")}
        roots = frozenset((old, stat.path))
        if old in seen or below.keys() != here.keys() or any(touches(path, roots) for path in changed):
            return False
        return all(is_unchanged(base.rows[nid], here[rest]) for rest, nid in below.items())

    return calm


def affected_part(
    scenario: Scenario, by_name: Callable[[], bool] = lambda: False, *, whole_moves: bool = False
) -> tuple[AffectedPart, list[FileStat]]:
    """The affected part, by what a survey and the server's list of changes would say.

    Args:
        scenario: Base and both sides.
        by_name: Whether of the next directory only the changed names are told.
        whole_moves: Whether directories may move as a whole.
    """
    stats = scenario.local.observe_local(set(), set())
    base = BaseIndex(scenario.rows.values())
    entries: dict[RelPath, dict[RelPath, FileStat]] = {RelPath(b""): {}}
    for stat in stats:
        entries.setdefault(split(stat.path)[0], {})[stat.path] = stat
    known: dict[RelPath, dict[RelPath, BaseRow]] = {}
    for nid, path in base.paths.items():
        known.setdefault(split(path)[0], {})[path] = base.rows[nid]
    dirty: dict[RelPath, set[RelPath]] = {}
    for directory in entries.keys() | known.keys():
        rows, seen = known.get(directory, {}), entries.get(directory, {})
        other = {path for path in seen if path not in rows or not is_unchanged(rows[path], seen[path])}
        if other or rows.keys() - seen.keys():
            dirty[directory] = other | (rows.keys() - seen.keys())
    tags = {base.paths[nid]: row.remote for nid, row in base.rows.items()}
    objects = scenario.remote.observe_remote()
    changed = [stat for stat in objects if tags.get(stat.path) != stat.tag]
    deleted = tags.keys() - {stat.path for stat in objects}
    calm = calm_in(scenario, stats, frozenset({*deleted, *(stat.path for stat in changed)})) if whole_moves else None
    affected = Affected(MemoryRows(scenario.rows), SERIALS, calm, folds=False)
    looked = set()
    folders = {stat.path for stat in stats if stat.kind is Kind.DIRECTORY} | {RelPath(b"")}
    for path in sorted(dirty):
        pending = [(path, False)]
        if path not in looked and by_name():
            pending = []
            if path in folders and affected.find(path) is not None:
                names = [split(each)[1] for each in dirty[path]]
                there = [entries[path][each] for each in dirty[path] if each in entries.get(path, {})]
                pending = [(below, True) for below in affected.looked_at(path, names, there)]
        while pending:
            at, whole = pending.pop()
            if at in looked or at not in folders or not (whole or affected.find(at) is not None):
                continue
            looked.add(at)
            pending += [(below, True) for below in affected.listed(at, entries.get(at, {}).values(), whole=whole)]
    diff = ListingDiff(Known(rows=lambda: nullcontext(MemoryRows(scenario.rows))))
    assert sorted(diff.differing(objects), key=lambda stat: stat.path) == sorted(changed, key=lambda stat: stat.path)
    assert set(diff.missing()) == deleted
    affected.changed(changed, deleted)
    return affected.finish(), stats


@pytest.mark.parametrize("names", [0.0, 0.5, 1.0], ids=["by directory", "mixed", "by name"])
def test_the_plan_of_a_part_is_the_plan_of_the_whole(names: float) -> None:
    """L5, of a folder, by its rule: tests/contract/test_looks.py has it on real roots."""
    smaller = 0
    for seed in range(SEEDS):
        scenario = Scenario(seed * HISTORIES, LIMITS)
        scenario.prepare()
        rng = random.Random(seed)
        part, stats = affected_part(scenario, lambda: rng.random() < names)  # noqa: B023 - called at once
        base = BaseIndex(scenario.rows.values())
        whole = plan_of(base, stats, scenario.remote.observe_remote(), 0)
        again = plan_of(part.base, part.local, part.remote, part.beside)
        assert essence(again) == essence(whole), (seed, scenario.story())
        smaller += len(part.base) < len(base)
    assert smaller > SEEDS // 10


def test_a_plan_with_directories_that_moved_as_a_whole_is_the_plan_of_the_whole() -> None:
    moved = given_up = 0
    for seed in range(SEEDS):
        scenario = Scenario(seed, replace(LIMITS, base_steps=25))
        scenario.prepare()
        try:
            part, stats = affected_part(scenario, whole_moves=True)
        except UnboundedError:
            given_up += 1
            continue
        if not part.moved:
            continue
        base = BaseIndex(scenario.rows.values())
        whole = plan_of(base, stats, scenario.remote.observe_remote(), 0)
        again = plan_of(part.base, part.local, part.remote, part.beside)
        assert essence(again) == essence(whole), (seed, scenario.story())
        moved += sum(1 for nid in part.moved if base.children.get(nid))
    assert moved > SEEDS // 1000
    assert given_up < SEEDS // 10


def test_a_change_deep_in_a_tree_needs_its_directory_and_those_above_only() -> None:
    rows = wide_tree(folders=50, files=20)
    base = BaseIndex(rows.values())
    reader = MemoryRows(rows)
    affected = Affected(reader, SERIALS)
    inside = [path for path in base.paths.values() if path.startswith(b"d7/")]
    by_path = {path: rows[nids[0]] for path, nids in base.by_path.items()}
    entries = [
        FileStat(path=path, kind=row.node.kind, meta=row.node.meta, tag=row.local or local_tag(1))
        for path in inside
        for row in [by_path[path]]
    ]
    entries[0] = replace(entries[0], tag=replace(entries[0].tag, ctime_ns=99))
    assert affected.listed(RelPath(b"d7"), entries) == []
    part = affected.finish()
    assert len(part.base) == 21
    assert part.beside == len(rows) - 21
    assert len(reader.given) < 60


def test_a_named_change_needs_its_own_row_and_those_of_the_directories_above() -> None:
    rows = wide_tree(folders=50, files=20)
    base, reader = BaseIndex(rows.values()), MemoryRows(rows)
    affected = Affected(reader, SERIALS)
    row = rows[base.by_path[RelPath(b"d7/f3")][0]]
    assert row.local is not None
    tag = replace(row.local, ctime_ns=99)
    seen = FileStat(path=RelPath(b"d7/f3"), kind=Kind.FILE, meta=row.node.meta, tag=tag)
    assert affected.looked_at(RelPath(b"d7"), [b"f3"], [seen]) == []
    part = affected.finish()
    assert len(part.base) == 2
    assert part.local == [seen, *(stat for stat in part.local if stat.path == b"d7")]
    assert part.beside == len(rows) - 2
    assert reader.listed == []


@pytest.mark.parametrize(("folds", "needed"), [(False, 2), (True, 101)])
def test_what_the_server_has_anew_needs_its_own_row_and_those_of_the_directories_above(
    *, folds: bool, needed: int
) -> None:
    """A new version of a file, and a new file, each in a large directory; where names fold, any may be like the new."""
    rows = wide_tree(folders=2, files=100)
    (nid,) = BaseIndex(rows.values()).by_path[RelPath(b"d0/f5")]
    row = rows[nid]
    assert row.remote is not None
    newer = replace(row.remote, version=row.remote.version + 1000)
    affected = Affected(MemoryRows(rows), SERIALS, folds=folds)
    affected.changed([RemoteStat(path=RelPath(b"d0/f5"), kind=Kind.FILE, meta=row.node.meta, tag=newer)], [])
    assert len(affected.finish().base) == 2
    affected = Affected(MemoryRows(rows), SERIALS, folds=folds)
    new = RemoteTag(uuid="new", version=5000, etag="", size_bytes=0)
    affected.changed([RemoteStat(path=RelPath(b"d0/new"), kind=Kind.FILE, meta=Meta(), tag=new)], [])
    assert len(affected.finish().base) == needed - (not folds)


def test_a_torn_base_has_no_affected_part() -> None:
    rows = wide_tree(folders=1, files=1)
    first = next(row for row in rows.values() if row.node.kind is Kind.FILE)
    twin = replace(first, nid=Nid(5000))
    affected = Affected(MemoryRows({**rows, twin.nid: twin}), SERIALS)
    with pytest.raises(UnboundedError):
        affected.find(RelPath(b"d0/f0"))


def test_a_path_of_any_depth_is_found() -> None:
    rows, path = deep_tree(1100)
    affected = Affected(MemoryRows(rows), SERIALS)
    assert affected.find(path) == 1100
    assert affected.find(RelPath(path + b"/none/none")) is None
    assert affected.find(RelPath(path[:-2])) == 1099


def test_a_folder_whose_files_all_changed_on_the_server_is_read_once() -> None:
    rows = wide_tree(folders=2, files=50)
    base, reader = BaseIndex(rows.values()), MemoryRows(rows)
    affected = Affected(reader, SERIALS)
    objects = []
    for nid, row in rows.items():
        assert row.remote is not None
        tag = replace(row.remote, version=row.remote.version + 1000)
        objects.append(RemoteStat(path=base.paths[nid], kind=row.node.kind, meta=row.node.meta, tag=tag))
    affected.changed(objects, [])
    assert len(affected.finish().base) == len(rows)
    assert sorted(reader.listed) == sorted(set(reader.listed))


def directory_and_file(*, row_of_file: int, row_of_directory: int) -> dict[Nid, BaseRow]:
    """`d` and `d/f`, whose remote versions are these."""
    nodes = {Nid(1): folder("d"), Nid(2): file("f", 1, parent=1)}
    versions = {Nid(1): row_of_directory, Nid(2): row_of_file}
    return {
        nid: BaseRow(
            nid=nid,
            node=node,
            local=local_tag(nid),
            remote=RemoteTag(uuid=f"u{nid}", version=versions[nid], etag="", size_bytes=0),
        )
        for nid, node in nodes.items()
    }


def moved_directory(rows: dict[Nid, BaseRow]) -> RemoteStat:
    tag = rows[Nid(1)].remote
    assert tag is not None
    moved = RemoteTag(uuid=tag.uuid, version=30, etag="", size_bytes=0)
    return RemoteStat(path=RelPath(b"e"), kind=Kind.DIRECTORY, meta=Meta(mode=0o755), tag=moved)


def test_a_version_that_should_have_been_told_and_was_not_is_gone() -> None:
    """Its name may not tell: it was below a directory that was moved there, and could not be moved here yet."""
    rows = directory_and_file(row_of_file=20, row_of_directory=5)
    affected = Affected(MemoryRows(rows), SERIALS)
    affected.changed([moved_directory(rows)], [RelPath(b"d")], since=SINCE)
    assert [stat.path for stat in affected.finish().remote] == [b"e"]
    # Without that knowledge it would be taken for where the base has it.
    affected = Affected(MemoryRows(rows), SERIALS)
    affected.changed([moved_directory(rows)], [RelPath(b"d")])
    assert sorted(stat.path for stat in affected.finish().remote) == [b"d/f", b"e"]


@pytest.mark.parametrize("version", [5, 20], ids=["it was below when it was deleted", "it is not told of"])
def test_below_a_directory_that_we_made_anew_an_unknown_deleted_name_may_be_anything(version: int) -> None:
    rows = directory_and_file(row_of_file=version, row_of_directory=15)
    tag = rows[Nid(1)].remote
    assert tag is not None
    echo = RemoteStat(path=RelPath(b"d"), kind=Kind.DIRECTORY, meta=Meta(mode=0o755), tag=tag)
    with pytest.raises(UnboundedError):
        Affected(MemoryRows(rows), SERIALS).changed([echo], [RelPath(b"old/f")], since=SINCE)
    Affected(MemoryRows(rows), SERIALS).changed([echo], [], since=SINCE)
    moved_again = replace(echo, path=RelPath(b"elsewhere"), tag=replace(tag, version=20))
    with pytest.raises(UnboundedError):
        Affected(MemoryRows(rows), SERIALS).changed([moved_again], [RelPath(b"old/f")], since=SINCE)
    Affected(MemoryRows(rows), SERIALS).changed([moved_again], [], since=SINCE)


@pytest.mark.parametrize(
    ("known", "found", "same"),
    [
        (((b"a", b"1"),), ((b"a", b"1"),), True),
        (((b"a", b"1"),), ((b"a", b"2"),), False),
        (((b"a", b"1"),), (), False),
        (None, ((b"a", b"1"),), False),
        (None, (), True),
        (((b"a", b"1"),), ((b"a", None),), True),  # too large to travel: nothing is concluded
        (((b"a", b"1"),), None, True),  # not looked at
    ],
)
def test_a_directory_is_as_the_base_says_only_with_its_attributes(
    known: Xattrs | None, found: Xattrs | None, *, same: bool
) -> None:
    """No evidence tells of them: who takes it for unchanged moves what is above as a whole, and never sends them."""
    row = base_of({1: folder("d")}).rows[Nid(1)]
    node = replace(row.node, meta=Meta(mode=0o755, xattrs=known))
    stat = replace(folder_stat("d", ino=1), meta=Meta(mode=0o755, xattrs=found))
    assert is_unchanged(replace(row, node=node), stat) is same
