"""Which names are ignored, and why: what a scan leaves out, at most so many of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from syncer.core.ignore import IgnoreRules
from syncer.local.folder.scan import scan
from syncer.local.verbs import ignored
from syncer.local.verbs.ignored import Ignored, Walk


def walked(path: Path, *patterns: bytes, most: int = 200, is_over: Callable[[], bool] = lambda: False) -> Ignored:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return Walk(descriptor, IgnoreRules(patterns), most, is_over).run()
    finally:
        os.close(descriptor)


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_each_name_is_told_with_the_pattern_and_where_it_stands(tmp_path: Path) -> None:
    touch(tmp_path, "a.log", "d/b.tmp", "d/keep.log", "kept", "build/deep/x", ".blocksync/a.log")
    (tmp_path / "d/.blocksyncignore").write_bytes(b"# mine\n\n*.tmp\n!keep.log\n")
    found = walked(tmp_path, b"*.log", b"build/")
    told = [(each.path, each.is_folder, each.verdict.source, each.verdict.line) for each in found.names]
    assert told == [(b"a.log", False, None, 1), (b"build", True, None, 2), (b"d/b.tmp", False, b"d", 3)]
    assert [(line.folder, line.number, line.pattern) for line in found.lines] == [
        (b"d", 3, b"*.tmp"),
        (b"d", 4, b"!keep.log"),
    ]
    assert (found.more, found.has_more_lines, found.unread) == ("", False, 0)


def test_a_name_is_ignored_exactly_if_a_scan_leaves_it_out(tmp_path: Path) -> None:
    touch(tmp_path, "a/x.o", "a/b/x.o", "a/b/y", "x.o", "out/z", "a/out/z", "\udce9.o")
    (tmp_path / "a/b/.blocksyncignore").write_bytes(b"!*.o\ny\n")
    (tmp_path / "link").symlink_to("out")
    patterns = [b"*.o", b"out/", b"link/"]
    found = walked(tmp_path, *patterns)
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        synced = {bytes(stat.path) for stat in scan(descriptor, IgnoreRules(patterns)).stats}
    finally:
        os.close(descriptor)
    top = os.fsencode(tmp_path)
    there = {
        os.path.relpath(os.path.join(above, name), top)
        for above, folders, files in os.walk(top)
        for name in (*folders, *files)
    }
    names = {bytes(each.path) for each in found.names}
    below = {path for path in there if any(path.startswith(name + b"/") for name in names)}
    assert names == there - synced - below


@pytest.mark.parametrize(("most", "more"), [(3, "there are more than 3"), (4, "")])
def test_it_ends_when_there_is_one_name_more(tmp_path: Path, most: int, more: str) -> None:
    touch(tmp_path, *(f"{number}.log" for number in range(4)))
    found = walked(tmp_path, b"*.log", most=most)
    assert (len(found.names), found.more) == (most, more)


def test_patterns_of_files_are_listed_up_to_the_same_number_and_all_count(tmp_path: Path) -> None:
    """Breaks when a long file of rules hides which names are ignored."""
    (tmp_path / ".blocksyncignore").write_bytes(b"a\nb\nc\n")
    touch(tmp_path, "c")
    found = walked(tmp_path, most=2)
    assert ([line.number for line in found.lines], found.has_more_lines) == ([1, 2], True)
    assert [each.verdict.line for each in found.names] == [3]
    assert found.more == ""


def test_it_ends_when_it_has_taken_long_enough(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{number}.log" for number in range(9)))
    asked = iter([False] * 4)
    found = walked(tmp_path, b"*.log", is_over=lambda: next(asked, True))
    assert (len(found.names), found.more) == (4, "it took too long")


def test_too_many_folders_are_told_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ignored, "MOST_FOLDERS", 2)
    for number in range(3):
        (tmp_path / str(number)).mkdir()
    assert walked(tmp_path).more == "there are too many folders"


def test_a_folder_whose_rules_cannot_be_read_is_counted_and_not_guessed_at(tmp_path: Path) -> None:
    touch(tmp_path, "d/a.log", "b.log")
    (tmp_path / "d/.blocksyncignore").write_bytes(b"x" * (1 << 21))
    found = walked(tmp_path, b"*.log")
    assert ([each.path for each in found.names], found.unread) == ([b"b.log"], 1)
