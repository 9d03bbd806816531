"""Somebody who works in a folder: random steps of the kinds that a synced root sees."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

BLOCK = 4096


class User:
    """Takes steps in a folder, the same ones for the same seed and the same folder."""

    def __init__(self, seed: int, root: Path) -> None:
        self._draw = random.Random(seed)
        self._root = root

    def step(self) -> None:
        """Do one thing: write in one of several ways, rename, copy, delete, or change attributes."""
        files = [path for path in self._all() if path.is_file() and not path.is_symlink()]
        ways = [self._write, self._write, self._arrange, self._take_away]
        if files:
            ways += [self._edit, self._edit, self._edit]
        self._draw.choice(ways)(files)

    def _all(self) -> list[Path]:
        return sorted(path for path in self._root.rglob("*") if ".blocksync" not in path.parts)

    def _place(self) -> Path:
        """A name, taken or not, in some directory."""
        folders = [self._root, *(path for path in self._all() if path.is_dir() and not path.is_symlink())]
        return self._draw.choice(folders) / self._draw.choice("abcdef")

    def _bytes(self, size: int) -> bytes:
        """Blocks of few kinds, so that files share some; zeros among them."""
        kinds = [bytes(BLOCK), *(random.Random(kind).randbytes(BLOCK) for kind in range(5))]
        return b"".join(self._draw.choice(kinds) for _ in range(-(-size // BLOCK)))[:size]

    def _write(self, _files: list[Path]) -> None:
        place = self._place()
        if place.is_symlink() or not place.is_dir():
            place.unlink(missing_ok=True)
            place.write_bytes(self._bytes(self._draw.choice([0, 1, 100, BLOCK, 3 * BLOCK + 7, 12 * BLOCK])))

    def _edit(self, files: list[Path]) -> None:
        """Change a file in its place; now and then so that its size and time tell nothing."""
        file = self._draw.choice(files)
        before = file.stat()
        at = self._draw.randrange(before.st_size + 1)
        with file.open("r+b") as opened:
            match self._draw.randrange(4):
                case 0:
                    opened.truncate(at)
                case 1:
                    opened.seek(0, os.SEEK_END)
                    opened.write(self._bytes(self._draw.choice([1, BLOCK, 2 * BLOCK + 1])))
                case 2:
                    opened.truncate(before.st_size + 5 * BLOCK)  # a hole
                case _:
                    opened.seek(at)
                    opened.write(self._bytes(min(before.st_size - at, 2 * BLOCK)))
        if self._draw.random() < 0.5:
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    def _arrange(self, files: list[Path]) -> None:
        """Make directories, links and copies; change modes."""
        place = self._place()
        match self._draw.randrange(4):
            case 0 if not os.path.lexists(place):
                place.mkdir()
            case 1 if not os.path.lexists(place):
                place.symlink_to(self._draw.choice("abcdef"))
            case 2 if files and not os.path.lexists(place):
                shutil.copy2(self._draw.choice(files), place)
            case _ if files:
                self._draw.choice(files).chmod(self._draw.choice([0o600, 0o640, 0o755]))

    def _take_away(self, _files: list[Path]) -> None:
        """Rename or delete, directories too."""
        there = self._all()
        if not there:
            return
        source, target = self._draw.choice(there), self._place()
        if self._draw.random() < 0.6:
            if not os.path.lexists(target) and source not in (target, *target.parents):
                source.rename(target)
        elif source.is_dir() and not source.is_symlink():
            shutil.rmtree(source)
        else:
            source.unlink()
