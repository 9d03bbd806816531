"""Arguments that are paths."""

from __future__ import annotations

from typing import Final

import click

PATH: Final = click.Path(path_type=bytes)
"""Names need not be UTF-8."""
