"""What `make docs` adds to docs/: pages that lie elsewhere in the project, and links between all of them.

A link to a file of the project that is no page (a module, a script) becomes its name: the site has no sources.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PROJECT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "dev/contributing.md",
    "benchmarks/README.md": "dev/benchmark-method.md",
}
"""Page of the project → page of the site. What lies in docs/ is called as it is there."""

STYLES: Final = "assets/site.css"
_LINK: Final = re.compile(r"(!?)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
_CODE: Final = re.compile(r"(```.*?```|`[^`\n]+`(?!\]))", re.DOTALL)


def place_on_site(path: str) -> str | None:
    """Where a file of the project is on the site, as a path; None: it is not there."""
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def with_links_of_site(text: str, here: str) -> str:
    """A page with its links as they are on the site.

    Args:
        text: Markdown.
        here: Where it lies in the project.
    """

    def changed(found: re.Match[str]) -> str:
        image, words, target, anchor = found[1], found[2], found[3], found[4] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        place = place_on_site(path)
        if place is None:
            return words
        start = posixpath.dirname(place_on_site(here) or "")
        return f"{image}[{words}]({posixpath.relpath(place, start or '.')}{anchor})"

    return "".join(part if part.startswith("`") else _LINK.sub(changed, part) for part in _CODE.split(text))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere."""
    for source, place in PAGES.items():
        files.append(File.generated(config, place, content=(PROJECT / source).read_text()))
    files.append(File.generated(config, STYLES, abs_src_path=str(Path(__file__).with_name("site.css"))))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs'
    """Make links lead to where their targets are on the site."""
    place = page.file.src_uri
    here = next((source for source, made in PAGES.items() if made == place), f"docs/{place}")
    return with_links_of_site(markdown, here)
