"""Versions of a remote are opaque: only remotes, codecs and `core.subtrees` read what is in a tag.

Whoever else compares serials, or takes an etag for a content, is right for Pithos and wrong for every other remote.
Which of two versions is the later one `Ages` tell; what the content is a `RemoteStat` says.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

READERS = (
    "syncer/remote",
    "syncer/server",  # gives them out
    "syncer/protocol",
    "syncer/state/schema.py",
    "syncer/core/subtrees.py",
    "syncer/core/planner/overwrites.py",  # what remotes without atomic conditions must look for
    "syncer/core/planner/plan.py",  # the digest of a plan spells them
    "syncer/core/planner/savedplan.py",  # so does its JSON
)
"""Who may read what is in a tag."""

OTHERS = {
    "syncer/blocks/entries.py": {"place"},  # a `VersionRef`
    "syncer/core/model.py": {"self"},  # `RemoteTag.name`
    "syncer/cli/session/savedplan.py": {"head"},  # of a format
    "syncer/engine/pull.py": {"source"},  # a `VersionRef`
    "syncer/engine/share/lankey.py": {"found", "kept"},  # of a key
    "syncer/local": {"known.local", "row.local", "origin.tag", "start", "tag", "order"},  # a `LocalTag`; a `VersionRef`
    "syncer/ports/localvalues.py": {"tag"},  # a `LocalTag`
    "syncer/peer": {"address", "kept", "record"},  # of IP, of a key
}
"""What else has such an attribute, by where it is: expressions of other types."""


def reads(source: str) -> Iterator[tuple[int, str]]:
    """Line and expression of each `….version` and `….etag`, and of what would come to the same."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(attr="version" | "etag"):
                yield node.lineno, ast.unparse(node.value)
            case ast.Call(func=ast.Name(id="getattr" | "attrgetter")):
                if {"version", "etag"} & {each.value for each in node.args if isinstance(each, ast.Constant)}:
                    yield node.lineno, ast.unparse(node)


def forbidden(path: str, found: Iterable[tuple[int, str]]) -> list[str]:
    """What of a module may not be there."""
    if path.startswith(READERS):
        return []
    allowed = {name for where, names in OTHERS.items() if path.startswith(where) for name in names}
    return [f"{path}:{line}: {text}" for line, text in found if text not in allowed]


@cache
def everywhere() -> dict[str, list[tuple[int, str]]]:
    """What is read in all modules."""
    return {str(path.relative_to(ROOT)): list(reads(path.read_text())) for path in sorted(ROOT.glob("syncer/**/*.py"))}


def test_nobody_else_reads_what_is_in_a_tag() -> None:
    assert [line for path, found in everywhere().items() for line in forbidden(path, found)] == []


def test_no_exception_is_left_over() -> None:
    read = [(path, text) for path, found in everywhere().items() for _, text in found]
    used = {(where, text) for path, text in read for where in OTHERS if path.startswith(where)}
    assert {(where, text) for where, texts in OTHERS.items() for text in texts} <= used
    assert {reader for path, _ in read for reader in READERS if path.startswith(reader)} == set(READERS)


@pytest.mark.parametrize(
    "planted",
    [
        "if row.remote.version > tag.version:\n    pass",
        "newest = max(stat.tag.version for stat in stats)",
        "known = bytes.fromhex(expect.etag)",
        "order = sorted(rows, key=lambda row: row.remote.version)",
        "order = sorted(tags, key=attrgetter('version'))",
        "serial = getattr(tag, 'version')",
    ],
)
@pytest.mark.parametrize("path", ["syncer/engine/pull.py", "syncer/core/planner/safety.py", "syncer/watch/work.py"])
def test_what_is_planted_is_found(path: str, planted: str) -> None:
    assert forbidden(path, reads(planted))
