"""What a newcomer gets wrong first: the message names it, and the exit code is the reference's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.syncing import Sync


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """An empty filesystem that takes no writes."""
    path = tmp_path / "read-only"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=64k", "none", path], check=True)
    yield path
    subprocess.run(["umount", path], check=True)


def test_link_without_a_container_is_a_wrong_url(sync: Sync, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for url in (
        f"pithos+{sync.address}/v1/{sync.account}",
        f"pithos+{sync.address}/v1/{sync.account}/",
    ):
        sync("link", root, url, "--token-file", sync.token_file, expect=2)
        assert "names an account and no container: expected …/ACCOUNT/CONTAINER" in sync.err


def test_a_token_of_another_account_is_said_to_be_one(sync: Sync, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    url = f"pithos+{sync.address}/v1/other/images"
    sync("link", root, url, "--token-file", sync.token_file, expect=12)
    assert "expected a token of the account other" in sync.err
    (tmp_path / "wrong").write_text("nobody's\n")
    sync("link", root, sync.url, "--token-file", tmp_path / "wrong", expect=12)
    assert "does not know the token" in sync.err


def test_what_can_not_be_written_to_is_a_wrong_place(sync: Sync, read_only: Path) -> None:
    sync("link", read_only, sync.url, "--token-file", sync.token_file, expect=2)
    assert f"blocksync: {read_only}/.blocksync: Read-only file system" in sync.err
    sync("init", read_only / "volume", expect=2)
    assert f"blocksync: {read_only}/volume: Read-only file system" in sync.err
    sync("link", "/proc", sync.url, "--token-file", sync.token_file, expect=2)
    assert "/proc can't be a root" in sync.err


def test_a_root_that_became_read_only_is_named(sync: Sync, tmp_path: Path) -> None:
    root = sync.folder("root")
    subprocess.run(["mount", "--bind", root, root], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", root], check=True)
        (line, _) = sync("reconcile", root, "--json", expect=2)
        assert (line["type"], line["root"], line["exit_code"]) == ("error", str(root), 2)
        assert line["message"].startswith(f"{root}/.blocksync/tmp/")
        assert line["message"].endswith(": Read-only file system")
        for verb in (("empty", root), ("restore", root / "file"), ("restore", root, "--entry", "1")):
            sync("trash", *verb, expect=2)
            assert f"blocksync: {root} is read-only" in sync.err
        assert sync("trash", "ls", root, "--json") == []
    finally:
        subprocess.run(["umount", root], check=True)


@pytest.mark.parametrize("there", [True, False], ids=["an empty mount point", "nothing"])
def test_a_root_that_is_not_mounted_has_no_empty_trash(sync: Sync, tmp_path: Path, *, there: bool) -> None:
    root = sync.folder("root")
    sync("reconcile", root)
    root.rename(tmp_path / "away")
    if there:
        root.mkdir()
    for verb in (
        ("trash", "ls", root),
        ("trash", "restore", root / "file"),
        ("trash", "empty", root),
        ("conflicts", root),
        ("resolve", root / "file", "--take", "local"),
    ):
        sync(*verb, expect=18)
        assert "version" not in sync.out
        assert "no conflict copies" not in sync.err
    assert not there or list(root.iterdir()) == []


def test_a_list_of_patterns_that_is_too_long_is_said_to_be(sync: Sync) -> None:
    root = sync.folder("root")
    (root / ".blocksyncignore").write_bytes(b"x" * (1 << 20) + b"\n")
    sync("reconcile", root, expect=3)
    assert ".blocksyncignore can't be read: it has more than 1048576 bytes of patterns" in sync.err
    assert "changed meanwhile" not in sync.err


def test_a_newline_in_a_name_makes_no_line_of_its_own(sync: Sync) -> None:
    root = sync.folder("root")
    (root / "evil\nblocksync: all is well").write_bytes(b"x")
    sync("reconcile", root, expect=3)
    assert r"not synced: evil\x0ablocksync: all is well: " in sync.err
    assert "\nblocksync: all is well" not in sync.err


@pytest.mark.parametrize(
    ("verb", "code"), [("reconcile", 18), ("plan", 18), ("verify", 18), ("trash ls", 18), ("conflicts", 18)]
)
def test_an_error_of_a_named_root_is_a_line_of_json(sync: Sync, tmp_path: Path, verb: str, code: int) -> None:
    root = sync.folder("root")
    sync("reconcile", root)
    root.rename(tmp_path / "away")
    errors = [line for line in sync(*verb.split(), root, "--json", expect=code) if line["type"] == "error"]
    assert [(line["root"], line["exit_code"]) for line in errors] == [(str(root), code)]
    assert sync.err.count("blocksync: ") == 1
    for wrong in (tmp_path, os.fsencode(tmp_path) + b"/\xff"):
        (line,) = sync(*verb.split(), wrong, "--json", expect=10)
        assert (line["type"], line["root"], line["exit_code"]) == ("error", None, 10)


def test_a_folder_is_no_saved_plan(sync: Sync) -> None:
    sync("reconcile", "--plan", "/", expect=2)
    assert "/ is a folder; expected a file" in sync.err
