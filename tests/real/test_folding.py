"""Roots on FAT and on ext4 with casefold, in a guest: this machine's kernel may have neither."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import effort
from tests.real import folding_cases
from tests.real.guest import SYSTEM_PATH
from tests.real.python_guest import SCRATCH, run_in_guest

# `chattr +F` of an empty directory: FS_IOC_SETFLAGS, FS_CASEFOLD_FL beside FS_EXTENT_FL. New ones below do as it does.
CASEFOLD = (
    f"import fcntl, os; descriptor = os.open('{SCRATCH}/casefold', os.O_RDONLY); "
    "fcntl.ioctl(descriptor, 0x40086602, (0x40000000 | 0x80000).to_bytes(8, 'little'))"
)
PLUGINS = "-p no:cacheprovider --noconftest --import-mode=importlib -p no:warnings"
COMMAND = f"""
set -e
busybox mkdir {SCRATCH}/vfat {SCRATCH}/disk
busybox mount -t vfat /dev/vdb {SCRATCH}/vfat
busybox mount -t ext4 /dev/vdc {SCRATCH}/disk
busybox mkdir {SCRATCH}/disk/casefold
busybox ln -s disk/casefold {SCRATCH}/casefold
{sys.executable} -c "{CASEFOLD}"
set +e
export BLOCKSYNC_FOLDS={SCRATCH}
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
{sys.executable} -m pytest -c /dev/null --rootdir=$PWD --color=no -q {PLUGINS} $CASES
"""
CASES = re.findall(r"^def (test_\w+)", Path(folding_cases.__file__).read_text(), re.MULTILINE)


def make_images(folder: Path) -> tuple[Path, Path]:
    fat, casefold = folder / "fat.img", folder / "casefold.img"
    environment = {**os.environ, "PATH": SYSTEM_PATH}
    subprocess.run(["mkfs.vfat", "-C", fat, str(64 << 10)], check=True, env=environment, capture_output=True)
    options = ["-q", "-F", "-t", "ext4", "-O", "casefold", "-E", "encoding=utf8"]
    subprocess.run(["mke2fs", *options, casefold, "64M"], check=True, env=environment)
    return fat, casefold


# Emulated, and the host may be busy: far slower than anything else.
@pytest.mark.timeout(1800)
def test_nothing_is_lost_where_the_filesystem_takes_two_names_for_one(tmp_path: Path) -> None:
    """So many of folding_cases.py as the effort says, and all of these must have run."""
    chosen = effort.first("filesystems that fold", CASES)
    cases = " ".join(f"tests/real/folding_cases.py::{case}" for case in chosen)
    ended = run_in_guest(tmp_path, f"export CASES='{cases}'\n{COMMAND}", make_images(tmp_path))
    assert ended.exit_code == 0, ended.console[-20_000:]
    assert re.search(rf"^{len(chosen) * len(folding_cases.FOLDS)} passed in", ended.console, re.MULTILINE), (
        ended.console
    )
