"""What a file is called until all of it is written: beside its place, under a name that nobody else gives."""

from __future__ import annotations

import re
import secrets
from typing import Final

_NAME: Final = re.compile(r"\.tmp-[0-9a-f]{32}")


def temporary_name() -> str:
    """A new one."""
    return f".tmp-{secrets.token_hex(16)}"


def is_temporary(name: str) -> bool:
    """Whether one of us made it: a user's own `.tmp-chapter` is none, and stays where it is."""
    return _NAME.fullmatch(name) is not None
