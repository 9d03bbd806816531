"""Ignore rules on folders and mounted volumes: untracked on both sides, and never a reason to delete."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.syncing import Sync, content


def names(root: Path) -> set[str]:
    return set(content(root))


def settle(sync: Sync, *roots: Path) -> None:
    for root in (*roots, *roots):
        sync.reconcile(root)
    sync.at_rest(*roots)


def test_patterns_of_one_root_concern_this_root_only(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, second = roots
    sync("ignore", first, "add", "*.log", "/build/")
    (first / "build").mkdir()
    (first / "build/x").write_bytes(b"x")
    (first / "a.log").write_bytes(b"a")
    (first / "kept").write_bytes(b"k")
    (second / "b.log").write_bytes(b"b")
    settle(sync, first, second)
    assert names(first) == {"build", "build/x", "a.log", "kept"}
    assert names(second) == {"b.log", "kept"}
    sync("ignore", first, "ls")
    assert sync.out.splitlines() == ["*.log", "/build/"]


def test_a_file_of_rules_travels_and_counts_everywhere(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, second = roots
    (first / "d").mkdir()
    (first / "d/.blocksyncignore").write_bytes(b"*.tmp\n!keep.tmp\n")
    settle(sync, first, second)
    (first / "d/a.tmp").write_bytes(b"first")
    (second / "d/a.tmp").write_bytes(b"second")
    (second / "d/keep.tmp").write_bytes(b"kept")
    (second / "a.tmp").write_bytes(b"above")
    settle(sync, first, second)
    assert content(first)["d/a.tmp"] == b"first"
    assert content(second)["d/a.tmp"] == b"second"
    assert names(first) >= {"d/keep.tmp", "a.tmp"}


def test_what_becomes_ignored_stays_on_both_sides_and_what_comes_back_is_united(
    sync: Sync, roots: tuple[Path, Path]
) -> None:
    """An engine that takes "not observed" for "deleted" empties the other side here."""
    first, second = roots
    for name in ("same.log", "edited.log", "gone.log"):
        (first / name).write_bytes(name.encode())
    settle(sync, first, second)
    sync("ignore", first, "add", "*.log")
    settle(sync, first, second)
    assert names(first) == names(second) == {"same.log", "edited.log", "gone.log"}
    (first / "gone.log").unlink()
    (first / "edited.log").write_bytes(b"edited while it was ignored")
    settle(sync, first, second)
    assert "gone.log" in names(second)
    sync("ignore", first, "rm", "*.log")
    sync.reconcile(first, expect=4)
    settle(sync, first, second)
    assert content(first) == content(second)
    assert sorted(map(str, content(first).values())) == sorted(
        map(str, [b"same.log", b"edited.log", b"gone.log", b"edited while it was ignored"])
    )


def test_a_file_in_place_of_an_ignored_folder_is_told_with_what_to_do(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, second = roots
    (first / "build").mkdir()
    (first / "build/object").write_bytes(b"o")
    settle(sync, first, second)
    sync("ignore", first, "add", "build/")
    (first / "build/object").unlink()
    (first / "build").rmdir()
    (first / "build").write_bytes(b"a file")
    sync("reconcile", first, expect=3)
    assert "a folder of this name is ignored here" in sync.err
    (first / "build").rename(first / "build.txt")
    settle(sync, first, second)
    assert names(second) == {"build.txt", "build", "build/object"}


def test_a_deleted_folder_stays_where_something_ignored_lies_in_it(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, second = roots
    (first / "d/e").mkdir(parents=True)
    (first / "d/e/tracked").write_bytes(b"t")
    (first / "d/f").write_bytes(b"f")
    (first / "other").write_bytes(b"o")
    settle(sync, first, second)
    sync("ignore", second, "add", "*.log")
    (second / "d/e/mine.log").write_bytes(b"mine")
    (first / "d/e/tracked").unlink()
    (first / "d/e").rmdir()
    (first / "d/f").unlink()
    (first / "d").rmdir()
    settle(sync, first, second)
    assert names(second) == {"d", "d/e", "d/e/mine.log", "other"}
    assert names(first) == {"d", "d/e", "other"}


def test_a_renamed_folder_takes_what_is_ignored_along(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, second = roots
    (first / "d").mkdir()
    (first / "d/.blocksyncignore").write_bytes(b"secret\n")
    (first / "d/f").write_bytes(b"f")
    settle(sync, first, second)
    (second / "d/secret").write_bytes(b"s")
    (first / "d").rename(first / "e")
    settle(sync, first, second)
    assert names(second) == {"e", "e/.blocksyncignore", "e/f", "e/secret"}
    assert names(first) == {"e", "e/.blocksyncignore", "e/f"}


def test_changes_in_an_ignored_folder_cost_nothing_and_moving_out_of_it_is_seen(
    sync: Sync, roots: tuple[Path, Path]
) -> None:
    """On a volume the journal names directories that no base row knows."""
    first, second = roots
    sync("ignore", first, "add", "build/")
    (first / "build/deep").mkdir(parents=True)
    settle(sync, first, second)
    (first / "build/deep/more").mkdir()
    (first / "build/deep/more/x").write_bytes(b"x")
    (first / "f").write_bytes(b"f")
    settle(sync, first, second)
    assert names(second) == {"f"}
    (first / "build/deep").rename(first / "out")
    (first / "f").rename(first / "build/f")
    settle(sync, first, second)
    assert names(second) == {"out", "out/more", "out/more/x"}
    assert (first / "build/f").read_bytes() == b"f"
    (first / "out").rename(first / "build/in")
    sync.reconcile(first, expect=16)  # all that was synced is gone: a person is asked
    assert names(second) == {"out", "out/more", "out/more/x"}


def test_check_says_which_pattern_decides(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, _ = roots
    sync("ignore", first, "add", "*.log")
    (first / "d").mkdir()
    (first / "d/.blocksyncignore").write_bytes(b"# mine\n!a.log\n")
    lines = sync("ignore", first, "check", "x.log", "d/a.log", "d/b.log", "plain", "--json")
    found = {line["path"]: (line["ignored"], line["file"], line["line"], line["pattern"]) for line in lines}
    assert found == {
        "x.log": (True, None, 1, "*.log"),
        "d/a.log": (False, "d/.blocksyncignore", 2, "!a.log"),
        "d/b.log": (True, None, 1, "*.log"),
        "plain": (False, None, None, None),
    }


def test_names_lists_what_is_ignored_and_by_which_pattern(sync: Sync, roots: tuple[Path, Path]) -> None:
    for root in roots:
        sync("ignore", root, "add", "*.log")
        (root / "d").mkdir()
        (root / "d/.blocksyncignore").write_bytes(b"# mine\n/build/\n")
        (root / "d/build").mkdir()
        for name in ("a.log", "d/build/x", "kept"):
            (root / name).write_bytes(b"1")
        *lines, last = sync("ignore", root, "names", "--json")
        found = [(line["type"], line.get("path"), line["file"], line["line"], line["pattern"]) for line in lines]
        assert found == [
            ("ignore-line", None, "d/.blocksyncignore", 2, "/build/"),
            ("ignore-name", "a.log", None, 1, "*.log"),
            ("ignore-name", "d/build/", "d/.blocksyncignore", 2, "/build/"),
        ]
        assert (last["type"], last["names"], last["more"], last["unread"]) == ("ignore-names", 2, "", 0)
        sync("ignore", root, "names", "--most", "1")
        assert len(sync.out.splitlines()) == 1
        assert "there may be more: there are more than 1" in sync.err
    sync("ignore", roots[0], "names")
    assert sync.out.splitlines()[1] == "d/build/  (d/.blocksyncignore, line 2: /build/)"


def test_what_is_no_pattern_or_not_there_is_a_usage_error(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, _ = roots
    sync("ignore", first, "add", "# a comment", expect=2)
    sync("ignore", first, "rm", "*.log", expect=2)
    sync("ignore", first, "add", expect=2)
    sync("ignore", first, "names", "a.log", expect=2)
    sync("ignore", first, "ls", "--most", "5", expect=2)
    sync("ignore", first, "check", "/elsewhere", expect=2)
    sync("ignore", first, expect=0)
    assert sync.out == ""


@pytest.mark.parametrize("rules", ["*\n", "# all\n/*\n!/keep\n", "**\n"])
@pytest.mark.parametrize("own", [False, True], ids=["file", "own"])
def test_status_says_that_everything_is_ignored(sync: Sync, rules: str, *, own: bool) -> None:
    root = sync.folder("root")
    (root / "f").write_bytes(b"1")
    if own:
        lines = [line for line in rules.splitlines() if not line.startswith("#")]
        sync("ignore", root, "add", *lines)
    else:
        (root / ".blocksyncignore").write_text(rules)
    sync.reconcile(root)
    (status,) = sync("status", root, "--json")
    where = "a pattern of the root" if own else ".blocksyncignore"
    assert (status["condition"], "everything is ignored" in status["detail"]) == ("ok", True)
    assert where in status["detail"]
    sync("status", root)
    assert "everything is ignored" in sync.out + sync.err
    (root / "keep").write_bytes(b"2")
    sync.reconcile(root)
    (status,) = sync("status", root, "--json")
    assert (status["detail"] == "") is ("keep" in rules)
