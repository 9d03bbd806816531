"""What a look at a root promises, on a folder and on mounted volumes: pins L5, L8 and L11 of the local side.

One random history for each kind of root: a user works in it, another device works on the same share, and cycles run
between. Everything is seen through the engine and the remote, so it holds whatever the interface of a root is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
import trio
from msgspec.structs import replace

from blockfs.control.client import ControlClient
from syncer.core.model import Action, BaseRow, FileStat, Kind, Note, Plan, RelPath
from syncer.core.paths import PARK_FOLDER
from syncer.core.planner.identify import evidence
from syncer.core.planner.merge import Policy
from syncer.engine.cycle import Cycle, Look, Options
from syncer.engine.report import Report
from syncer.errors import SafetyStopError
from syncer.local.options import RootOptions
from syncer.local.volume.mount import find_mount
from syncer.local.volume.root import BlockfsRoot
from syncer.ports.local import LocalRoot
from syncer.ports.localvalues import Hints
from syncer.ports.state import State
from tests import effort
from tests.fakes.memory import MemoryClient, MemoryContainer
from tests.kit.user import User
from tests.unit.syncer.engine.devices import Device, Ears
from tests.unit.syncer.local.folders import BLOCK, Place, blocks_of, new_place

_BLOCKSYNC: Final = Path(sys.executable).with_name("blocksync")
_NUMBERS: Final = frozenset({"nid", "parent", "copy_of", "after", "absorbed_by", "copy_nid"})
ROUNDS: Final = effort.count("looks at a root")


@dataclass
class Mounted:
    """A volume's mount, in the place of a folder."""

    path: Path
    state: Path
    uuid: str

    def open(self, state: State) -> BlockfsRoot:
        options = RootOptions(block_size=BLOCK, lists=str(self.state / "lists"), state=state)
        return BlockfsRoot(bytes(self.path), self.uuid, options)

    visible = Place.visible


def _command(*arguments: str | Path) -> None:
    subprocess.run([_BLOCKSYNC, *arguments], capture_output=True, check=True)


@contextmanager
def folder(home: Path) -> Iterator[Place]:
    yield new_place(home)


@contextmanager
def _volume(home: Path, block_size: str) -> Iterator[Mounted]:
    point = home / "mount"
    point.mkdir()
    _command("init", "--block-size", block_size, home / "volume")
    _command("mount", home / "volume", point)
    try:
        mount = find_mount(bytes(point))
        assert mount is not None
        with ControlClient(mount.source) as control:
            yield Mounted(point, home / "state", control.status().uuid)
    finally:
        _command("umount", point)


def volume(home: Path) -> object:
    return _volume(home, "4KiB")


def re_blocked_volume(home: Path) -> object:
    """Its blocks are of another size than the share's."""
    return _volume(home, "8KiB")


@dataclass
class History:
    """What was found in a history.

    Attributes:
        parts: Looks at a part.
        smaller: Of these, ones that saw less than everything.
        not_a_restriction: L5: looks at a part that were not what a look at everything saw there, or led elsewhere.
        wrong_lists: L8: files that the share has with another list than their bytes'.
        echoes: L11: what a look right after a cycle found.
    """

    parts: int = 0
    smaller: int = 0
    not_a_restriction: list[object] = field(default_factory=list)
    wrong_lists: list[object] = field(default_factory=list)
    echoes: list[object] = field(default_factory=list)


@pytest.fixture(scope="module", params=[folder, volume, re_blocked_volume], ids=lambda make: make.__name__)
def history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    home = tmp_path_factory.mktemp(request.param.__name__)
    with request.param(home) as place:
        yield lived(place, new_place(home, "other"))


def lived(place: Place, elsewhere: Place) -> History:
    container, found = MemoryContainer(block_size=BLOCK), History()
    device, other = Device("device", place, container), Device("other", elsewhere, container)
    users = [User(1, device.path), User(2, other.path)]
    for each in (device, other):
        each.reconcile()
    for number in range(ROUNDS):
        for user in users:
            for _ in range(1 + number % 5):
                user.step()
        reconciled(other)
        compare_looks(device, found)
        report = reconciled(device)
        assert not report.failures, report.failures
        note_echoes(device, found)
        compare_lists(device, found)
    return found


def reconciled(device: Device) -> Report:
    """One cycle; whatever it deletes is meant."""
    try:
        return device.reconcile()
    except SafetyStopError as stop:
        return device.reconcile(consent=stop.digest)


def looked(device: Device, hints: Hints | None) -> tuple[Plan, Look]:
    """Look and plan, and do nothing."""

    async def main() -> tuple[Plan, Look]:
        root: LocalRoot = device.place.open(device.state)
        try:
            options = Options(policy=Policy(host="device", utc="T"), hints=hints, dry_run=True)
            return await Cycle(root, MemoryClient(device.container), device.state, Ears(), options).look()
        finally:
            await root.close()

    return trio.run(main)


def compare_looks(device: Device, found: History) -> None:
    part_plan, part = looked(device, Hints())
    whole_plan, whole = looked(device, None)
    found.parts += part.directories is not None
    found.smaller += len(part.seen.stats) < len(whole.seen.stats)
    there = {stat.path: stat for stat in whole.seen.stats}
    pairs = [(stat, there.get(stat.path)) for stat in part.seen.stats]
    found.not_a_restriction += [pair for pair in pairs if not is_same(*pair)]
    if essence(part_plan) != essence(whole_plan):
        found.not_a_restriction.append((essence(part_plan), essence(whole_plan)))


def is_same(one: FileStat, other: FileStat | None) -> bool:
    """Whether two looks saw one thing. Who took it from the base may know more of the mode."""
    return other is not None and _seen(one) == _seen(other)


def _seen(stat: FileStat) -> object:
    meta = replace(stat.meta, special=stat.meta.special or 0)
    return stat.kind, stat.content, stat.target, meta, evidence(stat.kind, stat.tag)


def essence(plan: Plan) -> dict[str, object]:
    """What a plan says, without the numbers of nodes: a new one is given another in every plan."""

    def of(value: Action | Note) -> list[str]:
        fields = [getattr(value, name) for name in value.__struct_fields__ if name not in _NUMBERS]
        return [
            type(value).__name__,
            *("parked" if PARK_FOLDER in bytes(str(each), "utf-8") else str(each) for each in fields),
        ]

    return {
        "local": sorted(map(of, plan.local)),
        "remote": sorted(map(of, plan.remote)),
        "adopted": len(plan.adopt),
        "forgotten": len(plan.forget),
        "notes": sorted(map(of, plan.notes)),
        "deletions": plan.digest,
    }


def note_echoes(device: Device, found: History) -> None:
    """What was done in a cycle is booked as it was done: nobody else did anything since."""
    for hints in (Hints(), None):
        plan, _ = looked(device, hints)
        rows = [device.state.rows_now[each.nid] for each in plan.adopt]
        sure = [row for row in rows if not is_unsure(row)]
        if not plan.is_empty or sure or plan.forget:
            found.echoes.append((essence(plan), sure))


def is_unsure(row: BaseRow) -> bool:
    """Whether it may be booked a second time, with evidence that proves more.

    A folder: it was made in this tick of the clock. A volume: a symlink, as what makes one is not told its mtime.
    """
    assert row.local is not None
    return row.node.kind is Kind.SYMLINK or (row.local.version is None and row.local.ctime_ns == 0)


def compare_lists(device: Device, found: History) -> None:
    """The device and the share are equal now: what was pushed has a list that was hashed, kept or joined here."""
    files = device.place.visible()
    objects = device.container.objects
    for name, data in files.items():
        stored = objects[RelPath(os.fsencode(name))].blocks
        if stored != blocks_of(data):
            found.wrong_lists.append((name, stored, blocks_of(data)))


def test_a_look_at_a_part_sees_there_what_a_look_at_everything_sees(history: History) -> None:
    """L5. Breaks when a cycle that looks at a part misses a change, or takes something for changed that is not."""
    assert history.not_a_restriction == []
    assert history.parts > ROUNDS // 2
    assert history.smaller


def test_the_list_that_is_pushed_is_that_of_the_bytes(history: History) -> None:
    """L8. Breaks when a block list that was kept, taken over or joined is not that of the file: a silent mixture."""
    assert history.wrong_lists == []


def test_what_a_cycle_did_is_no_change_to_the_next_look(history: History) -> None:
    """L11. Breaks when the evidence of our own writes is not what the next look finds: echoes."""
    assert history.echoes == []
