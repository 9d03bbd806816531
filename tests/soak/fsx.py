"""fsx: a million random operations on files of a mount, with seals and collections under way and remounts in between.

Two programs, by turns: the exerciser of this project, and the `fsx` crate where it is installed (`cargo install fsx`).
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests import effort
from tests.conftest import Mounted, mounted_below
from tests.soak.report import Report
from tests.system.exerciser import Exerciser

MINUTES = 20
_CHUNK: Final = 20_000
_LANES: Final = 4  # they wait for the disk most of the time
_SEAL_EVERY_S: Final = 5.0

# Everything that a mount can do: no punch_hole, which libfuse's bindings can't express. Few operations wait for
# the disk, because the disk is not what is tested here.
_CONFIG: Final = """
flen = {size}
nomsyncafterwrite = true
[opsize]
min = 1
max = {longest}
[weights]
close_open = 2
invalidate = 0.2
mapread = 10
mapwrite = 10
read = 20
write = 20
truncate = 5
fsync = 0.2
fdatasync = 0.2
posix_fallocate = 0.2
sendfile = 2
posix_fadvise = 1
copy_file_range = 2
"""
_SIZES: Final = [(256 << 10, 16 << 10), (64 << 10, 4 << 10), (1 << 20, 32 << 10), (128 << 10, 8 << 10)]
"""Size of the file and of the longest operation, by turns."""


def run(scale: float, report: Report) -> None:
    """Exercise files chunk by chunk, on several mounts side by side.

    After each chunk all that was there must still be there when mounted again.

    Raises:
        AssertionError: A read differed from what was written.
        subprocess.CalledProcessError: fsx found a difference; its log is above.
    """
    crate = shutil.which("fsx")
    home = Path(tempfile.mkdtemp(prefix="blocksync-fsx-"))
    chunks = range(max(_LANES, effort.soak("exerciser", scale) // _CHUNK))
    try:
        lanes = [Lane(home / f"lane-{number}", crate, report) for number in range(_LANES)]
        with ThreadPoolExecutor(_LANES) as pool:
            list(pool.map(Lane.run, lanes, [chunks[number::_LANES] for number in range(_LANES)]))
    finally:
        shutil.rmtree(home, ignore_errors=True)  # a mount that is left behind has failed the run already
    done = {name: sum(lane.done[name] for lane in lanes) for name in ("exerciser", "fsx", "flush", "gc", "remounts")}
    report.record("operations", **done, has_crate=crate is not None)


class Lane:
    """One mount and what was done on it."""

    def __init__(self, home: Path, crate: str | None, report: Report) -> None:
        self.home = home
        self.done: Counter[str] = Counter()
        self._crate = crate
        self._report = report

    def run(self, chunks: range) -> None:
        """Exercise one file for each chunk, then check the volume."""
        self.home.mkdir()
        for mounted in mounted_below(self.home):
            for chunk in chunks:
                path = mounted.path / f"file-{chunk}"
                with _sealing(mounted, self.done):
                    self._exercise(path, chunk)
                before = _digests(mounted.path)
                mounted.umount()
                mounted.remount()
                self.done["remounts"] += 1
                assert _digests(mounted.path) == before, f"chunk {chunk}: content changed over a remount"
                if chunk % 4 == 3:
                    path.unlink()
                self._report.progress(f"chunk {chunk}: {dict(self.done)}")
            mounted.umount()
            mounted.run("fsck", mounted.volume)
            mounted.run("scrub", mounted.volume)

    def _exercise(self, path: Path, chunk: int) -> None:
        size, longest = _SIZES[chunk % len(_SIZES)]
        if self._crate and chunk // _LANES % 2:
            config = self.home / "fsx.toml"
            config.write_text(_CONFIG.format(size=size, longest=longest))
            path.touch()
            options = ["-q", "-N", str(_CHUNK), "-S", str(chunk), "-f", str(config), "-P", str(self.home)]
            subprocess.run([self._crate, *options, str(path)], check=True)
            self.done["fsx"] += _CHUNK
            return
        exerciser = Exerciser(path, chunk, size_max=size, length_max=longest)
        exerciser.run(_CHUNK)
        exerciser.close()
        exerciser.check()
        self.done["exerciser"] += _CHUNK


@contextmanager
def _sealing(mounted: Mounted, done: Counter[str]) -> Iterator[None]:
    """Seal and collect by turns while the block runs."""
    over = threading.Event()

    def seal() -> None:
        while not over.wait(_SEAL_EVERY_S):
            verb = "gc" if done["flush"] > 4 * done["gc"] else "flush"
            mounted.run(verb, mounted.path)
            done[verb] += 1

    thread = threading.Thread(target=seal)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
