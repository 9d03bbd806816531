"""What a program sees on a mount: the same as on the host's filesystem."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import random
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import Mounted

NOREPLACE, EXCHANGE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


def renameat2(old: Path, new: Path, flags: int) -> None:
    if _libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def fails_with(number: int, call: Callable[[], object]) -> None:
    with pytest.raises(OSError, match=rf"Errno {number}\]"):
        call()


def described(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything stat and read tell about a tree, except what must differ between two filesystems."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        kind = stat.S_IFMT(info.st_mode)
        size = info.st_size if kind in {stat.S_IFREG, stat.S_IFLNK} else None
        content: object = None
        if kind == stat.S_IFREG:
            content = path.read_bytes()
        elif kind == stat.S_IFLNK:
            content = os.readlink(path)
        elif kind in {stat.S_IFCHR, stat.S_IFBLK}:
            content = info.st_rdev
        found[str(path.relative_to(root))] = (oct(info.st_mode), info.st_nlink, info.st_uid, info.st_gid, size, content)
    return found


def make_a_bit_of_everything(root: Path) -> None:
    """A fixed sequence of calls, with the errors that both filesystems must raise."""
    (root / "d").mkdir(mode=0o750)
    (root / "d/e").mkdir()
    (root / "d/f").write_bytes(b"content")
    os.link(root / "d/f", root / "d/e/second")
    os.symlink("../f", root / "d/e/link")
    os.mkfifo(root / "fifo", 0o640)
    os.mknod(root / "socket", stat.S_IFSOCK | 0o600)
    if os.geteuid() == 0:
        os.mknod(root / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.chown(root / "d/f", 1234, 4321)
    os.chmod(root / "d/f", 0o4755)
    os.utime(root / "d/f", ns=(1_234_567_891, -5_000_000_001))
    fails_with(errno.EEXIST, (root / "d").mkdir)
    fails_with(errno.ENOTEMPTY, (root / "d").rmdir)
    fails_with(errno.ENOENT, (root / "missing").unlink)
    fails_with(errno.EISDIR, lambda: os.open(root / "d", os.O_WRONLY))
    fails_with(errno.ENOTDIR, lambda: (root / "d/f/x").write_bytes(b""))
    fails_with(errno.ENAMETOOLONG, lambda: (root / ("n" * 256)).write_bytes(b""))
    fails_with(errno.EPERM, lambda: os.link(root / "d", root / "d2"))
    fails_with(errno.EINVAL, lambda: os.rename(root / "d", root / "d/e/inside"))
    fails_with(errno.ENOTDIR, lambda: os.rename(root / "d", root / "fifo"))
    (root / ("n" * 255)).write_bytes(b"long name")
    with (root / "d/sparse").open("wb") as file:
        file.seek(300_000)
        file.write(b"end")
        file.truncate(300_001)
    with (root / "d/appended").open("ab") as file:
        file.write(b"one")
    with (root / "d/appended").open("ab") as file:
        file.write(b"two")
    (root / "d/gone").write_bytes(b"x" * 10)
    (root / "d/gone").unlink()
    os.rename(root / "d/e", root / "moved")
    (root / "replaced").write_bytes(b"old")
    (root / "new").write_bytes(b"new")
    os.rename(root / "new", root / "replaced")
    (root / "short").write_bytes(b"0123456789")
    os.truncate(root / "short", 3)
    (root / "again").write_bytes(b"a long content")
    (root / "again").write_bytes(b"b")  # O_TRUNC


def test_a_tree_looks_like_on_the_host(place: Path, tmp_path: Path) -> None:
    make_a_bit_of_everything(place)
    make_a_bit_of_everything(tmp_path)
    assert described(place) == described(tmp_path)
    assert (place / "d/f").stat().st_mtime_ns == -5_000_000_001


def test_random_writes_read_back_as_on_the_host(place: Path, tmp_path: Path) -> None:
    noise = random.Random(4)
    paths = [place / "file", tmp_path / "file"]
    descriptors = [os.open(path, os.O_RDWR | os.O_CREAT) for path in paths]
    for step in range(300):
        offset, data = noise.randrange(3 << 20), noise.randbytes(noise.choice([1, 100, 4096, 5000, 70_000]))
        for descriptor in descriptors:
            if step % 40 == 39:
                os.ftruncate(descriptor, offset)
            os.pwrite(descriptor, data, offset)
    for descriptor in descriptors:
        os.fsync(descriptor)
        os.close(descriptor)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_file_is_the_same_after_flush_and_remount(mounted: Mounted) -> None:
    noise = random.Random(5)
    data = noise.randbytes(1 << 20) + bytes(1 << 20) + noise.randbytes(12345)
    (mounted.path / "file").write_bytes(data)
    mounted.run("flush", mounted.path)
    assert (mounted.path / "file").read_bytes() == data
    (mounted.path / "unsealed").write_bytes(data)
    before = described(mounted.path)
    mounted.umount()
    assert os.listdir(mounted.path) == []
    mounted.remount()
    assert described(mounted.path) == before
    mounted.umount("--seal")
    assert list((mounted.volume / "staging").iterdir()) == []
    mounted.remount()
    assert described(mounted.path) == before


def test_times_survive_a_remount(mounted: Mounted) -> None:
    """The kernel owns the times of written files and hands them over late; `cp -p` sets old ones."""
    written, kept, folder = mounted.path / "written", mounted.path / "kept", mounted.path / "folder"
    written.write_bytes(b"x" * 100_000)
    kept.write_bytes(b"x" * 100_000)
    os.utime(kept, ns=(1_111_111_111_111, 2_222_222_222_222))
    folder.mkdir()
    with kept.open("rb") as file:
        file.read()
    before = {path: path.stat() for path in (written, kept, folder)}
    assert before[kept].st_mtime_ns == 2_222_222_222_222
    mounted.umount()
    mounted.remount()
    for path, info in before.items():
        assert path.stat().st_mtime_ns == info.st_mtime_ns, path
        assert path.stat().st_mode == info.st_mode


def test_rename_flags_work(place: Path) -> None:
    (place / "a").write_bytes(b"a")
    (place / "b").mkdir()
    fails_with(errno.EEXIST, lambda: renameat2(place / "a", place / "b", NOREPLACE))
    renameat2(place / "a", place / "b", EXCHANGE)
    assert (place / "a").is_dir()
    assert (place / "b").read_bytes() == b"a"
    renameat2(place / "b", place / "c", NOREPLACE)
    fails_with(errno.ENOENT, lambda: renameat2(place / "c", place / "missing", EXCHANGE))
    fails_with(errno.EINVAL, lambda: renameat2(place / "c", place / "d", 1 << 3))
    assert sorted(os.listdir(place)) == ["a", "c"]


def test_extended_attributes_are_kept(place: Path) -> None:
    path = place / "file"
    path.write_bytes(b"")
    os.setxattr(path, "user.one", b"\0\xff")
    os.setxattr(path, "user.big", bytes(60_000))
    fails_with(errno.EEXIST, lambda: os.setxattr(path, "user.one", b"", os.XATTR_CREATE))
    fails_with(errno.ENODATA, lambda: os.setxattr(path, "user.two", b"", os.XATTR_REPLACE))
    os.setxattr(path, "user.one", b"new", os.XATTR_REPLACE)
    assert sorted(os.listxattr(path)) == ["user.big", "user.one"]
    assert os.getxattr(path, "user.one") == b"new"
    assert os.getxattr(path, "user.big") == bytes(60_000)
    os.removexattr(path, "user.big")
    fails_with(errno.ENODATA, lambda: os.getxattr(path, "user.big"))
    fails_with(errno.ENODATA, lambda: os.removexattr(path, "user.big"))


def test_a_file_of_ten_to_the_fifteen_bytes_costs_nothing(place: Path, shared_mount: Mounted) -> None:
    path = place / "huge"
    with path.open("wb") as file:
        file.truncate(10**15)
        file.seek(10**15 - 5)
        file.write(b"tail!")
        file.seek(10**14)
        file.write(b"middle")
    shared_mount.run("flush", place)
    with path.open("rb") as file:
        file.seek(10**15 - 6)
        assert file.read() == b"\0tail!"
        file.seek(10**14 - 1)
        assert file.read(8) == b"\0middle\0"
    assert path.stat().st_size == 10**15
    assert path.stat().st_blocks * 512 <= 1 << 20
    os.truncate(path, 10)
    assert path.read_bytes() == bytes(10)


def test_shared_memory_maps_are_written_back(place: Path, shared_mount: Mounted) -> None:
    path = place / "mapped"
    path.write_bytes(bytes(200_000))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[100_000:100_005] = b"hello"
        mapped[0] = 0xFF
        mapped.flush()
        assert path.read_bytes()[100_000:100_005] == b"hello"
        mapped[199_999] = 7
    shared_mount.run("flush", place)
    assert path.read_bytes() == b"\xff" + bytes(99_999) + b"hello" + bytes(99_994) + b"\x07"


def test_an_unlinked_open_file_lives_until_it_is_closed(place: Path) -> None:
    path = place / "file"
    with path.open("w+b") as file:
        file.write(b"still here")
        path.unlink()
        assert not path.exists()
        assert os.fstat(file.fileno()).st_nlink == 0
        file.seek(0)
        assert file.read() == b"still here"
        file.write(b" and growing")
        os.fsync(file.fileno())
        file.seek(0)
        assert file.read() == b"still here and growing"


def test_a_write_only_handle_can_change_part_of_a_page(place: Path, shared_mount: Mounted) -> None:
    """The kernel fills the page through that very handle: refusing reads on it would fail the write."""
    path = place / "file"
    path.write_bytes(b"a" * 10_000)
    shared_mount.run("flush", place)
    os.system("echo 3 > /proc/sys/vm/drop_caches 2>/dev/null")
    descriptor = os.open(path, os.O_WRONLY)
    os.pwrite(descriptor, b"b", 5000)
    os.close(descriptor)
    assert path.read_bytes() == b"a" * 5000 + b"b" + b"a" * 4999


def test_names_are_bytes(place: Path) -> None:
    names = [b"\xff\xfe", b"caf\xe9", "café".encode(), b"new\nline", b"back\\slash", b" ", b"\x01"]
    for name in names:
        with open(os.path.join(os.fsencode(place), name), "wb") as file:
            file.write(name)
    assert sorted(os.listdir(os.fsencode(place))) == sorted(names)
    for name in names:
        with open(os.path.join(os.fsencode(place), name), "rb") as file:
            assert file.read() == name


def test_large_directories_are_listed_completely_while_they_change(place: Path) -> None:
    expected = {f"name-{number:05}" for number in range(3000)}
    for name in expected:
        (place / name).touch()
    seen = []
    with os.scandir(place) as entries:
        for count, entry in enumerate(entries):
            seen.append(entry.name)
            if count % 10 == 0:
                (place / entry.name).unlink()
                (place / f"added-{count}").touch()
    kept = [name for name in seen if name.startswith("name-")]
    assert len(kept) == len(set(kept))
    assert set(kept) == expected


def test_parallel_writers_do_not_disturb_each_other(place: Path) -> None:
    def work(number: int) -> None:
        noise = random.Random(number)
        for round_ in range(5):
            path = place / f"{number}-{round_}"
            data = noise.randbytes(300_000)
            path.write_bytes(data)
            os.rename(path, place / f"{number}-kept")
            assert (place / f"{number}-kept").read_bytes() == data

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert len(os.listdir(place)) == 6


def test_setgid_directories_pass_their_group_on(place: Path) -> None:
    if os.geteuid() != 0:
        os.chmod(place, 0o2755)
    else:
        os.chown(place, 0, 4242)
        os.chmod(place, 0o2755)
    (place / "d").mkdir()
    (place / "f").touch()
    assert (place / "d").stat().st_mode & stat.S_ISGID
    assert (place / "f").stat().st_gid == place.stat().st_gid


def test_statvfs_speaks_of_the_host(shared_mount: Mounted) -> None:
    here, host = os.statvfs(shared_mount.path), os.statvfs(shared_mount.volume)
    assert here.f_namemax == 255
    assert here.f_blocks * here.f_frsize == host.f_blocks * host.f_frsize
    assert 0 < here.f_bavail * here.f_frsize <= host.f_blocks * host.f_frsize
