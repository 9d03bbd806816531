"""Roots on filesystems that take several names for one. Run in a guest by test_folding.py: this kernel may lack them.

BLOCKSYNC_FOLDS=/mnt python -m pytest tests/real/folding_cases.py: with filesystems at /mnt/vfat and /mnt/casefold
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncer.core.folding import Folding
from syncer.local.folder.probe import probe_folding
from tests.integration.syncing import Sync, content, server

FOLDS = {"vfat": Folding(case=True), "casefold": Folding(case=True, full_case=True, forms=True)}
PLACES = [Path(os.environ.get("BLOCKSYNC_FOLDS", "/mnt"), name) for name in FOLDS]
COMPOSED, DECOMPOSED = "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"
PARTLY_DONE = 3


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("server") / "store"
    with server(folder) as address:
        yield address, folder / "token"


@pytest.fixture
def sync(
    served: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Sync:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return Sync(tmp_path, *served, capsys)


@pytest.fixture(params=PLACES, ids=list(FOLDS))
def pair(request: pytest.FixtureRequest, sync: Sync) -> tuple[Path, Path]:
    """An ordinary root and one that folds, of one share."""
    folds: Path = request.param / sync.container
    folds.mkdir()
    sync("link", folds, sync.url, "--token-file", sync.token_file)
    return sync.folder("plain"), folds


def names(root: Path) -> set[str]:
    return {name for name in os.listdir(root) if name != ".blocksync"}


def held(sync: Sync, plain: Path, folds: Path, one: str, other: str) -> tuple[str, str]:
    """Push two names that are one on `folds`; returns the one that it got, and the one that it reported."""
    (plain / one).write_bytes(b"one")
    (plain / other).write_bytes(b"other")
    sync.reconcile(plain)
    sync.reconcile(folds, expect=PARTLY_DONE)
    (here,) = names(folds)
    lacking = other if here == one else one
    assert lacking in sync.out + sync.err, "a name that can't be held is reported"
    assert (folds / here).read_bytes() == (plain / here).read_bytes()
    return here, lacking


def at_rest_with_times(sync: Sync, plain: Path, folds: Path) -> None:
    """FAT keeps times of two seconds and no modes: what it made of them travels once, then nothing does."""
    sync.reconcile(folds)
    sync.reconcile(plain)
    sync.at_rest(folds, plain)


@pytest.mark.parametrize("place", PLACES, ids=list(FOLDS))
def test_the_probe_finds_what_the_filesystem_folds(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        assert probe_folding(descriptor) == FOLDS[place.name]
    finally:
        os.close(descriptor)
    assert names(place) <= {name for name in os.listdir(place) if not name.startswith("probe")}


def test_of_two_names_one_is_had_and_the_other_reported_and_neither_lost(sync: Sync, pair: tuple[Path, Path]) -> None:
    plain, folds = pair
    here, lacking = held(sync, plain, folds, "a", "A")
    before = content(plain)
    sync.reconcile(folds, expect=PARTLY_DONE)
    sync.reconcile(plain)
    assert content(plain) == before, "what one device can't hold is no deletion"
    (folds / here).write_bytes(b"edited where names fold")
    sync.reconcile(folds, expect=PARTLY_DONE)
    sync.reconcile(plain)
    assert content(plain) == {**before, here: b"edited where names fold"}
    (plain / here).unlink()
    sync.reconcile(plain)
    sync.reconcile(folds)
    assert names(folds) == {lacking}, "the name is free: now the other one has come"
    assert (folds / lacking).read_bytes() == before[lacking]
    at_rest_with_times(sync, plain, folds)


def test_deleting_the_one_that_is_held_does_not_delete_the_other(sync: Sync, pair: tuple[Path, Path]) -> None:
    plain, folds = pair
    here, lacking = held(sync, plain, folds, "Read.me", "read.me")
    (folds / here).unlink()
    sync.reconcile(folds)
    sync.reconcile(plain)
    assert names(plain) == {lacking}
    assert content(folds) == content(plain)


def test_a_rename_of_case_only_is_a_rename_in_both_directions(sync: Sync, pair: tuple[Path, Path]) -> None:
    plain, folds = pair
    (folds / "letter").write_bytes(b"text")
    sync.reconcile(folds)
    sync.reconcile(plain)
    # Not in one step: to rename(2) both are one file, and it does nothing.
    (folds / "letter").rename(folds / "other")
    (folds / "other").rename(folds / "LETTER")
    assert sync.reconcile(folds)["moved"] == 1
    sync.reconcile(plain)
    assert content(plain) == {"LETTER": b"text"}
    (plain / "LETTER").rename(plain / "Letter")
    sync.reconcile(plain)
    sync.reconcile(folds)
    assert content(folds) == content(plain) == {"Letter": b"text"}
    at_rest_with_times(sync, plain, folds)


def test_folders_that_differ_in_case_keep_what_is_in_them(sync: Sync, pair: tuple[Path, Path]) -> None:
    plain, folds = pair
    for name in ("Docs", "docs"):
        (plain / name).mkdir()
        (plain / name / f"in {name}").write_bytes(name.encode())
    sync.reconcile(plain)
    sync.reconcile(folds, expect=PARTLY_DONE)
    (here,) = names(folds)
    assert content(folds / here) == {f"in {here}": here.encode()}
    before = content(plain)
    sync.reconcile(plain)
    assert content(plain) == before
    (folds / here / "more").write_bytes(b"more")
    sync.reconcile(folds, expect=PARTLY_DONE)
    sync.reconcile(plain)
    assert content(plain) == {**before, f"{here}/more": b"more"}


def test_what_is_displaced_and_deleted_can_be_restored(sync: Sync, pair: tuple[Path, Path]) -> None:
    """FAT has no symlinks: an entry of the trash notes its origin in a file."""
    plain, folds = pair
    (plain / "kept").write_bytes(b"old")
    (plain / "stays").write_bytes(b"or the server would be empty")
    sync.reconcile(plain)
    sync.reconcile(folds)
    (plain / "kept").unlink()
    sync.reconcile(plain)
    sync.reconcile(folds)
    assert names(folds) == {"stays"}
    assert "kept" in [line.get("path") for line in sync("trash", "ls", folds, "--json")]
    sync("trash", "restore", folds / "kept")
    assert (folds / "kept").read_bytes() == b"old"


def test_forms_of_unicode_fold_where_the_filesystem_folds_them(sync: Sync, pair: tuple[Path, Path]) -> None:
    plain, folds = pair
    if FOLDS[folds.parent.name].forms:
        held(sync, plain, folds, COMPOSED, DECOMPOSED)
        return
    (plain / COMPOSED).write_bytes(b"one")
    (plain / DECOMPOSED).write_bytes(b"other")
    sync.reconcile(plain)
    sync.reconcile(folds)
    assert content(folds) == content(plain)
