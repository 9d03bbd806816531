"""Native mounts: when a mount is one, what it leaves to others, and what outlives its death."""

from __future__ import annotations

import json
import mmap
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from blockfs.runtime.reflink import share_equal
from tests.conftest import Mounted, mounted_below
from tests.kit.hostfs import REFLINKS, reflinking, run
from tests.system.machines import Machines
from tests.system.namespaces import passed

FRONTENDS = ("kernel",)
PAGE = 4096
MIB = 1 << 20

WRITER = """
import mmap, os, sys
path, seed = sys.argv[1], int(sys.argv[2])
file = os.open(path, os.O_RDWR)
mapped = mmap.mmap(file, 0)
number = 0
while True:
    number += 1
    page = 1 + (number * 7919 + seed) % (len(mapped) // 4096 - 1)
    content = b"%016d" % number * 256
    if number % 2:
        os.pwrite(file, content, page * 4096)
    else:
        mapped[page * 4096 : (page + 1) * 4096] = content
    try:
        os.fsync(file)
    except OSError:  # the mount is dead; what is written goes to the file of the host as ever
        print("dead", flush=True)
        while True:
            mapped[:2048] = os.urandom(2048)
            os.pwrite(file, os.urandom(2048), 2048)
    print(page, number, flush=True)
"""
"""Says which page has which content, once that is durable. The first page is for what it writes to a dead mount."""


@pytest.fixture(params=sorted(REFLINKS))
def machines(request: pytest.FixtureRequest, fuse: None, tmp_path: Path) -> Iterator[Machines]:
    """A folder on a host with reflinks."""
    with reflinking(tmp_path, request.param) as host:
        home = host / "home"
        home.mkdir()
        made = Machines(home)
        if request.param == "btrfs":
            made.environment["BLOCKSYNC_NATIVE"] = "1"
        try:
            yield made
        finally:
            processes = [os.pidfd_open(made.mount_pid(name)) for name, path in made.mounts.items() if path.is_mount()]
            made.close()
            for process in processes:
                select.select([process], [], [])  # the host is busy while it commits
                os.close(process)


@pytest.fixture
def native(machines: Machines) -> Mounted:
    """A native mount: nobody has to ask for it, but on btrfs."""
    machines.run("init", machines.home / "volume-m")
    machines.folder("m")
    path = machines.remount("m")
    return Mounted(machines, "m", machines.home / "volume-m", path)


def mode(mount: Mounted) -> tuple[str, str]:
    told = json.loads(mount.run("stats", mount.path, "--json").stdout)
    return told["mode"], told["mode_reason"]


def remount(mount: Mounted, *options: str) -> None:
    mount.machines.run("umount", mount.path)
    mount.machines.remount(mount.name, *options)


def test_stats_say_which_mode_it_is_and_why(native: Mounted) -> None:
    assert mode(native) == ("native", "the kernel reads and writes files of the host itself")
    for options, reason in {
        ("--no-native",): "--no-native was asked for",
        ("-o", "native,no-native"): "--no-native was asked for",
        ("--native", "--frontend", "pyfuse3"): "pyfuse3",
        ("--native", "--read-only"): "read-only",
    }.items():
        remount(native, *options)
        found, told = mode(native)
        assert found == "writeback"
        assert reason in told
    for allowed in ((), ("--native",), ("-o", "no-native,native"), ("--frontend", "kernel")):
        remount(native, *allowed)
        assert mode(native)[0] == "native"


def test_more_open_files_than_the_mount_may_have_descriptors_are_files_as_any(native: Mounted) -> None:
    native.run("umount", native.path)
    limited = ["prlimit", "--nofile=800:800", *native.machines.command, "mount", native.volume, native.path]
    subprocess.run(limited, env=native.machines.environment, check=True, stdout=subprocess.DEVNULL)
    assert mode(native)[0] == "native"
    with ExitStack() as opened:
        for number in range(790):
            file = opened.enter_context((native.path / str(number)).open("wb", buffering=0))
            file.write(b"%d" % number)
        native.run("snapshot", native.path, "of-all")
    for root in (native.path, native.path / ".snapshots" / "of-all"):
        assert [(root / str(number)).read_bytes() for number in range(790)] == [b"%d" % each for each in range(790)]
    native.run("umount", native.path, "--seal")


def test_a_mount_has_as_many_descriptors_as_the_host_lets_it_have(native: Mounted) -> None:
    native.run("umount", native.path)
    limited = ["prlimit", "--nofile=600:3000", *native.machines.command, "mount", native.volume, native.path]
    subprocess.run(limited, env=native.machines.environment, check=True, stdout=subprocess.DEVNULL)
    pid = native.machines.mount_pid(native.name)
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (3000, 3000)


def test_on_btrfs_it_has_to_be_asked_for(native: Mounted) -> None:
    is_btrfs = bool(native.machines.environment.pop("BLOCKSYNC_NATIVE", ""))
    (native.path / "file").write_bytes(b"written natively")
    remount(native)
    found, told = mode(native)
    assert (found, "--native asks" in told) == (("writeback", True) if is_btrfs else ("native", False))
    assert (native.path / "file").read_bytes() == b"written natively"
    remount(native, "-o", "native")
    assert mode(native)[0] == "native"


def test_compressed_blocks_cant_be_shared_and_stats_say_so(machines: Machines) -> None:
    machines.run("init", machines.home / "volume-m", "--compression", "zstd")
    machines.folder("m")
    path = machines.remount("m")
    found, told = mode(Mounted(machines, "m", machines.home / "volume-m", path))
    assert found == "writeback"
    assert "compressed" in told


def test_a_host_without_reflinks_is_told(fuse: None, tmp_path: Path) -> None:
    for mount in mounted_below(tmp_path):
        found, told = mode(mount)
        assert found == "writeback"
        assert "reflinks" in told
        assert not (mount.volume / "hot").exists()


def test_an_ordinary_user_is_told_that_it_takes_root() -> None:
    shown = passed("""
        chown 65534:65534 /mnt/m
        as_nobody blocksync init /mnt/v
        as_nobody blocksync mount /mnt/v /mnt/m
        as_nobody sh -c 'echo mine >/mnt/m/file; cat /mnt/m/file'
        as_nobody blocksync stats /mnt/m --json
        as_nobody blocksync umount /mnt/m
    """)
    assert shown.startswith("mine\n")
    assert '"mode":"writeback"' in shown
    assert "only root may" in shown


def test_contents_are_the_same_in_every_mode(native: Mounted) -> None:
    """Breaks when what a native mount left is missing on one that is not, or the other way round."""
    chosen = random.Random(15)
    path, wanted = native.path / "file", bytearray(chosen.randbytes(8 * MIB + 77))
    path.write_bytes(wanted)
    ways: list[tuple[str, ...]] = [("--no-native",), (), ("--frontend", "pyfuse3"), (), (), ("--no-native",)]
    for options in ways:
        with path.open("r+b") as file:
            for _ in range(20):
                page = chosen.randrange(len(wanted) // PAGE)
                content = chosen.randbytes(PAGE)
                wanted[page * PAGE : (page + 1) * PAGE] = content
                os.pwrite(file.fileno(), content, page * PAGE)
            with mmap.mmap(file.fileno(), 0) as mapped:
                at = chosen.randrange(len(wanted))
                mapped[at] = wanted[at] = 1
        remount(native, *options)
        assert path.read_bytes() == wanted
    native.umount()
    assert not list(native.volume.glob("hot/*"))  # the last mount was none of these
    native.run("fsck", native.volume)


def test_what_is_stored_into_a_mapping_after_closing_and_sealing_is_kept(native: Mounted) -> None:
    """Breaks when the file of the host is taken away while a program has it mapped."""
    path = native.path / "file"
    path.write_bytes(bytes(2 * PAGE))
    program = (
        "import ctypes, mmap, os, sys\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.mmap.restype = ctypes.c_void_p\n"
        "libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long]\n"
        f"file = os.open({os.fspath(path)!r}, os.O_RDWR)\n"
        f"at = libc.mmap(None, {2 * PAGE}, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, file, 0)\n"
        "os.close(file)\n"
        "for number, line in enumerate(sys.stdin):\n"
        "    ctypes.memmove(at + number, b'!', 1)\n"
        "    print(ctypes.string_at(at, 4), flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(1, 4):
            process.stdin.write("store\n")
            assert process.stdout.readline() == f"{(b'!' * number).ljust(4, bytes(1))!r}\n"
            assert path.read_bytes()[:4] == (b"!" * number).ljust(4, b"\0")
            native.run("flush", native.path)
        process.stdin.write("store\n")
        process.stdout.readline()
    remount(native)
    assert path.read_bytes() == b"!!!!".ljust(2 * PAGE, b"\0")


def test_files_written_in_turns_are_of_one_instant_in_a_snapshot(native: Mounted) -> None:
    """Each number is made durable before the next file gets it, by a process that nothing of ours holds."""
    program = """
import os, sys
files = [os.open(os.path.join(sys.argv[1], name), os.O_RDWR | os.O_CREAT) for name in "abc"]
number = 0
while True:
    number += 1
    for file in files:
        os.pwrite(file, b"%020d" % number, 0)
        os.fsync(file)
    print(number, flush=True)
"""
    writer = subprocess.Popen([sys.executable, "-c", program, native.path], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    try:
        assert writer.stdout.readline() == "1\n"
        seen = []
        for number in range(6):
            native.run("snapshot", native.path, f"s{number}")
            kept = native.path / ".snapshots" / f"s{number}"
            seen.append([int((kept / name).read_bytes()) for name in "abc"])
    finally:
        writer.kill()
        writer.communicate()
    assert all(first - third in {0, 1} and first >= second >= third for first, second, third in seen), seen
    assert seen[-1][0] > seen[0][0]
    native.run("fsck", native.path)


def test_files_are_made_while_snapshots_are_taken(native: Mounted) -> None:
    """Breaks if a file whose open must wait is made twice: its program would be told that it exists."""
    failures: list[OSError] = []
    is_over = threading.Event()
    made: list[int] = []

    def make() -> None:
        try:
            while not is_over.is_set():
                name = native.path / f"{len(made)}"
                with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                    file.write(b"%d" % len(made))
                made.append(len(made))
        except OSError as error:
            failures.append(error)

    program = threading.Thread(target=make)
    program.start()
    for number in range(8):
        native.run("snapshot", native.path, f"s{number}")
    is_over.set()
    program.join()
    assert failures == []
    assert [int((native.path / f"{number}").read_bytes()) for number in made] == made
    native.run("fsck", native.path)


SCRIBE = """
import mmap, os, random, sys
path, seed, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
file = os.open(path, os.O_RDWR)
mapped = mmap.mmap(file, 0)
chance = random.Random(seed)
for number in range(rounds):
    page, pattern = chance.randrange(len(mapped) // 4096), chance.randrange(4)
    for at in range(page, page + 16 if page % 16 == 0 else page + 1):  # whole blocks that are like others, too
        content = bytes([pattern]) * 4096
        if chance.randrange(2):
            os.pwrite(file, content, at * 4096)
        else:
            mapped[at * 4096 : (at + 1) * 4096] = content
os.close(file)
"""


def scribed(size: int, seed: int, rounds: int) -> bytes:
    """What a scribe leaves of a file of zeros."""
    found, chance = bytearray(size), random.Random(seed)
    for _ in range(rounds):
        page, pattern = chance.randrange(size // PAGE), chance.randrange(4)
        for at in range(page, page + 16 if page % 16 == 0 else page + 1):
            found[at * PAGE : (at + 1) * PAGE] = bytes([pattern]) * PAGE
            chance.randrange(2)
    return bytes(found)


def meddle(host: Path, hot: Path, turn: int) -> None:
    """What others do to the host's filesystem, while a file of it is written."""
    if b"xfs" in subprocess.check_output(["stat", "-fc%T", host]):
        if shutil.which("xfs_fsr"):
            subprocess.run(["xfs_fsr", "-v", hot], check=False, capture_output=True)  # it leaves what is in use
        run("cp", "--reflink=always", hot, host / f"copy{turn}")
    else:
        run("btrfs", "subvolume", "snapshot", host, host / f"snapshot{turn}")
        run("btrfs", "filesystem", "defragment", "-f", hot)
        balance = ["btrfs", "balance", "start", "--full-balance", host]
        subprocess.run(balance, check=False, capture_output=True)  # it moves what there is room for
        run("btrfs", "subvolume", "delete", host / f"snapshot{turn}")
    with hot.open("r+b") as file:  # as duperemove does, and others
        for block in range(1, hot.stat().st_size // 65536):
            share_equal(file.fileno(), 0, 65536, file.fileno(), block * 65536)


def test_what_others_do_to_the_host_below_a_mount_loses_nothing(native: Mounted) -> None:
    """Snapshots, balance, defragmentation and deduplication of the host, while a program writes and all is sealed."""
    size, rounds = 4 * MIB, 40_000
    path, host = native.path / "image", native.machines.home.parent
    path.write_bytes(bytes(size))
    scribe = subprocess.Popen([sys.executable, "-c", SCRIBE, path, "5", str(rounds)])
    turn = 0
    try:
        while scribe.poll() is None or turn < 3:
            (hot,) = [one for one in (native.machines.home / "volume-m/hot").iterdir() if one.stat().st_size == size]
            meddle(host, hot, turn)
            native.run("flush", native.path)
            turn += 1
    finally:
        if turn < 3:
            scribe.kill()
        assert scribe.wait() == 0
    expected = scribed(size, 5, rounds)
    assert path.read_bytes() == expected
    native.run("flush", native.path)
    native.run("snapshot", native.path, "s")
    assert (native.path / ".snapshots/s/image").read_bytes() == expected
    native.run("fsck", native.path)
    native.run("scrub", native.path)
    remount(native, "--no-native")
    assert path.read_bytes() == expected


def test_sealing_at_the_end_leaves_no_file_of_the_kernels(native: Mounted) -> None:
    """Breaks when an older release refuses a volume that was sealed for it."""
    (native.path / "small").write_bytes(b"content")
    (native.path / "large").write_bytes(b"x" * 8 * MIB)
    native.umount("--seal")
    assert not list(native.volume.glob("hot/*"))
    native.machines.remount("m")
    assert (native.path / "small").read_bytes() == b"content"
    assert (native.path / "large").read_bytes() == b"x" * 8 * MIB


UNSEEN = """
import mmap, os, sys
path, how = sys.argv[1:]
flags = os.O_WRONLY | os.O_DSYNC if how == "O_DSYNC" else os.O_RDWR
if how == "joined":
    first = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(first, bytes(8192))
file = os.open(path, flags | os.O_CREAT, 0o644)
if how == "O_DSYNC":
    os.write(file, b"x" * 8192)
else:
    os.ftruncate(file, 8192)
    mapped = mmap.mmap(file, 8192)
    mapped[:] = b"x" * 8192
    mapped.flush()
print("synced", flush=True)
sys.stdin.read()
"""
"""Makes a file and syncs it in a way that no request tells of."""


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("how", ["msync", "joined", "O_DSYNC"])
def test_what_was_synced_unseen_into_a_new_file_outlives_a_kill(native: Mounted, how: str, count: int) -> None:
    """msync(2), and writes with O_DSYNC, pass us by: breaks if only an fsync makes a new file one of the tree."""
    paths = [native.path / f"new-{number}" for number in range(count)]  # the first of them is native in any case
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", UNSEEN, path, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for path in paths
    ]
    try:
        for program in programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "synced\n"
        assert native.machines.kill_mount("m")
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    subprocess.run(["umount", "-l", native.path], check=True)
    native.machines.remount("m")
    assert [path.read_bytes() for path in paths] == [b"x" * 8192] * count


@pytest.mark.parametrize("again", ["--native", "--no-native"])
def test_what_was_durable_outlives_a_kill_and_writers_go_on_elsewhere(native: Mounted, again: str) -> None:
    """Programs that have files open, and mapped, write on after the death of the mount: never into the next one."""
    paths = [native.path / name for name in ("one", "two")]
    for path in paths:
        path.write_bytes(bytes(4 * MIB))  # from this size on files with content are opened natively
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, str(seed)], stdout=subprocess.PIPE, text=True)
        for seed, path in enumerate(paths)
    ]
    durable: list[dict[int, int]] = [{}, {}]
    try:
        for writer, pages in zip(writers, durable, strict=True):
            assert writer.stdout is not None
            for _ in range(60):
                page, number = map(int, writer.stdout.readline().split())
                pages[page] = number
        assert native.machines.kill_mount("m")
        subprocess.run(["umount", "-l", native.path], check=True)
        native.machines.remount("m", again)
        for writer in writers:
            assert writer.stdout is not None
            assert "dead\n" in iter(writer.stdout.readline, "")
        contents = [path.read_bytes() for path in paths]
        assert contents == [path.read_bytes() for path in paths]  # nobody writes to them
    finally:
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()
    for path, content, pages in zip(paths, contents, durable, strict=True):
        for page, number in pages.items():
            found = content[page * PAGE : (page + 1) * PAGE]
            assert found == found[:16] * 256, f"{path.name}: page {page} is torn"
            assert int(found[:16]) >= number, f"{path.name}: page {page}"
    native.umount()
    native.run("fsck", native.volume)
