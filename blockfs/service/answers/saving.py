"""Making durable what was written: by commits, by sealing, by the end of the mount."""

from __future__ import annotations

from contextlib import suppress

from blockfs.control.protocol import Commit, Done, Flush, Reply, Shutdown
from blockfs.engine.content.hostfile import HostIoError
from blockfs.engine.durable.failing import FlushFailedError
from blockfs.errors import ChangesLostError, DatabaseStoppedError
from blockfs.service.conversation import Conversation


def commit(session: Conversation, _request: Commit) -> Reply:
    """Make the changes of names and attributes durable."""
    session.filesystem.commit()
    return Done()


def flush(session: Conversation, _request: Flush) -> Reply:
    """Seal all that programs have written."""
    session.mount.kernel.take_pages()
    session.filesystem.flush(stop=session.stop)
    return Done()


def shutdown(session: Conversation, request: Shutdown) -> Reply:
    """End the mount, all being durable, and sealed if asked for."""
    session.mount.kernel.take_pages()
    # An error is told here, while the mount can still be asked; the final commit has nobody to tell.
    try:
        _save(session, seal=request.seal)
    except DatabaseStoppedError as error:
        session.mount.unmount()  # no repetition would help: only the next mount can commit again
        raise ChangesLostError(f"the mount has ended; {error}") from error
    lost = session.filesystem.files.failure(is_new=True)
    session.mount.seals = request.seal  # before: what ends then asks
    try:
        session.mount.unmount()
    except BaseException:
        session.mount.seals = False  # it is busy, and goes on
        raise
    if lost is not None:
        raise ChangesLostError(f"the mount has ended; {lost}")
    return Done()


def _save(session: Conversation, *, seal: bool) -> None:
    """Make everything durable. What failed to be flushed is noted: no repetition saves it."""
    with suppress(FlushFailedError):
        if not seal:
            try:
                session.filesystem.sync()
            except FlushFailedError:
                raise
            except HostIoError:
                pass  # of names, say: sealing needs none
            else:
                return
        session.filesystem.flush(stop=session.stop)
