"""Making durable what was written: by commits, by sealing, by the end of the mount."""

from __future__ import annotations

from contextlib import suppress

from blockfs.control.protocol import Commit, Done, Flush, Reply, Shutdown
from blockfs.engine.content.hostfile import HostIoError
from blockfs.engine.durable.failing import FlushFailedError
from blockfs.engine.volume import lock_holder
from blockfs.errors import BlockfsError, ChangesLostError, DatabaseStoppedError
from blockfs.exitcodes import ExitCode
from blockfs.runtime.failures import said
from blockfs.runtime.output import shown
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
        _save_stubbornly(session, seal=request.seal)
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


def _save_stubbornly(session: Conversation, *, seal: bool) -> None:
    """Save. If the host fails, once more: it may have told of what is over, or a database learns that it has ended.

    Raises:
        DatabaseStoppedError: Nothing can be saved any more.
        BlockfsError: It may be later.
        OSError: The host failed likewise.
    """
    try:
        _save(session, seal=seal)
        return
    except (BlockfsError, OSError) as error:
        if isinstance(error, BlockfsError) and error.exit_code != ExitCode.UNEXPECTED:
            raise
    try:
        _save(session, seal=seal)
    except (BlockfsError, OSError) as error:
        path = session.filesystem.volume.path
        if _is_gone(path):
            raise DatabaseStoppedError(
                f"{shown(path)}: the host's filesystem takes and gives nothing any more ({said(error)}): have it "
                "repaired, and mount the volume anew; what was fsynced is there, later changes are lost"
            ) from error
        raise


def _is_gone(path: bytes) -> bool:
    """Whether a filesystem was shut down, as XFS and ext4 are when their journal can't be written: nothing opens."""
    try:
        lock_holder(path)
    except OSError:
        return True
    return False


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
