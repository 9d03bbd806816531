"""A survey names the directories in which something is not as the base says, and no others."""

from __future__ import annotations

import os
import subprocess
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from syncer.core.ignore import IgnoreRules
from syncer.core.model import ROOT, BaseRow, Kind, Nid, Node, RelPath, RemoteTag
from syncer.core.partial.affected import UnboundedError
from syncer.core.parts import Parts
from syncer.core.paths import PARK_FOLDER, split
from syncer.core.planner.identify import evidence
from syncer.local.folder.private import PrivateFolder
from syncer.local.folder.scan import scan
from syncer.local.survey import digests as survey
from syncer.local.survey.digests import Digests, Surveyor
from syncer.local.survey.worker import Found, Worker
from tests.kit.rows import MemoryRows
from tests.unit.syncer.core.trees import content

NEVER = 1 << 62
"""A clock that is later than any change: directories are trusted at once."""


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work can be shared, whatever machine this is."""
    monkeypatch.setattr(survey, "has_second_core", lambda: True)


@contextmanager
def surveyor_of(path: Path, *, with_xattrs: bool = False) -> Iterator[Surveyor]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        PrivateFolder(descriptor).close()
        yield Surveyor(descriptor, parts=Parts(xattrs=with_xattrs))
    finally:
        os.close(descriptor)


def rows_of(path: Path) -> dict[Nid, BaseRow]:
    """A base that says what is there now."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        stats = sorted(scan(descriptor).stats, key=lambda stat: stat.path)
    finally:
        os.close(descriptor)
    numbers, rows = {RelPath(b""): ROOT}, {}
    for number, stat in enumerate(stats, 1):
        above, name = split(stat.path)
        nid = numbers[stat.path] = Nid(number)
        node = Node(
            parent=numbers[above],
            name=name,
            kind=stat.kind,
            content=content(1) if stat.kind is Kind.FILE else None,
            target=stat.target,
            meta=stat.meta,
        )
        local = evidence(stat.kind, stat.tag)
        tag = RemoteTag(uuid=f"u{number}", version=number, etag="", size_bytes=0)
        rows[nid] = BaseRow(nid=nid, node=node, local=local, remote=tag)  # type: ignore[arg-type] # a local tag
    return rows


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in ("a", "a/deep", "b"):
        (tmp_path / folder).mkdir()
    for file in ("top", "a/one", "a/deep/two", "b/three"):
        (tmp_path / file).write_text(file)
    (tmp_path / "b" / "link").symlink_to("three")
    return tmp_path


def settled(tree: Path, surveyor: Surveyor) -> Digests:
    found = surveyor.settled(MemoryRows(rows_of(tree)), None, NEVER)
    assert None not in found.values()
    return Digests().updated(found)


def test_without_digests_everything_is_dirty_and_with_them_nothing(tree: Path) -> None:
    with surveyor_of(tree) as surveyor:
        first = surveyor.survey(Digests())
        assert sorted(first.dirty) == [b"", b"a", b"a/deep", b"b"]
        assert first.entries == 8
        second = surveyor.survey(settled(tree, surveyor))
        assert (second.dirty, second.entries, second.parked) == ([], 8, False)


@pytest.mark.parametrize(
    ("change", "dirty"),
    [
        (lambda tree: (tree / "a" / "deep" / "two").write_text("other"), [b"a/deep"]),
        (lambda tree: (tree / "b" / "new").write_text(""), [b"b"]),
        (lambda tree: (tree / "b" / "link").unlink(), [b"b"]),
        (lambda tree: (tree / "a" / "one").chmod(0o600), [b"a"]),
        (lambda tree: (tree / "b").chmod(0o700), [b"", b"b"]),
        (lambda tree: (tree / "a" / "deep").rename(tree / "b" / "deep"), [b"a", b"b", b"b/deep"]),
        (lambda tree: (tree / "c").mkdir(), [b"", b"c"]),
        (lambda tree: os.utime(tree / "top", ns=(1, 1)), [b""]),
    ],
)
def test_a_change_makes_its_directory_dirty(tree: Path, change: object, dirty: list[bytes]) -> None:
    with surveyor_of(tree) as surveyor:
        known = settled(tree, surveyor)
        change(tree)  # type: ignore[operator] # one of the functions above
        assert sorted(surveyor.survey(known).dirty) == dirty


@pytest.mark.parametrize(
    ("name", "dirty"), [("a/deep", [b"a", b"a/deep"]), ("a/deep/two", [b"a/deep"]), ("top", [b""])]
)
def test_an_attribute_makes_the_directory_dirty_that_tells_of_it(tree: Path, name: str, dirty: list[bytes]) -> None:
    with surveyor_of(tree, with_xattrs=True) as surveyor:
        known = Digests().updated(surveyor.settled(MemoryRows(rows_of(tree)), None, NEVER))
        assert surveyor.survey(known).dirty == []
        os.setxattr(tree / name, "user.a", b"1")
        assert set(dirty) <= set(surveyor.survey(known).dirty)  # the one above a dirty one is looked at, too


@pytest.mark.parametrize("name", ["a/deep", "a/deep/two"])
def test_a_directory_with_attributes_that_the_base_does_not_know_stays_dirty(tree: Path, name: str) -> None:
    os.setxattr(tree / name, "user.a", b"1")
    with surveyor_of(tree, with_xattrs=True) as surveyor:
        known = Digests().updated(surveyor.settled(MemoryRows(rows_of(tree)), None, NEVER))
        assert b"a/deep" in surveyor.survey(known).dirty


def test_an_entry_whose_evidence_proves_nothing_keeps_its_directory_dirty(tree: Path) -> None:
    rows = rows_of(tree)
    nid, row = next((nid, row) for nid, row in rows.items() if row.node.name == b"one")
    assert row.local is not None
    rows[nid] = replace(row, local=replace(row.local, ctime_ns=0))
    with surveyor_of(tree) as surveyor:
        found = surveyor.settled(MemoryRows(rows), None, NEVER)
        known = Digests().updated(found)
        assert surveyor.survey(known).dirty == [b"a"]


def test_only_the_directories_asked_for_are_settled(tree: Path) -> None:
    with surveyor_of(tree) as surveyor:
        found = surveyor.settled(MemoryRows(rows_of(tree)), [RelPath(b"a/deep"), RelPath(b"gone")], NEVER)
        assert list(found) == [(tree / "a" / "deep").stat().st_ino]


def test_a_directory_of_any_depth_is_settled(tmp_path: Path) -> None:
    deep = Path(tmp_path, *["d"] * 1100)
    for folder in (*reversed(deep.parents), deep):
        folder.mkdir(exist_ok=True)
    try:
        with surveyor_of(tmp_path) as surveyor:
            asked = RelPath(os.fsencode(deep.relative_to(tmp_path)))
            found = surveyor.settled(MemoryRows(rows_of(tmp_path)), [asked], NEVER)
            assert list(found) == [deep.stat().st_ino]
            assert None not in found.values()
    finally:
        subprocess.run(["rm", "-r", tmp_path / "d"], check=True)  # pytest can't


def test_what_lies_in_the_park_is_told(tree: Path) -> None:
    with surveyor_of(tree) as surveyor:
        (tree / os.fsdecode(PARK_FOLDER) / "5-x").write_text("")
        assert surveyor.survey(Digests()).parked


def test_a_directory_that_cant_be_listed_has_no_affected_part(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with surveyor_of(tree) as surveyor:
        known = settled(tree, surveyor)
        real = os.scandir

        def refuse(descriptor: int) -> object:
            if os.fstat(descriptor).st_ino == (tree / "b").stat().st_ino:
                raise PermissionError(13, "Permission denied")
            return real(descriptor)

        monkeypatch.setattr(os, "scandir", refuse)
        assert surveyor.survey(known).dirty == [b"b"]
        with pytest.raises(UnboundedError):
            surveyor.listing(RelPath(b"b"))


@given(
    st.dictionaries(st.integers(0, 2**64 - 1), st.binary(min_size=16, max_size=16)),
    st.dictionaries(st.integers(0, 2**64 - 1), st.none() | st.binary(min_size=16, max_size=16)),
)
def test_digests_are_a_map(first: dict[int, bytes], changes: dict[int, bytes | None]) -> None:
    digests = Digests(Digests().updated(first).updated(changes).raw)
    model = {key: value for key, value in {**first, **changes}.items() if value is not None}
    assert len(digests) == len(model)
    assert {key: digests.get(key) for key in first.keys() | changes.keys()} == {
        key: model.get(key) for key in first.keys() | changes.keys()
    }


def test_a_directory_that_is_as_it_was_before_has_changed_all_the_same(tree: Path) -> None:
    """What was made and synced meanwhile is in the base by now: that it is gone again must be seen."""
    with surveyor_of(tree) as surveyor:
        known = settled(tree, surveyor)
        (tree / "a" / "new").mkdir()
        (tree / "a" / "new").rmdir()
        assert surveyor.survey(known).dirty == [b"a"]


def test_a_directory_that_changed_in_this_tick_of_the_clock_is_not_trusted(tree: Path) -> None:
    with surveyor_of(tree) as surveyor:
        changed_ns = (tree / "b").stat().st_ctime_ns
        rows = MemoryRows(rows_of(tree))
        assert surveyor.settled(rows, [RelPath(b"b")], changed_ns) == {(tree / "b").stat().st_ino: None}
        assert None not in surveyor.settled(rows, [RelPath(b"b")], changed_ns + 1).values()


def wide(path: Path, folders: int) -> Path:
    """Enough folders for both processes, not all at one level."""
    for number in range(folders):
        folder = path / f"w{number % 7}" / f"d{number}" / "in"
        folder.mkdir(parents=True)
        for file in range(3):
            (folder / f"f{file}").write_text("x")
    return path


def test_two_processes_find_what_one_finds(tree: Path) -> None:
    wide(tree, 150)
    with surveyor_of(tree) as surveyor:
        known = settled(tree, surveyor)
        for number in (3, 77, 149):
            (tree / f"w{number % 7}" / f"d{number}" / "in" / "f1").write_text("other")
        alone, both = surveyor.survey(known, share_from=NEVER), surveyor.survey(known, share_from=0)
        assert sorted(both.dirty) == sorted(alone.dirty)
        assert len(alone.dirty) == 3
        assert both.entries == alone.entries
        without = surveyor.survey(Digests(), share_from=0)
        assert len(without.dirty) == len(known)


def test_the_worker_ignores_what_is_ignored(tree: Path) -> None:
    wide(tree, 100)
    with surveyor_of(tree) as surveyor:
        surveyor.rules = IgnoreRules([b"f1", b"w3/"])
        alone, both = surveyor.survey(Digests(), share_from=NEVER), surveyor.survey(Digests(), share_from=0)
        assert sorted(both.dirty) == sorted(alone.dirty)
        assert both.entries == alone.entries
        assert not any(path.startswith(b"w3") for path in both.dirty)


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_worker_that_dies_is_done_without(tree: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    wide(tree, 150)
    collect = Worker.collect
    calls = 0

    def killed(self: Worker, pending: deque[RelPath]) -> list[tuple[RelPath, Found]]:
        nonlocal calls
        calls += 1
        if calls == after + 1:
            self._process.kill()
            self._process.wait()
        return collect(self, pending)

    monkeypatch.setattr(Worker, "collect", killed)
    with surveyor_of(tree) as surveyor:
        both, alone = surveyor.survey(Digests(), share_from=0), surveyor.survey(Digests(), share_from=NEVER)
        assert sorted(both.dirty) == sorted(alone.dirty)
        assert both.entries == alone.entries
        assert calls > after


def test_without_a_worker_it_is_done_alone(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with surveyor_of(tree) as surveyor:
        assert len(surveyor.survey(Digests(), share_from=0).dirty) == 4


def test_small_roots_start_no_second_process(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    with surveyor_of(tree) as surveyor:
        assert surveyor.survey(settled(tree, surveyor)).dirty == []


@pytest.mark.parametrize(
    "renames",
    [
        [],
        [("new/a", "new/c")],
        [("new/a/x", "new/a/q")],
        [("new/z", "z")],
        [("new/b/y", "new/y")],
        [("new/a", "t"), ("new/b", "new/a"), ("t", "new/b")],
    ],
)
def test_a_moved_directory_is_as_known_only_if_all_below_it_is(tmp_path: Path, renames: list[tuple[str, str]]) -> None:
    root = tmp_path / "root"
    for name in ("dir/a/x", "dir/b/y", "dir/z"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    rows = rows_of(root)
    known = MemoryRows(rows)
    nid = next(nid for nid, row in rows.items() if row.node.name == b"dir")
    with surveyor_of(root) as surveyor:
        digests = Digests().updated(surveyor.settled(known, None, NEVER))
        assert not surveyor.is_free(RelPath(b"dir"))
        for old, new in [("dir", "new"), *renames]:
            (root / old).rename(root / new)
        assert surveyor.is_free(RelPath(b"dir"))
        assert surveyor.is_free(RelPath(b"dir/a"))
        for some in (digests, Digests()):
            assert surveyor.matches(known, RelPath(b"new"), nid, some) == (not renames)
        assert not surveyor.matches(known, RelPath(b"none"), nid, digests)


def test_a_name_in_a_directory_that_can_not_be_read_is_not_free(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with surveyor_of(tmp_path) as surveyor:
        assert not surveyor.is_free(RelPath(b"file"))
        assert surveyor.is_free(RelPath(b"file/below"))
        assert surveyor.is_free(RelPath(b"none/below"))


@pytest.mark.parametrize("renames", [[], [("new/deep/two", "new/deep/2")]])
def test_what_a_survey_found_in_a_moved_directory_needs_no_second_look(
    tree: Path, renames: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = MemoryRows(rows_of(tree))
    nid = next(nid for nid, row in known.rows.items() if row.node.name == b"a")
    with surveyor_of(tree) as surveyor:
        digests = settled(tree, surveyor)
        for old, new in [("a", "new"), *renames]:
            (tree / old).rename(tree / new)
        surveyor.survey(digests)
        looked: list[RelPath] = []
        entries = surveyor._entries
        monkeypatch.setattr(surveyor, "_entries", lambda path: looked.append(path) or entries(path))
        assert surveyor.matches(known, RelPath(b"new"), nid, digests) == (not renames)
        assert looked == [b"new", *([b"new/deep"] if renames else [])]
