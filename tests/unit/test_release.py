"""`scripts/release` refuses before it makes anything: a release must be what is committed, and what its papers say."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/release"


def git(clone: Path, *arguments: str) -> None:
    known = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "-C", clone, *known, *arguments], check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """As far as the script gets: what it calls says that it was called, and fails."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts/release")
    (tmp_path / "scripts/bootstrap").write_text("#!/bin/sh\necho bootstrap\nexit 9\n")
    (tmp_path / "scripts/bootstrap").chmod(0o755)
    (tmp_path / "setup.cfg").write_text("[metadata]\nversion = 1.2.3\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n## 1.2.3 (2026-12-24)\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    return tmp_path


def released(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GIT_CONFIG_COUNT": "0"}
    command = [clone / "scripts/release", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_when_all_is_in_order_it_begins(clone: Path) -> None:
    ended = released(clone, "1.2.3")
    assert (ended.returncode, ended.stdout) == (9, "bootstrap\n")


def changed(clone: Path) -> None:
    (clone / "setup.cfg").write_text("[metadata]\nversion = 1.2.3\nname = x\n")


def unwritten(clone: Path) -> None:
    (clone / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n## 1.2.30\n")
    git(clone, "commit", "-qam", "none")


def older(clone: Path) -> None:
    (clone / "setup.cfg").write_text("[metadata]\nversion = 1.2.2\n")
    git(clone, "commit", "-qam", "older")


def tagged(clone: Path) -> None:
    git(clone, "tag", "v1.2.3")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (changed, "not committed"),
        (unwritten, "no section"),
        (older, "another version"),
        (tagged, "there already"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_it_refuses_what_is_not(clone: Path, spoil: Callable[[Path], None], told: str) -> None:
    spoil(clone)
    ended = released(clone, "1.2.3")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert told in ended.stderr


def test_it_wants_a_version(clone: Path) -> None:
    assert "usage: scripts/release VERSION" in released(clone).stderr
