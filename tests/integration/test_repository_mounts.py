"""Mounted volumes as devices of a repository: only what changed is read and sent; snapshots; both kinds of roots."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration.sharing import Share, new_share
from tests.integration.syncing import BLOCK, clear, command, content

FEW_BYTES = 256 << 10


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Share:
    return new_share(tmp_path, monkeypatch, capsys)


@pytest.fixture
def pair(share: Share, mounts: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """Two mounted volumes linked to one repository; empty again afterwards."""
    first, second = mounts
    for root in (first, second):
        share("link", root, share.url, "--password-file", share.token_file)
    yield first, second
    for root in (first, second):
        share("unlink", root)
        clear(root)


def sound(share: Share) -> None:
    """All is there, down to the bytes. The key is a root's."""
    (told,) = share("repo", "check", share.url, "--read-data", "100%", "--json")
    assert told["problems"] == 0


def test_of_an_image_only_changed_blocks_are_read_and_sent_and_only_they_come_down(
    share: Share, pair: tuple[Path, Path]
) -> None:
    first, second = pair
    noise = b"".join(os.urandom(BLOCK - 1) + b"\1" for _ in range(100))
    (first / "image").write_bytes(noise)
    assert share.reconcile(first)["bytes_read_local"] == len(noise)  # each block once, to send it
    down = share.reconcile(second)
    assert down["blocks_received"] == 100
    assert down["bytes_received"] < 1.1 * len(noise)
    with (first / "image").open("r+b") as file:
        file.seek(50 * BLOCK + 4096)
        file.write(os.urandom(4096))
    up, down = share.reconcile(first), share.reconcile(second)
    assert up["bytes_read_local"] <= 3 * BLOCK  # what changed, and chunks that reach into its neighbours
    assert up["bytes_sent"] < FEW_BYTES
    assert down["blocks_received"] == 1
    assert down["bytes_read_local"] <= 3 * BLOCK  # chunks that are here need not come
    assert down["bytes_received"] < FEW_BYTES
    assert content(first) == content(second)
    share.at_rest(first, second)
    sound(share)


def test_a_byte_that_is_inserted_sends_little(share: Share, pair: tuple[Path, Path]) -> None:
    """No block stays where it was: chunks do."""
    first, second = pair
    noise = os.urandom(60 * BLOCK)
    (first / "log").write_bytes(noise)
    share.reconcile(first)
    share.reconcile(second)
    (first / "log").write_bytes(b"!" + noise)
    assert share.reconcile(first)["bytes_sent"] < FEW_BYTES
    assert share.reconcile(second)["bytes_received"] < FEW_BYTES
    assert (second / "log").read_bytes() == b"!" + noise


def test_a_file_that_is_always_open_is_pushed_from_a_snapshot(share: Share, pair: tuple[Path, Path]) -> None:
    first, second = pair
    with (first / "disk").open("wb", buffering=0) as guest:
        for state in (b"first", b"other"):
            guest.seek(0)
            guest.write(state)
            share("reconcile", first, "--snapshot")
            share.reconcile(second)
            assert (second / "disk").read_bytes() == state
    assert os.listdir(first / ".snapshots") == []
    share.reconcile(first)
    share.at_rest(first, second)


def test_snapshots_stay_as_they_are_and_stay_here(share: Share, pair: tuple[Path, Path]) -> None:
    first, second = pair
    (first / "file").write_bytes(b"old")
    share.reconcile(first)
    share.reconcile(second)
    command("snapshot", second, "before")
    (first / "file").write_bytes(b"new and longer")
    share.reconcile(first)
    share.reconcile(second)
    assert (second / "file").read_bytes() == b"new and longer"
    assert (second / ".snapshots/before/file").read_bytes() == b"old"
    share.reconcile(first)
    assert not (first / ".snapshots/before").exists()
    command("snapshot", "delete", second, "before")


def test_a_volume_and_a_folder_are_devices_of_one_repository(share: Share, pair: tuple[Path, Path]) -> None:
    volume, _ = pair
    folder = share.folder("folder")
    (volume / "d").mkdir()
    (volume / "d/image").write_bytes(os.urandom(5 * BLOCK + 17))
    (volume / "link").symlink_to("d/image")
    share.reconcile(volume)
    share.reconcile(folder)
    assert content(folder) == content(volume)
    (folder / "d").rename(folder / "e")
    with (folder / "e/image").open("r+b") as file:
        file.seek(2 * BLOCK)
        file.write(b"changed in the folder")
    share.reconcile(folder)
    share.reconcile(volume)
    assert content(folder) == content(volume)
    restored = share.folder("restored")
    share.reconcile(restored)
    assert content(restored) == content(volume)
    share.at_rest(volume, folder, restored)
    sound(share)
