"""A small Linux guest under qemu (TCG) whose root disk lies on a mount: Debian's cloud kernel, busybox, ext4.

The guest writes versioned data, each made durable, and tells on its serial console what is. So whatever ends it, the
console says what its disk must still hold.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

PROJECT = Path(__file__).resolve().parents[2]
KERNEL = PROJECT / ".guest"
MODULES = ("virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk")
SYSTEM_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
PAGE = 4096
FILES = 40
TABLE_PAGES = 512
TRIMMED_MIB = 16
"""The guest writes as much in the end, removes it, and trims its disk."""
DISK_SIZE = "48M"

FIND_DISK = f"""#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
for module in {" ".join(MODULES)}; do /bin/busybox insmod /$module.ko; done
/bin/busybox mount -t ext4 -o errors=panic /dev/vda /root
"""

START_DISK = """
exec /bin/busybox switch_root /root /bin/busybox sh /init
"""

# FIRST and LAST come from the kernel's command line. A file gets its new content by write, fsync, rename, fsync of the
# directory; a page of the table is overwritten in place and fsynced. The first error ends init, and with it the guest:
# what failed must not be told as synced.
GUEST_INIT = f"""
set -e
busybox mount -t devtmpfs dev /dev
busybox mount -t proc proc /proc
busybox echo "up"
version=$FIRST
whole=iflag=fullblock
while [ $version -le $LAST ]; do
    name=f$((version % {FILES}))
    pages=$((version % 7 * 3 + 1))
    busybox yes "version $version" | busybox dd of=/data/new bs=4k count=$pages $whole conv=fsync
    busybox echo "begun $name $version"
    busybox mv /data/new /data/$name
    busybox sync /data
    busybox echo "synced $name $version"
    page=$((version * 7919 % {TABLE_PAGES}))
    busybox echo "begun $page $version"
    busybox yes "version $version" | busybox dd of=/data/table bs=4k seek=$page count=1 $whole conv=notrunc,fsync
    busybox echo "synced $page $version"
    version=$((version + 1))
done 2>/dev/null
busybox yes "large" | busybox dd of=/data/large bs=1M count={TRIMMED_MIB} $whole conv=fsync 2>/dev/null
busybox rm -f /data/f0 /data/f1 /data/large
busybox sync
busybox fstrim -v / 2>&1
busybox echo "trimmed"
busybox mount -o remount,ro /
busybox poweroff -f
"""


def content(version: int, pages: int) -> bytes:
    """What the guest writes as a version."""
    line = f"version {version}\n".encode()
    return (line * (pages * PAGE // len(line) + 1))[: pages * PAGE]


def file_pages(version: int) -> int:
    """Size of a file of that version."""
    return version % 7 * 3 + 1


def make_disk(path: Path, scratch: Path) -> None:
    """Make the guest's root disk: raw, ext4, without a partition table."""
    tree = scratch / "disk-tree"
    for folder in ("bin", "dev", "proc", "data"):
        (tree / folder).mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox, "busybox is not installed (Debian: busybox-static)"
    shutil.copy(busybox, tree / "bin" / "busybox")
    (tree / "init").write_text(GUEST_INIT)
    (tree / "data" / "table").write_bytes(content(0, 1) * TABLE_PAGES)
    command = ["mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-d", str(tree), str(path), DISK_SIZE]
    subprocess.run(command, check=True, env={**os.environ, "PATH": SYSTEM_PATH})
    shutil.rmtree(tree)


def make_initramfs(path: Path, scratch: Path, script: str = START_DISK, modules: tuple[str, ...] = ()) -> None:
    """Make what finds and mounts the disk and then runs a script: by default it starts the guest's own init.

    Args:
        path: Where.
        scratch: A folder for what is made meanwhile.
        script: What runs last. The modules lie in /.
        modules: Those that it loads itself.
    """
    assert KERNEL.is_dir(), "no kernel for the guest: run scripts/guest-kernel (make test does)"
    tree = scratch / "initramfs-tree"
    for folder in ("bin", "dev", "root"):
        (tree / folder).mkdir(parents=True)
    shutil.copy("/bin/busybox", tree / "bin" / "busybox")
    for module in (*MODULES, *modules):
        shutil.copy(KERNEL / f"{module}.ko", tree)
    (tree / "init").write_text(FIND_DISK + script)
    (tree / "init").chmod(0o755)
    names = "\n".join(str(name.relative_to(tree)) for name in sorted(tree.rglob("*"))).encode()
    command = ["busybox", "cpio", "-o", "-H", "newc"]
    packed = subprocess.run(command, cwd=tree, input=names, capture_output=True, check=True).stdout
    path.write_bytes(packed)
    shutil.rmtree(tree)


@dataclass(slots=True)
class Promises:
    """What the guest's disk must hold: per file or page, the newest version that is durable and the newest written."""

    synced: dict[str, int] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """The newest version that anything has."""
        return max(self.begun.values(), default=0)

    def hear(self, line: str) -> None:
        """Note one line of the console."""
        if told := re.fullmatch(r"(begun|synced) (\w+) (\d+)", line):
            versions = self.begun if told[1] == "begun" else self.synced
            versions[told[2]] = int(told[3])

    def check(self, data: Path) -> None:
        """Compare with the folder `data` of the guest's disk."""
        table = (data / "table").read_bytes()
        assert len(table) == TABLE_PAGES * PAGE
        for page in range(TABLE_PAGES):
            self._check(str(page), table[page * PAGE : (page + 1) * PAGE], lambda _version: 1)
        for name in (f"f{number}" for number in range(FILES)):
            path = data / name
            assert path.exists() or name not in self.synced, f"{name} was synced and is gone"
            if path.exists():
                self._check(name, path.read_bytes(), file_pages)

    def _check(self, name: str, found: bytes, pages_of: Callable[[int], int]) -> None:
        told = re.match(rb"version (\d+)\n", found)
        assert told, f"{name} begins with {found[:32]!r}"
        version = int(told[1])
        assert found == content(version, pages_of(version)), f"{name} is torn"
        assert self.synced.get(name, 0) <= version <= self.begun.get(name, 0), (
            f"{name} has version {version}, {self.synced.get(name)} was synced and {self.begun.get(name)} begun"
        )


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """How qemu opens the disk."""

    format: str
    cache: str
    aio: str

    @property
    def name(self) -> str:
        """For reports."""
        return f"{self.format} cache={self.cache} aio={self.aio}"


class Guest:
    """A running guest. The console is read by a thread of its own, so that the guest never waits for a reader."""

    def __init__(self, initramfs: Path, disk: Path, mode: Mode, promises: Promises, *, versions: int) -> None:
        first = promises.newest + 1
        arguments = f"console=ttyS0 quiet panic=-1 FIRST={first} LAST={first + versions - 1}"
        drive = f"file={disk},if=virtio,format={mode.format},cache={mode.cache},aio={mode.aio},discard=unmap"
        self._promises = promises
        self._told = threading.Condition()
        self._ended = False
        self.lines: list[str] = []
        command = ["qemu-system-x86_64", "-accel", "tcg", "-m", "192", "-nodefaults", "-no-reboot", "-display", "none"]
        command += ["-serial", "stdio", "-kernel", str(KERNEL / "vmlinuz"), "-initrd", str(initramfs)]
        self._qemu = subprocess.Popen(
            [*command, "-append", arguments, "-drive", drive],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._qemu.stdout is not None
        for line in self._qemu.stdout:
            with self._told:
                self.lines.append(line.strip())
                self._promises.hear(line.strip())
                self._told.notify_all()
        with self._told:
            self._ended = True
            self._told.notify_all()

    def wait_for_syncs(self, count: int) -> None:
        """Wait until the guest has made so many changes durable."""
        with self._told:
            self._told.wait_for(lambda: self._ended or sum(line.startswith("synced") for line in self.lines) >= count)
            assert not self._ended, f"the guest ended: {self.lines[-5:]}"

    def wait_for_power_off(self) -> None:
        """Wait until the guest has done its work, trimmed its disk and switched itself off."""
        self._reader.join()
        assert self._qemu.wait() == 0, self.lines[-5:]

    def kill(self) -> None:
        """SIGKILL qemu: what its guest or itself still held in memory is gone. Fine, too, when it has ended."""
        self._qemu.kill()
        self._reader.join()
        self._qemu.wait()

    def close(self) -> None:
        """Leave nothing behind."""
        self.kill()
        assert self._qemu.stdout is not None
        self._qemu.stdout.close()


def run(*command: str | Path, allowed: tuple[int, ...] = (0,), folder: Path | None = None) -> str:
    """Run a tool and return what it wrote to stdout."""
    environment = {**os.environ, "PATH": SYSTEM_PATH}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode in allowed, f"{command}: exit code {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def check_filesystem(disk: Path, disk_format: str, scratch: Path, promises: Promises) -> None:
    """On a copy of the disk: replay its journal as a boot would, then it must be clean and hold what was promised."""
    copy, found = scratch / "copy.img", scratch / "found"
    run("qemu-img", "convert", "-f", disk_format, "-O", "raw", disk, copy)
    run("e2fsck", "-p", copy, allowed=(0, 1))
    run("e2fsck", "-fn", copy)
    found.mkdir()
    run("debugfs", "-R", f"rdump /data {found}", copy)
    promises.check(found / "data")
    shutil.rmtree(found)
    copy.unlink()
