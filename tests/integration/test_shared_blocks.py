"""Volumes as other devices of their share may ask them: the server's blocks of what both sides have, and no others."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockfs.blocks.hashing import block_id
from syncer.cli.registry.roots import Registry
from syncer.cli.session.opening import shared_root
from syncer.engine.share.sharing import SharedRoot
from tests.integration.syncing import BLOCK, Sync, command, mounted, server, set_home

FAR = {"the volume's": BLOCK, "larger": 1 << 20, "smaller": 8 << 10}
"""Block sizes of the server; the volume's is 64 KiB."""


@pytest.fixture(scope="module", params=FAR)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, int]]:
    folder = tmp_path_factory.mktemp("server") / "store"
    size = FAR[request.param]
    with server(folder, "--block-size", f"{size >> 10}KiB") as address:
        yield address, folder / "token", size


@pytest.fixture
def sync(
    served: tuple[str, Path, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Sync:
    set_home(tmp_path, monkeypatch)
    return Sync(tmp_path, served[0], served[1], capsys)


@pytest.fixture
def volume(sync: Sync, tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path, "mounted", options={"mounted": ("--block-size", str(BLOCK))}) as (point,):
        sync("link", point, sync.url, "--token-file", sync.token_file)
        yield point


@pytest.fixture
def root(volume: Path) -> Iterator[SharedRoot]:
    made = shared_root(Registry(os.environ).get(os.fsencode(volume)))
    yield made
    made.close()


def given(root: SharedRoot, data: bytes, size: int) -> list[bool]:
    """Which blocks of a content are told of; those are given, and are right."""
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    names = [block_id(piece) for piece in pieces]
    told = root.match([name[:8] for name in names])
    assert [root.read(name) for name in names] == [
        piece.rstrip(b"\0") if there else None for piece, there in zip(pieces, told, strict=True)
    ]
    return told


def test_a_volume_gives_the_servers_blocks_of_what_both_sides_have(
    sync: Sync, volume: Path, root: SharedRoot, served: tuple[str, Path, int]
) -> None:
    size, noise = served[2], random.Random(7).randbytes(3 << 20)
    (volume / "image").write_bytes(noise)
    (volume / "small").write_bytes(noise[:500])
    sync.reconcile(volume)
    assert all(given(root, noise, size))
    assert given(root, noise[:500], size) == [True]
    with (volume / "image").open("r+b") as file:
        file.seek(1 << 20)
        file.write(b"changed")
    sync.reconcile(volume)
    now = (volume / "image").read_bytes()
    assert all(given(root, now, size))
    assert given(root, noise, size).count(False) == 1


def test_a_volume_gives_nothing_of_snapshots_trash_or_what_is_not_synced(
    sync: Sync, volume: Path, root: SharedRoot, served: tuple[str, Path, int], tmp_path: Path
) -> None:
    """All of these are in its block directory."""
    size = served[2]
    old, gone, hidden, later, kept = (random.Random(number).randbytes(2 * max(FAR.values())) for number in range(5))
    (volume / ".blocksyncignore").write_text("*.tmp\n")
    (volume / "hidden.tmp").write_bytes(hidden)
    (volume / "file").write_bytes(old)
    (volume / "gone").write_bytes(gone)
    (volume / "kept").write_bytes(kept)
    other = sync.folder("other")
    sync.reconcile(volume)
    sync.reconcile(other)
    command("snapshot", "create", volume, "before")
    (other / "gone").unlink()
    sync.reconcile(other)
    (volume / "file").write_bytes(b"short")
    sync.reconcile(volume)
    (volume / "later").write_bytes(later)
    command("flush", volume)
    for data in (old, gone, hidden, later):
        assert not any(given(root, data, size))
    assert all(given(root, kept, size))
