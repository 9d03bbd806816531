"""How much each part does: as promised, or little enough to see in three minutes that everything works."""

from __future__ import annotations

import msgspec

MIB = 1 << 20


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Counts, and bytes.

    Attributes:
        repetitions: Of each measurement.
        families: Repetitions of what takes four minutes: nodes that get an image family together.
        questions: Of one id, in each repetition.
        ids: That are asked for at once.
        passes: Cycles that fetch one small file, in each repetition.
        pulls: Pairs of pulls of 64 MiB, in each repetition; even: each of a pair is the first as often.
        folder_bytes: Of the pull that is called "64 MiB" in the rows.
        stream_bytes: Of one transfer between two nodes.
        crowd_bytes: What seven downloaders fetch from one.
        hostile_bytes: Of the transfer of which one of four peers is bad.
        flood_s: So long it rains frames.
        index_blocks: Of the index.
        nodes: That begin together.
        image_bytes: Of the four images of the family, together.
        server_mbit_s: Of the server, where nodes begin together.
        small_files: Of 1 KiB.
        slow_bytes: What is pulled beside a slow peer.
    """

    repetitions: int
    families: int
    questions: int
    ids: int
    passes: int
    pulls: int
    folder_bytes: int
    stream_bytes: int
    crowd_bytes: int
    hostile_bytes: int
    flood_s: float
    index_blocks: int
    nodes: int
    image_bytes: int
    server_mbit_s: float
    small_files: int
    slow_bytes: int


FULL = Sizes(
    repetitions=5,
    families=5,
    questions=500,
    ids=10_000,
    passes=20,
    pulls=16,
    folder_bytes=64 * MIB,
    stream_bytes=1024 * MIB,
    crowd_bytes=64 * MIB,
    hostile_bytes=256 * MIB,
    flood_s=10.0,
    index_blocks=1_000_000,
    nodes=8,
    image_bytes=2048 * MIB,
    server_mbit_s=100.0,
    small_files=10_000,
    slow_bytes=512 * MIB,
)
QUICK = Sizes(
    repetitions=1,
    families=1,
    questions=100,
    ids=10_000,
    passes=2,
    pulls=2,
    folder_bytes=64 * MIB,
    stream_bytes=128 * MIB,
    crowd_bytes=16 * MIB,
    hostile_bytes=32 * MIB,
    flood_s=1.0,
    index_blocks=20_000,
    nodes=3,
    image_bytes=32 * MIB,
    server_mbit_s=100.0,
    small_files=200,
    slow_bytes=64 * MIB,
)
