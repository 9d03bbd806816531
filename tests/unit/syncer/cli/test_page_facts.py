"""What the page knows of a root without asking the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncer.cli.ui import facts
from syncer.core.model import BaseRow, Nid
from syncer.core.planner.outcome import Forgotten
from syncer.state.statedb import StateDB
from tests.unit.syncer.core.trees import file, local_tag, remote_tag


@pytest.mark.parametrize("at_once", [1, 2, 3, 6, 7, 100])
def test_conflicts_are_counted_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Each piece goes on where the last one ended: none is left out, none counted twice."""
    monkeypatch.setattr(facts, "_AT_ONCE", at_once)
    names = ("a", "a (conflict laptop 20260101T000000Z 000000).txt", "b", "conflict", "z (conflict x).txt", "ß")
    counted = facts.Conflicts()
    state = str(tmp_path / "state")
    with StateDB.create(state, map_size_bytes=1 << 24) as made:
        assert counted.of(state) == 0
        made.record(
            [
                BaseRow(nid=Nid(number), node=file(name, number), local=local_tag(number), remote=remote_tag(number))
                for number, name in enumerate(names, 1)
            ]
        )
        assert counted.of(state) == 2
        assert counted.of(state) == 2
        made.record([Forgotten(nid=Nid(2))])
        assert counted.of(state, is_working=True) == 2, "half a cycle is not counted"
        assert facts.Conflicts().of(state, is_working=True) == 1
        assert counted.of(state) == 1
