"""The documentation site: docs/ as it is, with links that lead somewhere, and nothing from other hosts."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.site.hooks import PAGES, PROJECT, with_links_of_site
from tests.kit.site import build_site


@pytest.mark.parametrize(
    ("here", "text", "there"),
    [
        ("README.md", "[a](docs/guide/lan.md#x)", "[a](guide/lan.md#x)"),
        ("README.md", "![p](docs/picture.svg)", "![p](picture.svg)"),
        ("docs/reference/cli.md", "[b](../../benchmarks/README.md)", "[b](../dev/benchmark-method.md)"),
        ("docs/reference/cli.md", "[b](../design/tree.md)", "[b](../design/tree.md)"),
        ("docs/design/tree.md", "see [`schema.py`](../../blockfs/tree/schema.py)", "see `schema.py`"),
        ("benchmarks/README.md", "[t](../docs/reference/benchmarks.md)", "[t](../reference/benchmarks.md)"),
        ("README.md", "[w](https://example.org/a) [s](#numbers)", "[w](https://example.org/a) [s](#numbers)"),
        ("README.md", "`[a](docs/b.md)`\n```\n[a](docs/b.md)\n```", "`[a](docs/b.md)`\n```\n[a](docs/b.md)\n```"),
    ],
)
def test_links_lead_to_where_things_are_on_the_site(here: str, text: str, there: str) -> None:
    assert with_links_of_site(text, here) == there


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site") / "s")


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path) -> None:
    """Breaks when warnings are not heard: `--quiet` makes mkdocs deaf to them, whatever `--strict` says."""
    for name in (*PAGES, "docs", "scripts/site"):
        source, target = PROJECT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    (tmp_path / ".venv").symlink_to(PROJECT / ".venv")
    page = tmp_path / "docs/guide/first-sync.md"
    page.write_text(f"{page.read_text()}\n[a](no-page.md) [b](../design/tree.md#no-place) ![c](no-plot.svg)\n")
    ended = subprocess.run(
        [tmp_path / "scripts/site/build", tmp_path / "s"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert [name for name in ("no-page.md", "#no-place", "no-plot.svg") if name not in ended.stderr] == []


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = {path.relative_to(PROJECT / "docs") for path in (PROJECT / "docs").rglob("*.md")}
    made = {path if path.name != "README.md" else path.with_name("index.md") for path in pages}
    assert not [path for path in made if not (site / path.with_suffix(".html")).exists()]


def test_a_page_loads_nothing_from_other_hosts(site: Path) -> None:
    """Links to others are for readers; scripts, styles, fonts and pictures are of our own."""
    loaded = re.compile(
        r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?https?://|<link\b(?![^>]*rel=\"?canonical)[^>]*\bhref=\"?https?://"
    )
    assert not [path for path in site.rglob("*.html") if loaded.search(path.read_text())]
    assert not [
        path for path in site.rglob("*.css") if re.search(r"(url\(|@import)\s*[\"']?https?://", path.read_text())
    ]
