"""A volume's part, from journal and base: its plan is the whole's, and what does not fit asks for the whole."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from blockfs.control.protocol import NodeRow
from syncer.core.base import BaseIndex
from syncer.core.ignore import IgnoreRules
from syncer.core.model import BaseRow, FileStat, Kind, LocalTag, Nid, RelPath
from syncer.core.partial.affected import AffectedPart, UnboundedError
from syncer.core.paths import split
from syncer.core.planner.identify import evidence
from syncer.engine.partial.partial_look import PartialLook, _affected
from syncer.errors import LocalChangedError
from syncer.local.volume.part import Journal, VolumePart, knows
from syncer.local.volume.tree import stat_of, volume_tag
from syncer.ports.remote import Changes
from syncer.ports.state import Memory
from syncer.remote.container.info import ContainerInfo
from syncer.remote.serials import SERIALS, Cursor
from tests import effort
from tests.kit.rows import MemoryRows
from tests.simulation.scenario import Limits, Scenario
from tests.unit.syncer.core.trees import content, essence, plan_of
from tests.unit.syncer.local.inodes import ROOTS, base_row, row

SEEDS = effort.count("parts of a volume")
RULES = IgnoreRules()


def journal(
    rows: Sequence[NodeRow], gone: Sequence[int] = (), hidden: Sequence[int] = (), rules: IgnoreRules = RULES
) -> Journal:
    return Journal(
        rows={each.ino: each for each in rows},
        gone=frozenset(gone),
        roots=ROOTS,
        hidden=frozenset(hidden),
        rules=rules.fingerprint,
    )


# --- the plan of a part


class Volume:
    """A scenario's local side as a volume would hold it: numbers for inodes and for versions of content."""

    def __init__(self, scenario: Scenario) -> None:
        self._inos: dict[object, int] = {}
        self._versions: dict[object, int] = {}
        self.rows = {nid: self._row(each) for nid, each in scenario.rows.items()}
        stats = scenario.local.observe_local(set(), set())
        self._contents = {stat.path: stat.content for stat in stats}
        inos = {RelPath(b""): 1, **{stat.path: self._ino(stat.tag) for stat in stats}}
        self.nodes: dict[int, NodeRow] = {}
        for stat in stats:
            above, name = split(stat.path)
            ino = inos[stat.path]
            places = [*(self.nodes[ino].places if ino in self.nodes else ()), (inos[above], name)]
            self.nodes[ino] = self._node(stat, ino, places)

    def _ino(self, tag: LocalTag) -> int:
        return self._inos.setdefault(tag.inode, 100 + len(self._inos))

    def _version(self, tag: LocalTag) -> int:
        return self._versions.setdefault((tag.inode, tag.size_bytes, tag.mtime_ns, tag.ctime_ns), len(self._versions))

    def _node(self, stat: FileStat, ino: int, places: list[tuple[int, bytes]]) -> NodeRow:
        assert stat.meta.mode is not None
        assert stat.meta.mtime_ns is not None
        return NodeRow(
            ino=ino, places=places, kind=stat.kind.value, mode=stat.meta.mode, uid=0, gid=0,
            size_bytes=stat.tag.size_bytes, mtime_ns=stat.meta.mtime_ns, ctime_ns=0, btime_ns=0, version=0,
            content_version=self._version(stat.tag), nlink=len(places), target=stat.target,
        )  # fmt: skip

    def _row(self, each: BaseRow) -> BaseRow:
        """A base row as a cycle on a volume would have left it."""
        assert each.local is not None
        mtime_ns = each.node.meta.mtime_ns or 0
        tag = LocalTag(device=0, ino=self._ino(each.local), btime_ns=0, size_bytes=each.local.size_bytes,
                       mtime_ns=mtime_ns, ctime_ns=0, version=self._version(each.local))  # fmt: skip
        known = evidence(each.node.kind, tag)
        assert isinstance(known, LocalTag)
        return replace(each, local=known)

    def stats(self) -> list[FileStat]:
        """All of it."""
        found = []
        paths = {1: RelPath(b"")}

        def path(ino: int) -> RelPath:
            if ino not in paths:
                parent, name = self.nodes[ino].places[0]
                paths[ino] = RelPath(path(parent) + b"/" + name if parent != 1 else name)
            return paths[ino]

        for node in self.nodes.values():
            for parent, name in node.places:
                at = RelPath(path(parent) + b"/" + name if parent != 1 else name)
                stat = stat_of(node, at)
                assert stat is not None
                found.append(replace(stat, content=self._contents[at]))
        return found

    def journal(self, rng: random.Random) -> Journal:
        """What differs from the base, and some of the rest."""
        base = BaseIndex(self.rows.values())
        known: dict[int, set[tuple[object, ...]]] = {}
        for nid, each in base.rows.items():
            assert each.local is not None
            known.setdefault(each.local.ino, set()).add((base.paths[nid], each.local, each.node.meta.mode))
        seen: dict[int, set[tuple[object, ...]]] = {}
        for stat in self.stats():
            mode = stat.meta.mode
            seen.setdefault(stat.tag.ino, set()).add((stat.path, evidence(stat.kind, stat.tag), mode))
        parents = {ino: {each[0] for each in self.nodes[ino].places} for ino in seen}
        changed = {ino for ino in seen if seen[ino] != known.get(ino) and not self._moved_along(ino, seen, known)}
        changed |= {parent for ino in changed for parent in parents[ino] if rng.random() < 0.5 and parent != 1}
        changed |= {ino for ino in seen if rng.random() < 0.1}
        return journal([self.nodes[ino] for ino in sorted(changed)], sorted(known.keys() - seen.keys()))

    def _moved_along(
        self, ino: int, seen: Mapping[int, set[tuple[object, ...]]], known: Mapping[int, set[tuple[object, ...]]]
    ) -> bool:
        """Nothing but a directory above it changed: the journal does not tell."""
        rows = [each for each in self.rows.values() if each.local is not None and each.local.ino == ino]
        inos = {nid: each.local.ino for nid, each in self.rows.items() if each.local is not None}
        places = {(inos.get(each.node.parent, 1), each.node.name) for each in rows}
        same = {each[1:] for each in seen[ino]} == {each[1:] for each in known.get(ino, ())}
        return same and places == set(self.nodes[ino].places)


class State:
    """A `State`, as far as a partial look asks."""

    def __init__(self, rows: Mapping[Nid, BaseRow]) -> None:
        self._rows = dict(rows)

    @contextmanager
    def rows(self) -> Iterator[MemoryRows]:
        yield MemoryRows(self._rows)

    def rules(self) -> bytes | None:
        return None

    def memory(self, key: Memory) -> bytes | None:
        return None


class Root:
    """A `LocalRoot`, as far as a partial look asks."""

    def __init__(self, found: Journal) -> None:
        self._found = found

    def part(self, rows: MemoryRows, rules: IgnoreRules) -> VolumePart:
        return VolumePart(rows, self._found, rules)


def affected_part(volume: Volume, found: Journal, scenario: Scenario) -> AffectedPart:
    tags = {path: volume.rows[nid].remote for nid, path in BaseIndex(volume.rows.values()).paths.items()}
    objects = scenario.remote.observe_remote()
    changes = Changes(
        info=ContainerInfo(identity=None, block_size=1, block_hash="sha256", atomic=True).told,
        complete=False,
        position=Cursor(identity="", version=0, modified_us=0).position,
        objects=[stat for stat in objects if tags.get(stat.path) != stat.tag],
        deleted=[bytes(path) for path in tags.keys() - {stat.path for stat in objects}],
        refused=[],
    )
    state = State(volume.rows)
    found_part = _affected(PartialLook(local=Root(found), state=state), changes, changes.position, SERIALS)  # type: ignore[arg-type] # parts of them
    return found_part.affected


def test_the_plan_of_a_volumes_part_is_the_plan_of_the_whole() -> None:
    """L5, of a volume, by its rule: tests/contract/test_looks.py has it on real mounts."""
    smaller = 0
    for seed in range(SEEDS):
        scenario = Scenario(seed, Limits(base_steps=14, side_steps=3, lost_base=False))
        scenario.prepare()
        volume = Volume(scenario)
        stats = volume.stats()
        contents = {stat.path: stat.content for stat in stats}
        part = affected_part(volume, volume.journal(random.Random(seed)), scenario)
        local = [replace(stat, content=stat.content or contents.get(stat.path)) for stat in part.local]
        base = BaseIndex(volume.rows.values())
        whole = plan_of(base, stats, scenario.remote.observe_remote(), 0)
        again = plan_of(part.base, local, part.remote, part.beside)
        assert essence(again) == essence(whole), (seed, scenario.story())
        smaller += len(part.base) < len(base)
    assert smaller > SEEDS // 10


# --- what does not fit

BASE = {
    each.nid: each
    for each in (
        base_row(1, 11, b"d", kind=Kind.DIRECTORY),
        base_row(2, 12, b"f", 1),
        base_row(3, 13, b"g"),
        base_row(4, 14, b"e", 1, kind=Kind.DIRECTORY),
    )
}


def part_of(found: Journal, rules: IgnoreRules = RULES) -> VolumePart:
    return VolumePart(MemoryRows(BASE), found, rules)


def test_every_place_of_a_changed_inode_is_named_the_old_ones_too() -> None:
    moved = row(12, (14, b"there"), (1, b"here"))
    part = part_of(journal([moved], [13]))
    assert sorted(part.where()[1]) == [b"d/e/there", b"d/f", b"g", b"here"]
    assert part.entries(RelPath(b"d"), [b"f", b"e", b"none"]) == part.listing(RelPath(b"d"))
    assert [stat.path for stat in part.listing(RelPath(b""))] == [b"d", b"here"]
    assert part.is_directory(RelPath(b"d/e"))
    assert not part.is_directory(RelPath(b"here"))
    with pytest.raises(LocalChangedError):
        part.entries(RelPath(b"g"), [b"x"])
    (stat,) = part.entries(RelPath(b""), [b"here"]) or []
    assert part.changed(stat) == moved
    assert stat.tag == volume_tag(moved)


@pytest.mark.parametrize(
    "found",
    [
        journal([row(20, (99, b"in an unknown directory"))]),
        journal([row(14, (20, b"e"), kind="directory"), row(20, (14, b"x"), kind="directory")]),
        journal([row(20, (1, b".blocksyncignore"))]),
        journal([], rules=IgnoreRules([b"other"])),
        journal([row(30, (1, b"came out"), kind="directory")], hidden=[30]),
    ],
    ids=["unknown parent", "cycle", "rules", "other rules", "not ignored any more"],
)
def test_what_does_not_fit_asks_for_everything(found: Journal) -> None:
    with pytest.raises(UnboundedError):
        part_of(found).where()


def test_a_path_of_any_depth_is_told() -> None:
    inos = range(2000, 900, -1)  # the deepest is met first
    folders = [row(ino, (ino + 1 if ino < 2000 else 1, b"d"), kind="directory") for ino in inos]
    part = part_of(journal([*folders, row(900, (901, b"f"))]))
    assert b"/".join([b"d"] * 1100) + b"/f" in part.where()[1]


def test_what_is_parked_asks_for_everything() -> None:
    with pytest.raises(UnboundedError):
        part_of(journal([row(12, (91, b"2-f"))])).where()
    part_of(journal([row(20, (90, b"trash"))])).where()


def test_ignored_directories_are_remembered_with_what_is_in_them() -> None:
    rules = IgnoreRules([b"build/"])
    rows = [row(20, (1, b"build"), kind="directory"), row(21, (20, b"sub"), kind="directory"), row(22, (21, b"o"))]
    rows.append(row(31, (30, b"x"), kind="directory"))
    part = part_of(journal(rows, [32], hidden=[30, 32], rules=rules), rules)
    assert list(part.where()[1]) == []
    assert part.hidden == {20, 21, 30, 31}
    assert part.entries(RelPath(b""), [b"build"]) == []
    assert part.holding == {b""}
    known = journal([row(14, (20, b"e"), kind="directory"), rows[0]], rules=rules)
    with pytest.raises(UnboundedError):  # all that is below it is to be ignored now
        part_of(known, rules).where()


def test_folders_may_be_nested_deeper_than_calls_go() -> None:
    levels = 3000
    rows = [row(101 + level, (100 + level if level else 1, b"d"), kind="directory") for level in range(levels)]
    part = part_of(journal([row(50, (100 + levels, b"f")), *rows]))
    assert b"d/" * levels + b"f" in part.where()[1]


def test_special_files_are_told_and_hold_their_directory() -> None:
    part = part_of(journal([row(20, (11, b"pipe"), kind="fifo")]))
    assert list(part.where()[1]) == [b"d/pipe"]
    assert part.entries(RelPath(b"d"), [b"pipe"]) == []
    assert [problem.path for problem in part.problems] == [b"d/pipe"]
    assert part.holding == {b"d"}


def test_a_content_is_known_by_its_version() -> None:
    assert not knows(MemoryRows(BASE), row(12, (11, b"f")))
    known = replace(BASE[Nid(2)], node=replace(BASE[Nid(2)].node, content=content(1)))
    assert knows(MemoryRows({known.nid: known}), row(12, (11, b"f")))
    newer = replace(known, local=replace(known.local, version=1))  # type: ignore[type-var] # it has one
    assert not knows(MemoryRows({known.nid: newer}), row(12, (11, b"f")))
