"""A family of related ext4 disk images, made from real files with e2fsprogs alone: no root, no loop devices.

Takes seconds; `make demo` and the benchmarks use it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

IMAGE_SIZE = "512M"
BASE_TREE_BYTES = 160 << 20  # about a minimal Debian; leaves room in the image for later changes
ADDED_TREE_BYTES = 24 << 20  # about what installing a web server adds
SOURCES = (Path("/usr/bin"), Path("/usr/sbin"), Path("/usr/lib"), Path("/usr/share"))
IMAGE_UUID = (
    "6f1f1c1e-0d5a-4a59-9c1b-b10c5f5c0001"  # fixed, like the clock below: runs differ only by the machine's files
)
CLOCK = "1700000000"


def build_family(directory: Path) -> list[Path]:
    """Build golden.img, web.img (a clone with software added in place) and web-day2.img (the clone a day later)."""
    tree = directory / "tree"
    files = real_files()
    copy_files(files, tree, BASE_TREE_BYTES)
    golden, web, day2 = (directory / name for name in ("golden.img", "web.img", "web-day2.img"))
    make_filesystem(golden, tree)
    copy_sparse(golden, web)
    write_into(web, [("/srv", list(take(files, ADDED_TREE_BYTES)))])
    copy_sparse(web, day2)
    log = directory / "access.log"
    log.write_text("".join(f"10.0.{n % 256}.7 GET /item/{n} 200 {n * 7919 % 65536}\n" for n in range(60_000)))
    write_into(day2, [("/log", [log])])
    shutil.rmtree(tree)
    log.unlink()
    return [golden, web, day2]


def edit_in_place(image: Path, scratch: Path, name: str = "guest-note.txt") -> None:
    """Change a file system inside its image, as a running guest would: a new file, through ext4's own structures."""
    note = scratch / name
    note.write_text("written inside the guest\n" * 4000)
    write_into(image, [("/var-guest", [note])])
    note.unlink()


def real_files() -> Iterator[Path]:
    """Regular files of this machine in a stable order, large enough to be worth a block."""
    for source in SOURCES:
        for folder, folders, names in os.walk(source):
            folders.sort()
            for name in sorted(names):
                path = Path(folder, name)
                if (
                    not path.is_symlink()
                    and path.is_file()
                    and 4096 <= path.stat().st_size <= 16 << 20
                    and os.access(path, os.R_OK)
                ):
                    yield path


def take(files: Iterator[Path], total_bytes: int) -> Iterator[Path]:
    """The next files, up to a total size."""
    for path in files:
        total_bytes -= path.stat().st_size
        if total_bytes < 0:
            return
        yield path


def copy_files(files: Iterator[Path], tree: Path, total_bytes: int) -> None:
    """Lay out a file tree to make an image of."""
    for path in take(files, total_bytes):
        target = tree / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def make_filesystem(image: Path, tree: Path) -> None:
    """`mke2fs -d`: an ext4 file system with the tree's files in it."""
    options = f"hash_seed={IMAGE_UUID},lazy_itable_init=0"
    run("mke2fs", "-q", "-F", "-t", "ext4", "-U", IMAGE_UUID, "-E", options, "-d", str(tree), str(image), IMAGE_SIZE)


def copy_sparse(source: Path, target: Path) -> None:
    """Copy an image, holes kept."""
    run("cp", "--sparse=always", str(source), str(target))


def write_into(image: Path, folders: list[tuple[str, list[Path]]]) -> None:
    """Write files into the file system of an image, in place."""
    commands = []
    for folder, files in folders:
        # `write` links into debugfs's working directory and takes no path.
        commands += [f"mkdir {folder}", f"cd {folder}"]
        commands += [f'write "{path}" {n:05d}-{path.name.replace(" ", "_")}' for n, path in enumerate(files)]
    result = run("debugfs", "-w", "-f", "-", str(image), stdin="\n".join(commands) + "\n")
    # debugfs ends with 0 whatever happens; besides its banner it writes to stderr only what went wrong.
    problems = [line for line in result.splitlines() if not line.startswith("debugfs ")]
    if problems:
        raise RuntimeError(f"debugfs could not change {image}: {problems[0]}")


def run(*command: str, stdin: str = "") -> str:
    """Run a tool with its clock fixed and return what it wrote to stderr."""
    environment = {**os.environ, "E2FSPROGS_FAKE_TIME": CLOCK, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    result = subprocess.run(command, input=stdin, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {result.stderr.strip() or result.stdout.strip()}")
    return result.stderr
