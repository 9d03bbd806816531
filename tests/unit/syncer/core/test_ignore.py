"""Ignore rules: gitignore's semantics (git itself is the oracle), and what they do to base and listing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from syncer.core.ignore import IGNORE_FILE, IgnoreRules, objection
from syncer.core.model import RelPath
from syncer.core.paths import PARK_FOLDER
from tests import effort
from tests.unit.syncer.core.trees import base_of, file, file_stat, folder, folder_stat, remote_file

_segments = st.sampled_from(
    ["a", "b", "*", "**", "a*", "?", "[ab]", "[!a]", "*.b", ".*", "a?b", "\\a", "é", "a b", "#", "\\#"]
)
_patterns = st.builds(
    lambda sign, lead, segments, end: sign + lead + "/".join(segments) + end,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "", "/"]),
    st.lists(_segments, min_size=1, max_size=3),
    st.sampled_from(["", "", "/", " ", "\r"]),
)
_paths = st.lists(st.sampled_from(["a", "b", "ab", "a.b", ".a", "é", "a b", "#"]), min_size=1, max_size=4)


@settings(
    max_examples=effort.count("ignore rules"),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(own=st.lists(_patterns, max_size=3), below=st.lists(_patterns, max_size=3), paths=st.lists(_paths, max_size=6))
def test_rules_say_what_git_says(
    tmp_path_factory: pytest.TempPathFactory, own: list[str], below: list[str], paths: list[list[str]]
) -> None:
    """A pattern that means something else here than in .gitignore sends a secret, or keeps a file from its backup."""
    top = os.fsencode(tmp_path_factory.mktemp("repository"))
    subprocess.run(["git", "init", "-q", top], check=True)
    for path in paths:
        _make(top, path)
    rules = IgnoreRules()
    texts = {b"": "\n".join(own).encode(), b"a": "\n".join(below).encode()}
    for folder_path, text in texts.items():
        if os.path.isdir(os.path.join(top, folder_path)):
            Path(os.fsdecode(os.path.join(top, folder_path, b".gitignore"))).write_bytes(text)
            rules.add(RelPath(folder_path), text)
    found = [
        os.path.relpath(os.path.join(at, name), top)
        for at, folders, files in os.walk(top)
        for name in folders + files
        if b".git" not in os.path.join(at, name)
    ]
    asked = subprocess.run(
        ["git", "-C", top, "check-ignore", "-z", "--no-index", "--stdin"],
        input=b"\0".join(found), capture_output=True, check=False,
    )  # fmt: skip
    ours = {path for path in found if rules.hides(RelPath(path), directory=os.path.isdir(os.path.join(top, path)))}
    assert ours == set(asked.stdout.split(b"\0")) - {b""}


def _make(top: bytes, path: list[str]) -> None:
    """A file, unless another one is in the way."""
    target = Path(os.fsdecode(top), *path)
    if any(each.is_file() for each in target.parents) or target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch()


def hides(rules: IgnoreRules, path: bytes, *, directory: bool = False) -> bool:
    return rules.hides(RelPath(path), directory=directory)


def test_the_roots_own_patterns_are_the_weakest() -> None:
    rules = IgnoreRules([b"*.log"])
    rules.add(RelPath(b"keep"), b"!*.log\n")
    assert hides(rules, b"x.log")
    assert not hides(rules, b"keep/x.log")


def test_nothing_below_an_ignored_directory_can_be_had_back() -> None:
    rules = IgnoreRules([b"build/", b"!build/keep"])
    assert hides(rules, b"build/keep")
    assert not hides(rules, b"build"), "only a directory of that name"


def test_our_own_folder_is_no_matter_of_rules() -> None:
    assert not hides(IgnoreRules([b"*", b".*"]), b".blocksync/park/7-x")


def test_the_deciding_pattern_is_named() -> None:
    rules = IgnoreRules([b"# temporary", b"*.tmp"])
    rules.add(RelPath(b"d"), b"\n!a.tmp\nbuild/\n")
    own = rules.deciding(RelPath(b"x/y.tmp"), directory=False)
    assert own is not None
    assert (own.ignored, own.source, own.line, own.pattern) == (True, None, 2, b"*.tmp")
    kept = rules.deciding(RelPath(b"d/a.tmp"), directory=False)
    assert kept is not None
    assert (kept.ignored, kept.source, kept.line) == (False, b"d", 2)
    above = rules.deciding(RelPath(b"d/build/x"), directory=False)
    assert above is not None
    assert (above.source, above.line) == (b"d", 3)


@pytest.mark.parametrize("line", [b"", b"# comment", b"a\nb", b"a\0b", b"/"])
def test_a_line_that_is_no_pattern_is_told(line: bytes) -> None:
    assert objection(line) is not None


@pytest.mark.parametrize("line", [b"[z-a]", b"x[9-0]*", b"[a-\\d]"])
def test_a_range_that_runs_backwards_spoils_no_other_line(line: bytes) -> None:
    rules = IgnoreRules()
    rules.add(RelPath(b""), b"*.tmp\n" + line + b"\n*.log\n")
    assert [rules.matches(RelPath(name), directory=False) for name in (b"a.tmp", b"b.log", b"m")] == [True, True, False]
    assert objection(line) is not None


@pytest.mark.parametrize(
    ("line", "ignored"),
    [
        (b"[[:digit:]]x", b"5x"),
        (b"[![:digit:]]x", b"ax :x"),
        (b"v[[:alpha:]_]", b"v_ vq"),
        (b"x[[:xdigit:]-]", b"x- xF"),
        (b"[:alpha:]x", b"ax :x"),
        (b"\\[[:digit:]", b""),
    ],
)
def test_named_classes_are_those_of_git(line: bytes, ignored: bytes) -> None:
    rules = IgnoreRules([line])
    names = [b"5x", b"ax", b":x", b"v_", b"vq", b"v1", b"x-", b"xF", b"xg"]
    assert [name for name in names if rules.matches(RelPath(name), directory=False)] == ignored.split()


def test_rows_of_ignored_nodes_are_named_and_left_out() -> None:
    base = base_of({1: folder("d"), 2: file("x.log", 2, parent=1), 3: file("y", 3, parent=1)})
    kept, dropped = IgnoreRules([b"*.log"]).tracked_base(base)
    assert dropped == (2,)
    assert set(kept.rows) == {1, 3}
    kept, dropped = IgnoreRules([b"d/"]).tracked_base(base)
    assert dropped == (1, 2, 3)


@settings(deadline=None)
@given(
    own=st.lists(_patterns, max_size=3),
    below=st.lists(_patterns, max_size=3),
    inside=st.lists(_patterns, max_size=3),
    paths=st.lists(_paths.filter(lambda path: len(path) < 4), max_size=6, unique_by=tuple),
)
def test_a_parked_folder_tracks_what_it_does_in_its_place(
    own: list[str], below: list[str], inside: list[str], paths: list[list[str]]
) -> None:
    """Else what is ignored in a folder is sent after a cycle that ended while the folder was parked."""
    base = base_of({1: folder("a"), 2: folder("b", parent=1)})
    home, top = b"a/b", PARK_FOLDER + b"/2-b"
    names = sorted({"/".join(path[:end]) for path in paths for end in range(1, len(path) + 1)})
    known, parked = IgnoreRules([each.encode() for each in own]), IgnoreRules([each.encode() for each in own])
    for rules, place in ((known, home), (parked, top)):
        rules.add(RelPath(b"a"), "\n".join(below).encode())
        rules.add(RelPath(place), "\n".join(inside).encode())
    parked.add(RelPath(home), b"*")  # of another folder, which took its place
    stats = [folder_stat(top.decode(), ino=2)]
    stats += [folder_stat(f"{top.decode()}/{name}", ino=10 + at) for at, name in enumerate(names)]
    kept, holding = parked.tracked_here(stats, base)
    assert kept[0] == stats[0]
    expected = [name for name in names if not known.hides(RelPath(home + b"/" + name.encode()), directory=True)]
    if not parked.hides(RelPath(b"a"), directory=True):
        expected = expected if not known.hides(RelPath(home), directory=True) else []
        assert [stat.path.removeprefix(top + b"/").decode() for stat in kept[1:]] == expected
        assert bool(holding) == (len(kept) < len(stats))


def test_rules_follow_a_renamed_folder_on_both_sides() -> None:
    """Else what was ignored in it is new under the other name for one cycle, and is sent or fetched."""
    name = IGNORE_FILE.decode()
    base = base_of({1: folder("old"), 2: file(name, 2, parent=1)})
    rules = IgnoreRules()
    rules.add(RelPath(b"new"), b"*.log")  # renamed here, not yet there
    rules.follow(base, [file_stat(f"new/{name}", 2, ino=2)], [remote_file(f"old/{name}", 2, uuid=2)])
    assert hides(rules, b"old/x.log")
    rules = IgnoreRules()
    rules.add(RelPath(b"old"), b"*.log")  # renamed there, not yet here
    rules.follow(base, [file_stat(f"old/{name}", 2, ino=2)], [remote_file(f"new/{name}", 2, uuid=2)])
    assert hides(rules, b"new/x.log")


def test_equal_rules_have_one_fingerprint_and_others_another() -> None:
    one, two, moved = IgnoreRules([b"a"]), IgnoreRules([b"a"]), IgnoreRules()
    moved.add(RelPath(b"d"), b"a")
    assert one.fingerprint == two.fingerprint
    assert len({one.fingerprint, moved.fingerprint, IgnoreRules().fingerprint, IgnoreRules([b"b"]).fingerprint}) == 4
