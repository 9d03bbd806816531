"""The two front-ends show one mount: what users see of it is the same, and each is what was asked for."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockfs.runtime.mountinfo import read_mounts
from tests.conftest import Mounted, mounted_below
from tests.system.machines import BLOCKSYNC, Machines
from tests.system.namespaces import passed
from tests.system.posix import ALICE, run_as

NAMES = ["kernel", "pyfuse3"]
FRONTENDS = ("kernel",)  # for what does not choose by itself
CAPABILITY = struct.pack("<IIIII", 0x0200_0000, 1 << 10, 0, 0, 0)  # VFS_CAP_REVISION_2: CAP_NET_BIND_SERVICE


@pytest.fixture(params=NAMES)
def served(request: pytest.FixtureRequest, fuse: None, tmp_path: Path) -> Iterator[Mounted]:
    """A mount that lets all users in, by each front-end."""
    yield from mounted_below(tmp_path, "--allow-other", "--no-native", "--frontend", request.param)


@pytest.mark.parametrize("name", NAMES)
def test_each_serves_and_says_so_and_only_that_one_is_loaded(machines: Machines, volume: Path, name: str) -> None:
    """In a process of its own: what the tests start otherwise has all libraries loaded already."""
    path = machines.folder("m")
    subprocess.run([BLOCKSYNC, "mount", volume, path, "--frontend", name], check=True)
    machines.mounts["m"] = path
    (path / "file").write_bytes(b"content")
    assert (path / "file").read_bytes() == b"content"
    told = json.loads(machines.run("stats", path, "--json").stdout)
    assert told["frontend"] == name
    pid = (volume / "lock").read_text().split()[0]
    loaded = Path(f"/proc/{pid}/maps").read_text()
    assert ("/pyfuse3/" in loaded, "libfuse3" in loaded) == (name == "pyfuse3",) * 2
    machines.run("umount", path)


OLD_KERNEL = """
from blockfs.fuse.kernel import negotiate
from syncer.cli.main import main

negotiate.OLDEST_MINOR = 99
main()
"""


def test_an_old_kernel_is_refused_and_nothing_is_left_mounted(machines: Machines, volume: Path) -> None:
    path = machines.folder("m")
    command = [sys.executable, "-c", OLD_KERNEL, "mount", volume, path]
    ended = subprocess.run([*command, "--frontend", "kernel"], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert f"this kernel ({os.uname().release}, FUSE 7." in ended.stderr
    assert "needs FUSE 7.99 (Linux 5.4): mount with --frontend pyfuse3" in ended.stderr
    assert not path.is_mount()
    for name in ("pyfuse3", "auto"):
        subprocess.run([*command, "--frontend", name], check=True)
        assert json.loads(machines.run("stats", path, "--json").stdout)["frontend"] == "pyfuse3"
        machines.run("umount", path)


@pytest.mark.parametrize("name", ["plain", "a,b", "a b", "a\\b", "caf\udce9"])
def test_the_kernel_lists_both_alike(fuse: None, tmp_path: Path, name: str) -> None:
    shown = []
    for frontend in NAMES:
        home = tmp_path / frontend
        home.mkdir()
        for mount in mounted_below(home, "--frontend", frontend, name=name):
            [line] = [one for one in _mountinfo() if os.fsencode(tmp_path) in _unescaped(one)]
            [parsed] = [one for one in read_mounts() if one.mountpoint == os.fsencode(mount.path)]
            assert parsed.source == os.fsencode(mount.volume)
            options, source = line.split(b" ")[5], _unescaped(line).partition(b" - ")[2]
            shown.append((options, source.replace(os.fsencode(home), b"")))
    assert shown[0] == shown[1]


def _mountinfo() -> list[bytes]:
    return Path("/proc/self/mountinfo").read_bytes().splitlines()


def _unescaped(line: bytes) -> bytes:
    return line.replace(b"\\040", b" ").replace(b"\\134", b"\\")


def test_privileges_are_gone_after_a_write_by_somebody_else(served: Mounted) -> None:
    """Breaks when a program that grants its owner's rights can be filled by whoever may write to it."""
    path = served.path / "program"
    for write in (_write, _truncate, _open_anew):
        path.write_bytes(b"program")
        path.chmod(0o6777)
        os.setxattr(path, "security.capability", CAPABILITY)
        path.read_bytes()
        assert os.stat(path).st_mode & 0o7777 == 0o6777
        run_as(ALICE, served.path, write)
        assert os.stat(path).st_mode & 0o7777 == 0o777
        assert "security.capability" not in os.listxattr(path)


def _write() -> None:
    with open("program", "r+b") as file:
        file.write(b"x")


def _truncate() -> None:
    os.truncate("program", 3)


def _open_anew() -> None:
    os.close(os.open("program", os.O_WRONLY | os.O_TRUNC))


def test_roots_own_write_leaves_setuid_and_ends_capabilities(served: Mounted) -> None:
    """As on the host's filesystem: CAP_FSETID keeps the bits, nothing keeps capabilities."""
    path = served.path / "program"
    path.write_bytes(b"program")
    path.chmod(0o6777)
    os.setxattr(path, "security.capability", CAPABILITY)
    with path.open("r+b") as file:
        file.write(b"x")
    assert os.stat(path).st_mode & 0o7777 == 0o6777
    assert "security.capability" not in os.listxattr(path)


def test_a_change_of_owner_ends_what_a_file_grants(served: Mounted) -> None:
    """Breaks when a program keeps for its new owner the capabilities and set-id bits that root gave to the old one."""
    path = served.path / "program"
    path.write_bytes(b"program")
    path.chmod(0o6777)
    os.setxattr(path, "security.capability", CAPABILITY)
    os.chown(path, 1234, -1)
    assert os.stat(path).st_mode & 0o7777 == 0o777
    assert "security.capability" not in os.listxattr(path)


def test_overlayfs_takes_a_mount_for_its_upper_layer_and_keeps_capabilities(served: Mounted, tmp_path: Path) -> None:
    """Breaks when `ping` of a container can't ping any more once somebody touched it."""
    layers = {name: served.path / name for name in ("lower", "upper", "work")}
    for path in layers.values():
        path.mkdir()
    program, shown = layers["lower"] / "program", tmp_path / "shown"
    program.write_bytes(b"program")
    os.setxattr(program, "security.capability", CAPABILITY)
    shown.mkdir()
    options = "lowerdir={lower},upperdir={upper},workdir={work}".format(**layers)
    subprocess.run(["mount", "-t", "overlay", "-o", options, "none", shown], check=True)
    try:
        (shown / "program").touch()
        assert (layers["upper"] / "program").read_bytes() == b"program"
        assert os.getxattr(shown / "program", "security.capability") == CAPABILITY
    finally:
        subprocess.run(["umount", shown], check=True)


def test_a_signal_while_an_answer_is_waited_for_changes_nothing(served: Mounted) -> None:
    """Programs don't expect EINTR of a disk."""
    path = served.path / "file"
    program = (
        "import ctypes, mmap, os, signal\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.pwrite.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64]\n"
        "signal.signal(signal.SIGALRM, lambda *_: None)\n"
        "signal.siginterrupt(signal.SIGALRM, True)\n"
        f"fd = os.open({os.fspath(path)!r}, os.O_RDWR | os.O_CREAT | os.O_DIRECT)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)\n"
        "page = mmap.mmap(-1, 65536)\n"
        "at = ctypes.cast((ctypes.c_char * 65536).from_buffer(page), ctypes.c_char_p)\n"
        "for number in range(50):\n"
        "    assert libc.pwrite(fd, at, 65536, number << 16) == 65536\n"
        "    assert libc.fsync(fd) == 0\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert path.stat().st_size == 50 << 16


def test_the_kernel_makes_a_mount_read_only_and_back_while_it_is_there(served: Mounted) -> None:
    """What was written before is there, by whomever the mount is made anew."""
    path = served.path / "file"
    path.write_bytes(b"before")
    subprocess.run(["mount", "-i", "-o", "remount,ro", served.path], check=True)
    with pytest.raises(OSError, match="Read-only file system"):
        path.write_bytes(b"refused")
    assert path.read_bytes() == b"before"
    subprocess.run(["mount", "-i", "-o", "remount,rw", served.path], check=True)
    path.write_bytes(b"after")
    served.umount()
    served.remount()
    assert path.read_bytes() == b"after"


def test_an_ordinary_user_mounts_without_libfuse() -> None:
    shown = passed("""
        chown 65534:65534 /mnt/m
        as_nobody blocksync init /mnt/v
        as_nobody blocksync mount /mnt/v /mnt/m --frontend kernel -o noexec
        as_nobody sh -c 'echo mine >/mnt/m/file; cat /mnt/m/file'
        findmnt -n -o FSTYPE,SOURCE,OPTIONS /mnt/m
        as_nobody blocksync stats /mnt/m --json
        as_nobody blocksync umount /mnt/m
        refused mountpoint -q /mnt/m
    """)
    assert shown.startswith("mine\nfuse.blocksync /mnt/v rw,nosuid,nodev,noexec,")
    assert '"frontend":"kernel"' in shown


def test_auto_takes_our_own_where_the_kernel_is_new_enough(fuse: None, tmp_path: Path) -> None:
    for mount in mounted_below(tmp_path, "--frontend", "auto"):
        assert json.loads(mount.run("stats", mount.path, "--json").stdout)["frontend"] == "kernel"


def test_the_environment_chooses_and_a_flag_beats_it(mounted: Mounted) -> None:
    assert json.loads(mounted.run("stats", mounted.path, "--json").stdout)["frontend"] == "kernel"
    mounted.umount()
    mounted.machines.remount(mounted.name, "--frontend", "pyfuse3")
    assert json.loads(mounted.run("stats", mounted.path, "--json").stdout)["frontend"] == "pyfuse3"
