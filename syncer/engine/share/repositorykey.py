"""The key of a share that is a repository: derived from its master key, so it is stored nowhere and never changes.

Who can open the repository is a peer. To lock somebody out, a new repository is made: docs/design/repository.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncer.peer import sharekey
from syncer.peer.sharekey import Kept, StoredKey

if TYPE_CHECKING:  # see peer/sharekey.py
    from syncer.peer.session.keyring import RootKey


class RepositoryKey:
    """What `LanKeyKeeper` is for the key on a server, as far as anybody asks: nothing can go wrong with this one."""

    def __init__(self, share: str, key: bytes) -> None:
        """Of the share `share`, the key for its peers (`remote.repository.format.keys.Keys.lan`)."""
        self._kept = Kept(share=share, key=StoredKey(generation=1, made_s=0, key=key), highest=1)

    def kept(self) -> Kept:
        """What is known of it."""
        return self._kept

    def keys_now(self) -> tuple[RootKey, ...]:
        """The key that counts: one."""
        return sharekey.keys_now(self._kept, 0.0)
