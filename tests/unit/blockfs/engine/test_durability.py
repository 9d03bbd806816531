"""Each durability sequence, killed before every one of its steps; and the order of the steps, for power cuts.

A step is what `EngineConfig.checkpoint` is told of. An LMDB commit and a group sync of the block directory are one step
each: what happens inside them is tested with them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from blockfs.engine.copies.conditions import Expectation, Place
from blockfs.engine.copies.new_files import NewFile
from blockfs.engine.filesystem import Filesystem
from blockfs.tree.schema import ROOT_INO
from tests.unit.blockfs.engine import volumes
from tests.unit.blockfs.engine.volumes import (
    USER,
    Died,
    Killer,
    PowerCut,
    config,
    content,
    create,
    find,
    findings,
    make,
)

BLOCK = 8192
OLD = b"old" * 7000  # 21,000 bytes: two blocks and a half
NEW = b"NEW" * 9000

Contents = dict[bytes, bytes | None]


class Sequence(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must be all or nothing.

    Attributes:
        prepare: Brings about the old state, durably.
        run: Does it, and makes it durable.
        before: Old contents of the names that matter.
        after: New ones.
    """

    prepare: Callable[[Filesystem], None]
    run: Callable[[Filesystem], None]
    before: Contents
    after: Contents


def put(filesystem: Filesystem, name: bytes, data: bytes, *, sealed: bool) -> None:
    ino = create(filesystem, name)
    filesystem.files.write(ino, 0, data, may_block=True)
    if sealed:
        filesystem.files.flush()
    else:
        filesystem.files.fsync(ino)


def ino_of(filesystem: Filesystem, name: bytes) -> int:
    ino = find(filesystem, name)
    assert ino is not None
    return ino


def nothing(filesystem: Filesystem) -> None:
    filesystem.commit()


def staged_file(filesystem: Filesystem) -> None:
    put(filesystem, b"f", OLD, sealed=False)


def sealed_file(filesystem: Filesystem) -> None:
    put(filesystem, b"f", OLD, sealed=True)


def write_new_file(filesystem: Filesystem) -> None:
    put(filesystem, b"f", NEW, sealed=False)


def truncate_to(size: int) -> Callable[[Filesystem], None]:
    def run(filesystem: Filesystem) -> None:
        ino = ino_of(filesystem, b"f")
        filesystem.files.truncate(ino, size, may_block=True)
        filesystem.files.fsync(ino)

    return run


def cut_and_grow(filesystem: Filesystem) -> None:
    ino = ino_of(filesystem, b"f")
    with filesystem.lock:
        filesystem.files.truncate(ino, 5000, may_block=True)
        filesystem.files.truncate(ino, len(OLD))
    filesystem.files.fsync(ino)


def overwrite(filesystem: Filesystem) -> None:
    ino = ino_of(filesystem, b"f")
    filesystem.files.write(ino, 4096, b"!" * 4096, may_block=True)
    filesystem.files.fsync(ino, datasync=True)


def append(filesystem: Filesystem) -> None:
    ino = ino_of(filesystem, b"f")
    filesystem.files.write(ino, len(OLD), NEW, may_block=True)
    filesystem.files.fsync(ino)


def make_hole(offset: int, length: int) -> Callable[[Filesystem], None]:
    def run(filesystem: Filesystem) -> None:
        ino = ino_of(filesystem, b"f")
        filesystem.files.zero(ino, offset, length, keeps_size=True)
        filesystem.files.fsync(ino)

    return run


def copy_range(filesystem: Filesystem) -> None:
    ino = ino_of(filesystem, b"f")
    assert filesystem.copy_range(ino, 0, ino, 3 * BLOCK, 2 * BLOCK) == 2 * BLOCK
    filesystem.files.fsync(ino)


def flush(filesystem: Filesystem) -> None:
    filesystem.files.flush()


def clone(filesystem: Filesystem) -> None:
    filesystem.clone(ino_of(filesystem, b"f"), ROOT_INO, b"g")
    filesystem.commit()


def save(filesystem: Filesystem) -> None:
    """What editors do."""
    ino = create(filesystem, b"f.tmp")
    filesystem.files.write(ino, 0, NEW)
    filesystem.namespace.rename(ROOT_INO, b"f.tmp", ROOT_INO, b"f", may_block=True)
    filesystem.commit()


def apply_content(filesystem: Filesystem) -> None:
    old = filesystem.tree.inode(ino_of(filesystem, b"f"))
    assert old is not None
    with filesystem.blocks.hold() as hold:
        ids = b"".join(filesystem.blocks.put(NEW[at : at + BLOCK], hold) for at in range(0, len(NEW), BLOCK))
        filesystem.blocks.sync()
        handle = filesystem.apply.prepare_file(size_bytes=len(NEW), mode=0o644, caller=USER, mtime_ns=0)
        assert filesystem.apply.set_blocks(handle, 0, ids) == []
    filesystem.commit()
    filesystem.apply.install_file(
        handle,
        Place(parent=ROOT_INO, name=b"f"),
        Expectation(ino=old.ino, content_version=old.content_version),
        trash=Place(parent=ROOT_INO, name=b"t"),
    )
    filesystem.commit()


def make_files(filesystem: Filesystem) -> None:
    with filesystem.blocks.hold() as hold:
        ids = b"".join(filesystem.blocks.put(NEW[at : at + BLOCK], hold) for at in range(0, len(NEW), BLOCK))
        filesystem.blocks.sync()
        places = [Place(parent=ROOT_INO, name=name) for name in (b"n", b"m")]
        filesystem.new_files.make(
            [
                NewFile(place=place, size_bytes=len(NEW), mode=0o644, caller=USER, mtime_ns=0, ids=ids)
                for place in places
            ]
        )
    filesystem.commit()


def unlink(filesystem: Filesystem) -> None:
    filesystem.namespace.unlink(ROOT_INO, b"f")
    filesystem.commit()


SEQUENCES = {
    "write and fsync of a new file": Sequence(
        prepare=nothing, run=write_new_file, before={b"f": None}, after={b"f": NEW}
    ),
    "shrink of a staged file": Sequence(
        prepare=staged_file, run=truncate_to(5000), before={b"f": OLD}, after={b"f": OLD[:5000]}
    ),
    "shrink of a sealed file inside a block": Sequence(
        prepare=sealed_file, run=truncate_to(5000), before={b"f": OLD}, after={b"f": OLD[:5000]}
    ),
    "shrink of a sealed file at a block's border": Sequence(
        prepare=sealed_file, run=truncate_to(BLOCK), before={b"f": OLD}, after={b"f": OLD[:BLOCK]}
    ),
    "shrink and growth of a staged file": Sequence(
        prepare=staged_file, run=cut_and_grow, before={b"f": OLD}, after={b"f": OLD[:5000].ljust(len(OLD), b"\0")}
    ),
    "shrink and growth of a sealed file": Sequence(
        prepare=sealed_file, run=cut_and_grow, before={b"f": OLD}, after={b"f": OLD[:5000].ljust(len(OLD), b"\0")}
    ),
    "extension by a hole": Sequence(
        prepare=sealed_file, run=truncate_to(50000), before={b"f": OLD}, after={b"f": OLD.ljust(50000, b"\0")}
    ),
    "overwrite of a sealed page and fdatasync": Sequence(
        prepare=sealed_file, run=overwrite, before={b"f": OLD}, after={b"f": OLD[:4096] + b"!" * 4096 + OLD[8192:]}
    ),
    "a hole of whole blocks in a sealed file": Sequence(
        prepare=sealed_file,
        run=make_hole(BLOCK, len(OLD)),
        before={b"f": OLD},
        after={b"f": OLD[:BLOCK].ljust(len(OLD), b"\0")},
    ),
    "a hole of all that is staged": Sequence(
        prepare=staged_file, run=make_hole(0, len(OLD)), before={b"f": OLD}, after={b"f": bytes(len(OLD))}
    ),
    "a hole of one staged page": Sequence(
        prepare=staged_file,
        run=make_hole(4096, 4096),
        before={b"f": OLD},
        after={b"f": OLD[:4096] + bytes(4096) + OLD[8192:]},
    ),
    "copy of a range of a sealed file": Sequence(
        prepare=sealed_file,
        run=copy_range,
        before={b"f": OLD},
        after={b"f": OLD[: 2 * BLOCK] + OLD[2 * BLOCK :].ljust(BLOCK, b"\0") + OLD[: 2 * BLOCK]},
    ),
    "seal": Sequence(prepare=staged_file, run=flush, before={b"f": OLD}, after={b"f": OLD}),
    "clone of a staged file": Sequence(
        prepare=staged_file, run=clone, before={b"f": OLD, b"g": None}, after={b"f": OLD, b"g": OLD}
    ),
    "write a temporary file and rename it over": Sequence(
        prepare=staged_file, run=save, before={b"f": OLD}, after={b"f": NEW}
    ),
    "apply": Sequence(
        prepare=sealed_file, run=apply_content, before={b"f": OLD, b"t": None}, after={b"f": NEW, b"t": OLD}
    ),
    "new files": Sequence(
        prepare=nothing, run=make_files, before={b"n": None, b"m": None}, after={b"n": NEW, b"m": NEW}
    ),
    "unlink of a staged file": Sequence(prepare=staged_file, run=unlink, before={b"f": OLD}, after={b"f": None}),
}


def contents(filesystem: Filesystem, names: Contents) -> Contents:
    return {name: content(filesystem, name) for name in names}


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=list(SEQUENCES))
def test_a_death_before_any_step_leaves_all_or_nothing(tmp_path: Path, sequence: Sequence, power_cut: bool) -> None:
    """Breaks when a step is done before what it relies on is durable."""
    steps = 0
    while True:
        path = make(tmp_path / f"volume{steps}", block_size=BLOCK)
        killer, power = Killer(), PowerCut()
        filesystem = Filesystem.open(path, config(killer))
        power.watch(filesystem)
        sequence.prepare(filesystem)
        assert contents(filesystem, sequence.before) == sequence.before
        killer.arm(steps)
        died = True
        with contextlib.suppress(Died):
            sequence.run(filesystem)
            died = False
        filesystem.abandon()
        if power_cut:
            power.strike(os.path.join(path, b"staging"), steps)
        again = Filesystem.open(path, config())
        found = contents(again, sequence.before)
        assert found == sequence.after or (died and found == sequence.before)
        again.files.flush()
        assert contents(again, sequence.before) == found
        assert findings(again) == []
        again.close()
        assert os.listdir(os.path.join(path, b"staging")) == []
        if not died:
            break
        steps += 1
    assert steps >= 1


def test_an_append_without_fsync_may_be_lost_but_is_never_nul_bytes(tmp_path: Path) -> None:
    """The size is published only after the data are flushed."""
    for steps in range(6):
        path = make(tmp_path / f"volume{steps}", block_size=BLOCK)
        killer, power = Killer(), PowerCut()
        filesystem = Filesystem.open(path, config(killer))
        power.watch(filesystem)
        sealed_file(filesystem)
        killer.arm(steps)
        with contextlib.suppress(Died):
            append(filesystem)
        filesystem.abandon()
        power.strike(os.path.join(path, b"staging"), steps)
        again = Filesystem.open(path, config())
        assert content(again, b"f") in {OLD, OLD + NEW}
        again.close()


def test_growing_publishes_no_size_whose_data_are_not_flushed(tmp_path: Path) -> None:
    filesystem = Filesystem.open(make(tmp_path / "volume", block_size=BLOCK), config())
    ino = create(filesystem, b"f")
    filesystem.files.write(ino, 0, NEW)
    filesystem.files.truncate(ino, 100_000)
    filesystem.commit()
    filesystem.abandon()
    again = Filesystem.open(filesystem.volume.path, config())
    assert content(again, b"f") == b""
    again.close()


def test_a_cut_of_an_unpublished_file_cuts_the_published_size(tmp_path: Path) -> None:
    """Else the size would promise bytes that are void."""
    filesystem = Filesystem.open(make(tmp_path / "volume", block_size=BLOCK), config())
    staged_file(filesystem)
    ino = ino_of(filesystem, b"f")
    filesystem.files.write(ino, len(OLD), NEW)
    filesystem.files.truncate(ino, 5000)
    filesystem.commit()
    filesystem.abandon()
    again = Filesystem.open(filesystem.volume.path, config())
    assert content(again, b"f") == OLD[:5000]
    again.close()


def test_a_flush_publishes_no_more_than_it_has_flushed(tmp_path: Path) -> None:
    grown: list[int] = []

    def checkpoint(step: str) -> None:
        if step == "staging.sync_names" and not grown:
            grown.append(filesystem.files.write(ino, len(NEW), NEW))

    path = make(tmp_path / "volume", block_size=BLOCK)
    filesystem = Filesystem.open(path, config(checkpoint))
    ino = create(filesystem, b"f")
    filesystem.files.write(ino, 0, NEW)
    filesystem.files.fsync(ino)
    assert grown
    row = filesystem.tree.inode(ino)
    assert row is not None
    assert row.size_bytes == len(NEW)
    filesystem.close()


# --- the order, which a power cut relies on ---


@pytest.fixture
def killer() -> Killer:
    return Killer()


@pytest.fixture
def filesystem(tmp_path: Path, killer: Killer) -> Filesystem:
    return Filesystem.open(make(tmp_path / "volume", block_size=BLOCK), config(killer))


def steps_of(filesystem: Filesystem, killer: Killer, run: Callable[[Filesystem], None]) -> list[str]:
    killer.disarm()
    run(filesystem)
    steps = list(killer.steps)
    filesystem.close()
    return steps


def test_data_are_flushed_before_the_tree_tells_of_them(filesystem: Filesystem, killer: Killer) -> None:
    assert steps_of(filesystem, killer, write_new_file) == [
        "staging.create",
        "staging.fdatasync",
        "staging.sync_names",
        "tree.write",
    ]


def test_a_seal_syncs_blocks_then_commits_then_unlinks(filesystem: Filesystem, killer: Killer) -> None:
    staged_file(filesystem)
    assert steps_of(filesystem, killer, flush) == ["blocks.put", "blocks.sync", "tree.write", "staging.unlink"]


def test_an_adoption_syncs_the_staged_file_then_commits_then_unlinks(
    tmp_path: Path, killer: Killer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volumes, "ADOPT_BYTES", 1)
    filesystem = Filesystem.open(make(tmp_path / "volume", block_size=BLOCK), config(killer))
    staged_file(filesystem)
    steps = steps_of(filesystem, killer, flush)
    assert steps == ["staging.fdatasync", "blocks.adopt", "blocks.sync", "tree.write", "staging.unlink"]


def test_a_rename_over_flushes_the_renamed_file_first(filesystem: Filesystem, killer: Killer) -> None:
    sealed_file(filesystem)
    assert steps_of(filesystem, killer, save) == [
        "staging.create",
        "staging.fdatasync",
        "staging.sync_names",
        "tree.write",
    ]


def test_a_cut_block_is_durable_before_the_tree_refers_to_it(filesystem: Filesystem, killer: Killer) -> None:
    sealed_file(filesystem)
    assert steps_of(filesystem, killer, truncate_to(5000)) == ["blocks.sync", "tree.write"]


def test_overwriting_staged_pages_costs_one_fdatasync_and_no_commit(filesystem: Filesystem, killer: Killer) -> None:
    """A guest that syncs 4 KiB pages pays for nothing else."""
    staged_file(filesystem)
    ino = ino_of(filesystem, b"f")

    killer.disarm()
    filesystem.files.write(ino, 0, b"x" * 4096)
    filesystem.files.fsync(ino, datasync=True)
    assert killer.steps == ["staging.fdatasync"]
    filesystem.close()


def test_fsync_of_one_file_flushes_only_that_file(filesystem: Filesystem, killer: Killer) -> None:
    other = create(filesystem, b"other")
    filesystem.files.write(other, 0, b"x" * 100_000)
    assert steps_of(filesystem, killer, write_new_file).count("staging.fdatasync") == 1


def test_what_an_fsync_made_superfluous_goes_with_the_next_commit(filesystem: Filesystem, killer: Killer) -> None:
    put(filesystem, b"stream", OLD, sealed=False)
    ino = create(filesystem, b"f")
    filesystem._sealer.seal_all()

    def run(mounted: Filesystem) -> None:
        mounted.files.fsync(ino)
        mounted.commit()

    assert steps_of(filesystem, killer, run) == ["tree.write", "staging.unlink"]


def test_only_a_commit_that_nobody_waits_for_removes_staging_files(filesystem: Filesystem, killer: Killer) -> None:
    put(filesystem, b"stream", OLD, sealed=False)
    ino = create(filesystem, b"f")
    filesystem._sealer.seal_all()
    assert steps_of(filesystem, killer, lambda mounted: mounted.files.fsync(ino)) == ["tree.write"]


def test_a_second_fsync_has_nothing_to_do(filesystem: Filesystem, killer: Killer) -> None:
    staged_file(filesystem)
    ino = ino_of(filesystem, b"f")
    assert steps_of(filesystem, killer, lambda mounted: mounted.files.fsync(ino)) == []


def test_a_directory_entry_is_durable_after_fsync_of_its_file(filesystem: Filesystem, killer: Killer) -> None:
    staged_file(filesystem)
    ino = ino_of(filesystem, b"f")
    filesystem.namespace.rename(ROOT_INO, b"f", ROOT_INO, b"g")
    assert steps_of(filesystem, killer, lambda mounted: mounted.files.fsync(ino, datasync=True)) == ["tree.write"]
