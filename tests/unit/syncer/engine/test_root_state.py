from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from syncer.engine.root_state import RootState
from syncer.errors import CorruptionError
from syncer.state.statedb import StateDB


@pytest.mark.parametrize("raw", [b"", b'{"ended_ns"', b"\xff", b"[]"])
@pytest.mark.parametrize(
    ("key", "look"),
    [
        ("last-cycle", RootState.last_cycle),
        ("last-shared", RootState.last_shared),
        ("container", RootState.container),
    ],
)
def test_a_record_that_can_not_be_understood_is_damage_and_says_what_to_do(
    key: str, look: Callable[[RootState], object], raw: bytes, tmp_path: Path
) -> None:
    """Else `status` of a state with a flipped bit ends with an internal error."""
    with StateDB.create(str(tmp_path / "state"), map_size_bytes=1 << 26) as database:
        database.meta_set({key: raw})
        with pytest.raises(CorruptionError, match="--relink"):
            look(RootState(database))
