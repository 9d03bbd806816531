"""Ten thousand small files to a real Swift, over a line with a round trip of 50 ms."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.proxy import slow_line
from benchmarks.repository.devices import RESTIC, Share, run, seconds
from benchmarks.rows import Row
from tests.kit.swift import KEY, USER, running

FILES: Final = 10_000
RTT_MS: Final = 50
MBIT_S: Final = 100


def swift(home: Path, repetitions: int) -> list[Row]:
    """A push of new files, and another one of few."""
    took: list[float] = []
    whole: list[float] = []
    requests: list[float] = []
    objects: list[float] = []
    theirs: list[float] = []
    few: list[float] = []
    few_writes: list[float] = []
    few_s: list[float] = []
    folder = home / "small"
    folder.mkdir()
    for number in range(FILES):
        at = folder / f"d{number // 100}"
        at.mkdir(exist_ok=True)
        (at / f"f{number}").write_bytes(os.urandom(1024))
    with tempfile.TemporaryDirectory(prefix="blocksync-swift-") as place, running(Path(place)) as server:
        port = int(server.url.rpartition(":")[2])
        with slow_line(port, RTT_MS, MBIT_S) as far:
            keys = {"ST_AUTH": f"http://127.0.0.1:{far}/auth/v1.0", "ST_USER": USER, "ST_KEY": KEY}
            for repetition in range(repetitions):
                share = Share(home / f"swift{repetition}", f"swift://127.0.0.1:{far}/bench{repetition}", keys)
                share.link(folder)
                done = share.reconcile(folder)
                took.append(done.figures["seconds"])
                whole.append(done.seconds)
                requests.append(done.figures["requests"])
                objects.append(done.figures["mutating_requests"])
                theirs.append(_restic(home, folder, keys, repetition))
                some = folder / "some"
                some.mkdir()
                for number in range(100):
                    (some / f"f{number}").write_bytes(os.urandom(10_000))
                done = share.reconcile(folder)
                few.append(done.figures["requests"])
                few_writes.append(done.figures["mutating_requests"])
                few_s.append(done.figures["seconds"])
                shutil.rmtree(some)
                share.unlink(folder)
    return [
        Row(
            part="swift",
            work=f"10,000 files of 1 KiB pushed to Swift, {RTT_MS} ms away",
            unit="s",
            values=took,
            limit=3,
            subjects={"the whole command": whole, "restic": theirs},
            subjects_unit="s",
        ),
        Row(
            part="swift",
            work="… requests",
            unit="requests",
            values=requests,
            limit=20,
            beside="of them writes",
            beside_values=objects,
        ),
        Row(
            part="swift",
            work="then 100 files of 10 KB: requests",
            unit="requests",
            values=few,
            limit=6,
            beside="of them writes",
            beside_values=few_writes,
        ),
        Row(part="swift", work="… their push", unit="s", values=few_s),
    ]


def _restic(home: Path, folder: Path, keys: dict[str, str], repetition: int) -> float:
    place = f"swift:restic{repetition}:/"
    environment = keys | {"RESTIC_REPOSITORY": place, "RESTIC_PASSWORD": "x", "HOME": str(home)}
    run(RESTIC, "init", "--repository-version=2", environment=environment)
    return seconds(lambda: run(RESTIC, "backup", ".", cwd=folder, environment=environment))
