"""How much each part does: as in the results, or little enough to see in a minute that everything works."""

from __future__ import annotations

import msgspec

MIB = 1 << 20


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Counts, bytes and seconds.

    Attributes:
        repetitions: Of each measurement.
        stream_bytes: Of a stream, and of a file that is read in order.
        large_bytes: Of what is made into blocks, or pulled, beside requests.
        sealed_bytes: Of what is written and then made into blocks.
        sealed_repetitions: Of that.
        file_bytes: Of the file in which pages are read and written at random.
        job_s: Of one job of fio.
        pages: Written before one fsync.
        syncs: Writes of one page with an fdatasync each.
        names: Files that are made, looked at and removed.
        listing: Files of the directory that is read.
        image_bytes: Logical size of the image that is copied.
        image_data_bytes: Of its data, spread over it.
        open_files: That are open at once, where memory is looked at.
        logical_bytes: Of all of them together.
    """

    repetitions: int
    stream_bytes: int
    large_bytes: int
    sealed_bytes: int
    sealed_repetitions: int
    file_bytes: int
    job_s: int
    pages: int
    syncs: int
    names: int
    listing: int
    image_bytes: int
    image_data_bytes: int
    open_files: int
    logical_bytes: int


FULL = Sizes(
    repetitions=5,
    stream_bytes=128 * MIB,
    large_bytes=512 * MIB,
    sealed_bytes=10 << 30,
    sealed_repetitions=3,
    file_bytes=256 * MIB,
    job_s=1,
    pages=16384,
    syncs=200,
    names=1000,
    listing=10_000,
    image_bytes=10 << 30,
    image_data_bytes=256 * MIB,
    open_files=100,
    logical_bytes=1 << 40,
)

QUICK = Sizes(
    repetitions=2,
    stream_bytes=64 * MIB,
    large_bytes=64 * MIB,
    sealed_bytes=256 * MIB,
    sealed_repetitions=2,
    file_bytes=64 * MIB,
    job_s=1,
    pages=2048,
    syncs=50,
    names=200,
    listing=1000,
    image_bytes=1 << 30,
    image_data_bytes=16 * MIB,
    open_files=10,
    logical_bytes=10 << 30,
)
