"""A full disk and damaged volumes: a clear message, the right exit code, no loss."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Mounted
from tests.system.machines import Machines

MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A host filesystem of 64 MiB."""
    path = tmp_path_factory.mktemp("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", path], check=True)
    yield path
    subprocess.run(["umount", path], check=True)


@pytest.fixture
def on_small_disk(small_disk: Path, machines: Machines) -> Iterator[Mounted]:
    volume, mountpoint = small_disk / "volume", machines.home / "m"
    mountpoint.mkdir()
    machines.run("init", volume)
    machines.run("mount", volume, mountpoint)
    machines.mounts["m"] = mountpoint
    yield Mounted(machines, "m", volume, mountpoint)
    machines.close()


def fill(path: Path, *, size: int = 200 * MIB) -> int:
    """Write noise until the disk is full; returns what arrived before."""
    noise = random.Random(1)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    arrived = 0
    try:
        while arrived < size:
            os.pwrite(descriptor, noise.randbytes(MIB), arrived)
            os.fsync(descriptor)
            arrived += MIB
    finally:
        with contextlib.suppress(OSError):  # the kernel tells it once more
            os.close(descriptor)
    return arrived


def test_a_full_disk_is_told_to_the_writer_and_nothing_else_is_lost(on_small_disk: Mounted) -> None:
    mounted = on_small_disk
    kept = random.Random(2).randbytes(4 * MIB)
    (mounted.path / "kept").write_bytes(kept)
    mounted.run("flush", mounted.path)
    with pytest.raises(OSError, match="No space left"):
        fill(mounted.path / "big")
    assert (mounted.path / "kept").read_bytes() == kept
    flushed = mounted.run("flush", mounted.path, expect=17)
    assert "No space left on device; free some space" in flushed.stderr
    (mounted.path / "big").unlink()
    mounted.run("flush", mounted.path)
    mounted.run("gc", mounted.path)
    (mounted.path / "after").write_bytes(kept[::-1])
    mounted.run("flush", mounted.path)
    mounted.umount()
    mounted.run("fsck", mounted.volume)
    mounted.run("scrub", mounted.volume)
    mounted.run("mount", mounted.volume, mounted.path)
    assert (mounted.path / "kept").read_bytes() == kept
    assert (mounted.path / "after").read_bytes() == kept[::-1]


@pytest.mark.parametrize("room", [0, 8 << 10, 64 << 10, 160 << 10])
def test_a_full_disk_stops_init_with_its_own_exit_code_and_leaves_nothing(
    small_disk: Path, machines: Machines, room: int
) -> None:
    with contextlib.suppress(OSError), open(small_disk / "filler", "wb", buffering=0) as filler:
        while filler.write(bytes(4096)):
            pass
    if room:
        os.truncate(small_disk / "filler", (small_disk / "filler").stat().st_size - room)
    machines.run("init", small_disk / "volume", expect=17)
    assert not (small_disk / "volume").exists()
    (small_disk / "filler").unlink()
    machines.run("init", small_disk / "volume")


@pytest.fixture
def with_content(mounted: Mounted) -> tuple[Mounted, bytes]:
    """A volume with one sealed file, unmounted."""
    data = random.Random(3).randbytes(2 * MIB)
    (mounted.path / "other").write_bytes(b"sound")
    mounted.run("flush", mounted.path)
    (mounted.path / "folder").mkdir()
    (mounted.path / "folder" / "file").write_bytes(data)
    mounted.umount("--seal")
    return mounted, data


def test_a_garbage_block_index_is_refused_and_can_be_rebuilt(with_content: tuple[Mounted, bytes]) -> None:
    mounted, data = with_content
    index = mounted.volume / "blocks" / "index" / "data.mdb"
    index.write_bytes(random.Random(4).randbytes(index.stat().st_size))
    for command in (("mount", mounted.volume, mounted.path), ("fsck", mounted.volume), ("scrub", mounted.volume)):
        refused = mounted.run(*command, expect=15)
        assert "index" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert "fsck --repair" in mounted.run("mount", mounted.volume, mounted.path, expect=15).stderr
    mounted.run("fsck", mounted.volume, "--repair")
    mounted.remount()
    assert (mounted.path / "folder" / "file").read_bytes() == data
    mounted.run("scrub", mounted.path)


def test_a_garbage_tree_is_refused(with_content: tuple[Mounted, bytes]) -> None:
    mounted, _ = with_content
    tree = mounted.volume / "tree" / "data.mdb"
    tree.write_bytes(random.Random(5).randbytes(tree.stat().st_size))
    for command in (("mount", mounted.volume, mounted.path), ("fsck", mounted.volume)):
        refused = mounted.run(*command, expect=15)
        assert "tree" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_a_truncated_segment_is_found_by_scrub_and_by_readers(with_content: tuple[Mounted, bytes]) -> None:
    mounted, data = with_content
    (segment,) = (mounted.volume / "blocks" / "segments").glob("*.seg")
    os.truncate(segment, segment.stat().st_size - MIB)
    scrubbed = mounted.run("scrub", mounted.volume, "--json", expect=15)
    report = json.loads(scrubbed.stdout)
    assert report["clean"] is False
    assert 15 <= len(report["corrupt"]) <= 17
    assert report["paths"] == ["folder/file"]
    mounted.remount()
    mounted.run("scrub", mounted.path, expect=15)
    with pytest.raises(OSError, match="Input/output error"):
        (mounted.path / "folder" / "file").read_bytes()
    with (mounted.path / "folder" / "file").open("rb") as file:
        assert file.read(MIB // 2) == data[: MIB // 2]  # what is not damaged can still be read
    mounted.run("fsck", mounted.path, expect=15)  # the file lacks blocks


def test_a_changed_byte_in_a_block_is_found_by_scrub(with_content: tuple[Mounted, bytes]) -> None:
    mounted, _ = with_content
    (segment,) = (mounted.volume / "blocks" / "segments").glob("*.seg")
    with segment.open("r+b") as file:
        file.seek(segment.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    report = json.loads(mounted.run("scrub", mounted.volume, "--json", expect=15).stdout)
    assert len(report["corrupt"]) == 1


def test_a_volume_of_the_future_is_not_touched(with_content: tuple[Mounted, bytes]) -> None:
    mounted, _ = with_content
    description = mounted.volume / "volume.toml"
    description.write_text(re.sub("format = [0-9]+", "format = 99", description.read_text()))
    for command in (("mount", mounted.volume, mounted.path), ("fsck", mounted.volume), ("gc", mounted.volume)):
        assert "upgrade" in mounted.run(*command, expect=14).stderr
