"""What a cycle wrote is not told to the next one, and nothing that others wrote is missed for that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from syncer.core.model import Position, RelPath, RemoteTag
from syncer.core.partial.listing_diff import Known
from syncer.engine.partial import echoes
from syncer.errors import RemoteUnavailableError
from syncer.ports.remote import Changes
from syncer.protocol.pithos.headers import EXTENSION_CHANGES, EXTENSION_WITHOUT
from tests import effort
from tests.fakes.memory import MemoryClient
from tests.simulation import engine_scenario
from tests.simulation.engine_scenario import failure_of
from tests.unit.syncer.engine.devices import Device, assert_at_rest, devices

FILES = echoes.LEAST + 10
SEEDS = effort.count("ring R2, own writes")


@dataclass
class Told(MemoryClient):
    """Notes how much each question about changes brought."""

    rows: list[int] = field(default_factory=list)

    def __init__(self, device: Device) -> None:
        super().__init__(device.container)
        self.rows = []

    async def changes(
        self,
        since: Position,
        known: Known | None = None,
        *,
        moves: bool = False,
        brief: bool = False,
        own: Sequence[RemoteTag] = (),
    ) -> Changes | None:
        found = await super().changes(since, known, moves=moves, brief=brief, own=own)
        if found is not None:
            self.rows.append(len(found.objects) + len(found.deleted))
        return found


def told(device: Device) -> list[int]:
    client = Told(device)
    device.reconcile(client=client)
    return client.rows


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Device, Device]:
    first, second = devices(tmp_path, "first", "second")
    for device in (first, second):
        device.reconcile()
    for number in range(FILES):
        first.write(f"folder/{number}", b"%d" % number)
    return first, second


def test_the_cycle_after_a_large_push_is_told_nothing(pair: tuple[Device, Device]) -> None:
    first, second = pair
    assert told(first) == [0, 0]  # what changed before it; what others changed meanwhile
    assert told(first) == [0]
    assert told(second) == [FILES + 1]  # pulls are no writes of ours
    assert_at_rest(*pair)


def test_what_somebody_else_wrote_meanwhile_is_told_with_all_that_is_ours(pair: tuple[Device, Device]) -> None:
    first, second = pair
    second.write("theirs", b"theirs")
    wrote = False

    async def before(operation: str, _path: RelPath) -> None:
        nonlocal wrote
        if operation == "store" and not wrote:
            wrote = True
            await second.cycle()

    assert not first.reconcile(client=MemoryClient(first.container, before=before)).failures
    assert wrote
    first.reconcile()
    second.reconcile()
    assert first.everything() == second.everything()
    assert (first.path / "theirs").read_bytes() == b"theirs"


def test_a_server_that_goes_away_at_the_end_fails_nothing(pair: tuple[Device, Device]) -> None:
    first, _ = pair
    asked = 0

    async def before(operation: str, _path: RelPath) -> None:
        nonlocal asked
        asked += operation == "changes"
        if operation == "changes" and asked == 2:
            raise RemoteUnavailableError("gone")

    report = first.reconcile(client=MemoryClient(first.container, before=before))
    assert (asked, report.failures) == (2, [])
    assert told(first) == [FILES + 1]


def test_a_server_of_the_release_before_is_not_asked(pair: tuple[Device, Device]) -> None:
    first, _ = pair
    first.container.extensions = frozenset({EXTENSION_CHANGES})
    assert told(first) == [0]


def test_histories_with_all_kinds_of_trouble_hold_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ring R2, with the question asked after every cycle that wrote anything."""
    monkeypatch.setattr(echoes, "LEAST", 1)
    asked = 0
    real = echoes.behind_own_writes

    async def counting(remote: MemoryClient, since: Position, recorded: list[RemoteTag]) -> Position:
        nonlocal asked
        found = await real(remote, since, recorded)
        asked += found != since
        return found

    monkeypatch.setattr("syncer.engine.cycle.behind_own_writes", counting)
    extensions = engine_scenario._EXTENSIONS | {EXTENSION_WITHOUT}
    monkeypatch.setattr(engine_scenario, "_EXTENSIONS", extensions)
    assert [found for seed in range(SEEDS) if (found := failure_of(seed)) is not None] == []
    assert asked > SEEDS // 4
