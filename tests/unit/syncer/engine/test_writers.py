"""Of which device the version is that kept the name beside a conflict copy, as each device comes to know it."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncer.core.conflict import parse_conflict_name
from syncer.core.model import Kind, Meta, RelPath
from syncer.errors import RemoteUnavailableError
from tests.fakes.memory import MemoryClient
from tests.unit.syncer.engine.devices import Device, devices
from tests.unit.syncer.local.folders import BLOCK, noise


@pytest.fixture
def three(tmp_path: Path) -> list[Device]:
    return devices(tmp_path, "a", "b", "c")


def writer(device: Device, name: str = "file") -> str | None:
    """Whose version has a name, by what is noted; None: nobody knows."""
    row = next(row for row in device.state.rows_now.values() if row.node.name == name.encode())
    noted = device.state.written.get(row.nid)
    return noted.device if noted is not None and noted.content == row.node.content else None


def in_conflict(three: list[Device], *, size_bytes: int = 10) -> None:
    """The third device looks when all has been done."""
    first, second, _ = three
    first.write("file", b"both know this")
    for device in three:
        device.reconcile()
    first.write("file", noise(1, size_bytes))
    second.write("file", noise(2, size_bytes))
    first.reconcile()
    assert second.reconcile().exit_code == 4


@pytest.mark.parametrize("lists_meta", [True, False])
@pytest.mark.parametrize("size_bytes", [10, 3 * BLOCK])
def test_each_device_knows_whose_version_has_kept_the_name(
    three: list[Device], lists_meta: bool, size_bytes: int
) -> None:
    first, _, third = three
    first.container.lists_meta = lists_meta
    in_conflict(three, size_bytes=size_bytes)
    first.reconcile()
    third.reconcile()
    for device in three:
        assert any(parse_conflict_name(Path(name).name.encode()) for name in device.everything())
        assert writer(device) == "a"


def test_whoever_made_the_copy_and_whoever_gets_both_versions_asks_nothing_for_that(three: list[Device]) -> None:
    asked: list[str] = []

    async def count(operation: str, path: RelPath) -> None:
        if operation == "writers":
            asked.append(path.decode())

    first, second, third = three
    first.write("file", b"both know this")
    for device in three:
        device.reconcile()
    first.write("file", b"of a")
    second.write("file", b"of b")
    for device in (first, second, third):
        device.reconcile(client=MemoryClient(device.container, before=count))
    assert asked == []
    first.reconcile(client=MemoryClient(first.container, before=count))
    assert asked == ["file"]  # what it has sent itself in an earlier cycle
    assert [writer(device) for device in three] == ["a", "a", "a"]


def test_an_older_client_tells_no_device_and_none_is_made_up(three: list[Device]) -> None:
    first, second, third = three
    first.write("file", b"both know this")
    for device in three:
        device.reconcile()
    box = first.container
    box.put(RelPath(b"file"), kind=Kind.FILE, blocks=box.store_all(b"of an older client"), meta=Meta())
    second.write("file", b"of b")
    assert second.reconcile().exit_code == 4
    third.reconcile()
    assert (writer(second), writer(third)) == (None, None)


def test_what_is_written_afterwards_is_of_who_wrote_it(three: list[Device]) -> None:
    _, second, third = three
    in_conflict(three)
    third.reconcile()
    third.write("file", b"of c, later")
    third.reconcile()
    assert writer(third) == "c"
    second.reconcile()
    assert writer(second) == "c"


def test_that_nobody_can_be_asked_does_not_end_the_cycle(three: list[Device]) -> None:
    async def gone(operation: str, path: RelPath) -> None:
        if operation == "writers":
            raise RemoteUnavailableError("gone")

    first = three[0]
    in_conflict(three)
    report = first.reconcile(client=MemoryClient(first.container, before=gone))
    assert (report.exit_code, report.pulled) == (0, 1)
    assert writer(first) is None
