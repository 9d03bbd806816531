"""A new version of a file shares with the old one what did not change, on hosts with reflinks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockfs.runtime.fiemap import differing
from blockfs.runtime.reflink import extents
from syncer.core.rows import Origin
from syncer.local.folder.root import LocalDirectory
from syncer.ports.localvalues import Install, content_of
from tests.kit.hostfs import REFLINKS, reflinking
from tests.unit.syncer.local.folders import (
    BLOCK,
    Elsewhere,
    P,
    blocks_of,
    done,
    look,
    new_place,
    noise,
    staged_by,
    wanted,
    with_root,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a filesystem")


@pytest.fixture(scope="module", params=REFLINKS)
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A filesystem with reflinks."""
    with reflinking(tmp_path_factory.mktemp("host"), request.param) as path:
        yield path


def apart(one: Path, other: Path, size_bytes: int) -> set[int]:
    """Blocks that two files do not share."""
    with one.open("rb") as first, other.open("rb") as second:
        mine, its = extents(first.fileno(), size_bytes), extents(second.fileno(), size_bytes)
        ranges = list(differing(mine, its, size_bytes))
    return {index for start, end in ranges for index in range(start // BLOCK, -(-end // BLOCK))}


def test_unchanged_ranges_are_shared_with_the_old_version_and_changed_ones_never_were(host: Path) -> None:
    """Breaks if a pull takes twice the room of a large file of which one block changed."""
    (host / "ranges").mkdir()
    place = new_place(host / "ranges")
    old = noise(3, 40 * BLOCK + 100)
    new = old[: 7 * BLOCK] + noise(4, BLOCK) + old[8 * BLOCK : 20 * BLOCK] + noise(5, BLOCK) + old[21 * BLOCK :]
    (place.path / "image").write_bytes(old)

    async def work(root: LocalDirectory) -> None:
        found = (await look(root))[b"image"]
        elsewhere = Elsewhere(new)
        origin = Origin(path=P(b"image"), tag=found.tag, content=found.content)
        staged = await staged_by(root, wanted(b"image", new, elsewhere.fetch, origins=(origin,)))
        await done(root, Install(path=P(b"image"), staged=staged, expect=found.tag))
        assert elsewhere.served == 2
        (kept,) = (place.path / ".blocksync/trash").glob("*/item")
        assert kept.read_bytes() == old
        assert (place.path / "image").read_bytes() == new
        assert apart(kept, place.path / "image", len(old)) == {7, 20}

    with_root(place, work)


@pytest.mark.parametrize("length", [30 * BLOCK + 17, 50 * BLOCK, 12 * BLOCK])
def test_a_version_of_another_length_shares_what_it_can(host: Path, length: int) -> None:
    """Breaks if the end of a file, which can be shared only at the end of another, becomes garbage or a failure."""
    (host / f"length-{length}").mkdir()
    place = new_place(host / f"length-{length}")
    old = noise(3, 40 * BLOCK + 100)
    new = (old + noise(4, 20 * BLOCK))[:length]
    (place.path / "image").write_bytes(old)

    async def work(root: LocalDirectory) -> None:
        found = (await look(root))[b"image"]
        origin = Origin(path=P(b"image"), tag=found.tag, content=found.content)
        staged = await staged_by(root, wanted(b"image", new, Elsewhere(new).fetch, origins=(origin,)))
        await done(root, Install(path=P(b"image"), staged=staged, expect=found.tag))
        assert place.visible() == {"image": new}

    with_root(place, work)


def test_what_a_source_does_not_have_after_all_is_fetched_over_what_was_shared(host: Path) -> None:
    """Breaks if bytes of a file that was written to unseen stay in the new version; here NULs take their place."""
    (host / "liar").mkdir()
    place = new_place(host / "liar")
    old = noise(3, 8 * BLOCK)
    new = old[: 2 * BLOCK] + b"short".ljust(BLOCK, b"\0") + old[3 * BLOCK :]
    (place.path / "image").write_bytes(old)

    async def work(root: LocalDirectory) -> None:
        found = (await look(root))[b"image"]
        claimed = content_of(blocks_of(new))
        root.lists.save(claimed, blocks_of(new))
        liar = Origin(path=P(b"image"), tag=found.tag, content=claimed)
        elsewhere = Elsewhere(new)
        staged = await staged_by(root, wanted(b"image", new, elsewhere.fetch, origins=(liar,)))
        await done(root, Install(path=P(b"image"), staged=staged, expect=found.tag))
        assert place.visible() == {"image": new}
        assert elsewhere.served == 1

    with_root(place, work)
