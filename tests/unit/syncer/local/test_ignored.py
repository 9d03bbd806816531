"""What a scan of an ordinary directory does with ignore rules and special files."""

from __future__ import annotations

import os
from pathlib import Path

import trio

from syncer.core.ignore import IgnoreRules
from syncer.local.folder.scan import Scan, scan
from tests.unit.syncer.local.folders import NO_BASE, new_place


def scanned(path: Path, rules: IgnoreRules) -> Scan:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return scan(descriptor, rules)
    finally:
        os.close(descriptor)


def test_an_ignored_directory_is_not_entered(tmp_path: Path) -> None:
    """A build folder of a million files must cost nothing; one that can't be read must not matter."""
    (tmp_path / "build/below").mkdir(parents=True)
    (tmp_path / "build/below/.blocksyncignore").write_bytes(b"x")
    (tmp_path / "f").touch()
    rules = IgnoreRules([b"build/"])
    before = rules.fingerprint
    found = scanned(tmp_path, rules)
    assert [stat.path for stat in found.stats] == [b"f"]
    assert found.holding == {b""}
    assert rules.fingerprint == before, "rules below an ignored folder were read"


def test_rules_are_read_before_their_neighbours_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/.a").touch()
    (tmp_path / "d/.blocksyncignore").write_bytes(b".*\n!.blocksyncignore\n")
    found = scanned(tmp_path, IgnoreRules())
    assert {stat.path for stat in found.stats} == {b"d", b"d/.blocksyncignore"}
    assert found.holding == {b"d"}


def test_unreadable_rules_make_their_folder_unknown(tmp_path: Path) -> None:
    """Else what they hide is sent."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d/secret").touch()
    (tmp_path / "d/.blocksyncignore").write_bytes(b"x" * (1 << 21))
    found = scanned(tmp_path, IgnoreRules())
    assert [stat.path for stat in found.stats] == [b"d"]
    assert b"d" in found.unknown


def test_a_symlink_or_directory_of_that_name_holds_no_rules(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"*")
    (tmp_path / ".blocksyncignore").symlink_to("elsewhere")
    (tmp_path / "d/.blocksyncignore").mkdir(parents=True)
    found = scanned(tmp_path, IgnoreRules())
    assert {stat.path for stat in found.stats} == {b"elsewhere", b".blocksyncignore", b"d", b"d/.blocksyncignore"}
    assert set(found.unknown) <= {b".blocksync/park"}


def test_a_special_file_holds_its_directory(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "d/pipe")
    assert scanned(tmp_path, IgnoreRules()).holding == {b"d"}


def test_patterns_are_read_anew_for_each_observation(tmp_path: Path) -> None:
    place = new_place(tmp_path)
    (place.path / "a.log").touch()
    patterns: list[bytes] = []

    async def observe_twice() -> tuple[int, int]:
        root = place.open(patterns=lambda: patterns)
        first = len((await root.observe(NO_BASE)).stats)
        patterns.append(b"*.log")
        second = len((await root.observe(NO_BASE)).stats)
        await root.close()
        return first, second

    assert trio.run(observe_twice) == (1, 0)
