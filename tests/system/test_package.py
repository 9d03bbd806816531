"""Packages: a wheel and a source distribution for pip, and the life of the Debian package in a fresh Debian tree."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import effort
from tests.system.namespaces import PROJECT

COMMIT = ("git", "-c", f"safe.directory={PROJECT}", "describe", "--always", "--dirty", "--abbrev=12")


def done(*command: str | Path, **environment: str) -> str:
    """Run something that must end with 0; its stdout."""
    ended = subprocess.run(
        command, cwd=PROJECT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def by_pip(home: Path) -> None:
    """What pip installs from the wheel, and from the source distribution, is the command, and says of which commit."""
    done("scripts/wheel", home / "dist")
    for kind in ("*.whl", "*.tar.gz"):
        [file] = (home / "dist").glob(kind)
        target = home / kind.strip("*.")
        # Its libraries are those of the tests: that pip can fetch them is shown by whoever set this clone up.
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        done(*pip, "--no-deps", "--target", target, file)
        told = done(target / "bin/blocksync", "--version", PYTHONPATH=str(target))
        assert told == f"blocksync {version()} (build {done(*COMMIT).strip()})\n"


def version() -> str:
    """As setup.cfg has it."""
    line = next(line for line in (PROJECT / "setup.cfg").read_text().splitlines() if line.startswith("version = "))
    return line.removeprefix("version = ")


def debian_package(home: Path) -> None:
    """Installed, used, upgraded, removed and purged, as root, by apt: nothing is cut off while it is mounted."""
    package = Path(done("scripts/deb", home / "deb").splitlines()[-1])
    newer = home / "newer.deb"
    done("dpkg-deb", "-R", package, home / "unpacked")
    control = home / "unpacked/DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {version()}", f"Version: {version()}+later"))
    done("dpkg-deb", "-Zxz", "-z0", "--root-owner-group", "--build", home / "unpacked", newer)
    mirror = done("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Codename: bookworm")
    tree = home / "tree"
    done("debootstrap", "--variant=minbase", "bookworm", tree, mirror.splitlines()[0])
    for file, name in ((package, "now.deb"), (newer, "later.deb")):
        (tree / name).write_bytes(file.read_bytes())
    (tree / "life").write_text(_LIFE)
    for settings in Path("/etc/apt/apt.conf.d").glob("*prox*"):
        (tree / "etc/apt/apt.conf.d" / settings.name).write_bytes(settings.read_bytes())
    (tree / "etc/resolv.conf").write_bytes(Path("/etc/resolv.conf").read_bytes())
    inside = f"""
        set -eu
        mount -t proc proc {tree}/proc
        mount -t tmpfs none {tree}/dev
        for name in null zero random urandom; do
            touch {tree}/dev/$name
            mount --bind /dev/$name {tree}/dev/$name
        done
        mknod {tree}/dev/fuse c 10 229
        exec chroot {tree} env -i PATH=/usr/sbin:/usr/bin HOME=/root DEBIAN_FRONTEND=noninteractive sh -eu /life
    """
    told = done("unshare", "--mount", "--pid", "--fork", "--propagation", "private", "sh", "-c", inside)
    assert told.endswith("all of it\n")
    assert f"blocksync {version()} (build " in told


_LIFE = """
refused() { if "$@" >/refused 2>&1; then echo "this should have failed: $*" >&2; exit 1; fi; cat /refused; }
apt-get -qq update
apt-get -qq install -y --no-install-recommends /now.deb >/dev/null
blocksync --version
man() { zcat "/usr/share/man/man$1/$2.$1.gz"; }
man 1 blocksync-link | grep -q reconcile
man 8 mount.fuse.blocksync | grep -q fstab
for unit in blocksync-serve.service blocksync-mount@.service blocksync-watch@.service; do
    grep -q /usr/bin/blocksync "/usr/lib/systemd/system/$unit"
done
test -s /usr/share/bash-completion/completions/blocksync

blocksync init /srv/volume
mkdir /srv/images
mount -t fuse.blocksync /srv/volume /srv/images
head -c 3000000 /dev/urandom >/srv/images/disk
sha256sum </srv/images/disk >/sum

refused apt-get -qq install -y /later.deb | grep /srv/images
blocksync stats /srv/images >/dev/null
refused dpkg --remove blocksync | grep /srv/images
blocksync umount /srv/images
apt-get -qq -f install -y >/dev/null
apt-get -qq install -y --no-install-recommends /later.deb >/dev/null
dpkg-query -W -f '${Version}\\n' blocksync | grep -q later
blocksync mount /srv/volume /srv/images
sha256sum </srv/images/disk | cmp - /sum
blocksync umount /srv/images

dpkg --remove blocksync >/dev/null
refused test -e /usr/bin/blocksync
dpkg --purge blocksync >/dev/null
find / -xdev -path /proc -prune -o -iname '*blocksync*' -print | grep -v '^/srv/' >/left || true
cat /left
test ! -s /left
test -e /srv/volume/volume.toml
echo all of it
"""

KINDS: tuple[Callable[[Path], None], ...] = (by_pip, debian_package)


@pytest.mark.parametrize("kind", KINDS[: effort.count("packages")], ids=lambda kind: kind.__name__)
def test_a_package_installs_and_works(kind: Callable[[Path], None], tmp_path: Path) -> None:
    kind(tmp_path)
