"""The 25 cells of the action table for a symlink: its text is its content."""

from __future__ import annotations

import pytest

from syncer.core.conflict import hash6
from tests.unit.syncer.core.trees import link, names, plan

BASE = {1: link("a", "1")}
STATES = ("unchanged", "edited", "moved", "moved and edited", "deleted")


def _side(edit: str, moved: str) -> dict[str, dict[int, object]]:
    return {
        "unchanged": {1: link("a", "1")},
        "edited": {1: link("a", edit)},
        "moved": {1: link(moved, "1")},
        "moved and edited": {1: link(moved, edit)},
        "deleted": {},
    }


LOCAL, REMOTE = _side("2", "l"), _side("3", "r")


def _expected(local: str, remote: str) -> dict[str, bytes]:
    """The table of sync-engine section 3, row by row, in words of code."""
    if "deleted" in (local, remote):
        kept = {
            ("deleted", "edited"): {"a": b"3"},
            ("deleted", "moved"): {"r": b"1"},
            ("deleted", "moved and edited"): {"r": b"3"},
            ("edited", "deleted"): {"a": b"2"},
            ("moved", "deleted"): {"l": b"1"},
            ("moved and edited", "deleted"): {"l": b"2"},
        }
        return kept.get((local, remote), {})
    name = "r" if "moved" in remote else "l" if "moved" in local else "a"
    text = b"3" if "edited" in remote else b"2" if "edited" in local else b"1"
    both = "edited" in local and "edited" in remote
    return {name: text, f"{name} (conflict pc T {hash6(link('a', '2'))})": b"2"} if both else {name: text}


@pytest.mark.parametrize("local", STATES)
@pytest.mark.parametrize("remote", STATES)
def test_cell(local: str, remote: str) -> None:
    made = plan(BASE, LOCAL[local], REMOTE[remote])  # type: ignore[arg-type] # nodes
    assert names(dict(made.target)) == _expected(local, remote)
