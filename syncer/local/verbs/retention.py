"""For how long what was deleted or displaced is kept."""

from __future__ import annotations

from typing import Final

KEEP_S: Final = 30 * 24 * 3600.0  # retention of settled entries of a trash, unless the root says otherwise
