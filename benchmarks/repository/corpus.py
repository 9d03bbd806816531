"""The twelve disks: pushed, pulled into an empty volume, and what each tool stores of them; the next day of three."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.bench_filesystem import BLOCKSYNC, blockfs
from benchmarks.repository.devices import BORG, OURS, RCLONE, RESTIC, TOOLS, Done, Share, run, seconds, size_of, warm
from benchmarks.rows import Row

PAGE: Final = 4096
PART: Final = 4 << 20
DAYS: Final = ("py", "web", "dev")


def disks() -> list[Path]:
    """Those that `scripts/vm-images` made."""
    folder = os.environ.get("BENCH_IMAGES")
    if folder is None:
        sys.exit("BENCH_IMAGES=DIR, where `scripts/vm-images DIR` has made the disks")
    return sorted(Path(folder).glob("*.img"))


def corpus(home: Path, repetitions: int) -> list[Row]:
    """All disks, pushed from an ordinary folder."""
    folder = home / "disks"
    folder.mkdir()
    for disk in disks():
        os.link(disk, folder / disk.name)
    logical = sum(disk.stat().st_size for disk in disks())
    took: dict[str, list[float]] = {name: [] for name in (OURS, *TOOLS)}
    stored: dict[str, list[float]] = {name: [] for name in took}
    rates: list[float] = []
    downloads: list[float] = []
    for repetition in range(repetitions):
        share = Share(home / f"ours{repetition}")
        share.link(folder)
        with warm(folder):
            took[OURS].append(seconds(partial(share.reconcile, folder)))
        share.unlink(folder)
        stored[OURS].append(share.stored_bytes / 1e6)
        live = sum(share.chunks().values())
        with blockfs(share.home) as mountpoint:
            share.link(mountpoint)
            os.sync()
            pulled = share.reconcile(mountpoint)
            rates.append(logical / 1e6 / pulled.seconds)
            downloads.append(pulled.figures["bytes_received"] / live)
            _compare(folder, mountpoint)
            share.unlink(mountpoint)
        shutil.rmtree(share.home)
        for name in _others(repetition):
            place = home / name
            place.mkdir()
            TOOLS[name].init(place)
            with warm(folder):
                took[name].append(seconds(partial(TOOLS[name].save, place, folder, "first")))
            stored[name].append(size_of(place / name) / 1e6)
            shutil.rmtree(place)
    restic = zip(took[OURS], took[RESTIC], strict=True)
    sizes = zip(stored[OURS], stored[RESTIC], strict=True)
    part = "corpus"
    return [
        Row(
            part=part,
            work="12 disks pushed from a folder, of restic's time",
            unit="times",
            values=[ours / theirs for ours, theirs in restic],
            limit=1.0,
            subjects={name: values for name, values in took.items() if values},
            subjects_unit="s",
        ),
        Row(
            part=part,
            work="stored, of restic's bytes",
            unit="times",
            values=[ours / theirs for ours, theirs in sizes],
            limit=0.57,
            subjects={name: values for name, values in stored.items() if values},
            subjects_unit="MB",
        ),
        Row(part=part, work="pulled into an empty volume", unit="MB/s", values=rates, limit=300, least=True),
        Row(
            part=part,
            work="downloaded, indexes and trees included, of the live bytes of packs",
            unit="times",
            values=downloads,
            limit=1.05,
        ),
    ]


def _others(repetition: int) -> list[str]:
    """borg and rclone take minutes: once. `BENCH_TOOLS=restic`: not at all, where a run is added to."""
    asked = os.environ.get("BENCH_TOOLS", f"{RESTIC} {BORG} {RCLONE}").split()
    return [name for name in (RESTIC, BORG, RCLONE) if name in asked and (name == RESTIC or not repetition)]


def _compare(folder: Path, mountpoint: Path) -> None:
    for path in sorted(folder.glob("*.img")):
        run("cmp", path, mountpoint / path.name)


def _cycle(share: Share, root: Path) -> tuple[Done, float]:
    """A cycle, and how long it took, what it wrote durable at its end as that of the other tools is."""
    done: list[Done] = []
    took = seconds(lambda: done.append(share.reconcile(root)))
    return done[0], took


def days(home: Path, repetitions: int) -> list[Row]:
    """The next day of three disks, written in place as a machine writes to its disk."""
    found: dict[str, list[float]] = {"volume": [], "folder": [], RESTIC: [], BORG: []}
    sent: dict[str, list[float]] = {"volume": [], "folder": []}
    read: list[float] = []
    for repetition in range(repetitions):
        place = home / f"days{repetition}"
        place.mkdir()
        folder = place / "folder"
        folder.mkdir()
        for name in DAYS:
            run("cp", "--sparse=always", _disk(f"{name}-d1"), folder / f"{name}.img")
        share, other = Share(place / "ours"), Share(place / "folders")
        for name in (RESTIC, BORG):
            TOOLS[name].init(place)
            TOOLS[name].save(place, folder, "first")
        other.link(folder)
        other.reconcile(folder)
        with blockfs(place) as mountpoint:
            for name in DAYS:
                run("cp", "--sparse=always", folder / f"{name}.img", mountpoint)
            share.link(mountpoint)
            share.reconcile(mountpoint)
            changed = sum(_becomes(mountpoint / f"{name}.img", _disk(f"{name}-d2")) for name in DAYS)
            run(BLOCKSYNC, "flush", mountpoint)
            os.sync()
            done, took = _cycle(share, mountpoint)
            share.unlink(mountpoint)
            found["volume"].append(took)
            sent["volume"].append(done.figures["bytes_sent"] / 1e6)
            read.append(done.figures["bytes_read_local"] / changed)
        for name in DAYS:
            _becomes(folder / f"{name}.img", _disk(f"{name}-d2"))
        with warm(folder):
            done, took = _cycle(other, folder)
            found["folder"].append(took)
            sent["folder"].append(done.figures["bytes_sent"] / 1e6)
        for name in (RESTIC, BORG):
            with warm(folder):
                found[name].append(seconds(partial(TOOLS[name].save, place, folder, "second")))
        shutil.rmtree(place)
    part, restic = "days", found[RESTIC]
    return [
        Row(part=part, work="next day of 3 disks from a volume: sent", unit="MB", values=sent["volume"], limit=13),
        Row(
            part=part,
            work="next day of 3 disks from a volume, of restic's time",
            unit="times",
            values=[ours / theirs for ours, theirs in zip(found["volume"], restic, strict=True)],
            limit=0.2,
            subjects={OURS: found["volume"], RESTIC: restic, BORG: found[BORG]},
            subjects_unit="s",
        ),
        Row(part=part, work="read, of the blocks of 64 KiB that changed", unit="times", values=read, limit=1.1),
        Row(
            part=part,
            work="next day of 3 disks from a folder, of restic's time",
            unit="times",
            values=[ours / theirs for ours, theirs in zip(found["folder"], restic, strict=True)],
            limit=1.0,
            subjects={OURS: found["folder"], RESTIC: restic, BORG: found[BORG]},
            subjects_unit="s",
            beside="MB sent",
            beside_values=sent["folder"],
        ),
    ]


def _disk(name: str) -> Path:
    return next(disk for disk in disks() if disk.stem == name)


def _becomes(path: Path, disk: Path) -> int:
    """Write what differs into a file, page by page; how many bytes of blocks of 64 KiB that concerns."""
    blocks: set[int] = set()
    with path.open("r+b", buffering=0) as file:
        for at, page in _differences(path, disk):
            file.seek(at)
            file.write(page)
            blocks.add(at // 65536)
    return len(blocks) * 65536


def _differences(path: Path, disk: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as old, disk.open("rb") as new:
        at = 0
        while theirs := new.read(PART):
            ours = old.read(PART)
            if ours != theirs:
                for inside in range(0, len(theirs), PAGE):
                    if ours[inside : inside + PAGE] != theirs[inside : inside + PAGE]:
                        yield at + inside, theirs[inside : inside + PAGE]
            at += PART
