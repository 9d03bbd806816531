"""What all messages of the control socket are made of. Pure."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

# Ranges are checked when a message is decoded, so that nothing behind this module meets a value it can't store.
Ino = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Version = Annotated[int, msgspec.Meta(ge=0)]  # u64
Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Mode = Annotated[int, msgspec.Meta(ge=0, le=0o7777)]
UserId = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 2)]  # 2**32 - 1 means "leave alone" to chown(2)
TimeNs = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # nanoseconds since 1970
Name = Annotated[bytes, msgspec.Meta(min_length=1, max_length=255)]
Target = Annotated[bytes, msgspec.Meta(min_length=1, max_length=4095)]

MAX_XATTR_BYTES: Final = 8192
"""Of one node's extended attributes in a message."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=str.lower):
    """Base of all tagged messages: the tag is the class name in lower case."""
