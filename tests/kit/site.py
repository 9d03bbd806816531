"""The documentation site, built as `make docs` does."""

from __future__ import annotations

import subprocess
from pathlib import Path

_PROJECT = Path(__file__).parents[2]


def build_site(folder: Path) -> Path:
    """Build it in a folder; a link that leads nowhere, or a page in no menu, ends that with an error."""
    subprocess.run([_PROJECT / "scripts/site/build", folder], check=True)
    return folder
