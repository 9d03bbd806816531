"""Watch a mounted volume: the mount answers a waiting request when users have changed something.

Where the change is the journal says; so all there is to tell is "something". Nothing is polled, and nothing holds the
mount: the connection lasts until it ends.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from blockfs.control.client import ControlClient
from blockfs.control.waiting import MAX_WAIT_MS
from blockfs.errors import BlockfsError
from syncer.core.model import RelPath
from syncer.local.volume.mount import find_mount
from syncer.watch.dirt import Dirt
from syncer.watch.source import Mailbox, SourceLostError

_SOMEWHERE: Final = frozenset({RelPath(b"")})


class VolumeSource:
    """See `DirtySource`."""

    kind = "journal"
    problem: str | None = None

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._mailbox = Mailbox()
        self._client: ControlClient | None = None
        self._thread: threading.Thread | None = None
        self._seen = 0

    def arm(self) -> None:
        """See DirtySource.arm."""
        self._mailbox.open()
        mount = find_mount(self._path)
        if mount is None:
            raise SourceLostError(f"{os.fsdecode(self._path)} is not mounted")
        try:
            self._client = ControlClient(mount.source)
            self._seen = self._client.wait(None, 0).activity
        except BlockfsError as error:
            raise SourceLostError(str(error)) from error
        self._thread = threading.Thread(target=self._run, name="activity", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        assert self._client is not None
        try:
            while True:
                found = self._client.wait(self._seen, MAX_WAIT_MS).activity
                if found != self._seen:
                    self._seen = found
                    self._mailbox.put(set(_SOMEWHERE))
        except BlockfsError as error:
            self._mailbox.lose(str(error))

    async def wait(self) -> None:
        """See DirtySource.wait."""
        await self._mailbox.wait()

    def take(self) -> Dirt:
        """See DirtySource.take."""
        return self._mailbox.take()

    def close(self) -> None:
        """See DirtySource.close."""
        if self._client is not None:
            self._client.interrupt()
            if self._thread is not None:
                self._thread.join()
                self._thread = None
            self._client.close()
            self._client = None


def has_writers(path: bytes) -> bool:
    """Whether a file of the volume that is mounted here is open for writing now; blocking."""
    mount = find_mount(path)
    if mount is None:
        return False
    with ControlClient(mount.source) as client:
        return client.wait(None, 0).writers > 0
