"""Transfers on loopback beside their targets: whole commands, and rsync's daemon with --fsync in the same run."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import bench_plain, harness, rows
from benchmarks.bench_filesystem import BLOCKSYNC, blockfs
from benchmarks.bench_image import change, make_image
from benchmarks.bench_sync import FILE_BYTES, rsync_daemon, serve, write
from benchmarks.bench_transfers import Devices
from benchmarks.harness import seconds
from benchmarks.promises import draw
from benchmarks.rows import Row

REPETITIONS: Final = int(os.environ.get("BENCH_REPETITIONS", "5"))
PAGE: Final = Path(__file__).parent.parent / "docs/reference/benchmarks.md"
COMMAND: Final = "python -m benchmarks transfers"
SMALL_FILES, SMALL_BYTES = 10_000, 1024
IMAGE_BYTES: Final = 10 << 30
RSYNC: Final = "rsync's daemon, s"
SAVED: Final = harness.RESULTS / "transfers.jsonl"
PICTURE: Final = "plots/transfers.svg"

Times = dict[str, list[float]]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A row: what is promised of it, in seconds; what rsync does beside it ("": nothing like it); to be ahead of it."""

    work: str
    limit: float
    rsync: str = ""
    ahead: bool = False


TARGETS: Final = (
    Target(work="push 200 MiB, new, from a folder", limit=1.2, rsync="push", ahead=True),
    Target(work="push 200 MiB, new, from a volume", limit=1.2, rsync="push", ahead=True),
    Target(work="pull 200 MiB, new, into a folder", limit=1.2, rsync="pull", ahead=True),
    Target(work="pull 200 MiB, new, into a volume", limit=1.2, rsync="pull", ahead=True),
    Target(work="pull 10,000 x 1 KiB into a folder", limit=2.0, rsync="pull small"),
    Target(work="pull 10,000 x 1 KiB into a volume", limit=3.0, rsync="pull small"),
    Target(work="4 KiB changed in 10 GiB, until another volume has it, two commands", limit=0.7),
)


def main(arguments: Sequence[str]) -> None:
    """Measure, save, make table and plot.

    Args:
        arguments: See `--help`.
    """
    asked = _parser().parse_args(arguments)
    if asked.table:
        tell()
        return
    for part in asked.part or PARTS:
        PARTS[part](asked.more)
        tell()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="all of them, if none is named")
    parser.add_argument("--more", action="store_true", help="add to the repetitions that are saved")
    parser.add_argument("--table", action="store_true", help="only make table and plot of what is saved")
    return parser


def transfers(is_more: bool) -> None:
    """Whole commands on loopback, and rsync's daemon."""
    times: Times = {}
    # Nothing is removed before the end: ext4 looks past each inode that was deleted in the last minutes.
    with tempfile.TemporaryDirectory(prefix="blocksync-transfers-") as home, image(Path(home)) as until_it_is_there:
        for repetition in range(REPETITIONS):
            here = Path(home) / str(repetition)
            here.mkdir()
            measure(here, times)
            note(times, TARGETS[-1].work, until_it_is_there(repetition))
            print(repetition + 1, {work: round(each[-1], 2) for work, each in times.items()}, file=sys.stderr)
        found = [
            Row(
                part="transfers",
                work=one.work,
                unit="s",
                values=times[one.work],
                limit=one.limit,
                beside=RSYNC if one.rsync else "",
                beside_values=times[one.rsync] if one.rsync else [],
            )
            for one in TARGETS
        ]
        keep("transfers", found + ahead(found), is_more=is_more)


def ahead(found: Sequence[Row]) -> list[Row]:
    """What is to be ahead of rsync, as a part of its time: pairs, for it has fast and slow minutes."""
    wanted = {each.work for each in TARGETS if each.ahead}
    return [
        rows.times("transfers", f"{row.work}: beside rsync", 1.0, row.values, RSYNC, row.beside_values)
        for row in found
        if row.work in wanted
    ]


def plain(is_more: bool) -> None:
    """A page of a large file in an ordinary folder on XFS."""
    keep("plain", bench_plain.run(REPETITIONS), is_more=is_more)


PARTS: Final[dict[str, Callable[[bool], None]]] = {"transfers": transfers, "plain": plain}


def keep(part: str, found: list[Row], *, is_more: bool) -> None:
    """Save what was measured, with what was there before if so asked."""
    there = {row.work: row for row in rows.read(SAVED, list(PARTS))} if is_more else {}
    rows.save(SAVED, part, [rows.joined(there[row.work], row) if row.work in there else row for row in found])


def tell() -> None:
    """Put table and plot of all that is saved into their places."""
    every = rows.read(SAVED, list(PARTS))
    draw(every, PAGE.parent / PICTURE, beside=RSYNC)
    caption = "each figure as a part of its target; circles: rsync's"
    text = f"{rows.circumstances(SAVED)}\n{rows.table(every)}\n![{caption}]({PICTURE})\n"
    rows.put_into_page(PAGE, COMMAND, text)
    print(rows.table(every))


def measure(home: Path, times: Times) -> None:
    """One repetition of all but the image, each with a server of its own."""
    data = os.urandom(FILE_BYTES)
    for kind in ("folder", "volume"):
        with ExitStack() as stack:
            here = made(home / kind)
            url = stack.enter_context(serve(here.home / "server", here.environment))
            first, second = (root(stack, here, name, url, kind) for name in ("first", "second"))
            write(first / "image", data)
            note(times, f"push 200 MiB, new, from a {kind}", seconds(lambda: here.reconcile(first)))  # noqa: B023
            note(times, f"pull 200 MiB, new, into a {kind}", seconds(lambda: here.reconcile(second)))  # noqa: B023
    here = made(home / "small")
    with ExitStack() as stack:
        url = stack.enter_context(serve(here.home / "server", here.environment))
        first = root(stack, here, "first", url, "folder")
        small_files(first)
        here.reconcile(first)
        for kind in ("folder", "volume"):
            # A device of its own each: it would take the blocks from the first one's root.
            apart = Devices(here.home, kind)
            there = root(stack, apart, f"to-{kind}", url, kind)
            os.sync()
            took = seconds(lambda: apart.reconcile(there))  # noqa: B023 - called at once
            note(times, f"pull 10,000 x 1 KiB into a {kind}", took)
    with_rsync(made(home / "rsync").home, data, times)


def made(home: Path) -> Devices:
    """A place for some devices."""
    home.mkdir()
    return Devices(home)


def root(stack: ExitStack, here: Devices, name: str, url: str, kind: str) -> Path:
    """A new root that is linked."""
    if kind == "folder":
        return here.link(name, url)
    (here.home / f"at-{name}").mkdir()
    mounted = stack.enter_context(blockfs(here.home / f"at-{name}"))
    here.run(BLOCKSYNC, "link", mounted, url, "--token-file", here.home / "server" / "token")
    return mounted


def small_files(folder: Path) -> None:
    """Of 100 in a folder, as `bench_transfers` has them."""
    rng = random.Random(SMALL_FILES)
    for number in range(SMALL_FILES):
        below = folder / f"d{number // 100}"
        below.mkdir(exist_ok=True)
        (below / f"f{number}").write_bytes(rng.randbytes(SMALL_BYTES))


def with_rsync(home: Path, data: bytes, times: Times) -> None:
    """The same by a daemon."""
    first, store = home / "first", home / "store"
    first.mkdir()
    store.mkdir()
    with rsync_daemon(home, store) as url:

        def copy(source: str, target: str) -> float:
            command = ["rsync", "-a", "--fsync", source, target]
            return seconds(lambda: subprocess.run(command, capture_output=True, check=True))

        write(first / "image", data)
        note(times, "push", copy(f"{first}/", url))
        note(times, "pull", copy(f"{url}/", f"{home}/second"))
        (first / "image").rename(home / "image")
        (store / "image").rename(home / "stored")
        small_files(store)
        os.sync()
        note(times, "pull small", copy(f"{url}/", f"{home}/third"))
        store.rename(home / "small")
        store.mkdir()  # which is removed at the daemon's end


@contextmanager
def image(home: Path) -> Iterator[Callable[[int], float]]:
    """A large image on two volumes; yields what changes a page of it, and says how long until the other one has it."""
    here = made(home / "image")
    with ExitStack() as stack:
        url = stack.enter_context(serve(here.home / "server", here.environment))
        first, second = (root(stack, here, name, url, "volume") for name in ("first", "second"))
        make_image(first / "image", IMAGE_BYTES)
        for each in (first, second):
            here.reconcile(each)

        def until_it_is_there(repetition: int) -> float:
            change(first / "image", IMAGE_BYTES, repetition)
            both = [seconds(partial(here.reconcile, each)) for each in (first, second)]
            print(f"image: {both[0]:.2f} + {both[1]:.2f} s", file=sys.stderr)
            return sum(both)

        yield until_it_is_there


def note(times: Times, work: str, took: float) -> None:
    """One figure more."""
    times.setdefault(work, []).append(took)
