"""Templates to text: everything is escaped, and a name that a template does not have is an error."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from typing import Final
from urllib.parse import quote_from_bytes

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from syncer.ui import words

_HERE: Final = os.path.dirname(__file__)
ASSETS: Final = {"style.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
"""What the page loads, all of it: name → type."""


@lru_cache(maxsize=1)
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(os.path.join(_HERE, "templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters["query"] = address
    found.filters["iso"] = words.iso
    found.filters["number"] = words.number
    found.globals["version"] = {name: version(name) for name in ASSETS}
    return found


def address(path: bytes) -> str:
    """A path as it stands behind a question mark."""
    return quote_from_bytes(path, safe="/")


def render(template: str, **values: object) -> str:
    """Write a page, or a part of one."""
    return _environment().get_template(template).render(**values)


@lru_cache(maxsize=len(ASSETS))
def asset(name: str) -> bytes:
    """What a browser is given for one of `ASSETS`."""
    with open(os.path.join(_HERE, "assets", name), "rb") as file:
        return file.read()


def version(name: str) -> str:
    """Names an asset's content: a browser keeps it, and asks for another one after an upgrade."""
    return hashlib.sha256(asset(name)).hexdigest()[:12]
