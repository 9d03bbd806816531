from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.hashing import block_id
from blockfs.blocks.segment import RAW
from blockfs.engine import volume
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.attributes import Caller
from blockfs.engine.volume import Volume, VolumeLock
from blockfs.errors import CorruptionError, FormatTooNewError, LockedError, NoSpaceError, NotFoundError, UsageError
from tests.unit.blockfs.engine.volumes import config, make


@pytest.fixture
def path(tmp_path: Path) -> bytes:
    return os.fsencode(tmp_path / "volume")


def test_a_volume_is_what_it_was_made_as(path: bytes) -> None:
    made = volume.init(path, block_size=8192, compression="none")
    assert Volume.load(path) == made
    assert made.block_size == 8192
    assert made.compression == "none"


@pytest.mark.parametrize("compression", volume.COMPRESSIONS)
def test_the_block_directory_compresses_as_the_volume_says(path: bytes, compression: str) -> None:
    made = volume.init(path, compression=compression)
    with BlockDirectory.open(made.blocks_path) as blocks:
        assert blocks.format.compression.value == compression


def test_a_volume_of_format_1_is_read_and_written_raw(path: bytes) -> None:
    made = volume.init(path, compression="none")
    rewrite(path, b"format = 2", b"format = 1")
    rewrite(os.path.join(path, b"blocks"), b"format = 2", b"format = 1", name=b"blocks.toml")
    rewrite(os.path.join(path, b"blocks"), b'compression = "none"\n', b"", name=b"blocks.toml")
    assert Volume.load(path) == made
    filesystem = Filesystem.open(path, config())
    ino = filesystem.namespace.create(1, b"f", mode=0o600, caller=Caller(uid=0, gid=0)).ino
    filesystem.files.write(ino, 0, b"x" * 65536, may_block=True)
    filesystem.files.flush()
    with filesystem.blocks.index.reading() as txn:
        row = filesystem.blocks.index.row(txn, block_id(b"x" * 65536))
    assert row is not None
    assert row.codec == RAW
    filesystem.close()


def test_a_volume_of_format_1_knows_no_compression(path: bytes) -> None:
    volume.init(path, compression="zstd")
    rewrite(path, b"format = 2", b"format = 1")
    with pytest.raises(CorruptionError):
        Volume.load(path)


def test_the_block_size_is_64_kib_unless_said_otherwise(path: bytes) -> None:
    assert volume.init(path).block_size == 65536


def test_a_path_that_is_not_utf8_is_fine(tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"v\xff\xfe")
    volume.init(path)
    Filesystem.open(path, config()).close()


def test_an_empty_directory_becomes_a_volume(path: bytes) -> None:
    os.mkdir(path)
    volume.init(path)
    assert Volume.load(path).path == path


@pytest.mark.parametrize("size", [0, 2048, 5000, 8 << 20])
def test_other_block_sizes_are_refused_before_anything_is_made(path: bytes, size: int) -> None:
    with pytest.raises(UsageError):
        volume.init(path, block_size=size)
    assert not os.path.exists(path)


def test_an_unknown_compression_is_refused(path: bytes) -> None:
    with pytest.raises(UsageError):
        volume.init(path, compression="lz4")


def test_a_directory_with_something_in_it_is_refused(path: bytes) -> None:
    os.mkdir(path)
    os.mkdir(os.path.join(path, b"thesis"))
    with pytest.raises(UsageError):
        volume.init(path)
    assert os.listdir(path) == [b"thesis"]


@pytest.mark.parametrize("existed", [False, True])
def test_what_a_failed_init_made_is_removed(path: bytes, existed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if existed:
        os.mkdir(path)
    with monkeypatch.context() as patched:
        patched.setattr(volume, "write_atomically", fail)
        with pytest.raises(NoSpaceError):
            volume.init(path)
    assert os.path.exists(path) == existed
    volume.init(path)
    Filesystem.open(path, config()).close()


class Killed(BaseException):
    """The process ends here: nothing is cleaned up."""


@pytest.mark.parametrize("steps", range(12))
def test_what_a_killed_init_has_left_is_made_anew(path: bytes, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before each of its steps, one after the other, until it is done."""
    left = steps

    def dying(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(volume, "_remove", lambda _: None)
        for name in ("mkdir", "fsync", "rename"):
            patched.setattr(volume.os, name, dying(getattr(os, name)))
        with contextlib.suppress(Killed):
            volume.init(path)
    if not os.path.exists(os.path.join(path, b"volume.toml")):
        volume.init(path)
    Filesystem.open(path, config()).close()


def test_a_volume_that_lost_its_description_is_not_taken_for_an_unfinished_one(path: bytes) -> None:
    volume.init(path)
    Filesystem.open(path, config()).close()
    os.unlink(os.path.join(path, b"volume.toml"))
    before = sorted(os.listdir(path))
    with pytest.raises(UsageError, match=r"restore that file"):
        volume.init(path)
    assert sorted(os.listdir(path)) == before


def test_two_inits_at_once_do_not_meet(path: bytes) -> None:
    os.mkdir(path)
    first = VolumeLock.acquire(path)
    with pytest.raises(LockedError):
        volume.init(path)
    first.release()


def test_a_missing_parent_is_a_usage_error(path: bytes) -> None:
    with pytest.raises(UsageError):
        volume.init(os.path.join(path, b"deeper"))


def test_no_volume_is_not_found(path: bytes) -> None:
    with pytest.raises(NotFoundError):
        Volume.load(path)


def test_a_newer_format_is_refused(path: bytes) -> None:
    volume.init(path)
    rewrite(path, b"format = 2", b"format = 3")
    with pytest.raises(FormatTooNewError) as caught:
        Filesystem.open(path, config())
    assert caught.value.exit_code == 14


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"format = 2", b"format = 0"),
        (b"format = 2", b"format = 'x'"),
        (b"block_size = 65536", b"block_size = 65537"),
        (b"block_size = 65536", b"block_size = true"),
        (b'compression = "none"', b"compression = 7"),
        (b'uuid = "', b'uuid = "zz'),
        (b"format", b"\xff"),
        (b"block_size", b"size"),
    ],
)
def test_a_damaged_description_is_corruption(path: bytes, old: bytes, new: bytes) -> None:
    volume.init(path)
    rewrite(path, old, new)
    with pytest.raises(CorruptionError):
        Volume.load(path)


@pytest.mark.parametrize("store", ["blocks", "tree"])
def test_a_volume_without_its_blocks_or_its_tree_is_corruption(path: bytes, store: str) -> None:
    """It was told as "no such directory", exit code 10: as if there were no volume."""
    volume.init(path)
    os.rename(os.path.join(path, store.encode()), os.path.join(path, b"away"))
    with pytest.raises(CorruptionError, match=f"/{store} is gone, where a volume has"):
        Volume.load(path)


def test_a_description_that_is_gone_is_corruption(path: bytes) -> None:
    volume.init(path)
    os.unlink(os.path.join(path, b"volume.toml"))
    with pytest.raises(CorruptionError, match=r"volume.toml is gone: `blocksync fsck --repair`"):
        Volume.load(path)


def rewrite(path: bytes, old: bytes, new: bytes, *, name: bytes = b"volume.toml") -> None:
    with open(os.path.join(path, name), "rb") as file:
        text = file.read()
    assert old in text
    with open(os.path.join(path, name), "wb") as file:
        file.write(text.replace(old, new))


@pytest.mark.parametrize("name", [b"lock", b"staging/.probe"])
def test_what_a_volume_writes_to_is_not_found_by_a_link(path: bytes, name: bytes, tmp_path: Path) -> None:
    """Also in a volume of one's own: links that somebody made stay when a directory gets another owner."""
    volume.init(path)
    precious = linked(tmp_path, os.path.join(path, name))
    with pytest.raises(OSError, match="symbolic links"):
        Filesystem.open(path, config())
    assert precious.read_bytes() == PRECIOUS


def test_init_marks_nothing_by_a_link(path: bytes, tmp_path: Path) -> None:
    os.mkdir(path)
    precious = linked(tmp_path, os.path.join(path, b"lock"))
    with pytest.raises(OSError, match="symbolic links"):
        volume.init(path)
    assert precious.read_bytes() == PRECIOUS


def test_a_fifo_in_the_locks_place_holds_up_nobody(path: bytes) -> None:
    os.mkdir(path)
    os.mkfifo(os.path.join(path, b"lock"))
    assert volume.lock_holder(path) is None
    held = os.open(os.path.join(path, b"lock"), os.O_RDWR)
    assert volume.lock_holder(path) is None
    os.close(held)


PRECIOUS = b"of which no byte may change" * 10


def linked(tmp_path: Path, *names: bytes) -> Path:
    """A file that links in the places of these names lead to."""
    precious = tmp_path / "precious"
    precious.write_bytes(PRECIOUS)
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        os.symlink(precious, name)
    return precious


def test_a_second_mount_is_refused_with_the_holders_pid(path: bytes) -> None:
    volume.init(path)
    first = Filesystem.open(path, config())
    with pytest.raises(LockedError) as caught:
        Filesystem.open(path, config())
    assert caught.value.holder_pid == os.getpid()
    first.close()
    Filesystem.open(path, config()).close()


def test_the_lock_of_a_dead_process_is_free(path: bytes) -> None:
    volume.init(path)
    program = (
        "import os, sys; from blockfs.engine.volume import VolumeLock; "
        "VolumeLock.acquire(os.fsencode(sys.argv[1])); os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", program, os.fsdecode(path)], check=False)
    assert done.returncode == 9
    lock = VolumeLock.acquire(path)
    lock.release()
    lock.release()


def test_a_lock_without_a_readable_pid_still_locks(path: bytes) -> None:
    volume.init(path)
    lock = VolumeLock.acquire(path)
    with open(os.path.join(path, b"lock"), "wb") as file:
        file.write(b"?")
    with pytest.raises(LockedError) as caught:
        VolumeLock.acquire(path)
    assert caught.value.holder_pid is None
    lock.release()


def test_a_failed_open_lets_go_of_the_volume(tmp_path: Path) -> None:
    path = make(tmp_path / "volume")
    with open(os.path.join(path, b"tree/data.mdb"), "r+b") as file:
        file.write(bytes(8192))
    with pytest.raises(CorruptionError):
        Filesystem.open(path, config())
    VolumeLock.acquire(path).release()
