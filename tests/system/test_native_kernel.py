"""What the kernel does with files that it reads and writes itself, on hosts with reflinks.

The files are those of `tests.kit.hot_directory`, where nothing is about blocks, and those of the engine.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import select
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import Mounted
from tests.kit.hostfs import REFLINKS, reflinking
from tests.kit.starting import PROJECT
from tests.system.machines import Machines
from tests.system.posix import ALICE, run_as

CAPABILITY = struct.pack("<IIIII", 0x0200_0000, 1 << 10, 0, 0, 0)  # VFS_CAP_REVISION_2: CAP_NET_BIND_SERVICE
LARGE = 6 << 20  # is worth it also for who only reads
PAGE = 4096
OWNERS = ("directory", "engine")
FRONTENDS = ("kernel",)


@pytest.fixture(scope="module", params=[(kind, owner) for kind in sorted(REFLINKS) for owner in OWNERS], ids="-".join)
def native(request: pytest.FixtureRequest, fuse: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    """A native mount that lets all users in. In its folder `cold` are files that were not opened yet."""
    kind, owner = request.param
    with reflinking(tmp_path_factory.mktemp(kind), kind) as host:
        home = host / "home"
        home.mkdir()
        machines = Machines(home)
        try:
            path = machines.volume("m")
            (path / "cold").mkdir()
            (path / "cold" / "small").write_bytes(b"before")
            (path / "cold" / "large").write_bytes(b"x" * LARGE)
            machines.run("umount", path, "--seal")
            if owner == "engine":
                machines.remount("m", "--allow-other", "--native")
            else:
                command = [sys.executable, "-m", "tests.system.hot_mount", home / "volume-m", path, "allow_other"]
                subprocess.run(command, check=True, cwd=PROJECT)
            assert json.loads(machines.run("stats", path, "--json").stdout)["mode"] == "native"
            process = os.pidfd_open(machines.mount_pid("m"))
            yield Mounted(machines, "m", home / "volume-m", path)
            machines.run("umount", path)
            select.select([process], [], [])  # the host is busy while it commits
            os.close(process)
            machines.run("fsck", home / "volume-m")
        finally:
            machines.close()


@pytest.fixture
def here(native: Mounted, request: pytest.FixtureRequest) -> Path:
    path = native.path / request.node.name.replace("[", "-").replace("]", "")
    path.mkdir()
    return path


def on_host(native: Mounted, path: Path) -> Path | None:
    """The file that the kernel reads and writes."""
    ino = path.stat().st_ino
    return next(iter([*native.volume.glob(f"hot/{ino}.*"), *native.volume.glob(f"hot-files/{ino}")]), None)


def host_bytes(native: Mounted, path: Path) -> bytes:
    found = on_host(native, path)
    assert found is not None
    return found.read_bytes()


def requests(native: Mounted) -> dict[str, int]:
    told = json.loads(native.run("stats", native.path, "--json").stdout)["requests"]
    return {name: told.get(name, 0) for name in ("read", "write")}


def test_contents_never_come_to_us(native: Mounted, here: Path) -> None:
    before = requests(native)
    path = here / "file"
    path.write_bytes(b"a" * LARGE)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), LARGE) as mapped:
        mapped[5:7] = b"mm"
        os.pwrite(file.fileno(), b"pp", 9)
        assert mapped[9:11] == b"pp"
        assert os.pread(file.fileno(), 3, 4) == b"amm"
    with path.open("ab") as file:
        file.write(b"end")
    direct = os.open(path, os.O_RDWR | os.O_DIRECT)
    page = mmap.mmap(-1, PAGE)
    page.write(b"d" * PAGE)
    assert os.pwritev(direct, [page], PAGE) == PAGE
    os.close(direct)
    wanted = bytearray(b"a" * LARGE + b"end")
    wanted[5:7], wanted[9:11], wanted[PAGE : 2 * PAGE] = b"mm", b"pp", b"d" * PAGE
    assert path.read_bytes() == wanted
    assert host_bytes(native, path) == wanted
    assert requests(native) == before


def test_size_and_times_follow_what_the_kernel_writes(here: Path) -> None:
    """Breaks when `make` or a backup does not see that a file was written, by a mapping for example."""
    path = here / "file"
    with path.open("w+b") as file:
        os.ftruncate(file.fileno(), 2 * PAGE)
        os.utime(path, ns=(10**9, 10**9))
        assert path.stat().st_mtime_ns == 10**9
        with mmap.mmap(file.fileno(), 2 * PAGE) as mapped:
            mapped[0] = 1
            mapped.flush()
        assert path.stat().st_mtime_ns > 10**9
        os.utime(path, ns=(10**9, 10**9))
        file.seek(0, os.SEEK_END)
        file.write(b"more")
        file.flush()
        now = path.stat()
        assert (now.st_size, now.st_mtime_ns > 10**9) == (2 * PAGE + 4, True)
        os.truncate(path, 3)
        assert os.fstat(file.fileno()).st_size == path.stat().st_size == 3
        assert os.pread(file.fileno(), 10, 0) == b"\1\0\0"


def test_a_mapping_outlives_its_handle_and_stays_coherent(here: Path) -> None:
    """RELEASE comes when the handle is closed; who opens the file after that shares it with the mapping."""
    path = here / "file"
    path.write_bytes(bytes(PAGE))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    descriptor = os.open(path, os.O_RDWR)
    address = libc.mmap(None, PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
    os.close(descriptor)
    assert address not in {None, ctypes.c_void_p(-1).value}
    try:
        ctypes.memmove(address, b"stored", 6)
        assert path.read_bytes()[:6] == b"stored"
        with path.open("r+b") as file:
            file.write(b"S")
        assert ctypes.string_at(address, 6) == b"Stored"
        path.unlink()
        ctypes.memmove(address, b"gone", 4)
        assert ctypes.string_at(address, 6) == b"goneed"
    finally:
        libc.munmap(address, PAGE)


def test_a_small_file_that_is_being_read_is_written_through_us_and_all_see_it(native: Mounted) -> None:
    path = native.path / "cold" / "small"
    with path.open("rb") as reader, mmap.mmap(reader.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        before = requests(native)
        with path.open("r+b") as writer, mmap.mmap(writer.fileno(), 0) as stores:
            os.utime(path, ns=(10**9, 10**9))
            os.pwrite(writer.fileno(), b"AF", 2)
            assert path.stat().st_mtime_ns > 10**9
            assert mapped[:] == b"beAFre"
            stores[0:1] = b"B"
        assert os.pread(reader.fileno(), 9, 0) == b"BeAFre"
        assert requests(native)["write"] > before["write"]
        assert on_host(native, path) is None
    path.write_bytes(b"anew")
    assert path.read_bytes() == b"anew"
    assert on_host(native, path) is None


def test_many_that_open_a_file_at_once_share_it(native: Mounted) -> None:
    """Breaks when some of them fail with EIO."""
    path = native.path / "cold" / "large"

    def use(number: int) -> bytes:
        for turn in range(20):
            descriptor = os.open(path, (os.O_RDWR, os.O_RDONLY)[(number + turn) % 2])
            data = os.pread(descriptor, 1, number)
            os.close(descriptor)
        return data

    with ThreadPoolExecutor(16) as threads:
        assert set(threads.map(use, range(64))) == {b"x"}


def test_an_open_file_outlives_its_name_and_what_takes_it(here: Path) -> None:
    path = here / "file"
    for end in (os.unlink, lambda name: os.replace(here / "other", name)):
        path.write_bytes(b"old")
        (here / "other").write_bytes(b"new")
        with path.open("r+b") as file:
            end(path)
            file.seek(0, os.SEEK_END)
            file.write(b"er")
            file.flush()
            assert os.pread(file.fileno(), 9, 0) == b"older"
            assert os.fstat(file.fileno()).st_size == 5
    assert path.read_bytes() == b"new"


def test_a_file_without_a_name_gets_one(native: Mounted, here: Path) -> None:
    descriptor = os.open(here, os.O_TMPFILE | os.O_RDWR)
    os.write(descriptor, b"content")
    os.link(f"/proc/self/fd/{descriptor}", here / "file", src_dir_fd=descriptor)  # linkat(2) with AT_SYMLINK_FOLLOW
    os.close(descriptor)
    assert (here / "file").read_bytes() == b"content"
    assert host_bytes(native, here / "file") == b"content"


def test_an_open_that_truncates_cuts_for_all(here: Path) -> None:
    path = here / "file"
    path.write_bytes(b"x" * LARGE)
    with path.open("rb") as reader:
        with path.open("wb") as writer:
            assert os.fstat(reader.fileno()).st_size == 0
            writer.write(b"anew")
        assert reader.read() == b"anew"


def test_holes_are_made_found_and_copied(here: Path) -> None:
    path = here / "file"
    path.write_bytes(b"x" * LARGE)
    subprocess.run(["fallocate", "-p", "-o", "4096", "-l", "8192", path], check=True)
    assert path.read_bytes()[PAGE : 3 * PAGE] == bytes(2 * PAGE)
    subprocess.run(["fallocate", "-l", str(LARGE + PAGE), path], check=True)
    assert path.stat().st_size == LARGE + PAGE
    with path.open("r+b") as file:
        os.ftruncate(file.fileno(), 2 * LARGE)
        os.pwrite(file.fileno(), b"y", 3 * LARGE - 1)
        assert os.lseek(file.fileno(), 2 * LARGE, os.SEEK_DATA) == 3 * LARGE - PAGE
        assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) <= 2 * LARGE
    subprocess.run(["cp", "--sparse=never", path, here / "copy"], check=True)
    assert (here / "copy").read_bytes() == path.read_bytes()


def test_privileges_are_gone_after_a_write_by_somebody_else(here: Path) -> None:
    """Breaks when a program that grants its owner's rights can be filled by whoever may write to it."""
    here.chmod(0o777)
    path = here / "program"
    for write in (_write, _truncate, _open_anew, _copy, _punch):
        path.write_bytes(b"program")
        path.chmod(0o6777)
        os.setxattr(path, "security.capability", CAPABILITY)
        assert os.stat(path).st_mode & 0o7777 == 0o6777
        run_as(ALICE, here, write)
        assert (write, oct(os.stat(path).st_mode & 0o7777)) == (write, "0o777")
        assert "security.capability" not in os.listxattr(path)


def _write() -> None:
    with open("program", "r+b") as file:
        file.write(b"x")


def _truncate() -> None:
    os.truncate("program", 3)


def _open_anew() -> None:
    os.close(os.open("program", os.O_WRONLY | os.O_TRUNC))


def _copy() -> None:
    with open("program", "r+b") as file:
        assert os.copy_file_range(file.fileno(), file.fileno(), 2, 0, 4) == 2


def _punch() -> None:
    subprocess.run(["fallocate", "-p", "-o", "0", "-l", "4096", "program"], check=True)


def test_roots_own_write_leaves_setuid_and_ends_capabilities(here: Path) -> None:
    path = here / "program"
    path.write_bytes(b"program")
    path.chmod(0o6777)
    _append(path)
    assert os.stat(path).st_mode & 0o7777 == 0o6777
    os.setxattr(path, "security.capability", CAPABILITY)
    _append(path)
    assert "security.capability" not in os.listxattr(path)


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def test_chown_to_nobody_ends_privileges(here: Path) -> None:
    path = here / "program"
    path.write_bytes(b"program")
    path.chmod(0o6777)
    os.chown(path, -1, -1)
    assert os.stat(path).st_mode & 0o7777 == 0o777


def test_a_program_runs_and_cant_be_written_meanwhile(here: Path) -> None:
    path = here / "program"
    shutil.copy("/bin/sleep", path)
    process = subprocess.Popen([path, "60"])
    try:
        with pytest.raises(OSError, match="Text file busy"):
            path.open("r+b")
    finally:
        process.kill()
        process.wait()
    path.open("r+b").close()
