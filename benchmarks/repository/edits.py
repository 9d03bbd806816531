"""What small changes cost, and what a device fetches that was away."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Final

from benchmarks.repository.devices import Share, size_of
from benchmarks.rows import Row

MIB: Final = 1 << 20
GENERATIONS: Final = 250
VERSIONS: Final = 30
BEHIND: Final = {"5": (5, 0.02), "10": (10, 0.03), "all": (VERSIONS, 0.05)}


def edits(home: Path, repetitions: int) -> list[Row]:
    """A byte before all of a file."""
    sent: list[float] = []
    received: list[float] = []
    for repetition in range(repetitions):
        place = home / f"edits{repetition}"
        rng = random.Random(repetition)
        share, folder, other = Share(place), place / "folder", place / "other"
        folder.mkdir()
        other.mkdir()
        data = rng.randbytes(10_000_000)
        (folder / "file").write_bytes(data)
        for root in (folder, other):
            share.link(root)
            share.reconcile(root)
        (folder / "file").write_bytes(b"x" + data)
        sent.append(share.reconcile(folder).figures["bytes_sent"] / 1024)
        received.append(share.reconcile(other).figures["bytes_received"] / 1024)
        assert (other / "file").read_bytes() == b"x" + data
        shutil.rmtree(place)
    return [
        Row(part="edits", work="a byte put before 10 MB: sent", unit="KiB", values=sent, limit=256),
        Row(part="edits", work="… received by a device that had the file", unit="KiB", values=received),
    ]


def generations(home: Path, repetitions: int) -> list[Row]:
    """All files but one replaced, again and again, each time with a commit; then a new device."""
    packs: list[float] = []
    rest: list[float] = []
    seconds: list[float] = []
    for repetition in range(repetitions):
        place = home / f"generations{repetition}"
        share, folder, other = Share(place), place / "folder", place / "other"
        folder.mkdir()
        other.mkdir()
        share.generations(folder, GENERATIONS)
        done = share.pull(other, "reader")
        for path in folder.glob("f*"):
            assert path.read_bytes() == (other / path.name).read_bytes()
        packs.append(done.figures["packs_received"] / sum(share.chunks().values()))
        rest.append(done.figures["rest_received"] / MIB)
        seconds.append(done.seconds)
        shutil.rmtree(place)
    work = f"{GENERATIONS} commits of 249 of 250 new files of 1 KiB, pull of the last"
    return [
        Row(
            part="generations",
            work=f"{work}: packs, of the live bytes",
            unit="times",
            values=packs,
            limit=4,
            beside="s",
            beside_values=seconds,
        ),
        Row(
            part="generations",
            work="… heads, commits, indexes and trees",
            unit="MiB",
            values=rest,
            limit=1,
        ),
    ]


def behind(home: Path, repetitions: int) -> list[Row]:
    """Devices that were away for some versions of a folder: small files, documents, a disk that is written in place."""
    beyond: dict[str, list[float]] = {name: [] for name in BEHIND}
    lacked: dict[str, list[float]] = {name: [] for name in BEHIND}
    for repetition in range(repetitions):
        place = home / f"behind{repetition}"
        share, folder = Share(place), place / "folder"
        folder.mkdir()
        worker = _Worker(folder, random.Random(repetition))
        had: dict[str, dict[str, int]] = {}
        for version in range(VERSIONS + 1):
            worker.work()
            share.pull(folder, "writer")
            for name, (away, _) in BEHIND.items():
                if version == VERSIONS - away and name != "all":
                    (place / name).mkdir()
                    share.pull(place / name, f"reader{name}")
                    had[name] = share.chunks()
        (place / "all").mkdir()
        final = share.chunks()
        for name in BEHIND:
            lacking = sum(size for chunk, size in final.items() if chunk not in had.get(name, {}))
            done = share.pull(place / name, f"reader{name}")
            beyond[name].append(100 * (done.figures["packs_received"] / lacking - 1))
            lacked[name].append(lacking / 1e6)
            assert size_of(place / name) > size_of(folder) // 2
        shutil.rmtree(place)
    return [
        Row(
            part="behind",
            work=f"a device that is {name} versions behind: pack bytes beyond the chunks that it lacks",
            unit="%",
            values=beyond[name],
            limit=100 * limit,
            beside="MB that it lacks",
            beside_values=lacked[name],
        )
        for name, (_, limit) in BEHIND.items()
    ]


class _Worker:
    """Does a day's work in a folder."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._folder = folder
        self._rng = rng
        for number in range(200):
            self._path("small", number).write_bytes(rng.randbytes(rng.randrange(1_000, 60_000)))
        for number in range(10):
            self._path("document", number).write_bytes(rng.randbytes(rng.randrange(MIB, 8 * MIB)))
        self._path("disk", 0).write_bytes(rng.randbytes(64 * MIB))

    def work(self) -> None:
        """Ten small files are edited, two documents get some bytes more, two hundred pages of the disk are written."""
        rng = self._rng
        for number in rng.sample(range(200), 10):
            path = self._path("small", number)
            data = bytearray(path.read_bytes())
            at = rng.randrange(len(data))
            data[at : at + 20] = rng.randbytes(30)
            path.write_bytes(data)
        for number in rng.sample(range(10), 2):
            path = self._path("document", number)
            data = bytearray(path.read_bytes())
            at = rng.randrange(len(data))
            data[at:at] = rng.randbytes(1_000)
            path.write_bytes(data)
        with self._path("disk", 0).open("r+b") as file:
            for page in rng.sample(range(64 * MIB // 4096), 200):
                file.seek(page * 4096)
                file.write(rng.randbytes(4096))

    def _path(self, kind: str, number: int) -> Path:
        return self._folder / f"{kind}{number}"
