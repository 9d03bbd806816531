"""Shell scripts in a mount namespace of their own: what they mount and install is gone with them.

Inside, /dev/fuse is open to everybody, and /mnt is an empty tmpfs that every user can write to. `blocksync` and the
mount helper in /sbin are this clone's; with INSTALLED=DESTDIR they are what `make install` put there, and its usr/local
covers the machine's. The clone and the interpreter are within reach of every user, also if they lie in root's home.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.kit.hostfs import LET_GO, apart

PROJECT = Path(__file__).resolve().parents[2]

_PROLOGUE = """
mount -t tmpfs -o mode=1777 none /mnt
mkdir -p ${INSTALLED:=/mnt/none}/usr/sbin /mnt/sbin/upper /mnt/sbin/work /mnt/dev /mnt/project /mnt/python /mnt/m
layers=lowerdir="$INSTALLED/usr/sbin:/usr/sbin",upperdir=/mnt/sbin/upper,workdir=/mnt/sbin/work
mount -t overlay -o "$layers" none /usr/sbin
if [ -d "$INSTALLED/usr/local" ]; then
    mount --bind "$INSTALLED/usr/local" /usr/local
    PATH=/usr/local/bin:$PATH
else
    ln -sf "$PYTHON_BIN/mount.fuse.blocksync" /usr/sbin/mount.fuse.blocksync
    PATH=$PYTHON_BIN:$PATH
fi
mknod /mnt/dev/fuse c 10 229
chmod 666 /mnt/dev/fuse
mount --bind /mnt/dev/fuse /dev/fuse
export XDG_STATE_HOME=/mnt/state XDG_DATA_HOME=/mnt/data
as_user() { setpriv --reuid "$1" --regid "$1" --clear-groups --inh-caps=-all "${@:2}"; }
as_nobody() { as_user 65534 "$@"; }
# Show a directory at its own path to users that may not walk there: an empty tmpfs hides the closed ancestor.
within_reach() {
    local at= piece pieces
    IFS=/ read -ra pieces <<<"${1#/}"
    for piece in "${pieces[@]}"; do
        at+=/$piece
        as_nobody test -x "$at" && continue
        [ ! -e "$at" ] || mount -t tmpfs -o mode=755 none "$at"
        break
    done
    [ -d "$1" ] || { mkdir -p "$1"; mount --bind "$2" "$1"; }
}
mount --bind "$PROJECT" /mnt/project
mount --bind "$PYTHON_PREFIX" /mnt/python
within_reach "$PROJECT" /mnt/project
within_reach "$PYTHON_PREFIX" /mnt/python
refused() { if "$@"; then echo "this should have failed: $*" >&2; exit 99; fi; }
# Ask the mount process of a volume for its id, and later wait until it is gone.
holder() { tr -d '\\n' <"$1/lock"; }
gone() { tail --pid="$1" -f /dev/null; }
"""


def in_namespace(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a bash script as root in a new mount namespace; it stops at the first command that fails."""
    assert os.geteuid() == 0, "this test makes a mount namespace and device nodes: run it as root"
    whole = f"set -euo pipefail\n{LET_GO}{_PROLOGUE}{script}"
    return subprocess.run(
        apart("unshare", "--mount", "--propagation", "private", "bash", "-c", whole),
        env={
            **os.environ,
            "PROJECT": str(PROJECT),
            "PYTHON_BIN": str(Path(sys.executable).parent),
            "PYTHON_PREFIX": sys.base_prefix,
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def passed(script: str, **environment: str) -> str:
    """Run a script that must end with 0; returns its stdout."""
    done = in_namespace(script, **environment)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
