from __future__ import annotations

from typing import cast

import pytest
import trio

from syncer.cli.session.session import kept
from syncer.engine.report import Report
from syncer.engine.root_state import RootState


class _State:
    def __init__(self) -> None:
        self.codes: list[int] = []

    def keep_result(self, report: Report, exit_code: int, error: str | None) -> None:
        del report, error
        self.codes.append(exit_code)


def test_a_cycle_that_is_stopped_is_kept_as_interrupted_and_not_as_a_bug() -> None:
    state = _State()

    async def cycle() -> None:
        with trio.CancelScope() as scope, kept(cast("RootState", state), Report(), counts=lambda _: True):
            scope.cancel()
            async with trio.open_nursery():
                await trio.sleep_forever()

    trio.run(cycle)
    with pytest.raises(KeyboardInterrupt), kept(cast("RootState", state), Report(), counts=lambda _: True):
        raise KeyboardInterrupt
    with pytest.raises(AssertionError), kept(cast("RootState", state), Report(), counts=lambda _: True):
        raise AssertionError
    assert state.codes == [130, 130, 1]
