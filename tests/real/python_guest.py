"""A Linux guest that runs this project's own code: for what this machine's kernel may not have.

Its root disk is made of this machine's Python, the libraries that it is linked to, .venv and the project, each at its
own path. It goes into a file, unprivileged, by mke2fs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from tests.real.guest import KERNEL, PROJECT, SYSTEM_PATH, make_initramfs

MODULES: Final = ("nls_cp437", "nls_ascii", "fat", "vfat")  # in the order of their needs
MEMORY_MB: Final = 1024
SCRATCH: Final = Path("/blocksync-guest")
"""In memory, empty. Of a name of its own: the project lies at the path it has here, which may be below /tmp or /mnt."""

_DONE: Final = "guest: exit code "

# What no test in a guest wants, and is large.
_NOT_STDLIB: Final = {"test", "site-packages", "dist-packages", "ensurepip", "idlelib", "tkinter", "turtledemo"}
_NOT_VENV: Final = re.compile(r"(mypy|mypyc|ruff|pip|hypothesis|numpy|matplotlib|grimp|importlinter|coverage)(-.*)?")
_PROJECT: Final = ("blockfs", "syncer", "tests", "setup.cfg")

_START: Final = f"""
for module in {" ".join(MODULES)}; do /bin/busybox insmod /$module.ko; done
exec /bin/busybox switch_root /root /bin/busybox sh /init
"""

_INIT: Final = """
busybox mount -t devtmpfs dev /dev
busybox mkdir -p /dev/shm
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t tmpfs tmpfs {scratch}
busybox mount -t tmpfs tmpfs /dev/shm
busybox ip link set lo up
export HOME={scratch} TMPDIR={scratch} PATH=/bin PYTHONDONTWRITEBYTECODE=1 LC_ALL=C.UTF-8
cd {project}
({command})
busybox echo "{done}$?"
busybox poweroff -f
"""


class Ended(msgspec.Struct, frozen=True):
    """What a guest said on its console, and what its command ended with."""

    exit_code: int
    console: str


def run_in_guest(folder: Path, command: str, disks: tuple[Path, ...]) -> Ended:
    """Boot, run one command of the shell in the project's folder, switch off.

    Args:
        folder: For the root disk and what is made meanwhile.
        command: Starts with `sys.executable`, most likely.
        disks: Raw images, /dev/vdb and so on.
    """
    root, initramfs = folder / "root.img", folder / "initramfs"
    _make_root(root, folder, command)
    make_initramfs(initramfs, folder, _START, MODULES)
    drives = [word for disk in (root, *disks) for word in ("-drive", f"file={disk},if=virtio,format=raw,cache=unsafe")]
    # Without KVM, which a machine may offer and not be able to: all the same everywhere.
    machine = ["-accel", "tcg,thread=multi", "-smp", "2", "-m", str(MEMORY_MB)]
    boot = ["-kernel", str(KERNEL / "vmlinuz"), "-initrd", str(initramfs), "-append", "console=ttyS0 quiet panic=-1"]
    bare = ["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"]
    ended = subprocess.run(
        ["qemu-system-x86_64", *machine, *bare, *boot, *drives],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    told = re.search(rf"^{_DONE}(\d+)", ended.stdout, re.MULTILINE)
    assert told, f"the guest did not get to its end:\n{ended.stdout[-4000:]}"
    return Ended(int(told[1]), ended.stdout)


def _make_root(path: Path, scratch: Path, command: str) -> None:
    tree = scratch / "root-tree"
    for name in ("bin", "dev", "proc", "sys", "tmp", SCRATCH.name):
        (tree / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", tree / "bin/busybox")
    (tree / "bin/sh").symlink_to("busybox")
    (tree / "init").write_text(_INIT.format(project=PROJECT, command=command, done=_DONE, scratch=SCRATCH))
    stdlib = Path(sysconfig.get_path("stdlib"))
    _copy(stdlib, tree, _NOT_STDLIB.__contains__)
    for part in _PROJECT:
        _copy(PROJECT / part, tree, lambda _: False)
    _copy(Path(sys.prefix), tree, lambda name: _NOT_VENV.fullmatch(name) is not None)
    _compile(tree)
    for link in _links(Path(sys.executable)):
        _copy(link, tree, lambda _: False)
    linked = [Path(sys.executable).resolve(), *tree.rglob("*.so"), *tree.rglob("*.so.*")]
    for library in _libraries(linked):
        target = tree / library.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, target)  # what a link leads to, under the link's name
    size_mb = sum(file.lstat().st_size for file in tree.rglob("*")) * 3 // 2 // (1 << 20) + 64
    arguments = ["mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-d", str(tree), str(path), f"{size_mb}M"]
    subprocess.run(arguments, check=True, env={**os.environ, "PATH": SYSTEM_PATH})
    shutil.rmtree(tree)


def _compile(tree: Path) -> None:
    """Byte code of the project, .venv included, beside the sources: emulated, compiling takes longer than the tests."""
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", tree, "-p", "/"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    subprocess.run([*command, tree / PROJECT.relative_to("/")], check=True, env=environment)


def _copy(source: Path, tree: Path, leave_out: Callable[[str], bool]) -> None:
    """Copy to the same path below `tree`, symlinks as such; sockets and what is there already are left alone."""
    target = tree / source.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(
            source,
            target,
            symlinks=True,
            ignore=lambda _, names: [name for name in names if leave_out(name)],
            dirs_exist_ok=True,
        )
    elif not os.path.lexists(target):
        shutil.copy2(source, target, follow_symlinks=False)


def _links(path: Path) -> list[Path]:
    """A path and what it leads to, step by step."""
    found = [path]
    while found[-1].is_symlink():
        found.append(found[-1].parent / found[-1].readlink())
    return found


def _libraries(files: list[Path]) -> set[Path]:
    """What these are linked to, by the paths that the loader looks at."""
    told = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False).stdout
    return {Path(found) for found in re.findall(r"(?:=> |^\t)(/\S+) \(0x", told, re.MULTILINE)}
