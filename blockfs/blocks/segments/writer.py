"""One segment that this process appends to."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from blockfs.blocks.codec import Payload
from blockfs.blocks.disk import Disk
from blockfs.blocks.epochs import try_exclusive
from blockfs.blocks.index import Index, SegmentRow, SegmentState
from blockfs.blocks.layout import Layout
from blockfs.blocks.segment import (
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    SIDECAR_HEADER_BYTES,
    Record,
    align,
    check_segment_header,
    check_sidecar_header,
    decode_records,
    encode_record,
    encode_segment_header,
    encode_sidecar_header,
    payload_end,
    payload_start,
)
from blockfs.errors import CorruptionError

_CANDIDATES: Final = 16  # segments to look at before a new one is made: more than processes that write at once
_NO_LINK: Final = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOENT, errno.EOPNOTSUPP, errno.ENOSYS)
"""What link(2) says where the file can't have a second name here, or has no name any more."""
_WRITE_BACK_BYTES: Final = 4 << 20
"""Appended payload that the host is told to write. Left to the fdatasync of a group, it comes all at once, and whoever
else waits for the disk waits a tenth of a second."""


class SegmentWriter:
    """Appends to one segment under its exclusive flock, which it holds until `close`.

    Attributes:
        number: The segment's number.
        end: Where the next payload goes.
        failed: An fdatasync failed: no unsynced byte counts, and nothing more is appended.
    """

    def __init__(self, number: int, segment_fd: int, sidecar_fd: int, disk: Disk) -> None:
        self.number: Final = number
        self.end = align(max(os.fstat(segment_fd).st_size, SEGMENT_HEADER_BYTES))
        self.failed = False
        self._written_back = self.end
        self._segment_fd = segment_fd
        self._sidecar_fd = sidecar_fd
        self._sidecar_end = -(-os.fstat(sidecar_fd).st_size // RECORD_BYTES) * RECORD_BYTES  # jump over a torn record
        self._disk = disk

    def append(self, payloads: Sequence[Payload]) -> list[int]:
        """Write payloads behind the others, at once; not durable yet.

        Returns:
            Their offsets.

        Raises:
            NoSpaceError: Nothing was appended; the next ones go to the same place.
        """
        start = written = payload_start(self.end, payloads[0].codec)
        end = self.end
        offsets: list[int] = []
        parts: list[bytes] = []
        for payload in payloads:
            offset = payload_start(end, payload.codec)
            if offset > written:
                parts.append(bytes(offset - written))  # the rest of a page that the payload before owns
            parts.append(payload.data)
            offsets.append(offset)
            written = offset + len(payload.data)
            end = payload_end(offset, len(payload.data), payload.codec)
        self._disk.write(self._segment_fd, b"".join(parts), start)
        self.end = end
        if self.end - self._written_back >= _WRITE_BACK_BYTES:
            self._disk.start_writing_back(self._segment_fd, self._written_back, self.end - self._written_back)
            self._written_back = self.end
        return offsets

    def share(self, source: int, start: int, length: int) -> int | None:
        """Take a raw payload over from another file, by sharing its pages; not durable yet.

        Args:
            source: Descriptor of that file. What follows the payload in its last page is NUL.
            start: First byte there, a multiple of 4096.
            length: Bytes, at least 1.

        Returns:
            Its offset; None: the host can't, and nothing was appended.

        Raises:
            NoSpaceError: Nothing was appended; the next ones go to the same place.
        """
        offset = align(self.end)
        try:
            is_shared = self._disk.share(source, start, self._segment_fd, offset, align(length))
        except BaseException:
            with contextlib.suppress(OSError):  # a part may be there, and a shorter payload may come to lie over it
                self._disk.truncate(self._segment_fd, self.end)
            raise
        if not is_shared:
            return None
        self.end = offset + align(length)
        return offset

    def finish_page(self) -> None:
        """Let the next payload start on a page of its own: no page with durable payload is ever written again."""
        self.end = align(self.end)

    def make_durable(self, records: list[Record]) -> None:
        """Sync payloads, then write and sync their sidecar records: no record may speak of bytes that aren't there.

        Raises:
            NoSpaceError: The sidecar could not grow; call again.
            OSError: As NoSpaceError; if `failed` is set, the payloads must be appended to another segment.
        """
        self._fdatasync(self._segment_fd)
        data = b"".join([encode_record(record) for record in records])
        self._disk.write(self._sidecar_fd, data, self._sidecar_end)
        self._fdatasync(self._sidecar_fd)
        self._sidecar_end += len(data)

    def _fdatasync(self, fd: int) -> None:
        try:
            self._disk.fdatasync(fd)
        except BaseException:
            # The kernel marks pages clean after a failed write-back: a second fdatasync would succeed and mean nothing.
            self.failed = True
            raise

    def read_back(self, offset: int, length: int) -> bytes:
        """What the host has of a payload; may be anything if `failed`."""
        try:
            return os.pread(self._segment_fd, length, offset)
        except OSError:
            return b""

    def close(self) -> None:
        """Drop the flock: another process may take the segment over."""
        os.close(self._sidecar_fd)
        os.close(self._segment_fd)


class SegmentSource:
    """Finds a segment to append to: one that nobody appends to and that isn't full, else a new one."""

    def __init__(self, layout: Layout, uuid: UUID, index: Index, disk: Disk) -> None:
        self._layout = layout
        self._uuid = uuid.bytes
        self._index = index
        self._disk = disk

    def next(self, limit_bytes: int, excluded: set[int]) -> SegmentWriter:
        """Take a segment over or make one.

        Args:
            limit_bytes: A segment of this size or more is full.
            excluded: Numbers not to look at.

        Raises:
            NoSpaceError: No segment was made.
        """
        with self._index.reading() as txn:
            growing = [number for number, row in self._index.segments(txn) if row.state is SegmentState.GROWING]
        for number in [number for number in reversed(growing) if number not in excluded][:_CANDIDATES]:
            writer = self._take_over(number, limit_bytes)
            if writer is not None:
                return writer
        return self._create()

    def _take_over(self, number: int, limit_bytes: int) -> SegmentWriter | None:
        fds: list[int] = []
        try:
            fds.append(os.open(self._layout.segment(number), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC))
            fds.append(os.open(self._layout.sidecar(number), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC))
            if self._is_usable(number, fds[0], fds[1], limit_bytes):
                writer = SegmentWriter(number, fds[0], fds[1], self._disk)
                fds = []
                return writer
        except (OSError, CorruptionError):
            pass  # damaged or gone: scrub's business; a new segment will do
        finally:
            for fd in fds:
                os.close(fd)
        return None

    def _is_usable(self, number: int, segment_fd: int, sidecar_fd: int, limit_bytes: int) -> bool:
        if not try_exclusive(segment_fd):
            return False
        check_segment_header(os.pread(segment_fd, SEGMENT_HEADER_BYTES, 0), self._uuid, number, "segment")
        check_sidecar_header(os.pread(sidecar_fd, SIDECAR_HEADER_BYTES, 0), self._uuid, number, "sidecar")
        with self._index.reading() as txn:  # again, under the flock: a collector may have removed it
            row = self._index.segment(txn, number)
        size_bytes = os.fstat(segment_fd).st_size
        return (
            row is not None
            and row.state is SegmentState.GROWING
            and os.fstat(segment_fd).st_nlink > 0
            and size_bytes < limit_bytes
            and size_bytes >= _recorded_end(sidecar_fd)  # else it is cut off: never write where a row may point
        )

    def _create(self) -> SegmentWriter:
        """Make a segment. Order: files → fsync → fsync of the folder → row. The write transaction keeps others away."""
        fds: list[int] = []
        number = self._register(SegmentState.GROWING, self._make_files, fds)
        return SegmentWriter(number, fds[0], fds[1], self._disk)

    def adopt(self, path: str, fd: int) -> tuple[int, int] | None:
        """Make a segment of a file, by a second name for it. Order as for other new segments.

        Args:
            path: The file.
            fd: A descriptor of it that has its flock.

        Returns:
            The number, and a descriptor of the sidecar, which has only its header; None if the host can't do it.

        Raises:
            NoSpaceError: No segment was made.
        """
        fds: list[int] = []
        try:
            number = self._register(SegmentState.SEALED, partial(self._link_files, path, fd), fds)
        except OSError as error:
            if error.errno in _NO_LINK:
                return None
            raise
        return number, fds[0]

    def _register(self, state: SegmentState, make: Callable[[int, list[int]], None], fds: list[int]) -> int:
        """Have the files of a new segment made, and note it; its number. The files' descriptors go to `fds`."""
        try:
            with self._index.writing() as txn:
                number = self._index.number(txn, b"next_segment")
                while not self._remove_leftover(number):
                    number += 1
                make(number, fds)
                self._index.set_segment(txn, number, SegmentRow(state, 0, 0))
                self._index.set_number(txn, b"next_segment", number + 1)
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return number

    def _link_files(self, path: str, fd: int, number: int, fds: list[int]) -> None:
        """Create and sync a sidecar, then let a file be its segment; appends the sidecar's descriptor to `fds`."""
        self._layout.allow_adopted()  # in the write transaction, as all that is done here: nobody else does it now
        fds.append(self._disk.create(self._layout.sidecar(number)))
        self._disk.write(fds[0], encode_sidecar_header(self._uuid, number, adopted=True), 0)
        self._disk.fdatasync(fds[0])
        self._disk.link(fd, path, self._layout.segment(number))
        self._disk.sync_directory(self._layout.segments)

    def _make_files(self, number: int, fds: list[int]) -> None:
        """Create and sync a segment and its sidecar; appends their descriptors to `fds`, locked."""
        for path, header in (
            (self._layout.segment(number), encode_segment_header(self._uuid, number)),
            (self._layout.sidecar(number), encode_sidecar_header(self._uuid, number)),
        ):
            fds.append(self._disk.create(path))
            self._disk.write(fds[-1], header, 0)
            self._disk.fdatasync(fds[-1])
        taken = try_exclusive(fds[0])
        assert taken, "nobody looks at a segment without a row"
        self._disk.sync_directory(self._layout.segments)

    def _remove_leftover(self, number: int) -> bool:
        """Clear the way for a new segment: files of this number are there if a process died while making it.

        Returns:
            False if they hold more than headers: then the index is older than the segments (a restored copy?), and the
            number is left alone for a rebuild. An adopted file counts for nothing as long as there are no records.
        """
        leftover = []
        is_adopted = self._layout.is_adopted(number)
        for path, header_bytes in (
            (self._layout.segment(number), sys.maxsize if is_adopted else SEGMENT_HEADER_BYTES),
            (self._layout.sidecar(number), SIDECAR_HEADER_BYTES),
        ):
            try:
                if os.stat(path).st_size > header_bytes:
                    return False
                leftover.append(path)
            except FileNotFoundError:
                continue
        for path in leftover:
            self._disk.unlink(path)
        return True


def _recorded_end(sidecar_fd: int) -> int:
    """End of the last recorded payload. Offsets ascend, so the tail of the sidecar is enough."""
    size_bytes = os.fstat(sidecar_fd).st_size // RECORD_BYTES * RECORD_BYTES
    start = max(SIDECAR_HEADER_BYTES, size_bytes - 64 * RECORD_BYTES)
    tail = os.pread(sidecar_fd, size_bytes - start, start)
    return max((record.offset + record.stored_length for record in decode_records(tail)), default=0)
