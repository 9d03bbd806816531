"""What happens when the host fails to write staged pages: they are lost, for good and for everybody, and not silently.

Where it is noticed (a flush, or the look before a seal), under the engine's lock and in one change set: the pages leave
their generation, the file's `Failures` and the tree's row get them, and the staging file takes no more writes. From
then on the file can be flushed, published and sealed as before; what lies below the lost pages is what it was, and
nobody can read it through the file.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import Final

from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.content.generation import StagedGeneration
from blockfs.engine.content.hostfile import HostIoError, punch
from blockfs.engine.content.pagemap import PAGE, PageMap
from blockfs.engine.context import Stores
from blockfs.engine.durable.committer import Committer
from blockfs.engine.durable.failures import Failures
from blockfs.errors import BlockfsError
from blockfs.exitcodes import ExitCode
from blockfs.runtime.logs import Log
from blockfs.runtime.output import shown
from blockfs.tree.schema import Kind

_NAMED_RUNS: Final = 3  # in a message

log = Log()


class FlushFailedError(HostIoError):
    """What was written to a file did not get to the host's disk and is lost.

    Attributes:
        ino: The file.
    """

    exit_code = ExitCode.CORRUPTION

    def __init__(self, ino: int, message: str, code: int) -> None:
        self.ino = ino
        self.errno = code
        super().__init__(message)


def failure_of(stores: Stores, state: FileState, *, reading: bool = False) -> FlushFailedError:
    """The error that names a file and its failed ranges. Under the engine's lock.

    Args:
        stores: Of the mount.
        state: With failures.
        reading: For a reader: that is EIO, whatever the host had said.
    """
    failures = state.failures
    assert failures is not None
    where = _named(stores, state.ino)
    runs = list(failures.pages.extents())
    code = errno.EIO if reading else failures.code
    if not runs:
        message = (
            "something that was written could not be written to the host's disk; it was written again, or cut, since"
        )
        return FlushFailedError(state.ino, f"{where}: {message}", code)
    ranges = [(first * PAGE, min((first + pages) * PAGE, state.size_bytes) - 1) for first, pages in runs[:_NAMED_RUNS]]
    named = ", ".join(f"{start} to {end}" for start, end in ranges)
    more = f" and {len(runs) - _NAMED_RUNS} more ranges" if len(runs) > _NAMED_RUNS else ""
    return FlushFailedError(
        state.ino,
        f"{where}: bytes {named}{more} could not be written to the host's disk and are lost; "
        "write them again, or restore the file from a backup",
        code,
    )


def hot_failure_of(stores: Stores, ino: int) -> FlushFailedError:
    """The error that names a file which the kernel failed to write back: which bytes is not known. Under the lock."""
    return FlushFailedError(
        ino,
        f"{_named(stores, ino)}: some of what was written could not be written to the host's disk and is lost; "
        "copy what is there, and remove the file, or restore it from a backup",
        errno.EIO,
    )


def _named(stores: Stores, ino: int) -> str:
    path = stores.tree.path_of(ino)
    return f"inode {ino}, which has no name" if path is None else shown(path)


def check_sound(stores: Stores, state: FileState | None) -> None:
    """Refuse a file with a failed range. Under the engine's lock.

    Raises:
        FlushFailedError: It has one.
    """
    if state is not None and state.failures is not None and state.failures.pages:
        raise failure_of(stores, state)


def check_readable(stores: Stores, state: FileState | None, offset: int, length: int) -> None:
    """Refuse to read what was lost. Under the engine's lock.

    Raises:
        FlushFailedError: The range touches a failed one.
    """
    if state is None or state.failures is None or not state.failures.pages:
        return
    first = offset // PAGE
    if state.failures.pages.overlaps(first, -(-(offset + length) // PAGE) - first):
        raise failure_of(stores, state, reading=True)


def note_failure(
    stores: Stores,
    table: FileTable,
    state: FileState,
    place: tuple[StagedGeneration, int],
    pages: PageMap,
    code: int,
) -> FlushFailedError | None:
    """Pages of a staging file may not be on the disk. Under the engine's lock, and the file's `publishing`.

    Args:
        stores: Of the mount.
        table: Of the mount.
        state: The file.
        place: Generation and 1 TiB range.
        pages: Those that the flush was for. Those that were written since go with them: it may have met them.
        code: The host's errno.

    Returns:
        The error; None if no page was lost: all were sealed, cut away or written again.
    """
    generation, range_index = place
    lost = pages.copy()
    late = generation.unsynced.pop(range_index, None)
    if late is not None:
        lost.unite(late)
    if state.discarded or generation not in state.generations:
        return None
    lost.intersect(generation.pages)
    newer = state.generations[state.generations.index(generation) + 1 :]
    generation.lose(lost)
    if state.newest is generation:
        state.close_generation()  # what is written from now on goes to a file that has not failed
    if not generation.pages:
        table.drop_generations(state, [generation])
    for one in newer:
        lost.subtract(one.pages)
    if not lost:
        return None
    state.note_failure(lost, code, stores.block_size)
    record(stores, state)
    error = failure_of(stores, state)
    log.error("flush.failed", reason=str(error), inode=state.ino, host=errno.errorcode.get(code, str(code)))
    return error


def record(stores: Stores, state: FileState) -> None:
    """Put what the next mount must know of a file's failures into the change set. Under the engine's lock."""
    failures = state.failures
    if failures is None or state.discarded:
        return
    row = failures.row
    if row is None:
        stores.tree.drop_failed_flush(state.ino)
    elif row != stores.tree.failed_flush(state.ino):
        stores.tree.put_failed_flush(row)


def write_down(stores: Stores, table: FileTable, committer: Committer, ino: int) -> None:
    """A failure was noted: make that durable, and let the kernel forget the pages. Without any lock.

    A host that fails may fail here, too. Then it goes with a later commit, if there is one; without one the next mount
    finds what lies in the staging file: what was written, or what was flushed there before it.
    """
    with suppress(BlockfsError):
        committer.commit()
        _make_holes(stores, table, ino)
    table.on_failure(ino)


def _make_holes(stores: Stores, table: FileTable, ino: int) -> None:
    """Lost pages leave the staging file, as far as the host lets them: never before the tree says that they are lost.

    Until then nothing else would tell a hole from what was never written, and what had been flushed there is better.
    """
    with stores.lock:
        state = table.peek(ino)
        lost = [] if state is None else [place for each in state.generations for place in each.take_lost()]
    for file, offset, length in lost:
        with suppress(OSError), stores.staging.using(file) as fd:  # it may be gone since
            punch(fd, offset, length)


def tell(stores: Stores, table: FileTable, state: FileState, sample: int) -> tuple[FlushFailedError | None, int]:
    """Somebody syncs a file and is told of its failures. Under the engine's lock.

    As long as a range is failed everybody is told each time: a success would say that it is on the disk.

    Args:
        stores: Of the mount.
        table: Of the mount.
        state: The file.
        sample: What the handle remembers, see `Failures`.

    Returns:
        The error, or None; and what the handle remembers now.
    """
    failures = state.failures
    if failures is None:
        return None, sample
    is_news, sample = failures.tell(sample)
    error = failure_of(stores, state) if is_news or failures.pages else None
    record(stores, state)
    table.settle(state)
    return error, sample


def recall(stores: Stores, table: FileTable) -> None:
    """At mount: the failures that earlier ones have recorded."""
    with stores.tree.committed() as view:
        rows = list(view.failed_flushes())
    for row in rows:
        inode = stores.tree.inode(row.ino)
        if inode is not None and inode.kind is Kind.FILE:  # else an orphan that goes, or damage, which fsck names
            table.get(row.ino).failures = Failures.found(row, stores.block_size)
