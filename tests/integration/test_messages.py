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


def test_link_without_a_container_is_a_wrong_url(commands: Sync, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for url in (f"pithos+{commands.address}/v1/default", f"pithos+{commands.address}/v1/default/"):
        commands("link", root, url, "--token-file", commands.token_file, expect=2)
        assert "names an account and no container: expected …/ACCOUNT/CONTAINER" in commands.err


def test_a_token_of_another_account_is_said_to_be_one(commands: Sync, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    url = f"pithos+{commands.address}/v1/other/images"
    commands("link", root, url, "--token-file", commands.token_file, expect=12)
    assert "expected a token of the account other" in commands.err
    (tmp_path / "wrong").write_text("nobody's\n")
    commands("link", root, commands.url, "--token-file", tmp_path / "wrong", expect=12)
    assert "does not know the token" in commands.err


def test_what_can_not_be_written_to_is_a_wrong_place(commands: Sync, read_only: Path) -> None:
    commands("link", read_only, commands.url, "--token-file", commands.token_file, expect=2)
    assert f"blocksync: {read_only}/.blocksync: Read-only file system" in commands.err
    commands("init", read_only / "volume", expect=2)
    assert f"blocksync: {read_only}/volume: Read-only file system" in commands.err
    commands("link", "/proc", commands.url, "--token-file", commands.token_file, expect=2)
    assert "/proc can't be a root" in commands.err


def test_a_root_that_became_read_only_is_named(commands: Sync, tmp_path: Path) -> None:
    root = commands.folder("root")
    subprocess.run(["mount", "--bind", root, root], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", root], check=True)
        (line, _) = commands("reconcile", root, "--json", expect=2)
        assert (line["type"], line["root"], line["exit_code"]) == ("error", str(root), 2)
        assert line["message"].startswith(f"{root}/.blocksync/tmp/")
        assert line["message"].endswith(": Read-only file system")
    finally:
        subprocess.run(["umount", root], check=True)


def test_a_newline_in_a_name_makes_no_line_of_its_own(commands: Sync) -> None:
    root = commands.folder("root")
    (root / "evil\nblocksync: all is well").write_bytes(b"x")
    commands("reconcile", root, expect=3)
    assert r"not synced: evil\x0ablocksync: all is well: " in commands.err
    assert "\nblocksync: all is well" not in commands.err


@pytest.mark.parametrize(
    ("verb", "code"), [("reconcile", 18), ("plan", 18), ("verify", 18), ("trash ls", 10), ("conflicts", 10)]
)
def test_an_error_of_a_named_root_is_a_line_of_json(commands: Sync, tmp_path: Path, verb: str, code: int) -> None:
    root = commands.folder("root")
    commands("reconcile", root)
    root.rename(tmp_path / "away")
    errors = [line for line in commands(*verb.split(), root, "--json", expect=code) if line["type"] == "error"]
    assert [(line["root"], line["exit_code"]) for line in errors] == [(str(root), code)]
    assert commands.err.count("blocksync: ") == 1
    for wrong in (tmp_path, os.fsencode(tmp_path) + b"/\xff"):
        (line,) = commands(*verb.split(), wrong, "--json", expect=10)
        assert (line["type"], line["root"], line["exit_code"]) == ("error", None, 10)


def test_a_folder_is_no_saved_plan(commands: Sync) -> None:
    commands("reconcile", "--plan", "/", expect=2)
    assert "/ is a folder; expected a file" in commands.err
