"""A fresh Debian tree, the package of this clone, and programs that run in the tree as root."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.kit.hostfs import LET_GO, apart

PROJECT = Path(__file__).resolve().parents[2]


def done(*command: str | Path, **environment: str) -> str:
    """Run something that must end with 0; its stdout."""
    ended = subprocess.run(
        command, cwd=PROJECT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@cache
def package() -> Path:
    """The Debian package of this clone, as it was when it was first asked for."""
    return Path(done("scripts/deb", _kept() / "deb").splitlines()[-1])


def debian_tree(tree: Path, *packages: str, suite: str = "bookworm") -> Path:
    """A fresh Debian, 12 unless another one is asked for, which gets packages as this machine does."""
    done("cp", "-a", _bare_tree(suite), tree)
    if packages:
        run_in(tree, f"apt-get -qq update; apt-get -qq install -y --no-install-recommends {' '.join(packages)}")
    return tree


@cache
def _kept() -> Path:
    """For what takes a minute to make, and is the same for all tests of a process."""
    folder = Path(tempfile.mkdtemp(prefix="blocksync-debian-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _bare_tree(suite: str) -> Path:
    tree = _kept() / suite
    mirror = done("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Codename: bookworm")
    done("debootstrap", "--variant=minbase", suite, tree, mirror.splitlines()[0])
    for settings in Path("/etc/apt/apt.conf.d").glob("*prox*"):
        (tree / "etc/apt/apt.conf.d" / settings.name).write_bytes(settings.read_bytes())
    (tree / "etc/resolv.conf").write_bytes(Path("/etc/resolv.conf").read_bytes())
    return tree


def run_in(tree: Path, script: str, *namespaces: str) -> str:
    """Run a script as root of a tree, with a kernel around it; returns its stdout."""
    return done(*command_in(tree, script, *namespaces))


def command_in(tree: Path, script: str, *namespaces: str) -> list[str]:
    """What runs it; its mounts and processes go with it."""
    (tree / "life").write_text(script)
    inside = f"""
        set -eu
        {LET_GO}
        mount -t proc proc {tree}/proc
        mount -t tmpfs none {tree}/dev
        for name in null zero random urandom; do
            touch {tree}/dev/$name
            mount --bind /dev/$name {tree}/dev/$name
        done
        mknod {tree}/dev/fuse c 10 229 2>/dev/null || true
        ip link set lo up
        export PATH=/usr/local/bin:/usr/sbin:/usr/bin HOME=/root
        exec chroot {tree} env -i PATH=$PATH HOME=$HOME DEBIAN_FRONTEND=noninteractive sh -eu /life
    """
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *namespaces, "--propagation", "private"]
    return apart(*unshare, "sh", "-c", inside)
