"""A folder of a container as a root, by the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.syncing import Sync, content


@pytest.fixture
def linked(sync: Sync) -> tuple[Path, Path]:
    """Two devices of one folder."""
    roots = (sync.home / "a", sync.home / "b")
    for root in roots:
        root.mkdir()
        sync("link", root, f"{sync.url}?prefix=photos/2026", "--token-file", sync.token_file)
    return roots


def test_two_devices_share_a_folder_and_come_to_rest(sync: Sync, linked: tuple[Path, Path]) -> None:
    first, second = linked
    (first / "d").mkdir()
    (first / "d" / "f").write_bytes(b"x" * 200_000)
    (first / "link").symlink_to("d/f")
    sync.reconcile(first)
    assert sync.reconcile(second)["pulled"] == 3
    (second / "d").rename(second / "e")
    sync.reconcile(second)
    assert sync.reconcile(first)["moved"] == 1
    (first / "e" / "f").unlink()
    sync.reconcile(first)
    sync.reconcile(second)
    assert content(first) == content(second) == {"e": "folder", "link": "-> d/f"}
    sync.at_rest(first, second)


def without_key(root: Path) -> dict[str, bytes | str]:
    """Who has the whole container sees the key of a folder's share as a file."""
    found = content(root)
    assert found.pop("photos/2026/.blocksync") == "folder"
    assert isinstance(found.pop("photos/2026/.blocksync/lan-key"), bytes)
    return found


def test_the_container_as_a_whole_is_another_share_and_keeps_what_lies_beside(
    sync: Sync, linked: tuple[Path, Path]
) -> None:
    first, second = linked
    (first / "f").write_bytes(b"1")
    (first / "g").write_bytes(b"3")
    sync.reconcile(first)
    for root in linked:
        sync("unlink", root)
    whole = sync.folder("whole")
    (whole / "beside").write_bytes(b"2")
    sync.reconcile(whole)
    assert without_key(whole) == {
        "photos": "folder",
        "photos/2026": "folder",
        "photos/2026/f": b"1",
        "photos/2026/g": b"3",
        "beside": b"2",
    }
    sync("unlink", whole)
    sync("link", second, f"{sync.url}?prefix=photos/2026/", "--token-file", sync.token_file, "--relink")
    sync.reconcile(second)
    (second / "f").unlink()
    sync.reconcile(second)
    again = sync.home / "again"
    again.mkdir()
    sync("unlink", second)
    sync("link", again, sync.url, "--token-file", sync.token_file)
    sync.reconcile(again)
    assert without_key(again) == {"photos": "folder", "photos/2026": "folder", "photos/2026/g": b"3", "beside": b"2"}


@pytest.mark.parametrize("other", ["", "?prefix=photos", "?prefix=photos/2026/may"])
def test_folders_that_lie_in_each_other_are_refused(sync: Sync, linked: tuple[Path, Path], other: str) -> None:
    root = sync.home / "c"
    root.mkdir()
    sync("link", root, f"{sync.url}{other}", "--token-file", sync.token_file, expect=2)
    assert "lies in the other" in sync.err
    sync("link", root, f"{sync.url}?prefix=photos/2026-05", "--token-file", sync.token_file)
