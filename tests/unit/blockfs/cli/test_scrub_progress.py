"""How far a scrub is, for a person who waits."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest

from blockfs.blocks.directory import BlockDirectory
from blockfs.cli import scrub as verb
from blockfs.engine import volume as volumes
from syncer.cli import main as entry


def test_an_unmounted_volume_shows_the_part_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = volumes.init(os.fsencode(tmp_path / "volume"))
    with BlockDirectory.open(volume.blocks_path) as blocks, blocks.hold() as hold:
        for number in range(4):
            blocks.put(bytes([number + 1]) * 1000, hold)
        blocks.sync()
    told: list[str] = []

    @contextmanager
    def progress() -> Iterator[Callable[[str], None]]:
        yield told.append

    monkeypatch.setattr(verb, "progress", progress)
    assert entry.run(["scrub", os.fsdecode(volume.path)]) == 0
    assert told[1:] == [f"reading all blocks: {part} % of 4" for part in (25, 50, 75, 100)]


def test_a_mount_is_asked_how_far_it_is_while_its_scrub_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "_LOOK_S", 0)
    told, seen = [], threading.Event()

    class Client:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def status(self) -> SimpleNamespace:
            return SimpleNamespace(scrub_blocks_done=3, scrub_blocks=10)

    def step(done: int, blocks: int) -> None:
        told.append((done, blocks))
        seen.set()

    with verb._followed(Client(), step):  # type: ignore[arg-type] # as much of a client as is asked
        seen.wait()
    assert set(told) == {(3, 10)}
