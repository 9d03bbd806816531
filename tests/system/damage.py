"""Damage to any bytes of a volume, and every command run on it: each must end with a code that is documented."""

from __future__ import annotations

import errno
import mmap
import os
import random
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tests.golden.contents import describe
from tests.system.machines import Ended, Machines

GOLDEN = Path(__file__).parents[1] / "golden"
KNOWN_ENDS = {0, 10, 14, 15}
SURE_ENDS = {errno.EIO, errno.ENOENT, errno.ENOTCONN}
"""Of reads: what is lost, a name without its inode, a mount that a damaged page has killed."""


def damage(volume: Path, chance: random.Random) -> list[str]:
    """Flip bytes of a few files, make pages zero, or cut one off; returns what was done."""
    files = sorted(path for path in volume.rglob("*") if path.is_file() and path.stat().st_size)
    done = []
    for path in chance.sample(files, chance.randint(1, 3)):
        size = path.stat().st_size
        kind = chance.choice(["cut", "flip", "flip", "zero"])
        if kind == "cut":
            os.truncate(path, chance.randrange(size))
        else:
            with path.open("r+b") as file:
                for _ in range(chance.randint(1, 50 if kind == "flip" else 3)):
                    _spoil(file.fileno(), size, kind, chance)
        done.append(f"{path.name} {kind}")
    return done


def _spoil(fd: int, size: int, kind: str, chance: random.Random) -> None:
    at = chance.randrange(size)
    if kind == "zero":
        start = at // mmap.PAGESIZE * mmap.PAGESIZE
        os.pwrite(fd, bytes(min(mmap.PAGESIZE, size - start)), start)
    else:
        os.pwrite(fd, bytes([os.pread(fd, 1, at)[0] ^ 1 << chance.randrange(8)]), at)


def unpacked(machines: Machines, archive: str) -> Path:
    """The killed volume of a golden archive, unpacked once."""
    home = machines.home / archive
    if not home.exists():
        with tarfile.open(GOLDEN / f"{archive}.tar.xz") as packed:
            packed.extractall(home, filter="data")
    return home / "killed"


def run_damaged(machines: Machines, seed: int) -> Iterator[str]:
    """Damage a volume and run everything on it; yields how each command ended. Odd seeds mount it before any check."""
    chance = random.Random(seed)
    volume, mountpoint = machines.home / "volume-golden", machines.home / "golden"
    shutil.rmtree(volume, ignore_errors=True)
    mountpoint.mkdir(exist_ok=True)
    shutil.copytree(unpacked(machines, f"format-{1 + seed // 2 % 2}"), volume)
    done = f"seed {seed}: {damage(volume, chance)}"

    def run(*arguments: str | Path) -> Ended:
        ended = machines.run(*arguments, expect=None)
        assert ended.exit_code in KNOWN_ENDS, (done, arguments, ended)
        assert ended.stderr.count("\n") <= 1, (done, arguments, ended)
        return ended

    def mount() -> Iterator[str]:
        ended = run("mount", volume, mountpoint)
        yield f"mount {ended.exit_code}"
        if ended.exit_code:
            return
        try:
            describe(mountpoint)
        except OSError as error:
            if error.errno not in SURE_ENDS:
                raise AssertionError(done) from error
            yield f"read {errno.errorcode[error.errno]}"
        yield f"stats {run('stats', mountpoint).exit_code}"
        machines.run("umount", mountpoint, expect=None)

    if seed % 2:
        yield from mount()
    for verb in (("fsck",), ("gc",), ("scrub",), ("snapshot", "list"), ("fsck", "--repair"), ("fsck",)):
        yield f"{' '.join(verb)} {run(*verb, volume).exit_code}"
    if not seed % 2:
        yield from mount()
