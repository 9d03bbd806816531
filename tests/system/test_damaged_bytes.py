"""Whatever bytes of a volume are flipped or cut off: every command ends with a code and a word, never by a signal."""

from __future__ import annotations

import contextlib
import random
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.golden.contents import describe
from tests.system.machines import Ended, Machines

GOLDEN = Path(__file__).parents[1] / "golden" / "format-1.tar.xz"
KNOWN_ENDS = {0, 10, 14, 15}


def damage(volume: Path, chance: random.Random) -> list[str]:
    """Flip bytes of a few files, or cut one off; returns what was done."""
    files = sorted(path for path in volume.rglob("*") if path.is_file() and path.stat().st_size)
    done = []
    for path in chance.sample(files, chance.randint(1, 3)):
        size = path.stat().st_size
        if chance.random() < 0.3:
            end = chance.randrange(size)
            with path.open("r+b") as file:
                file.truncate(end)
            done.append(f"{path.name} cut at {end}")
            continue
        with path.open("r+b") as file:
            for _ in range(chance.randint(1, 50)):
                at = chance.randrange(size)
                file.seek(at)
                before = file.read(1)
                file.seek(at)
                file.write(bytes([before[0] ^ 1 << chance.randrange(8)]))
        done.append(f"{path.name} flipped")
    return done


def run_damaged(machines: Machines, seed: int) -> None:
    """Damage a volume and run everything on it."""
    chance = random.Random(seed)
    volume = machines.home / "volume-golden"
    if not volume.exists():
        with tarfile.open(GOLDEN) as packed:
            packed.extractall(machines.home, filter="data")
        (machines.home / "golden").mkdir()
        (machines.home / "killed").rename(machines.home / "sound")
    else:
        shutil.rmtree(volume)
    shutil.copytree(machines.home / "sound", volume)
    done = f"seed {seed}: {damage(volume, chance)}"

    def run(*arguments: str | Path) -> Ended:
        ended = machines.run(*arguments, expect=None)
        assert ended.exit_code in KNOWN_ENDS, (done, arguments, ended)
        assert "Traceback" not in ended.stderr, (done, arguments, ended)
        return ended

    run("fsck", volume)
    run("scrub", volume)
    run("fsck", volume, "--repair")
    run("fsck", volume)
    if run("mount", volume, machines.home / "golden").exit_code == 0:
        with contextlib.suppress(OSError):  # EIO of what is lost
            describe(machines.home / "golden")
        run("umount", machines.home / "golden")
        run("fsck", volume)


@pytest.mark.parametrize("seed", range(3))
def test_damaged_bytes_never_end_a_command_by_surprise(machines: Machines, seed: int) -> None:
    run_damaged(machines, seed)
