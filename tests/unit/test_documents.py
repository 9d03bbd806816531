"""What every page keeps to: lines that a reader can hold, and links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import bench_demo, bench_s3ql

PROJECT = Path(__file__).resolve().parents[2]
PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "benchmarks").glob("*.md"), *(PROJECT / "docs").rglob("*.md")])
DESIGN = [
    page for page in (PROJECT / "docs/design").glob("*.md") if page.name != "pithos-protocol.md"
]  # of others' code
FOLDERS = ("blockfs", "syncer", "tests", "scripts", "benchmarks")
SOURCES = [path for folder in FOLDERS for path in (PROJECT / folder).rglob("*.py")]
MAX_CHARACTERS = 180
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_no_line_is_longer_than_180_characters(page: Path) -> None:
    """Table rows are lines: what needs more than that is a list or a section, not a cell."""
    long = {
        number: len(line) for number, line in enumerate(page.read_text().splitlines(), 1) if len(line) > MAX_CHARACTERS
    }
    assert not long, f"{page}: line → characters"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_link_to_a_file_of_the_project_leads_to_one(page: Path) -> None:
    targets = [
        target for target in LINK.findall(page.read_text()) if "://" not in target and not target.startswith("mailto:")
    ]
    assert not [target for target in targets if not (page.parent / target).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_what_a_page_names_in_a_file_is_there(page: Path) -> None:
    """ "Shown by `blocks/test_gc.py::test_…`" is worth nothing if there is no such test."""
    for file, name, rest in re.findall(r"`([\w/]+\.py)::(\w+)(…?)", page.read_text()):
        texts = [found.read_text() for found in SOURCES if found.as_posix().endswith(f"/{file}")]
        known = re.compile(rf"(def|class) {name}" + ("" if rest else r"\b"))
        assert any(known.search(text) for text in texts), f"{file}::{name}"


@pytest.mark.parametrize("page", DESIGN, ids=lambda page: page.name)
def test_every_module_that_a_page_of_the_design_names_is_there(page: Path) -> None:
    named = set(re.findall(r"`([\w/]+\.py)\b", page.read_text()))
    assert not [file for file in named if not any(found.as_posix().endswith(f"/{file}") for found in SOURCES)]


def test_the_readme_names_no_page_without_a_link() -> None:
    text = (PROJECT / "README.md").read_text()
    bare = re.findall(r"(?<![(\w/])docs/[\w/-]+\.md", text)
    assert not bare


def test_the_readmes_figures_of_the_demo_are_those_of_its_results() -> None:
    """Breaks if somebody writes a figure by hand: it is made by `python -m benchmarks demo`."""
    assert made_by(bench_demo.COMMAND, PROJECT / "README.md") == bench_demo.table(bench_demo.saved())


def test_what_the_pages_say_of_s3ql_was_measured() -> None:
    """Breaks if somebody writes a figure by hand: they are made by `python -m benchmarks s3ql --table`."""
    saved = bench_s3ql.saved()
    assert made_by(bench_s3ql.COMMAND, bench_s3ql.README) == bench_s3ql.readme_table(saved)
    assert made_by(bench_s3ql.COMMAND, bench_s3ql.PAGE) == bench_s3ql.page_text(saved)


def made_by(command: str, page: Path) -> str:
    """What a command of the benchmarks has put into a page."""
    begin, end = (f"<!-- {command}: {place} -->\n" for place in ("begin", "end"))
    return page.read_text().partition(begin)[2].partition(end)[0]
