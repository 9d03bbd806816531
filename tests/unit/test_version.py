"""The version stands in setup.cfg and nowhere else; all that tells one has it from there."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

from click.testing import CliRunner

from blockfs import build
from syncer.cli.commands import blocksync

PROJECT = Path(__file__).parents[2]


def version() -> str:
    parser = configparser.ConfigParser()
    parser.read(PROJECT / "setup.cfg")
    return parser["metadata"]["version"]


def test_the_command_says_the_release_and_of_a_build_its_commit(monkeypatch) -> None:
    told = CliRunner().invoke(blocksync, ["--version"])
    assert (told.exit_code, told.output) == (0, f"blocksync {build.build_text()}\n")
    assert build.release() == version()
    monkeypatch.setattr(build, "commit", lambda: "0123456789ab")
    assert build.build_text() == f"{version()} (build 0123456789ab)"


def test_no_other_file_of_the_program_has_a_version_of_its_own() -> None:
    """Breaks when a release would have to be written down twice; one of the two is then forgotten."""
    written = re.compile(rf"__version__|(?<!<\?xml )\bversion\s*=\s*[\"'][0-9]+\.[0-9]|{re.escape(version())}")
    programs = [path for name in ("blockfs", "syncer", "scripts", "packaging") for path in (PROJECT / name).rglob("*")]
    found = [
        f"{path.relative_to(PROJECT)}: {line.strip()}"
        for path in [*programs, PROJECT / "pyproject.toml", PROJECT / "Makefile"]
        if path.is_file() and path.suffix not in {".txt", ".svg", ".pyc"}
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        if written.search(line)
    ]
    assert found == []


def test_the_guide_names_the_files_of_this_version() -> None:
    guide = (PROJECT / "docs/guide/install.md").read_text()
    assert set(re.findall(r"blocksync[_-]([0-9][0-9.]*[0-9])[_-]", guide)) == {version()}
