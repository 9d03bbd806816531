"""Several new small files in an ordinary directory; what all roots do is in tests/contract/test_local_roots.py."""

from __future__ import annotations

import errno
import os

import pytest

from syncer.core.model import Meta, RelPath
from syncer.core.rows import Origin
from syncer.errors import NoSpaceError
from syncer.local.folder import root as directory
from syncer.local.folder import small_files as portion_module
from syncer.local.folder.assembly import temp_name
from syncer.local.folder.root import LocalDirectory
from syncer.ports.localvalues import Applied
from tests.unit.syncer.local.folders import BLOCK, NO_BASE, Elsewhere, Place, made_all, noise, wanted, with_root


def temps(place: Place) -> list[str]:
    return [path.name for path in (place.path / ".blocksync/tmp").iterdir()]


def all_made(outcomes: list[Applied | Exception]) -> None:
    assert all(isinstance(outcome, Applied) for outcome in outcomes), outcomes


@pytest.mark.parametrize("data", [b"", bytes(100), b"x" + bytes(99), bytes(BLOCK), noise(1, BLOCK)])
def test_nuls_at_the_end_arrive_too(place: Place, data: bytes) -> None:
    """They are no part of a block that travels."""

    async def work(root: LocalDirectory) -> None:
        all_made(
            await made_all(root, [wanted(b"a", data, Elsewhere(data).fetch), wanted(b"b", b"b", Elsewhere(b"b").fetch)])
        )

    with_root(place, work)
    assert place.visible() == {"a": data, "b": b"b"}
    assert temps(place) == []


def test_what_a_killed_run_left_is_used_even_if_its_mode_forbids_to_write_it(place: Place) -> None:
    whole, half = noise(1, 300), noise(2, 300)
    served = [Elsewhere(whole), Elsewhere(half)]
    orders = [
        wanted(name, data, each.fetch, meta=Meta(mode=0o400))
        for name, data, each in zip((b"whole", b"half"), (whole, half), served, strict=True)
    ]
    for order, left in zip(orders, (whole, half[:100]), strict=True):
        temp = place.path / ".blocksync/tmp" / os.fsdecode(temp_name(order.path, order.content, 0))
        temp.write_bytes(left)
        temp.chmod(0o400)

    async def work(root: LocalDirectory) -> None:
        all_made(await made_all(root, orders))

    with_root(place, work)
    assert [each.served for each in served] == [0, 1]
    assert place.visible() == {"whole": whole, "half": half}
    assert temps(place) == []


def test_a_source_that_was_written_to_is_none(place: Place) -> None:
    data = noise(1, 300)
    (place.path / "old").write_bytes(data)
    server = Elsewhere(data)

    async def work(root: LocalDirectory) -> None:
        (seen,) = (await root.observe(NO_BASE)).stats
        assert seen.content is not None
        origin = Origin(path=RelPath(b"old"), tag=seen.tag, content=seen.content)
        (place.path / "old").write_bytes(noise(9, 300))
        all_made(await made_all(root, [wanted(b"new", data, server.fetch, origins=(origin,))]))

    with_root(place, work)
    assert server.served == 1
    assert place.visible()["new"] == data


def test_a_full_disk_is_named_as_such_and_leaves_nothing_behind(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    real = portion_module.write_back
    begun: list[int] = []

    def full(descriptor: int, offset: int, length: int, *, wait: bool) -> None:
        begun.append(descriptor)
        if len(begun) == 2:
            raise OSError(errno.ENOSPC, "full")
        real(descriptor, offset, length, wait=wait)

    monkeypatch.setattr(portion_module, "write_back", full)

    async def work(root: LocalDirectory) -> None:
        outcomes = await made_all(
            root, [wanted(b"%d" % n, noise(n, 9), Elsewhere(noise(n, 9)).fetch) for n in range(3)]
        )
        assert isinstance(outcomes[1], NoSpaceError)
        all_made([outcomes[0], outcomes[2]])

    with_root(place, work)
    assert set(place.visible()) == {"0", "2"}
    assert temps(place) == []


def test_a_filesystem_that_can_not_be_told_to_write_is_only_slower(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(descriptor: int, offset: int, length: int, *, wait: bool) -> None:
        raise OSError(errno.ENOSYS, "not here")

    monkeypatch.setattr(portion_module, "write_back", cannot)

    async def work(root: LocalDirectory) -> None:
        all_made(await made_all(root, [wanted(b"a", b"a", Elsewhere(b"a").fetch)]))

    with_root(place, work)
    assert place.visible() == {"a": b"a"}


def test_two_files_of_one_content_at_places_of_one_temp_name_get_a_temp_file_each(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(directory, "temp_name", lambda path, content, attempt: b"same.%d" % attempt)

    async def work(root: LocalDirectory) -> None:
        all_made(await made_all(root, [wanted(b"%d" % n, b"same", Elsewhere(b"same").fetch) for n in range(3)]))

    with_root(place, work)
    assert place.visible() == {"0": b"same", "1": b"same", "2": b"same"}
