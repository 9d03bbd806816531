"""Explanations of paths."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

from syncer.core.base import BaseIndex
from syncer.core.model import BaseRow, Identified, Nid, RelPath, Tree
from syncer.core.planner.explain import CONFLICT, RULES, Change, explain
from syncer.core.planner.merge import Policy
from syncer.core.planner.plan import make_plan
from tests.unit.syncer.core.trees import file, folder, tree

CHANGED = (Change.SAME, Change.EDITED, Change.MOVED, Change.BOTH, Change.DELETED)


def explained(path: bytes, base: Tree, local: Tree, remote: Tree) -> list[tuple[str, str, str, list[str]]]:
    index = BaseIndex(BaseRow(nid=nid, node=node, local=None, remote=None) for nid, node in base.items())
    numbers = iter(range(1000, 2000))
    plan = make_plan(
        index,
        Identified(tree=local, tags={}),
        Identified(tree=remote, tags={}),
        Policy(host="pc", utc="20260101T000000Z"),
        lambda: Nid(next(numbers)),
    )
    return [
        (
            each.local_change.value,
            each.remote_change.value,
            each.rule,
            [f"{action.side.value}: {type(action).__name__}" for action in each.actions],
        )
        for each in explain(RelPath(path), index, plan)
    ]


def test_every_cell_of_the_action_table_has_its_words() -> None:
    assert {*product(CHANGED, CHANGED)} <= set(RULES)
    assert all(RULES.values())


def test_the_page_has_the_action_table_in_the_words_of_explain() -> None:
    page = (Path(__file__).parents[4] / "docs/design/planner.md").read_text()
    table = page.partition("\n## 1. Action table\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \| (.*?) \| (.*?) \|$", table, re.MULTILINE)[2:]
    assert f"- *conflict*: {CONFLICT}." in " ".join(table.split())
    told = {pair: text.replace(CONFLICT, "*conflict*") for pair, text in RULES.items()}
    assert rows == [(here.value, there.value, text) for (here, there), text in told.items()]


def test_one_side_changed() -> None:
    base = tree({1: folder("d"), 2: file("f", 1, parent=1)})
    edited = tree({1: folder("d"), 2: file("f", 2, parent=1)})
    moved = tree({1: folder("d"), 2: file("g", 1)})
    assert explained(b"d/f", base, edited, base) == [
        ("edited", "unchanged", "changed here only: the content is pushed", ["remote: Update"])
    ]
    found = [("unchanged", "moved", "moved on the server only: moved here, too", ["local: Move"])]
    assert explained(b"d/f", base, base, moved) == explained(b"g", base, base, moved) == found
    assert explained(b"d/f", base, base, base)[0][3] == []
    assert explained(b"nothing", base, edited, moved) == []


def test_deleted_here_and_something_else_there() -> None:
    base = tree({1: file("f", 1)})
    gone = tree({})
    assert explained(b"f", base, gone, base)[0][:2] == ("deleted", "unchanged")
    assert explained(b"f", base, gone, tree({1: file("f", 2)}))[0][3] == ["local: Create"]
    assert explained(b"f", gone, tree({1: file("f", 1)}), gone)[0][:2] == ("new", "not there")


def test_a_name_that_two_nodes_claim_is_explained_for_both() -> None:
    found = explained(b"f", tree({}), tree({1: file("f", 1)}), tree({2: file("f", 2)}))
    assert {change for each in found for change in each[:2]} >= {"new"}
    assert any("conflict copy" in each[2] for each in found)
