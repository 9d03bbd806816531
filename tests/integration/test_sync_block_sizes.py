"""Servers that cut files into other blocks than the volumes do: larger ones, as a real Pithos, and smaller ones."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.syncing import BLOCK, Sync, content, mounted, server, set_home

NEAR = {"a": 64 << 10, "b": 16 << 10}
"""Block sizes of the two volumes."""


@pytest.fixture(scope="module", params=["4MiB", "8KiB", "64KiB"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, int]]:
    folder = tmp_path_factory.mktemp("server") / "store"
    with server(folder, "--block-size", request.param) as address:
        yield address, folder / "token", {"4MiB": 4 << 20, "8KiB": 8 << 10, "64KiB": BLOCK}[request.param]


@pytest.fixture
def sync(
    served: tuple[str, Path, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Sync:
    set_home(tmp_path, monkeypatch)
    return Sync(tmp_path, served[0], served[1], capsys)


@pytest.fixture
def roots(sync: Sync, tmp_path: Path) -> Iterator[tuple[Path, Path, Path]]:
    """Two mounted volumes of different block sizes and an ordinary folder, linked to one container."""
    options = {name: ("--block-size", str(size)) for name, size in NEAR.items()}
    with mounted(tmp_path, *NEAR, options=options) as points:
        for point in points:
            sync("link", point, sync.url, "--token-file", sync.token_file)
        yield points[0], points[1], sync.folder("folder")


def change(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_contents_arrive_in_every_direction_and_only_what_overlaps_a_change_is_read_again(
    sync: Sync, roots: tuple[Path, Path, Path], served: tuple[str, Path, int]
) -> None:
    first, second, folder = roots
    far = served[2]
    noise = random.Random(1).randbytes(10 << 20)
    (first / "image").write_bytes(noise + bytes(3 << 20) + b"the end")
    (first / "small").write_bytes(noise[:5000])
    (first / "page").write_bytes(noise[: 100 << 10])
    (first / "empty").write_bytes(b"")
    for root in roots:
        sync.reconcile(root)
    assert content(first) == content(second) == content(folder)

    change(first / "image", 5 << 20, os.urandom(4096))
    up = sync.reconcile(first)
    assert up["blocks_sent"] == 1
    unit = max(far, NEAR["a"])
    assert up["bytes_read_local"] <= 2 * unit  # to name it and to send it
    down = sync.reconcile(second)
    assert down["blocks_received"] == 1
    assert down["bytes_read_local"] <= max(far, NEAR["b"])
    sync.reconcile(folder)
    assert content(first) == content(second) == content(folder)

    change(folder / "image", 1 << 20, b"from the folder")
    os.truncate(second / "page", 70_000)
    os.truncate(second / "small", 50_000)
    for root in (folder, second, first, folder):
        sync.reconcile(root)
    assert content(first) == content(second) == content(folder)
    sync.at_rest(*roots)


def test_blocks_that_are_in_another_file_of_the_volume_are_not_fetched(
    sync: Sync, roots: tuple[Path, Path, Path]
) -> None:
    first, second, _ = roots
    noise = random.Random(2).randbytes(9 << 20)
    (first / "one").write_bytes(noise)
    sync.reconcile(first)
    sync.reconcile(second)
    (first / "two").write_bytes(noise[: 8 << 20] + b"more")
    sync.reconcile(first)
    down = sync.reconcile(second)
    assert down["blocks_received"] == 1
    assert down["blocks_from_own"] > 0
    assert content(first) == content(second)


def test_without_the_cache_of_lists_everything_is_named_again_and_nothing_sent(
    sync: Sync, roots: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    first, second, _ = roots
    noise = random.Random(3).randbytes(5 << 20)
    (first / "file").write_bytes(noise)
    sync.reconcile(first)
    sync.reconcile(second)
    for lists in (tmp_path / "state").glob("blocksync/roots/*/lists*/*"):
        lists.unlink()
    change(first / "file", 0, b"changed")
    assert sync.reconcile(first)["blocks_sent"] == 1
    sync.reconcile(second)
    assert content(first) == content(second)
    sync.at_rest(first, second)
