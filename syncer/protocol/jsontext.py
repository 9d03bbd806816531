"""What can be wrong with JSON that somebody else wrote. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

MALFORMED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All that msgspec raises: also for text that is not UTF-8, and for brackets nested too deep."""
