"""Make a golden archive: `python -m tests.golden.make ARCHIVE --code CHECKOUT`. See README.md."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.golden.contents import describe

LARGE_BLOCKS = 10_000  # of `numbered`: 39 MiB
BLOCK = 4096  # the smallest: a file of several leaves stays small
LEFT_OUT = {"lock.mdb", "control.sock", "mount.log"}  # no part of the format: made anew by whoever opens the volume


class Maker:
    """Makes volumes with the code of one checkout."""

    def __init__(self, code: Path, home: Path, options: list[str], *, snapshot: bool, large: bool) -> None:
        self.code = code
        self.home = home
        self.options = options
        self.snapshot = snapshot
        self.large = large

    def run(self, *arguments: str | Path) -> None:
        """Run that checkout's blocksync."""
        subprocess.run(
            [sys.executable, "-c", "from syncer.cli.main import main; main()", *arguments],
            env={**os.environ, "PYTHONPATH": str(self.code)},
            cwd=self.code,
            check=True,
        )

    def volume(self, name: str, *, killed: bool) -> None:
        """Make a volume, fill it, describe it, and end its mount."""
        volume, mountpoint = self.home / name, self.home / "mountpoint"
        mountpoint.mkdir(exist_ok=True)
        self.run("init", volume, *(["--block-size", str(BLOCK)] if not self.large else []), *self.options)
        self.run("mount", volume, mountpoint)
        fill(mountpoint)
        if self.large:
            (mountpoint / "large").write_bytes(numbered(100_000, LARGE_BLOCKS))
        self.run("flush", mountpoint)
        if self.snapshot:
            self.run("snapshot", "create", mountpoint, "before the change")
        change(mountpoint)
        if killed:
            leave_orphan(mountpoint)
            manifest = describe(mountpoint)
            kill(volume)
            subprocess.run(["umount", "-l", mountpoint], check=True)
        else:
            manifest = describe(mountpoint)
            self.run("umount", mountpoint)
        assert any((volume / "staging").iterdir()), "nothing was left staged"
        (self.home / f"{name}.json").write_text(json.dumps(manifest, indent=1) + "\n")


def numbered(first: int, count: int) -> bytes:
    """Blocks that all differ, and that an archive's compression makes small."""
    return b"".join((b"%08d" % number) * (BLOCK // 8) for number in range(first, first + count))


def fill(root: Path) -> None:
    """Make one of everything, to be sealed."""
    deep = root / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (deep / "small").write_bytes(b"small\n")
    (deep / "empty").touch()
    (root / "leaves").write_bytes(numbered(0, 600) + b"the end")  # three leaves
    (root / "copy").write_bytes(numbered(0, 600))  # two leaves in common
    with (root / "sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(5 << 40)  # the fifth staging range, a leaf far out
        file.write(b"middle")
        file.truncate(9 << 40)
    (root / "random").write_bytes(b"".join(hashlib.sha256(b"%d" % at).digest() for at in range(1000)))
    os.link(root / "random", root / "a" / "hard link")
    (root / "symlink").symlink_to("a/b/nowhere")
    os.mkfifo(root / "fifo", 0o640)
    os.setxattr(root / "random", b"user.note", b"\x00\xff value")
    os.setxattr(root / "a", b"user.empty", b"")
    (root / os.fsdecode(b"not \xff utf-8")).write_bytes(b"named in bytes")
    (root / "random").chmod(0o4751)
    os.chown(root / "leaves", 1234, 5678)
    for path, seconds in ((root / "leaves", -1), (root / "copy", 2**33), (deep, 1)):
        os.utime(path, ns=(seconds * 10**9 + 7, seconds * 10**9 + 123))


def change(root: Path) -> None:
    """Leave changes staged: they are fsynced, and not blocks yet."""
    with (root / "copy").open("r+b", buffering=0) as file:
        file.seek(300 * BLOCK + 100)
        file.write(b"staged over a sealed block")
        file.seek(10 * BLOCK)
        file.write(bytes(BLOCK))  # staged zeros hide what is sealed
        os.fsync(file.fileno())
    with (root / "leaves").open("r+b", buffering=0) as file:
        file.truncate(500 * BLOCK + 1)
        file.seek(700 * BLOCK)
        file.write(b"past the old end")
        os.fsync(file.fileno())
    os.utime(root / "leaves", ns=(5, 5))
    commit(root)


def leave_orphan(root: Path) -> None:
    """Unlink a file that stays open until the mount is killed."""
    file = os.open(root / "unlinked", os.O_CREAT | os.O_WRONLY)  # closed by the end of this process
    os.write(file, numbered(10_000, 3))
    os.fsync(file)
    (root / "unlinked").unlink()
    commit(root)


def commit(root: Path) -> None:
    """Make all metadata durable."""
    directory = os.open(root, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def kill(volume: Path) -> None:
    """SIGKILL the mount process and wait until it is gone."""
    descriptor = os.pidfd_open(int((volume / "lock").read_text()))
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    select.select([descriptor], [], [])
    os.close(descriptor)


def pack(home: Path, archive: Path) -> None:
    """Write a sparse tar: holes of LMDB and staging files are holes in it, written zeros are data."""
    plain = archive.with_suffix("")
    subprocess.run(
        ["tar", "-cf", plain, "--sparse", "--hole-detection=seek", "--format=gnu", "--owner=0", "--group=0"]
        + [f"--exclude={name}" for name in sorted(LEFT_OUT)]
        + ["-C", home, *sorted(path.name for path in home.iterdir() if path.name != "mountpoint")],
        check=True,
    )
    subprocess.run(["xz", "-9e", "--force", plain], check=True)
    with tarfile.open(archive) as written:
        print(archive, archive.stat().st_size, "bytes,", len(written.getnames()), "members")


def main() -> None:
    """Make the archive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path, help="to write, ….tar.xz")
    parser.add_argument("--code", type=Path, default=Path.cwd(), help="checkout whose code makes the volumes")
    parser.add_argument("--option", action="append", default=[], help="of `blocksync init`, e.g. --compression=zstd")
    parser.add_argument("--snapshot", action="store_true", help="keep a snapshot, for versions that can")
    parser.add_argument("--large", action="store_true", help="a file that becomes a segment; in blocks of 64 KiB")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.archive.parent) as home:
        home_path, keeps = Path(home).resolve(), chosen.snapshot
        maker = Maker(chosen.code.resolve(), home_path, chosen.option, snapshot=keeps, large=chosen.large)
        maker.volume("clean", killed=False)
        maker.volume("killed", killed=True)
        pack(maker.home, chosen.archive.resolve())


if __name__ == "__main__":
    main()
