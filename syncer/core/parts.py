"""What of metadata a root takes part in, beside mode and mtime: its owner says so (`blocksync link`). Pure."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from syncer.core.model import Meta


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """A root's choice. What it takes no part in is neither read nor set there, and stays on the server as it is.

    Attributes:
        xattrs: Extended attributes of users.
        special_modes: The setuid, setgid and sticky bits. Whoever can write to the share could have a program run as
            its local owner.
    """

    xattrs: bool = False
    special_modes: bool = False

    def own(self, meta: Meta) -> Meta:
        """What of some metadata counts here."""
        if (self.xattrs or meta.xattrs is None) and (self.special_modes or meta.special is None):
            return meta
        return replace(
            meta,
            special=meta.special if self.special_modes else None,
            xattrs=meta.xattrs if self.xattrs else None,
        )


NO_PARTS: Final = Parts()
